//! Tool spans for calls that only messages tell of.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::parts::{Call, SpanFacts, kind};
use super::merged::or;

/// Tool spans for the calls that messages tell of. A call with an id is one call however many messages tell of it; calls
/// without id that are equal are as many as the message that tells of most.
pub(super) fn tool_spans_of_calls(spans: &mut [SpanFacts]) -> Vec<SpanFacts> {
    let tools = || spans.iter().filter(|span| span.kind == kind::TOOL);
    let told = spans.iter().flat_map(|span| &span.calls);
    let told: HashSet<&str> = told.filter_map(|call| call.id.as_deref()).collect();
    let known: HashSet<&str> = tools().filter_map(|span| span.call_id.as_deref()).collect();
    // Tools with spans, and whether all of these say which call they are, in the words of the messages.
    let mut with_spans: HashMap<&str, bool> = HashMap::new();
    for span in tools() {
        let tells = span.call_id.as_deref().is_some_and(|id| told.contains(id));
        *with_spans.entry(span.name.as_str()).or_insert(true) &= tells;
    }
    let has_span = |call: &Call| match (call.id.as_deref(), with_spans.get(call.name.as_str())) {
        (Some(id), Some(true)) => known.contains(id),
        (_, Some(_)) => true,
        (id, None) => id.is_some_and(|id| known.contains(id)),
    };
    let mut by_id: BTreeMap<&str, (usize, Call)> = BTreeMap::new();
    let mut nameless: BTreeMap<(String, Option<String>), (usize, Vec<Call>)> = BTreeMap::new();
    for (at, span) in spans.iter().enumerate() {
        let mut here: BTreeMap<(String, Option<String>), Vec<Call>> = BTreeMap::new();
        for call in &span.calls {
            match call.id.as_deref() {
                Some(id) => {
                    let (_, known) = by_id.entry(id).or_insert_with(|| (at, Call::default()));
                    if known.name.is_empty() {
                        known.name.clone_from(&call.name);
                    }
                    or(&mut known.id, call.id.clone());
                    or(&mut known.arguments, call.arguments.clone());
                    or(&mut known.result, call.result.clone());
                    or(&mut known.error, call.error.clone());
                }
                None => {
                    let arguments = call.arguments.as_ref().map(|payload| payload.raw.clone());
                    here.entry((call.name.clone(), arguments))
                        .or_default()
                        .push(call.clone());
                }
            }
        }
        for (key, calls) in here {
            let known = nameless.entry(key).or_insert_with(|| (at, Vec::new()));
            let results =
                |calls: &[Call]| calls.iter().filter(|call| call.result.is_some()).count();
            if (calls.len(), results(&calls)) > (known.1.len(), results(&known.1)) {
                known.1 = calls;
            }
        }
    }
    let with_ids = by_id.into_values();
    let without = nameless
        .into_values()
        .flat_map(|(at, calls)| calls.into_iter().map(move |call| (at, call)));
    let mut found: Vec<(usize, Call)> = with_ids.chain(without).collect();
    found.retain(|(_, call)| !call.name.is_empty() && !has_span(call));
    found.sort_by(|(a, one), (b, two)| a.cmp(b).then_with(|| one.id.cmp(&two.id)));
    let taken: HashSet<&str> = spans.iter().map(|span| span.span_id.as_str()).collect();
    let mut made = Vec::with_capacity(found.len());
    for (number, (at, call)) in found.into_iter().enumerate() {
        let parent = &spans[at];
        let id = call.id.clone().filter(|id| !taken.contains(id.as_str()));
        made.push(SpanFacts {
            span_id: id.unwrap_or_else(|| format!("{}/call-{number}", parent.span_id)),
            parent_span_id: Some(parent.span_id.clone()),
            kind: kind::TOOL.to_owned(),
            name: call.name,
            input: call.arguments,
            output: call.result,
            // A message says in which order, not when: calls follow the model that asked for them.
            started_at: parent.ended_at.or(parent.started_at),
            status: call.error.is_some().then(|| "ERROR".to_owned()),
            error: call.error,
            ..SpanFacts::default()
        });
    }
    made
}
