//! What judges said of the traces of a run, by trace: aside on disk until the traces are written.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, params};

use crate::output::{RunError, Status};

/// One judged metric of one trace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judgement {
    pub metric: String,
    pub status: Status,
    /// Unrounded; there exactly if the status is success.
    pub score: Option<f64>,
    pub reason: String,
    /// A JSON object.
    pub metadata: String,
    pub model: String,
    /// A person gave the score, in place of the judge.
    pub by_person: bool,
}

/// Ends of a metric over all traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    pub judged: u64,
    pub failed: u64,
    pub pending: u64,
}

/// Judgements by trace.
#[derive(Debug)]
pub(crate) struct Judgements {
    connection: Connection,
    folder: std::path::PathBuf,
    /// By metric.
    pub ends: BTreeMap<String, Ends>,
}

impl Judgements {
    /// An empty store in a folder that is thrown away later.
    pub fn create(folder: &Path) -> Result<Self, RunError> {
        let open = || -> Result<Connection, rusqlite::Error> {
            let connection = Connection::open(folder.join("judgements.db"))?;
            // Nothing in here outlives the process; the ledger does.
            connection.pragma_update(None, "journal_mode", "OFF")?;
            connection.pragma_update(None, "synchronous", "OFF")?;
            connection.execute_batch(
                "DROP TABLE IF EXISTS judgements; CREATE TABLE judgements (trace_id TEXT, metric TEXT, status INTEGER, score REAL, \
                 reason TEXT, metadata TEXT, model TEXT, by_person INTEGER, PRIMARY KEY (trace_id, metric)) WITHOUT ROWID",
            )?;
            Ok(connection)
        };
        Ok(Self {
            connection: open().map_err(|e| RunError::write(folder, e))?,
            folder: folder.to_owned(),
            ends: BTreeMap::new(),
        })
    }

    /// Keeps what was said of a trace.
    pub fn put(&mut self, trace_id: &str, judgements: &[Judgement]) -> Result<(), RunError> {
        let write = || -> Result<(), rusqlite::Error> {
            let mut statement = self.connection.prepare_cached(
                "INSERT OR REPLACE INTO judgements VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?;
            for j in judgements {
                statement.execute(params![
                    trace_id,
                    j.metric,
                    j.status as i64,
                    j.score,
                    j.reason,
                    j.metadata,
                    j.model,
                    j.by_person
                ])?;
            }
            Ok(())
        };
        write().map_err(|e| RunError::write(&self.folder, e))?;
        for j in judgements {
            let ends = self.ends.entry(j.metric.clone()).or_default();
            match j.status {
                Status::Success => ends.judged += 1,
                Status::Failed => ends.failed += 1,
                Status::Pending => ends.pending += 1,
            }
        }
        Ok(())
    }

    /// What was said of a trace, metrics in the order of their names.
    pub fn of(&self, trace_id: &str) -> Result<Vec<Judgement>, RunError> {
        let read = || -> Result<Vec<Judgement>, rusqlite::Error> {
            let mut statement = self.connection.prepare_cached(
                "SELECT metric, status, score, reason, metadata, model, by_person FROM judgements WHERE trace_id = ?1 ORDER BY metric",
            )?;
            let rows = statement.query_map([trace_id], |row| {
                let status: i64 = row.get(1)?;
                Ok(Judgement {
                    metric: row.get(0)?,
                    status: match status {
                        0 => Status::Success,
                        1 => Status::Failed,
                        _ => Status::Pending,
                    },
                    score: row.get(2)?,
                    reason: row.get(3)?,
                    metadata: row.get(4)?,
                    model: row.get(5)?,
                    by_person: row.get(6)?,
                })
            })?;
            rows.collect()
        };
        read().map_err(|e| RunError::write(&self.folder, e))
    }

    /// The distinct reasons of what was not tried.
    pub fn pending_reasons(&self) -> Result<Vec<String>, RunError> {
        let read = || -> Result<Vec<String>, rusqlite::Error> {
            let mut statement = self
                .connection
                .prepare("SELECT DISTINCT reason FROM judgements WHERE status = ?1")?;
            let rows = statement.query_map([Status::Pending as i64], |row| row.get(0))?;
            rows.collect()
        };
        read().map_err(|e| RunError::write(&self.folder, e))
    }

    /// Every score of a metric, by trace.
    pub fn scores(&self, metric: &str) -> Result<Vec<(String, f64)>, RunError> {
        let read = || -> Result<Vec<(String, f64)>, rusqlite::Error> {
            let mut statement = self.connection.prepare(
                "SELECT trace_id, score FROM judgements WHERE metric = ?1 AND score IS NOT NULL ORDER BY trace_id",
            )?;
            let rows = statement.query_map([metric], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        };
        read().map_err(|e| RunError::write(&self.folder, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judgements_come_back_as_they_were_put() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Judgements::create(folder.path()).unwrap();
        let judgement = |metric: &str, status, score| Judgement {
            metric: metric.into(),
            status,
            score,
            reason: "r".into(),
            metadata: "{}".into(),
            model: "m".into(),
            by_person: score.is_none(),
        };
        let all = [
            judgement("confidence", Status::Success, Some(0.1 + 0.2)),
            judgement("plan_quality", Status::Failed, None),
            judgement("step_efficiency", Status::Pending, None),
        ];
        store.put("a", &all).unwrap();
        assert_eq!(store.of("a").unwrap(), all);
        assert_eq!(store.of("b").unwrap(), []);
        assert_eq!(
            store.scores("confidence").unwrap(),
            [("a".to_owned(), 0.1 + 0.2)]
        );
        assert_eq!(store.scores("plan_quality").unwrap(), []);
        assert_eq!(store.pending_reasons().unwrap(), ["r"]);
        assert_eq!(
            store.ends["plan_quality"],
            Ends {
                failed: 1,
                ..Ends::default()
            }
        );
    }
}
