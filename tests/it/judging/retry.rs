//! `nightmill runs retry`: exactly what failed is asked again, and the rest stays as it was.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::{Map, Value, json};

use super::scene::{ALL_BUT_CONVERSATIONS, Scene, case_of, expect, id, reply_to, stage, traces};
use super::tables::{Table, assert_same_tables, score};
use crate::scripted_judge::{Answer, Asked, ScriptedJudge};
use crate::support::{entries, program, summary};

/// A judge that answers by `broken` until it is mended.
pub(super) struct Mendable {
    pub(super) judge: ScriptedJudge,
    mended: Arc<AtomicBool>,
}

impl Mendable {
    pub(super) fn start(
        broken: impl Fn(&Asked) -> Option<Answer> + Send + Sync + 'static,
        good: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let mended = Arc::new(AtomicBool::new(false));
        let is_mended = Arc::clone(&mended);
        let judge = ScriptedJudge::start(move |asked| {
            let fault = (!is_mended.load(Relaxed)).then(|| broken(asked)).flatten();
            fault.unwrap_or_else(|| good(asked))
        });
        Self { judge, mended }
    }

    pub(super) fn mend(&self) {
        self.mended.store(true, Relaxed);
    }

    /// What is asked while `work` is done.
    pub(super) fn asked_by(&self, work: impl FnOnce()) -> Vec<Asked> {
        let before = self.judge.prompt_count();
        work();
        self.judge.prompts().split_off(before)
    }
}

fn good(asked: &Asked) -> Answer {
    Answer::reply(reply_to(asked, 0.75))
}

pub(super) fn denied() -> Answer {
    Answer::status(400, &[], "not this one")
}

pub(super) fn retry(scene: &Scene, old: &str, new: &str) -> Command {
    let mut command = program();
    command.env_remove("OPENAI_API_KEY");
    command.env("NO_PROXY", "127.0.0.1");
    command.args(["runs", "retry"]).arg(scene.at(old));
    command.arg("--out").arg(scene.at(new));
    command
}

pub(super) fn manifest(run: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(run.join("manifest.json")).unwrap()).unwrap()
}

/// The second stage of one metric of one trace and the only one of another failed: these two calls are made, and then the
/// tables are those of a run in which nothing ever failed.
#[test]
fn exactly_the_failed_pairs_are_asked_again() {
    let scene = Scene::new(&traces(4));
    let judge = Mendable::start(
        |asked| match (case_of(asked), stage(asked)) {
            (1, "confidence_score") | (2, "task_completion_score") => Some(denied()),
            _ => None,
        },
        good,
    );
    let url = judge.judge.url();
    expect(3, &mut scene.judge(&url, ALL_BUT_CONVERSATIONS, "first"));
    judge.mend();
    let asked = judge.asked_by(|| {
        expect(0, &mut retry(&scene, "first", "second"));
    });
    let mut stages: Vec<(usize, String)> = asked
        .iter()
        .map(|asked| (case_of(asked), stage(asked).to_owned()))
        .collect();
    stages.sort();
    let expected = [(1, "confidence_score"), (2, "task_completion_score")];
    assert_eq!(stages, expected.map(|(case, s)| (case, s.to_owned())));

    expect(0, &mut scene.judge(&url, ALL_BUT_CONVERSATIONS, "whole"));
    assert_same_tables(&scene.at("second"), &scene.at("whole"));
    let (second, whole) = (summary(&scene.at("second")), summary(&scene.at("whole")));
    for of_run in ["traces", "metrics"] {
        assert_eq!(second["judge"][of_run], whole["judge"][of_run], "{of_run}");
    }
    assert_eq!(second["metrics"], whole["metrics"]);

    let told = manifest(&scene.at("second"));
    assert_eq!(told["name"], "Retry: first");
    assert_eq!(told["judge"]["filters"], json!({"retry_of": "first"}));
    assert_eq!(told["judge"]["sample"], 1.0);
    assert_eq!(told["judge"]["model"], "openai/test");
    let listed = expect(0, program().args(["runs", "list"]).arg(scene.folder()));
    assert!(listed.stdout.contains("Retry: first"), "{listed:?}");
}

