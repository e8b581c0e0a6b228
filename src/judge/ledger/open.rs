//! Opening the file of a ledger: a database of something else is recognised before anything in it changes, and a ledger that can't
//! be written can still be read.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{PATIENCE, TABLES, batches, check, claims, is_busy};

/// Counts up when the tables change, or what stands in them.
const FORMAT: i64 = 5;
/// The first one with the tables of this one.
const OLDEST_READ: i64 = 3;
/// Before this format, answers without a message were kept as empty replies.
const WITHOUT_EMPTY_ANSWERS: i64 = 4;
/// From this format on, answers carry a check.
const WITH_CHECKS: i64 = 5;
/// Marks the file as a ledger: `nmil`.
const APPLICATION: i64 = 0x6e6d_696c;
/// Removes the replies that [`is_no_answer`] holds of.
const FORGET_EMPTY_ANSWERS: &str = "DELETE FROM calls WHERE reply = '' AND NOT cut_off \
     AND prompt_tokens IS NULL AND completion_tokens IS NULL;";

/// Why a file can't be opened as a ledger.
#[derive(Debug)]
pub(super) struct OpenError {
    pub problem: String,
    cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// What the file is.
    File,
    /// It, or what SQLite keeps beside it, can't be written; reading alone may still go.
    Unwritable,
    /// Another process is busy with it.
    Busy,
    Other,
}

impl OpenError {
    fn of(problem: impl Into<String>) -> Self {
        Self {
            problem: problem.into(),
            cause: Cause::File,
        }
    }
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        Self {
            problem: error.to_string(),
            cause: match error.kind() {
                PermissionDenied | ReadOnlyFilesystem => Cause::Unwritable,
                _ => Cause::Other,
            },
        }
    }
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        use ErrorCode::{CannotOpen, PermissionDenied, ReadOnly};
        let cause = match error.sqlite_error_code() {
            Some(CannotOpen | PermissionDenied | ReadOnly) => Cause::Unwritable,
            _ if is_busy(&error) => Cause::Busy,
            _ => Cause::Other,
        };
        Self {
            problem: error.to_string(),
            cause,
        }
    }
}

/// An open file.
#[derive(Debug)]
pub(super) struct Opened {
    /// Without links.
    pub place: PathBuf,
    pub connection: Connection,
    /// What the tables hold.
    pub format: i64,
}

/// Whether what was kept as a reply is that of a response without a message: empty, not cut off, and no tokens counted.
pub(super) fn is_no_answer(reply: &crate::judge::Reply) -> bool {
    reply.text.is_empty() && !reply.cut_off && reply.usage.is_none()
}

/// Opens or makes a ledger.
pub(super) fn for_writing(path: &Path) -> Result<Opened, OpenError> {
    if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    // Replies tell as much as traces do: a new ledger is its owner's alone.
    let made = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(e.into()),
        _ => {}
    }
    let place = std::fs::canonicalize(path)?;
    // A look that leaves nothing behind: opened to be written, another program's log would move into its database.
    let seen = patiently(|| match has_log(&place) {
        true => checked(connect(&place, OpenFlags::SQLITE_OPEN_READ_ONLY)?),
        false => checked(unchanging(&place)?),
    });
    // Only what the file is counts; all else is seen better below.
    if let Err(e) = seen
        && e.cause == Cause::File
    {
        return Err(e);
    }
    let connection = patiently(|| {
        let connection = checked(connect(&place, OpenFlags::SQLITE_OPEN_READ_WRITE)?)?.0;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        Ok(connection)
    })?;
    let begun: Result<(), rusqlite::Error> = (|| {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let format = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        connection.execute_batch(&format!(
            "PRAGMA application_id = {APPLICATION}; {TABLES} {} {} {}",
            batches::TABLES,
            claims::TABLES,
            if holds_empty_answers(format) {
                FORGET_EMPTY_ANSWERS
            } else {
                ""
            },
        ))?;
        if !has_checks(format) {
            check::add(&connection)?;
        }
        connection.execute_batch(&format!("PRAGMA user_version = {FORMAT}; COMMIT;"))
    })();
    begun?;
    Ok(Opened {
        place,
        connection,
        format: FORMAT,
    })
}

/// Opens a ledger that is there, for reading alone where it can't be written.
pub(super) fn for_reading(path: &Path) -> Result<Opened, OpenError> {
    match for_writing(path) {
        Err(e) if e.cause == Cause::Unwritable => unwritable(path),
        opened => opened,
    }
}

fn unwritable(path: &Path) -> Result<Opened, OpenError> {
    let place = std::fs::canonicalize(path)?;
    let read = patiently(|| checked(connect(&place, OpenFlags::SQLITE_OPEN_READ_ONLY)?));
    let (connection, format) = match read {
        // SQLite wants to write a log beside the file, and can't.
        Err(e) if e.cause == Cause::Unwritable => {
            if has_log(&place) {
                return Err(OpenError::of(format!(
                    "it can't be written, and `{}` holds answers that are not in it yet; copy both into a folder that can be written",
                    log_of(&place).display()
                )));
            }
            checked(unchanging(&place)?)?
        }
        read => read?,
    };
    if format < OLDEST_READ {
        return Err(OpenError::of(format!(
            "it can't be written, and was written by an earlier nightmill (format {format}); open it once where it can be written"
        )));
    }
    Ok(Opened {
        place,
        connection,
        format,
    })
}

/// Whether empty replies without token counts may be in it, which are no answers: see [`is_no_answer`].
pub(super) fn holds_empty_answers(format: i64) -> bool {
    format < WITHOUT_EMPTY_ANSWERS
}

/// Whether its answers carry checks.
pub(super) fn has_checks(format: i64) -> bool {
    format >= WITH_CHECKS
}

/// SQLite's write-ahead log beside a file.
fn log_of(place: &Path) -> PathBuf {
    let mut log = place.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// Whether there may be something in the log that is not in the file.
fn has_log(place: &Path) -> bool {
    std::fs::metadata(log_of(place)).is_ok_and(|log| log.is_file() && log.len() > 0)
}

fn connect(place: &Path, flags: OpenFlags) -> Result<Connection, rusqlite::Error> {
    // By its place: other names may mean something to SQLite, as `:memory:` does.
    let connection = Connection::open_with_flags(place, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

/// A file that nobody changes while it is open: SQLite neither locks it nor keeps anything beside it.
fn unchanging(place: &Path) -> Result<Connection, rusqlite::Error> {
    use std::os::unix::ffi::OsStrExt;
    let mut uri = "file:".to_owned();
    for byte in place.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    connect(Path::new(&uri), flags)
}

/// A connection to a ledger of this or an earlier version, or to an empty database, with its format.
fn checked(connection: Connection) -> Result<(Connection, i64), OpenError> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    // One look: another process may be making the ledger just now.
    connection.execute_batch("BEGIN")?;
    let application = number("application_id")?;
    let tables: i64 = connection.query_row(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table'",
        [],
        |row| row.get(0),
    )?;
    let format = number("user_version")?;
    connection.execute_batch("COMMIT")?;
    if application != APPLICATION && (application != 0 || tables > 0) {
        return Err(OpenError::of("it is a database of something else"));
    }
    if format > FORMAT {
        return Err(OpenError::of(format!(
            "it was written by a later nightmill (format {format})"
        )));
    }
    Ok((connection, format))
}

/// Where two processes make the same ledger at once, SQLite does not wait by itself.
fn patiently<T>(mut open: impl FnMut() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let started = Instant::now();
    loop {
        match open() {
            Err(e) if e.cause == Cause::Busy && started.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(20));
            }
            opened => return opened,
        }
    }
}
