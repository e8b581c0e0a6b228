//! The program as a process: outputs, exit codes, kills and full disks.

use std::time::Duration;

use crate::support::{entries, entries_but_records, nightmill, program, read_parquet, summary};

const SUPPORT: &str = "datasets/support";

#[test]
fn existing_output_is_refused_and_overwritten_only_if_it_is_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let out = run.display().to_string();
    let score = |more: &[&str]| {
        nightmill(
            [
                "score",
                SUPPORT,
                "--metrics",
                "coherence",
                "--no-report",
                "--out",
                &out,
            ]
            .iter()
            .chain(more),
        )
    };
    assert_eq!(score(&[]).code, Some(0));
    let again = score(&[]);
    assert!(
        again.code == Some(2) && again.stderr.contains("--overwrite"),
        "{again:?}"
    );
    assert_eq!(score(&["--overwrite"]).code, Some(0));
    std::fs::remove_file(run.join("manifest.json")).unwrap();
    let foreign = score(&["--overwrite"]);
    assert!(
        foreign.code == Some(2) && foreign.stderr.contains("not a run directory"),
        "{foreign:?}"
    );
    assert_eq!(entries(folder.path()), ["run"], "leftovers");
    // Nor is a run replaced that holds something else, or what the new run reads.
    std::fs::remove_dir_all(&run).unwrap();
    assert_eq!(score(&[]).code, Some(0));
    let own = nightmill([
        "aggregate",
        &format!("{out}/traces"),
        "--out",
        &out,
        "--overwrite",
    ]);
    assert!(
        own.code == Some(2) && own.stderr.contains("would remove"),
        "{own:?}"
    );
    std::fs::write(run.join("thesis.txt"), "precious").unwrap();
    let precious = score(&["--overwrite"]);
    assert!(
        precious.code == Some(2) && precious.stderr.contains("thesis.txt"),
        "{precious:?}"
    );
}

#[test]
fn gates_decide_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let score = |name: &str, gate: &str| {
        let out = folder.path().join(name).display().to_string();
        nightmill([
            "score",
            SUPPORT,
            "--metrics",
            "coherence",
            "--no-report",
            "--out",
            &out,
            "--fail-under",
            gate,
        ])
    };
    assert_eq!(score("a", "coherence=0.1").code, Some(0));
    let failed = score("b", "coherence=0.99");
    assert!(
        failed.code == Some(1) && failed.stdout.contains("gate FAILED"),
        "{failed:?}"
    );
    assert_eq!(
        score("c", "agent_reliability=0.1").code,
        Some(2),
        "a gate on a metric that is not computed"
    );
}

#[test]
fn wrong_flags_and_settings_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run").display().to_string();
    let config = folder.path().join("n.toml");
    std::fs::write(&config, "windw = 3\n").unwrap();
    let config = config.display().to_string();
    for (flags, words) in [
        (vec!["--device", "cuda"], "--device"),
        (vec!["--precision", "f16"], "f32"),
        (vec!["--metrics", "coherense"], "coherence"),
        (vec!["--threshold", "coherence=2"], "from 0 to 1"),
        (vec!["--weights", "confidence=NaN"], "finite"),
        (vec!["--window", "0"], "--window"),
        (vec!["--threads", "0"], "--threads"),
        (vec!["--memory-limit", "lots"], "512M"),
        (vec!["--map", "inptu=x"], "`input`"),
        (vec!["--map", "input=question"], "`question`"),
        (vec!["--json-columns", "name"], "--json-columns"),
        (vec!["--model", "/nonexistent"], "/nonexistent"),
        (vec!["--signals", "nowhere.parquet"], "nowhere.parquet"),
        (vec!["--config", &config], "`window`"),
        (vec!["--offline", "s3://bucket/traces"], "--offline"),
    ] {
        let ran = nightmill(["score", SUPPORT, "--out", &out].iter().chain(&flags));
        assert!(
            ran.code == Some(2) && ran.stderr.contains(words),
            "{flags:?}: {ran:?}"
        );
    }
    assert_eq!(entries(folder.path()), ["n.toml"]);
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next_of_any_kind() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other").display().to_string();
    let vectors = folder.path().join("v.parquet").display().to_string();
    let score = ["score", SUPPORT, "--out", &other];
    let embed = ["embed", SUPPORT, "--columns", "output", "--out", &vectors];
    for (killed, next) in [(&score[..], &embed[..]), (&embed[..], &score[..])] {
        let mut child = program()
            .args(killed)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let hidden = || {
            entries_but_records(folder.path())
                .iter()
                .any(|n| n.starts_with('.'))
        };
        while !hidden() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(hidden(), "{killed:?} was too fast to be killed");
        assert_eq!(nightmill(next).code, Some(0));
        assert!(
            !hidden(),
            "{next:?} left {:?}",
            entries_but_records(folder.path())
        );
        let _ = std::fs::remove_file(&vectors);
        let _ = std::fs::remove_dir_all(&other);
    }
}

