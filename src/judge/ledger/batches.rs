//! Batches in the ledger: which calls wait for the result of which batch.
//!
//! A batch is written down before it is created, under a key of our own that goes into its metadata. So a process that is
//! killed in between leaves a trace by which the batch is found again.

use rusqlite::{OptionalExtension, params};

use super::check::check_of;
use super::{Ledger, LedgerError};
use crate::judge::call::{CallErrorKind, CallHash, Reply, Usage};
use crate::judge::service::billed_for_failure;

pub(super) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS batches (
    key TEXT PRIMARY KEY,
    id TEXT,
    endpoint TEXT NOT NULL,
    model TEXT NOT NULL,
    status TEXT NOT NULL,
    requests INTEGER NOT NULL,
    message TEXT,
    submitted_at TEXT NOT NULL,
    ended_at TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batch_requests (
    hash TEXT PRIMARY KEY,
    batch TEXT NOT NULL,
    state TEXT NOT NULL,
    tries INTEGER NOT NULL,
    metric TEXT NOT NULL,
    stage TEXT NOT NULL,
    prompt TEXT NOT NULL,
    prompt_version INTEGER NOT NULL,
    model TEXT NOT NULL,
    code TEXT,
    message TEXT,
    told_to TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS requests_of_batch ON batch_requests (batch);
CREATE INDEX IF NOT EXISTS attempts_of_call ON attempts (hash);
";

/// A call on its way into a batch.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct BatchRequest {
    /// The call's hash, and its id in the batch.
    pub hash: String,
    /// The metric that asks.
    pub metric: String,
    /// Its stage.
    pub stage: String,
    /// The prompt's name.
    pub prompt: String,
    /// The prompt's version.
    pub prompt_version: u32,
    /// Provider and model.
    pub model: String,
}

/// A batch that has not been collected yet.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenBatch {
    /// Our key of it.
    pub key: String,
    /// The provider's id; none if it is not known whether the batch was created.
    pub id: Option<String>,
    /// Its endpoint, without secrets.
    pub endpoint: String,
    /// The model.
    pub model: String,
    /// Where it stood when it was last looked at: the provider's word, or `creating`.
    pub status: String,
    /// Calls in it.
    pub requests: u64,
    /// When it was submitted.
    pub submitted_at: String,
}

impl OpenBatch {
    /// The provider's id, or else our key.
    pub fn name(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.key)
    }
}

/// Where a call stands that was put into a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum InBatch {
    /// It waits for the batch's result.
    Waiting,
    /// It failed; told to one run, the next run asks again.
    Failed {
        /// What kind of failure.
        kind: CallErrorKind,
        /// What was said.
        message: String,
    },
}

/// The end of a call in a batch.
#[derive(Clone, Debug)]
pub enum BatchEnd<'a> {
    /// The model answered.
    Answered {
        /// Its reply.
        reply: &'a Reply,
        /// Dollars, where the model has a price and the tokens are known.
        cost: Option<f64>,
    },
    /// It failed.
    Failed {
        /// What kind of failure.
        kind: CallErrorKind,
        /// What was said.
        message: &'a str,
        /// Tokens that were paid all the same.
        usage: Option<Usage>,
        /// Dollars for them.
        cost: Option<f64>,
    },
    /// It was never run: it goes into the next batch.
    NotRun {
        /// Why not.
        message: &'a str,
    },
}

/// A ledger while the results of one batch are written: all or none.
#[derive(Debug)]
pub struct BatchRows<'l> {
    transaction: rusqlite::Transaction<'l>,
    run: &'l str,
    endpoint: &'l str,
    most_tries: u32,
    now: String,
}

fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

