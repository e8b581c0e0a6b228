//! How parts of a run are committed: each is written aside, and is there when its marker is, which only one attempt can put.
//!
//! Any number of workers may do a part at once, stop in the middle, or end it long after another one has. Equal attempts
//! are thrown away; an attempt that differs breaks the promise that every run rests on, and fails the run.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::job::JobPlace;
use crate::output::RunError;
use crate::output::manifest::hash_of;
use crate::run::bucket::{FileOfBucket, FinishedBuckets, Marker};
use crate::trace::{QuarantinedRows, ReadCounts};

/// Folders among the working files of a run.
pub(super) use crate::output::directory::{ATTEMPTS, CURRENT_JOB};

/// Attempts that differ from the one that was there first.
const DIFFERENT: &str = "different";

/// What a marker of a unit says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct UnitMarker {
    pub counts: ReadCounts,
    pub quarantine: Vec<QuarantinedRows>,
    /// Rows that went to each bucket.
    pub rows: BTreeMap<u32, u64>,
}

/// The folder of the markers of a job's units.
pub(super) fn units_of(place: &JobPlace) -> String {
    format!("units-{}", place.blake3.get(..16).unwrap_or_default())
}

/// Says that a job is the one that is being done.
pub(super) fn make_current(work: &Path, place: &JobPlace) -> Result<(), RunError> {
    let path = work.join(CURRENT_JOB);
    fs::write(&path, &place.blake3).map_err(|e| RunError::write(&path, e))
}

/// Whether a job is the one that is being done: an engine may go on with one whose driver is gone.
///
/// # Errors
/// If it is another one by now.
pub(super) fn check_current(work: &Path, place: &JobPlace) -> Result<(), RunError> {
    match fs::read_to_string(work.join(CURRENT_JOB)) {
        Ok(current) if current == place.blake3 => Ok(()),
        Err(e) if e.kind() != ErrorKind::NotFound => {
            Err(RunError::write(&work.join(CURRENT_JOB), e))
        }
        _ => Err(RunError::Request(
            "the run has ended, or goes on with another job by now; this one is given up".into(),
        )),
    }
}

/// The name of a unit's marker.
pub(super) fn of_unit(number: u32) -> String {
    format!("{number:06}.json")
}

/// Whether a marker was put, or another was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    First,
    Late,
}

/// Puts a marker where there is none: whole or not at all, and never in place of another.
pub(super) fn put_if_absent(
    folder: &Path,
    name: &str,
    marker: &impl Serialize,
) -> Result<Put, RunError> {
    let path = folder.join(name);
    let failed = |e: std::io::Error| RunError::write(&path, e);
    let text = serde_json::to_vec(marker).map_err(|e| RunError::write(&path, e))?;
    let mut partial = tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .tempfile_in(folder)
        .map_err(failed)?;
    std::io::Write::write_all(&mut partial, &text).map_err(failed)?;
    partial.as_file().sync_all().map_err(failed)?;
    // A second name of a file is made in one step, also on file systems of networks.
    match fs::hard_link(partial.path(), &path) {
        Ok(()) => Ok(Put::First),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(Put::Late),
        // Where there are no second names, moving may know how to replace nothing.
        Err(_) => match partial.persist_noclobber(&path) {
            Ok(_) => Ok(Put::First),
            Err(e) if e.error.kind() == ErrorKind::AlreadyExists => Ok(Put::Late),
            Err(e) => Err(failed(e.error)),
        },
    }
}

/// Reads a marker; none if there is none, or if it can't be read.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// The files of an attempt, with their hashes, on disk for good.
pub(super) fn files_of(attempt: &Path) -> Result<BTreeMap<String, FileOfBucket>, RunError> {
    let mut files = BTreeMap::new();
    for entry in walkdir::WalkDir::new(attempt).sort_by_file_name() {
        let entry = entry.map_err(|e| RunError::write(attempt, e))?;
        if !entry.file_type().is_file() {
            continue;
        }
        let path = entry.path();
        let failed = |e: std::io::Error| RunError::write(path, e);
        fs::File::open(path)
            .and_then(|file| file.sync_all())
            .map_err(failed)?;
        let (bytes, blake3) = hash_of(path).map_err(failed)?;
        let name = path.strip_prefix(attempt).unwrap_or(path);
        let file = FileOfBucket { bytes, blake3 };
        files.insert(name.to_string_lossy().into_owned(), file);
    }
    Ok(files)
}

