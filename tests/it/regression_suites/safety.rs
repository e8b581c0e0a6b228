//! Runs that are killed, and runs at the same time.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::scene::{Scene, case, echo, judge_at, usual};
use crate::scripted_judge::{Answer, ScriptedJudge, wait_until};

#[test]
fn a_killed_run_leaves_no_record_and_pays_nothing_twice() {
    let hangs = Arc::new(AtomicBool::new(true));
    let judge = {
        let hangs = Arc::clone(&hangs);
        ScriptedJudge::start(move |asked| {
            match hangs.load(Ordering::SeqCst) && asked.user.contains("question of b") {
                true => Answer::Hang,
                false => usual(asked),
            }
        })
    };
    let cases = ["a", "b"].map(|id| case(id, "seven", Some("eight"), &["factuality"]));
    let further = json!({
        "metrics": {"factuality": {"claim_extraction_depth": "deep"}},
        "judge": {"primary": judge_at(&judge, "m")}, "run": {"concurrency": 1},
    });
    let scene = Scene::new(further, &[&cases]);
    let mut run = scene.command(&["run", ".", "--no-gate"]);
    let mut child = run
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(wait_until(Duration::from_secs(30), || judge.prompt_count() == 2));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(scene.record_files().is_empty());
    hangs.store(false, Ordering::SeqCst);
    let ran = scene.run(&["--no-gate"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // The first answer was in the ledger already.
    assert_eq!(judge.prompt_count(), 3);
    assert_eq!(scene.record_files().len(), 1);
}

#[test]
fn runs_at_the_same_time_lose_no_record() {
    let scene = Scene::new(json!({}), &[&[echo("a", true)], &[echo("b", true)]]);
    let children: Vec<_> = (0..6)
        .map(|_| {
            let mut run = scene.command(&["run", ".", "--junit", ".nightmill/suite-runs/j.xml"]);
            run.stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let files = scene.record_files();
    assert_eq!(files.len(), 12);
    for file in files {
        let shown = scene.suite(&["show", &file.display().to_string()]);
        assert_eq!(shown.code, Some(0), "{shown:?}");
        let mut verify = crate::support::program();
        verify.args(["runs", "verify"]).arg(file.with_extension(""));
        let verified = super::scene::ran(&mut verify);
        assert_eq!(verified.code, Some(0), "{verified:?}");
    }
}

#[test]
fn records_that_cannot_be_kept_are_no_success() {
    let scene = Scene::new(json!({}), &[&[echo("a", true)]]);
    std::fs::write(scene.path("file"), "x").unwrap();
    let ran = scene.run(&["--out", "file"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("file"), "{ran:?}");
}
