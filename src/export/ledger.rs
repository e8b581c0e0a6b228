//! What was sent where: a SQLite file, so that a sending that was killed goes on where it stopped, and one that is made again
//! sends nothing.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _};

use super::ExportError;

/// Marks the file as a ledger of exports: `nmex`.
const APPLICATION: i64 = 0x6e6d_6578;
const FORMAT: i64 = 1;
/// How long another process at the same ledger is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

const TABLES: &str = "CREATE TABLE IF NOT EXISTS sent (
    endpoint TEXT NOT NULL,
    id TEXT NOT NULL,
    -- Of what the score said.
    digest TEXT,
    PRIMARY KEY (endpoint, id)
) WITHOUT ROWID;";

/// What the ledger knows of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It was never sent, or said something else then.
    New,
    /// It has arrived as it is.
    Sent,
}

/// A ledger of exports.
#[derive(Debug)]
pub(super) struct SentLedger {
    connection: Connection,
    /// The endpoint, and the project there.
    endpoint: String,
}

impl SentLedger {
    /// Opens a ledger, or makes one.
    pub fn open(path: &Path, endpoint: &str) -> Result<Self, ExportError> {
        let wrong = |e: rusqlite::Error| {
            let advice = "it should be a file of nightmill on a local disk; name another with --export-ledger";
            ExportError::file(
                path,
                format!("the ledger of exports can't be opened: {e}; {advice}"),
            )
        };
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            std::fs::create_dir_all(folder).map_err(|e| ExportError::file(folder, e))?;
        }
        let connection = Connection::open(path).map_err(wrong)?;
        connection.busy_timeout(PATIENCE).map_err(wrong)?;
        let pragma =
            |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        let application = pragma("application_id").map_err(wrong)?;
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
            .map_err(wrong)?;
        if application != APPLICATION && (application != 0 || tables > 0) {
            let problem = "is a database of something else, and no ledger of exports; name another with --export-ledger";
            return Err(ExportError::file(path, problem));
        }
        let format = pragma("user_version").map_err(wrong)?;
        if format > FORMAT {
            let problem = "is an export ledger of a later version of nightmill; use that, or name another with --export-ledger";
            return Err(ExportError::file(path, problem));
        }
        connection
            .pragma_update(None, "journal_mode", "wal")
            .and_then(|()| connection.execute_batch(TABLES))
            .and_then(|()| connection.pragma_update(None, "application_id", APPLICATION))
            .and_then(|()| connection.pragma_update(None, "user_version", FORMAT))
            .map_err(wrong)?;
        Ok(Self {
            connection,
            endpoint: endpoint.to_owned(),
        })
    }

    /// What is known of a score.
    pub fn known(&self, id: &str, digest: &str) -> Result<Known, rusqlite::Error> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT digest FROM sent WHERE endpoint = ?1 AND id = ?2")?;
        let found: Option<Option<String>> = statement
            .query_row((&self.endpoint, id), |row| row.get(0))
            .optional()?;
        Ok(match found {
            Some(Some(sent)) if sent == digest => Known::Sent,
            _ => Known::New,
        })
    }

    /// Notes scores with what they said. All or none.
    pub fn note<'s>(
        &mut self,
        scores: impl IntoIterator<Item = (&'s str, &'s str)>,
    ) -> Result<(), rusqlite::Error> {
        let change = self.connection.transaction()?;
        {
            let mut statement = change.prepare_cached(
                "INSERT INTO sent (endpoint, id, digest) VALUES (?1, ?2, ?3)
                 ON CONFLICT DO UPDATE SET digest = excluded.digest",
            )?;
            for (id, digest) in scores {
                statement.execute((&self.endpoint, id, digest))?;
            }
        }
        change.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_known_by_endpoint_id_and_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/exports.db");
        let mut ledger = SentLedger::open(&path, "http://a/").unwrap();
        assert_eq!(ledger.known("1", "x").unwrap(), Known::New);
        ledger.note([("1", "y"), ("2", "x")]).unwrap();
        assert_eq!(ledger.known("1", "x").unwrap(), Known::New);
        ledger.note([("1", "x")]).unwrap();
        drop(ledger);
        let ledger = SentLedger::open(&path, "http://a/").unwrap();
        assert_eq!(ledger.known("1", "x").unwrap(), Known::Sent);
        assert_eq!(ledger.known("1", "y").unwrap(), Known::New);
        let other = SentLedger::open(&path, "http://b/").unwrap();
        assert_eq!(other.known("2", "x").unwrap(), Known::New);
    }

    #[test]
    fn other_databases_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.db");
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE mine (a)").unwrap();
        drop(other);
        let error = SentLedger::open(&path, "http://a/")
            .unwrap_err()
            .to_string();
        assert!(error.contains("something else"), "{error}");
        std::fs::write(&path, "no database, however long it is").unwrap();
        assert!(SentLedger::open(&path, "http://a/").is_err());
    }
}
