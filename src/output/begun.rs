//! Runs that have begun: a record beside the directory that a run is to make, as long as there is none.
//!
//! It says that the run is under way, or why it failed. A run that is killed leaves its record too, with a lock that
//! nobody holds any more. The record is gone as soon as the run is there.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::output::directory::{name_of, parent_of};
use crate::text::{instant, with_origins};

/// In the hidden names of records.
const RECORD: &str = ".nightmill-run-";

/// Whether a run that left no directory goes on. In JSON `RUNNING` or `FAILED`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BegunStatus {
    /// A process works on it.
    Running,
    /// It ended without a result.
    Failed,
}

impl BegunStatus {
    /// `RUNNING` or `FAILED`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Failed => "FAILED",
        }
    }
}

/// What is known of a run without a directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BegunRun {
    /// The name that its directory was to have.
    pub name: String,
    /// When it began.
    #[serde(with = "instant")]
    pub created_at: DateTime<Utc>,
    /// The subcommand.
    pub command: String,
    /// Whether it goes on.
    pub status: BegunStatus,
    /// Why it failed.
    pub error: Option<String>,
    /// Metrics that were asked for.
    pub metric_names: Vec<String>,
    /// The monitor that the run is of.
    pub monitor_id: Option<String>,
    /// The process.
    pub process: u32,
    /// The directory that it was to make.
    #[serde(default)]
    pub path: PathBuf,
    /// The record itself.
    #[serde(skip)]
    pub record: PathBuf,
}

/// What a run says of itself at its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Announced<'a> {
    /// The subcommand.
    pub command: &'a str,
    /// Metrics that were asked for.
    pub metric_names: &'a [String],
    /// The monitor that the run is of.
    pub monitor_id: Option<&'a str>,
}

/// A run under way. Dropped before it has ended, it has failed.
#[derive(Debug)]
pub struct Begun {
    told: BegunRun,
    /// Locked as long as the run goes on.
    file: File,
    ended: bool,
}

impl Begun {
    /// Leaves a record of a run that is to make `target`. None where it can't be written: that is no reason to stop a run.
    pub fn announce(target: &Path, announced: Announced<'_>) -> Option<Self> {
        let (name, parent) = (name_of(target).ok()?, parent_of(target));
        std::fs::create_dir_all(&parent).ok()?;
        let (file, record) = tempfile::Builder::new()
            .prefix(&format!(".{name}{RECORD}"))
            .suffix(".json")
            .tempfile_in(&parent)
            .ok()?
            .keep()
            .ok()?;
        file.lock().ok()?;
        let mut begun = Self {
            told: BegunRun {
                name,
                created_at: Utc::now(),
                command: announced.command.to_owned(),
                status: BegunStatus::Running,
                error: None,
                metric_names: announced.metric_names.to_vec(),
                monitor_id: announced.monitor_id.map(str::to_owned),
                process: std::process::id(),
                path: target.to_owned(),
                record,
            },
            file,
            ended: false,
        };
        if !begun.write() {
            begun.ended = true;
            let _ = std::fs::remove_file(&begun.told.record);
            return None;
        }
        Some(begun)
    }

    /// The run is there, or there was nothing to do: the record goes, and those of earlier tries at the same directory.
    pub fn done(mut self) {
        self.ended = true;
        let _ = std::fs::remove_file(&self.told.record);
        let earlier = begun_runs(&parent_of(&self.told.path)).into_iter();
        for run in earlier.filter(|run| run.name == self.told.name) {
            if run.status == BegunStatus::Failed {
                let _ = std::fs::remove_file(&run.record);
            }
        }
    }

    /// The run has failed.
    pub fn failed(mut self, why: &str) {
        self.fail(why);
    }

    fn fail(&mut self, why: &str) {
        self.ended = true;
        self.told.status = BegunStatus::Failed;
        self.told.error = Some(with_origins(why));
        self.write();
    }

    /// A record that can't be written says less; the run goes on.
    fn write(&mut self) -> bool {
        let Ok(mut text) = serde_json::to_vec_pretty(&self.told) else {
            return false;
        };
        text.push(b'\n');
        let written = self
            .file
            .rewind()
            .and_then(|()| self.file.set_len(0))
            .and_then(|()| self.file.write_all(&text))
            .and_then(|()| self.file.sync_all());
        written.is_ok()
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.ended {
            self.fail("the program ended in the middle of it");
        }
    }
}

/// The runs that have begun in a folder and left no directory, in no order. What can't be read is passed over.
pub fn begun_runs(folder: &Path) -> Vec<BegunRun> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let records = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with('.') && name.contains(RECORD) && name.ends_with(".json")
    });
    records
        .filter_map(|entry| begun_run(&entry.path()))
        .collect()
}

fn begun_run(record: &Path) -> Option<BegunRun> {
    let mut run: BegunRun = serde_json::from_slice(&std::fs::read(record).ok()?).ok()?;
    run.path = parent_of(record).join(&run.name);
    run.record = record.to_owned();
    let alive = File::open(record).is_ok_and(|file| file.try_lock().is_err());
    if run.status == BegunStatus::Running && !alive {
        run.status = BegunStatus::Failed;
        let why = "it was stopped or killed before it had a result; run it again";
        run.error = Some(why.to_owned());
    }
    Some(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNOUNCED: Announced<'_> = Announced {
        command: "score",
        metric_names: &[],
        monitor_id: None,
    };

    #[test]
    fn a_record_says_whether_a_run_goes_on_and_why_it_failed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("night");
        let seen = || {
            let mut runs = begun_runs(folder.path());
            runs.sort_by_key(|run| run.created_at);
            let told = runs.into_iter().map(|run| (run.status, run.error));
            told.collect::<Vec<_>>()
        };
        let running = Begun::announce(&target, ANNOUNCED).unwrap();
        assert_eq!(seen(), [(BegunStatus::Running, None)]);
        running.failed("no disk");
        let failed = (BegunStatus::Failed, Some("no disk".to_owned()));
        assert_eq!(seen(), [failed]);
        drop(Begun::announce(&target, ANNOUNCED));
        assert_eq!(seen().len(), 2);
        let again = Begun::announce(&target, ANNOUNCED).unwrap();
        // As a kill leaves it: a record of a run, and nobody holds the lock.
        let killed = folder.path().join(".night.nightmill-run-killed.json");
        std::fs::copy(&again.told.record, killed).unwrap();
        let all = seen();
        assert_eq!(all.len(), 4);
        let (status, error) = &all[3];
        assert!(
            all[2..]
                .iter()
                .any(|(status, _)| *status == BegunStatus::Running)
                && all[2..]
                    .iter()
                    .any(|(_, e)| e.as_deref().is_some_and(|e| e.contains("killed"))),
            "{status:?} {error:?}"
        );
        again.done();
        assert!(seen().is_empty(), "records of earlier tries stay");
    }
}
