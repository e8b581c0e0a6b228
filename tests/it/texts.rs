//! What the program prints, whole: a change to a reader's text shows as a change of a file in `snapshots/`.
//!
//! `INSTA_UPDATE=always cargo test --release --test it texts` writes the files anew.

use crate::support::nightmill;

const SUPPORT: &str = "datasets/support";

/// A text without what differs from run to run: folders, times and rates.
fn steady(text: &str, folder: &std::path::Path) -> String {
    let text = text.replace(&folder.display().to_string(), "FOLDER");
    let lines = text.lines().map(|line| {
        if line.starts_with("time: ") {
            return "time: …".to_owned();
        }
        // The rate is the last figure of its line.
        match line
            .rsplit_once(", ")
            .filter(|(_, rate)| rate.ends_with(" tokens/s"))
        {
            Some((rest, _)) => format!("{rest}, … tokens/s"),
            None => line.trim_end().to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn printed(args: &[&str], folder: &std::path::Path) -> String {
    let ran = nightmill(args);
    let text = format!(
        "{}{}exit code {}",
        ran.stdout,
        ran.stderr,
        ran.code.unwrap()
    );
    steady(&text, folder)
}

#[test]
fn what_score_says_at_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run").display().to_string();
    // At f32 the figures are the same on all processors.
    let score = ["score", SUPPORT, "--precision", "f32", "--out", &out];
    let said = printed(&score, folder.path());
    assert!(
        said.lines().all(|line| line.chars().count() <= 80),
        "{said}"
    );
    insta::assert_snapshot!(said);
    let whole = nightmill([&score[..], &["--overwrite", "-v"]].concat());
    assert_eq!(whole.code, Some(0), "{whole:?}");
    insta::assert_snapshot!(
        "what_score_says_in_full",
        steady(&whole.stdout, folder.path())
    );
}

#[test]
fn what_lists_say() {
    let folder = tempfile::tempdir().unwrap();
    insta::assert_snapshot!("metrics", printed(&["metrics"], folder.path()));
    insta::assert_snapshot!("functions", printed(&["sql", "--functions"], folder.path()));
}

#[test]
fn what_a_plan_says() {
    let folder = tempfile::tempdir().unwrap();
    let plan = [
        "plan",
        SUPPORT,
        "--metrics",
        "confidence,plan_quality,plan_adherence",
        "--judge",
        "openai/gpt-4o-mini",
    ];
    insta::assert_snapshot!(printed(&plan, folder.path()));
}

#[test]
fn what_help_says_first() {
    let folder = tempfile::tempdir().unwrap();
    insta::assert_snapshot!("help", printed(&["--help"], folder.path()));
    insta::assert_snapshot!("help_of_score", printed(&["score", "-h"], folder.path()));
}

#[test]
fn what_faults_say() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run").display().to_string();
    let bad = folder.path().join("bad.jsonl");
    std::fs::write(&bad, "{\"trace_id\": \"a\", \"output\": \"x\"}\n{\n").unwrap();
    let bad = bad.display().to_string();
    let faults = [
        &["score", SUPPORT, "--out", &out, "--metrics", "coherense"][..],
        &["score", SUPPORT, "--out", &out, "--windw", "3"],
        &["score", "nowhere", "--out", &out],
        &["score", SUPPORT, "--out", &out, "--metrics", "confidence"],
        &[
            "score",
            &bad,
            "--out",
            &out,
            "--metrics",
            "coherence",
            "--no-report",
        ],
        &["runs", "show", "nowhere"],
    ];
    let texts = faults.map(|args| printed(args, folder.path()));
    insta::assert_snapshot!(texts.join("\n---\n"));
}
