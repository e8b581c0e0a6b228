//! `nightmill export`: files of bodies, and sending them to a server that answers as a script says.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::scripted_judge::{Answer, Asked, ScriptedJudge, wait_until};
use crate::support::{Ran, program};

/// A run of four traces in two sessions, one of them with a dashed id, scored once; and room for files.
struct Scene(tempfile::TempDir);

/// The id of a trace, as OpenTelemetry writes it.
fn id(trace: usize) -> String {
    format!("80f198ee56343ba864fe8b2a57d3ef{trace:02}")
}

impl Scene {
    fn with_ids(ids: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lines: String = ids
            .iter()
            .enumerate()
            .map(|(at, id)| {
                let trace = json!({"trace_id": id, "session_id": format!("s-{}", at / 2),
                    "started_at": format!("2026-01-01T00:00:{at:02}Z"), "environment": "prod",
                    "input": format!("Where is order {at}?"), "output": format!("Order {at} is on its way.")});
                format!("{trace}\n")
            })
            .collect();
        std::fs::write(folder.path().join("traces.jsonl"), lines).unwrap();
        let scene = Self(folder);
        scene.score("run");
        scene
    }

    fn new() -> Self {
        Self::with_ids(&(0..4).map(id).collect::<Vec<_>>())
    }

    fn score(&self, out: &str) {
        let mut command = program();
        command
            .arg("score")
            .arg(self.at("traces.jsonl"))
            .args([
                "--no-report",
                "--metrics",
                "coherence,loop_detection,agent_reliability",
                "--out",
            ])
            .arg(self.at(out));
        ended(0, &mut command);
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn export(&self, to: &str, more: &[&str]) -> Command {
        self.export_of("run", to, more)
    }

    fn export_of(&self, run: &str, to: &str, more: &[&str]) -> Command {
        let mut command = program();
        // Nothing of the machine that tests.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let systems = [
                "LANGFUSE_",
                "PHOENIX_",
                "LANGSMITH_",
                "LANGCHAIN_",
                "OTEL_",
                "PANDAPROBE_",
            ];
            if systems.iter().any(|system| text.starts_with(system)) {
                command.env_remove(&name);
            }
        }
        command.env("NO_PROXY", "127.0.0.1");
        command
            .arg("export")
            .arg(self.at(run))
            .args(["--to", to])
            .args(more);
        command
    }

    /// The same, sent to a server, with keys that must never be seen again.
    fn send(&self, to: &str, server: &ScriptedJudge, more: &[&str]) -> Command {
        self.send_of("run", to, server, more)
    }

    fn send_of(&self, run: &str, to: &str, server: &ScriptedJudge, more: &[&str]) -> Command {
        let mut command = self.export_of(run, to, &["--send", "--endpoint", &server.root()]);
        command
            .arg("--export-ledger")
            .arg(self.at("sent.db"))
            .args(more);
        command.env("LANGFUSE_PUBLIC_KEY", "pk-lf-1");
        command.env("LANGFUSE_SECRET_KEY", SECRET);
        command.env("LANGSMITH_API_KEY", SECRET);
        command.env("PHOENIX_API_KEY", SECRET);
        command.env("PANDAPROBE_API_KEY", SECRET);
        command.env("PANDAPROBE_PROJECT_NAME", "support");
        command.env("OTEL_EXPORTER_OTLP_HEADERS", format!("api-key={SECRET}"));
        command
    }

    fn lines(&self, file: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.at(file)).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

const SECRET: &str = "sk-canary-0123456789";

/// A program that ended so; it never prints a key.
#[track_caller]
fn ended(code: i32, command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let ran = Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert_eq!(ran.code, Some(code), "{ran:?}");
    let all = format!("{}{}", ran.stdout, ran.stderr);
    assert!(!all.contains("canary"), "{all}");
    ran
}

