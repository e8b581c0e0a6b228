//! What every run goes through, whatever it computes: a record while it is made, seconds by stage, and an end that is whole.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::metric::Rules;
use crate::output::manifest::Origins;
use crate::output::{Announced, Begun, RunDirectory, RunError, manifest, quarantine_rows};
use crate::summary::Summary;
use crate::trace::{Code, Quarantine, SourceFile};

const SUMMARY: &str = "summary.json";

/// A run that is being made.
#[derive(Debug)]
pub(super) struct Making {
    begun: Option<Begun>,
    pub stages: Stages,
}

/// Makes a run. Where it ends without a result, its record says why.
pub(super) fn making<T>(
    make: impl FnOnce(&mut Making) -> Result<T, RunError>,
) -> Result<T, RunError> {
    let mut making = Making {
        begun: None,
        stages: Stages::new(),
    };
    let result = make(&mut making);
    match (making.begun, &result) {
        (None, _) => {}
        (Some(begun), Ok(_)) => begun.done(),
        (Some(begun), Err(error)) => begun.failed(&error.to_string()),
    }
    result
}

impl Making {
    /// Everything that was asked for is there: from here on, a record says that the run goes on.
    pub fn announce(&mut self, out: &Path, command: &str, metric_names: &[String]) {
        let announced = Announced {
            command,
            metric_names,
            monitor_id: None,
        };
        self.begun = Begun::announce(out, announced);
    }

    /// Writes summary and manifest, last of all, and makes the run visible.
    pub fn finish<'f>(
        &self,
        run: RunDirectory,
        command: &str,
        files: impl Iterator<Item = &'f SourceFile>,
        rules: &Rules,
        origins: Origins<'_>,
        mut summary: Summary,
    ) -> Result<(Summary, PathBuf), RunError> {
        self.describe(&run, command, files, rules, origins, &mut summary)?;
        Ok((summary, run.commit()?))
    }

    /// Writes summary and manifest. From here on the run can be read like any other; nobody but its maker sees it yet.
    pub fn describe<'f>(
        &self,
        run: &RunDirectory,
        command: &str,
        files: impl Iterator<Item = &'f SourceFile>,
        rules: &Rules,
        origins: Origins<'_>,
        summary: &mut Summary,
    ) -> Result<(), RunError> {
        self.summarise(run, summary)?;
        manifest::write(run, command, files, rules, origins, summary.counts())
    }

    /// Writes the summary of a run that is described once more, and makes the run visible. `added` are the files that were
    /// written since.
    pub fn finish_described(
        &self,
        run: RunDirectory,
        mut summary: Summary,
        added: &[&str],
    ) -> Result<(Summary, PathBuf), RunError> {
        self.summarise(&run, &mut summary)?;
        manifest::renew(&run, &[added, &[SUMMARY]].concat())?;
        Ok((summary, run.commit()?))
    }

    fn summarise(&self, run: &RunDirectory, summary: &mut Summary) -> Result<(), RunError> {
        summary.stages.clone_from(&self.stages.list);
        manifest::write_json(&run.path().join(SUMMARY), summary)
    }
}

/// Writes the rows that were set aside, and what the summary says of them.
pub(super) fn set_aside(
    run: &RunDirectory,
    quarantine: &Quarantine,
    summary: &mut Summary,
) -> Result<(), RunError> {
    let entries = quarantine.sorted();
    quarantine_rows::write(run, &entries)?;
    let unreadable = entries.iter().filter(|e| e.code == Code::UnreadableFile);
    summary.unreadable_files = unreadable.count() as u64;
    summary.quarantined = quarantine.rows();
    summary.quarantine = quarantine_rows::summarise(&entries);
    Ok(())
}

/// Seconds by stage.
#[derive(Debug)]
pub(super) struct Stages {
    last: Instant,
    pub list: Vec<(String, f64)>,
}

impl Stages {
    pub fn new() -> Self {
        Self {
            last: Instant::now(),
            list: Vec::new(),
        }
    }

    /// Ends a stage that began where the last one ended.
    pub fn end(&mut self, name: &str) {
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        self.list.push((name.to_owned(), seconds));
    }

    /// Ends a stage within which something else took a known part of the time.
    pub fn end_as_two(&mut self, part: &str, seconds: f64, rest: &str) {
        self.end(rest);
        if let Some((_, whole)) = self.list.last_mut() {
            let seconds = seconds.min(*whole);
            *whole -= seconds;
            self.list
                .insert(self.list.len() - 1, (part.to_owned(), seconds));
        }
    }
}
