//! How a judged metric ended.

/// How a metric of one trace ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Status {
    /// It has a score.
    Success,
    /// It failed; it has none.
    Failed,
    /// It was not tried: a cap was reached, or nothing may be sent.
    Pending,
}

impl Status {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Failed => "FAILED",
            Self::Pending => "PENDING",
        }
    }
}
