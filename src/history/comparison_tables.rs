//! The folder of a comparison: two runs side by side as tables (as in Connexity).
//!
//! Metrics have tables of their own: `run_comparison_case_metrics` with a row for each metric of a matched case,
//! `run_comparison_metrics` with one for each metric of the matched cases together. Lists of structs in the two
//! other tables would hold the same; but rows can be filtered, counted and joined with `judge_metric_scores`
//! (by `test_case` and `metric`) as they are, and every reader of Parquet has them as plain columns.
//!
//! Each table names the two runs in each row, so that tables of many comparisons can be read as one.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::conversation::{CaseComparison, MetricAverages, MetricDelta};
use crate::history::{JudgedComparison, StoredRun};
use crate::output::columns::{
    Column, batch_of, booleans, integers, numbers, optional_texts, schema_of, text_lists, texts,
};
use crate::output::table_folder::COMPARISON;
use crate::output::table_writer::TableWriter;
use crate::output::{RunDirectory, RunError, manifest, table_folder};

/// The columns of a comparison.
type Columns = fn(&JudgedComparison) -> Vec<Column>;

const TABLES: [(&str, Columns); 4] = [
    (COMPARISON, pair_columns),
    ("run_comparison_metrics", metric_columns),
    ("run_comparison_cases", case_columns),
    ("run_comparison_case_metrics", case_metric_columns),
];

/// Starts the folder of a comparison of these runs, which will become `target`.
///
/// # Errors
/// As [`RunDirectory::create`]; and if `target` is no comparison, which is never replaced.
pub fn comparison_folder(
    target: &Path,
    overwrite: bool,
    runs: [&StoredRun; 2],
) -> Result<RunDirectory, RunError> {
    let inputs = runs.map(|run| run.path.clone());
    table_folder::create(target, COMPARISON, overwrite, &inputs)
}

/// Writes a comparison into its folder, whole or not at all: four tables; `summary.json`, which is what `told` holds; and a
/// manifest.
///
/// # Errors
/// [`RunError::Write`], or if somebody else made the folder in the meantime.
pub fn write_comparison(
    folder: RunDirectory,
    of: &JudgedComparison,
    told: &impl Serialize,
) -> Result<PathBuf, RunError> {
    for (name, columns) in TABLES {
        let columns = columns(of);
        let mut table = TableWriter::create(folder.path(), name, schema_of(&columns))?;
        table.write(&batch_of(columns)?)?;
        table.finish()?;
    }
    manifest::write_json(&folder.path().join("summary.json"), told)?;
    let runs = [&of.baseline.run.path, &of.candidate.run.path];
    manifest::write_of_inputs(&folder, "runs comparison", &runs)?;
    folder.commit()
}

/// Which runs were compared, `rows` times.
fn keys(of: &JudgedComparison, rows: usize) -> Vec<Column> {
    let name = |name: &str, of: &str| texts(name, std::iter::repeat_n(of, rows));
    vec![
        name("baseline", &of.baseline.run.name),
        name("candidate", &of.candidate.run.name),
    ]
}

/// One row: the runs as wholes.
fn pair_columns(of: &JudgedComparison) -> Vec<Column> {
    let (comparison, aggregate) = (&of.comparison, &of.comparison.aggregate);
    let model = |name: &str, model: &Option<String>| {
        optional_texts(name, std::iter::once(model.as_deref()))
    };
    let number = |name: &str, value: Option<f64>| numbers(name, std::iter::once(value));
    let count = |name: &str, value: usize| integers(name, std::iter::once(Some(value as i64)));
    let list = |name: &str, texts: &[String]| text_lists(name, std::iter::once(Some(texts)));
    let reasons = comparison.reasons.iter().map(|reason| reason.name());
    let reasons: Vec<String> = reasons.map(str::to_owned).collect();
    let (limits, differences) = (&of.thresholds, &of.differences);
    let mut columns = keys(of, 1);
    columns.extend([
        model("baseline_model", &of.baseline.model),
        model("candidate_model", &of.candidate.model),
        booleans(
            "regression_detected",
            std::iter::once(Some(comparison.regression_detected)),
        ),
        list("reasons", &reasons),
        number("pass_rate_delta", Some(aggregate.pass_rate_delta)),
        number("avg_score_delta", aggregate.avg_score_delta),
        number("latency_avg_delta_ms", aggregate.latency_avg_delta_ms),
        number("latency_p95_delta_ms", aggregate.latency_p95_delta_ms),
        number("cost_delta_usd", aggregate.cost_delta_usd),
        count("regressions", aggregate.regressions),
        count("improvements", aggregate.improvements),
        count("unchanged", aggregate.unchanged),
        count("errors", aggregate.errors),
        list("baseline_only", &comparison.baseline_only),
        list("candidate_only", &comparison.candidate_only),
        number("max_pass_rate_drop", Some(limits.max_pass_rate_drop)),
        number("max_avg_score_drop", Some(limits.max_avg_score_drop)),
        number(
            "max_latency_increase_pct",
            Some(limits.max_latency_increase_pct),
        ),
        list("warnings", &differences.warnings),
        list("infrastructure_notes", &differences.infrastructure_notes),
    ]);
    columns
}

fn metric_columns(of: &JudgedComparison) -> Vec<Column> {
    let found = &of.comparison.aggregate.per_metric;
    let number = |name: &str, value: fn(&MetricAverages) -> Option<f64>| {
        numbers(name, found.iter().map(value))
    };
    let mut columns = keys(of, found.len());
    columns.extend([
        texts("metric", found.iter().map(|m| m.metric.as_str())),
        booleans("is_binary", found.iter().map(|m| m.is_binary)),
        number("baseline_avg", |m| m.baseline_avg),
        number("candidate_avg", |m| m.candidate_avg),
        number("delta", |m| m.delta),
    ]);
    columns
}

fn case_columns(of: &JudgedComparison) -> Vec<Column> {
    let found = &of.comparison.cases;
    let mut columns = keys(of, found.len());
    columns.extend([
        texts(
            "test_case",
            found.iter().map(|case| case.test_case.as_str()),
        ),
        texts("status", found.iter().map(|case| case.status.name())),
        numbers("score_delta", found.iter().map(|case| case.score_delta)),
        numbers(
            "latency_delta_ms",
            found.iter().map(|case| case.latency_delta_ms),
        ),
    ]);
    columns
}

fn case_metric_columns(of: &JudgedComparison) -> Vec<Column> {
    let cases = of.comparison.cases.iter();
    let found: Vec<(&CaseComparison, &MetricDelta)> = cases
        .flat_map(|case| case.metric_deltas.iter().map(move |delta| (case, delta)))
        .collect();
    let deltas = || found.iter().map(|(_, delta)| *delta);
    let mut columns = keys(of, found.len());
    columns.extend([
        texts(
            "test_case",
            found.iter().map(|(case, _)| case.test_case.as_str()),
        ),
        texts("metric", deltas().map(|d| d.metric.as_str())),
        booleans("is_binary", deltas().map(|d| d.is_binary)),
        numbers("delta", deltas().map(|d| d.delta)),
        texts("status", deltas().map(|d| d.status.name())),
    ]);
    columns
}
