//! `nightmill runs scores --edit` and `--delete`: other values, reasons or metadata for scores of a run, or none at all
//! (as in PandaProbe).
//!
//! The directory is made anew beside the old one and takes its place in one step, so that it is whole at every moment.
//! Everything but the edited rows of `scores`, their traces in `traces` and the manifest stays as it was: session scores
//! are computed again by `nightmill aggregate`.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, StringDictionaryBuilder,
};
use arrow::datatypes::{DataType as ArrowType, Int32Type};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Serialize;
use serde_json::{Value, json};

use crate::history::edit_traces::TraceEdits;
use crate::history::import_scores::ScoresError;
use crate::history::manual_rows::{
    EDITED, GivenRow, REMOVED, RowError, data_type_named, read_rows,
};
use crate::history::stored_run::read_json;
use crate::history::stored_table::{cell, text, trace_id};
use crate::history::verify::check_file;
use crate::history::{StoredRun, stored_table};
use crate::metric::round4;
use crate::output::directory::MANIFEST;
use crate::output::{RunDirectory, RunError, manifest, table_writer};

/// What was edited.
#[derive(Clone, Debug, Serialize)]
pub struct Edited {
    /// Scores.
    pub scores: u64,
    /// The directory.
    pub path: PathBuf,
}

/// What is done with the scores that are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// They are changed.
    Change,
    /// They are removed.
    Remove,
}

/// Edits by trace and name, and how many rows each has met.
struct Edits {
    what: Edit,
    rows: Vec<GivenRow>,
    by_score: HashMap<(String, String), usize>,
    met: Vec<u64>,
}

impl Edits {
    fn read(file: &str, what: Edit) -> Result<Self, RowError> {
        let rows = match what {
            Edit::Change => read_rows(file, &EDITED)?,
            Edit::Remove => read_rows(file, &REMOVED)?,
        };
        let mut by_score = HashMap::with_capacity(rows.len());
        for (at, row) in rows.iter().enumerate() {
            row.metadata()?;
            let given = ["value", "reason", "metadata"].iter().any(|c| row.has(c));
            if !given && what == Edit::Change {
                let problem = "null, and so are reason and metadata: nothing to change";
                return Err(row.wrong("value", problem));
            }
            if by_score
                .insert((row.trace_id()?, row.name()?), at)
                .is_some()
            {
                return Err(row.wrong("name", "this score of the trace is named twice"));
            }
        }
        let met = vec![0; rows.len()];
        Ok(Self {
            what,
            rows,
            by_score,
            met,
        })
    }

    /// The edit of each row of a batch of scores.
    fn of(&mut self, batch: &RecordBatch) -> Result<Vec<Option<usize>>, String> {
        let (types, ids) = (text(batch, "target_type")?, text(batch, "target_id")?);
        let names = text(batch, "metric")?;
        let mut found = Vec::with_capacity(batch.num_rows());
        for row in 0..batch.num_rows() {
            let key = match (cell(&types, row), trace_id(&ids, row), cell(&names, row)) {
                (Some("trace"), Some(id), Some(name)) => (id, name.to_owned()),
                _ => {
                    found.push(None);
                    continue;
                }
            };
            let edit = self.by_score.get(&key).copied();
            if let Some(met) = edit.and_then(|at| self.met.get_mut(at)) {
                *met += 1;
            }
            found.push(edit);
        }
        Ok(found)
    }

    /// A batch of scores with its edits; `of_traces` sees them all.
    fn apply(
        &mut self,
        batch: &RecordBatch,
        of_traces: &mut TraceEdits,
    ) -> Result<RecordBatch, ScoresError> {
        let broken = |e: String| ScoresError::Request(format!("the table `scores`: {e}"));
        let found = self.of(batch).map_err(broken)?;
        let whole = batch;
        let batch = match (found.iter().any(Option::is_some), self.what) {
            (true, Edit::Change) => edited(batch, &found, &self.rows)?,
            _ => batch.clone(),
        };
        let column = |name| text(&batch, name).map_err(broken);
        let (types, ids) = (column("target_type")?, column("target_id")?);
        let (names, statuses) = (column("metric")?, column("status")?);
        let raw = stored_table::numbers(&batch, "score_raw").map_err(broken)?;
        for (row, edit) in found.iter().enumerate() {
            if cell(&types, row) != Some("trace") {
                continue;
            }
            let (Some(id), Some(name)) = (trace_id(&ids, row), cell(&names, row)) else {
                continue;
            };
            let number = stored_table::number(&raw, row).filter(|_| self.what == Edit::Change);
            let status = match (edit, self.what) {
                // What is removed has not ended in any way.
                (Some(_), Edit::Remove) => "",
                _ => cell(&statuses, row).unwrap_or_default(),
            };
            of_traces.see(&id, name, status, edit.map(|_| number));
        }
        if self.what == Edit::Remove {
            let kept: BooleanArray = found.iter().map(|edit| Some(edit.is_none())).collect();
            let kept = arrow::compute::filter_record_batch(whole, &kept);
            return kept.map_err(|e| broken(e.to_string()));
        }
        Ok(batch)
    }