impl Ledger {
    /// Where a call stands that was put into a batch; none if it is free to be asked.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn in_batch(&self, hash: &CallHash) -> Result<Option<InBatch>, LedgerError> {
        let connection = self.connection();
        let query = || -> Result<Option<InBatch>, rusqlite::Error> {
            let found = connection
                .prepare_cached(
                    "SELECT state, code, message, told_to FROM batch_requests WHERE hash = ?1",
                )?
                .query_row([hash.as_str()], |row| {
                    Ok((
                        row.get::<_, String>(0)?,
                        row.get::<_, Option<String>>(1)?,
                        row.get::<_, Option<String>>(2)?,
                        row.get::<_, Option<String>>(3)?,
                    ))
                })
                .optional()?;
            let Some((state, code, message, told_to)) = found else {
                return Ok(None);
            };
            match state.as_str() {
                "waiting" => Ok(Some(InBatch::Waiting)),
                "failed" if told_to.as_ref().is_none_or(|run| *run == self.run) => {
                    if told_to.is_none() {
                        connection
                            .prepare_cached(
                                "UPDATE batch_requests SET told_to = ?2 WHERE hash = ?1",
                            )?
                            .execute([hash.as_str(), &self.run])?;
                    }
                    let kind = code.as_deref().and_then(CallErrorKind::named);
                    Ok(Some(InBatch::Failed {
                        kind: kind.unwrap_or(CallErrorKind::Refused),
                        message: message.unwrap_or_default(),
                    }))
                }
                _ => Ok(None),
            }
        };
        query().map_err(|e| self.failed(&e))
    }

    /// Tokens of the last try of a call that failed in a batch; `None` if the provider did not count them, none if it was not run or
    /// its kind of failure is not billed.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn used_by_failure(&self, hash: &CallHash) -> Result<Option<Usage>, LedgerError> {
        let connection = self.connection();
        let query = || {
            connection
                .prepare_cached(
                    "SELECT status, prompt_tokens, completion_tokens FROM attempts WHERE hash = ?1 \
                     ORDER BY id DESC LIMIT 1",
                )?
                .query_row([hash.as_str()], |row| {
                    Ok((
                        row.get::<_, String>(0)?,
                        row.get::<_, Option<u64>>(1)?,
                        row.get::<_, Option<u64>>(2)?,
                    ))
                })
                .optional()
        };
        let last = query().map_err(|e| self.failed(&e))?;
        Ok(match last {
            None => Some(Usage::default()),
            Some((_, Some(prompt), Some(completion))) => Some(Usage {
                prompt,
                completion,
                cached: 0,
            }),
            Some((status, ..)) => match CallErrorKind::named(&status) {
                Some(kind) => billed_for_failure(kind),
                None => Some(Usage::default()),
            },
        })
    }

    /// Writes down a batch that is about to be created. This run's claims of its calls end.
    ///
    /// # Errors
    /// [`LedgerError`]. A call that waits in another batch is an error of the caller, and nothing is written.
    pub fn begin_batch(
        &self,
        key: &str,
        endpoint: &str,
        model: &str,
        requests: &[BatchRequest],
    ) -> Result<(), LedgerError> {
        let mut connection = self.connection();
        let write = |connection: &mut rusqlite::Connection| -> Result<bool, rusqlite::Error> {
            let transaction = connection.transaction()?;
            transaction.execute(
                "INSERT INTO batches VALUES (?1, NULL, ?2, ?3, 'creating', ?4, NULL, ?5, NULL)",
                params![key, endpoint, model, requests.len() as u64, now()],
            )?;
            let mut statement = transaction.prepare_cached(
                "INSERT INTO batch_requests VALUES (?1, ?2, 'waiting', 0, ?3, ?4, ?5, ?6, ?7, NULL, NULL, NULL) \
                 ON CONFLICT (hash) DO UPDATE SET batch = excluded.batch, state = 'waiting', code = NULL, \
                   message = NULL, told_to = NULL, tries = CASE state WHEN 'again' THEN tries ELSE 0 END \
                 WHERE state <> 'waiting'",
            )?;
            let mut release = transaction.prepare_cached(super::claims::RELEASE)?;
            for r in requests {
                let written = statement.execute(params![
                    r.hash,
                    key,
                    r.metric,
                    r.stage,
                    r.prompt,
                    r.prompt_version,
                    r.model
                ])?;
                if written == 0 {
                    return Ok(false);
                }
                release.execute([r.hash.as_str(), &self.run])?;
            }
            drop((statement, release));
            transaction.commit()?;
            Ok(true)
        };
        match write(&mut connection) {
            Ok(true) => Ok(()),
            Ok(false) => Err(LedgerError {
                path: self.path.clone(),
                problem: "a call waits in another batch already".into(),
            }),
            Err(e) => Err(self.failed(&e)),
        }
    }

    /// Writes down where a batch stands.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn batch_stands(&self, key: &str, id: &str, status: &str) -> Result<(), LedgerError> {
        self.connection()
            .execute(
                "UPDATE batches SET id = ?2, status = ?3 WHERE key = ?1",
                [key, id, status],
            )
            .map(drop)
            .map_err(|e| self.failed(&e))
    }

    /// Batches that have not been collected, oldest first.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn open_batches(&self) -> Result<Vec<OpenBatch>, LedgerError> {
        let connection = self.connection();
        let query = || {
            let mut statement = connection.prepare(
                "SELECT key, id, endpoint, model, status, requests, submitted_at FROM batches \
                 WHERE ended_at IS NULL ORDER BY submitted_at, key",
            )?;
            let rows = statement.query_map([], |row| {
                Ok(OpenBatch {
                    key: row.get(0)?,
                    id: row.get(1)?,
                    endpoint: row.get(2)?,
                    model: row.get(3)?,
                    status: row.get(4)?,
                    requests: row.get(5)?,
                    submitted_at: row.get(6)?,
                })
            })?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        query().map_err(|e| self.failed(&e))
    }

    /// The calls that wait in a batch, in the order of their hashes.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn waiting_in(&self, key: &str) -> Result<Vec<String>, LedgerError> {
        let connection = self.connection();
        let query = || {
            connection
                .prepare(
                    "SELECT hash FROM batch_requests WHERE batch = ?1 AND state = 'waiting' ORDER BY hash",
                )?
                .query_map([key], |row| row.get(0))?
                .collect::<Result<Vec<_>, _>>()
        };
        query().map_err(|e| self.failed(&e))
    }

    /// How many calls wait in batches.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn waiting(&self) -> Result<u64, LedgerError> {
        self.connection()
            .query_row(
                "SELECT count(*) FROM batch_requests WHERE state = 'waiting'",
                [],
                |row| row.get(0),
            )
            .map_err(|e| self.failed(&e))
    }

    /// Ends a batch with what `write` writes of its calls: all of it or nothing. A call that was not run `most_tries` times
    /// has failed.
    ///
    /// # Errors
    /// Those of `write`, and [`LedgerError`].
    pub fn end_batch<T, E: From<LedgerError>>(
        &self,
        batch: &OpenBatch,
        (status, message): (&str, Option<&str>),
        most_tries: u32,
        write: impl FnOnce(&BatchRows<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut connection = self.connection();
        let transaction = connection.transaction().map_err(|e| self.failed(&e))?;
        let rows = BatchRows {
            transaction,
            run: &self.run,
            endpoint: &batch.endpoint,
            most_tries,
            now: now(),
        };
        let written = write(&rows)?;
        rows.transaction
            .execute(
                "UPDATE batches SET status = ?2, message = ?3, ended_at = ?4 WHERE key = ?1",
                params![batch.key, status, message, rows.now],
            )
            .and_then(|_| rows.transaction.commit())
            .map_err(|e| self.failed(&e))?;
        Ok(written)
    }

    pub(in crate::judge) fn broken(&self, error: &rusqlite::Error) -> LedgerError {
        self.failed(error)
    }
}

