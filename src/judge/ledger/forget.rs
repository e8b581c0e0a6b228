//! Answers taken out of the ledger. What attempts cost stays; what was said does not.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use rusqlite::{OptionalExtension, TransactionBehavior};

use super::{Ledger, LedgerError};
use crate::judge::call::CallHash;

/// What was taken out of a ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgottenAnswers {
    /// Answers, refusals, and failures of calls in batches.
    pub answers: u64,
    /// Calls that wait in a batch: their answers are still to come, and stay until then.
    pub waiting: u64,
    /// Whether another process reads the ledger, so that its log on disk may hold old pages until the next write.
    pub log_in_use: bool,
}

impl Ledger {
    /// From now on, keeps in mind which calls are looked up.
    pub fn note_calls(&self) {
        let mut noted = self
            .looked_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        noted.get_or_insert_default();
    }

    /// The hashes of the calls that were looked up since.
    pub fn noted_calls(&self) -> BTreeSet<String> {
        let noted = self
            .looked_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        noted.clone().unwrap_or_default()
    }

    pub(super) fn note(&self, hash: &CallHash) {
        let mut noted = self
            .looked_up
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(noted) = noted.as_mut() {
            noted.insert(hash.as_str().to_owned());
        }
    }

    /// Takes the answers to calls out, all or none, so that their bytes are gone from the file; `dry_run` only counts them.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn forget(
        &self,
        hashes: &BTreeSet<String>,
        dry_run: bool,
    ) -> Result<ForgottenAnswers, LedgerError> {
        let mut connection = self.connection();
        let mut forget = || -> Result<ForgottenAnswers, rusqlite::Error> {
            let mut forgotten = ForgottenAnswers::default();
            // Freed pages are overwritten.
            connection.pragma_update(None, "secure_delete", "ON")?;
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for hash in hashes {
                let state: Option<String> = transaction
                    .prepare_cached("SELECT state FROM batch_requests WHERE hash = ?1")?
                    .query_row([hash], |row| row.get(0))
                    .optional()?;
                let mut gone = 0;
                for table in ["calls", "refused_formats"] {
                    gone += transaction
                        .prepare_cached(&format!("DELETE FROM {table} WHERE hash = ?1"))?
                        .execute([hash])?;
                }
                match state.as_deref() {
                    Some("waiting") => forgotten.waiting += 1,
                    Some(_) => {
                        gone += transaction
                            .prepare_cached("DELETE FROM batch_requests WHERE hash = ?1")?
                            .execute([hash])?;
                    }
                    None => {}
                }
                transaction
                    .prepare_cached(
                        "UPDATE attempts SET message = NULL WHERE hash = ?1 AND message IS NOT NULL",
                    )?
                    .execute([hash])?;
                forgotten.answers += u64::from(gone > 0);
            }
            if dry_run {
                transaction.rollback()?;
                return Ok(forgotten);
            }
            transaction.commit()?;
            forgotten.log_in_use =
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                    Ok(row.get::<_, i64>(0)? != 0)
                })?;
            Ok(forgotten)
        };
        let forgotten = forget();
        forgotten.map_err(|e| self.failed(&e))
    }
}
