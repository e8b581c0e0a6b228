//! Where records of regression suites are, as commands name them.

use std::path::Path;

use crate::cli::AnyError;
use crate::suite::regression::RecordStore;
use crate::suite::{ResultKind, SuiteKind, result_kind, suite_kind};

/// The records that a path names: a folder of records, one record of them, a configuration or a golden set, or the
/// folder of one.
///
/// # Errors
/// If it is none of these, with what was found there.
pub(super) fn records_of(path: &Path) -> Result<RecordStore, AnyError> {
    if holds_records(path) {
        return Ok(RecordStore::at(path));
    }
    let is_json = path.extension().is_some_and(|of| of == "json");
    if is_json && path.is_file() && result_kind(path)? == ResultKind::Regression {
        return Ok(RecordStore::at(folder_of(path)));
    }
    match suite_kind(path)? {
        SuiteKind::Regression(suite) => Ok(RecordStore::beside(suite.anchor())),
        SuiteKind::EvalSet => Err(format!(
            "`{}` is an evaluation set, whose results are compared with `nightmill suite diff`; records and baselines are of \
             regression suites",
            path.display()
        )
        .into()),
    }
}

/// Whether a folder holds records of runs.
pub(super) fn holds_records(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|name| {
        let is_record = name.starts_with("run_") && name.ends_with(".json");
        is_record || name == ".pinned.json"
    })
}

/// The store and the id of a record that is named by its file.
///
/// # Errors
/// If the file is no record.
pub(super) fn record_at(path: &Path) -> Result<(RecordStore, String), AnyError> {
    let stem = path.file_stem().and_then(|of| of.to_str());
    match (result_kind(path)?, stem) {
        (ResultKind::Regression, Some(id)) => Ok((RecordStore::at(folder_of(path)), id.to_owned())),
        _ => Err(format!(
            "`{}` is no record of a regression suite (RUN_ID.json); `nightmill suite list PATH --records` lists them",
            path.display()
        )
        .into()),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
