//! `nightmill suite`: what could be misread is refused, or ends with another code than 0.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Ran, nightmill, traces, write_parquet};

/// A folder with one application, `shop`, and its set `s`: a turn that was answered as expected.
fn folder(metrics: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let turn = |id: &str| {
        json!([{"invocationId": id, "userContent": {"role": "user", "content": "hi"},
            "finalResponse": {"role": "assistant", "content": "hello"}}])
    };
    let set = json!({"evalSetId": "s", "evalCases": [{"evalId": "a", "evalMode": "trace", "conversation": turn("e"),
        "actualConversation": turn("d"), "sessionInput": {"appName": "shop", "userId": "u"}}]});
    let app = folder.path().join("shop");
    std::fs::create_dir(&app).unwrap();
    std::fs::write(app.join("s.evalset.json"), set.to_string()).unwrap();
    std::fs::write(app.join("s.metrics.json"), metrics.to_string()).unwrap();
    folder
}

fn exact() -> Value {
    json!({"metricName": "final_response_avg_score", "threshold": 1, "criterion": {"finalResponse": {"text": {}}}})
}

fn run(folder: &Path, further: &[&str]) -> Ran {
    let (path, out) = (
        folder.display().to_string(),
        folder.join("out").display().to_string(),
    );
    let args = ["suite", "run", &path, "--out", &out, "--no-report"];
    nightmill(args.iter().chain(further))
}

fn results(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("out/shop")).unwrap();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.to_string_lossy().ends_with(".evalset_result.json"));
    found.sort();
    found
}

#[test]
fn a_metric_that_nobody_evaluated_is_no_success() {
    let judged = json!({"metricName": "llm_final_response", "threshold": 0.5,
        "criterion": {"llmJudge": {"judgeModel": {"providerName": "openai", "modelName": "m"}}}});
    let folder = folder(&json!([exact(), judged]));
    let ran = run(folder.path(), &["--no-judge"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stdout.contains("llm_final_response"), "{ran:?}");
    let head = ran.stdout.lines().next().unwrap();
    assert!(
        head.ends_with("passed as far as it was evaluated"),
        "{ran:?}"
    );
    let offline = run(folder.path(), &["--offline"]);
    assert_eq!(offline.code, Some(2), "{offline:?}");
    assert!(offline.stderr.contains("--no-judge"), "{offline:?}");
}

#[test]
fn of_two_metrics_of_one_name_the_first_counts() {
    let ignored = json!({"metricName": "final_response_avg_score", "threshold": 1,
        "criterion": {"finalResponse": {"text": {"matchStrategy": "unknown"}}}});
    let folder = folder(&json!([exact(), ignored]));
    let ran = run(folder.path(), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("is there twice"), "{ran:?}");
}

#[test]
fn a_set_is_found_by_its_application_or_named() {
    let folder = folder(&json!([exact()]));
    assert_eq!(run(folder.path(), &["--app", "shop"]).code, Some(0));
    let other = run(folder.path(), &["--app", "shop", "--set", "t"]);
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(other.stderr.contains('t'), "{other:?}");
}

#[test]
fn results_are_compared_only_where_cases_meet() {
    let folder = folder(&json!([exact()]));
    assert_eq!(run(folder.path(), &[]).code, Some(0));
    let before = results(folder.path()).remove(0);
    let text = std::fs::read_to_string(&before).unwrap();
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let failed = write(
        "failed.evalset_result.json",
        text.replace("\"passed\"", "\"failed\""),
    );
    let unsaid = text.replace("\"passed\"", "\"not_evaluated\"");
    let unsaid = write("unsaid.evalset_result.json", unsaid);
    let stranger = text.replace("\"evalId\": \"a\"", "\"evalId\": \"b\"");
    let stranger = write("stranger.evalset_result.json", stranger);
    for (after, code) in [(&before, 0), (&failed, 1), (&unsaid, 3), (&stranger, 2)] {
        let ran = nightmill([Path::new("suite"), Path::new("diff"), &before, after]);
        assert_eq!(ran.code, Some(code), "{after:?}: {ran:?}");
    }
    // A result without a summary, as the first versions wrote it, ended as its cases did.
    let mut old: Value = serde_json::from_str(&text).unwrap();
    old.as_object_mut().unwrap().remove("summary");
    let old = write("old.evalset_result.json", old.to_string());
    let shown = nightmill([Path::new("suite"), Path::new("show"), &old]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
}

#[test]
fn traces_that_are_in_no_case_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("traces.parquet");
    let row = |trace_id, session_id| (trace_id, session_id, Some(1), Some("hi"), Some("hello"));
    let rows = [
        row(Some("a"), Some("s")),
        row(Some("b"), None),
        row(None, Some("s")),
    ];
    write_parquet(&file, &[traces(&rows)], 10);
    let (path, out) = (
        file.display().to_string(),
        folder.path().display().to_string(),
    );
    let args = [
        "suite",
        "from-traces",
        &path,
        "--out",
        &out,
        "--app",
        "shop",
        "--set",
        "s",
    ];
    let ran = nightmill(args);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stdout.contains("1 trace left out: without a session"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("1 row left out"), "{ran:?}");
    let again = nightmill(args);
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.stderr.contains("--overwrite"), "{again:?}");
}
