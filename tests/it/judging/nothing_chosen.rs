//! A run whose filters or condition no trace passes says so.

use super::scene::{Scene, expect, traces};
use crate::scripted_judge::{Answer, ScriptedJudge};
use crate::support::summary;

#[test]
fn a_choice_that_no_trace_passes_is_named() {
    let scene = Scene::new(&traces(3));
    let judge = ScriptedJudge::start(|_| Answer::reply("nobody asks"));
    let only = "name=zzz,status=ERROR,from=2026-01-01T00:00:00Z";
    let condition = "trace_id = 'zzz'";
    for (at, (flags, named)) in [
        (vec!["--judge-only", only], format!("--judge-only {only}")),
        (vec!["--judge-tags", "a,b"], "--judge-tags a,b".to_owned()),
        (
            vec!["--judge-where", condition, "--judge-only", "user=u"],
            format!("--judge-only user=u --judge-where '{condition}'"),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        for metrics in ["confidence", "conversation"] {
            let out = format!("{metrics}{at}");
            let mut command = scene.judge(&judge.url(), metrics, &out);
            let ran = expect(0, command.args(&flags).args(["--judge-sample", "0.5"]));
            let warning = format!("{named}: no trace passes");
            assert!(ran.stderr.contains(&warning), "{ran:?}");
            let note = format!("nothing was judged: no trace passes {named}");
            assert!(ran.stdout.contains(&note), "{ran:?}");
            let told = &summary(&scene.at(&out))["judge"]["passed_by_none"];
            assert_eq!(told, named.as_str());
        }
    }
    // Where some pass, or none were wanted, there is nothing to say.
    for (out, flags) in [
        ("some", ["--judge-only", "name=support", "--max-calls", "0"]),
        (
            "none",
            ["--judge-only", "name=support", "--judge-sample", "0"],
        ),
    ] {
        let code = if out == "some" { 3 } else { 0 };
        let mut command = scene.judge(&judge.url(), "confidence", out);
        let ran = expect(code, command.args(flags));
        assert!(!ran.stdout.contains("no trace passes"), "{ran:?}");
    }
    assert_eq!(judge.prompt_count(), 0);
}

#[test]
fn the_report_names_the_choice_too() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(|_| Answer::reply("nobody asks"));
    let mut command = crate::support::program();
    command.arg("score").arg(scene.at("traces.jsonl"));
    command.args(["--metrics", "confidence", "--judge-only", "name=<zzz>"]);
    command.args(["--judge", "openai/test", "--judge-url", &judge.url()]);
    command.arg("--ledger").arg(scene.at("ledger.db"));
    expect(0, command.arg("--out").arg(scene.at("run")));
    let report = std::fs::read_to_string(scene.at("run").join("report.html")).unwrap();
    let section = report.split("no trace passes").nth(1).unwrap();
    assert!(
        section.contains("--judge-only name=&lt;zzz&gt;"),
        "{section}"
    );
}
