//! Columns of factuality, format and tone against the golden records: through `nightmill sql` and `nightmill score`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::Float64Type;
use nightmill::metric::comparison::{DEFAULT_THRESHOLD, Workspace};
use nightmill::metric::format::{FormatCase, FormatRules, SubCheck, format};
use serde_json::{Value, json};

use crate::support::{golden, nightmill, read_parquet, write_parquet};

/// A record whose metric a column can be: those with rules of their own are of suites alone.
struct Row {
    id: String,
    metric: &'static str,
    mode: String,
    threshold: f64,
    actual: String,
    expected: String,
    score: f64,
    /// A sub-check of the format by the usual rules, and whether it passes.
    check: Option<(String, bool)>,
}

/// What a suite makes of the format of a case by the usual rules.
fn of_suite(actual: &str, expected: &str, threshold: f64) -> f64 {
    let (rules, case) = (FormatRules::default(), FormatCase::default());
    let mut workspace = Workspace::default();
    format(actual, expected, threshold, &rules, case, &mut workspace).score
}

fn rows() -> Vec<Row> {
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let mut rows = Vec::new();
    for (file, metric, at_least) in [
        ("factuality_shallow", "factuality", 71),
        ("json_structural", "factuality", 85),
        ("format", "format", 128),
        ("format_regex", "format", 40),
        ("tone_heuristic", "tone", 69),
    ] {
        for row in golden(&format!("regtrace/{file}.jsonl"), at_least) {
            let usual = match metric {
                "factuality" => row
                    .get("rag_faithfulness_only")
                    .is_none_or(|on| on == false),
                "tone" => {
                    let mut on = row["sub_dimensions"].as_object().unwrap().values();
                    let weights = row["sub_dimension_weights"].as_object().unwrap();
                    on.all(|on| on == true) && weights.is_empty()
                }
                _ => true,
            };
            if !usual {
                continue;
            }
            let (actual, expected) = (text(&row, "actual"), text(&row, "expected"));
            let threshold = row["threshold"].as_f64().unwrap();
            // No record has all sub-checks: what a suite makes of its texts stands for it, and each one is looked at
            // by itself.
            let score = match metric {
                "format" => of_suite(&actual, &expected, threshold),
                _ => row["expect"]["score"].as_f64().unwrap(),
            };
            let is_usual_check = row["kind"] == "sub_check"
                && row["length_tolerance"] == 0.2
                && threshold == DEFAULT_THRESHOLD;
            let check = is_usual_check.then(|| {
                let passed = row["expect"]["passed"].as_bool().unwrap();
                (text(&row, "check"), passed)
            });
            rows.push(Row {
                id: text(&row, "id"),
                metric,
                mode: text(&row, "mode"),
                threshold,
                actual,
                expected,
                score,
                check,
            });
        }
    }
    for metric in ["factuality", "format", "tone"] {
        assert!(
            rows.iter().filter(|row| row.metric == metric).count() >= 5,
            "{metric}"
        );
    }
    rows
}

fn table(rows: &[Row]) -> RecordBatch {
    let texts = |of: fn(&Row) -> &str| -> ArrayRef {
        Arc::new(
            rows.iter()
                .map(|row| Some(of(row)))
                .collect::<StringArray>(),
        )
    };
    let times: TimestampMicrosecondArray = (0..rows.len() as i64).map(Some).collect();
    let thresholds = rows.iter().map(|row| row.threshold);
    RecordBatch::try_from_iter([
        ("trace_id", texts(|row| &row.id)),
        ("metric", texts(|row| row.metric)),
        ("mode", texts(|row| &row.mode)),
        ("output", texts(|row| &row.actual)),
        ("expected", texts(|row| &row.expected)),
        ("started_at", Arc::new(times.with_timezone("UTC"))),
        (
            "threshold",
            Arc::new(Float64Array::from_iter_values(thresholds)),
        ),
    ])
    .unwrap()
}

/// What a query gives, by id.
fn queried(call: &str, file: &Path, filter: &str) -> BTreeMap<String, f64> {
    let sql = format!(
        "SELECT trace_id, {call} AS score FROM '{}' WHERE {filter}",
        file.display()
    );
    let ran = nightmill(["sql", "--format", "json", &sql]);
    assert_eq!(ran.code, Some(0), "{sql}: {ran:?}");
    let lines = ran.stdout.lines().map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        let id = row["trace_id"].as_str().unwrap().to_owned();
        (id, row["score"].as_f64().unwrap_or_else(|| panic!("{row}")))
    });
    lines.collect()
}

