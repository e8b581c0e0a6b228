//! The dimensions of tone.

/// A dimension of tone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dimension {
    /// Formal rather than casual words.
    Formality,
    /// As pleasant or unpleasant as expected.
    Sentiment,
    /// Settled rather than hedged.
    Assertiveness,
    /// Speaks of persons as expected.
    PersonaConsistency,
    /// As wordy as expected.
    Verbosity,
}

impl Dimension {
    /// All of them, in the order of results.
    pub const ALL: [Self; 5] = [
        Self::Formality,
        Self::Sentiment,
        Self::Assertiveness,
        Self::PersonaConsistency,
        Self::Verbosity,
    ];

    /// The name in configuration, replies and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Formality => "formality",
            Self::Sentiment => "sentiment",
            Self::Assertiveness => "assertiveness",
            Self::PersonaConsistency => "persona_consistency",
            Self::Verbosity => "verbosity",
        }
    }
}