/// Commits an attempt at a bucket. One that comes late is removed, if it is equal to the first.
///
/// # Errors
/// If it differs: two machines gave different bytes for equal rows. The run is told so, whoever is there to hear this error.
pub(super) fn commit(work: &Path, markers: &Path, marker: &Marker) -> Result<Put, RunError> {
    let name = FinishedBuckets::name(marker.bucket);
    let put = put_if_absent(markers, &name, marker)?;
    if put == Put::First {
        return Ok(put);
    }
    let path = markers.join(&name);
    let Some(first) = read::<Marker>(&path) else {
        return Err(RunError::write(
            &path,
            "the marker that is there can't be read",
        ));
    };
    // A file system of a network may tell of a second name that it has just made that it was there.
    if first.attempt == marker.attempt {
        return Ok(Put::First);
    }
    let equal =
        first.files == marker.files && (first.attempt.is_none() || first.rows == marker.rows);
    if !equal {
        let folder = work.join(DIFFERENT);
        fs::create_dir_all(&folder).map_err(|e| RunError::write(&folder, e))?;
        put_if_absent(&folder, &name, marker)?;
        return Err(differs(marker.bucket));
    }
    if let Some(attempt) = &marker.attempt {
        // What stays is removed with the working files.
        let _ = fs::remove_dir_all(work.join(attempt));
    }
    Ok(put)
}

fn differs(bucket: u32) -> RunError {
    RunError::Plan(format!(
        "bucket {bucket} was scored twice, with different results: rows were lost or counted twice on their way, or two machines \
         don't compute alike; nothing of it is used"
    ))
}

/// Whether any attempt differed from the first; then nobody may go on with the first either.
///
/// # Errors
/// Naming the bucket.
pub(super) fn check_equal(work: &Path, markers: &Path) -> Result<(), RunError> {
    let entries = fs::read_dir(work.join(DIFFERENT)).into_iter().flatten();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let bucket = name.to_str().and_then(|name| name.strip_suffix(".json"));
        if let Some(bucket) = bucket.and_then(|bucket| bucket.parse().ok()) {
            let _ = fs::remove_file(markers.join(&name));
            return Err(differs(bucket));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embed::EmbeddingCounts;
    use crate::run::bucket::BucketCounts;

    fn marker(attempt: &str, content: &str) -> Marker {
        let file = FileOfBucket {
            bytes: content.len() as u64,
            blake3: blake3::hash(content.as_bytes()).to_hex().to_string(),
        };
        Marker {
            bucket: 7,
            attempt: Some(attempt.into()),
            rows: 2,
            files: BTreeMap::from([("traces/bucket-00007.parquet".into(), file)]),
            counts: BucketCounts::default(),
            embedding: EmbeddingCounts::default(),
        }
    }

    fn attempt(work: &Path, name: &str, content: &str) {
        let folder = work.join(name).join("traces");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("bucket-00007.parquet"), content).unwrap();
    }

    #[test]
    fn the_first_attempt_wins_an_equal_one_goes_and_another_one_is_told() {
        let run = tempfile::tempdir().unwrap();
        let (work, markers) = (run.path().join("work"), run.path().join("work/buckets"));
        fs::create_dir_all(&markers).unwrap();
        for (name, content) in [("a", "x"), ("b", "x"), ("c", "y")] {
            attempt(&work, name, content);
            let files = files_of(&work.join(name)).unwrap();
            assert_eq!(files, marker(name, content).files);
        }
        assert_eq!(
            commit(&work, &markers, &marker("a", "x")).unwrap(),
            Put::First
        );
        assert_eq!(
            commit(&work, &markers, &marker("b", "x")).unwrap(),
            Put::Late
        );
        assert!(work.join("a").exists() && !work.join("b").exists());
        check_equal(&work, &markers).unwrap();
        let error = commit(&work, &markers, &marker("c", "y")).unwrap_err();
        assert!(
            error.to_string().contains("bucket 7 was scored twice"),
            "{error}"
        );
        assert!(check_equal(&work, &markers).is_err());
        assert!(!markers.join("00007.json").exists());
        commit(&work, &markers, &marker("a", "x")).unwrap();
        // Told twice, it is still the first.
        assert_eq!(
            commit(&work, &markers, &marker("a", "x")).unwrap(),
            Put::First
        );
        // The files of the first are where tables have them; once more changes nothing.
        let first: Marker = read(&markers.join("00007.json")).unwrap();
        first.settle(run.path()).unwrap();
        first.settle(run.path()).unwrap();
        assert!(run.path().join("traces/bucket-00007.parquet").exists());
        // Nothing else is left beside the marker.
        assert_eq!(fs::read_dir(&markers).unwrap().count(), 1);
    }
}
