//! Putting files into a bucket: small ones at once, large ones in parts.

use std::fs::File;
use std::io::Read;
use std::path::Path as LocalPath;

use futures::stream::FuturesUnordered;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutResult};

use super::StoreError;
use super::connect::Connection;
use super::location::Location;

/// So many files are on their way at once.
const FILES: usize = 2;
/// So many parts of each.
const PARTS: usize = 3;
/// A larger file goes in parts of this size; more than 5 MiB, as Amazon wants it.
const PART: u64 = 8 << 20;
/// Amazon takes no more than ten thousand parts.
const MOST_PARTS: u64 = 9_000;

/// A file that is in the bucket.
#[derive(Clone, Debug)]
pub(super) struct Put {
    pub key: Path,
    pub size: u64,
    pub e_tag: Option<String>,
}

/// Puts files under keys, each atomically: until all of a file is there, nothing of it is.
pub(super) async fn put_all(
    connection: &Connection,
    at: &Location,
    files: Vec<(std::path::PathBuf, Path)>,
) -> Result<Vec<Put>, StoreError> {
    let files = files
        .into_iter()
        .map(|(file, key)| async move { put_file(connection, at, &file, key).await });
    let files = futures::stream::iter(files).buffer_unordered(FILES);
    files.try_collect().await
}

/// Puts one file.
pub(super) async fn put_file(
    connection: &Connection,
    at: &Location,
    local: &LocalPath,
    key: Path,
) -> Result<Put, StoreError> {
    let unreadable = |e: std::io::Error| {
        let advice = "nothing may change a run while it is carried away; run it again";
        StoreError::new(local.display().to_string(), e, advice)
    };
    let mut file = File::open(local).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    let part = PART.max(size / MOST_PARTS + 1);
    let put = match size <= part {
        true => {
            let bytes = next_part(&mut file, part).map_err(unreadable)?;
            if bytes.len() as u64 != size {
                return Err(unreadable(std::io::ErrorKind::UnexpectedEof.into()));
            }
            let put = connection.store.put(&key, bytes.into()).await;
            put.map_err(|error| connection.told(&at.sibling(key.as_ref()), &error))?
        }
        false => in_parts(connection, at, &mut file, &key, part, size).await?,
    };
    Ok(Put {
        key,
        size,
        e_tag: put.e_tag,
    })
}

/// The next bytes of a file: so many, or those that are left.
fn next_part(file: &mut File, size: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    Ok(bytes)
}

async fn in_parts(
    connection: &Connection,
    at: &Location,
    file: &mut File,
    key: &Path,
    part: u64,
    size: u64,
) -> Result<PutResult, StoreError> {
    let at = at.sibling(key.as_ref());
    let told = |error: object_store::Error| connection.told(&at, &error);
    let mut upload = connection.store.put_multipart(key).await.map_err(told)?;
    let mut parts = FuturesUnordered::new();
    let mut sent = 0;
    let mut result = Ok(());
    while sent < size && result.is_ok() {
        let bytes = match next_part(file, part) {
            Ok(bytes) if !bytes.is_empty() => bytes,
            _ => {
                let problem = "the file to carry there could not be read to its end";
                result = Err(StoreError::new(at.shown(), problem, "run it again"));
                break;
            }
        };
        sent += bytes.len() as u64;
        parts.push(upload.put_part(bytes.into()));
        while result.is_ok() && (parts.len() >= PARTS || sent >= size) {
            match parts.next().await {
                None => break,
                Some(put) => result = put.map_err(told),
            }
        }
    }
    let result = match result {
        Ok(()) => upload.complete().await.map_err(told),
        Err(error) => Err(error),
    };
    if result.is_err() {
        // What was sent is not visible, and costs: buckets should also have a rule that drops parts of dead processes.
        drop(parts);
        let _ = upload.abort().await;
    }
    result
}
