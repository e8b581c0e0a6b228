//! From the spans of a trace to their digest.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::{CALLS_KEPT, CallDigest, SpanDigest};
use crate::text::{Json, WordSketch, parse_instant, text_hash};
use crate::trace::lowest::{cut_circles, lowest};

/// Kinds of spans that are calls of a model.
const OF_MODELS: [&str; 2] = ["LLM", "GENERATION"];
/// States of spans that failed.
const FAILED: [&str; 4] = ["error", "failed", "failure", "status_code_error"];
/// Why an answer ended, where that is for its length.
const CUT_OFF: [&str; 6] = [
    "length",
    "max_tokens",
    "max_length",
    "max_output_tokens",
    "max_completion_tokens",
    "model_length",
];

/// A tool call on the way into a digest.
struct Call {
    started_at: Option<DateTime<Utc>>,
    failed: bool,
    call: u64,
    /// A hash of the name.
    name: u32,
    /// Name and arguments.
    said: String,
    result: String,
}

impl SpanDigest {
    /// The digest of a list of spans; none of an empty one.
    ///
    /// # Errors
    /// What else the value is.
    pub fn of(spans: &Json) -> Result<Option<Self>, String> {
        let Some(items) = spans.items() else {
            return Err("not a list of spans".into());
        };
        let spans: Vec<&Json> = items
            .iter()
            .filter(|span| matches!(span, Json::Object(_)))
            .collect();
        if spans.len() < items.len() {
            return Err("a list with items that are no spans".into());
        }
        if spans.is_empty() {
            return Ok(None);
        }
        let mut digest = Self {
            spans: u32::try_from(spans.len()).unwrap_or(u32::MAX),
            latency: latency(&spans),
            tokens: tokens(&spans)?,
            ..Self::default()
        };
        for span in spans.iter().filter(|span| is_of_model(span)) {
            let Some(end) = span.get("finish_reason").and_then(word) else {
                continue;
            };
            digest.answers += 1;
            digest.truncated += u32::from(CUT_OFF.contains(&&*end));
        }
        let mut calls: Vec<Call> = spans.iter().copied().filter_map(Call::of).collect();
        // Spans may come in any order. Where all have times, those of one time are told apart by what they say.
        if calls.iter().all(|call| call.started_at.is_some()) {
            calls.sort_by(|a, b| {
                (a.started_at, &a.said, &a.result).cmp(&(b.started_at, &b.said, &b.result))
            });
        }
        digest.failed_calls =
            u32::try_from(calls.iter().filter(|call| call.failed).count()).unwrap_or(u32::MAX);
        digest.calls = calls.iter().map(|call| call.call).collect();
        digest.last_name = calls.last().map(|call| call.name);
        let first = calls.len().saturating_sub(CALLS_KEPT);
        digest.kept = calls.iter().skip(first).map(Call::digest).collect();
        Ok(Some(digest))
    }
}

impl Call {
    /// None if the span is no tool call.
    fn of(span: &Json) -> Option<Self> {
        let kind = span.get("kind")?.text()?;
        if !kind.eq_ignore_ascii_case("TOOL") {
            return None;
        }
        let name = span.get("name").and_then(Json::text).unwrap_or_default();
        let said = format!("{name}\n{}", payload(span.get("input")));
        Some(Self {
            started_at: instant(span, "started_at"),
            failed: failed(span),
            call: text_hash(&said),
            name: (text_hash(name) >> 32) as u32,
            said,
            result: payload(span.get("output")),
        })
    }

    fn digest(&self) -> CallDigest {
        CallDigest {
            call: self.call,
            words: WordSketch::of_whole(&self.said),
            result: (!self.result.is_empty()).then(|| text_hash(&self.result)),
            result_words: WordSketch::of(&self.result),
        }
    }
}

/// A payload as one text: a document is the same however its members are ordered and spaced.
fn payload(value: Option<&Json>) -> String {
    match value {
        None | Some(Json::Null) => String::new(),
        Some(Json::String(text)) => {
            let text = text.trim();
            let parsed = match text.starts_with(['{', '[']) {
                true => crate::text::parse(text.as_bytes()).ok(),
                false => None,
            };
            match parsed {
                Some(document) => in_order(&document).compact(),
                None => text.to_owned(),
            }
        }
        Some(other) => in_order(other).compact(),
    }
}

/// The same with the members of objects by name, and without those that are null: a struct of a Parquet column has all
/// members of its type.
fn in_order(value: &Json) -> Json {
    match value {
        Json::Array(items) => Json::Array(items.iter().map(in_order).collect()),
        Json::Object(members) => {
            let there = members.iter().filter(|(_, value)| *value != Json::Null);
            let mut members: Vec<(String, Json)> = there
                .map(|(name, value)| (name.clone(), in_order(value)))
                .collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Json::Object(members)
        }
        other => other.clone(),
    }
}

