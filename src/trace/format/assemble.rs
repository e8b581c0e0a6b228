//! From the facts about one trace, in any order, to the trace.
//!
//! | what | rule |
//! |---|---|
//! | order | facts are sorted first, so that order and splitting of files change nothing |
//! | equal spans | are one |
//! | one span id, several spans | are one: the one that ended last has its way, the others fill what it lacks |
//! | parent that is not there | the span counts as a root; a circle of parents is cut at the span of the smallest id |
//! | root | the span without parent that began first; else the one whose parent is missing |
//! | trace facts | a record of the trace wins, then the root, then spans in the order of their start |
//! | input, output | of the trace's record, of the root, else of the model calls that are in no other: the first with words in, the last one out; a root that is a model call is one of these |
//! | start, end | of the record, the root, else of the spans; an end before the start is dropped and counted; where nothing says when it began, the first end stands for the start |
//! | tokens, cost | of the record, else the sum over spans that have them and no span below that has them |
//! | error, status | of the record, else of the root; a root without status is `ERROR` if it has an error |
//! | calls in messages | become tool spans, unless the trace has a span for that tool, or, where spans of tools say which call they are, for that call |

mod merged;
mod message_calls;
mod notes;
mod of_spans;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

pub(crate) use notes::Notes;

use super::Payload;
use super::parts::{SpanFacts, TraceFacts, kind};
use crate::trace::lowest::cut_circles;
use merged::{as_text, fill, filled, unique};
use message_calls::tool_spans_of_calls;
use of_spans::{fill_from_root, fill_from_spans};

/// A whole trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Assembled {
    pub facts: TraceFacts,
    pub spans: Vec<SpanFacts>,
}

/// Makes a trace of its facts.
pub(crate) fn assemble(mut records: Vec<TraceFacts>, spans: Vec<SpanFacts>) -> (Assembled, Notes) {
    let mut notes = Notes {
        traces: 1,
        ..Notes::default()
    };
    records.sort_by_cached_key(|facts| (std::cmp::Reverse(filled(facts)), as_text(facts)));
    // Before spans of one id become one: they may be of different projects.
    let projects: HashSet<&str> = records
        .iter()
        .chain(spans.iter().map(|span| &span.of))
        .filter_map(|facts| facts.project_id.as_deref())
        .collect();
    notes.several_projects = u64::from(projects.len() > 1);
    let mut spans = unique(spans, &mut notes);
    order(&mut spans);
    let parents = parents(&spans);
    let orphan = |at: &usize| parents[*at].is_none() && spans[*at].parent_span_id.is_some();
    notes.orphans = (0..spans.len()).filter(orphan).count() as u64;
    // A record stands for the root of its trace, above calls of tools that name no parent.
    let recorded = !records.is_empty();
    let may_be_root = |at: &usize| !(recorded && spans[*at].kind == kind::TOOL);
    let first = |is: &dyn Fn(&usize) -> bool| (0..spans.len()).find(|at| may_be_root(at) && is(at));
    let root = first(&|at| spans[*at].parent_span_id.is_none());
    if root.is_none() && !spans.is_empty() && !recorded {
        notes.without_root = 1;
    }
    let root = root.or_else(|| first(&orphan)).or_else(|| first(&|_| true));
    notes.odd_counts = spans.iter().map(|span| u64::from(span.odd_counts)).sum();
    let all = records.iter().chain(spans.iter().map(|span| &span.of));
    notes.odd_costs = all.map(|facts| u64::from(facts.odd_costs)).sum();
    let mut facts = TraceFacts::default();
    for record in records {
        fill(&mut facts, record);
    }
    if let Some(root) = root {
        fill_from_root(&mut facts, &spans, root);
    }
    for span in &spans {
        fill(&mut facts, span.of.clone());
    }
    notes.odd_costs += u64::from(fill_from_spans(&mut facts, &spans, &parents));
    if notes.several_projects > 0 {
        notes.of_several_projects.push(facts.trace_id.clone());
    }
    if facts.started_at.is_none() {
        let ends = spans.iter().filter_map(|span| span.ended_at);
        facts.started_at = ends.min().or(facts.ended_at);
        notes.without_start = u64::from(facts.started_at.is_some());
    }
    if let (Some(start), Some(end)) = (facts.started_at, facts.ended_at)
        && end < start
    {
        facts.ended_at = None;
        notes.skewed += 1;
    }
    for span in &mut spans {
        if let (Some(start), Some(end)) = (span.started_at, span.ended_at)
            && end < start
        {
            span.ended_at = None;
            notes.skewed += 1;
        }
    }
    let made = tool_spans_of_calls(&mut spans);
    notes.calls_of_messages = made.len() as u64;
    spans.extend(made);
    for span in &mut spans {
        span.of = TraceFacts::default();
        span.calls.clear();
    }
    notes.spans = spans.len() as u64;
    notes.tool_calls = spans.iter().filter(|span| span.kind == kind::TOOL).count() as u64;
    notes.without_session = u64::from(facts.session_id.is_none());
    let turn = facts.metadata.contains_key("turn");
    notes.without_time = u64::from(facts.started_at.is_none() && turn);
    notes.without_order = u64::from(facts.started_at.is_none() && !turn);
    notes.without_input = u64::from(!is_worded(facts.input.as_ref()));
    notes.without_output = u64::from(!is_worded(facts.output.as_ref()));
    (Assembled { facts, spans }, notes)
}

/// The place of each span's parent; none for roots, and where a circle of parents is cut.
fn parents(spans: &[SpanFacts]) -> Vec<Option<usize>> {
    let ids: Vec<&str> = spans.iter().map(|span| span.span_id.as_str()).collect();
    let places: HashMap<&str, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    let parent = |span: &SpanFacts| places.get(span.parent_span_id.as_deref()?).copied();
    let mut parents: Vec<Option<usize>> = spans.iter().map(parent).collect();
    cut_circles(&ids, &mut parents);
    parents
}

/// Whether anything is said.
fn is_worded(payload: Option<&Payload>) -> bool {
    payload.is_some_and(|payload| !words(payload).trim().is_empty())
}

fn order(spans: &mut [SpanFacts]) {
    // Spans without time come last, in the order of their ids.
    spans.sort_by(|a, b| {
        let key = |span: &SpanFacts| span.started_at.or(span.ended_at).unwrap_or(i64::MAX);
        key(a).cmp(&key(b)).then_with(|| a.span_id.cmp(&b.span_id))
    });
}

/// The text that a payload is embedded as: what was said, else all of it.
pub(crate) fn words(payload: &Payload) -> &str {
    payload.said.as_deref().unwrap_or(&payload.raw)
}