impl BatchRows<'_> {
    /// Writes the end of a call that waits in this batch.
    ///
    /// # Errors
    /// SQLite's.
    pub fn put(&self, hash: &str, end: &BatchEnd<'_>) -> Result<(), rusqlite::Error> {
        let (status, message, usage, cost) = match end {
            BatchEnd::Answered { reply, cost } => ("answered", None, reply.usage, *cost),
            BatchEnd::Failed {
                kind,
                message,
                usage,
                cost,
            } => (kind.code(), Some(*message), *usage, *cost),
            BatchEnd::NotRun { message } => ("not_run", Some(*message), None, None),
        };
        // Nobody waited for the answer: its latency is not known.
        self.transaction
            .prepare_cached(
                "INSERT INTO attempts (run, hash, metric, model, status, message, prompt_tokens, completion_tokens, cost, latency_ms, at) \
                 SELECT ?2, hash, metric, model, ?3, ?4, ?5, ?6, ?7, 0, ?8 FROM batch_requests WHERE hash = ?1",
            )?
            .execute(params![
                hash,
                self.run,
                status,
                message,
                usage.map(|u| u.prompt),
                usage.map(|u| u.completion),
                cost,
                self.now,
            ])?;
        match end {
            BatchEnd::Answered { reply, .. } => {
                self.transaction
                    .prepare_cached(
                        "INSERT OR IGNORE INTO calls \
                         SELECT hash, metric, stage, prompt, prompt_version, model, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, NULL, ?10, ?11 \
                         FROM batch_requests WHERE hash = ?1",
                    )?
                    .execute(params![
                        hash,
                        self.endpoint,
                        reply.text,
                        reply.model,
                        reply.cut_off,
                        usage.map(|u| u.prompt),
                        usage.map(|u| u.completion),
                        usage.map(|u| u.cached),
                        cost,
                        self.now,
                        check_of(hash, reply, cost),
                    ])?;
                self.forget(hash)
            }
            BatchEnd::Failed {
                kind: CallErrorKind::FormatRejected,
                message,
                ..
            } => {
                self.transaction
                    .prepare_cached("INSERT OR IGNORE INTO refused_formats VALUES (?1, ?2)")?
                    .execute([hash, *message])?;
                self.forget(hash)
            }
            BatchEnd::Failed { kind, message, .. } if !kind.passes() => {
                self.set_failed(hash, *kind, message)
            }
            BatchEnd::Failed { kind, message, .. } => self.again(hash, *kind, message),
            BatchEnd::NotRun { message } => self.again(hash, CallErrorKind::Timeout, message),
        }
    }

    fn forget(&self, hash: &str) -> Result<(), rusqlite::Error> {
        self.transaction
            .prepare_cached("DELETE FROM batch_requests WHERE hash = ?1")?
            .execute([hash])
            .map(drop)
    }

    fn set_failed(
        &self,
        hash: &str,
        kind: CallErrorKind,
        message: &str,
    ) -> Result<(), rusqlite::Error> {
        self.transaction
            .prepare_cached(
                "UPDATE batch_requests SET state = 'failed', code = ?2, message = ?3 WHERE hash = ?1",
            )?
            .execute([hash, kind.code(), message])
            .map(drop)
    }

    /// The call goes into the next batch, unless it did so too often.
    fn again(&self, hash: &str, kind: CallErrorKind, message: &str) -> Result<(), rusqlite::Error> {
        let freed = self
            .transaction
            .prepare_cached(
                "UPDATE batch_requests SET state = 'again', tries = tries + 1 \
                 WHERE hash = ?1 AND tries + 1 < ?2",
            )?
            .execute(params![hash, self.most_tries])?;
        match freed {
            0 => self.set_failed(hash, kind, message),
            _ => Ok(()),
        }
    }
}
