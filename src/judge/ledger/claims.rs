//! Claims: which run is asking which question just now, so that no other run asks it at the same moment.
//!
//! A claim is a row with the run's name. From its first claim on, a run holds the lock of an empty file of its own beside the ledger. The
//! system drops that lock when the process ends, however it ends: then its claims are free.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use rusqlite::{OptionalExtension, TransactionBehavior};

use super::{Ledger, LedgerError};
use crate::judge::call::CallHash;

pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS claims (
    hash TEXT PRIMARY KEY,
    run TEXT NOT NULL
) WITHOUT ROWID;
";

/// Takes back a claim: hash, run.
pub(super) const RELEASE: &str = "DELETE FROM claims WHERE hash = ?1 AND run = ?2";

/// The right to ask a question. Dropping it gives the right back.
#[derive(Debug)]
#[must_use]
pub struct Claim<'l> {
    ledger: &'l Ledger,
    hash: &'l CallHash,
    held: bool,
}

impl Claim<'_> {
    /// The row is gone with the answer, or stays until [`Ledger::release_claims`].
    pub fn leave(mut self) {
        self.held = false;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        let released = self
            .ledger
            .connection()
            .prepare_cached(RELEASE)
            .and_then(|mut statement| statement.execute([self.hash.as_str(), &self.ledger.run]));
        if let Err(error) = released {
            // It is free at the latest when this process ends.
            tracing::warn!(hash = %self.hash, %error, "a claim in the ledger could not be taken back");
        }
    }
}

/// A locked file that says that its run is alive.
#[derive(Debug)]
pub(super) struct SignOfLife {
    path: PathBuf,
    _locked: File,
}

impl SignOfLife {
    /// A new file, which whoever may open the ledger may open. It gets its name when it is locked, so that nobody takes it
    /// for one that was left.
    fn begin(path: PathBuf, ledger: &Path) -> io::Result<Self> {
        let folder = ledger.parent().unwrap_or(Path::new("."));
        let file = tempfile::Builder::new()
            .prefix(".nightmill-run-")
            .tempfile_in(folder)?;
        let mode = std::fs::metadata(ledger)?.permissions();
        file.as_file().set_permissions(mode)?;
        file.as_file().try_lock()?;
        let locked = file.persist(&path).map_err(|e| e.error)?;
        Ok(Self {
            path,
            _locked: locked,
        })
    }
}

