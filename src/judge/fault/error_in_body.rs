//! Errors that come with status 200: an `error` object where a message should be. Gateways send them when the provider behind
//! them fails.

use serde_json::Value;

use super::{kind_of_refusal, kind_of_status};
use crate::judge::call::CallErrorKind;

/// Words for errors, in the order of the statuses that they stand for: those of OpenAI, Anthropic, Google and gateways.
const WORDS: [(u16, &[&str]); 7] = [
    (
        429,
        &[
            "rate_limit_exceeded",
            "rate_limit_error",
            "rate_limited",
            "too_many_requests",
            "resource_exhausted",
            "insufficient_quota",
        ],
    ),
    (
        503,
        &[
            "server_error",
            "api_error",
            "internal",
            "internal_error",
            "internal_server_error",
            "unavailable",
            "service_unavailable",
            "overloaded",
            "overloaded_error",
            "bad_gateway",
            "deadline_exceeded",
        ],
    ),
    (408, &["timeout", "timeout_error", "request_timeout"]),
    (
        401,
        &["authentication_error", "invalid_api_key", "unauthenticated"],
    ),
    (403, &["permission_error", "permission_denied"]),
    (404, &["model_not_found", "not_found_error", "not_found"]),
    (
        400,
        &[
            "invalid_request_error",
            "invalid_argument",
            "context_length_exceeded",
            "request_too_large",
        ],
    ),
];

/// The error in a body, of the whole answer or of its first choice: what it means, as if it had come with the status that it
/// names, and its words. An error that names none and whose words say nothing may pass: it is garbled. `structured` as for
/// [`super::failure`].
pub(super) fn error_in_body(body: &Value, structured: bool) -> Option<(CallErrorKind, String)> {
    let places = ["/error", "/choices/0/error"].into_iter();
    let error = places.filter_map(|at| body.pointer(at)).find(|error| {
        let text = error.as_str().is_some_and(|text| !text.is_empty());
        text || error.as_object().is_some_and(|object| !object.is_empty())
    })?;
    let said = error.get("message").and_then(Value::as_str);
    let said = said.or(error.as_str()).map_or_else(
        || format!("an error instead of a message: {error}"),
        |said| format!("an error instead of a message: {said}"),
    );
    let kind = match status_of(error) {
        Some(status) => kind_of_status(status, &said, structured),
        None => match kind_of_refusal(&said) {
            CallErrorKind::Refused => CallErrorKind::Garbled,
            CallErrorKind::FormatRejected if !structured => CallErrorKind::Garbled,
            kind => kind,
        },
    };
    let message = match error.get("code").filter(|code| !code.is_null()) {
        Some(Value::String(code)) => format!("{said} (`{code}`)"),
        Some(code) => format!("{said} (code {code})"),
        None => said,
    };
    Some((kind, message))
}

/// The status that an error names: a number, or one of the [`WORDS`].
fn status_of(error: &Value) -> Option<u16> {
    let named = |key: &str| {
        let name = error.get(key)?;
        let number = name.as_u64().or_else(|| name.as_str()?.parse().ok());
        if let Some(status) = number.and_then(|number| u16::try_from(number).ok()) {
            return (400..600).contains(&status).then_some(status);
        }
        let word = name.as_str()?.to_lowercase();
        let found = WORDS.iter().find(|(_, words)| words.contains(&&*word));
        found.map(|(status, _)| *status)
    };
    ["code", "status", "type"].into_iter().find_map(named)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_means_what_its_status_would() {
        use CallErrorKind::{
            Denied, Forbidden, FormatRejected, Garbled, NotFound, RateLimited, Refused,
            ServerError, Timeout, TooLong,
        };
        for (error, kind) in [
            (json!({"code": 502, "message": "upstream"}), ServerError),
            (json!({"code": "503", "message": "upstream"}), ServerError),
            (json!({"code": 429, "message": "slow down"}), RateLimited),
            (
                json!({"code": null, "type": "rate_limit_error", "message": "x"}),
                RateLimited,
            ),
            (
                json!({"status": "RESOURCE_EXHAUSTED", "message": "x"}),
                RateLimited,
            ),
            (
                json!({"type": "overloaded_error", "message": "x"}),
                ServerError,
            ),
            (json!({"code": 408, "message": "x"}), Timeout),
            (json!({"code": 401, "message": "no key"}), Denied),
            (
                json!({"type": "permission_error", "message": "not for you"}),
                Forbidden,
            ),
            (json!({"code": 404, "message": "no such model"}), NotFound),
            (json!({"code": 422, "message": "no such thing"}), Refused),
            (
                json!({"code": 400, "message": "maximum context length is 8192"}),
                TooLong,
            ),
            (
                json!({"message": "maximum context length is 8192"}),
                TooLong,
            ),
            (
                json!({"code": 400, "message": "no such field: response_format"}),
                FormatRejected,
            ),
            (json!({"message": "something went wrong"}), Garbled),
            (json!({"code": 7, "message": "x"}), Garbled),
            (json!("something went wrong"), Garbled),
        ] {
            for body in [
                json!({"error": error}),
                json!({"error": null, "choices": [{"error": error}]}),
            ] {
                let (found, _) = error_in_body(&body, true).unwrap();
                assert_eq!(found, kind, "{body}");
            }
        }
        for none in [
            json!({"error": null}),
            json!({"error": ""}),
            json!({"error": {}}),
            json!({"choices": []}),
            json!([1, 2]),
            json!(null),
        ] {
            assert_eq!(error_in_body(&none, true), None, "{none}");
        }
    }

    #[test]
    fn the_words_of_the_provider_are_kept() {
        let body = json!({"error": {"code": 502, "message": "the provider is down"}});
        let (_, message) = error_in_body(&body, true).unwrap();
        assert_eq!(
            message,
            "an error instead of a message: the provider is down (code 502)"
        );
    }
}
