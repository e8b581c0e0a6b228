//! What went wrong when a provider gave no reply: its kind, the wait it asks for, and its words without secrets.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;

use super::call::{CallError, CallErrorKind, Usage};
use super::exchange::NoAnswer;
use super::limited_body::LONGEST_ANSWER;
use super::protocol::Message;
use super::secret::Secrets;

mod error_in_body;

use error_in_body::error_in_body;

/// What an exchange without a JSON answer comes to. `structured` tells whether it asked for a reply format, which the provider may
/// have refused.
pub(super) fn failure(failed: &NoAnswer, structured: bool, secrets: &Secrets) -> CallError {
    let mut retry_after = None;
    let (kind, message) = match failed {
        NoAnswer::Transport(e) => (kind_of_transport(e), with_causes(e)),
        NoAnswer::Status {
            status,
            headers,
            body,
        } => {
            let mut message = format!("status {status}: {}", body.trim());
            if *status == 404 {
                message.push_str(" (a --judge-url goes up to and with /v1)");
            }
            retry_after = asked_wait(headers, body);
            (kind_of_status(*status, &message, structured), message)
        }
        NoAnswer::TooLarge => (
            CallErrorKind::TooLarge,
            format!(
                "the answer is longer than {} MiB, and no reply is; it was not read to its end",
                LONGEST_ANSWER >> 20
            ),
        ),
        NoAnswer::NotJson {
            content_type,
            cause,
        } => (
            CallErrorKind::Garbled,
            match content_type {
                Some(other) => format!("the answer is `{other}`, not JSON"),
                None => format!("the answer is not valid JSON: {cause}"),
            },
        ),
    };
    CallError {
        kind,
        // Taken out before the text is cut: half a key is none that could be found.
        message: shortened(&secrets.scrub(&message)),
        retry_after,
        usage: None,
    }
}

/// The wait that an answer which is no success asks for.
pub(super) fn asked_wait(headers: &HeaderMap, body: &str) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let millis = text("retry-after-ms").and_then(|ms| ms.trim().parse::<f64>().ok());
    let seconds = millis
        .map(|ms| ms / 1000.0)
        .or_else(|| seconds_to_wait(text("retry-after")?))
        .or_else(|| seconds_in_body(body));
    seconds.and_then(wait_of)
}

/// What it means that a request or its answer did not come through.
pub(super) fn kind_of_transport(error: &reqwest::Error) -> CallErrorKind {
    if error.is_builder() {
        // It was never sent, and never will be.
        CallErrorKind::Refused
    } else if error.is_connect() {
        CallErrorKind::NoConnection
    } else if error.is_timeout() {
        CallErrorKind::Timeout
    } else {
        CallErrorKind::Connection
    }
}

/// A wait of so many seconds, if that is one.
fn wait_of(seconds: f64) -> Option<Duration> {
    let is_wait = seconds.is_finite() && (0.0..1e9).contains(&seconds);
    is_wait.then(|| Duration::from_secs_f64(seconds))
}

/// The failure of an answer of status 200 without a message: an error stands in its place, or nothing. A message without text
/// that ended for a reason is an answer, if no good one.
pub(super) fn no_message(
    message: Option<&Message>,
    answer: &Value,
    structured: bool,
    secrets: &Secrets,
) -> Option<CallError> {
    let reason = answer.pointer("/choices/0/finish_reason");
    let broke_off = reason.and_then(Value::as_str) == Some("error");
    let error = error_in_body(answer, structured);
    if let Some(message) = message.filter(|_| !broke_off) {
        let ended = message.stop.is_some() && error.is_none();
        if !message.text.is_empty() || ended {
            return None;
        }
    }
    let (kind, said) = error.unwrap_or_else(|| {
        let said = "the answer is JSON, but no message";
        (CallErrorKind::Garbled, said.to_owned())
    });
    Some(CallError {
        kind,
        message: shortened(&secrets.scrub(&said)),
        retry_after: seconds_of_error(answer).and_then(wait_of),
        usage: message.and_then(|message| message.usage),
    })
}

/// What an answer of this status, that is no success, means. `structured` as for [`failure`].
pub(super) fn kind_of_status(status: u16, message: &str, structured: bool) -> CallErrorKind {
    match status {
        429 => CallErrorKind::RateLimited,
        401 => CallErrorKind::Denied,
        // Gateways say so of single questions, too.
        403 if is_about_the_question(message) => CallErrorKind::Blocked,
        403 => CallErrorKind::Forbidden,
        404 => CallErrorKind::NotFound,
        408 => CallErrorKind::Timeout,
        413 => CallErrorKind::TooLong,
        // Some servers break over a format that they don't know, instead of refusing it.
        500.. => match kind_of_refusal(message) {
            CallErrorKind::FormatRejected if structured => CallErrorKind::FormatRejected,
            _ => CallErrorKind::ServerError,
        },
        400..=499 => match kind_of_refusal(message) {
            CallErrorKind::FormatRejected if !structured => CallErrorKind::Refused,
            kind => kind,
        },
        // A redirect or the like.
        _ => CallErrorKind::Refused,
    }
}

