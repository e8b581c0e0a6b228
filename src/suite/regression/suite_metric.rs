//! The four metrics of a regression suite.

/// A metric of a regression suite (as in Regtrace).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SuiteMetric {
    /// Whether the output says what was expected.
    Factuality,
    /// Whether the output has the form that was expected.
    Format,
    /// Whether the output sounds as expected.
    Tone,
    /// Whether the case scores as well as in the baseline run.
    Regression,
}

impl SuiteMetric {
    /// All of them, in the order in which reports list them.
    pub const ALL: [Self; 4] = [Self::Factuality, Self::Format, Self::Tone, Self::Regression];

    /// The name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Factuality => "factuality",
            Self::Format => "format",
            Self::Tone => "tone",
            Self::Regression => "regression",
        }
    }

    /// The metric of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }
}
