use super::*;
use crate::history::figures::{ScoreFilter, Target};

fn run_in(folder: &Path, name: &str) -> PathBuf {
    let run = folder.join(name);
    fs::create_dir_all(&run).unwrap();
    let manifest = r#"{"nightmill":"0.1.0","command":"score","created_at":"2026-01-31T03:00:00Z"}"#;
    fs::write(run.join(MANIFEST), manifest).unwrap();
    let summary = r#"{"traces":7,"sessions":2,"quarantined":0,"unreadable_files":0,"failed_signals":0,
        "judge":{"metrics":[{"judged":3,"failed":0,"pending":0},{"judged":4,"failed":0,"pending":0}]}}"#;
    fs::write(run.join(SUMMARY), summary).unwrap();
    run
}

#[test]
fn runs_are_found_once_and_other_folders_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (b, a) = (run_in(&root, "b"), run_in(&root, "a"));
    run_in(&root, ".hidden");
    fs::create_dir(root.join("notes")).unwrap();
    fs::create_dir(run_in(&root, "compared").join("run_comparison")).unwrap();
    let found = find_runs(&[b.clone(), root.clone(), a.join("../b")]).unwrap();
    assert_eq!(found, [b, a]);
    for nowhere in ["notes", "none", "compared"].map(|name| root.join(name)) {
        let error = find_runs(std::slice::from_ref(&nowhere)).unwrap_err();
        assert_eq!(error, HistoryError::Nothing(nowhere));
    }
}

#[test]
fn a_run_says_what_it_is_or_what_is_wrong_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = run_in(folder.path(), "nightly");
    let run = read_run(&path).unwrap();
    assert_eq!(
        (run.name.as_str(), run.traces, run.judged),
        ("nightly", 7, 7)
    );
    assert_eq!(run.status, RunStatus::Completed);

    let text = fs::read_to_string(path.join(SUMMARY)).unwrap();
    let pending = text.replacen('{', r#"{"pending_signals":1,"#, 1);
    fs::write(path.join(SUMMARY), pending).unwrap();
    let run = read_run(&path).unwrap();
    assert_eq!((run.status, run.pending), (RunStatus::Incomplete, 1));

    // Conversations count like traces.
    let failed = text.replacen(
        r#""metrics":"#,
        r#""conversations":{"judged":1,"failed":2,"pending":0},"metrics":"#,
        1,
    );
    fs::write(path.join(SUMMARY), failed).unwrap();
    let run = read_run(&path).unwrap();
    assert_eq!(
        (run.status, run.failed, run.judged),
        (RunStatus::Incomplete, 2, 8)
    );

    // Signals that nobody asked for are counted apart, and leave the run incomplete.
    let failed = text
        .replacen(r#""failed_signals":0"#, r#""failed_signals":5"#, 1)
        .replacen(
            "{",
            r#"{"metrics":[{"name":"confidence","level":"trace","failed":3},
            {"name":"coherence","level":"trace","failed":2},
            {"name":"agent_reliability","level":"session","failed":0}],"#,
            1,
        );
    fs::write(path.join(SUMMARY), failed).unwrap();
    for (asked, expected) in [
        (r#"["agent_reliability"]"#, (0, 5)),
        (r#"["agent_reliability","coherence"]"#, (2, 3)),
        (r#"["confidence","coherence"]"#, (5, 0)),
    ] {
        let manifest = format!(
            r#"{{"command":"score","created_at":"2026-01-31T03:00:00Z","metric_names":{asked}}}"#
        );
        fs::write(path.join(MANIFEST), manifest).unwrap();
        let run = read_run(&path).unwrap();
        assert_eq!((run.failed, run.failed_signals), expected, "{asked}");
        assert_eq!(run.status, RunStatus::Incomplete);
    }

    let filter = ScoreFilter::all(Target::Trace);
    let error = stored_metrics(&[run], &filter).unwrap_err().to_string();
    assert!(
        error.contains("nightly") && error.contains(SCORES),
        "{error}"
    );
    fs::write(path.join(SUMMARY), "{").unwrap();
    let error = read_run(&path).unwrap_err().to_string();
    assert!(
        error.contains("nightly") && error.contains(SUMMARY),
        "{error}"
    );
    fs::remove_file(path.join(MANIFEST)).unwrap();
    assert_eq!(read_run(&path), Err(HistoryError::Unfinished(path)));
}