/// What an analysis of runs says as JSON, and on standard error.
struct Analysed {
    rows: Vec<Value>,
    stderr: String,
}

#[track_caller]
fn analysed(args: &[&str], runs: &[PathBuf]) -> Analysed {
    let mut command = program();
    let ran = expect(0, command.arg("runs").args(args).args(runs).arg("--json"));
    Analysed {
        rows: serde_json::from_str(&ran.stdout).unwrap(),
        stderr: ran.stderr,
    }
}

/// A retry holds the scores of the run that it asks again: figures over both are those of the retry alone.
#[test]
fn a_run_and_its_retry_count_once() {
    let scene = Scene::new(&traces(4));
    let judge = Mendable::start(|asked| (case_of(asked) == 1).then(denied), good);
    let url = judge.judge.url();
    expect(3, &mut scene.judge(&url, "confidence,coherence", "first"));
    judge.mend();
    expect(0, &mut retry(&scene, "first", "second"));
    let both = || vec![scene.folder().to_owned()];
    let second = [scene.at("second")];
    let total = |rows: &[Value]| -> u64 { rows.iter().filter_map(|r| r["count"].as_u64()).sum() };
    for metric in ["confidence", "coherence"] {
        let summed = analysed(&["summary", "--metric", metric], &both());
        let [row] = summed.rows.as_slice() else {
            panic!("{:?}", summed.rows);
        };
        assert_eq!(
            (&row["success_count"], &row["failed_count"]),
            (&json!(4), &json!(0))
        );
        assert_eq!(
            row["left_out"],
            json!([{"run": "first", "retry": "second"}])
        );
        let words = "left out: `first` (its retry `second` holds all of its scores)\n";
        assert_eq!(summed.stderr, words);
        for figures in ["distribution", "trend"] {
            let of_both = analysed(&[figures, "--metric", metric], &both());
            assert_eq!(total(&of_both.rows), 4, "{figures}: {:?}", of_both.rows);
            let alone = analysed(&[figures, "--metric", metric], &second);
            assert_eq!(total(&alone.rows), 4);
            assert!(alone.rows[0].get("left_out").is_none() && alone.stderr.is_empty());
        }
    }
    // A run that is read without its retry counts.
    let first = analysed(&["summary", "--metric", "confidence"], &[scene.at("first")]);
    assert_eq!(first.rows[0]["success_count"], 3);

    // What is known of a trace is what the latest run says, be it a failure.
    let latest = |runs: &[PathBuf]| {
        let args = [
            "history",
            "--trace",
            id(1).as_str(),
            "--metric",
            "confidence",
        ]
        .map(str::to_owned);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let rows = analysed(&args, runs).rows;
        assert_eq!(rows.len(), 1, "{rows:?}");
        (rows[0]["status"].clone(), rows[0]["score"].clone())
    };
    assert_eq!(latest(&[scene.at("first")]), (json!("FAILED"), Value::Null));
    assert_eq!(latest(&both()), (json!("SUCCESS"), json!(0.75)));

    let list = |more: &[&str]| {
        let mut command = program();
        command.args(["runs", "list"]).arg(scene.folder());
        expect(0, command.args(more)).stdout
    };
    let listed: Value = serde_json::from_str(&list(&["--json"])).unwrap();
    let runs = listed.as_array().unwrap();
    let of = |name: &str| runs.iter().find(|run| run["name"] == name).unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(of("first")["retry_of"], Value::Null);
    assert_eq!(of("second")["retry_of"], "first");
    assert_eq!(of("second")["filters"], json!({"retry_of": "first"}));
    assert!(list(&[]).contains("first is retried by second"));

    // A run is known wherever it lies, and another one under its name is not taken for it.
    std::fs::rename(scene.at("first"), scene.at("moved")).unwrap();
    let summed = analysed(&["summary", "--metric", "confidence"], &both());
    assert_eq!(summed.rows[0]["success_count"], 4);
    assert_eq!(summed.rows[0]["left_out"][0]["run"], "moved");
    expect(0, &mut scene.judge(&url, "confidence,coherence", "first"));
    let two = [scene.at("first"), scene.at("second")];
    let summed = analysed(&["summary", "--metric", "confidence"], &two);
    assert_eq!(summed.rows[0]["success_count"], 8);
}

