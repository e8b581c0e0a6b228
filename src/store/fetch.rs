//! Bringing objects here: several at once, straight to disk, and whole.
//!
//! An object that changes between the listing and the end of reading is an error, never a file that is half old and half
//! new: each piece is asked for with the ETag of the first answer, and the size must be what the listing said.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path as LocalPath;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use object_store::{Error, GetOptions, GetRange, GetResult};

use super::connect::Connection;
use super::listing::Listed;
use super::location::Location;
use super::{Job, StoreError};

/// So many objects are on their way at once.
const AT_ONCE: usize = 8;
/// So much is asked for at a time: a loss of the connection costs no more.
const PIECE: u64 = 32 << 20;

/// How long is waited, and how often tried.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// A server that sends nothing for so long is given up, and asked again.
    stall: Duration,
    /// So many times in a row without a byte; then it is an error.
    tries: u32,
    piece: u64,
}

const PATIENCE: Patience = Patience {
    stall: Duration::from_secs(20),
    tries: 5,
    piece: PIECE,
};

/// Brings all objects to their places.
pub(super) async fn bring_all(jobs: Vec<Job>) -> Result<(), StoreError> {
    let (count, bytes) = (
        jobs.len(),
        jobs.iter().filter_map(|job| job.2.size).sum::<u64>(),
    );
    tracing::info!(objects = count, bytes, "bringing remote files here");
    let jobs = jobs
        .into_iter()
        .map(|(connection, at, listed, to)| async move {
            bring(&connection, &at, &listed, &to, PATIENCE).await
        });
    futures::stream::iter(jobs)
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await
        .map(|_| ())
}

/// Why a piece did not come.
enum Fault {
    /// It may come at the next try.
    Passing(StoreError),
    Final(StoreError),
    /// The server sends whole files only.
    WholeOnly,
}

/// What has come of an object so far.
struct Coming<'a> {
    connection: &'a Connection,
    at: &'a Location,
    listed: &'a Listed,
    patience: Patience,
    file: File,
    to: &'a LocalPath,
    received: u64,
    size: Option<u64>,
    /// Of the first answer, as the server wrote it.
    e_tag: Option<String>,
    in_pieces: bool,
}

async fn bring(
    connection: &Connection,
    at: &Location,
    listed: &Listed,
    to: &LocalPath,
    patience: Patience,
) -> Result<(), StoreError> {
    let made = to.parent().map_or(Ok(()), std::fs::create_dir_all);
    let file = made.and_then(|()| File::create(to));
    let mut coming = Coming {
        connection,
        at,
        listed,
        patience,
        file: file.map_err(|e| unwritable(to, e))?,
        to,
        received: 0,
        size: listed.size,
        e_tag: None,
        in_pieces: listed.size.is_some(),
    };
    let mut in_vain = 0;
    while coming.size.is_none_or(|size| coming.received < size) {
        let before = coming.received;
        match coming.piece().await {
            Ok(()) => in_vain = 0,
            Err(Fault::Final(error)) => return Err(error),
            Err(Fault::WholeOnly) => coming.begin_again()?,
            Err(Fault::Passing(error)) => {
                in_vain = if coming.received > before {
                    1
                } else {
                    in_vain + 1
                };
                if in_vain >= patience.tries {
                    return Err(error);
                }
                tracing::warn!(%error, "trying again");
                tokio::time::sleep(patience.stall.min(Duration::from_millis(250 << in_vain))).await;
                if !coming.in_pieces {
                    coming.begin_again()?;
                }
            }
        }
    }
    coming.file.flush().map_err(|e| unwritable(to, e))
}

fn unwritable(to: &LocalPath, problem: std::io::Error) -> StoreError {
    let advice = "make room there, or name another temporary folder with the variable TMPDIR";
    StoreError::new(to.display().to_string(), problem, advice)
}

