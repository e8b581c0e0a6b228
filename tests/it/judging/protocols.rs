//! Which protocol an endpoint of one's own is spoken to in, and under which name a model is asked there.

use super::scene::{Scene, expect, id, traces};
use super::tables::score;
use crate::scripted_judge::{Answer, Dialect, ScriptedJudge};

const GOOD: &str = "{\"confidence\": 0.75, \"reason\": null}";

#[test]
fn an_endpoint_of_ones_own_speaks_openais_protocol_whatever_the_model_is_called() {
    for (model, protocol, dialect, name) in [
        (
            "anthropic/claude-x",
            None,
            Dialect::OpenAi,
            "anthropic/claude-x",
        ),
        ("claude-x", None, Dialect::OpenAi, "claude-x"),
        ("gemini/gemini-x", None, Dialect::OpenAi, "gemini/gemini-x"),
        ("openai/gpt-4o", None, Dialect::OpenAi, "gpt-4o"),
        ("openai/org/x", Some("openai"), Dialect::OpenAi, "org/x"),
        (
            "anthropic/claude-x",
            Some("anthropic"),
            Dialect::Anthropic,
            "claude-x",
        ),
        (
            "claude-x",
            Some("anthropic"),
            Dialect::Anthropic,
            "claude-x",
        ),
        (
            "house-model",
            Some("anthropic"),
            Dialect::Anthropic,
            "house-model",
        ),
        (
            "gemini/gemini-x",
            Some("gemini"),
            Dialect::Gemini,
            "gemini-x",
        ),
    ] {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(|_| Answer::reply(GOOD));
        let mut command = scene.score("confidence", "run");
        command.args(["--judge", model, "--judge-url", &judge.url()]);
        if let Some(protocol) = protocol {
            command.args(["--judge-protocol", protocol]);
        }
        // A price by the name that was given is that of the model.
        let price = format!("{model}=1:2");
        let ran = expect(0, command.args(["--max-cost", "1", "--price", &price]));
        assert!(!ran.stderr.contains("--price"), "{model}: {ran:?}");
        let asked = judge.prompts();
        assert_eq!(asked.len(), 1, "{model}");
        assert_eq!(asked[0].dialect, Some(dialect), "{model}");
        assert_eq!(asked[0].model, name, "{model}");
        let row = score(&scene.at("run"), &id(0), "confidence");
        assert_eq!(row.raw, Some(0.75), "{model}");
    }
}

#[test]
fn a_protocol_belongs_to_an_endpoint_of_ones_own() {
    let scene = Scene::new(&traces(1));
    let mut command = scene.score("confidence", "run");
    command.args(["--judge", "openai/test", "--judge-protocol", "anthropic"]);
    let ran = expect(2, command.env("OPENAI_API_KEY", "k"));
    assert!(ran.stderr.contains("--judge-url"), "{ran:?}");
    let mut command = scene.judge("http://127.0.0.1:9/v1", "confidence", "run");
    let ran = expect(2, command.args(["--judge-protocol", "vertex"]));
    for word in [
        "vertex",
        "--judge-protocol",
        "openai",
        "anthropic",
        "gemini",
    ] {
        assert!(ran.stderr.contains(word), "{word}: {ran:?}");
    }
    assert!(!scene.at("run").exists());
}

/// One endpoint may speak several protocols: what one answered is not taken for the other's.
#[test]
fn answers_of_another_protocol_are_others() {
    let scene = Scene::new(&traces(1));
    let judge = ScriptedJudge::start(|_| Answer::reply(GOOD));
    for (protocol, out, sent) in [("openai", "first", 1), ("anthropic", "second", 2)] {
        let mut command = scene.score("confidence", out);
        command.args(["--judge", "anthropic/claude-x", "--judge-url", &judge.url()]);
        expect(0, command.args(["--judge-protocol", protocol]));
        assert_eq!(judge.prompt_count(), sent, "{protocol}");
    }
}
