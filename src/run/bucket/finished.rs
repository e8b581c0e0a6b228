//! Buckets that are finished while their run is not: what `--resume` needs not do again.
//!
//! A finished bucket has a marker among the working files, with its files, their hashes, and what came of it. A marker is
//! written when its files are on disk, and appears whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{BucketCounts, FACTS, PLACES};
use crate::embed::EmbeddingCounts;
use crate::history::CARRIED;
use crate::output::directory::{CURRENT_JOB, UNFINISHED};
use crate::output::manifest::hash_of;
use crate::output::table_writer::Parts;
use crate::output::{RunDirectory, RunError};
use crate::trace::Buckets;

/// What the run was asked, beside the markers.
const REQUEST: &str = "request.json";

/// What the marker of a bucket says.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::run) struct Marker {
    pub bucket: u32,
    /// By their path in the directory of the run.
    pub files: BTreeMap<String, FileOfBucket>,
    pub counts: BucketCounts,
    /// Of a bucket that another process has scored: the folder of its files among the working files, until they are moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<String>,
    /// Likewise the rows that it was made of, and what was embedded for it.
    #[serde(default)]
    pub rows: u64,
    #[serde(default)]
    pub embedding: EmbeddingCounts,
}

/// A file as its marker has it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::run) struct FileOfBucket {
    pub bytes: u64,
    pub blake3: String,
}

impl Marker {
    /// Moves the files of an attempt to where tables have them. Those that are there already were moved before.
    pub fn settle(&self, run: &Path) -> Result<(), RunError> {
        let Some(attempt) = &self.attempt else {
            return Ok(());
        };
        let attempt = run.join("work").join(attempt);
        for name in self.files.keys() {
            let (from, to) = (attempt.join(name), run.join(name));
            if !from.exists() && to.exists() {
                continue;
            }
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder).map_err(|e| RunError::write(folder, e))?;
            }
            fs::rename(&from, &to).map_err(|e| RunError::write(&from, e))?;
        }
        Ok(())
    }
}

/// The finished buckets of a run that is being made.
#[derive(Clone, Debug)]
pub(in crate::run) struct FinishedBuckets {
    run: PathBuf,
    work: PathBuf,
    folder: PathBuf,
}

impl FinishedBuckets {
    /// Those of a run in so many buckets that is asked this. A directory that a killed run left has some; returns them too,
    /// those of other processes only where such do the run again (`elsewhere`).
    ///
    /// # Errors
    /// If the killed run was asked something else: what differs is named, and its buckets stay.
    pub fn open(
        run: &RunDirectory,
        buckets: Buckets,
        asked: &Value,
        elsewhere: bool,
    ) -> Result<(Self, BTreeMap<u32, BucketCounts>), RunError> {
        let (path, work) = (run.path().to_owned(), run.work());
        let folder = work.join(UNFINISHED);
        let opened = Self {
            run: path,
            work,
            folder,
        };
        // Workers of a job whose driver is gone must commit nothing after this look at what is there.
        let _ = fs::remove_file(opened.work.join(CURRENT_JOB));
        let request = opened.folder.join(REQUEST);
        match fs::read(&request)
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
        {
            // Nobody knows what markers without it are of.
            None => opened.remove_all()?,
            Some(before) => {
                if let Some(what) = difference(&before, asked) {
                    return Err(RunError::Request(format!(
                        "--resume: the run that was broken off was asked something else ({what}); ask the same, or leave out \
                         --resume to start anew"
                    )));
                }
            }
        }
        let mut found = BTreeMap::new();
        if buckets == Buckets::ONE {
            opened.remove_all()?;
            return Ok((opened, found));
        }
        fs::create_dir_all(&opened.folder).map_err(|e| RunError::write(&opened.folder, e))?;
        for entry in fs::read_dir(&opened.folder).into_iter().flatten().flatten() {
            let marker = fs::read(entry.path()).ok();
            let marker: Option<Marker> = marker.and_then(|m| serde_json::from_slice(&m).ok());
            // What other processes have scored, nobody has held against its rows yet: where workers read them once more, the
            // driver does, and else it is scored anew.
            let Some(marker) = marker.filter(|of| elsewhere || of.attempt.is_none()) else {
                continue;
            };
            // What can't be moved is not whole.
            let _ = marker.settle(&opened.run);
            if opened.is_whole(&marker) {
                found.insert(marker.bucket, marker.counts);
            }
        }
        opened.remove_others(&found.keys().copied().collect())?;
        write_whole(&request, asked)?;
        Ok((opened, found))
    }

    /// Notes that a bucket is finished: its files are on disk.
    pub fn add(&self, bucket: u32, counts: &BucketCounts) -> Result<(), RunError> {
        let mut files = BTreeMap::new();
        for path in self
            .files()
            .into_iter()
            .filter(|p| bucket_of(p) == Some(bucket))
        {
            let name = path.strip_prefix(&self.run).unwrap_or(&path);
            let (bytes, blake3) = hash_of(&path).map_err(|e| RunError::write(&path, e))?;
            let file = FileOfBucket { bytes, blake3 };
            files.insert(name.to_string_lossy().into_owned(), file);
        }
        let marker = serde_json::json!({ "bucket": bucket, "files": files, "counts": counts });
        write_whole(&self.folder.join(Self::name(bucket)), &marker)
    }

    /// The name of a bucket's marker.
    pub fn name(bucket: u32) -> String {
        format!("{bucket:05}.json")
    }

