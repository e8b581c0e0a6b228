//! Folders of tables that are no runs: comparisons of runs, plans, and runs of regression suites. Each is known by a
//! table that no run has.

use std::path::{Path, PathBuf};

use crate::output::directory::MANIFEST;
use crate::output::{RunDirectory, RunError};

/// The table that every comparison has.
pub(crate) const COMPARISON: &str = "run_comparison";
/// The table that every written plan has.
pub(crate) const PLAN: &str = "judge_plan";
/// The table that every run of a regression suite has.
pub(crate) const SUITE: &str = "suite_results";

/// Whether a folder holds tables that are no run.
pub(crate) fn is_no_run(folder: &Path) -> bool {
    let mut tables = [COMPARISON, PLAN, SUITE].iter();
    tables.any(|table| folder.join(table).exists())
}

/// Starts a folder with this table, which will become `target`. It may replace one of its kind.
///
/// # Errors
/// As [`RunDirectory::create`]; and if `target` is of another kind, which is never replaced.
pub(crate) fn create(
    target: &Path,
    table: &str,
    overwrite: bool,
    inputs: &[PathBuf],
) -> Result<RunDirectory, RunError> {
    if overwrite && target.join(MANIFEST).exists() && !target.join(table).exists() {
        return Err(RunError::Request(format!(
            "`{}` is a run, or has no table `{table}`, so --overwrite leaves it alone; choose another --out",
            target.display()
        )));
    }
    RunDirectory::create(target, overwrite, inputs)
}
