//! The ledger: every call to a judge, in one SQLite file that outlives runs.
//!
//! An answer that is in here is never paid for twice, and a question that one run is asking is not asked by another
//! (`claims.rs`). Writes go through SQLite's write-ahead log, so that a process that is killed leaves a whole file; several
//! processes may share one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

mod batches;
mod check;
mod claims;
mod forget;
mod open;

use rusqlite::{Connection, OptionalExtension, params};

pub use batches::{BatchEnd, BatchRequest, BatchRows, InBatch, OpenBatch};
pub use claims::Claim;
pub use forget::ForgottenAnswers;

use check::{Kept, check_of};
use claims::SignOfLife;
use open::{OpenError, Opened, is_no_answer};

use super::call::{Call, CallErrorKind, CallHash, Reply, Usage};

/// The ledger can't be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "the ledger `{path}`: {problem}; name another one with --ledger, or mend its folder, disk and permissions"
)]
pub struct LedgerError {
    path: PathBuf,
    problem: String,
}

/// How long a write waits for another process.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many times that long, before an answer that was paid is given up.
const PATIENCE_FOR_ANSWERS: u32 = 30;
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS calls (
    hash TEXT PRIMARY KEY,
    metric TEXT NOT NULL,
    stage TEXT NOT NULL,
    prompt TEXT NOT NULL,
    prompt_version INTEGER NOT NULL,
    model TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    reply TEXT NOT NULL,
    reported_model TEXT NOT NULL,
    cut_off INTEGER NOT NULL,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    cached_tokens INTEGER,
    cost REAL,
    latency_ms INTEGER,
    answered_at TEXT NOT NULL,
    checked_by TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    hash TEXT NOT NULL,
    metric TEXT NOT NULL,
    model TEXT NOT NULL,
    status TEXT NOT NULL,
    message TEXT,
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    cost REAL,
    latency_ms INTEGER NOT NULL,
    at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS refused_formats (
    hash TEXT PRIMARY KEY,
    message TEXT NOT NULL
) WITHOUT ROWID;
";

/// What is said of a call beside the call itself.
#[derive(Clone, Copy, Debug)]
pub struct CallLabel<'a> {
    /// The metric that asks.
    pub metric: &'a str,
    /// Its stage.
    pub stage: &'a str,
}

/// One try at a call.
#[derive(Clone, Debug)]
pub struct Attempt<'a> {
    /// `answered`, or the code of the failure.
    pub status: &'a str,
    /// What was said about a failure.
    pub message: Option<&'a str>,
    /// Tokens, where known.
    pub usage: Option<Usage>,
    /// Dollars, where the model has a price and the tokens are known.
    pub cost: Option<f64>,
    /// From the request to the answer or failure.
    pub latency: Duration,
}

/// What the attempt took that brought an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    /// Milliseconds from the request to the answer; none where it is not known.
    pub latency_ms: Option<i64>,
    /// Dollars, where the model had a price and the tokens were known.
    pub cost: Option<f64>,
}

/// Sums over the attempts of a metric, or of all.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Spend {
    /// The metric.
    pub metric: String,
    /// Attempts, answered or not.
    pub attempts: u64,
    /// Answered ones among them.
    pub answered: u64,
    /// Tokens of questions.
    pub prompt_tokens: u64,
    /// Tokens of replies.
    pub completion_tokens: u64,
    /// Dollars; attempts without a known price count as nothing here and are in `unpriced`.
    pub cost: f64,
    /// Answered attempts without a known price.
    pub unpriced: u64,
}

/// An open ledger. What is written through it belongs to one run.
#[derive(Debug)]
pub struct Ledger {
    /// As it was given.
    path: PathBuf,
    /// Without links: files beside the ledger are the same ones by whatever path it is opened.
    place: PathBuf,
    run: String,
    /// Of the run that makes claims; held until the ledger is closed. Locked after the connection, never before.
    sign_of_life: Mutex<Option<SignOfLife>>,
    connection: Mutex<Connection>,
    /// What its tables hold; older than this version's only where it can't be written.
    format: i64,
    /// The calls that were looked up, where somebody wants to know.
    looked_up: Mutex<Option<BTreeSet<String>>>,
}

