//! A result as a table: a row for each metric at each turn, for joining with traces and sessions.

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use parquet::arrow::ArrowWriter;

use super::result::{CaseResult, EvalSetResult, EvalStatus, MetricResult, RubricScore, TurnResult};
use crate::output::columns::{
    batch_of, integers, number_lists, numbers, optional_texts, text_lists, texts,
};
use crate::output::directory::PartialFile;
use crate::output::{RunError, table_writer};

/// Where the table of a result stands: beside it.
pub(super) fn beside(result: &Path) -> PathBuf {
    let name = result.file_name().unwrap_or_default().to_string_lossy();
    let stem = name
        .trim_end_matches(".json")
        .trim_end_matches(".evalset_result");
    result.with_file_name(format!("{stem}.turns.parquet"))
}

struct Row<'r> {
    case: &'r CaseResult,
    turn: usize,
    of: &'r TurnResult,
    metric: &'r MetricResult,
}

impl<'r> Row<'r> {
    fn rubrics(&self) -> &'r [RubricScore] {
        let details = self.metric.details.as_ref();
        details
            .map(|details| details.rubric_scores.as_slice())
            .unwrap_or_default()
    }
}

/// The rows, in the order of the result. A case that broke down has none.
fn batch(app: &str, result: &EvalSetResult) -> Result<RecordBatch, RunError> {
    let rows: Vec<Row<'_>> = result
        .cases
        .iter()
        .flat_map(|case| {
            let turns = case.turns.iter().enumerate();
            turns.flat_map(move |(turn, of)| {
                let metrics = of.metrics.iter();
                metrics.map(move |metric| Row {
                    case,
                    turn,
                    of,
                    metric,
                })
            })
        })
        .collect();
    let scored = |row: &Row<'_>| {
        let evaluated = row.metric.status != EvalStatus::NotEvaluated;
        evaluated.then_some(row.metric.score)
    };
    let ids: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.rubrics().iter().map(|of| of.id.clone()).collect())
        .collect();
    let scores: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| row.rubrics().iter().map(|of| of.score).collect())
        .collect();
    let invocations: Vec<Option<&str>> = rows
        .iter()
        .map(|row| {
            let turn = row.of.actual.as_ref().or(row.of.expected.as_ref());
            turn.map(|turn| turn.id.as_str())
        })
        .collect();
    let reasons: Vec<Option<&str>> = rows
        .iter()
        .map(|row| {
            row.metric
                .details
                .as_ref()
                .map(|details| details.reason.as_str())
        })
        .collect();
    batch_of(vec![
        integers("run", rows.iter().map(|row| Some(row.case.run_id))),
        texts("app", rows.iter().map(|_| app)),
        texts("set", rows.iter().map(|_| result.set_id.as_str())),
        texts("case", rows.iter().map(|row| row.case.id.as_str())),
        texts(
            "session_id",
            rows.iter().map(|row| row.case.session_id.as_str()),
        ),
        integers(
            "turn",
            rows.iter().map(|row| i64::try_from(row.turn + 1).ok()),
        ),
        optional_texts("invocation_id", invocations.into_iter()),
        texts("metric", rows.iter().map(|row| row.metric.name.as_str())),
        numbers("score", rows.iter().map(scored)),
        texts("status", rows.iter().map(|row| row.metric.status.name())),
        numbers(
            "threshold",
            rows.iter().map(|row| Some(row.metric.threshold)),
        ),
        optional_texts("reason", reasons.into_iter()),
        text_lists("rubric_ids", ids.iter().map(|ids| Some(ids.as_slice()))),
        number_lists("rubric_scores", scores.iter().map(Vec::as_slice)),
    ])
}

/// Writes the table; it is there whole, or not at all.
pub(super) fn write(path: &Path, app: &str, result: &EvalSetResult) -> Result<(), RunError> {
    let batch = batch(app, result)?;
    let (partial, file) = PartialFile::create(path, true)?;
    let failed = |e: parquet::errors::ParquetError| RunError::write(path, e);
    let properties = Some(table_writer::properties());
    let mut writer = ArrowWriter::try_new(file, batch.schema(), properties).map_err(failed)?;
    writer.write(&batch).map_err(failed)?;
    writer.close().map_err(failed)?;
    partial.commit()?;
    Ok(())
}
