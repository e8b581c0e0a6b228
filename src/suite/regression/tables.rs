//! Runs as tables: one row a metric, a check, a case, a suite, a gate.

use arrow::array::RecordBatch;

use super::compare::CaseDelta;
use super::gates::GateResult;
use super::record::{CaseRecord, RunRecord, evaluation_type};
use crate::metric::checked::{Checked, Detail};
use crate::output::RunError;
use crate::output::columns::{
    Column, batch_of, booleans, integers, numbers, optional_texts, texts,
};
use crate::text::format_instant;

/// Names of the tables, in the order of [`suite_tables`].
pub const SUITE_TABLES: [&str; 7] = [
    "metric_results",
    "assertion_details",
    "case_results",
    "suite_results",
    "regression_cases",
    "regression_suites",
    "gate_results",
];

/// The tables of runs with their names. Each row names run and suite; rows are in the order of runs, cases, metrics and
/// checks. A table without rows has its columns all the same.
///
/// # Errors
/// [`RunError::Plan`] if Arrow refuses a batch.
pub fn suite_tables(records: &[RunRecord]) -> Result<Vec<(&'static str, RecordBatch)>, RunError> {
    let tables = [
        metric_results(records),
        assertion_details(records),
        case_results(records),
        suite_results(records),
        regression_cases(records),
        regression_suites(records),
        gate_results(records),
    ];
    let tables = SUITE_TABLES.into_iter().zip(tables);
    tables
        .map(|(name, columns)| Ok((name, batch_of(columns)?)))
        .collect()
}

/// The columns `run` and `suite` of rows of these records.
fn keys<'a>(records: impl Iterator<Item = &'a RunRecord> + Clone) -> Vec<Column> {
    vec![
        texts("run", records.clone().map(|of| of.head.run_id.as_str())),
        texts("suite", records.map(|of| of.head.golden_set_name.as_str())),
    ]
}

fn count(of: usize) -> Option<i64> {
    i64::try_from(of).ok()
}

/// Each metric of each case.
type MetricRow<'a> = (&'a RunRecord, &'a CaseRecord, &'a str, &'a Checked);

fn metric_rows(records: &[RunRecord]) -> Vec<MetricRow<'_>> {
    let cases = case_rows(records).into_iter();
    let rows = cases.flat_map(|(record, case)| {
        let results = case.case.results.iter();
        results.map(move |(metric, result)| (record, case, metric, result))
    });
    rows.collect()
}

fn case_rows(records: &[RunRecord]) -> Vec<(&RunRecord, &CaseRecord)> {
    let rows = records
        .iter()
        .flat_map(|record| record.cases.iter().map(move |case| (record, case)));
    rows.collect()
}

fn metric_results(records: &[RunRecord]) -> Vec<Column> {
    let rows = metric_rows(records);
    let results = || rows.iter().map(|(_, _, _, result)| *result);
    let mut columns = keys(rows.iter().map(|(record, ..)| *record));
    columns.extend([
        texts("id", rows.iter().map(|(_, case, ..)| case.case.id.as_str())),
        texts("metric", rows.iter().map(|(_, _, metric, _)| *metric)),
        numbers("score", results().map(|of| Some(of.score))),
        numbers("confidence", results().map(|of| Some(of.confidence))),
        booleans("passed", results().map(|of| Some(of.passed))),
        numbers("threshold", results().map(|of| Some(of.threshold))),
        texts("evaluation_type", results().map(evaluation_type)),
        numbers("token_cost", results().map(|of| of.token_cost)),
        texts("explanation", results().map(|of| of.explanation.as_str())),
    ]);
    columns
}

