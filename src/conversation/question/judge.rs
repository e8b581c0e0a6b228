//! One configuration of the judge, ready for all of its cases.

use crate::conversation::question::catalogue::Catalogue;
use crate::conversation::question::reply::JudgeError;
use crate::conversation::question::request::{
    Request, RequestError, SchemaPlace, request, system_message,
};
use crate::conversation::question::transcript::{Case, Turn};
use crate::conversation::question::verdict::Verdict;
use crate::conversation::question::weights::{
    ConfigError, JudgeConfig, Selection, ToollessPolicy, is_toolless,
};
use crate::question::PromptError;

/// Why a configuration can't be made ready.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The configuration has a fault. In a configuration of a single case, the verdict is `metric_resolution`.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A prompt could not be filled in.
    #[error(transparent)]
    Prompt(#[from] PromptError),
}

/// A resolved configuration with its system messages.
#[derive(Clone, Debug)]
pub struct ConversationJudge {
    config: JudgeConfig,
    all: Ready,
    toolless: Ready,
}

#[derive(Clone, Debug)]
struct Ready {
    selection: Selection,
    system: String,
}

impl Ready {
    fn new(selection: Selection) -> Result<Self, PromptError> {
        Ok(Self {
            system: system_message(&selection)?,
            selection,
        })
    }
}

impl ConversationJudge {
    /// Resolves a configuration and writes its system messages.
    ///
    /// # Errors
    /// If the configuration has a fault or a prompt can't be filled in.
    pub fn new(config: JudgeConfig, catalogue: &Catalogue) -> Result<Self, SetupError> {
        let all = config.resolve(catalogue)?;
        let toolless = match config.toolless_policy {
            ToollessPolicy::Score => all.clone(),
            ToollessPolicy::Drop => all.without_tool_metrics(),
        };
        Ok(Self {
            all: Ready::new(all)?,
            toolless: Ready::new(toolless)?,
            config,
        })
    }

    /// The configuration.
    pub fn config(&self) -> &JudgeConfig {
        &self.config
    }

    /// The metrics that are asked for in this case.
    pub fn selection(&self, case: &Case, turns: &[Turn]) -> &Selection {
        &self.ready(case, turns).selection
    }

    /// The request for a case that is to be judged; see [`crate::conversation::not_judged`].
    ///
    /// # Errors
    /// If it is longer than allowed, or the prompt can't be filled in.
    pub fn request(
        &self,
        case: &Case,
        turns: &[Turn],
        schema_place: SchemaPlace,
    ) -> Result<Request, RequestError> {
        let Ready { selection, system } = self.ready(case, turns);
        request(system, selection, &self.config, case, turns, schema_place)
    }

    /// The verdict that follows from the judge's reply, or from what kept it from coming.
    pub fn verdict(&self, case: &Case, turns: &[Turn], reply: Result<&str, JudgeError>) -> Verdict {
        let selection = self.selection(case, turns);
        match reply {
            Ok(raw) => Verdict::from_reply(raw, selection, case.outcomes(), &self.config),
            Err(fault) => Verdict {
                dropped_metrics: selection.dropped_metrics.clone(),
                ..Verdict::failed(fault, self.config.pass_threshold)
            },
        }
    }

    fn ready(&self, case: &Case, turns: &[Turn]) -> &Ready {
        let toolless =
            self.config.toolless_policy == ToollessPolicy::Drop && is_toolless(case, turns);
        if toolless { &self.toolless } else { &self.all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_decides_whether_toolless_cases_lose_metrics() {
        let turn: Turn =
            serde_json::from_str(r#"{"turn_index":0,"role":"user","content":"hi"}"#).unwrap();
        let (case, turns) = (Case::default(), [turn]);
        let judge = |policy: ToollessPolicy| {
            let config = JudgeConfig {
                toolless_policy: policy,
                ..Default::default()
            };
            ConversationJudge::new(config, &Catalogue::built_in()).unwrap()
        };
        assert_eq!(
            judge(ToollessPolicy::Score)
                .selection(&case, &turns)
                .metrics
                .len(),
            8
        );
        let dropping = judge(ToollessPolicy::Drop);
        assert_eq!(dropping.selection(&case, &turns).metrics.len(), 5);
        let armed = Case {
            agent_tools: Some("[1]".into()),
            ..Default::default()
        };
        assert_eq!(dropping.selection(&armed, &turns).metrics.len(), 8);
        let asked = dropping
            .request(&case, &turns, SchemaPlace::default())
            .unwrap();
        assert!(
            !asked.system.contains("tool_routing")
                && asked.schema["properties"].get("tool_routing").is_none()
        );
        let verdict = dropping.verdict(&case, &turns, Err(JudgeError::LlmCallFailed));
        assert_eq!(
            (verdict.dropped_metrics.len(), verdict.judge_error),
            (3, Some(JudgeError::LlmCallFailed))
        );
        assert_eq!(
            dropping
                .verdict(&case, &turns, Ok("{}"))
                .dropped_metrics
                .len(),
            3
        );
    }
}