    /// Every edit must have met one score.
    fn check(&self, run: &str) -> Result<(), RowError> {
        for (row, met) in self.rows.iter().zip(&self.met) {
            let name = row.name()?;
            match met {
                0 => {
                    let problem = format!("the run `{run}` has no score `{name}` of this trace");
                    return Err(row.wrong("name", problem));
                }
                1 => {}
                count => {
                    let problem = format!(
                        "the run `{run}` has {count} scores `{name}` of this trace, so that it is not clear which one is meant"
                    );
                    return Err(row.wrong("name", problem));
                }
            }
        }
        Ok(())
    }
}

/// Changes or removes scores of traces as `file` says: what it leaves out stays. A changed score is a success, and an
/// annotation. All edits or none.
///
/// # Errors
/// [`ScoresError`]: a row that can't be used, or that meets no score, or several.
pub fn edit_scores(run: &StoredRun, file: &str, what: Edit) -> Result<Edited, ScoresError> {
    let mut edits = Edits::read(file, what)?;
    if edits.rows.is_empty() {
        return Err(ScoresError::Request(format!("`{file}` holds no edits")));
    }
    let mut told: Value = read_json(&run.path, MANIFEST)?;
    let ids = edits.by_score.keys().map(|(id, _)| id.clone());
    let mut of_traces = TraceEdits::of(ids, &told).map_err(ScoresError::Request)?;
    let directory = RunDirectory::create(&run.path, true, &[PathBuf::from(file)])?;
    // By name, so that all scores are seen before the first trace.
    for entry in walkdir::WalkDir::new(&run.path).sort_by_file_name() {
        let entry = entry.map_err(|e| RunError::write(&run.path, e))?;
        let inside = entry.path().strip_prefix(&run.path).unwrap_or(entry.path());
        let target = directory.path().join(inside);
        if entry.file_type().is_dir() {
            fs::create_dir_all(&target).map_err(|e| RunError::write(&target, e))?;
        } else if inside.starts_with("scores") {
            check_file(&run.path, &inside.to_string_lossy())?;
            rewrite(entry.path(), &target, |batch| {
                edits.apply(batch, &mut of_traces)
            })?;
        } else if inside.starts_with("traces") {
            check_file(&run.path, &inside.to_string_lossy())?;
            rewrite(entry.path(), &target, |batch| {
                let broken = |e| ScoresError::Request(format!("the table `traces`: {e}"));
                of_traces.apply(batch).map_err(broken)
            })?;
        } else if inside != Path::new(MANIFEST) && inside != Path::new(".lock") {
            // A finished file is never written to again, so that both directories can share it.
            fs::hard_link(entry.path(), &target)
                .or_else(|_| fs::copy(entry.path(), &target).map(drop))
                .map_err(|e| RunError::write(&target, e))?;
        }
    }
    edits.check(&run.name)?;
    if let Some(told) = told.as_object_mut() {
        let now = crate::output::manifest::now();
        told.insert("edited_at".into(), json!(now));
        let files = manifest::checksums(directory.path())?;
        told.insert("files".into(), json!(files));
    }
    manifest::write_sealed(&directory.path().join(MANIFEST), &told)?;
    Ok(Edited {
        scores: edits.rows.len() as u64,
        path: directory.commit()?,
    })
}

