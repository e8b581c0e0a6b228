//! Replies of Anthropic, Gemini and OpenAI that stopped before their end: cut off at the token limit, refused or blocked.

use serde_json::{Value, json};

use super::providers::{ANTHROPIC, BOTH, GEMINI, GOOD, OPENAI, calls_of_ledger, good, raw};
use super::scene::{Scene, expect, id, traces};
use super::tables::score;
use crate::scripted_judge::{Answer, Finish, Reply, ScriptedJudge};
use crate::support::summary;

fn json_answer(body: &Value) -> Answer {
    Answer::Status(200, Vec::new(), body.to_string())
}

#[test]
fn replies_that_met_the_token_limit_count_if_they_are_whole() {
    for wire in BOTH {
        let (scene, asked) = wire.judged(0, |_| Answer::Truncated(GOOD.to_owned()));
        assert_eq!((asked.len(), raw(&scene)), (1, Some(0.75)), "{wire:?}");
        let cut_off: Vec<bool> = calls_of_ledger(&scene).iter().map(|row| row.1).collect();
        assert_eq!(cut_off, [true], "{wire:?}");

        let (scene, asked) = wire.judged(0, |asked| match asked.number {
            0 => Answer::Truncated("{\"confidence\": 0.".to_owned()),
            _ => good(),
        });
        assert_eq!((asked.len(), raw(&scene)), (2, Some(0.75)), "{wire:?}");
        assert!(asked[0].has_response_format && !asked[1].has_response_format);
        let repair = asked[1].user.strip_prefix(asked[0].user.as_str()).unwrap();
        assert!(repair.contains("not a JSON"), "{repair}");
        let cut_off: Vec<bool> = calls_of_ledger(&scene).iter().map(|row| row.1).collect();
        assert_eq!(cut_off, [true, false], "{wire:?}");
    }
}

/// Gemini counts no reply where thoughts took all tokens; they are paid for.
#[test]
fn thoughts_that_left_no_room_for_a_reply_are_counted() {
    let (scene, asked) = GEMINI.judged(0, |asked| match asked.number {
        0 => json_answer(&json!({
            "candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS", "index": 0}],
            "usageMetadata": {"promptTokenCount": 700, "thoughtsTokenCount": 321, "totalTokenCount": 1021},
            "modelVersion": "gemini-test",
        })),
        _ => Answer::Reply(Reply::from(GOOD).usage(750, 20, 0)),
    });
    assert_eq!((asked.len(), raw(&scene)), (2, Some(0.75)));
    let model = || "gemini-test".to_owned();
    let kept = [
        ((750, 20, 0), false, model()),
        ((700, 321, 0), true, model()),
    ];
    assert_eq!(calls_of_ledger(&scene), kept);
}

/// One call, no score, whatever was said before the stop; the tokens were used.
#[test]
fn a_reply_that_is_refused_or_blocked_is_no_score() {
    let stopped = |text: &str| {
        let reply = Reply::from(text).usage(700, 50, 0);
        Answer::Reply(reply.finish(Finish::ContentFilter))
    };
    let refuses = json_answer(&json!({
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": null, "refusal": "I can't help with that."},
            "finish_reason": "stop",
        }],
        "usage": {"prompt_tokens": 700, "completion_tokens": 50, "total_tokens": 750},
    }));
    let feedback = json!({"blockReason": "PROHIBITED_CONTENT"});
    let usage = json!({"promptTokenCount": 700, "totalTokenCount": 700});
    let blocked = json_answer(&json!({"promptFeedback": feedback, "usageMetadata": usage}));
    let nobody =
        json_answer(&json!({"candidates": [], "promptFeedback": feedback, "usageMetadata": usage}));
    for (wire, answer, word, completion) in [
        (ANTHROPIC, stopped(""), "refusal", 50),
        (ANTHROPIC, stopped(GOOD), "refusal", 50),
        (GEMINI, stopped(""), "SAFETY", 50),
        (GEMINI, stopped(GOOD), "SAFETY", 50),
        (GEMINI, blocked, "PROHIBITED_CONTENT", 0),
        (GEMINI, nobody, "PROHIBITED_CONTENT", 0),
        (OPENAI, stopped(GOOD), "content_filter", 50),
        (OPENAI, refuses, "I can't help with that.", 50),
    ] {
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(move |_| answer.clone());
        expect(3, &mut wire.command(&scene, &judge, "run"));
        assert_eq!(judge.prompt_count(), 1, "{wire:?} {word}");
        let row = score(&scene.at("run"), &id(0), "confidence");
        assert_eq!(row.status, "FAILED", "{wire:?} {word}");
        assert_eq!((row.score, row.raw, row.passed), (None, None, None));
        assert!(
            row.reason.contains("blocked") && row.reason.contains(word),
            "{}",
            row.reason
        );
        // The question is no part of the message.
        assert!(row.reason.len() < 300, "{}", row.reason);
        let spend = summary(&scene.at("run"))["judge"]["spend"][0].clone();
        let counts = ["attempts", "answered", "prompt_tokens", "completion_tokens"];
        let counts = counts.map(|name| spend[name].as_u64().unwrap());
        assert_eq!(counts, [1, 0, 700, completion], "{wire:?} {word}");
        // A block is no answer that is kept.
        expect(3, &mut wire.command(&scene, &judge, "again"));
        assert_eq!(judge.prompt_count(), 2, "{wire:?} {word}");
    }
}

/// An answer without a message is told in a line, not with the whole question.
#[test]
fn an_answer_without_a_message_is_asked_for_again() {
    for wire in BOTH {
        wire.recovers(2, |asked| match asked.attempt {
            0 => json_answer(&json!({"id": "x"})),
            _ => good(),
        });
        let scene = Scene::new(&traces(1));
        let judge = ScriptedJudge::start(|_| json_answer(&json!({"id": "x"})));
        let mut command = wire.command(&scene, &judge, "run");
        expect(3, command.args(["--judge-tries", "1"]));
        let reason = score(&scene.at("run"), &id(0), "confidence").reason;
        assert!(reason.contains("garbled_answer"), "{reason}");
        let system = judge.prompts()[0].system.clone();
        assert!(!reason.contains(&system[..30]), "{reason}");
    }
}
