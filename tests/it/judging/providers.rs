//! Judges of Anthropic and Gemini by the program itself: what they are sent, what is counted, and that keys stay secret.

use std::process::Command;

use serde_json::json;

use super::scene::{Scene, case_of, expect, id, traces};
use super::secrets::{BEGIN, CANARY, assert_no_key_below};
use super::tables::score;
use crate::scripted_judge::{Answer, Asked, Dialect, Finish, Reply, ScriptedJudge};
use crate::support::{entries, summary};

/// A provider as the program is told of it, and as it sees the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    dialect: Dialect,
    /// The word of --judge-protocol.
    protocol: &'static str,
    model: &'static str,
    /// What follows the server in a base URL.
    base: &'static str,
    variable: &'static str,
    /// The header with the key.
    header: &'static str,
}

pub(super) const OPENAI: Wire = Wire {
    dialect: Dialect::OpenAi,
    protocol: "openai",
    model: "openai/test",
    base: "/v1",
    variable: "OPENAI_API_KEY",
    header: "authorization",
};
pub(super) const ANTHROPIC: Wire = Wire {
    dialect: Dialect::Anthropic,
    protocol: "anthropic",
    model: "anthropic/claude-test",
    base: "/v1",
    variable: "ANTHROPIC_API_KEY",
    header: "x-api-key",
};
pub(super) const GEMINI: Wire = Wire {
    dialect: Dialect::Gemini,
    protocol: "gemini",
    model: "gemini/gemini-test",
    base: "/v1beta",
    variable: "GEMINI_API_KEY",
    header: "x-goog-api-key",
};
pub(super) const BOTH: [Wire; 2] = [ANTHROPIC, GEMINI];

const KEY: &str = "key-of-the-environment";
pub(super) const GOOD: &str = "{\"confidence\": 0.75, \"reason\": \"sure\"}";

impl Wire {
    /// `score` by `confidence` with this judge at no URL of its own and without a key.
    fn bare(self, scene: &Scene, out: &str) -> Command {
        let mut command = scene.score("confidence", out);
        for wire in BOTH {
            command.env_remove(wire.variable);
        }
        command.args(["--judge", self.model]);
        command
    }

    /// The same, asking `judge`, with a key in the environment.
    pub(super) fn command(self, scene: &Scene, judge: &ScriptedJudge, out: &str) -> Command {
        self.command_at(scene, judge, "", out)
    }

    /// The same, with something behind the base URL.
    pub(super) fn command_at(
        self,
        scene: &Scene,
        judge: &ScriptedJudge,
        after: &str,
        out: &str,
    ) -> Command {
        let mut command = self.bare(scene, out);
        command.env(self.variable, KEY);
        let url = format!("{}{}{after}", judge.root(), self.base);
        command.args(["--judge-url", &url, "--judge-protocol", self.protocol]);
        command
    }

    /// An error in the provider's own shape.
    pub(super) fn error(
        self,
        status: u16,
        headers: &[(&str, &str)],
        kind: &str,
        message: &str,
    ) -> Answer {
        let body = match self.dialect {
            Dialect::Anthropic => json!({
                "type": "error",
                "error": {"type": kind, "message": message},
                "request_id": "req_1",
            }),
            _ => json!({"error": {"code": status, "message": message, "status": kind}}),
        };
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Answer::Status(status, headers.collect(), body.to_string())
    }

