//! What says the same thing more than once, made one: spans of one id, and facts that come in pieces.

use std::collections::{BTreeMap, HashMap};

use super::super::Payload;
use super::super::parts::{SpanFacts, TraceFacts, kind};
use super::Notes;

pub(super) fn as_text(facts: &impl serde::Serialize) -> String {
    serde_json::to_string(facts).unwrap_or_default()
}

/// How much a record says.
pub(super) fn filled(facts: &TraceFacts) -> usize {
    let texts = [
        &facts.session_id,
        &facts.project_id,
        &facts.name,
        &facts.status,
        &facts.error,
        &facts.environment,
        &facts.release,
        &facts.user_id,
        &facts.model,
    ];
    let payloads = [&facts.input, &facts.output, &facts.expected];
    texts.iter().filter(|text| text.is_some()).count()
        + payloads.iter().filter(|payload| payload.is_some()).count()
        + usize::from(facts.started_at.is_some())
        + usize::from(facts.ended_at.is_some())
}

/// Spans without repetition. Those of one id are sorted by what they say before they become one, so that their order
/// changes nothing: with three of them, what fills a gap hangs on who comes first.
pub(super) fn unique(spans: Vec<SpanFacts>, notes: &mut Notes) -> Vec<SpanFacts> {
    let (named, mut nameless): (Vec<_>, Vec<_>) =
        spans.into_iter().partition(|span| !span.span_id.is_empty());
    let mut kept: Vec<SpanFacts> = Vec::with_capacity(named.len());
    let mut places: HashMap<String, usize> = HashMap::with_capacity(named.len());
    let mut repeated: BTreeMap<usize, Vec<SpanFacts>> = BTreeMap::new();
    for span in named {
        match places.get(&span.span_id) {
            None => {
                places.insert(span.span_id.clone(), kept.len());
                kept.push(span);
            }
            Some(&at) => {
                notes.repeated_spans += 1;
                if kept[at] != span {
                    repeated.entry(at).or_default().push(span);
                }
            }
        }
    }
    for (at, mut others) in repeated {
        others.push(std::mem::take(&mut kept[at]));
        others.sort_by_cached_key(|span| {
            std::cmp::Reverse((span.ended_at, span.started_at, as_text(span)))
        });
        let mut others = others.into_iter();
        let mut span = others.next().unwrap_or_default();
        for other in others {
            fill_span(&mut span, other);
        }
        kept[at] = span;
    }
    // Nothing refers to a span without id; it gets one by what it says.
    nameless.sort_by_cached_key(|span| (span.started_at, span.ended_at, as_text(span)));
    let mut number = 0;
    for mut span in nameless {
        while places.contains_key(&format!("span-{number}")) {
            number += 1;
        }
        span.span_id = format!("span-{number}");
        number += 1;
        kept.push(span);
    }
    kept
}

pub(super) fn or<T>(kept: &mut Option<T>, other: Option<T>) {
    if kept.is_none() {
        *kept = other;
    }
}

/// The same of payloads: an empty object or list is as good as none, where there is another.
pub(super) fn or_payload(kept: &mut Option<Payload>, other: Option<Payload>) {
    let hollow = |payload: &Payload| payload.json && matches!(payload.raw.trim(), "{}" | "[]");
    if kept.as_ref().is_none_or(hollow) && other.is_some() {
        *kept = other;
    }
}

/// What is missing in `facts` comes from `other`.
pub(super) fn fill(facts: &mut TraceFacts, other: TraceFacts) {
    if facts.trace_id.is_empty() {
        facts.trace_id = other.trace_id;
    }
    or(&mut facts.session_id, other.session_id);
    or(&mut facts.project_id, other.project_id);
    or(&mut facts.name, other.name);
    or(&mut facts.started_at, other.started_at);
    or(&mut facts.ended_at, other.ended_at);
    or(&mut facts.status, other.status);
    or(&mut facts.error, other.error);
    or(&mut facts.environment, other.environment);
    or(&mut facts.release, other.release);
    or(&mut facts.user_id, other.user_id);
    or(&mut facts.model, other.model);
    or(&mut facts.prompt_tokens, other.prompt_tokens);
    or(&mut facts.completion_tokens, other.completion_tokens);
    or(&mut facts.cost_usd, other.cost_usd);
    or_payload(&mut facts.input, other.input);
    or_payload(&mut facts.output, other.output);
    or(&mut facts.expected, other.expected);
    for tag in other.tags {
        if !facts.tags.contains(&tag) {
            facts.tags.push(tag);
        }
    }
    for (name, value) in other.metadata {
        facts.metadata.entry(name).or_insert(value);
    }
}

fn fill_span(span: &mut SpanFacts, other: SpanFacts) {
    fill(&mut span.of, other.of);
    or(&mut span.parent_span_id, other.parent_span_id);
    if span.name.is_empty() {
        span.name = other.name;
    }
    if span.kind.is_empty() || span.kind == kind::OTHER {
        span.kind = other.kind;
    }
    or(&mut span.input, other.input);
    or(&mut span.output, other.output);
    or(&mut span.started_at, other.started_at);
    or(&mut span.ended_at, other.ended_at);
    or(&mut span.status, other.status);
    or(&mut span.error, other.error);
    or(&mut span.model, other.model);
    or(&mut span.prompt_tokens, other.prompt_tokens);
    or(&mut span.completion_tokens, other.completion_tokens);
    or(&mut span.cost_usd, other.cost_usd);
    or(&mut span.finish_reason, other.finish_reason);
    or(&mut span.call_id, other.call_id);
    if span.calls.is_empty() {
        span.calls = other.calls;
    }
}