fn assertion_details(records: &[RunRecord]) -> Vec<Column> {
    let metrics = metric_rows(records);
    let rows: Vec<(&MetricRow<'_>, &Detail)> = metrics
        .iter()
        .flat_map(|row| row.3.details.iter().map(move |detail| (row, detail)))
        .collect();
    let details = || rows.iter().map(|(_, detail)| *detail);
    let mut columns = keys(rows.iter().map(|(row, _)| row.0));
    columns.extend([
        texts("id", rows.iter().map(|(row, _)| row.1.case.id.as_str())),
        texts("metric", rows.iter().map(|(row, _)| row.2)),
        texts("check", details().map(|of| of.check.as_str())),
        optional_texts("kind", details().map(|of| of.kind)),
        booleans("passed", details().map(|of| Some(of.passed))),
        optional_texts("expected", details().map(|of| of.expected.as_deref())),
        optional_texts("actual", details().map(|of| of.actual.as_deref())),
        optional_texts("message", details().map(|of| of.message.as_deref())),
    ]);
    columns
}

fn case_results(records: &[RunRecord]) -> Vec<Column> {
    let rows = case_rows(records);
    let cases = || rows.iter().map(|(_, case)| *case);
    let mut columns = keys(rows.iter().map(|(record, _)| *record));
    columns.extend([
        texts("id", cases().map(|of| of.case.id.as_str())),
        numbers("score", cases().map(|of| Some(of.figures.score))),
        numbers("weight", cases().map(|of| Some(of.case.weight))),
        booleans("overall_passed", cases().map(|of| Some(of.figures.passed))),
        texts("severity", cases().map(|of| of.figures.severity.name())),
    ]);
    columns
}

fn suite_results(records: &[RunRecord]) -> Vec<Column> {
    let heads = || records.iter().map(|of| &of.head);
    let times: Vec<String> = heads().map(|of| format_instant(of.timestamp)).collect();
    let counts = || records.iter().map(RunRecord::severity_counts);
    let milliseconds = heads().map(|of| i64::try_from(of.duration_ms).ok());
    let provider = heads().map(|of| Some(of.judge.as_ref()?.provider.as_str()));
    let model = heads().map(|of| Some(of.judge.as_ref()?.model.as_str()));
    let mut columns = keys(records.iter());
    columns.extend([
        texts("version", heads().map(|of| of.golden_set_version.as_str())),
        texts("timestamp", times.iter().map(String::as_str)),
        texts("status", heads().map(|of| of.status.name())),
        texts("trigger", heads().map(|of| of.trigger.name())),
        optional_texts("branch", heads().map(|of| of.branch.as_deref())),
        numbers("suite_score", heads().map(|of| Some(of.suite_score))),
        integers("cases", records.iter().map(|of| count(of.cases.len()))),
        integers("pass", counts().map(|of| count(of.pass))),
        integers("warn", counts().map(|of| count(of.warn))),
        integers("fail", counts().map(|of| count(of.fail))),
        integers("duration_ms", milliseconds),
        optional_texts("judge_provider", provider),
        optional_texts("judge_model", model),
    ]);
    columns
}

fn regression_cases(records: &[RunRecord]) -> Vec<Column> {
    let rows: Vec<(&RunRecord, &CaseDelta)> = records
        .iter()
        .flat_map(|record| {
            let deltas = record.regression.comparison.case_deltas.iter();
            deltas.map(move |delta| (record, delta))
        })
        .collect();
    let deltas = || rows.iter().map(|(_, delta)| *delta);
    let baseline = rows.iter();
    let baseline = baseline.map(|(record, _)| record.regression.baseline_run_id.as_deref());
    let mut columns = keys(rows.iter().map(|(record, _)| *record));
    columns.extend([
        texts("id", deltas().map(|of| of.id.as_str())),
        optional_texts("baseline_run", baseline),
        texts("status", deltas().map(|of| of.status.name())),
        numbers("delta", deltas().map(|of| of.delta)),
    ]);
    columns
}

fn regression_suites(records: &[RunRecord]) -> Vec<Column> {
    let of = || records.iter().map(|of| &of.regression);
    let comparisons = || of().map(|of| &of.comparison);
    let json = |named| serde_json::to_string(named).unwrap_or_default();
    let deltas: Vec<String> = comparisons().map(|of| json(&of.metric_deltas)).collect();
    let then = of().map(|of| of.baseline_golden_set_version.as_deref());
    let now = records.iter();
    let now = now.map(|of| of.head.golden_set_version.as_str());
    let changed = comparisons().map(|of| Some(of.version_change_detected));
    let excluded = comparisons().map(|of| count(of.test_cases_excluded.len()));
    let mut columns = keys(records.iter());
    columns.extend([
        optional_texts("baseline_run", of().map(|of| of.baseline_run_id.as_deref())),
        optional_texts("baseline_version", then),
        texts("version", now),
        texts("status", comparisons().map(|of| of.status.name())),
        numbers("suite_delta", comparisons().map(|of| Some(of.suite_delta))),
        texts("metric_deltas", deltas.iter().map(String::as_str)),
        booleans("version_change_detected", changed),
        integers("cases_excluded", excluded),
    ]);
    columns
}

fn gate_results(records: &[RunRecord]) -> Vec<Column> {
    let rows: Vec<(&RunRecord, &str, &GateResult)> = records
        .iter()
        .flat_map(|record| {
            let gates = record.gates.iter().flat_map(|gates| gates.gates.iter());
            gates.map(move |(name, gate)| (record, name, gate))
        })
        .collect();
    let gates = || rows.iter().map(|(_, _, gate)| *gate);
    let mut columns = keys(rows.iter().map(|(record, ..)| *record));
    columns.extend([
        texts("gate", rows.iter().map(|(_, name, _)| *name)),
        booleans("passed", gates().map(|of| Some(of.passed))),
        numbers("actual", gates().map(|of| of.actual)),
        numbers("required", gates().map(|of| of.required)),
        texts("message", gates().map(|of| of.message.as_str())),
    ]);
    columns
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{against, record};
    use super::*;

    #[test]
    fn every_table_has_its_rows() {
        let first = record("run_20260601_aaaaaa", &[("a", 0.9), ("gone", 0.9)]);
        let mut second = against(Some(&first), "run_20260602_bbbbbb", &[("a", 0.2)]);
        let mut result = second.cases[0].case.results.get("format").unwrap().clone();
        result.details = vec![Detail::default(), Detail::default()];
        second.cases[0].case.results.insert("format", result);
        let records = [first, second];
        let tables = suite_tables(&records).unwrap();
        let rows: Vec<(&str, usize)> = tables
            .iter()
            .map(|(name, batch)| (*name, batch.num_rows()))
            .collect();
        let expected = [
            ("metric_results", 3),
            ("assertion_details", 2),
            ("case_results", 3),
            ("suite_results", 2),
            // Two new ones in the first run; one that is worse and one that is gone in the second.
            ("regression_cases", 4),
            ("regression_suites", 2),
            ("gate_results", 8),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn tables_without_rows_have_their_columns() {
        let full = suite_tables(&[record("run_20260601_aaaaaa", &[("a", 0.9)])]).unwrap();
        for ((name, empty), (_, full)) in suite_tables(&[]).unwrap().iter().zip(&full) {
            assert_eq!(empty.num_rows(), 0);
            assert_eq!(empty.schema(), full.schema(), "{name}");
        }
    }
}