    /// Judges one trace to the end with this exit code; what the script was asked.
    #[track_caller]
    pub(super) fn judged(
        self,
        code: i32,
        script: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> (Scene, Vec<Asked>) {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(script);
        expect(code, &mut self.command(&scene, &judge, "run"));
        (scene, judge.prompts())
    }

    /// Judges one trace and expects its score after so many equal requests.
    #[track_caller]
    pub(super) fn recovers(
        self,
        requests: usize,
        script: impl Fn(&Asked) -> Answer + Send + Sync + 'static,
    ) -> Vec<Asked> {
        let (scene, asked) = self.judged(0, script);
        assert_eq!(asked.len(), requests, "{self:?}");
        assert!(asked.iter().all(|a| a.body == asked[0].body), "{self:?}");
        assert_eq!(raw(&scene), Some(0.75), "{self:?}");
        let calls = summary(&scene.at("run"))["judge"]["calls"].clone();
        assert_eq!(
            (&calls["sent"], &calls["answered"]),
            (&requests.into(), &1.into())
        );
        asked
    }
}

#[track_caller]
pub(super) fn raw(scene: &Scene) -> Option<f64> {
    score(&scene.at("run"), &id(0), "confidence").raw
}

pub(super) fn good() -> Answer {
    Answer::reply(GOOD)
}

/// The same question as OpenAI's protocol carries, and nothing else.
#[test]
fn questions_are_put_in_the_providers_own_words() {
    for wire in BOTH {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(|_| good());
        let rules = ["--judge-temperature", "0.25", "--judge-max-output", "321"];
        let mut known = scene.judge(&judge.url(), "confidence", "known");
        expect(0, known.args(rules));
        expect(0, wire.command(&scene, &judge, "run").args(rules));
        let row = score(&scene.at("run"), &id(0), "confidence");
        assert_eq!((row.raw, row.reason.as_str()), (Some(0.75), "sure"));
        assert_eq!(row.model.as_deref(), Some(wire.model));

        let asked = judge.prompts();
        assert_eq!(asked.len(), 2, "{wire:?}");
        let (known, asked) = (&asked[0], &asked[1]);
        assert_eq!(asked.dialect, Some(wire.dialect));
        assert!(!known.system.is_empty() && known.schema.is_some());
        let (path, body) = match wire.dialect {
            Dialect::Anthropic => (
                "/v1/messages",
                json!({
                    "model": "claude-test",
                    "stream": false,
                    "system": known.system,
                    "messages": [{"role": "user", "content": known.user}],
                    "output_config": {"format": {"type": "json_schema", "schema": known.schema}},
                    "temperature": 0.25,
                    "max_tokens": 321,
                }),
            ),
            _ => (
                "/v1beta/models/gemini-test:generateContent",
                json!({
                    "systemInstruction": {"parts": [{"text": known.system}]},
                    "contents": [{"role": "user", "parts": [{"text": known.user}]}],
                    "generationConfig": {
                        "responseMimeType": "application/json",
                        "responseJsonSchema": known.schema,
                        "temperature": 0.25,
                        "maxOutputTokens": 321,
                    },
                }),
            ),
        };
        assert_eq!((asked.path.as_str(), asked.json()), (path, &body));
        assert_eq!(asked.header(wire.header), Some(KEY));
        assert_eq!(asked.header("authorization"), None);
        assert_eq!(asked.header("content-type"), Some("application/json"));
        let version = (wire.dialect == Dialect::Anthropic).then_some("2023-06-01");
        assert_eq!(asked.header("anthropic-version"), version);
    }
}

#[test]
fn the_key_of_a_file_goes_before_that_of_the_environment() {
    for wire in BOTH {
        let scene = Scene::new(&traces(1));
        let file = scene.at("key");
        std::fs::write(&file, "key-of-a-file\n").unwrap();
        let judge = ScriptedJudge::start(|_| good());
        let mut command = wire.command(&scene, &judge, "run");
        expect(0, command.arg("--judge-key-file").arg(&file));
        let asked = judge.prompts();
        assert_eq!(asked[0].header(wire.header), Some("key-of-a-file"));
        assert_eq!(raw(&scene), Some(0.75));
    }
}

/// Every way out of the machine leads to the judge here, and nothing arrives.
#[test]
fn a_missing_key_is_named_before_anything_is_sent() {
    for wire in BOTH {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(|_| good());
        for key in [None, Some(" ")] {
            let mut command = wire.bare(&scene, "run");
            command.env("HTTPS_PROXY", judge.root());
            command.env("https_proxy", judge.root());
            if let Some(key) = key {
                command.env(wire.variable, key);
            }
            let ran = expect(2, &mut command);
            for word in [wire.variable, wire.model, "--judge-key-file"] {
                assert!(ran.stderr.contains(word), "{word}: {ran:?}");
            }
        }
        assert_eq!(judge.asked().len(), 0);
        assert_eq!(entries(scene.folder()), ["traces.jsonl"]);
    }
}

/// Tokens of the question are counted with those from the cache on both wires, and priced apart.
#[test]
fn tokens_and_money_are_counted() {
    for wire in BOTH {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(|_| {
            let reply = Reply::from(GOOD).usage(700, 50, 600).model("dated-1");
            Answer::Reply(reply)
        });
        let mut command = wire.command(&scene, &judge, "run");
        let price = format!("{}=100:200:10", wire.model);
        expect(0, command.args(["--price", &price]));
        let cost = (100.0 * 100.0 + 600.0 * 10.0 + 50.0 * 200.0) / 1e6;

        let spend = summary(&scene.at("run"))["judge"]["spend"][0].clone();
        let counts = ["prompt_tokens", "completion_tokens", "answered", "unpriced"];
        let counts = counts.map(|name| spend[name].as_u64().unwrap());
        assert_eq!(counts, [700, 50, 1, 0], "{wire:?}");
        let spent = spend["cost"].as_f64().unwrap();
        assert!((spent - cost).abs() < 1e-12, "{wire:?}: {spent}");

        let rows = calls_of_ledger(&scene);
        let kept = ((700, 50, 600), false, "dated-1".to_owned());
        assert_eq!(rows, [kept], "{wire:?}");
    }
}

/// Tokens (question, reply, of the cache), whether the reply was cut off, and the model it names: for each answer that is kept,
/// the shortest reply first.
pub(super) fn calls_of_ledger(scene: &Scene) -> Vec<((i64, i64, i64), bool, String)> {
    let ledger = rusqlite::Connection::open(scene.at("ledger.db")).unwrap();
    let mut statement = ledger
        .prepare(
            "SELECT prompt_tokens, completion_tokens, cached_tokens, cut_off, reported_model FROM calls \
             ORDER BY completion_tokens",
        )
        .unwrap();
    let rows = statement.query_map([], |row| {
        let tokens = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok((tokens, row.get(3)?, row.get(4)?))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

/// Repeats the key wherever a provider could.
fn echo(wire: Wire, asked: &Asked) -> Answer {
    let key = asked.header(wire.header).unwrap_or_default();
    assert_eq!(key, CANARY, "{:?}", asked.headers);
    let said = format!("{{\"confidence\": 0.5, \"reason\": \"paid by {key}\"}}");
    match case_of(asked) {
        0 if asked.attempt == 0 => wire.error(529, &[("x-key", key)], key, key),
        1 => wire.error(
            400,
            &[],
            "invalid_request_error",
            &format!("not with this key: {key}"),
        ),
        2 => Answer::Reply(Reply::from(said).finish(Finish::ContentFilter)),
        3 => Answer::Reply(Reply::from(said).model(&format!("model-{key}"))),
        4 if asked.has_response_format => Answer::reply(format!("My key is {key}.")),
        _ => Answer::reply(said),
    }
}

#[test]
fn keys_are_written_nowhere() {
    for (wire, in_file) in BOTH.into_iter().flat_map(|w| [(w, false), (w, true)]) {
        let scene = Scene::new(&traces(5));
        let judge = ScriptedJudge::start(move |asked| echo(wire, asked));
        let file = scene.at("key");
        let mut command = wire.command(&scene, &judge, "run");
        match in_file {
            true => {
                std::fs::write(&file, format!("{CANARY}\n")).unwrap();
                command.arg("--judge-key-file").arg(&file);
            }
            false => {
                command.env(wire.variable, CANARY);
            }
        }
        let ran = expect(3, command.args(["--json", "-vv"]));
        assert!(!ran.stdout.contains(BEGIN), "{}", ran.stdout);
        assert!(!ran.stderr.contains(BEGIN), "{}", ran.stderr);
        assert!(ran.stderr.contains("trying again"), "{ran:?}");
        // A second try of case 0, a repair turn of case 4.
        assert_eq!(judge.prompt_count(), 5 + 2);
        for (case, status) in [(1, "FAILED"), (2, "FAILED"), (3, "SUCCESS"), (4, "SUCCESS")] {
            let row = score(&scene.at("run"), &id(case), "confidence");
            assert_eq!(row.status, status, "case {case}: {}", row.reason);
            assert!(
                case == 2 || row.reason.contains("[secret]"),
                "{}",
                row.reason
            );
        }
        assert_no_key_below(scene.folder(), &[&file]);
    }
}

/// Names that end like a reasoning effort stay whole, and the limit of the reply has the name that the model knows.
#[test]
fn models_of_openais_protocol_keep_their_names() {
    for (model, limit, other) in [
        ("mistral-medium", "max_tokens", "max_completion_tokens"),
        ("org/qwen-max", "max_tokens", "max_completion_tokens"),
        ("gpt-5-mini", "max_completion_tokens", "max_tokens"),
        ("o3-mini", "max_completion_tokens", "max_tokens"),
    ] {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(|_| good());
        let mut command = scene.score("confidence", "run");
        let name = format!("openai/{model}");
        command.args(["--judge", &name, "--judge-url", &judge.url()]);
        expect(0, command.args(["--judge-max-output", "321"]));
        let asked = judge.prompts();
        assert_eq!(asked[0].model, model);
        let body = asked[0].json();
        assert_eq!(body[limit], 321, "{body}");
        for absent in [other, "reasoning_effort"] {
            assert_eq!(body.get(absent), None, "{body}");
        }
    }
}