/// What did not fail is taken from the old run's table and not from the ledger, and stays what it is: pending scores too.
#[test]
fn the_rest_needs_no_ledger() {
    let scene = Scene::new(&traces(4));
    let judge = Mendable::start(|asked| (case_of(asked) == 1).then(denied), good);
    let mut first = scene.judge(&judge.judge.url(), "confidence", "first");
    // One after the other, so that the cap leaves the last trace out.
    expect(
        3,
        first.args(["--judge-concurrency", "1", "--max-calls", "3"]),
    );
    let status = |run: &str, case| score(&scene.at(run), &id(case), "confidence").status;
    assert_eq!(
        (status("first", 1), status("first", 3)),
        ("FAILED".into(), "PENDING".into())
    );
    judge.mend();
    scene.forget_answers();
    let asked = judge.asked_by(|| {
        expect(3, &mut retry(&scene, "first", "second"));
    });
    assert_eq!(asked.iter().map(case_of).collect::<Vec<_>>(), [1]);
    let statuses = (0..4).map(|case| status("second", case));
    let expected = ["SUCCESS", "SUCCESS", "SUCCESS", "PENDING"];
    assert_eq!(statuses.collect::<Vec<_>>(), expected);
    let of_traces = Table::of(&scene.at("second"), "traces");
    let expected = [Some(0.75), Some(0.75), Some(0.75), None];
    assert_eq!(of_traces.numbers("confidence"), expected);
}

/// Replies that are no good are the ledger's answers; a retry asks for one round more.
#[test]
fn unusable_answers_are_asked_for_again() {
    let scene = Scene::new(&traces(2));
    let judge = Mendable::start(
        |asked| (case_of(asked) == 1).then(|| Answer::reply("I would rather not say.")),
        good,
    );
    let url = judge.judge.url();
    expect(3, &mut scene.judge(&url, "confidence", "first"));
    let asked = judge.asked_by(|| {
        expect(3, &mut scene.judge(&url, "confidence", "again"));
    });
    assert!(asked.is_empty(), "a run takes the ledger as it is");
    // Still no good: asked as often as at first, and no more.
    let asked = judge.asked_by(|| {
        expect(3, &mut retry(&scene, "first", "second"));
    });
    assert_eq!(asked.iter().map(case_of).collect::<Vec<_>>(), [1; 6]);
    judge.mend();
    let asked = judge.asked_by(|| {
        expect(0, &mut retry(&scene, "second", "third"));
    });
    assert_eq!(asked.iter().map(case_of).collect::<Vec<_>>(), [1]);
    let told = manifest(&scene.at("third"));
    assert_eq!(told["name"], "Retry: Retry: first");
    let chain = told["retry_of"].as_array().unwrap();
    let chain: Vec<&Value> = chain.iter().map(|run| &run["name"]).collect();
    assert_eq!(chain, ["second", "first"]);
    // The last run holds what the first one scored, also where the one between them is not read.
    let two = ["first", "third"].map(|run| scene.at(run));
    let summed = analysed(&["summary", "--metric", "confidence"], &two);
    assert_eq!(summed.rows[0]["success_count"], 2);
    assert_eq!(summed.rows[0]["failed_count"], 0);
    // The ledger has all rounds: who asks for as many is answered without a call.
    let asked = judge.asked_by(|| {
        let mut whole = scene.judge(&url, "confidence", "whole");
        expect(0, whole.args(["--judge-rounds", "3"]));
    });
    assert!(asked.is_empty());
    assert_same_tables(&scene.at("third"), &scene.at("whole"));
}