fn assert_scores<'r>(got: &BTreeMap<String, f64>, rows: impl Iterator<Item = &'r Row>, what: &str) {
    let mut count = 0;
    for row in rows {
        let got = got
            .get(&row.id)
            .unwrap_or_else(|| panic!("{what}: no {}", row.id));
        let difference = (got - row.score).abs();
        assert!(
            difference <= 1e-9,
            "{what}, {}: {got} instead of {}",
            row.id,
            row.score
        );
        count += 1;
    }
    assert_eq!(count, got.len(), "{what}");
    assert!(count > 0, "{what}");
}

#[test]
fn golden_regtrace_columns_of_queries() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.parquet");
    let rows = rows();
    write_parquet(&file, &[table(&rows)], 50);
    for mode in ["strict", "lenient", "json_structural"] {
        let of_mode = |row: &&Row| row.metric == "factuality" && row.mode == mode;
        if !rows.iter().any(|row| of_mode(&row)) {
            continue;
        }
        let call = format!("factuality(output, expected, '{mode}')");
        let got = queried(
            &call,
            &file,
            &format!("metric = 'factuality' AND mode = '{mode}'"),
        );
        assert_scores(&got, rows.iter().filter(of_mode), &call);
    }
    let mut thresholds: Vec<f64> = rows.iter().map(|row| row.threshold).collect();
    thresholds.sort_by(f64::total_cmp);
    thresholds.dedup();
    for threshold in thresholds {
        let of = |row: &&Row| row.metric == "format" && row.threshold == threshold;
        if rows.iter().any(|row| of(&row)) {
            let call = format!("format(output, expected, {threshold})");
            let filter = format!("metric = 'format' AND threshold = {threshold}");
            assert_scores(
                &queried(&call, &file, &filter),
                rows.iter().filter(of),
                &call,
            );
        }
    }
    let of_tone = |row: &&Row| row.metric == "tone";
    let got = queried("tone(output, expected)", &file, "metric = 'tone'");
    assert_scores(&got, rows.iter().filter(of_tone), "tone");
}

#[test]
fn golden_regtrace_columns_of_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (file, run) = (
        folder.path().join("rows.parquet"),
        folder.path().join("run"),
    );
    let rows = rows();
    write_parquet(&file, &[table(&rows)], 50);
    let ran = nightmill([
        "score",
        &file.display().to_string(),
        "--metrics",
        "factuality,format,tone",
        "--out",
        &run.display().to_string(),
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let scores = read_parquet(&run.join("scores"));
    let text = |name: &str| {
        let column = arrow::compute::cast(
            scores.column_by_name(name).unwrap(),
            &arrow::datatypes::DataType::Utf8,
        );
        column.unwrap().as_string::<i32>().clone()
    };
    let (ids, metrics) = (text("target_id"), text("metric"));
    let raw = scores.column_by_name("score_raw").unwrap();
    let raw = raw.as_primitive::<Float64Type>();
    let of = |metric: &str| -> BTreeMap<String, f64> {
        let rows = (0..scores.num_rows()).filter(|row| metrics.value(*row) == metric);
        rows.map(|row| (ids.value(row).to_owned(), raw.value(row)))
            .collect()
    };
    for metric in ["factuality", "format", "tone"] {
        let got = of(metric);
        // The functions give the very same numbers.
        assert_eq!(
            got,
            queried(&format!("{metric}(output, expected)"), &file, "true")
        );
        let usual = |row: &&Row| match metric {
            "factuality" => row.metric == metric && row.mode == "strict",
            "format" => row.metric == metric && row.threshold == 0.7,
            _ => row.metric == metric,
        };
        let wanted: Vec<&Row> = rows.iter().filter(usual).collect();
        let got = got
            .into_iter()
            .filter(|(id, _)| wanted.iter().any(|row| row.id == *id));
        assert_scores(&got.collect(), wanted.iter().copied(), metric);
    }
    let metadata = scores.column_by_name("metadata").unwrap();
    let metadata = metadata.as_string::<i32>();
    let mut checks = std::collections::BTreeSet::new();
    for (row, check, passed) in rows.iter().filter_map(|row| {
        let (check, passed) = row.check.as_ref()?;
        Some((row, check, passed))
    }) {
        let of = |at: &usize| ids.value(*at) == row.id && metrics.value(*at) == "format";
        let at = (0..scores.num_rows()).find(of).unwrap();
        let metadata: Value = serde_json::from_str(metadata.value(at)).unwrap();
        assert_eq!(metadata["sub_checks"][check], *passed, "{}", row.id);
        checks.insert(check.as_str());
    }
    let all = SubCheck::ALL.map(SubCheck::name);
    assert!(all.iter().all(|check| checks.contains(check)), "{checks:?}");
    // No model had a part in them.
    assert_eq!(
        scores.column_by_name("model").unwrap().null_count(),
        scores.num_rows()
    );
    let manifest = std::fs::read(run.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["model"], json!(null));
}
