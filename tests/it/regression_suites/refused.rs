//! What could be misread is refused, with the place and a remedy.

use serde_json::json;

use super::scene::{Scene, case, echo, suite};

fn scene() -> Scene {
    Scene::new(json!({}), &[&[echo("a", true)]])
}

#[track_caller]
fn refused(scene: &Scene, args: &[&str], words: &[&str]) {
    let ran = scene.suite(args);
    assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
    for words in words {
        assert!(
            ran.stderr.contains(words),
            "{words} is not in {}",
            ran.stderr
        );
    }
    assert!(scene.record_files().is_empty());
}

#[test]
fn faults_of_files_name_their_path_and_nothing_is_evaluated() {
    let scene = Scene::new(json!({}), &[&[echo("a", true)], &[echo("a", true)]]);
    let mut bad = case("x", "", Some("y"), &["factualty"]);
    bad["weight"] = json!(-1);
    scene.cases("one", &[echo("a", true), echo("a", true), bad]);
    std::fs::write(scene.path("two.yaml"), "name: x\ntest_cases: [1, 2\n").unwrap();
    // All faults of all files at once.
    refused(
        &scene,
        &["run", "."],
        &[
            "one.yaml",
            "test_cases[2].metrics[0]",
            "did you mean `factuality`",
            "test_cases[2].weight",
            "test_cases[2].expected_output",
            "test_cases[0], test_cases[1]",
            "two.yaml",
            "line",
        ],
    );
    scene.write(
        "regtrace.config.yaml",
        &json!({"golden_sets": [{"path": "one.yaml"}], "metrics": {"default_threshold": 2}}),
    );
    refused(&scene, &["run", "."], &["metrics.default_threshold"]);
    scene.write(
        "regtrace.config.yaml",
        &json!({"golden_sets": [{"path": "none.yaml"}]}),
    );
    refused(&scene, &["run", "."], &["none.yaml"]);
    let twin = suite("one", &[echo("a", true)]);
    scene.write("one.yaml", &twin);
    scene.write("two.yaml", &twin);
    scene.write(
        "regtrace.config.yaml",
        &json!({"golden_sets": [{"path": "one.yaml"}, {"path": "two.yaml"}]}),
    );
    refused(&scene, &["run", "."], &["two suites are called `one`"]);
}

#[test]
fn unknown_keys_are_told_of() {
    let scene = Scene::new(
        json!({"metrcs": {}, "generator": {}}),
        &[&[echo("a", true)]],
    );
    let ran = scene.run(&[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for words in [
        "metrcs",
        "did you mean `metrics`",
        "generator: has no effect",
    ] {
        assert!(
            ran.stdout.contains(words),
            "{words} is not in {}",
            ran.stdout
        );
    }
}

#[test]
fn names_that_are_not_there_get_the_nearest_one() {
    let scene = scene();
    refused(
        &scene,
        &["run", ".", "--set", "alias-on"],
        &["did you mean `alias-one`"],
    );
    refused(&scene, &["run", ".", "--cases", "aa"], &["--cases aa"]);
    refused(
        &scene,
        &["run", "regtrace.confg.yaml"],
        &["did you mean `regtrace.config.yaml`"],
    );
}

#[test]
fn flags_of_the_other_kind_are_refused() {
    let scene = scene();
    for flags in [
        vec!["--runs", "2"],
        vec!["--strict-metrics"],
        vec!["--result-format", "latest"],
        vec!["--evalset-pattern", "x"],
        vec!["--judge-provider", "a=openai"],
    ] {
        let args: Vec<&str> = ["run", "."].into_iter().chain(flags.clone()).collect();
        refused(
            &scene,
            &args,
            &[flags[0], "no effect on a regression suite"],
        );
    }
    let app = scene.path("shop");
    std::fs::create_dir(&app).unwrap();
    std::fs::write(
        app.join("s.evalset.json"),
        r#"{"evalSetId": "s", "evalCases": []}"#,
    )
    .unwrap();
    for flags in [
        vec!["--tags", "x"],
        vec!["--no-gate"],
        vec!["--bail"],
        vec!["--ci"],
        vec!["--baseline", "none"],
        vec!["--junit", "x"],
        vec!["--judge", "openai/m"],
    ] {
        let args: Vec<&str> = ["run", "shop", "--out", "o"]
            .into_iter()
            .chain(flags.clone())
            .collect();
        refused(&scene, &args, &[flags[0], "no effect on an evaluation set"]);
    }
    refused(&scene, &["run", "shop"], &["--out"]);
    refused(
        &scene,
        &["run", "shop", "--out", "o", "--set", "s,t"],
        &["--set"],
    );
    // Both kinds in one folder.
    refused(
        &scene,
        &["run", "."],
        &["holds both", "regtrace.config.yaml"],
    );
    refused(&scene, &["pin", "shop/s.evalset.json"], &["no record"]);
    refused(&scene, &["baseline", "shop"], &["evaluation set"]);
}

#[test]
fn flags_that_shut_each_other_out_are_refused() {
    let scene = scene();
    refused(
        &scene,
        &["run", ".", "--no-judge", "--judge", "openai/m"],
        &["--no-judge"],
    );
    refused(
        &scene,
        &["run", ".", "--json", "--format", "json"],
        &["--format"],
    );
    refused(
        &scene,
        &["run", ".", "--format", "markdown"],
        &["--report-path"],
    );
    refused(
        &scene,
        &["run", ".", "--junit", "x", "--markdown", "x"],
        &["two reports"],
    );
    refused(&scene, &["run", ".", "--junit", "."], &["is a folder"]);
    refused(&scene, &["run", ".", "--compat", "tol"], &["tool"]);
    refused(
        &scene,
        &["run", "one.yaml", "--set", "on"],
        &["did you mean `one`"],
    );
}

#[test]
fn a_case_without_a_metric_is_not_evaluated() {
    let scene = Scene::new(
        json!({"metrics": {"enabled": ["factuality"]}, "quality_gates": {"suite_score_minimum": 0}}),
        &[&[echo("a", true), case("b", "x", Some("x"), &["tone"])]],
    );
    let ran = scene.run_json(&[], 3);
    assert_eq!(ran["suites"][0]["cases"][1]["verdict"], "not_evaluated");
}

#[test]
fn a_report_never_takes_the_place_of_what_is_read() {
    let scene = scene();
    for (flag, file) in [
        ("--junit", "one.yaml"),
        ("--markdown", "regtrace.config.yaml"),
        ("--report-path", "./one.yaml"),
    ] {
        let before = std::fs::read(scene.path(file)).unwrap();
        refused(&scene, &["run", ".", flag, file], &["name another file"]);
        assert_eq!(std::fs::read(scene.path(file)).unwrap(), before);
    }
}