/// A retry that got nothing of use has used up its round; the next one of the same run asks all the same.
#[test]
fn a_retry_after_a_retry_that_failed_asks_anew() {
    let scene = Scene::new(&traces(2));
    let judge = Mendable::start(
        |asked| (case_of(asked) == 1).then(|| Answer::reply("I would rather not say.")),
        good,
    );
    let url = judge.judge.url();
    expect(3, &mut scene.judge(&url, "confidence", "first"));
    for out in ["second", "third"] {
        let asked = judge.asked_by(|| {
            expect(3, &mut retry(&scene, "first", out));
        });
        assert_eq!(
            asked.iter().map(case_of).collect::<Vec<_>>(),
            [1; 6],
            "{out}"
        );
    }
    judge.mend();
    let asked = judge.asked_by(|| {
        expect(0, &mut retry(&scene, "first", "fourth"));
    });
    assert_eq!(asked.iter().map(case_of).collect::<Vec<_>>(), [1]);
    let row = score(&scene.at("fourth"), &id(1), "confidence");
    assert_eq!(row.raw, Some(0.75));
}

/// The same of conversations, of which one was scored in a round that the record does not count.
#[test]
fn conversations_are_asked_anew_too() {
    let scene = Scene::new(&apart(3));
    let judge = Mendable::start(
        |asked| match case_of(asked) {
            0 => None,
            _ => Some(Answer::reply("Nice talk.")),
        },
        verdict,
    );
    expect(
        3,
        &mut scene.judge(&judge.judge.url(), "conversation", "first"),
    );
    for out in ["second", "third"] {
        let asked = judge.asked_by(|| {
            expect(3, &mut retry(&scene, "first", out));
        });
        let mut cases: Vec<usize> = asked.iter().map(case_of).collect();
        cases.sort_unstable();
        assert_eq!(cases, [1, 2], "{out}");
    }
    judge.mend();
    let asked = judge.asked_by(|| {
        expect(0, &mut retry(&scene, "first", "fourth"));
    });
    assert_eq!(asked.len(), 2);
}

/// One session a trace, so that each conversation is one case.
fn apart(count: usize) -> Vec<Value> {
    let mut traces = traces(count);
    for (case, trace) in traces.iter_mut().enumerate() {
        trace["session_id"] = json!(format!("s-{case}"));
    }
    traces
}

/// A verdict of 4 of 5 for whatever metrics are asked for.
pub(super) fn verdict(asked: &Asked) -> Answer {
    let properties = asked.schema.as_ref().unwrap()["properties"].clone();
    let block = json!({"score": 4, "justification": "j", "failure_code": null, "turns": []});
    let names = properties.as_object().unwrap().keys().cloned();
    let blocks: Map<String, Value> = names.map(|name| (name, block.clone())).collect();
    Answer::reply(Value::Object(blocks))
}

#[test]
fn failed_conversations_are_asked_again() {
    let scene = Scene::new(&apart(4));
    let judge = Mendable::start(
        |asked| match case_of(asked) {
            1 => Some(denied()),
            2 => Some(Answer::reply("Nice talk.")),
            _ => None,
        },
        verdict,
    );
    let url = judge.judge.url();
    expect(3, &mut scene.judge(&url, "conversation", "first"));
    assert_eq!(
        summary(&scene.at("first"))["judge"]["conversations"]["failed"],
        2
    );
    judge.mend();

    // Without the ledger, those that have a score would be paid again.
    let mut lost = retry(&scene, "first", "second");
    let asked = judge.asked_by(|| {
        let ran = expect(2, lost.arg("--ledger").arg(scene.at("other.db")));
        assert!(ran.stderr.contains("2 conversations"), "{ran:?}");
    });
    assert!(asked.is_empty() && !scene.at("second").exists());

    let asked = judge.asked_by(|| {
        expect(0, &mut retry(&scene, "first", "second"));
    });
    let mut cases: Vec<usize> = asked.iter().map(case_of).collect();
    cases.sort_unstable();
    assert_eq!(cases, [1, 2]);
    let statuses = Table::of(&scene.at("second"), "judge_verdicts").texts("status");
    assert_eq!(statuses, vec![Some("SUCCESS".to_owned()); 4]);
    let asked = judge.asked_by(|| {
        let mut whole = scene.judge(&url, "conversation", "whole");
        expect(0, whole.args(["--judge-rounds", "2"]));
    });
    assert!(asked.is_empty());
    assert_same_tables(&scene.at("second"), &scene.at("whole"));
    assert_eq!(
        summary(&scene.at("second"))["judge"]["conversations"],
        summary(&scene.at("whole"))["judge"]["conversations"]
    );
}