impl Ledger {
    /// Opens or makes a ledger.
    ///
    /// # Errors
    /// [`LedgerError`] if it can't be opened, is no ledger, or is of a later version.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        Self::of(path, open::for_writing(path))
    }

    /// Opens a ledger that is there, to look answers up: also one that can't be written, as on read-only media. Writing to
    /// such a one fails.
    ///
    /// # Errors
    /// [`LedgerError`] as for [`Ledger::open`]; also if it can't be written and a log beside it holds answers that are not in
    /// it yet, or its tables are those of an earlier version.
    pub fn open_to_read(path: &Path) -> Result<Self, LedgerError> {
        Self::of(path, open::for_reading(path))
    }

    fn of(path: &Path, opened: Result<Opened, OpenError>) -> Result<Self, LedgerError> {
        let opened = opened.map_err(|e| LedgerError {
            path: path.to_owned(),
            problem: e.problem,
        })?;
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let now = chrono::Utc::now().format("%Y%m%dT%H%M%S%.6f");
        let nth = OPENED.fetch_add(1, Relaxed);
        Ok(Self {
            path: path.to_owned(),
            place: opened.place,
            run: format!("{now}-{}-{nth}", std::process::id()),
            sign_of_life: Mutex::default(),
            connection: Mutex::new(opened.connection),
            format: opened.format,
            looked_up: Mutex::default(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the file.
    pub(in crate::judge) fn folder(&self) -> &Path {
        let folder = self.place.parent();
        folder
            .filter(|f| !f.as_os_str().is_empty())
            .unwrap_or(Path::new("."))
    }

    /// A file beside the ledger whose name begins with that of the ledger.
    pub(in crate::judge) fn beside(&self, suffix: &str) -> PathBuf {
        let mut path = self.place.as_os_str().to_owned();
        path.push(suffix);
        path.into()
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &rusqlite::Error) -> LedgerError {
        let problem = match is_busy(error) {
            true => "another process holds it locked".to_owned(),
            false => error.to_string(),
        };
        LedgerError {
            path: self.path.clone(),
            problem,
        }
    }

    /// The answer to a call, if it was ever given. One whose check does not fit any more is none: the log says so, it is
    /// forgotten where the ledger can be written, and asked for anew.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn answer(&self, hash: &CallHash) -> Result<Option<Reply>, LedgerError> {
        self.note(hash);
        let connection = self.connection();
        let kept = check::kept(&connection, hash, open::has_checks(self.format));
        let reply = match kept.map_err(|e| self.failed(&e))? {
            Kept::Nothing => None,
            Kept::Whole(reply) => Some(reply),
            Kept::Damaged => {
                tracing::warn!(
                    ledger = %self.path.display(),
                    "the ledger's answer to the call {hash} is damaged (its check does not fit), and is not used"
                );
                // Where it can't be written, it is damaged at the next look again.
                let _ = connection.execute("DELETE FROM calls WHERE hash = ?1", [hash.as_str()]);
                None
            }
        };
        let empty_are_none = open::holds_empty_answers(self.format);
        Ok(reply.filter(|reply| !(empty_are_none && is_no_answer(reply))))
    }

    /// What the answer to a call took, whichever run asked; `None` without an answer.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn taken(&self, hash: &CallHash) -> Result<Option<Taken>, LedgerError> {
        let connection = self.connection();
        let query = || {
            connection
                .prepare_cached("SELECT latency_ms, cost FROM calls WHERE hash = ?1")?
                .query_row([hash.as_str()], |row| {
                    Ok(Taken {
                        latency_ms: row.get(0)?,
                        cost: row.get(1)?,
                    })
                })
                .optional()
        };
        query().map_err(|e| self.failed(&e))
    }

    /// Whether this run has sent the call.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn asked_here(&self, hash: &CallHash) -> Result<bool, LedgerError> {
        let connection = self.connection();
        let query = || {
            connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM attempts WHERE hash = ?1 AND run = ?2)",
                )?
                .query_row([hash.as_str(), &self.run], |row| row.get(0))
        };
        query().map_err(|e| self.failed(&e))
    }

    /// Writes an attempt, and with it the answer if there is one: both or neither. An answer ends this run's claim.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn record(
        &self,
        hash: &CallHash,
        call: &Call,
        endpoint: &str,
        label: CallLabel<'_>,
        attempt: &Attempt<'_>,
        reply: Option<&Reply>,
    ) -> Result<(), LedgerError> {
        let mut connection = self.connection();
        let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let latency = i64::try_from(attempt.latency.as_millis()).unwrap_or(i64::MAX);
        let usage = attempt.usage;
        let write = |connection: &mut Connection| -> Result<(), rusqlite::Error> {
            let transaction = connection.transaction()?;
            transaction
                .prepare_cached(
                    "INSERT INTO attempts (run, hash, metric, model, status, message, prompt_tokens, completion_tokens, cost, latency_ms, at) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                )?
                .execute(params![
                    self.run,
                    hash.as_str(),
                    label.metric,
                    call.model,
                    attempt.status,
                    attempt.message,
                    usage.map(|u| u.prompt),
                    usage.map(|u| u.completion),
                    attempt.cost,
                    latency,
                    now,
                ])?;
            if attempt.status == CallErrorKind::FormatRejected.code() {
                transaction
                    .prepare_cached("INSERT OR IGNORE INTO refused_formats VALUES (?1, ?2)")?
                    .execute([hash.as_str(), attempt.message.unwrap_or_default()])?;
            }
            if let Some(reply) = reply {
                transaction
                    .prepare_cached(
                        "INSERT OR IGNORE INTO calls VALUES \
                         (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)",
                    )?
                    .execute(params![
                        hash.as_str(),
                        label.metric,
                        label.stage,
                        call.prompt.name,
                        call.prompt.version,
                        call.model,
                        endpoint,
                        reply.text,
                        reply.model,
                        reply.cut_off,
                        usage.map(|u| u.prompt),
                        usage.map(|u| u.completion),
                        usage.map(|u| u.cached),
                        attempt.cost,
                        latency,
                        now,
                        check_of(hash.as_str(), &Reply { usage, ..reply.clone() }, attempt.cost),
                    ])?;
                transaction
                    .prepare_cached(claims::RELEASE)?
                    .execute([hash.as_str(), &self.run])?;
            }
            transaction.commit()
        };
        // A reply that is not written is paid and lost: this is worth a long wait.
        let mut tries = 1;
        loop {
            match write(&mut connection) {
                Err(e) if is_busy(&e) && tries < PATIENCE_FOR_ANSWERS => {
                    tracing::warn!(ledger = %self.path.display(), "another process holds the ledger; still waiting");
                    tries += 1;
                }
                written => return written.map_err(|e| self.failed(&e)),
            }
        }
    }

    /// What an endpoint said when it refused a call's reply format: a lasting answer, though none to the question.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn refused_format(&self, hash: &CallHash) -> Result<Option<String>, LedgerError> {
        let connection = self.connection();
        let query = || {
            connection
                .prepare_cached("SELECT message FROM refused_formats WHERE hash = ?1")?
                .query_row([hash.as_str()], |row| row.get(0))
                .optional()
        };
        query().map_err(|e| self.failed(&e))
    }

    /// Writes that a call's format is refused, without a call.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn refuse_format(&self, hash: &CallHash, message: &str) -> Result<(), LedgerError> {
        let connection = self.connection();
        let write = || {
            connection
                .prepare_cached("INSERT OR IGNORE INTO refused_formats VALUES (?1, ?2)")?
                .execute([hash.as_str(), message])
        };
        write().map(|_| ()).map_err(|e| self.failed(&e))
    }

    /// What this run has spent, by metric.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn spend(&self) -> Result<Vec<Spend>, LedgerError> {
        let connection = self.connection();
        let query = || {
            let mut statement = connection.prepare(
                "SELECT metric, count(*), sum(status = 'answered'), sum(coalesce(prompt_tokens, 0)), \
                   sum(coalesce(completion_tokens, 0)), sum(coalesce(cost, 0.0)), \
                   sum(status = 'answered' AND cost IS NULL) \
                 FROM attempts WHERE run = ?1 GROUP BY metric ORDER BY metric",
            )?;
            let rows = statement.query_map([&self.run], |row| {
                Ok(Spend {
                    metric: row.get(0)?,
                    attempts: row.get(1)?,
                    answered: row.get(2)?,
                    prompt_tokens: row.get(3)?,
                    completion_tokens: row.get(4)?,
                    cost: row.get(5)?,
                    unpriced: row.get(6)?,
                })
            })?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        query().map_err(|e| self.failed(&e))
    }

    /// How many answers it holds.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn answers(&self) -> Result<u64, LedgerError> {
        self.connection()
            .query_row("SELECT count(*) FROM calls", [], |row| row.get(0))
            .map_err(|e| self.failed(&e))
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(
        error.sqlite_error_code(),
        Some(DatabaseBusy | DatabaseLocked)
    )
}

#[cfg(test)]
mod tests;
