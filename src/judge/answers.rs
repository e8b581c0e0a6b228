//! The answers that a ledger holds already, looked up without asking anybody.

use std::path::Path;

use super::{Call, CallHash, Known, Ledger, LedgerError, ProviderSettings, endpoint_of};

/// What a ledger answers to the calls of a provider.
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

    /// What is known of a call.
    ///
    /// # Errors
    /// If the ledger can't be read.
    pub fn known(&self, call: &Call) -> Result<Known, LedgerError> {
        let Some(ledger) = &self.ledger else {
            return Ok(Known::Nothing);
        };
        let hash = self.hash(call);
        if let Some(reply) = ledger.answer(&hash)? {
            return Ok(Known::Answer(reply.text));
        }
        let refused = ledger.refused_format(&hash)?;
        Ok(refused.map_or(Known::Nothing, Known::FormatRefused))
    }
}