#[test]
fn a_run_without_failures_is_left_alone() {
    let scene = Scene::new(&traces(2));
    let judge = ScriptedJudge::start(good);
    expect(0, &mut scene.judge(&judge.url(), "confidence", "first"));
    let before = judge.prompt_count();
    let mut command = program();
    let ran = expect(0, command.args(["runs", "retry"]).arg(scene.at("first")));
    assert_eq!(ran.stdout, "first: nothing failed\n");
    let mut command = program();
    command
        .args(["runs", "retry", "--json"])
        .arg(scene.at("first"));
    let ran = expect(0, &mut command);
    assert_eq!(ran.stdout, "null\n");
    assert!(ran.stderr.contains("first: nothing failed"), "{ran:?}");
    assert_eq!(judge.prompt_count(), before);
    let runs = entries(scene.folder());
    assert!(!runs.iter().any(|name| name.contains("retry")), "{runs:?}");
}

#[test]
fn other_traces_or_signals_are_refused() {
    let scene = Scene::new(&traces(2));
    let signals = scene.at("signals.jsonl");
    let line = json!({"trace_id": id(0), "coherence": 0.5});
    std::fs::write(&signals, format!("{line}\n")).unwrap();
    let judge = Mendable::start(|asked| (case_of(asked) == 1).then(denied), good);
    let mut first = scene.judge(&judge.judge.url(), "confidence", "first");
    expect(3, first.arg("--signals").arg(&signals));
    judge.mend();
    for file in ["traces.jsonl", "signals.jsonl"] {
        let path = scene.at(file);
        let kept = std::fs::read(&path).unwrap();
        let metadata = std::fs::metadata(&path).unwrap();
        std::fs::write(&path, [&kept[..], b"\n"].concat()).unwrap();
        let asked = judge.asked_by(|| {
            let ran = expect(2, &mut retry(&scene, "first", "second"));
            assert!(ran.stderr.contains(file), "{ran:?}");
        });
        assert!(asked.is_empty());
        std::fs::write(&path, &kept).unwrap();
        let restored = std::fs::File::options().write(true).open(&path).unwrap();
        restored.set_modified(metadata.modified().unwrap()).unwrap();
    }
    expect(0, &mut retry(&scene, "first", "second"));
}

/// The first run names everything by relative paths, maps a column and reads settings; the retry is made elsewhere.
#[test]
fn the_request_is_kept_whole() {
    let mut renamed = traces(2);
    for trace in &mut renamed {
        let members = trace.as_object_mut().unwrap();
        let input = members.remove("input").unwrap();
        members.insert("question".into(), input);
    }
    let scene = Scene::new(&renamed);
    let judge = Mendable::start(|asked| (case_of(asked) == 0).then(denied), good);
    let settings =
        "judge_temperature = \"0.5\"\n[threshold]\nconfidence = 0.8\n[map]\ninput = \"question\"\n";
    std::fs::write(scene.at("nightmill.toml"), settings).unwrap();
    let mut first = program();
    first
        .current_dir(scene.folder())
        .env("NO_PROXY", "127.0.0.1");
    first.args([
        "score",
        "traces.jsonl",
        "--no-report",
        "--out",
        "runs/first",
    ]);
    first.args(["--metrics", "confidence,coherence", "--ledger", "ledger.db"]);
    first.args(["--judge", "openai/test", "--judge-url", &judge.judge.url()]);
    expect(3, &mut first);
    std::fs::remove_file(scene.at("nightmill.toml")).unwrap();
    judge.mend();
    let asked = judge.asked_by(|| {
        let mut command = program();
        command.env("NO_PROXY", "127.0.0.1");
        expect(
            0,
            command.args(["runs", "retry"]).arg(scene.at("runs/first")),
        );
    });
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].json()["temperature"], 0.5);
    // Beside the old one unless it is told where.
    let second = scene.at("runs/first-retry");
    let row = score(&second, &id(0), "confidence");
    assert_eq!((row.raw, row.passed), (Some(0.75), Some(false)));
    assert!(!second.join("report.html").exists());
    assert_eq!(
        score(&second, &id(1), "coherence").raw,
        score(&scene.at("runs/first"), &id(1), "coherence").raw
    );
    let request = manifest(&second)["request"].clone();
    assert_eq!(request["settings"]["map"], json!(["input=question"]));
}

