//! No evidence is no score, and figures never mix models or show an empty table for a wrong question.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type};
use serde_json::Value;

use crate::support::{nightmill, read_parquet, summary};

const SUPPORT: &str = "datasets/support";

fn score(out: &str, more: &[&str]) -> crate::support::Ran {
    let args = ["score", SUPPORT, "--no-report", "--out", out];
    nightmill(args.iter().chain(more).copied())
}

/// Statuses and numbers of one metric's rows in `scores`.
fn rows_of(run: &std::path::Path, metric: &str) -> Vec<(String, Option<f64>, bool)> {
    let table = read_parquet(&run.join("scores"));
    let text = |name: &str| {
        let column = table.column_by_name(name).unwrap();
        let column = arrow::compute::cast(column, &DataType::Utf8).unwrap();
        column.as_string::<i32>().clone()
    };
    let (metrics, statuses) = (text("metric"), text("status"));
    let scores = table.column_by_name("score").unwrap();
    let scores = scores.as_primitive::<Float64Type>();
    let passed = table.column_by_name("passed").unwrap();
    (0..table.num_rows())
        .filter(|row| metrics.value(*row) == metric)
        .map(|row| {
            let score = scores.is_valid(row).then(|| scores.value(row));
            (statuses.value(row).to_owned(), score, passed.is_valid(row))
        })
        .collect()
}

#[test]
fn consistency_without_confidence_is_no_score_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let out = run.display().to_string();
    let gate = ["--fail-under", "agent_consistency=0.1"];
    let ran = score(&out, &gate);
    // A gate over nothing fails.
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let rows = rows_of(&run, "agent_consistency");
    assert!(!rows.is_empty());
    for row in &rows {
        assert_eq!(*row, ("NO_EVIDENCE".to_owned(), None, false));
    }
    let sessions = read_parquet(&run.join("sessions"));
    let column = sessions.column_by_name("agent_consistency").unwrap();
    assert_eq!(column.null_count(), sessions.num_rows());
    let told = summary(&run);
    let metrics = told["metrics"].as_array().unwrap();
    let metric = metrics.iter().find(|m| m["name"] == "agent_consistency");
    assert_eq!(metric.unwrap()["count"], 0);
    assert!(metric.unwrap()["mean"].is_null());
    let figures = nightmill([
        "runs",
        "summary",
        &out,
        "--metric",
        "agent_consistency",
        "--json",
    ]);
    let figures: Value = serde_json::from_str(&figures.stdout).unwrap();
    assert_eq!(figures[0]["success_count"], 0);
    assert_eq!(figures[0]["no_evidence_count"], rows.len());
    assert!(figures[0]["avg_score"].is_null());

    // PandaProbe's 1.0 is there for whoever asks for it, and then it counts everywhere.
    let one = folder.path().join("one");
    let ran = score(&one.display().to_string(), &["--on-no-evaluable", "one"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains("1.0 by --on-no-evaluable one"),
        "{}",
        ran.stdout
    );
    for row in rows_of(&one, "agent_consistency") {
        assert_eq!(row, ("SUCCESS".to_owned(), Some(1.0), true));
    }
    let told = summary(&one);
    let metrics = told["metrics"].as_array().unwrap();
    let metric = metrics.iter().find(|m| m["name"] == "agent_consistency");
    assert_eq!(metric.unwrap()["mean"], 1.0);
}

#[test]
fn figures_are_of_one_model_unless_asked_by_model() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    for precision in ["f32", "int8"] {
        let ran = score(
            &at(precision),
            &["--precision", precision, "--metrics", "coherence"],
        );
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let runs = [at("f32"), at("int8")];
    let ask = |more: &[&str]| {
        let words = ["runs", more[0], &runs[0], &runs[1]];
        nightmill(words.iter().copied().chain(more[1..].iter().copied()))
    };
    for figure in [
        &["summary"][..],
        &["trend", "--metric", "coherence"],
        &["distribution", "--metric", "coherence"],
    ] {
        let refused = ask(figure);
        assert_eq!(refused.code, Some(2), "{figure:?}: {refused:?}");
        assert!(refused.stdout.is_empty());
        for word in ["2 models", "f32", "int8", "--per-model"] {
            assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
        }
        let by_model = ask(&[figure, &["--per-model", "--json"]].concat());
        assert_eq!(by_model.code, Some(0), "{by_model:?}");
        let rows: Vec<Value> = serde_json::from_str(&by_model.stdout).unwrap();
        let named = |word: &str| {
            let model = |row: &&Value| row["model"].as_str().unwrap().ends_with(word);
            rows.iter().filter(model).count()
        };
        assert!(named("f32") > 0 && named("int8") > 0, "{rows:?}");
        assert_eq!(named("f32") + named("int8"), rows.len());
    }
    let one = nightmill(["runs", "summary", &runs[0]]);
    assert_eq!(one.code, Some(0), "{one:?}");
}

#[test]
fn questions_about_what_is_not_there_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run").display().to_string();
    let ran = score(&out, &["--metrics", "coherence"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for (question, words) in [
        (&["history", &out, "--trace", "nope"][..], "--trace nope"),
        (&["history", &out, "--session", "nope"], "--session nope"),
        (
            &["comparison", &out, "--metric", "coherence"],
            "is about traces",
        ),
        (
            &["comparison", &out, "--metric", "agent_reliability"],
            "no such score",
        ),
        (
            &["distribution", &out, "--metric", "loop_detection"],
            "they have coherence",
        ),
        (
            &["trend", &out, "--metric", "loop_detection"],
            "they have coherence",
        ),
    ] {
        let asked = nightmill(["runs"].iter().chain(question));
        assert_eq!(asked.code, Some(2), "{question:?}: {asked:?}");
        assert!(
            asked.stderr.contains(words),
            "{question:?}: {}",
            asked.stderr
        );
        assert!(asked.stdout.is_empty(), "{question:?}: {}", asked.stdout);
    }
}
