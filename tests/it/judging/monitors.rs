//! Monitors of sessions, and the signals that a judge gives them.

use std::process::Command;

use super::scene::{Scene, expect, reply_to, traces};
use super::tables::Table;
use crate::scripted_judge::{Answer, ScriptedJudge};
use crate::support::{entries, program};

fn monitor(scene: &Scene, variable: Option<&str>) -> Command {
    let mut command = program();
    command.env_remove("OPENAI_API_KEY");
    command.env("NO_PROXY", "127.0.0.1");
    if let Some(model) = variable {
        command.env("NIGHTMILL_JUDGE", model);
    }
    command.args(["monitor", "--monitors"]);
    command.arg(scene.at("monitors"));
    command
}

#[test]
fn a_session_monitor_takes_signals_of_the_judge_wherever_it_is_named() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(|asked| Answer::reply(reply_to(asked, 0.5)));
    let file = scene.at("judge.toml");
    std::fs::write(&file, "judge = \"openai/test\"\n").unwrap();
    let file = file.display().to_string();
    let url = format!("judge_url={}", judge.url());
    let ledger = format!("ledger={}", scene.at("ledger.db").display());
    // Calls of a run, and the traces that its score rests on.
    let ran = |name: &str, own: &[&str], config: &[&str], variable: Option<&str>| {
        scene.forget_answers();
        let before = judge.prompt_count();
        let out = scene.at(name);
        let mut add = monitor(&scene, variable);
        add.args(["add", name]).arg(scene.at("traces.jsonl"));
        add.args(["--target", "session", "--metrics", "agent_consistency"]);
        add.args(["--cadence", "daily", "--set", &url, "--set", &ledger]);
        add.arg("--out").arg(&out).args(own).args(config);
        expect(0, &mut add);
        let mut trigger = monitor(&scene, variable);
        expect(0, trigger.args(["trigger", name]).args(config));
        let runs = entries(&out);
        assert_eq!(runs.len(), 1, "{runs:?}");
        let sessions = Table::of(&out.join(&runs[0]), "sessions");
        let evaluated = sessions.numbers("agent_consistency_evaluated_traces");
        (judge.prompt_count() - before, evaluated)
    };
    // One question about confidence and two about tools, for each trace.
    let judged = (6, vec![Some(2.0)]);
    let own = ["--judge", "openai/test"];
    assert_eq!(ran("own", &own, &[], None), judged);
    assert_eq!(ran("file", &[], &["--config", &file], None), judged);
    assert_eq!(ran("variable", &[], &[], Some("openai/test")), judged);
    assert_eq!(ran("nobody", &[], &[], None), (0, vec![Some(0.0)]));
}
