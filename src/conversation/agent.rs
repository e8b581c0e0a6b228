//! What the conversations of a run say of the agent that had them.

use serde::{Deserialize, Serialize};

use crate::conversation::judged::Recorded;

/// An agent as far as all conversations of a run that say something of it agree: comparisons of runs look for changes of it
/// (as in Connexity).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Its system prompt; none if no conversation tells it, or if they differ.
    pub system_prompt: Option<String>,
    /// JSON text: its tools; none if no conversation tells them, or if they differ.
    pub tools: Option<String>,
}

/// A value that all conversations so far agree on.
#[derive(Debug, Default)]
enum Common {
    #[default]
    Unknown,
    One(String),
    Several,
}

impl Common {
    fn add(&mut self, value: Option<&str>) {
        let Some(value) = value.filter(|value| !value.trim().is_empty()) else {
            return;
        };
        match self {
            Self::Unknown => *self = Self::One(value.to_owned()),
            Self::One(known) if known != value => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }

    fn found(self) -> Option<String> {
        match self {
            Self::One(value) => Some(value),
            Self::Unknown | Self::Several => None,
        }
    }
}

/// Gathers what conversations say of their agent.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    system_prompt: Common,
    tools: Common,
}

impl Agreement {
    pub fn add(&mut self, conversation: &Recorded) {
        self.system_prompt
            .add(conversation.agent_system_prompt.as_deref());
        self.tools.add(conversation.agent_tools.as_deref());
    }

    pub fn found(self) -> Agent {
        Agent {
            system_prompt: self.system_prompt.found(),
            tools: self.tools.found(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(conversations: &[(Option<&str>, Option<&str>)]) -> Agent {
        let mut agreement = Agreement::default();
        for (prompt, tools) in conversations {
            agreement.add(&Recorded {
                agent_system_prompt: prompt.map(str::to_owned),
                agent_tools: tools.map(str::to_owned),
                ..Recorded::default()
            });
        }
        agreement.found()
    }

    #[test]
    fn conversations_that_say_nothing_agree_with_all() {
        let found = agent(&[
            (None, None),
            (Some("Be brief."), Some("[]")),
            (Some(" "), None),
            (Some("Be brief."), Some("[1]")),
            (Some("Be brief."), Some("[]")),
        ]);
        assert_eq!(found.system_prompt.as_deref(), Some("Be brief."));
        assert_eq!(found.tools, None, "they differ");
        assert_eq!(agent(&[(None, None)]), Agent::default());
    }
}