impl Drop for SignOfLife {
    fn drop(&mut self) {
        // What stays is tidied up by a later run.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether a process holds the lock of a run's file. One that can't be looked at is taken to be held. A file that nobody holds
/// is removed.
fn lives(path: &Path) -> bool {
    let left = match std::fs::symlink_metadata(path) {
        Ok(found) => found.is_file() && found.len() == 0,
        Err(e) => return e.kind() != io::ErrorKind::NotFound,
    };
    // Whatever else has such a name is not ours.
    if !left {
        return false;
    }
    match File::open(path) {
        Err(e) => e.kind() != io::ErrorKind::NotFound,
        Ok(file) => {
            let free = file.try_lock().is_ok();
            if free {
                // Where it may not be removed it does no harm.
                let _ = std::fs::remove_file(path);
            }
            !free
        }
    }
}

/// Whether a text is the name of a run, as [`Ledger::open`] makes it: `20260101T000000.000000-1-0`.
fn is_name_of_run(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let mut parts = text.split('-');
    let (Some(moment), Some(process), Some(nth), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let moment = moment.split_once('T').and_then(|(day, time)| {
        let (seconds, fraction) = time.split_once('.')?;
        let sized = day.len() == 8 && seconds.len() == 6 && fraction.len() == 6;
        Some(sized && [day, seconds, fraction].into_iter().all(digits))
    });
    moment == Some(true) && digits(process) && digits(nth)
}

impl Ledger {
    /// Claims a question for this run; `None` while another living run has it. Look for the answer again with the claim in
    /// hand: it may have come just before.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn claim<'l>(&'l self, hash: &'l CallHash) -> Result<Option<Claim<'l>>, LedgerError> {
        let mut connection = self.connection();
        self.show_life(&connection)?;
        let sql = |e: rusqlite::Error| self.failed(&e);
        let claim = || {
            Some(Claim {
                ledger: self,
                hash,
                held: true,
            })
        };
        let taken = connection
            .prepare_cached("INSERT OR IGNORE INTO claims VALUES (?1, ?2)")
            .and_then(|mut statement| statement.execute([hash.as_str(), &self.run]))
            .map_err(sql)?;
        if taken == 1 {
            return Ok(claim());
        }
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(sql)?;
        let holder: Option<String> = transaction
            .query_row(
                "SELECT run FROM claims WHERE hash = ?1",
                [hash.as_str()],
                |row| row.get(0),
            )
            .optional()
            .map_err(sql)?;
        if let Some(holder) = holder.filter(|holder| *holder != self.run) {
            if lives(&self.life_file(&holder)) {
                return Ok(None);
            }
            transaction
                .execute("DELETE FROM claims WHERE run = ?1", [&holder])
                .map_err(sql)?;
        }
        let put = "INSERT OR REPLACE INTO claims VALUES (?1, ?2)";
        transaction
            .execute(put, [hash.as_str(), &self.run])
            .and_then(|_| transaction.commit())
            .map_err(sql)?;
        Ok(claim())
    }

    /// Whether another living run has claimed a question.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn asked_elsewhere(&self, hash: &CallHash) -> Result<bool, LedgerError> {
        let holder: Option<String> = self
            .connection()
            .prepare_cached("SELECT run FROM claims WHERE hash = ?1")
            .and_then(|mut statement| {
                let run = statement.query_row([hash.as_str()], |row| row.get(0));
                run.optional()
            })
            .map_err(|e| self.failed(&e))?;
        let other = holder.filter(|holder| *holder != self.run);
        Ok(other.is_some_and(|holder| lives(&self.life_file(&holder))))
    }

    /// Takes back all claims of this run.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn release_claims(&self) -> Result<(), LedgerError> {
        self.connection()
            .execute("DELETE FROM claims WHERE run = ?1", [&self.run])
            .map(drop)
            .map_err(|e| self.failed(&e))
    }

    pub(super) fn life_file(&self, run: &str) -> PathBuf {
        self.beside(&format!(".run-{run}"))
    }

    fn broken_file(&self, run: &str, error: &io::Error) -> LedgerError {
        LedgerError {
            path: self.path.clone(),
            problem: format!("`{}`: {error}", self.life_file(run).display()),
        }
    }

    /// Before the first claim: shows that this run is alive, and tidies up what dead runs left.
    fn show_life(&self, connection: &rusqlite::Connection) -> Result<(), LedgerError> {
        let mut shown = self
            .sign_of_life
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if shown.is_some() {
            return Ok(());
        }
        let begun = SignOfLife::begin(self.life_file(&self.run), &self.place);
        *shown = Some(begun.map_err(|e| self.broken_file(&self.run, &e))?);
        let runs = || -> Result<Vec<String>, rusqlite::Error> {
            let mut statement = connection.prepare("SELECT DISTINCT run FROM claims")?;
            statement.query_map([], |row| row.get(0))?.collect()
        };
        let mut runs = runs().map_err(|e| self.failed(&e))?;
        runs.extend(self.runs_with_files());
        for run in runs.iter().filter(|run| **run != self.run) {
            if !lives(&self.life_file(run)) {
                connection
                    .execute("DELETE FROM claims WHERE run = ?1", [run])
                    .map_err(|e| self.failed(&e))?;
            }
        }
        Ok(())
    }

    /// Runs that have a file beside the ledger.
    fn runs_with_files(&self) -> Vec<String> {
        let Some(name) = self.place.file_name().and_then(|name| name.to_str()) else {
            return Vec::new();
        };
        let prefix = format!("{name}.run-");
        let entries = std::fs::read_dir(self.folder())
            .into_iter()
            .flatten()
            .flatten();
        entries
            .filter_map(|entry| {
                let name = entry.file_name();
                name.to_str()?.strip_prefix(&prefix).map(str::to_owned)
            })
            .filter(|run| is_name_of_run(run))
            .collect()
    }
}