/// The failure of an answer that is no reply although it has the form of one: a filter or the model itself stopped it. Even whole
/// JSON before such a stop is no verdict.
pub(super) fn blocked(
    message: Option<&Message>,
    answer: &Value,
    secrets: &Secrets,
) -> Option<CallError> {
    let stop = message.and_then(|message| message.stop.as_deref());
    let said = match stop.filter(|stop| HELD_BACK.contains(stop)) {
        Some(stop) => {
            format!("the model or a filter of the provider stopped the reply (`{stop}`)")
        }
        None => refusal(answer).or_else(|| blocked_question(answer))?,
    };
    let usage = message.and_then(|message| message.usage);
    Some(CallError {
        kind: CallErrorKind::Blocked,
        message: shortened(&secrets.scrub(&said)),
        retry_after: None,
        usage: usage.or_else(|| tokens_of_blocked_question(answer)),
    })
}

/// The providers' words for a reply that a filter, or the model itself, held back.
const HELD_BACK: [&str; 12] = [
    "content_filter",
    "refusal",
    "SAFETY",
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "LANGUAGE",
    "ERROR_TOXIC",
];

/// Their words for one that reached its largest size.
const CUT_OFF: [&str; 6] = [
    "length",
    "max_tokens",
    "MAX_TOKENS",
    "incomplete",
    "model_context_window_exceeded",
    "model_length",
];

/// Whether a message reached its largest size and ends somewhere.
pub(super) fn cut_off(message: &Message) -> bool {
    let stop = message.stop.as_deref();
    stop.is_some_and(|stop| CUT_OFF.contains(&stop))
}

/// A refusal of OpenAI's models, which has a place of its own.
fn refusal(body: &Value) -> Option<String> {
    let text = body.pointer("/choices/0/message/refusal")?.as_str()?.trim();
    (!text.is_empty()).then(|| format!("the model refuses: {text}"))
}

/// Why Gemini let a question not come before the model.
fn blocked_question(body: &Value) -> Option<String> {
    let reason = body.pointer("/promptFeedback/blockReason")?.as_str()?;
    Some(format!(
        "a filter of the provider holds the question back (`{reason}`)"
    ))
}

fn tokens_of_blocked_question(body: &Value) -> Option<Usage> {
    let prompt = body.pointer("/usageMetadata/promptTokenCount")?.as_u64()?;
    Some(Usage {
        prompt,
        ..Usage::default()
    })
}

/// Whether a 403 is about what the question says, and not about who asks.
fn is_about_the_question(message: &str) -> bool {
    let message = message.to_lowercase();
    let words = ["moderation", "flagged", "content policy", "content_policy"];
    words.iter().any(|word| message.contains(word))
}

/// What a refusal below 500 is about.
fn kind_of_refusal(message: &str) -> CallErrorKind {
    let message = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if says(&["api_key_invalid", "api key not valid"]) {
        // Gemini sends 400 for a wrong key.
        CallErrorKind::Denied
    } else if says(&[
        "model_not_found",
        "is not a valid model id",
        "invalid model name",
    ]) {
        // So do gateways for a model that they don't know.
        CallErrorKind::NotFound
    } else if says(&[
        "context_length",
        "context length",
        "context limit",
        "context size",
        "context_size",
        "maximum context",
        "maximum number of tokens",
        "too many tokens",
        "prompt is too long",
    ]) {
        CallErrorKind::TooLong
    } else if says(&[
        "schema",
        "response_format",
        "output_config",
        "output_format",
        "output format",
        "structured output",
        "json mode",
        "mime type",
        "mime_type",
        "mimetype",
    ]) {
        CallErrorKind::FormatRejected
    } else {
        CallErrorKind::Refused
    }
}

/// Seconds of a `Retry-After` header: a number, or a date.
fn seconds_to_wait(header: &str) -> Option<f64> {
    let header = header.trim();
    header.parse().ok().or_else(|| {
        let until = chrono::DateTime::parse_from_rfc2822(header).ok()?;
        let wait = until.signed_duration_since(chrono::Utc::now());
        Some(wait.num_milliseconds().max(0) as f64 / 1000.0)
    })
}

/// Seconds of a `google.rpc.RetryInfo`, which Gemini sends in the error's details instead of a header: `"retryDelay": "37s"`.
fn seconds_in_body(body: &str) -> Option<f64> {
    seconds_of_error(&serde_json::from_str(body).ok()?)
}

