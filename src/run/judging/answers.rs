//! The answers that a ledger holds already, looked up without asking anybody.

use crate::judge::{Call, CallHash, Known, Ledger, endpoint_of};
use crate::run::RunError;
use crate::run::judging::request::JudgeRequest;

/// The answers for a request.
pub(in crate::run) struct Answers<'r> {
    ledger: Option<Ledger>,
    judge: &'r JudgeRequest,
}

impl<'r> Answers<'r> {
    /// Those of the request's ledger; none if there is no such file.
    ///
    /// # Errors
    /// [`RunError::Request`] if the file is no ledger.
    pub fn of(judge: &'r JudgeRequest) -> Result<Self, RunError> {
        // Opening would make one.
        let ledger = judge
            .ledger
            .exists()
            .then(|| Ledger::open_to_read(&judge.ledger));
        let ledger = ledger
            .transpose()
            .map_err(|e| RunError::Request(e.to_string()))?;
        Ok(Self { ledger, judge })
    }

    pub fn judge(&self) -> &'r JudgeRequest {
        self.judge
    }

    /// The hash of a call where it would be asked.
    pub fn hash(&self, call: &Call) -> CallHash {
        call.hash(&endpoint_of(&call.model, &self.judge.provider))
    }

    /// What is known of a call.
    pub fn known(&self, call: &Call) -> Result<Known, RunError> {
        let Some(ledger) = &self.ledger else {
            return Ok(Known::Nothing);
        };
        let broken = |e: crate::judge::LedgerError| RunError::Plan(e.to_string());
        let hash = self.hash(call);
        if let Some(reply) = ledger.answer(&hash).map_err(broken)? {
            return Ok(Known::Answer(reply.text));
        }
        let refused = ledger.refused_format(&hash).map_err(broken)?;
        Ok(refused.map_or(Known::Nothing, Known::FormatRefused))
    }
}
