//! Records and baselines: pinned, found by branch, listed, shown, compared, and made into suites.

use serde_json::{Value, json};

use super::scene::{Scene, echo, json_of};

fn scene() -> Scene {
    Scene::new(json!({}), &[&[echo("a", true), echo("b", true)]])
}

fn id(record: &std::path::Path) -> String {
    record.file_stem().unwrap().to_string_lossy().into_owned()
}

#[test]
fn a_pinned_run_is_the_baseline_until_it_is_unpinned() {
    let scene = scene();
    assert_eq!(scene.run(&[]).code, Some(0));
    assert_eq!(scene.run(&[]).code, Some(0));
    let files = scene.record_files();
    let (first, second) = (id(&files[0]), id(&files[1]));
    assert_eq!(
        scene.last_record("one")["regression"]["baseline_run_id"],
        json!(first)
    );
    let path = files[0].display().to_string();
    let pinned = scene.suite(&["pin", &path]);
    assert!(
        pinned.code == Some(0) && pinned.stdout.contains(&first),
        "{pinned:?}"
    );
    let shown = scene.suite(&["baseline", ".", "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(
        (&shown[0]["run_id"], &shown[0]["pinned"]),
        (&json!(first), &json!(true))
    );
    scene.run(&[]);
    assert_eq!(
        scene.last_record("one")["regression"]["baseline_run_id"],
        json!(first)
    );
    let unpinned = scene.suite(&["unpin", "."]);
    assert!(
        unpinned.code == Some(0) && unpinned.stdout.contains(&first),
        "{unpinned:?}"
    );
    assert_eq!(scene.suite(&["unpin", ".", "--suite", "one"]).code, Some(2));
    scene.run(&[]);
    assert_ne!(
        scene.last_record("one")["regression"]["baseline_run_id"],
        json!(first)
    );
    // What the user names goes before all of that.
    let named = scene.run(&["--baseline", &second]);
    assert_eq!(named.code, Some(0), "{named:?}");
    assert_eq!(
        scene.last_record("one")["regression"]["baseline_run_id"],
        json!(second)
    );
    scene.run(&["--baseline", "none"]);
    assert_eq!(
        scene.last_record("one")["regression"]["regression_status"],
        "new"
    );
    let missing = scene.run(&["--baseline", "run_20200101_aaaaaa"]);
    assert!(
        missing.code == Some(2) && missing.stderr.contains("--baseline"),
        "{missing:?}"
    );
}

#[test]
fn another_branch_is_compared_with_the_fallback_and_says_so() {
    let scene = scene();
    assert_eq!(scene.run(&[]).code, Some(0));
    let ran = scene.run(&["--branch", "feature/x"]);
    assert!(
        ran.stdout
            .contains("branch `feature-x` has no run that passed"),
        "{ran:?}"
    );
    assert_eq!(scene.last_record("one")["branch"], "feature-x");
    assert_eq!(
        scene.last_record("one")["regression"]["regression_status"],
        "clean"
    );
}

#[test]
fn records_are_listed_shown_and_compared() {
    let scene = scene();
    assert_eq!(scene.run(&[]).code, Some(0));
    scene.cases("one", &[echo("a", true), echo("b", false)]);
    assert_eq!(scene.run(&[]).code, Some(1));
    let files = scene.record_files();
    let (first, second) = (
        files[0].display().to_string(),
        files[1].display().to_string(),
    );

    let suites = scene.suite(&["list", "."]);
    assert!(
        suites.code == Some(0) && suites.stdout.contains("one  2 cases"),
        "{suites:?}"
    );
    let list = |args: &[&str]| -> Vec<String> {
        let args: Vec<&str> = ["list", "."]
            .iter()
            .chain(args)
            .chain(&["--json"])
            .copied()
            .collect();
        let ran = scene.suite(&args);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let listed: Value = serde_json::from_str(&ran.stdout).unwrap();
        let runs = listed.as_array().unwrap().iter();
        runs.map(|of| of["run_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(list(&["--records"]), [id(&files[1]), id(&files[0])]);
    assert_eq!(list(&["--status", "passed"]), [id(&files[0])]);
    assert_eq!(list(&["--limit", "1"]), [id(&files[1])]);
    assert_eq!(list(&["--branch", "other"]), [""; 0]);
    assert_eq!(list(&["--suite", "two"]), [""; 0]);

    assert_eq!(scene.suite(&["show", &first]).code, Some(0));
    let shown = scene.suite(&["show", &second]);
    assert_eq!(shown.code, Some(1), "{shown:?}");
    assert!(
        shown.stdout.contains("case b: FAILED") && shown.stdout.contains("gate FAILED regression"),
        "{shown:?}"
    );

    let diff = scene.suite(&["diff", &first, &second]);
    assert_eq!(diff.code, Some(1), "{diff:?}");
    for words in [
        "suite  1.0000 → ",
        "metric factuality  1.0000 → 0.5000 (-50.0 %)",
        "case b: regressed",
        "passed → FAILED",
        "1 case unchanged",
    ] {
        assert!(
            diff.stdout.contains(words),
            "{words} is not in {}",
            diff.stdout
        );
    }
    assert_eq!(scene.suite(&["diff", &second, &first]).code, Some(0));
    let json = scene.suite(&["diff", &first, &second, "--json"]);
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["cases"][1]["passed_now"], false);
    // A case that passed and is gone is no success.
    scene.cases("one", &[echo("a", true)]);
    scene.run(&[]);
    let third = scene.record_files()[2].display().to_string();
    assert_eq!(scene.suite(&["diff", &first, &third]).code, Some(3));
    scene.cases("one", &[echo("z", true)]);
    scene.run(&[]);
    let stranger = scene.record_files()[3].display().to_string();
    assert_eq!(scene.suite(&["diff", &first, &stranger]).code, Some(2));
    let other = scene.path("x.evalset_result.json");
    std::fs::write(&other, "{}").unwrap();
    let mixed = scene.suite(&["diff", &first, &other.display().to_string()]);
    assert!(
        mixed.code == Some(2) && mixed.stderr.contains("two kinds"),
        "{mixed:?}"
    );
}

#[test]
fn records_of_the_tool_are_found_and_serve_as_baseline() {
    let scene = scene();
    let folder = scene.path(".regtrace/runs");
    std::fs::create_dir_all(&folder).unwrap();
    let result = |score: f64| {
        json!({"metric_name": "factuality", "score": score, "threshold": 0.7, "passed": true,
        "confidence": 1.0, "explanation": "x", "evaluation_type": "deterministic", "token_cost": 0})
    };
    let case = |id: &str| {
        json!({"test_case_id": id, "input": "i", "actual_output": "o", "overall_passed": true,
        "severity": "pass", "metric_results": {"factuality": result(1.0)}})
    };
    let record = json!({
        "run_id": "run_20260601_abc123", "timestamp": "2026-06-01T10:00:00.000Z", "status": "passed", "trigger": "cli",
        "duration_ms": 5, "regtrace_version": "0.10.1", "judge_provider": "", "judge_model": "", "config_hash": "c",
        "golden_set_name": "one", "golden_set_version": "0.9", "golden_set_file_hash": "f", "suite_score": 1.0,
        "metric_summary": {"factuality": {"score": 1.0, "pass_rate": 1.0}}, "test_case_results": [case("a"), case("b")],
        "regression": {"baseline_run_id": null, "suite_delta": 0, "regression_status": "clean", "version_change_detected": false,
            "test_cases_excluded": [], "metric_deltas": {}},
    });
    std::fs::write(folder.join("run_20260601_abc123.json"), record.to_string()).unwrap();
    scene.cases("one", &[echo("a", true), echo("b", false)]);
    let ran = scene.run(&[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stdout.contains("against the run run_20260601_abc123")
            && ran.stdout.contains("days old"),
        "{ran:?}"
    );
    // The new record stands beside the old one.
    assert!(!scene.records().exists());
    let listed = scene.suite(&["list", "--records", ".regtrace/runs"]);
    assert_eq!(listed.stdout.lines().count(), 2, "{listed:?}");
}

#[test]
fn answers_become_a_suite() {
    let scene = scene();
    assert_eq!(scene.run(&[]).code, Some(0));
    let record = scene.record_files()[0].display().to_string();
    let made = scene.suite(&["scaffold", &record, "--out", "made.yaml", "--name", "made"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let again = scene.suite(&["scaffold", &record, "--out", "made.yaml"]);
    assert_eq!(again.code, Some(2), "{again:?}");
    let ran = scene.suite(&["run", "made.yaml", "--no-report", "--no-gate", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(ran["suites"][0]["cases"].as_array().unwrap().len(), 2);
    let lines =
        "{\"input\": \"i\", \"output\": \"o\"}\n{\"input\": \"j\", \"output\": {\"a\": 1}}\n";
    std::fs::write(scene.path("answers.jsonl"), lines).unwrap();
    let made = scene.suite(&["scaffold", "answers.jsonl", "--out", "lines.yaml"]);
    assert!(
        made.code == Some(0) && made.stdout.contains("2 cases"),
        "{made:?}"
    );
    std::fs::write(scene.path("bad.jsonl"), "{\"input\": \"i\"}\n").unwrap();
    let bad = scene.suite(&["scaffold", "bad.jsonl", "--out", "bad.yaml"]);
    assert!(
        bad.code == Some(2) && bad.stderr.contains("[0].output"),
        "{bad:?}"
    );
    assert!(!scene.path("bad.yaml").exists());
}

#[test]
fn a_record_that_cannot_be_read_is_skipped_and_told_of() {
    let scene = scene();
    assert_eq!(scene.run(&[]).code, Some(0));
    assert_eq!(scene.run(&[]).code, Some(0));
    let files = scene.record_files();
    std::fs::write(&files[1], "{\"run_id\": 3").unwrap();
    let ran = scene.run(&[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("skipped: "), "{ran:?}");
    let newest: Vec<Value> = scene
        .records()
        .read_dir()
        .unwrap()
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            (path.extension().is_some_and(|of| of == "json") && path != files[1])
                .then(|| json_of(&path))
        })
        .collect();
    let compared = newest
        .iter()
        .filter(|of| of["regression"]["baseline_run_id"] == json!(id(&files[0])));
    assert_eq!(compared.count(), 1);
}