/// A server that answers every request by a script.
fn server(script: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> ScriptedJudge {
    let server = ScriptedJudge::start(|_| panic!("no model is asked"));
    server.interfere(move |asked| Some(script(asked)));
    server
}

fn good(body: Value) -> Answer {
    Answer::Status(200, Vec::new(), body.to_string())
}

/// What Langfuse answers where it takes all events.
fn all_taken(asked: &Asked) -> Answer {
    let events = asked.json()["batch"].as_array().unwrap().clone();
    let taken: Vec<Value> = events
        .iter()
        .map(|event| json!({"id": event["id"], "status": 201}))
        .collect();
    let answer = json!({"successes": taken, "errors": []});
    Answer::Status(207, Vec::new(), answer.to_string())
}

/// The ids of all scores in requests to Langfuse.
fn sent_ids(server: &ScriptedJudge) -> Vec<String> {
    let asked = server.asked();
    let events = asked
        .iter()
        .flat_map(|asked| asked.json()["batch"].as_array().unwrap().clone());
    events
        .map(|event| event["body"]["id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn bodies_of_a_run_are_written_whole_and_the_same_each_time() {
    let scene = Scene::new();
    // Four traces by two metrics, and two sessions.
    let ran = ended(0, &mut scene.export("langfuse", &[]));
    assert!(ran.stdout.contains("10 scores for langfuse"), "{ran:?}");
    let first = std::fs::read(scene.at("run.langfuse.jsonl")).unwrap();
    let lines = scene.lines("run.langfuse.jsonl");
    assert_eq!(lines.len(), 10);
    let ids: BTreeSet<&str> = lines
        .iter()
        .map(|line| line["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 10);
    let coherence: Vec<&Value> = lines.iter().filter(|l| l["name"] == "coherence").collect();
    let traces: Vec<&str> = coherence
        .iter()
        .map(|l| l["traceId"].as_str().unwrap())
        .collect();
    assert_eq!(traces, (0..4).map(id).collect::<Vec<_>>());
    let told = crate::support::read_parquet(&scene.at("run/scores"));
    let scores = told.column_by_name("score").unwrap();
    let scores = scores
        .as_any()
        .downcast_ref::<arrow::array::Float64Array>()
        .unwrap();
    let first_of_all = coherence[0]["value"].as_f64().unwrap();
    assert!(scores.iter().flatten().any(|score| score == first_of_all));
    assert_eq!(coherence[0]["metadata"]["annotator_kind"], "CODE");
    assert!(
        lines
            .iter()
            .any(|l| l["sessionId"] == "s-1" && l["name"] == "agent_reliability")
    );

    let refused = ended(2, &mut scene.export("langfuse", &[]));
    assert!(refused.stderr.contains("--overwrite"), "{refused:?}");
    ended(0, &mut scene.export("langfuse", &["--overwrite"]));
    assert_eq!(
        std::fs::read(scene.at("run.langfuse.jsonl")).unwrap(),
        first
    );
    let inside = scene.at("run/scores.csv").display().to_string();
    let ran = ended(2, &mut scene.export("csv", &["--out", &inside]));
    assert!(ran.stderr.contains("inside of the run"), "{ran:?}");

    // Another run of the same spec has the same scores, with the same ids.
    scene.score("again");
    ended(0, &mut scene.export_of("again", "langfuse", &[]));
    let again = scene.lines("again.langfuse.jsonl");
    let again: BTreeSet<&str> = again
        .iter()
        .map(|line| line["id"].as_str().unwrap())
        .collect();
    assert_eq!(again, ids);

    let ran = ended(
        0,
        &mut scene.export("parquet", &["--metrics", "coherence", "--json"]),
    );
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(told["scores"], 4);
    let table = crate::support::read_parquet(&scene.at("run.parquet"));
    assert_eq!(table.num_rows(), 4);
    ended(0, &mut scene.export("csv", &["--level", "session"]));
    let csv = std::fs::read_to_string(scene.at("run.csv")).unwrap();
    assert_eq!(csv.lines().count(), 3, "{csv}");
    let ran = ended(
        2,
        &mut scene.export("csv", &["--metrics", "coherense", "--overwrite"]),
    );
    assert!(
        ran.stderr.contains("coherense")
            && ran.stderr.contains("it has agent_reliability, coherence"),
        "{ran:?}"
    );
}

#[test]
fn what_a_system_has_no_place_for_is_counted_and_said() {
    let scene = Scene::with_ids(&[
        id(0),
        "80f198ee-5634-3ba8-64fe-8b2a57d3ef77".into(),
        "t-3".into(),
    ]);
    let ran = ended(3, &mut scene.export("langsmith", &[]));
    assert!(ran.stdout.contains("4 scores for langsmith"), "{ran:?}");
    assert!(
        ran.stdout.contains("no feedback on sessions") && ran.stdout.contains("is no UUID"),
        "{ran:?}"
    );
    ended(3, &mut scene.export("otel", &[]));
    let links: BTreeSet<String> = scene
        .lines("run.otel.jsonl")
        .iter()
        .map(|line| &line["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["links"])
        .filter(|links| links != &&json!([]))
        .map(|links| links[0]["traceId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(links, BTreeSet::from([id(0), id(77)]));
    // Ids leave as they came.
    ended(0, &mut scene.export("phoenix", &["--level", "trace"]));
    let lines = scene.lines("run.phoenix.jsonl");
    assert!(
        lines
            .iter()
            .any(|l| l["trace_id"] == "80f198ee-5634-3ba8-64fe-8b2a57d3ef77")
    );
    let ran = ended(2, &mut scene.export("phoenix", &["--events"]));
    assert!(ran.stderr.contains("--to otel"), "{ran:?}");
}

#[test]
fn what_was_sent_is_not_sent_again() {
    let scene = Scene::new();
    let server = server(|asked| {
        // The first request meets a server that is not well, and then one that is busy.
        match asked.attempt {
            0 => Answer::status(503, &[], "starting"),
            1 => Answer::status(429, &[("retry-after", "1")], "slowly"),
            _ => all_taken(asked),
        }
    });
    let began = Instant::now();
    let ran = ended(0, &mut scene.send("langfuse", &server, &[]));
    assert!(
        ran.stdout
            .contains("10 scores sent to langfuse at http://127.0.0.1"),
        "{ran:?}"
    );
    assert!(
        began.elapsed() >= Duration::from_secs(1),
        "Retry-After was not waited for"
    );
    let asked = server.asked();
    assert!(
        asked
            .iter()
            .all(|asked| asked.path == "/api/public/ingestion"),
        "{asked:?}"
    );
    // pk-lf-1:sk-canary-0123456789
    assert_eq!(
        asked[0].header("authorization"),
        Some("Basic cGstbGYtMTpzay1jYW5hcnktMDEyMzQ1Njc4OQ==")
    );
    let count = asked.len();
    let ran = ended(0, &mut scene.send("langfuse", &server, &[]));
    assert!(
        ran.stdout.contains("0 scores sent") && ran.stdout.contains("10 scores sent before"),
        "{ran:?}"
    );
    // Nor is a run with the same scores.
    scene.score("again");
    let ran = ended(0, &mut scene.send_of("again", "langfuse", &server, &[]));
    assert!(ran.stdout.contains("10 scores sent before"), "{ran:?}");
    assert_eq!(server.asked().len(), count);
    // Another project is another place.
    let mut other = scene.send("langfuse", &server, &["--level", "session"]);
    other.env("LANGFUSE_PUBLIC_KEY", "pk-lf-2");
    let ran = ended(0, &mut other);
    assert!(ran.stdout.contains("2 scores sent to"), "{ran:?}");
    assert!(
        !std::fs::read(scene.at("sent.db"))
            .unwrap()
            .windows(6)
            .any(|w| w == b"canary")
    );
}

#[test]
fn a_key_that_is_not_accepted_stops_at_once() {
    let scene = Scene::new();
    let server = server(|_| Answer::status(401, &[], &format!("invalid key {SECRET}")));
    for system in ["langfuse", "phoenix", "langsmith", "otel", "pandaprobe"] {
        let before = server.asked().len();
        let more = ["--level", "trace", "--at-once", "1"];
        let ran = ended(2, &mut scene.send(system, &server, &more));
        assert!(ran.stderr.contains("does not accept the key"), "{ran:?}");
        assert_eq!(server.asked().len(), before + 1, "{system}");
    }
    let mut bare = scene.export("langfuse", &["--send"]);
    let ran = ended(2, &mut bare);
    assert!(ran.stderr.contains("LANGFUSE_PUBLIC_KEY"), "{ran:?}");
    let ran = ended(2, &mut scene.send("phoenix", &server, &["--offline"]));
    assert!(ran.stderr.contains("--offline"), "{ran:?}");
    let ran = ended(2, &mut scene.send("csv", &server, &[]));
    assert!(ran.stderr.contains("csv is a kind of file"), "{ran:?}");
}

#[test]
fn a_sending_that_was_killed_goes_on_where_it_stopped() {
    let scene = Scene::new();
    let taken = Arc::new(AtomicUsize::new(0));
    let hangs = Arc::new(Mutex::new(true));
    let server = server({
        let (taken, hangs) = (Arc::clone(&taken), Arc::clone(&hangs));
        move |_| match *hangs.lock().unwrap() && taken.load(Ordering::SeqCst) >= 3 {
            true => Answer::Hang,
            false => {
                taken.fetch_add(1, Ordering::SeqCst);
                good(json!({}))
            }
        }
    });
    let more = ["--level", "trace", "--at-once", "1"];
    let mut child = scene
        .send("langsmith", &server, &more)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(wait_until(Duration::from_secs(60), || server.asked().len() == 4));
    child.kill().unwrap();
    child.wait().unwrap();
    *hangs.lock().unwrap() = false;
    let ran = ended(0, &mut scene.send("langsmith", &server, &more));
    assert!(
        ran.stdout.contains("5 scores sent to") && ran.stdout.contains("3 scores sent before"),
        "{ran:?}"
    );
    let asked = server.asked();
    assert_eq!(asked.len(), 9);
    let ids: BTreeSet<String> = asked.iter().map(|a| a.json()["id"].to_string()).collect();
    assert_eq!(ids.len(), 8);
    assert!(
        asked
            .iter()
            .all(|a| a.path == "/feedback" && a.header("x-api-key") == Some(SECRET))
    );
}

#[test]
fn an_endpoint_that_is_away_is_said_and_left_for_later() {
    let scene = Scene::new();
    let server = server(|_| Answer::status(500, &[], "broken"));
    let ran = ended(2, &mut scene.send("phoenix", &server, &["--tries", "1"]));
    assert!(
        ran.stderr.contains("gives no answer") && ran.stderr.contains("goes on from there"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("broken"), "{ran:?}");
}

#[test]
fn one_score_that_is_refused_costs_no_other() {
    let scene = Scene::new();
    // Phoenix does not know the third trace, and says so of the whole request.
    // (Metadata of other scores name it too.)
    let about = |asked: &Value| {
        let data = asked["data"].as_array().cloned().unwrap_or_default();
        data.iter().any(|one| one["trace_id"] == id(2))
    };
    let server = server(move |asked| match about(asked.json()) {
        true => Answer::Status(404, Vec::new(), "Traces with IDs … do not exist.".into()),
        false => good(json!({"data": []})),
    });
    let ran = ended(3, &mut scene.send("phoenix", &server, &[]));
    assert!(ran.stdout.contains("8 scores sent to phoenix"), "{ran:?}");
    assert!(
        ran.stdout
            .contains("2 scores refused, because phoenix has no such trace or session: 80f198ee56343ba864fe8b2a57d3ef02"),
        "{ran:?}"
    );
    let asked = server.asked();
    let to = |path: &str| asked.iter().filter(|asked| asked.path == path).count();
    assert_eq!(to("/v1/session_annotations?sync=true"), 1);
    assert!(to("/v1/trace_annotations?sync=true") > 1);
    let bearer = format!("Bearer {SECRET}");
    assert_eq!(asked[0].header("authorization"), Some(bearer.as_str()));
    // What was refused is tried again; what was taken is not.
    let ran = ended(3, &mut scene.send("phoenix", &server, &[]));
    assert!(
        ran.stdout.contains("8 scores sent before") && ran.stdout.contains("2 scores refused"),
        "{ran:?}"
    );
}

#[test]
fn a_refusal_inside_of_an_answer_is_none_that_was_taken() {
    let scene = Scene::new();
    let server = server(|asked| {
        let events = &asked.json()["batch"];
        let errors = json!([{"id": events[0]["id"], "status": 400, "message": "odd value"}]);
        // The second is taken at the first time; the third is in neither list.
        let successes = json!([{"id": events[1]["id"], "status": 201}]);
        Answer::Status(
            207,
            Vec::new(),
            json!({"successes": successes, "errors": errors}).to_string(),
        )
    });
    let coherence = ["--metrics", "coherence"];
    let ran = ended(3, &mut scene.send("langfuse", &server, &coherence));
    assert!(
        ran.stdout.contains("1 score sent to")
            && ran
                .stdout
                .contains("3 scores refused, the first because: status 400: odd value"),
        "{ran:?}"
    );
    assert_eq!(sent_ids(&server).len(), 4);
    // What was not named is sent again, by the next command.
    let ran = ended(3, &mut scene.send("langfuse", &server, &coherence));
    assert!(ran.stdout.contains("1 score sent before"), "{ran:?}");
    let spans = self::server(|_| {
        good(json!({"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}))
    });
    let ran = ended(3, &mut scene.send("otel", &spans, &["--level", "session"]));
    assert!(
        ran.stdout
            .contains("1 score refused, the first because: too old"),
        "{ran:?}"
    );
    assert_eq!(spans.asked()[0].path, "/v1/traces");
    assert_eq!(spans.asked()[0].header("api-key"), Some(SECRET));
}

#[test]
fn feedback_that_is_there_is_updated() {
    let scene = Scene::new();
    let server = server(|asked| match asked.method.as_str() {
        "POST" => Answer::status(409, &[], "already exists"),
        _ => good(json!({})),
    });
    let more = ["--metrics", "coherence"];
    let ran = ended(0, &mut scene.send("langsmith", &server, &more));
    assert!(ran.stdout.contains("4 scores sent"), "{ran:?}");
    let asked = server.asked();
    let patched: Vec<&Asked> = asked
        .iter()
        .filter(|asked| asked.method == "PATCH")
        .collect();
    assert_eq!(patched.len(), 4);
    assert!(patched[0].path.starts_with("/feedback/") && patched[0].json()["score"].is_number());
}

#[test]
fn what_may_have_arrived_at_pandaprobe_is_looked_for_before_it_is_sent_again() {
    let scene = Scene::new();
    let kept: Arc<Mutex<Vec<Value>>> = Arc::default();
    let server = server({
        let kept = Arc::clone(&kept);
        move |asked| match asked.method.as_str() {
            "GET" => good(json!({"items": *kept.lock().unwrap()})),
            _ => {
                kept.lock().unwrap().push(asked.json().clone());
                // It is taken, and the answer is lost.
                match asked.attempt {
                    0 => Answer::CloseBeforeAnswer,
                    _ => good(json!({})),
                }
            }
        }
    });
    let more = ["--metrics", "coherence"];
    let ran = ended(0, &mut scene.send("pandaprobe", &server, &more));
    assert!(ran.stdout.contains("4 scores sent"), "{ran:?}");
    let posted = kept.lock().unwrap().clone();
    assert_eq!(posted.len(), 4, "each score is there once");
    assert!(
        posted
            .iter()
            .all(|score| score["source"] == "PROGRAMMATIC" && score["value"].is_string())
    );
    let asked = server.asked();
    assert!(
        asked
            .iter()
            .any(|asked| asked.path == "/evaluations/trace-scores")
    );
    assert_eq!(asked[0].header("x-project-name"), Some("support"));
    let ran = ended(0, &mut scene.send("pandaprobe", &server, &more));
    assert!(ran.stdout.contains("4 scores sent before"), "{ran:?}");
    // A ledger that knows nothing: what is there is seen, and not sent again.
    std::fs::remove_file(scene.at("sent.db")).unwrap();
    let ran = ended(0, &mut scene.send("pandaprobe", &server, &more));
    assert!(ran.stdout.contains("4 scores sent"), "{ran:?}");
    assert_eq!(kept.lock().unwrap().len(), 4);
    // One that says something else is updated where it stands.
    for (at, score) in kept.lock().unwrap().iter_mut().enumerate() {
        score["id"] = json!(format!("u-{at}"));
        score["metadata"]["digest"] = json!("of another time");
    }
    std::fs::remove_file(scene.at("sent.db")).unwrap();
    let before = server.asked().len();
    ended(0, &mut scene.send("pandaprobe", &server, &more));
    let asked = server.asked();
    let changed: BTreeSet<&str> = asked[before..]
        .iter()
        .filter(|asked| asked.method != "GET")
        .map(|asked| {
            assert_eq!(asked.method, "PATCH");
            asked.path.as_str()
        })
        .collect();
    assert_eq!(changed.len(), 4);
    assert!(
        changed.contains("/evaluations/trace-scores/u-0"),
        "{changed:?}"
    );
}

#[test]
fn traces_that_a_system_does_not_have_stop_nothing() {
    let ids: Vec<String> = (0..40).map(id).collect();
    let scene = Scene::with_ids(&ids);
    // It has the last of forty alone.
    let server = server(|asked| match asked.json()["run_id"] == id(39) {
        true => good(json!({})),
        false => Answer::status(404, &[], "Run not found"),
    });
    let more = ["--metrics", "coherence", "--at-once", "1"];
    let ran = ended(3, &mut scene.send("langsmith", &server, &more));
    assert!(
        ran.stdout.contains("1 score sent")
            && ran
                .stdout
                .contains("39 scores refused, because langsmith has no such trace"),
        "{ran:?}"
    );
    assert!(
        ran.stdout.contains(&format!("{}, {}", id(0), id(1))),
        "{ran:?}"
    );
    assert_eq!(server.asked().len(), 40);
}

#[test]
fn events_that_fail_for_a_time_are_sent_again_alone() {
    let scene = Scene::new();
    let server = server(|asked| {
        let events = asked.json()["batch"].as_array().unwrap().clone();
        let (failed, taken): (Vec<Value>, Vec<Value>) = match asked.number {
            0 => (events[..1].to_vec(), events[1..].to_vec()),
            _ => (Vec::new(), events),
        };
        let of = |events: Vec<Value>, status: u16| -> Vec<Value> {
            let all = events.into_iter();
            all.map(|event| json!({"id": event["id"], "status": status, "message": "later"}))
                .collect()
        };
        let answer = json!({"successes": of(taken, 201), "errors": of(failed, 503)});
        Answer::Status(207, Vec::new(), answer.to_string())
    });
    let ran = ended(
        0,
        &mut scene.send("langfuse", &server, &["--metrics", "coherence"]),
    );
    assert!(ran.stdout.contains("4 scores sent"), "{ran:?}");
    let counts: Vec<usize> = server
        .asked()
        .iter()
        .map(|asked| asked.json()["batch"].as_array().unwrap().len())
        .collect();
    assert_eq!(counts, [4, 1]);
}

#[test]
fn another_key_is_another_account() {
    let scene = Scene::new();
    let server = server(|asked| match asked.method.as_str() {
        "GET" => good(json!({"items": []})),
        _ => good(json!({})),
    });
    for (system, key) in [
        ("phoenix", "PHOENIX_API_KEY"),
        ("langsmith", "LANGSMITH_API_KEY"),
        ("otel", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("pandaprobe", "PANDAPROBE_API_KEY"),
    ] {
        let more = ["--metrics", "coherence"];
        ended(0, &mut scene.send(system, &server, &more));
        let ran = ended(0, &mut scene.send(system, &server, &more));
        assert!(ran.stdout.contains("4 scores sent before"), "{ran:?}");
        let mut other = scene.send(system, &server, &more);
        other.env(key, "api-key=of-another-account");
        let ran = ended(0, &mut other);
        assert!(ran.stdout.contains("4 scores sent to"), "{ran:?}");
    }
}

/// The ids of a run's scores of a metric.
fn ids_of(scene: &Scene, run: &str, metric: &str) -> BTreeSet<String> {
    let file = format!("ids-{run}-{metric}.jsonl");
    let out = scene.at(&file).display().to_string();
    ended(
        0,
        &mut scene.export_of(
            run,
            "langfuse",
            &["--metrics", metric, "--overwrite", "--out", &out],
        ),
    );
    let lines = scene.lines(&file);
    assert!(!lines.is_empty());
    let ids = lines
        .iter()
        .map(|line| line["id"].as_str().unwrap().to_owned());
    ids.collect()
}

#[test]
fn a_score_that_is_made_in_another_way_is_the_same_score() {
    let scene = Scene::new();
    let score = |out: &str, more: &[&str]| {
        let mut command = program();
        let metrics = "coherence,loop_detection,agent_reliability";
        command.arg("score").arg(scene.at("traces.jsonl"));
        command.args(["--no-report", "--metrics", metrics, "--out"]);
        ended(0, command.arg(scene.at(out)).args(more));
    };
    score("wide", &["--window", "5"]);
    assert_eq!(
        ids_of(&scene, "run", "coherence"),
        ids_of(&scene, "wide", "coherence")
    );
    assert!(ids_of(&scene, "run", "loop_detection").is_disjoint(&ids_of(
        &scene,
        "wide",
        "loop_detection"
    )));
    // `aggregate` folds the same signals to the same scores.
    let mut command = program();
    command.arg("aggregate").arg(scene.at("run"));
    command.args(["--metrics", "agent_reliability", "--out"]);
    ended(0, command.arg(scene.at("again")));
    assert_eq!(
        ids_of(&scene, "run", "agent_reliability"),
        ids_of(&scene, "again", "agent_reliability")
    );
    // An edited score takes the place of the one that was computed.
    let before = ids_of(&scene, "run", "coherence");
    let edit = json!({"trace_id": id(1), "name": "coherence", "value": 0.125, "reason": "by hand"});
    std::fs::write(scene.at("edit.jsonl"), format!("{edit}\n")).unwrap();
    let mut command = program();
    command.args(["runs", "scores"]).arg(scene.at("run"));
    ended(0, command.arg("--edit").arg(scene.at("edit.jsonl")));
    ended(
        0,
        &mut scene.export("langfuse", &["--metrics", "coherence"]),
    );
    let lines = scene.lines("run.langfuse.jsonl");
    let after: BTreeSet<String> = lines
        .iter()
        .map(|line| line["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(before, after);
    let edited = lines.iter().find(|line| line["traceId"] == id(1)).unwrap();
    assert_eq!(edited["value"], 0.125);
    assert_eq!(edited["metadata"]["annotator_kind"], "HUMAN");
}

#[test]
fn addresses_are_no_places_for_files() {
    let scene = Scene::new();
    let refused = ended(2, &mut scene.export("csv", &["--out", "s3://night/x.csv"]));
    assert!(
        refused.stderr.contains("written to local files"),
        "{refused:?}"
    );
    let mut monitor = program();
    monitor.args(["monitor", "add", "support"]);
    monitor.arg(scene.at("traces.jsonl"));
    monitor.args([
        "--target",
        "trace",
        "--cadence",
        "daily",
        "--metrics",
        "coherence",
    ]);
    monitor.args(["--out", "s3://night/x", "--monitors"]);
    monitor.arg(scene.at("monitors"));
    let refused = ended(2, &mut monitor);
    assert!(
        refused.stderr.contains("name a local folder"),
        "{refused:?}"
    );
    for command in [&["runs", "list"][..], &["runs", "summary"]] {
        let refused = ended(2, program().args(command).arg("s3://night/x"));
        assert!(
            refused.stderr.contains("copy the run here first"),
            "{refused:?}"
        );
    }
    let mut export = program();
    let refused = ended(2, export.args(["export", "s3://night/x", "--to", "csv"]));
    assert!(
        refused.stderr.contains("copy the run here first"),
        "{refused:?}"
    );
}

#[test]
fn an_endpoint_that_refuses_everything_is_not_asked_for_ever() {
    let ids: Vec<String> = (0..40).map(id).collect();
    let scene = Scene::with_ids(&ids);
    let server = server(|_| Answer::status(422, &[], "not so"));
    let ran = ended(
        2,
        &mut scene.send(
            "langsmith",
            &server,
            &["--level", "trace", "--at-once", "2"],
        ),
    );
    assert!(
        ran.stderr.contains("all of the first 20 scores") && ran.stderr.contains("not so"),
        "{ran:?}"
    );
    assert!(server.asked().len() < 30, "{}", server.asked().len());
}
