//! `nightmill runs scores --import`: scores of a run's traces that people or other programs made, as a run of their own.
//!
//! Nothing is written into a finished run, so imported scores are a directory beside it. Whatever looks at the scores of several
//! runs finds them there.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Builder, RecordBatch, StringBuilder, StringDictionaryBuilder, new_null_array,
};
use arrow::datatypes::{DataType as ArrowType, Int32Type};
use serde::Serialize;
use serde_json::json;

use crate::history::StoredRun;
use crate::history::figures::DataType;
use crate::history::manual_rows::{CheckedValue, GivenRow, IMPORTED, RowError, read_rows};
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{cell, for_each_batch, text, trace_id};
use crate::metric::round4;
use crate::output::directory::MANIFEST;
use crate::output::score_rows::scores_schema;
use crate::output::table_writer::TableWriter;
use crate::output::{RunDirectory, RunError, manifest};

/// The command in the manifest of imported scores.
pub(crate) const IMPORT: &str = "import";
/// Rows that are written together.
const ROWS_AT_ONCE: usize = 8192;

/// Why scores were not imported or edited.
#[derive(Debug, thiserror::Error)]
pub enum ScoresError {
    /// A row or the file of them.
    #[error(transparent)]
    Rows(#[from] RowError),
    /// The run can't be read.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The result can't be written.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Scores and run don't fit.
    #[error("{0}")]
    Request(String),
}

/// What was imported.
#[derive(Clone, Debug, Serialize)]
pub struct Imported {
    /// Scores.
    pub scores: u64,
    /// Traces that have one.
    pub traces: u64,
    /// Names of scores.
    pub names: BTreeSet<String>,
    /// The directory.
    pub path: PathBuf,
}

struct ManualScore {
    /// In its canonical form.
    trace_id: String,
    name: String,
    value: CheckedValue,
    data_type: DataType,
    source: &'static str,
    reason: String,
    metadata: String,
}

impl ManualScore {
    fn of(row: &GivenRow) -> Result<Self, RowError> {
        let data_type = row.data_type()?;
        let value = row.value(data_type)?;
        Ok(Self {
            trace_id: row.trace_id()?,
            name: row.name()?,
            value: value.ok_or_else(|| row.wrong("value", "null; every row needs one"))?,
            data_type,
            source: row.source()?,
            reason: row.text("reason")?.unwrap_or_default(),
            metadata: row.metadata()?.unwrap_or_else(|| "{}".to_owned()),
        })
    }
}

/// What a run says of a trace.
#[derive(Clone, Default)]
struct TraceLabels {
    /// The id as the run has it.
    shown_id: Option<String>,
    session_id: Option<String>,
    project_id: Option<String>,
    environment: Option<String>,
}

/// Imports the scores in `file` of traces of `run` into the new directory `out`. All rows or none.
///
/// # Errors
/// [`ScoresError`]: a row that can't be used, a trace that is none of the run's, or `out` exists.
pub fn import_scores(run: &StoredRun, file: &str, out: &Path) -> Result<Imported, ScoresError> {
    let rows = read_rows(file, &IMPORTED)?;
    if rows.is_empty() {
        return Err(ScoresError::Request(format!("`{file}` holds no scores")));
    }
    let scores: Vec<ManualScore> = rows
        .iter()
        .map(ManualScore::of)
        .collect::<Result<_, RowError>>()?;
    let labels = labels_of(run, &scores)?;
    for (row, score) in rows.iter().zip(&scores) {
        if !labels.contains_key(score.trace_id.as_str()) {
            let given = row.given_trace_id()?;
            let problem = format!("`{given}` is no trace of the run `{}`", run.name);
            return Err(row.wrong("trace_id", problem).into());
        }
    }
    let inputs = [PathBuf::from(file), run.path.clone()];
    let directory = RunDirectory::create(out, false, &inputs)?;
    let mut table = TableWriter::create(directory.path(), "scores", scores_schema())?;
    for scores in scores.chunks(ROWS_AT_ONCE) {
        let batch = batch_of(scores, &labels);
        table.write(&batch.map_err(|e| RunError::Plan(e.to_string()))?)?;
    }
    table.finish()?;
    let traces: BTreeSet<&str> = scores.iter().map(|s| s.trace_id.as_str()).collect();
    let mut imported = Imported {
        scores: scores.len() as u64,
        traces: traces.len() as u64,
        names: scores.iter().map(|s| s.name.clone()).collect(),
        path: PathBuf::new(),
    };
    let summary = json!({
        "traces": imported.traces,
        "sessions": 0,
        "quarantined": 0,
        "unreadable_files": 0,
        "failed_signals": 0,
        "scores": imported.scores,
        "names": imported.names,
    });
    manifest::write_json(&directory.path().join("summary.json"), &summary)?;
    let told = json!({
        "format": 1,
        "nightmill": env!("CARGO_PKG_VERSION"),
        "command": IMPORT,
        "created_at": crate::output::manifest::now(),
        "inputs": [{ "path": file }],
        "scores_of": run.name,
        "counts": { "scores": imported.scores, "traces": imported.traces },
        "files": manifest::checksums(directory.path())?,
    });
    manifest::write_sealed(&directory.path().join(MANIFEST), &told)?;
    imported.path = directory.commit()?;
    Ok(imported)
}

/// Session, project and environment of the traces that have scores, by the run's table `traces`.
fn labels_of(
    run: &StoredRun,
    scores: &[ManualScore],
) -> Result<HashMap<String, TraceLabels>, HistoryError> {
    let wanted: BTreeSet<&str> = scores.iter().map(|s| s.trace_id.as_str()).collect();
    let mut found = HashMap::with_capacity(wanted.len());
    let columns = ["trace_id", "session_id", "project_id", "environment"];
    for_each_batch(&run.path, "traces", &columns, |batch| {
        let [ids, sessions, projects, environments] = columns.map(|name| text(batch, name));
        let (ids, sessions) = (ids?, sessions?);
        let (projects, environments) = (projects?, environments?);
        for row in 0..batch.num_rows() {
            let Some(id) = trace_id(&ids, row).filter(|id| wanted.contains(&**id)) else {
                continue;
            };
            let owned = |texts, row| cell(texts, row).map(str::to_owned);
            let labels = TraceLabels {
                shown_id: owned(&ids, row),
                session_id: owned(&sessions, row),
                project_id: owned(&projects, row),
                environment: owned(&environments, row),
            };
            found.insert(id, labels);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The rows of the table `scores`. What only computed scores have is null.
fn batch_of(
    scores: &[ManualScore],
    labels: &HashMap<String, TraceLabels>,
) -> Result<RecordBatch, arrow::error::ArrowError> {
    let none = TraceLabels::default();
    let label = |score: &ManualScore| labels.get(&score.trace_id).unwrap_or(&none);
    let texts = |of: &dyn Fn(&ManualScore) -> Option<String>| -> ArrayRef {
        let mut column = StringBuilder::new();
        scores
            .iter()
            .for_each(|score| column.append_option(of(score)));
        Arc::new(column.finish())
    };
    let words = |of: &dyn Fn(&ManualScore) -> String| -> ArrayRef {
        let mut column = StringDictionaryBuilder::<Int32Type>::new();
        scores
            .iter()
            .for_each(|score| column.append_value(of(score)));
        Arc::new(column.finish())
    };
    let numbers = |of: &dyn Fn(&ManualScore) -> Option<f64>| -> ArrayRef {
        let mut column = Float64Builder::new();
        scores
            .iter()
            .for_each(|score| column.append_option(of(score)));
        Arc::new(column.finish())
    };
    let schema = scores_schema();
    let columns = schema
        .fields()
        .iter()
        .map(|field| match field.name().as_str() {
            "target_type" => words(&|_| "trace".into()),
            "target_id" => texts(&|s| label(s).shown_id.clone()),
            "session_id" => texts(&|s| label(s).session_id.clone()),
            "project_id" => texts(&|s| label(s).project_id.clone()),
            "metric" => words(&|s| s.name.clone()),
            "status" => words(&|_| "SUCCESS".into()),
            "score" => numbers(&|s| s.value.number.map(round4)),
            "score_raw" => numbers(&|s| s.value.number),
            "value" => texts(&|s| Some(s.value.text.clone())),
            "reason" => texts(&|s| Some(s.reason.clone())),
            "metadata" => texts(&|s| Some(s.metadata.clone())),
            "data_type" => words(&|s| s.data_type.name().to_owned()),
            "source" => words(&|s| s.source.to_owned()),
            "environment" => texts(&|s| label(s).environment.clone()),
            _ => nulls(field.data_type(), scores.len()),
        });
    RecordBatch::try_new(Arc::clone(&schema), columns.collect())
}

fn nulls(data_type: &ArrowType, count: usize) -> ArrayRef {
    new_null_array(data_type, count)
}
