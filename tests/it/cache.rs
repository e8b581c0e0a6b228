//! The embedding cache, by the program itself: what a second run, a killed run and two runs at once get from it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{nightmill, program, read_parquet, root, summary};

fn score(out: &Path, cache: &Path) -> Command {
    let mut command = program();
    command.env_remove("NIGHTMILL_NO_CACHE");
    command
        .args(["score", "datasets/support", "--out"])
        .arg(out)
        .arg("--cache")
        .arg(cache);
    command
}

fn scored(out: &Path, cache: &Path) -> (u64, u64, u64) {
    let output = score(out, cache).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let summary = summary(out);
    let count = |key: &str| summary[key].as_u64().unwrap();
    (
        count("distinct_texts"),
        count("cached_texts"),
        count("tokens"),
    )
}

fn files_below(folder: &Path, ending: &str) -> Vec<PathBuf> {
    walkdir::WalkDir::new(folder)
        .sort_by_file_name()
        .into_iter()
        // A folder that is not there yet holds nothing; runs at work rename files.
        .filter_map(|e| Some(e.ok()?.into_path()))
        .filter(|p| p.to_string_lossy().ends_with(ending))
        .collect()
}

/// The tables of two runs are equal byte for byte.
#[track_caller]
fn assert_same_tables(a: &Path, b: &Path) {
    let (in_a, in_b) = (files_below(a, ".parquet"), files_below(b, ".parquet"));
    assert!(in_a.len() >= 3 && in_a.len() == in_b.len());
    for (x, y) in in_a.iter().zip(&in_b) {
        assert!(
            std::fs::read(x).unwrap() == std::fs::read(y).unwrap(),
            "{} differs",
            x.display()
        );
    }
}

#[test]
fn a_second_run_encodes_nothing_says_so_and_scores_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (distinct, cached, tokens) = scored(&at("first"), &at("cache"));
    assert!(distinct > 600 && cached == 0 && tokens > 10_000);
    let output = score(&at("second"), &at("cache"))
        .arg("-v")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("696 of them cached, nothing was encoded"),
        "{text}"
    );
    assert_same_tables(&at("first"), &at("second"));
    // Another precision is another vector.
    let mut other = score(&at("other"), &at("cache"));
    assert!(
        other
            .args(["--precision", "int8"])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(summary(&at("other"))["cached_texts"], 0);
    // Without the cache nothing of it is used.
    let ran = nightmill([
        "score",
        "datasets/support",
        "--no-cache",
        "--out",
        at("without").to_str().unwrap(),
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(summary(&at("without"))["tokens"].as_u64() > Some(0));
    assert_same_tables(&at("first"), &at("without"));
}

#[test]
fn by_default_score_keeps_vectors_in_the_users_cache_folder_and_embed_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = program();
        command
            .env_remove("NIGHTMILL_NO_CACHE")
            .env("HOME", folder.path());
        command.env_remove("XDG_CACHE_HOME").args(args);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let out = |name: &str| folder.path().join(name).display().to_string();
    run(&[
        "embed",
        "datasets/chats.jsonl",
        "--columns",
        "question",
        "--out",
        &out("v.parquet"),
    ]);
    assert!(files_below(folder.path(), ".vectors").is_empty());
    run(&["score", "datasets/support", "--out", &out("run")]);
    let kept = files_below(folder.path(), ".vectors");
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert!(
        kept[0].to_string_lossy().contains("nightmill/embeddings"),
        "{kept:?}"
    );
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(kept[0].parent().unwrap())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0, "others may look into the cache");
}

#[test]
fn a_damaged_cache_costs_time_and_changes_no_score() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    scored(&at("first"), &at("cache"));
    let file = files_below(&at("cache"), ".vectors").remove(0);
    let mut bytes = std::fs::read(&file).unwrap();
    // In every tenth record, one bit of the vector.
    let record = 16 + 384 * 4 + 8;
    for at in (40 + 16 + 100..bytes.len() - record).step_by(10 * record) {
        bytes[at] ^= 0x40;
    }
    std::fs::write(&file, bytes).unwrap();
    let (distinct, cached, tokens) = scored(&at("second"), &at("cache"));
    assert!(
        cached > distinct * 8 / 10 && cached < distinct * 95 / 100 && tokens > 0,
        "{cached} of {distinct}"
    );
    assert_same_tables(&at("first"), &at("second"));
    // What was encoded again is there for the next run.
    let (_, cached, tokens) = scored(&at("third"), &at("cache"));
    assert_eq!((cached, tokens), (distinct, 0));
}

#[test]
fn a_killed_run_and_two_runs_at_once_share_their_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // At f32, so that there is time to kill it.
    let start = |out: &str| {
        let mut command = score(&at(out), &at("cache"));
        command.args(["--precision", "f32", "--threads", "1"]);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut killed = start("killed");
    let waiting = Instant::now();
    let kept = || {
        let files = files_below(&at("cache"), ".writing");
        files
            .iter()
            .filter_map(|f| std::fs::metadata(f).ok())
            .map(|m| m.len())
            .sum::<u64>()
    };
    while kept() < 200_000 {
        assert!(
            waiting.elapsed() < Duration::from_secs(60),
            "nothing was kept while running"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!at("killed").exists());
    let mut two = [start("a"), start("b")];
    for run in &mut two {
        assert!(run.wait().unwrap().success());
    }
    let [a, b] = ["a", "b"].map(|out| summary(&at(out)));
    for run in [&a, &b] {
        assert!(run["cached_texts"].as_u64().unwrap() >= 100, "{run}");
    }
    assert_same_tables(&at("a"), &at("b"));
    let mut again = start("again");
    assert!(again.wait().unwrap().success());
    assert_eq!(summary(&at("again"))["tokens"], 0);
    assert!(files_below(&at("cache"), ".writing").is_empty());
}

#[test]
fn a_cache_that_can_not_be_used_fails_only_a_run_that_asked_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "no folder").unwrap();
    let output = score(&folder.path().join("run"), &file).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        message.contains("--no-cache") && message.contains("file"),
        "{message}"
    );
    let mut command = program();
    command
        .env_remove("NIGHTMILL_NO_CACHE")
        .env("XDG_CACHE_HOME", &file);
    let run = folder.path().join("run");
    let output = command
        .args(["score", "datasets/support", "--out"])
        .arg(&run)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("keeps no vectors"),
        "{output:?}"
    );
    let mut command = score(&run, Path::new(""));
    assert_eq!(
        command.output().unwrap().status.code(),
        Some(2),
        "a cache without a name"
    );
    for size in ["0", "many"] {
        let mut command = score(&run, &folder.path().join("cache"));
        let output = command.args(["--cache-size", size]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[test]
fn embed_uses_a_cache_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let run = |out: &str| {
        let mut command = program();
        command.env_remove("NIGHTMILL_NO_CACHE").current_dir(root());
        command.args([
            "embed",
            "datasets/chats.jsonl",
            "--columns",
            "question,answer",
            "--json",
            "--cache",
        ]);
        let output = command
            .arg(at("cache"))
            .arg("--out")
            .arg(at(out))
            .output()
            .unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (
            json["cached_texts"].as_u64().unwrap(),
            json["tokens"].as_u64().unwrap(),
        )
    };
    let (cached, tokens) = run("a.parquet");
    assert!(cached == 0 && tokens > 0);
    let (cached, tokens) = run("b.parquet");
    assert!(cached > 0 && tokens == 0);
    assert_eq!(
        read_parquet(&at("a.parquet")),
        read_parquet(&at("b.parquet"))
    );
}