/// A retry of a night that another one continues is no end of the chain: who goes on from it would lose what came between.
#[test]
fn a_retry_of_a_continued_night_is_not_gone_on_from() {
    let all = traces(3);
    let scene = Scene::new(&all);
    let judge = Mendable::start(|asked| (case_of(asked) == 0).then(denied), good);
    let night = |number: usize, continues: Option<&str>, out: &str| {
        let file = scene.at(&format!("night{number}.jsonl"));
        std::fs::write(&file, format!("{}\n", all[number])).unwrap();
        let mut command = program();
        command.env("NO_PROXY", "127.0.0.1");
        command.arg("score").arg(file).arg("--no-report");
        command.args(["--metrics", "confidence"]);
        command.arg("--ledger").arg(scene.at("ledger.db"));
        command.args(["--judge", "openai/test", "--judge-url", &judge.judge.url()]);
        command.arg("--out").arg(scene.at(out));
        if let Some(run) = continues {
            command.arg("--continue").arg(scene.at(run));
        }
        command
    };
    expect(3, &mut night(0, None, "runs/1"));
    expect(3, &mut night(1, Some("runs"), "runs/2"));
    judge.mend();
    expect(0, &mut retry(&scene, "runs/1", "runs/1-retry"));
    let ran = expect(2, &mut night(2, Some("runs/1-retry"), "runs/3"));
    assert!(
        ran.stderr
            .contains("the run `2` continues `1-retry` already"),
        "{ran:?}"
    );
    expect(0, &mut night(2, Some("runs"), "runs/3"));
    assert_eq!(manifest(&scene.at("runs/3"))["continues"]["run"], "2");
    // Without the run that it asked again, its rows would hide those of later nights.
    for name in ["1", "2"] {
        let path = scene.at(&format!("runs/{name}/manifest.json"));
        let mut told = manifest(&scene.at(&format!("runs/{name}")));
        told["created_at"] = json!("2020-01-01T00:00:00Z");
        std::fs::write(path, told.to_string()).unwrap();
    }
    let mut prune = program();
    prune.args(["runs", "prune", "--keep", "30d", "--dry-run", "--json"]);
    let ran = expect(0, prune.arg(scene.at("runs")));
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(told["removed"], json!([]), "{told}");
    let why = told["kept"][0]["why"].as_str().unwrap_or_default();
    assert!(
        why.contains("1-retry, which stays, asked it again"),
        "{told}"
    );
}

/// Keys that were written out are not kept: they are asked for, and a placeholder will do.
#[test]
fn secrets_are_given_again() {
    const CANARY: &str = "sk-canary-2b9d";
    let scene = Scene::new(&traces(1));
    let judge = Mendable::start(|_| Some(denied()), good);
    let mut first = scene.judge(&judge.judge.url(), "confidence", "first");
    let header = format!("x-gateway-key={CANARY}");
    expect(3, first.args(["--judge-headers", &header]));
    let told = std::fs::read_to_string(scene.at("first/manifest.json")).unwrap();
    assert!(!told.contains(CANARY), "{told}");
    judge.mend();
    let ran = expect(2, &mut retry(&scene, "first", "second"));
    assert!(
        ran.stderr.contains("--judge-headers") && ran.stderr.contains("x-gateway-key"),
        "{ran:?}"
    );
    let mut again = retry(&scene, "first", "second");
    again.env("CANARY", CANARY);
    let asked = judge.asked_by(|| {
        expect(
            0,
            again.args(["--judge-headers", "x-gateway-key=${CANARY}"]),
        );
    });
    assert_eq!(asked[0].header("x-gateway-key"), Some(CANARY));
    // The placeholder was kept: it is enough for the next time.
    let told = manifest(&scene.at("second"))["request"]["settings"].clone();
    assert_eq!(told["judge_headers"], json!(["x-gateway-key=${CANARY}"]));
}

