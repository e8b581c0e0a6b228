//! Reports for programs, people and build systems.

use serde_json::{Value, json};

use super::scene::{Scene, echo, json_of};

fn scene() -> Scene {
    Scene::new(
        json!({}),
        &[&[echo("a", true), echo("b", false)], &[echo("c", true)]],
    )
}

fn text(scene: &Scene, name: &str) -> String {
    std::fs::read_to_string(scene.path(name)).unwrap()
}

#[test]
fn junit_and_markdown_go_where_they_are_wanted() {
    let scene = scene();
    let ran = scene.run(&["--junit", "out/j.xml", "--markdown", "out/m.md"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let junit = text(&scene, "out/j.xml");
    for words in [
        "<testsuites tests=\"4\" failures=\"2\" errors=\"0\" skipped=\"0\"",
        "<testsuite name=\"one\" tests=\"3\" failures=\"2\"",
        "<testcase name=\"gate max_failed_cases\" classname=\"one\">",
        "<testcase name=\"b\" classname=\"one\">",
        "<failure message=\"factuality: 0.000, threshold 0.7\" type=\"factuality\">",
        "<testcase name=\"c\" classname=\"two\"/>",
    ] {
        assert!(junit.contains(words), "{words} is not in {junit}");
    }
    let markdown = text(&scene, "out/m.md");
    for words in [
        "# Regression report: one",
        "# Regression report: two",
        "### ❌ b (",
        "### ✅ c (100.0%)",
        "| max_failed_cases | fail |",
    ] {
        assert!(markdown.contains(words), "{words} is not in {markdown}");
    }
    assert!(
        ran.stdout.contains("wrote out/j.xml") && ran.stdout.contains("wrote out/m.md"),
        "{ran:?}"
    );
    let left: Vec<String> = crate::support::entries(&scene.path("out"));
    assert_eq!(left, ["j.xml", "m.md"]);
}

#[test]
fn json_goes_to_standard_output_and_the_text_beside_it() {
    let scene = scene();
    let ran = scene.run(&["--set", "one.yaml", "--format", "json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["suite"]["name"], "one");
    assert_eq!(
        report["summary"]["severity_counts"],
        json!({"pass": 1, "warn": 0, "fail": 1})
    );
    assert_eq!(report["quality_gates"]["passed"], false);
    let metrics = &report["test_cases"][1]["metrics"]["factuality"];
    assert_eq!(metrics["passed"], false);
    assert!(metrics["details"].is_array());
    assert!(ran.stderr.contains("case b: FAILED"), "{ran:?}");
    // Several suites are a list; a file gets the same.
    let ran = scene.run(&["--format", "json", "--report-path", "r.json"]);
    let reports: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(reports.as_array().unwrap().len(), 2);
    assert_eq!(json_of(&scene.path("r.json")), reports);
}

#[test]
fn the_configuration_says_where_the_report_goes() {
    let output = json!({"output": {"default_format": "markdown", "report_path": "reports/"}});
    let scene = Scene::new(output, &[&[echo("a", true)]]);
    std::fs::create_dir(scene.path("reports")).unwrap();
    let ran = scene.run(&[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(text(&scene, "reports/report.md").starts_with("# Regression report: one"));
    let ran = scene.run(&["--format", "json", "--report-path", "other"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(json_of(&scene.path("other"))["suite"]["name"], "one");
}

#[test]
fn colour_follows_the_configuration() {
    for (choice, is_painted) in [("always", true), ("never", false), ("auto", false)] {
        let scene = Scene::new(json!({"output": {"color": choice}}), &[&[echo("a", true)]]);
        let ran = scene.run(&[]);
        assert_eq!(
            ran.stdout.contains('\u{1b}'),
            is_painted,
            "{choice}: {ran:?}"
        );
    }
}