    /// The folder of the markers.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Forgets all of them.
    pub fn remove_all(&self) -> Result<(), RunError> {
        self.remove_others(&BTreeSet::new())
    }

    /// Whether the files of a marker are there, as they were written.
    fn is_whole(&self, marker: &Marker) -> bool {
        let mut files = marker.files.iter();
        files.all(|(name, file)| match hash_of(&self.run.join(name)) {
            Ok((bytes, blake3)) => *file == FileOfBucket { bytes, blake3 },
            Err(_) => false,
        })
    }

    /// The files of all buckets.
    fn files(&self) -> Vec<PathBuf> {
        let tables = ["traces", "scores", "sessions", CARRIED].map(|table| self.run.join(table));
        let tables = tables
            .into_iter()
            .chain([PLACES, FACTS].map(|table| self.work.join(table)));
        let entries = tables.flat_map(|table| fs::read_dir(table).into_iter().flatten().flatten());
        let paths = entries.map(|entry| entry.path());
        paths.filter(|path| bucket_of(path).is_some()).collect()
    }

    /// Removes files and markers of buckets that are not finished.
    fn remove_others(&self, finished: &BTreeSet<u32>) -> Result<(), RunError> {
        let markers = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let markers = markers.map(|entry| entry.path());
        let of_marker = |path: &Path| path.file_stem()?.to_str()?.parse().ok();
        let markers = markers.filter(|path| !path.ends_with(REQUEST));
        let markers = markers.map(|path| (of_marker(&path), path));
        let files = self
            .files()
            .into_iter()
            .map(|path| (bucket_of(&path), path));
        for (bucket, path) in markers.chain(files) {
            if bucket.is_none_or(|bucket| !finished.contains(&bucket)) {
                match fs::remove_file(&path) {
                    // A worker that came late has taken it back.
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                        return Err(RunError::write(&path, e));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The bucket of a file of a table, by its name.
fn bucket_of(path: &Path) -> Option<u32> {
    match Parts::of(path) {
        Some(Parts::OfBucket(bucket)) => Some(bucket),
        _ => None,
    }
}

/// Writes a file that is there whole or not at all.
fn write_whole(path: &Path, value: &impl Serialize) -> Result<(), RunError> {
    let failed = |e: std::io::Error| RunError::write(path, e);
    let partial = path.with_extension("partial");
    let text = serde_json::to_vec(value).map_err(|e| RunError::write(path, e))?;
    fs::write(&partial, text).map_err(failed)?;
    fs::File::open(&partial)
        .and_then(|file| file.sync_all())
        .map_err(failed)?;
    fs::rename(&partial, path).map_err(failed)
}

/// The first member in which two requests differ, in words; none if they are equal.
fn difference(before: &Value, now: &Value) -> Option<String> {
    if before == now {
        return None;
    }
    let (Some(a), Some(b)) = (before.as_object(), now.as_object()) else {
        return Some(format!("{before} then, {now} now"));
    };
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let mut found = names.into_iter().filter_map(|name| {
        let of = |members: &serde_json::Map<String, Value>| {
            members.get(name).cloned().unwrap_or_default()
        };
        Some(format!("{name}: {}", difference(&of(a), &of(b))?))
    });
    found.next()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn write(run: &RunDirectory, name: &str) {
        let path = run.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }

    #[test]
    fn what_is_finished_and_whole_is_found_again_and_the_rest_removed() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(&folder.path().join("run"), false, &[]).unwrap();
        let four = Buckets::new(4).unwrap();
        let asked = json!({ "rules": { "window": 3 }, "buckets": 4 });
        let (finished, found) = FinishedBuckets::open(&run, four, &asked, false).unwrap();
        assert!(found.is_empty());
        for bucket in [0, 1, 2] {
            write(&run, &format!("traces/bucket-0000{bucket}.parquet"));
            write(&run, &format!("scores/bucket-0000{bucket}_00001.parquet"));
            write(&run, &format!("work/places/bucket-0000{bucket}.parquet"));
        }
        let mut counts = BucketCounts::default();
        counts.traces.traces = 7;
        counts.traces.fail("coherence", "not_finite: x");
        finished.add(0, &counts).unwrap();
        finished.add(1, &counts).unwrap();
        // One is damaged, and one was not finished.
        fs::write(run.path().join("scores/bucket-00001_00001.parquet"), "").unwrap();
        let (_, found) = FinishedBuckets::open(&run, four, &asked, false).unwrap();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0]);
        assert_eq!(
            (found[&0].traces.traces, found[&0].traces.failures().len()),
            (7, 1)
        );
        let left: Vec<u32> = finished
            .files()
            .iter()
            .filter_map(|p| bucket_of(p))
            .collect();
        assert_eq!(left, [0, 0, 0]);
        let asked_before = fs::read(finished.folder.join(REQUEST)).unwrap();
        let other = json!({ "rules": { "window": 5 }, "buckets": 4 });
        let error = FinishedBuckets::open(&run, four, &other, false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("rules: window: 3 then, 5 now"), "{error}");
        assert_eq!(finished.files().len(), 3);
        assert_eq!(
            fs::read(finished.folder.join(REQUEST)).unwrap(),
            asked_before
        );
        // Nobody knows what they are of.
        fs::remove_file(finished.folder.join(REQUEST)).unwrap();
        let (_, found) = FinishedBuckets::open(&run, four, &asked, false).unwrap();
        assert!(found.is_empty() && finished.files().is_empty());
    }
}