/// What a judge could not say, a person can: then nothing is left to ask.
#[test]
fn a_failed_score_can_be_given_by_hand() {
    let scene = Scene::new(&traces(2));
    let judge = Mendable::start(|asked| (case_of(asked) == 1).then(denied), good);
    expect(
        3,
        &mut scene.judge(&judge.judge.url(), "confidence", "first"),
    );
    let edit = |code, edit: Value| {
        std::fs::write(scene.at("edit.jsonl"), format!("{edit}\n")).unwrap();
        let mut command = program();
        command.args(["runs", "scores"]).arg(scene.at("first"));
        expect(code, command.arg("--edit").arg(scene.at("edit.jsonl")))
    };
    let ran = edit(
        2,
        json!({"trace_id": id(1), "name": "confidence", "reason": "asked her"}),
    );
    assert!(ran.stderr.contains("has no value yet"), "{ran:?}");
    edit(
        0,
        json!({"trace_id": id(1), "name": "confidence", "value": 0.5, "reason": "asked her"}),
    );
    let row = score(&scene.at("first"), &id(1), "confidence");
    assert_eq!(
        (row.status.as_str(), row.raw, row.reason.as_str()),
        ("SUCCESS", Some(0.5), "asked her")
    );
    let ran = expect(0, &mut retry(&scene, "first", "second"));
    assert_eq!(ran.stdout, "first: nothing failed\n");
}

#[test]
fn scores_that_people_gave_stay_theirs() {
    let scene = Scene::new(&traces(2));
    let judge = Mendable::start(|asked| (case_of(asked) == 1).then(denied), good);
    let url = judge.judge.url();
    expect(3, &mut scene.judge(&url, "confidence,coherence", "first"));
    let edits = [
        json!({"trace_id": id(0), "name": "confidence", "value": 0.5, "reason": "asked her"}),
        json!({"trace_id": id(0), "name": "coherence", "value": 0.125}),
    ];
    let lines: String = edits.iter().map(|edit| format!("{edit}\n")).collect();
    std::fs::write(scene.at("edit.jsonl"), lines).unwrap();
    let mut command = program();
    command.args(["runs", "scores"]).arg(scene.at("first"));
    expect(0, command.arg("--edit").arg(scene.at("edit.jsonl")));
    judge.mend();
    let ran = expect(0, &mut retry(&scene, "first", "second"));
    assert!(
        ran.stdout
            .contains("1 edited score of metrics without a judge will be computed again"),
        "{ran:?}"
    );
    let row = score(&scene.at("second"), &id(0), "confidence");
    assert_eq!((row.raw, row.reason.as_str()), (Some(0.5), "asked her"));
    let table = Table::of(&scene.at("second"), "scores");
    let rows = table
        .texts("metric")
        .into_iter()
        .zip(table.texts("target_id"));
    for ((metric, trace), source) in rows.zip(table.texts("source")) {
        let given = metric.as_deref() == Some("confidence") && trace == Some(id(0));
        let expected = if given { "ANNOTATION" } else { "AUTOMATED" };
        assert_eq!(source.as_deref(), Some(expected), "{metric:?} of {trace:?}");
    }
}

#[test]
fn what_is_pending_is_told_apart_from_what_failed() {
    let scene = Scene::new(&traces(3));
    let judge = Mendable::start(|_| None, good);
    let mut capped = scene.judge(&judge.judge.url(), "confidence", "first");
    expect(3, capped.args(["--max-calls", "1"]));
    let ran = expect(0, &mut retry(&scene, "first", "second"));
    assert!(
        ran.stdout
            .contains("no judge failed; 2 scores are still pending"),
        "{ran:?}"
    );
}
