//! Runs without a judge: from the first one, which is new, to one that is worse.

use serde_json::json;

use super::scene::{Scene, case, echo, json_of};
use crate::support::{entries, read_parquet, write_parquet};

fn two() -> Scene {
    let (a, b) = ([echo("a", true), echo("b", true)], [echo("c", true)]);
    Scene::new(json!({}), &[&a, &b])
}

#[test]
fn a_run_that_is_worse_than_the_one_before_fails_its_gate() {
    let scene = two();
    let first = scene.run_json(&[], 0);
    assert_eq!(first["gates_passed"], true);
    assert_eq!(first["overall_score"], 1.0);
    let record = scene.last_record("one");
    assert_eq!(record["status"], "passed");
    assert_eq!(record["regression"]["regression_status"], "new");
    assert_eq!(record["branch"], "main");
    assert_eq!(record["trigger"], "cli");
    let baseline = record["run_id"].clone();

    scene.cases(
        "one",
        &[echo("a", true), echo("b", false), echo("fresh", true)],
    );
    let second = scene.run_json(&[], 1);
    let record = scene.last_record("one");
    assert_eq!(record["status"], "failed");
    assert_eq!(record["regression"]["baseline_run_id"], baseline);
    assert_eq!(record["regression"]["regression_status"], "critical");
    assert_eq!(
        record["regression"]["test_cases_excluded"],
        json!(["fresh"])
    );
    let gates = &record["quality_gates"]["gates"];
    assert_eq!(gates["regression"]["passed"], false);
    // The other suite is as before.
    assert_eq!(scene.last_record("two")["status"], "passed");
    let cases = second["suites"][0]["cases"].as_array().unwrap();
    let told: Vec<_> = cases
        .iter()
        .map(|of| {
            (
                of["id"].as_str().unwrap(),
                of["verdict"].as_str().unwrap(),
                of["change"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("a", "passed", "unchanged"),
            ("b", "failed", "regressed"),
            ("fresh", "passed", "new")
        ]
    );
    let check = &cases[1]["checks"][0];
    assert_eq!(check["metric"], "factuality");
    assert_eq!(check["expected"], "the answer to b is seven");
    assert_eq!(check["actual"], "something else altogether");

    // A failed run is no baseline: the third one is held against the first.
    scene.run(&[]);
    assert_eq!(
        scene.last_record("one")["regression"]["baseline_run_id"],
        baseline
    );
}

#[test]
fn the_text_says_what_failed_and_why_the_code_is_what_it_is() {
    let scene = two();
    assert_eq!(scene.run(&[]).code, Some(0));
    scene.cases("one", &[echo("a", true), echo("b", false)]);
    let ran = scene.run(&[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for words in [
        "golden set one",
        "gate FAILED regression: critical",
        "case b: FAILED",
        "the answer to b is seven",
        "something else altogether",
        "critical against the run",
        "2 suites: 1 passed, 1 failed, 0 not evaluated",
        "gates failed: the exit code is 1",
    ] {
        assert!(
            ran.stdout.contains(words),
            "{words} is not in {}",
            ran.stdout
        );
    }
    let forgiven = scene.run(&["--no-gate"]);
    assert_eq!(forgiven.code, Some(0), "{forgiven:?}");
    assert!(
        forgiven
            .stdout
            .contains("gates FAILED, and the exit code is 0"),
        "{forgiven:?}"
    );
    let ci = scene.run(&["--ci"]);
    assert_eq!(ci.code, Some(1), "{ci:?}");
    assert_eq!(scene.last_record("one")["trigger"], "ci");
    assert_eq!(scene.run(&["--ci", "--no-gate"]).code, Some(2));
}

#[test]
fn the_first_suite_that_does_not_pass_ends_the_run_if_asked() {
    let scene = two();
    scene.cases("one", &[echo("a", false)]);
    let ran = scene.run_json(&["--bail"], 1);
    assert_eq!(ran["suites"].as_array().unwrap().len(), 1);
    assert_eq!(ran["not_run"], json!(["two"]));
    assert_eq!(scene.record_files().len(), 1);
}

#[test]
fn suites_and_cases_are_chosen() {
    let scene = two();
    for wanted in ["alias-two", "two.yaml", "./two.yaml"] {
        let ran = scene.run_json(&["--set", wanted], 0);
        assert_eq!(ran["suites"].as_array().unwrap().len(), 1);
        assert_eq!(ran["suites"][0]["name"], "two");
    }
    let records = scene.record_files().len();
    assert_eq!(records, 3);
    // A part of the cases leaves no record, so that nothing is held against it later.
    let ran = scene.run_json(&["--cases", "b"], 0);
    assert_eq!(ran["suites"].as_array().unwrap().len(), 1);
    assert_eq!(ran["suites"][0]["cases"][0]["id"], "b");
    assert_eq!(ran["suites"][0]["files"], json!([]));
    assert!(
        ran["suites"][0]["notes"]
            .to_string()
            .contains("1 of 2 cases"),
        "{ran}"
    );
    assert_eq!(scene.record_files().len(), records);
    let mut tagged = echo("a", true);
    tagged["tags"] = json!(["smoke"]);
    scene.cases("one", &[tagged, echo("b", true)]);
    let ran = scene.run_json(&["--tags", "smoke"], 0);
    assert_eq!(ran["suites"][0]["cases"].as_array().unwrap().len(), 1);
    let nothing = scene.run(&["--tags", "smok"]);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
}

#[test]
fn outputs_of_a_table_are_joined() {
    let scene = Scene::new(
        json!({}),
        &[&[
            case("a", "the answer is seven", None, &["factuality"]),
            case("b", "the answer is eight", None, &["factuality"]),
        ]],
    );
    let ran = scene.run(&[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stdout.contains("no case has an actual output"),
        "{ran:?}"
    );
    let texts = |values: &[&str]| -> arrow::array::ArrayRef {
        std::sync::Arc::new(arrow::array::StringArray::from(values.to_vec()))
    };
    let table = |ids: &[&str]| {
        let rows = arrow::array::RecordBatch::try_from_iter([
            ("suite", texts(&["one", "one", "other"])),
            ("id", texts(ids)),
            (
                "actual_output",
                texts(&["the answer is seven", "the answer is eight", "x"]),
            ),
        ]);
        write_parquet(&scene.path("outputs.parquet"), &[rows.unwrap()], 10);
    };
    table(&["a", "b", "a"]);
    let ran = scene.run_json(&["--outputs", "outputs.parquet"], 0);
    assert_eq!(ran["overall_score"], 1.0);
    let notes = ran["notes"].to_string();
    assert!(
        notes.contains("2 outputs are from") && notes.contains("1 rows of outputs"),
        "{notes}"
    );
    // The suite's own file is as it was.
    assert!(
        std::fs::read_to_string(scene.path("one.yaml"))
            .unwrap()
            .contains("\"actual_output\":null")
    );
    table(&["x", "y", "z"]);
    let ran = scene.run(&["--outputs", "outputs.parquet"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    table(&["a", "a", "z"]);
    let ran = scene.run(&["--outputs", "outputs.parquet"]);
    assert!(
        ran.code == Some(2) && ran.stderr.contains("rows[1].id"),
        "{ran:?}"
    );
}

#[test]
fn a_suite_without_a_configuration_follows_the_default_rules() {
    let scene = two();
    std::fs::remove_file(scene.path("regtrace.config.yaml")).unwrap();
    let ran = scene.suite(&["run", "one.yaml", "--no-report", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(scene.record_files().len(), 1);
    // Rows of Parquet say the same.
    let texts = |values: &[&str]| -> arrow::array::ArrayRef {
        std::sync::Arc::new(arrow::array::StringArray::from(values.to_vec()))
    };
    let rows = arrow::array::RecordBatch::try_from_iter([
        ("suite", texts(&["s", "s", "t"])),
        ("id", texts(&["a", "b", "a"])),
        ("expected_output", texts(&["seven", "eight", "nine"])),
        ("actual_output", texts(&["seven", "eight", "ten"])),
        (
            "metrics",
            texts(&["factuality", "factuality", "factuality"]),
        ),
    ]);
    write_parquet(&scene.path("rows.parquet"), &[rows.unwrap()], 10);
    let ran = scene.suite(&["run", "rows.parquet", "--no-report", "--set", "s", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = scene.suite(&["run", "rows.parquet", "--no-report", "--out", "elsewhere"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(
        entries(&scene.path("elsewhere"))
            .iter()
            .filter(|of| of.ends_with(".json"))
            .count(),
        2
    );
}

#[test]
fn a_configuration_gives_its_rules_to_a_suite_that_is_named() {
    let further = json!({"metrics": {"default_threshold": 0.0}, "quality_gates": {"suite_score_minimum": 0.0, "max_failed_test_cases": 9}});
    let scene = Scene::new(further, &[&[echo("a", false)]]);
    scene.write(
        "more.yaml",
        &super::scene::suite("more", &[echo("m", false)]),
    );
    let alone = scene.suite(&["run", "more.yaml", "--no-report"]);
    assert_eq!(alone.code, Some(1), "{alone:?}");
    assert!(alone.stdout.contains("is not used"), "{alone:?}");
    let with = scene.suite(&[
        "run",
        "more.yaml",
        "--no-report",
        "--config",
        "regtrace.config.yaml",
    ]);
    assert_eq!(with.code, Some(0), "{with:?}");
    // It may also be all that is named, from a folder below it too.
    let named = scene.suite(&["run", "--no-report", "--config", "regtrace.config.yaml"]);
    assert_eq!(named.code, Some(0), "{named:?}");
    std::fs::create_dir_all(scene.path("a/b")).unwrap();
    let mut below = scene.command(&["run", "--no-report"]);
    below.current_dir(scene.path("a/b"));
    let below = super::scene::ran(&mut below);
    assert_eq!(below.code, Some(0), "{below:?}");
}

#[test]
fn tables_and_a_page_stand_beside_the_record() {
    let scene = Scene::new(json!({}), &[&[echo("a", true), echo("b", false)]]);
    let ran = scene.suite(&["run", "."]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let record = scene.record_files().remove(0);
    let folder = record.with_extension("");
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("something else altogether"));
    for (table, rows) in [
        ("metric_results", 4),
        ("case_results", 2),
        ("suite_results", 1),
        ("regression_cases", 2),
        ("gate_results", 4),
    ] {
        assert_eq!(
            read_parquet(&folder.join(table)).num_rows(),
            rows,
            "{table}"
        );
    }
    assert_eq!(
        json_of(&record)["run_id"],
        folder.file_name().unwrap().to_str().unwrap()
    );
}

#[test]
fn old_records_go_with_their_tables() {
    let scene = Scene::new(
        json!({"output": {"run_history_limit": 2}}),
        &[&[echo("a", true)]],
    );
    for _ in 0..4 {
        assert_eq!(scene.run(&[]).code, Some(0));
    }
    let files = scene.record_files();
    assert_eq!(files.len(), 2);
    let mut expected: Vec<String> = vec![".lock".to_owned()];
    for file in &files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        expected.extend([format!("{name}.json"), name]);
    }
    expected.sort();
    assert_eq!(entries(&scene.records()), expected);
}

#[test]
fn the_rules_of_the_tool_hold_where_asked() {
    // The document counts sub-checks that pass, the tool their scores; and there any baseline makes the metric fail.
    let expected = "# Title\n\nA text of some words.";
    let actual = "# Title\n\nA text of some words, and some more of them behind it.";
    let scene = Scene::new(
        json!({"quality_gates": {"suite_score_minimum": 0.0, "regression_gate": false}}),
        &[&[case("a", expected, Some(actual), &["format", "regression"])]],
    );
    let format = |scene: &Scene| {
        let record = scene.last_record("one");
        let results = &record["test_case_results"][0]["metric_results"];
        (
            results["format"]["score"].as_f64().unwrap(),
            results["regression"]["score"].as_f64().unwrap(),
        )
    };
    scene.run(&[]);
    let (document, now) = format(&scene);
    assert_eq!(now, 1.0);
    scene.run(&["--compat", "tool"]);
    let (tool, now) = format(&scene);
    assert_ne!(document, tool);
    assert_eq!(now, 0.0);
}

#[test]
fn the_shipped_example_runs() {
    let scene = Scene::new(json!({}), &[&[echo("a", true)]]);
    let example = crate::support::root().join("datasets/suites/regression");
    let example = example.display().to_string();
    let ran = scene.suite(&["run", &example, "--out", "records", "--no-report", "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let notes = ran["suites"][0]["notes"].to_string();
    assert!(notes.contains("5 pass, 2 warn, 1 fail"), "{notes}");
    let again = scene.suite(&["run", &example, "--out", "records", "--no-report"]);
    assert!(
        again.code == Some(0) && again.stdout.contains("clean against the run"),
        "{again:?}"
    );
}
