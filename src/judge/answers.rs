//! The answers that a ledger holds already, looked up without asking anybody.

use std::path::Path;

use super::service::Unanswered;
use super::{
    Call, CallErrorKind, CallHash, Ledger, LedgerError, ProviderSettings, Reply, endpoint_of,
};

/// What a ledger answers to the calls of a provider.
#[derive(Debug)]
pub(crate) struct Answers<'p> {
    ledger: Option<Ledger>,
    provider: &'p ProviderSettings,
}

impl<'p> Answers<'p> {
    /// Those of the ledger in this file; none if there is no such file.
    ///
    /// # Errors
    /// If the file is no ledger.
    pub fn of(file: &Path, provider: &'p ProviderSettings) -> Result<Self, LedgerError> {
        // Opening would make one.
        let ledger = file.exists().then(|| Ledger::open_to_read(file));
        Ok(Self {
            ledger: ledger.transpose()?,
            provider,
        })
    }

    /// The hash of a call where it would be asked.
    pub fn hash(&self, call: &Call) -> CallHash {
        call.hash(&endpoint_of(&call.model, self.provider))
    }

    /// The answer to a call.
    ///
    /// # Errors
    /// [`Unanswered`]: not in the ledger, a format that was refused, or a ledger that can't be read.
    pub fn answer(&self, call: &Call) -> Result<Reply, Unanswered> {
        let Some(ledger) = &self.ledger else {
            return Err(Unanswered::NotInLedger);
        };
        let hash = self.hash(call);
        let unread = |e: LedgerError| Unanswered::Ledger(e.to_string());
        if let Some(reply) = ledger.answer(&hash).map_err(unread)? {
            return Ok(reply);
        }
        Err(match ledger.refused_format(&hash).map_err(unread)? {
            None => Unanswered::NotInLedger,
            Some(message) => Unanswered::Failed {
                code: CallErrorKind::FormatRejected.code(),
                message,
            },
        })
    }
}
