//! Why a call stays without an answer.

use crate::judge::call::CallErrorKind;

/// Why a call stays without an answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unanswered {
    /// A cap stops the run; the call was not sent.
    #[error("not judged: {0}")]
    Capped(String),
    /// The call is not in the ledger and nothing may be sent.
    #[error("not judged: the ledger has no answer")]
    NotInLedger,
    /// The call waits for the result of a batch.
    #[error(
        "not judged yet: the question waits for the result of a batch; collect it with `nightmill judge --collect`, or run again"
    )]
    InBatch,
    /// The run's deadline came before the call could be begun.
    #[error(
        "not judged: --judge-deadline was over before the question could be asked; run again to go on"
    )]
    DeadlinePassed,
    /// Another run has been asking the same for longer than its retries can take.
    #[error("not judged: another run has been asking the same question for long; run again")]
    AskedElsewhere,
    /// The endpoint refused clearly, or is away: nothing more is asked there in this run.
    #[error("not judged: {0}; run again when that is mended")]
    Stopped(String),
    /// The call failed for good.
    #[error("{code}: {message}")]
    Failed {
        /// A code for tables.
        code: &'static str,
        /// What was said.
        message: String,
    },
    /// The ledger can't be read or written: the run must stop, else answers would be paid and lost.
    #[error("{0}")]
    Ledger(String),
}

impl Unanswered {
    /// Whether the endpoint does not take the call's reply format: that says nothing of the question.
    pub(crate) fn is_of_format(&self) -> bool {
        matches!(self, Self::Failed { code, .. } if *code == CallErrorKind::FormatRejected.code())
    }

    /// Whether the call was never given a chance, so that a later run can still make it.
    pub fn pending(&self) -> bool {
        matches!(
            self,
            Self::Capped(_)
                | Self::NotInLedger
                | Self::InBatch
                | Self::DeadlinePassed
                | Self::AskedElsewhere
                | Self::Stopped(_)
        )
    }
}
