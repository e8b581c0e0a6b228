//! Vectors of texts taken out of a cache, of whatever model: a vector tells something about its text.
//!
//! A segment that holds one is written anew without it, and then removed: a process that is killed in between leaves both,
//! and the next call ends it.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use super::segment::{FINISHED, OpenSegment, Segment, UNFINISHED, adopt, layout_of, prefix};
use super::{files_with, is_key};
use crate::text::TextId;

/// What was taken out of a cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForgottenVectors {
    /// Vectors.
    pub vectors: u64,
    /// Files that a run is writing just now, and that were not looked at.
    pub busy: Vec<PathBuf>,
    /// Files that can't be read, with the reason.
    pub unread: Vec<(PathBuf, String)>,
}

/// Takes the vectors of texts out of the cache in a folder; `dry_run` only counts them. A folder that is not there holds none.
///
/// # Errors
/// If the folder can't be read, or a file can't be written anew.
pub fn forget_vectors(
    root: &Path,
    texts: &HashSet<TextId>,
    dry_run: bool,
) -> io::Result<ForgottenVectors> {
    let mut forgotten = ForgottenVectors::default();
    if texts.is_empty() || !root.is_dir() {
        return Ok(forgotten);
    }
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(root.join("merge.lock"))?;
    // A run that merges small files would copy what is being taken out.
    lock.lock()?;
    let prefixes: HashSet<u64> = texts.iter().map(|id| prefix(*id)).collect();
    let bytes: HashSet<[u8; 16]> = texts.iter().map(|id| id.bytes()).collect();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if !is_key(&entry.file_name().to_string_lossy()) || !entry.file_type()?.is_dir() {
            continue;
        }
        let folder = entry.path();
        for path in files_with(&folder, UNFINISHED)? {
            if is_held(&path) {
                forgotten.busy.push(path);
            } else if let (false, Some(layout)) = (dry_run, layout_of(&path)?) {
                adopt(&path, layout)?;
            }
        }
        for path in files_with(&folder, FINISHED)? {
            match forget_in(&folder, &path, &prefixes, &bytes, dry_run) {
                Ok(count) => forgotten.vectors += count,
                // Evicted in the meantime.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => forgotten.unread.push((path, e.to_string())),
            }
        }
    }
    Ok(forgotten)
}

/// Whether a process that lives writes a file.
fn is_held(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_err())
}

fn forget_in(
    folder: &Path,
    path: &Path,
    prefixes: &HashSet<u64>,
    texts: &HashSet<[u8; 16]>,
    dry_run: bool,
) -> io::Result<u64> {
    let wrong = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
    let Some(layout) = layout_of(path)? else {
        return Err(wrong("it is no file of a cache"));
    };
    let Some((segment, entries)) = Segment::open(path, layout)? else {
        return Err(wrong("it is no file of a cache"));
    };
    let mut record = Vec::new();
    let mut is_one = |row: u32| {
        segment.record(row, &mut record)
            && record
                .first_chunk::<16>()
                .is_some_and(|id| texts.contains(id))
    };
    let gone: HashSet<u32> = entries
        .iter()
        .filter(|(found, row)| prefixes.contains(found) && is_one(*row))
        .map(|(_, row)| *row)
        .collect();
    let count = gone.len() as u64;
    if count == 0 || dry_run {
        return Ok(count);
    }
    let mut fresh = OpenSegment::create(folder, layout)?;
    for (_, row) in entries {
        if !gone.contains(&row) && segment.record(row, &mut record) {
            fresh.put_record(&record)?;
        }
    }
    fresh.finish(segment.used())?;
    fs::remove_file(path)?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::super::{CacheKey, EmbeddingCache};
    use super::*;

    fn cache(root: &Path, precision: &str) -> EmbeddingCache {
        let key = CacheKey {
            model_sha256: "m".into(),
            precision: precision.into(),
            device: "cpu".into(),
            revision: 1,
        };
        EmbeddingCache::open(root, &key, 2, 1 << 30, 1 << 20).unwrap()
    }

    #[test]
    fn vectors_go_out_of_the_caches_of_all_models_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (root, ids) = (folder.path(), ["a", "b", "c"].map(TextId::of));
        for precision in ["f32", "bf16"] {
            let cache = cache(root, precision);
            ids.iter().for_each(|id| cache.put(*id, &[1.5, 2.5]));
        }
        let texts: HashSet<TextId> = [ids[1], TextId::of("never seen")].into();
        let vectors = |dry_run| forget_vectors(root, &texts, dry_run).unwrap().vectors;
        assert_eq!([vectors(true), vectors(false), vectors(false)], [2, 2, 0]);
        let found = |cache: &EmbeddingCache, id| cache.get(id, &mut Vec::new());
        for precision in ["f32", "bf16"] {
            let cache = cache(root, precision);
            assert_eq!(ids.map(|id| found(&cache, id)), [true, false, true]);
        }
        for entry in walkdir::WalkDir::new(root) {
            let entry = entry.unwrap();
            if entry.file_type().is_file() {
                let bytes = fs::read(entry.path()).unwrap();
                assert!(!bytes.windows(16).any(|part| part == ids[1].bytes()));
            }
        }
    }

    #[test]
    fn a_file_that_is_being_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), "f32");
        cache.put(TextId::of("a"), &[1.5, 2.5]);
        let texts: HashSet<TextId> = [TextId::of("a")].into();
        let forgotten = forget_vectors(folder.path(), &texts, false).unwrap();
        assert_eq!((forgotten.vectors, forgotten.busy.len()), (0, 1));
        drop(cache);
        let forgotten = forget_vectors(folder.path(), &texts, false).unwrap();
        assert_eq!((forgotten.vectors, forgotten.busy.len()), (1, 0));
    }
}
