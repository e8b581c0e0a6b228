//! Flags that would change nothing are refused, with what would give them an effect.

use crate::support::{nightmill, program};

const SUPPORT: &str = "datasets/support";

#[track_caller]
fn refused(args: &[&str], flag: &str) {
    let ran = nightmill(args);
    assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
    let first = ran.stderr.lines().next().unwrap_or_default();
    assert!(first.contains(flag), "{args:?}: {ran:?}");
}

#[test]
fn a_flag_without_effect_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    let score = |more: &[&str], flag: &str| {
        let args = [&["score", SUPPORT, "--no-report", "--out", out][..], more].concat();
        refused(&args, flag);
    };
    for (more, flag) in [
        (
            &["--gpu-graph", "packed", "--device", "cpu"][..],
            "--gpu-graph",
        ),
        (
            &["--gpu-graph", "packed", "--precision", "f32"],
            "--precision f32",
        ),
        (&["--judge-sample", "0.5"][..], "--judge-sample"),
        (&["--sample-seed", "1"], "--sample-seed"),
        (&["--judge", "openai/x"], "--judge"),
        (&["--judge-where", "coherence < 1"], "--judge-where"),
        (&["--max-cost", "1"], "--max-cost"),
        (&["--batch"], "--batch"),
        (&["--replay"], "--replay"),
        (&["--ledger", "l.db"], "--ledger"),
        (&["--metrics", "coherence", "--window", "4"], "--window"),
        (
            &["--metrics", "coherence", "--threshold", "confidence=0.5"],
            "--threshold confidence",
        ),
        (
            &["--metrics", "coherence", "--on-no-evaluable", "one"],
            "--on-no-evaluable",
        ),
        (&["--weights", "coherense=1"], "`coherence`"),
        (&["--no-cache", "--cache-size", "1G"], "--cache-size"),
    ] {
        score(more, flag);
    }
    // With a judge, what only matters to others.
    let judged = ["--metrics", "confidence", "--judge", "openai/x"];
    for (more, flag) in [
        (&["--sample-seed", "1"][..], "--sample-seed"),
        (&["--window", "4"], "--window"),
        (&["--judge-config", "c.toml"], "--judge-config"),
        (
            &["--judge-model", "plan_quality=openai/y"],
            "--judge-model plan_quality",
        ),
        (&["--precision", "f32"], "--precision"),
    ] {
        score(&[&judged[..], more].concat(), flag);
    }
    refused(&["plan", SUPPORT, "--judge-sample", "0.5"], "--metrics");
    assert!(!folder.path().join("out").exists());
}

#[test]
fn other_commands_refuse_what_they_have_no_use_for() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name).display().to_string();
    let signals = "datasets/support_signals.parquet";
    for (flag, value) in [
        ("--model", "m"),
        ("--signals", "s"),
        ("--judge-sample", "0.5"),
        ("--judge", "openai/x"),
        ("--max-calls", "1"),
    ] {
        refused(
            &["aggregate", signals, "--out", &out("a"), flag, value],
            flag,
        );
    }
    let chats = "datasets/chats.jsonl";
    let vectors = out("v.parquet");
    let embed = ["embed", chats, "--columns", "question", "--out", &vectors];
    refused(&[&embed[..], &["--cache-size", "1G"]].concat(), "--cache");
    for (more, flag) in [
        (&["--window", "3"][..], "--window"),
        (&["--weights", "confidence=1"], "--weights"),
        (&["--model", "m"], "--model"),
        (&["--text-mode", "content"], "--text-mode"),
        (&["--overwrite"], "--overwrite"),
    ] {
        refused(&[&["sql", "SELECT 1"][..], more].concat(), flag);
    }
    refused(&["sql", "SELECT 1", "--out", &out("a.xlsx")], "--out");
    refused(&["sql", "--functions", "SELECT 1"], "--functions");
    let runs = [out("one"), out("two")];
    refused(
        &[
            "runs",
            "comparison",
            &runs[0],
            &runs[1],
            "--judge",
            "openai/x",
        ],
        "--judge",
    );
    let turns = folder.path().join("turns.jsonl");
    std::fs::write(&turns, "{}\n").unwrap();
    let turns = turns.display().to_string();
    refused(
        &["conversations", &turns, "--dry-run", "--window", "3"],
        "--window",
    );
}

/// What a file or the environment says may be meant for other commands.
#[test]
fn settings_of_the_environment_may_have_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program();
    command
        .args(["score", SUPPORT, "--metrics", "coherence", "--no-report"])
        .arg("--out")
        .arg(folder.path().join("run"));
    command.env("NIGHTMILL_JUDGE", "openai/x");
    command.env("NIGHTMILL_WINDOW", "5");
    command.env("NIGHTMILL_JUDGE_SAMPLE", "0.5");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn help_offers_no_flag_that_is_refused() {
    for (command, hidden, shown) in [
        (
            "aggregate",
            &["--judge ", "--model ", "--judge-sample "][..],
            "--weights",
        ),
        (
            "conversations",
            &["--window ", "--judge-where "],
            "--judge ",
        ),
    ] {
        let help = nightmill([command, "--help"]).stdout;
        for flag in hidden {
            assert!(!help.contains(flag), "{command} offers {flag}");
        }
        assert!(help.contains(shown), "{command} hides {shown}");
    }
}