fn instant(span: &Json, member: &str) -> Option<DateTime<Utc>> {
    parse_instant(span.get(member)?.text()?).ok()
}

/// A word in small letters, also the last of a list; none where there is none.
fn word(value: &Json) -> Option<String> {
    if let Some(items) = value.items() {
        return items.last().and_then(word);
    }
    let text = value.text()?.trim();
    let list = text
        .starts_with('[')
        .then(|| crate::text::parse(text.as_bytes()).ok());
    if let Some(list) = list.flatten() {
        return word(&list);
    }
    let word = text.to_ascii_lowercase();
    (!word.is_empty()).then_some(word)
}

/// Whether a span has an error, or says that it failed.
pub(in crate::trace) fn failed(span: &Json) -> bool {
    let error = match span.get("error") {
        Some(Json::String(text)) => !matches!(
            &*text.trim().to_ascii_lowercase(),
            "" | "null" | "none" | "false"
        ),
        Some(other) => other.is_truthy(),
        None => false,
    };
    let status = span.get("status").and_then(|status| match status {
        Json::Object(_) => status
            .get("status_code")
            .or_else(|| status.get("code"))
            .and_then(word),
        other => word(other),
    });
    error || status.is_some_and(|status| FAILED.contains(&&*status))
}

fn is_of_model(span: &Json) -> bool {
    let kind = span.get("kind").and_then(Json::text).unwrap_or_default();
    OF_MODELS
        .iter()
        .any(|of_model| kind.eq_ignore_ascii_case(of_model))
}

/// A count of tokens; none where there is none.
fn count(span: &Json, member: &str) -> Result<Option<u64>, String> {
    let Some(written) = span.get(member) else {
        return Ok(None);
    };
    let number = match written {
        Json::Null => return Ok(None),
        Json::String(digits) if digits.trim().is_empty() => return Ok(None),
        Json::String(digits) => digits.trim().parse().ok(),
        other => other.number(),
    };
    match number {
        // Tables write that for numbers that are not there.
        Some(number) if f64::is_nan(number) => Ok(None),
        Some(number) if number >= 0.0 && number.fract() == 0.0 && number < 9e15 => {
            Ok(Some(number as u64))
        }
        _ => Err(format!(
            "a span whose {member} is {}: write a whole number of tokens",
            written.compact()
        )),
    }
}

/// Prompt and completion tokens of a span; none where it has neither.
fn own_tokens(span: &Json) -> Result<Option<u64>, String> {
    let counts = (
        count(span, "prompt_tokens")?,
        count(span, "completion_tokens")?,
    );
    Ok(match counts {
        (None, None) => None,
        (prompt, completion) => Some(prompt.unwrap_or(0).saturating_add(completion.unwrap_or(0))),
    })
}

/// The tokens of all spans that have counts and no span inside them that has.
fn tokens(spans: &[&Json]) -> Result<Option<u64>, String> {
    let id = |span: &Json, member: &str| span.get(member).and_then(Json::text).map(str::to_owned);
    let ids: Vec<String> = spans
        .iter()
        .map(|span| id(span, "span_id").unwrap_or_default())
        .collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let places: HashMap<&str, usize> = ids
        .iter()
        .enumerate()
        .filter(|(_, id)| !id.is_empty())
        .map(|(at, id)| (*id, at))
        .collect();
    let parent = |span: &&Json| {
        let parent = id(span, "parent_span_id").or_else(|| id(span, "parent_id"))?;
        places.get(parent.as_str()).copied()
    };
    let mut parents: Vec<Option<usize>> = spans.iter().map(parent).collect();
    cut_circles(&ids, &mut parents);
    let counts: Vec<Option<u64>> = spans
        .iter()
        .map(|span| own_tokens(span))
        .collect::<Result<_, _>>()?;
    let has: Vec<bool> = counts.iter().map(Option::is_some).collect();
    let lowest = lowest(&parents, &has);
    let mut of_lowest = counts.iter().zip(lowest).filter(|(_, lowest)| *lowest);
    let first = of_lowest.next().and_then(|(count, _)| *count);
    Ok(first.map(|first| {
        let others = of_lowest.filter_map(|(count, _)| *count);
        others.fold(first, u64::saturating_add)
    }))
}

