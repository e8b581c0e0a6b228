//! What a trace has of its root and of its spans, where no record of it says so.

use super::super::parts::{SpanFacts, TraceFacts, kind};
use super::is_worded;
use super::merged::{fill, or, or_payload};
use crate::trace::lowest::lowest;

pub(super) fn fill_from_root(facts: &mut TraceFacts, spans: &[SpanFacts], root: usize) {
    let span = &spans[root];
    let of_root = TraceFacts {
        trace_id: span.of.trace_id.clone(),
        name: (!span.name.is_empty()).then(|| span.name.clone()),
        started_at: span.started_at,
        status: span
            .status
            .clone()
            .or_else(|| span.error.is_some().then(|| "ERROR".to_owned())),
        error: span.error.clone(),
        ..TraceFacts::default()
    };
    let own = span.of.clone();
    let named = own.name.is_some();
    fill(facts, own);
    fill(
        facts,
        TraceFacts {
            name: if named { None } else { of_root.name.clone() },
            ..of_root
        },
    );
    // A root that is a model call is one of the model calls, of which there may be more beside it.
    if span.kind != kind::LLM {
        or_payload(&mut facts.input, span.input.clone());
        or_payload(&mut facts.output, span.output.clone());
    }
}

/// Whether the sum of the costs is beyond all numbers, and so left out.
pub(super) fn fill_from_spans(
    facts: &mut TraceFacts,
    spans: &[SpanFacts],
    parents: &[Option<usize>],
) -> bool {
    let is_model = |at: &usize| spans[*at].kind == kind::LLM;
    let models = || (0..spans.len()).filter(is_model).map(move |at| &spans[at]);
    // Model calls that are in no other one.
    let outer = |at: &usize| {
        let mut above = std::iter::successors(parents[*at], |at| parents[*at]);
        is_model(at) && !above.any(|at| is_model(&at))
    };
    let outer: Vec<&SpanFacts> = (0..spans.len())
        .filter(outer)
        .map(|at| &spans[at])
        .collect();
    let inputs = || {
        let all = outer.iter().copied().chain(models());
        all.filter_map(|span| span.input.as_ref())
    };
    let worded =
        inputs().find(|input| is_worded(Some(input)) && (input.said.is_some() || !input.json));
    or_payload(
        &mut facts.input,
        worded.or_else(|| inputs().next()).cloned(),
    );
    let mut outputs = outer.iter().rev().copied().chain(models().rev());
    let output = outputs.find_map(|span| span.output.clone());
    or_payload(&mut facts.output, output);
    or(
        &mut facts.started_at,
        spans.iter().filter_map(|span| span.started_at).min(),
    );
    or(
        &mut facts.ended_at,
        spans.iter().filter_map(|span| span.ended_at).max(),
    );
    or(
        &mut facts.model,
        models().find_map(|span| span.model.clone()),
    );
    if facts.prompt_tokens.is_none() && facts.completion_tokens.is_none() {
        let counts =
            |span: &SpanFacts| span.prompt_tokens.is_some() || span.completion_tokens.is_some();
        let (mut prompt, mut completion) = (None, None);
        for span in lowest_spans(spans, parents, counts) {
            add(&mut prompt, span.prompt_tokens);
            add(&mut completion, span.completion_tokens);
        }
        (facts.prompt_tokens, facts.completion_tokens) = (prompt, completion);
    }
    if facts.cost_usd.is_some() {
        return false;
    }
    let costs: Vec<f64> = lowest_spans(spans, parents, |span| span.cost_usd.is_some())
        .filter_map(|s| s.cost_usd)
        .collect();
    let sum: f64 = costs.iter().sum();
    facts.cost_usd = (!costs.is_empty() && sum.is_finite()).then_some(sum);
    !sum.is_finite()
}

fn add(sum: &mut Option<u64>, count: Option<u64>) {
    if let Some(count) = count {
        *sum = Some(sum.unwrap_or(0).saturating_add(count));
    }
}

/// Spans that have something which no span below them has.
fn lowest_spans<'s>(
    spans: &'s [SpanFacts],
    parents: &[Option<usize>],
    has: impl Fn(&SpanFacts) -> bool,
) -> impl Iterator<Item = &'s SpanFacts> {
    let has: Vec<bool> = spans.iter().map(has).collect();
    let lowest = lowest(parents, &has);
    spans
        .iter()
        .zip(lowest)
        .filter_map(|(span, lowest)| lowest.then_some(span))
}
