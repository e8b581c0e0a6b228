//! `nightmill runs delete --keep-scores`: a run of which only its scores stay.

use std::fs;

use serde_json::{Value, json};

use crate::history::StoredRun;
use crate::history::import_scores::ScoresError;
use crate::history::stored_run::{SUMMARY, read_json};
use crate::output::directory::MANIFEST;
use crate::output::{RunDirectory, RunError, manifest};

/// Makes the run anew without anything but its table `scores`, its summary and its manifest, in one step.
///
/// # Errors
/// [`ScoresError`] if the run can't be read, or the new one can't be written.
pub fn keep_scores(run: &StoredRun) -> Result<(), ScoresError> {
    let mut told: Value = read_json(&run.path, MANIFEST)?;
    let directory = RunDirectory::create(&run.path, true, &[])?;
    let scores = run.path.join("scores");
    let copied = directory.path().join("scores");
    let failed = |e: std::io::Error| RunError::write(&copied, e);
    fs::create_dir(&copied).map_err(failed)?;
    let parts = fs::read_dir(&scores).map_err(|e| RunError::write(&scores, e))?;
    let parts = parts
        .flatten()
        .map(|entry| (entry.path(), copied.join(entry.file_name())));
    let summary = (run.path.join(SUMMARY), directory.path().join(SUMMARY));
    for (from, to) in parts.chain([summary]) {
        // A finished file is never written to again, so that both directories can share it.
        fs::hard_link(&from, &to)
            .or_else(|_| fs::copy(&from, &to).map(drop))
            .map_err(|e| RunError::write(&to, e))?;
    }
    if let Some(members) = told.as_object_mut() {
        let now = crate::output::manifest::now();
        members.insert("scores_kept_at".into(), json!(now));
        members.insert(
            "files".into(),
            json!(manifest::checksums(directory.path())?),
        );
    }
    manifest::write_sealed(&directory.path().join(MANIFEST), &told)?;
    directory.commit()?;
    Ok(())
}
