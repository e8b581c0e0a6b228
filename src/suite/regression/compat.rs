//! Which of two sets of rules numbers follow.

/// Whether numbers follow the documented rules or those of the tool that teams migrate from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compat {
    /// The rules of Regtrace's documentation.
    #[default]
    Document,
    /// What Regtrace 0.10.1 gives where it differs: for teams whose stored baselines come from it.
    Tool,
}

impl Compat {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Tool => "tool",
        }
    }
}
