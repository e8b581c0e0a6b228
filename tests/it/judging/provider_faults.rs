//! Faults of Anthropic and Gemini, in their own words: waited out, asked for in another form, or a failure with its name.

use std::time::Duration;

use serde_json::json;

use super::providers::{ANTHROPIC, BOTH, GEMINI, Wire, good, raw};
use super::scene::id;
use super::tables::score;
use crate::scripted_judge::{Answer, Asked};

fn between(asked: &[Asked]) -> Duration {
    asked[1].at.duration_since(asked[0].at)
}

#[test]
fn a_wait_that_the_provider_asks_for_is_kept() {
    for wire in BOTH {
        let asked = wire.recovers(2, move |asked| match asked.attempt {
            0 => wire.error(
                429,
                &[("retry-after", "2")],
                "rate_limit_error",
                "slow down",
            ),
            _ => good(),
        });
        // The first wait of the program's own is at most a second.
        assert!(between(&asked) >= Duration::from_secs(2), "{wire:?}");
    }
    // Gemini puts its wait into the body.
    let asked = GEMINI.recovers(2, |asked| match asked.attempt {
        0 => {
            let wait = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"});
            let body = json!({"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": [wait]}});
            Answer::Status(429, Vec::new(), body.to_string())
        }
        _ => good(),
    });
    assert!(between(&asked) >= Duration::from_secs(2));
}

#[test]
fn overloaded_providers_are_asked_again() {
    for (wire, status, kind) in [
        (ANTHROPIC, 529, "overloaded_error"),
        (ANTHROPIC, 500, "api_error"),
        (GEMINI, 503, "UNAVAILABLE"),
    ] {
        let asked = wire.recovers(2, move |asked| match asked.attempt {
            0 => wire.error(status, &[], kind, "overloaded"),
            _ => good(),
        });
        assert!(between(&asked) >= Duration::from_millis(500), "{status}");
    }
}

/// How providers say that they do not take the schema, or no schema at all.
const NO_SCHEMA: [(Wire, &str); 5] = [
    (
        ANTHROPIC,
        "output_config.format: Extra inputs are not permitted",
    ),
    (
        ANTHROPIC,
        "output_config.format.schema: Invalid schema: Schema type is missing",
    ),
    (
        GEMINI,
        "Invalid JSON payload received. Unknown name \"responseJsonSchema\" at 'generation_config': Cannot find field.",
    ),
    (GEMINI, "Json mode is not enabled for models/gemini-test"),
    (
        GEMINI,
        "Unhandled generated data mime type: application/json",
    ),
];

#[test]
fn a_provider_that_refuses_the_schema_is_asked_in_plain_words() {
    for (wire, message) in NO_SCHEMA {
        let (scene, asked) = wire.judged(0, move |asked| match asked.has_response_format {
            true => wire.error(400, &[], "INVALID_ARGUMENT", message),
            false => good(),
        });
        let forms: Vec<bool> = asked.iter().map(|a| a.has_response_format).collect();
        assert_eq!(forms, [true, false], "{message}");
        assert_eq!(asked[0].user, asked[1].user);
        assert!(asked[1].user.contains("`confidence`"), "{}", asked[1].user);
        assert_eq!(raw(&scene), Some(0.75), "{message}");
    }
}

/// The first plain call takes the place of the structured one's repair; the next attempt, plain from the start, has its own.
#[test]
fn a_plain_reply_that_is_no_good_is_mended_once() {
    for wire in BOTH {
        let (scene, asked) = wire.judged(0, move |asked| match asked.number {
            0 => wire.error(400, &[], "invalid_request_error", "no such field: schema"),
            1 | 2 => Answer::reply("I am quite sure."),
            _ => good(),
        });
        let forms: Vec<bool> = asked.iter().map(|a| a.has_response_format).collect();
        assert_eq!(forms, [true, false, false, false], "{wire:?}");
        assert!(asked[..3].iter().all(|a| a.user == asked[0].user));
        let repair = asked[3].user.strip_prefix(asked[0].user.as_str()).unwrap();
        assert!(repair.contains("I am quite sure."), "{repair}");
        assert_eq!(raw(&scene), Some(0.75), "{wire:?}");
    }
}

/// Whom a provider does not let in it does not let in for the next question either.
#[test]
fn a_provider_that_lets_nobody_in_is_asked_once() {
    for (wire, status, kind, message, why) in [
        (
            ANTHROPIC,
            401,
            "authentication_error",
            "invalid x-api-key",
            "the judge refused the key (401)",
        ),
        (
            ANTHROPIC,
            403,
            "permission_error",
            "not for you",
            "does not let this key ask `anthropic/claude-test` (403)",
        ),
        (
            GEMINI,
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            "the judge refused the key (400)",
        ),
        (
            ANTHROPIC,
            404,
            "not_found_error",
            "model: claude-test",
            "does not know `anthropic/claude-test` (404)",
        ),
        (
            GEMINI,
            404,
            "NOT_FOUND",
            "models/gemini-test is not found",
            "does not know `gemini/gemini-test` (404)",
        ),
    ] {
        let (scene, asked) = wire.judged(3, move |_| wire.error(status, &[], kind, message));
        assert_eq!(asked.len(), 1, "{message}");
        let row = score(&scene.at("run"), &id(0), "confidence");
        assert_eq!(row.status, "PENDING", "{message}");
        assert!(
            row.reason.contains(why) && row.reason.contains(message),
            "{}",
            row.reason
        );
    }
}

#[test]
fn faults_that_stay_fail_at_once_under_their_name() {
    for (wire, status, kind, message, code) in [
        (
            ANTHROPIC,
            400,
            "invalid_request_error",
            "prompt is too long: 208310 tokens > 200000 maximum",
            "context_overflow",
        ),
        (
            ANTHROPIC,
            413,
            "request_too_large",
            "Request exceeds the maximum size",
            "context_overflow",
        ),
        (
            GEMINI,
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "context_overflow",
        ),
    ] {
        let (scene, asked) = wire.judged(3, move |_| wire.error(status, &[], kind, message));
        assert_eq!(asked.len(), 1, "{message}");
        let row = score(&scene.at("run"), &id(0), "confidence");
        assert_eq!(row.status, "FAILED", "{message}");
        assert_eq!((row.score, row.raw, row.passed), (None, None, None));
        assert!(
            row.reason.contains(code) && row.reason.contains(message),
            "{}",
            row.reason
        );
    }
}