/// Writes a part of a table anew.
fn rewrite(
    from: &Path,
    to: &Path,
    mut change: impl FnMut(&RecordBatch) -> Result<RecordBatch, ScoresError>,
) -> Result<(), ScoresError> {
    let unreadable =
        |e: &dyn std::fmt::Display| ScoresError::Request(format!("`{}`: {e}", from.display()));
    let failed = |e: &dyn std::fmt::Display| RunError::write(to, e);
    let file = File::open(from).map_err(|e| unreadable(&e))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| unreadable(&e))?;
    let schema = Arc::clone(builder.schema());
    let reader = builder.build().map_err(|e| unreadable(&e))?;
    let file = BufWriter::new(File::create(to).map_err(|e| failed(&e))?);
    let mut writer = ArrowWriter::try_new(file, schema, Some(table_writer::properties()))
        .map_err(|e| failed(&e))?;
    for batch in reader {
        let batch = batch.map_err(|e| unreadable(&e))?;
        let batch = change(&batch)?;
        writer.write(&batch).map_err(|e| failed(&e))?;
    }
    table_writer::close(writer).map_err(|e| failed(&e))?;
    Ok(())
}

/// A batch with its edits; `found` says which edit is each row's.
fn edited(
    batch: &RecordBatch,
    found: &[Option<usize>],
    edits: &[GivenRow],
) -> Result<RecordBatch, ScoresError> {
    let broken = |e: String| ScoresError::Request(format!("the table `scores`: {e}"));
    let texts = |name: &str| -> Result<Vec<Option<String>>, ScoresError> {
        let texts = text(batch, name).map_err(broken)?;
        Ok(texts.iter().map(|text| text.map(str::to_owned)).collect())
    };
    let numbers = |name: &str| -> Result<Vec<Option<f64>>, ScoresError> {
        let numbers = stored_table::numbers(batch, name).map_err(broken)?;
        Ok(numbers.iter().collect())
    };
    let types = texts("data_type")?;
    let thresholds = numbers("threshold")?;
    let (mut statuses, mut sources) = (texts("status")?, texts("source")?);
    let (mut values, mut reasons) = (texts("value")?, texts("reason")?);
    let mut metadata = texts("metadata")?;
    let (mut scores, mut raw) = (numbers("score")?, numbers("score_raw")?);
    let passed = stored_table::flags(batch, "passed").map_err(broken)?;
    let mut passed: Vec<Option<bool>> = passed.iter().collect();

    let set = |column: &mut Vec<Option<String>>, row: usize, text: String| {
        if let Some(place) = column.get_mut(row) {
            *place = Some(text);
        }
    };
    for (row, edit) in found.iter().enumerate() {
        let Some(edit) = edit.and_then(|at| edits.get(at)) else {
            continue;
        };
        let word = types.get(row).cloned().flatten().unwrap_or_default();
        let data_type = data_type_named(&word).map_err(broken)?;
        match edit.value(data_type)? {
            Some(value) => {
                let threshold = thresholds.get(row).copied().flatten();
                if let Some(place) = passed.get_mut(row) {
                    *place = value.number.zip(threshold).map(|(v, t)| v >= t);
                }
                if let (Some(score), Some(raw)) = (scores.get_mut(row), raw.get_mut(row)) {
                    (*score, *raw) = (value.number.map(round4), value.number);
                }
                set(&mut values, row, value.text);
            }
            None if values.get(row).is_some_and(Option::is_none) => {
                let problem = "null, and the score has no value yet: give one";
                return Err(edit.wrong("value", problem).into());
            }
            None => {}
        }
        if let Some(reason) = edit.text("reason")? {
            set(&mut reasons, row, reason);
        }
        if let Some(given) = edit.metadata()? {
            set(&mut metadata, row, given);
        }
        set(&mut statuses, row, "SUCCESS".to_owned());
        set(&mut sources, row, "ANNOTATION".to_owned());
    }

    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let columns = columns.map(|(field, old)| -> ArrayRef {
        match field.name().as_str() {
            "status" => words(&statuses),
            "source" => words(&sources),
            "value" => Arc::new(StringArray::from(values.clone())),
            "reason" => Arc::new(StringArray::from(reasons.clone())),
            "metadata" => Arc::new(StringArray::from(metadata.clone())),
            "score" => Arc::new(Float64Array::from(scores.clone())),
            "score_raw" => Arc::new(Float64Array::from(raw.clone())),
            "passed" => Arc::new(BooleanArray::from(passed.clone())),
            _ => Arc::clone(old),
        }
    });
    RecordBatch::try_new(Arc::clone(&schema), columns.collect()).map_err(|e| broken(e.to_string()))
}

fn words(texts: &[Option<String>]) -> ArrayRef {
    let mut column = StringDictionaryBuilder::<Int32Type>::new();
    texts
        .iter()
        .for_each(|text| column.append_option(text.as_deref()));
    let column = column.finish();
    debug_assert!(matches!(column.data_type(), ArrowType::Dictionary(..)));
    Arc::new(column)
}
