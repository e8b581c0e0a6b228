//! Scores in a file, which is there whole or not at all.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use super::score::Score;
use super::stored_scores::{RunFacts, for_each_score};
use super::table::Table;
use super::wire::Wire;
use super::{Chosen, ExportError, Exported, OtelForm, System};
use crate::history::StoredRun;

type Out = BufWriter<NamedTempFile>;

enum Form {
    Lines(Box<dyn Wire>, Out),
    Table(Table<Out>),
}

impl Form {
    /// Writes a score; the reason where the system has no place for it.
    fn push(&mut self, score: Score, facts: &RunFacts) -> Result<Result<(), String>, String> {
        match self {
            Self::Table(table) => table.push(score, facts).map(Ok),
            Self::Lines(wire, out) => {
                let body = match wire.body(&score, facts) {
                    Ok(body) => body,
                    Err(reason) => return Ok(Err(reason)),
                };
                writeln!(out, "{}", wire.line(body)).map_err(|e| e.to_string())?;
                Ok(Ok(()))
            }
        }
    }

    fn finish(self, facts: &RunFacts) -> Result<NamedTempFile, String> {
        let out = match self {
            Self::Lines(_, out) => out,
            Self::Table(table) => table.finish(facts)?,
        };
        out.into_inner().map_err(|e| e.to_string())
    }
}

/// Writes the chosen scores of a run to a file, as the bodies that a system takes in or as a table.
///
/// # Errors
/// [`ExportError`]: the file is there already and `overwrite` is not given, it is a part of the run, or something can't be
/// read or written.
pub fn write_file(
    run: &StoredRun,
    chosen: &Chosen,
    system: System,
    form: OtelForm,
    out: &Path,
    overwrite: bool,
) -> Result<Exported, ExportError> {
    let wrong = |problem: String| ExportError::file(out, problem);
    let folder = match out.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(folder).map_err(|e| wrong(e.to_string()))?;
    let whole = folder.canonicalize().map_err(|e| wrong(e.to_string()))?;
    if whole.starts_with(&run.path) {
        return Err(wrong("is inside of the run, which would not be what was written any more; choose another --out".into()));
    }
    if out.exists() && !overwrite {
        return Err(wrong(
            "is there already; choose another --out, or add --overwrite".into(),
        ));
    }
    let temporary = temporary_for(out, folder).map_err(|e| wrong(e.to_string()))?;
    let buffered = BufWriter::new(temporary);
    let mut writing = match system.wire(form) {
        Some(wire) => Form::Lines(wire, buffered),
        None if system == System::Csv => Form::Table(Table::csv(buffered).map_err(wrong)?),
        None => Form::Table(Table::parquet(buffered).map_err(wrong)?),
    };
    let facts = RunFacts::of(run)?;
    let (mut scores, mut no_place) = (0, BTreeMap::new());
    let without_score = for_each_score(run, &facts, chosen, |score| {
        match writing.push(score, &facts).map_err(wrong)? {
            Ok(()) => scores += 1,
            Err(reason) => *no_place.entry(reason).or_default() += 1,
        }
        Ok(())
    })?;
    let temporary = writing.finish(&facts).map_err(wrong)?;
    readable_as_others(temporary.as_file());
    temporary
        .as_file()
        .sync_all()
        .map_err(|e| wrong(e.to_string()))?;
    let persisted = match overwrite {
        true => temporary.persist(out),
        false => temporary.persist_noclobber(out),
    };
    persisted.map_err(|e| wrong(e.error.to_string()))?;
    Ok(Exported {
        to: system.name().to_owned(),
        target: out.display().to_string(),
        scores,
        without_score,
        no_place,
        ..Exported::default()
    })
}

/// What the names of unfinished files go on with.
const PART: &str = ".nightmill-part-";

/// A file beside the one to write, which becomes it. It is held by a lock: those that nobody holds were left by processes
/// that were killed, and go.
fn temporary_for(out: &Path, folder: &Path) -> std::io::Result<NamedTempFile> {
    let name = out.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}{PART}");
    for entry in std::fs::read_dir(folder)?.flatten() {
        let is_part = entry.file_name().to_string_lossy().starts_with(&prefix);
        let path = entry.path();
        let made = entry.metadata().and_then(|of| of.modified());
        let age = made.ok().and_then(|made| made.elapsed().ok());
        // A young one may be about to be locked.
        let is_old = age.is_some_and(|age| age > std::time::Duration::from_secs(60));
        let is_free = || std::fs::File::open(&path).is_ok_and(|file| file.try_lock().is_ok());
        if is_part && is_old && is_free() {
            let _ = std::fs::remove_file(&path);
        }
    }
    let temporary = tempfile::Builder::new()
        .prefix(&prefix)
        .tempfile_in(folder)?;
    temporary.as_file().lock()?;
    Ok(temporary)
}

/// Temporary files are for their owner alone; this one is a result like others.
fn readable_as_others(file: &std::fs::File) {
    use std::os::unix::fs::PermissionsExt;
    let _ = file.set_permissions(std::fs::Permissions::from_mode(0o644));
}