/// Seconds from the first start to the last end.
fn latency(spans: &[&Json]) -> Option<f64> {
    let start = spans
        .iter()
        .filter_map(|span| instant(span, "started_at"))
        .min()?;
    let end = spans
        .iter()
        .filter_map(|span| instant(span, "ended_at"))
        .max()?;
    let micros = (end - start).num_microseconds()?;
    (micros >= 0).then_some(micros as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(spans: &str) -> SpanDigest {
        let spans = crate::text::parse(spans.as_bytes()).unwrap();
        SpanDigest::of(&spans).unwrap().unwrap()
    }

    #[test]
    fn spans_are_counted_and_timed() {
        let digest = digest(
            r#"[
            {"span_id": "a", "kind": "AGENT", "prompt_tokens": 900, "started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:02.5Z"},
            {"span_id": "b", "parent_span_id": "a", "kind": "llm", "prompt_tokens": 10, "completion_tokens": "5", "finish_reason": "stop"},
            {"span_id": "c", "parent_span_id": "b", "kind": "LLM", "prompt_tokens": 10, "completion_tokens": 5, "finish_reason": "MAX_TOKENS"},
            {"span_id": "d", "parent_id": "c", "kind": "LLM", "completion_tokens": 3, "finish_reason": null},
            {"span_id": "e", "parent_id": "a", "kind": "GENERATION", "completion_tokens": 2.0},
            {"span_id": "f", "kind": "tool", "name": "look", "input": {"b": 1, "a": [2]}, "error": "no"},
            {"span_id": "g", "kind": "TOOL", "name": "look", "input": "{\"a\":[2], \"b\":1}", "status": "ERROR", "error": null},
            {"span_id": "h", "kind": "TOOL", "name": "look", "input": "{\"a\":[2], \"b\":2}", "status": "ok", "error": ""}
            ]"#,
        );
        assert_eq!((digest.spans, digest.answers, digest.truncated), (8, 2, 1));
        // Counts of spans around others that count are those of the others.
        assert_eq!(digest.tokens, Some(5));
        assert_eq!(digest.latency, Some(2.5));
        assert_eq!((digest.calls.len(), digest.failed_calls), (3, 2));
        assert_eq!(digest.calls[0], digest.calls[1]);
        assert_ne!(digest.calls[1], digest.calls[2]);
    }

    #[test]
    fn circles_of_spans_end() {
        let digest = digest(
            r#"[{"span_id": "a", "parent_span_id": "b", "kind": "LLM", "prompt_tokens": 1},
                {"span_id": "b", "parent_span_id": "a", "kind": "LLM"}]"#,
        );
        assert_eq!((digest.tokens, digest.latency), (Some(1), None));
        assert!(digest.calls.is_empty());
    }

    #[test]
    fn tokens_are_counted_once_and_in_whole_numbers() {
        let both = digest(
            r#"[{"span_id": "a", "parent_span_id": "b", "kind": "LLM", "prompt_tokens": 1},
                {"span_id": "b", "parent_span_id": "a", "kind": "EMBEDDING", "prompt_tokens": 2.0},
                {"span_id": "c", "parent_span_id": "c", "prompt_tokens": "4", "completion_tokens": NaN},
                {"span_id": "d", "kind": "LLM", "finish_reason": ["length"]},
                {"span_id": "e", "kind": "LLM", "finish_reason": "[\"stop\"]"}]"#,
        );
        assert_eq!(both.tokens, Some(6));
        assert_eq!((both.answers, both.truncated), (2, 1));
        for odd in ["1.5", "\"1,200\"", "-1", "true"] {
            let spans = format!(r#"[{{"kind": "LLM", "prompt_tokens": {odd}}}]"#);
            let spans = crate::text::parse(spans.as_bytes()).unwrap();
            let problem = SpanDigest::of(&spans).unwrap_err();
            assert!(problem.contains("prompt_tokens is"), "{problem}");
        }
    }

    #[test]
    fn the_order_of_spans_of_one_time_has_no_part() {
        let span = |name: &str, second: u32| {
            format!(
                r#"{{"kind": "TOOL", "name": "{name}", "input": "x", "output": "{name}", "started_at": "2026-01-01T00:00:{second:02}Z"}}"#
            )
        };
        let spans = [span("a", 1), span("b", 1), span("c", 1), span("d", 0)];
        let all = digest(&format!("[{}]", spans.join(",")));
        for order in [[3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let other = order.map(|at: usize| spans[at].clone());
            assert_eq!(digest(&format!("[{}]", other.join(","))), all);
        }
        let last = digest(&format!("[{}]", spans[3]));
        assert_eq!(all.calls.first(), last.calls.first());
    }

    #[test]
    fn what_is_no_list_of_spans_is_refused() {
        for bad in ["{}", "3", "[3]", "\"x\""] {
            let value = crate::text::parse(bad.as_bytes()).unwrap();
            assert!(SpanDigest::of(&value).is_err(), "{bad}");
        }
        assert_eq!(SpanDigest::of(&Json::Array(Vec::new())), Ok(None));
    }

    #[test]
    fn only_the_last_calls_are_kept_and_all_are_counted() {
        let spans: Vec<String> = (0..100)
            .map(|i| format!(r#"{{"kind": "TOOL", "name": "t", "input": "{i}"}}"#))
            .collect();
        let digest = digest(&format!("[{}]", spans.join(",")));
        assert_eq!((digest.calls.len(), digest.kept.len()), (100, CALLS_KEPT));
        assert_eq!(digest.kept.last().unwrap().call, digest.calls[99]);
    }
}