#[test]
fn a_run_that_is_at_work_is_left_alone_by_others() {
    let folder = tempfile::tempdir().unwrap();
    let runs: Vec<_> = (0..4)
        .map(|i| {
            let out = folder.path().join(format!("run{i}"));
            let args = ["score", SUPPORT, "--no-report", "--threads", "1", "--out"];
            program()
                .args(args)
                .arg(out)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut run in runs {
        assert!(run.wait().unwrap().success());
    }
    assert_eq!(entries(folder.path()), ["run0", "run1", "run2", "run3"]);
}

#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run").display().to_string();
    // A limit on file size fails writes as a full disk does; the signal is ignored so that they fail.
    for blocks in ["0", "8", "200"] {
        let script =
            format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" score {SUPPORT} --out \"$1\"");
        let mut shell = std::process::Command::new("bash");
        shell.current_dir(crate::support::root()).args([
            "-c",
            &script,
            env!("CARGO_BIN_EXE_nightmill"),
            &out,
        ]);
        let output = shell.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{blocks} blocks: {stderr}");
        assert!(
            stderr.contains("error:") && !stderr.contains("panicked"),
            "{blocks} blocks: {stderr}"
        );
        assert!(
            entries_but_records(folder.path()).is_empty(),
            "{blocks} blocks left {:?}",
            entries_but_records(folder.path())
        );
    }
}

#[test]
fn aggregating_the_signals_of_a_run_gives_its_session_scores() {
    let folder = tempfile::tempdir().unwrap();
    let (first, again) = (folder.path().join("first"), folder.path().join("again"));
    let path = |p: &std::path::Path| p.display().to_string();
    let signals = "datasets/support_signals.parquet";
    assert_eq!(
        nightmill([
            "score",
            SUPPORT,
            "--signals",
            signals,
            "--out",
            &path(&first)
        ])
        .code,
        Some(0)
    );
    assert_eq!(
        nightmill([
            "aggregate",
            &path(&first.join("traces")),
            "--out",
            &path(&again)
        ])
        .code,
        Some(0)
    );
    let (a, b) = (
        read_parquet(&first.join("sessions")),
        read_parquet(&again.join("sessions")),
    );
    // Signals of sessions are of texts and spans, which `aggregate` does not read.
    let common: Vec<usize> = (0..a.num_columns())
        .filter(|at| {
            b.schema()
                .column_with_name(a.schema().field(*at).name())
                .is_some()
        })
        .collect();
    assert_eq!(common.len(), b.num_columns());
    let a = a.project(&common).unwrap();
    assert!(a.num_rows() > 100 && a == b, "session tables differ");
    assert_eq!(summary(&first)["sessions"], summary(&again)["sessions"]);
}