fn seconds_of_error(body: &Value) -> Option<f64> {
    let details = body.pointer("/error/details")?.as_array()?;
    let delay = details.iter().find_map(|d| d.get("retryDelay")?.as_str())?;
    delay.strip_suffix('s')?.parse().ok()
}

pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        message.push_str(&format!(": {source}"));
        cause = source.source();
    }
    message
}

/// An error text that fits a table: providers send whole pages.
pub(super) fn shortened(message: &str) -> String {
    const MOST: usize = 500;
    match message.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_as_seconds_or_dates() {
        assert_eq!(seconds_to_wait(" 7 "), Some(7.0));
        assert_eq!(seconds_to_wait("1.5"), Some(1.5));
        let soon = chrono::Utc::now() + chrono::TimeDelta::seconds(30);
        let wait = seconds_to_wait(&soon.to_rfc2822()).unwrap();
        assert!((28.0..=30.0).contains(&wait), "{wait}");
        assert_eq!(seconds_to_wait("soon"), None);
    }

    #[test]
    fn waits_are_read_from_bodies() {
        let body = |delay: &str| {
            let help = r#"{"@type": "type.googleapis.com/google.rpc.Help"}"#;
            format!(r#"{{"error": {{"details": [{help}, {{"retryDelay": {delay}}}]}}}}"#)
        };
        assert_eq!(seconds_in_body(&body("\"37s\"")), Some(37.0));
        assert_eq!(seconds_in_body(&body("\"0.25s\"")), Some(0.25));
        for none in ["\"37\"", "37", "\"s\"", "null"] {
            assert_eq!(seconds_in_body(&body(none)), None, "{none}");
        }
        assert_eq!(seconds_in_body("<html>"), None);
        assert_eq!(seconds_in_body("{\"error\": \"busy\"}"), None);
    }

    #[test]
    fn refusals_are_told_apart() {
        use CallErrorKind::{Denied, FormatRejected, NotFound, Refused, TooLong};
        for (message, kind) in [
            ("acme/x is not a valid model ID", NotFound),
            ("This model's maximum context length is 8192", TooLong),
            (
                "prompt is too long: 208310 tokens > 200000 maximum",
                TooLong,
            ),
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                TooLong,
            ),
            (
                "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000",
                TooLong,
            ),
            (
                "Invalid parameter: 'response_format' of type json_schema",
                FormatRejected,
            ),
            (
                "output_config: Extra inputs are not permitted",
                FormatRejected,
            ),
            (
                "Unknown name \"responseJsonSchema\" at 'generation_config': Cannot find field.",
                FormatRejected,
            ),
            ("Json mode is not enabled for models/x", FormatRejected),
            ("API key not valid. Please pass a valid API key.", Denied),
            (
                "request (2797 tokens) exceeds the available context size (2048 tokens)",
                TooLong,
            ),
            ("no such model", Refused),
            ("`temperature` is deprecated for this model.", Refused),
        ] {
            assert_eq!(kind_of_refusal(message), kind, "{message}");
        }
    }

    #[test]
    fn a_server_that_breaks_over_the_format_refuses_it() {
        let message = "status 500: response_format.type: Input should be 'text' or 'json_object'";
        let kind = |structured| kind_of_status(500, message, structured);
        assert_eq!(kind(true), CallErrorKind::FormatRejected);
        assert_eq!(kind(false), CallErrorKind::ServerError);
        assert_eq!(
            kind_of_status(500, "prompt is too long", true),
            CallErrorKind::ServerError
        );
    }

    #[test]
    fn a_403_about_the_question_is_no_refusal_of_the_key() {
        let kind = |message| kind_of_status(403, message, true);
        assert_eq!(kind("status 403: not for you"), CallErrorKind::Forbidden);
        let flagged = "requires moderation and your input was flagged for \"violence\"";
        assert_eq!(kind(flagged), CallErrorKind::Blocked);
    }

    #[test]
    fn a_block_of_the_question_is_read_from_its_feedback() {
        let body = serde_json::json!({
            "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
            "usageMetadata": {"promptTokenCount": 12, "totalTokenCount": 12},
        });
        assert!(
            blocked_question(&body)
                .unwrap()
                .contains("PROHIBITED_CONTENT")
        );
        let usage = tokens_of_blocked_question(&body);
        assert_eq!(usage.map(|u| (u.prompt, u.completion)), Some((12, 0)));
        let other = serde_json::json!({"promptFeedback": {"safetyRatings": []}});
        assert_eq!(blocked_question(&other), None);
        assert_eq!(tokens_of_blocked_question(&other), None);
    }
}