impl Coming<'_> {
    fn begin_again(&mut self) -> Result<(), StoreError> {
        self.in_pieces = false;
        self.received = 0;
        let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
        emptied.map_err(|e| unwritable(self.to, e))
    }

    fn changed(&self) -> Fault {
        Fault::Final(StoreError::new(
            self.at.shown(),
            "it changed while it was read: its size or ETag is no longer that of the listing",
            "run it again when nobody writes to it",
        ))
    }

    fn slow(&self, what: &str) -> Fault {
        let problem = format!("{what} for {} s", self.patience.stall.as_secs_f32());
        let advice = format!(
            "it was tried {} times; run it again later",
            self.patience.tries
        );
        Fault::Passing(StoreError::new(self.at.shown(), problem, advice))
    }

    fn fault(&self, error: &Error) -> Fault {
        let text = error.to_string();
        match error {
            Error::Precondition { .. } => self.changed(),
            Error::NotFound { .. } if self.listed.size.is_some() => self.changed(),
            Error::NotSupported { .. } if self.in_pieces => Fault::WholeOnly,
            _ if text.contains("non-partial response") => Fault::WholeOnly,
            Error::NotFound { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. } => Fault::Final(self.connection.told(self.at, error)),
            _ if text.contains("status code: 4") => {
                Fault::Final(self.connection.told(self.at, error))
            }
            _ => Fault::Passing(self.connection.told(self.at, error)),
        }
    }

    /// Brings the next piece, or all there is.
    async fn piece(&mut self) -> Result<(), Fault> {
        let end = match (self.in_pieces, self.size) {
            (true, Some(size)) => Some(size.min(self.received + self.patience.piece)),
            _ => None,
        };
        let options = GetOptions {
            if_match: self.e_tag.clone(),
            range: end.map(|end| GetRange::Bounded(self.received..end)),
            ..GetOptions::default()
        };
        let asked = self.connection.store.get_opts(&self.listed.key, options);
        let answer = match tokio::time::timeout(self.patience.stall, asked).await {
            Err(_) => return Err(self.slow("no answer")),
            Ok(Err(error)) => return Err(self.fault(&error)),
            Ok(Ok(answer)) => answer,
        };
        self.check(&answer)?;
        let end = end.unwrap_or(answer.meta.size);
        let mut stream = answer.into_stream();
        loop {
            match tokio::time::timeout(self.patience.stall, stream.next()).await {
                Err(_) => return Err(self.slow("nothing more came")),
                Ok(Some(Err(error))) => return Err(self.fault(&error)),
                Ok(Some(Ok(bytes))) => {
                    if self.received + bytes.len() as u64 > end {
                        return Err(self.changed());
                    }
                    let written = self.file.write_all(&bytes);
                    written.map_err(|e| Fault::Final(unwritable(self.to, e)))?;
                    self.received += bytes.len() as u64;
                }
                Ok(None) if self.received == end => return Ok(()),
                Ok(None) => {
                    let problem =
                        format!("the answer ended after {} of {end} bytes", self.received);
                    let advice = "run it again; if it stays so, the copy there is damaged";
                    let short = StoreError::new(self.at.shown(), problem, advice);
                    return Err(Fault::Passing(short));
                }
            }
        }
    }

    /// Whether the answer is of the object that was listed, and of the same as the answers before.
    fn check(&mut self, answer: &GetResult) -> Result<(), Fault> {
        let meta = &answer.meta;
        let known = self.e_tag.as_ref().or(self.listed.e_tag.as_ref());
        let same_tag = match (known, &meta.e_tag) {
            (Some(known), Some(found)) => bare(known) == bare(found),
            _ => true,
        };
        if !same_tag || self.size.is_some_and(|size| size != meta.size) {
            return Err(self.changed());
        }
        self.size = Some(meta.size);
        if self.e_tag.is_none() {
            self.e_tag.clone_from(&meta.e_tag);
        }
        Ok(())
    }
}

/// Listings and answers of one server quote ETags differently.
pub(super) fn bare(e_tag: &str) -> &str {
    e_tag.trim_start_matches("W/").trim_matches('"')
}

#[cfg(test)]
mod tests;