#[test]
fn embed_keeps_rows_and_columns() {
    use arrow::array::{Array, AsArray};
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("v.parquet");
    let ran = nightmill([
        "embed",
        "datasets/chats.jsonl",
        "--columns",
        "question,answer",
        "--out",
        &out.display().to_string(),
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let table = read_parquet(&out);
    let lines: Vec<serde_json::Value> =
        std::fs::read_to_string(crate::support::root().join("datasets/chats.jsonl"))
            .unwrap()
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
    assert_eq!(table.num_rows(), lines.len());
    let questions = table.column_by_name("question").unwrap().as_string::<i32>();
    for (row, line) in lines.iter().enumerate() {
        assert_eq!(questions.value(row), line["question"].as_str().unwrap());
    }
    let vectors = table
        .column_by_name("question_embedding")
        .unwrap()
        .as_fixed_size_list();
    assert_eq!((vectors.value_length(), vectors.null_count()), (384, 0));
    let refused = nightmill([
        "embed",
        "datasets/chats.jsonl",
        "--columns",
        "questoin",
        "--out",
        &out.display().to_string(),
        "--overwrite",
    ]);
    assert!(
        refused.code == Some(2) && refused.stderr.contains("`question`"),
        "{refused:?}"
    );
}

#[test]
fn sql_knows_the_functions_and_changes_nothing() {
    let query = |sql: &str| nightmill(["sql", "--format", "csv", sql]);
    let value = |sql: &str| {
        let ran = query(sql);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.stdout.lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(
        value(r#"SELECT text_of('{"a":1e5}')"#),
        r#""{""a"": 100000.0}""#
    );
    assert_eq!(
        value("SELECT word_jaccard('red green', 'green blue')"),
        "0.3333333333333333"
    );
    assert_eq!(
        value("SELECT cosine_similarity([1.0, 0.0], [1.0, 1.0]) > 0.7"),
        "true"
    );
    assert_eq!(value("SELECT coherence('the same', 'the same')"), "1.0");
    assert_eq!(
        value("SELECT round(cosine_similarity(embed('a b'), embed('a b')), 6)"),
        "1.0"
    );
    assert_eq!(
        value(
            "SELECT agent_reliability(c, NULL, NULL, NULL)['score'] FROM (VALUES (0.4), (0.4)) t(c)"
        ),
        "0.4"
    );
    let looped = "SELECT min(l) FROM (SELECT loop_detection(output) OVER (PARTITION BY session_id ORDER BY started_at, trace_id) AS l FROM 'datasets/support')";
    assert_eq!(value(looped), "0.0");
    let folder = tempfile::tempdir().unwrap();
    let copy = format!(
        "COPY (SELECT 1) TO '{}'",
        folder.path().join("x.csv").display()
    );
    for sql in [
        copy.as_str(),
        "CREATE TABLE x AS SELECT 1",
        "SET datafusion.execution.batch_size = 1",
        "SELECT * FROM 'nowhere.parquet'",
        "SELEC 1",
    ] {
        let ran = query(sql);
        assert!(
            ran.code == Some(2) && ran.stderr.starts_with("error:"),
            "{sql}: {ran:?}"
        );
    }
    assert!(entries(folder.path()).is_empty());
}

#[test]
fn metrics_are_listed_and_help_is_there() {
    let list: serde_json::Value =
        serde_json::from_str(&nightmill(["metrics", "--json"]).stdout).unwrap();
    let names: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "coherence",
            "loop_detection",
            "task_completion",
            "tool_correctness",
            "argument_correctness",
            "step_efficiency",
            "confidence",
            "plan_adherence",
            "plan_quality",
            "factuality",
            "format",
            "tone",
            "tool_error_rate",
            "repeated_tool_calls",
            "empty_output",
            "output_truncated",
            "stuck",
            "latency",
            "tokens",
            "agent_reliability",
            "agent_consistency",
            "attention",
            "conversation"
        ]
    );
    assert_eq!(nightmill(["--help"]).code, Some(0));
    assert_eq!(nightmill(["score"]).code, Some(2));
}
