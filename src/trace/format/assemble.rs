//! From the facts about one trace, in any order, to the trace.
//!
//! | what | rule |
//! |---|---|
//! | order | facts are sorted first, so that order and splitting of files change nothing |
//! | equal spans | are one |
//! | one span id, several spans | are one: the one that ended last has its way, the others fill what it lacks |
//! | parent that is not there, or is the span itself | the span counts as a root |
//! | root | the span without parent that began first; else the one whose parent is missing |
//! | trace facts | a record of the trace wins, then the root, then spans in the order of their start |
//! | input, output | of the trace's record, the root, else the words of the first model call in and the last one out |
//! | start, end | of the record, the root, else of the spans; an end before the start is dropped and counted |
//! | tokens, cost | of the record, else the sum over spans that have them and no span below that has them |
//! | error, status | of the record, else of the root; a root without status is `ERROR` if it has an error |
//! | calls in messages | become tool spans, unless the trace has a span for that tool |

use std::collections::{BTreeMap, HashMap, HashSet};

use super::Payload;
use super::parts::{Call, SpanFacts, TraceFacts, kind};

/// A whole trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Assembled {
    pub facts: TraceFacts,
    pub spans: Vec<SpanFacts>,
}

/// What was found on the way, for the line that is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    pub traces: u64,
    pub spans: u64,
    /// Spans that were one span exported again.
    pub repeated_spans: u64,
    /// Spans whose parent is not in the trace.
    pub orphans: u64,
    /// Traces whose root is missing.
    pub without_root: u64,
    /// Traces that belong to no session.
    pub without_session: u64,
    /// Traces without any time: they are ordered by their turn or id, with times that count up from 1970.
    pub without_time: u64,
    /// Ends before their start.
    pub skewed: u64,
    /// Tool spans made of calls in messages.
    pub calls_of_messages: u64,
    pub tool_calls: u64,
    pub without_input: u64,
    pub without_output: u64,
}

impl Notes {
    pub fn add(&mut self, other: Self) {
        self.traces += other.traces;
        self.spans += other.spans;
        self.repeated_spans += other.repeated_spans;
        self.orphans += other.orphans;
        self.without_root += other.without_root;
        self.without_session += other.without_session;
        self.without_time += other.without_time;
        self.skewed += other.skewed;
        self.calls_of_messages += other.calls_of_messages;
        self.tool_calls += other.tool_calls;
        self.without_input += other.without_input;
        self.without_output += other.without_output;
    }
}

/// Makes a trace of its facts.
pub(crate) fn assemble(mut records: Vec<TraceFacts>, spans: Vec<SpanFacts>) -> (Assembled, Notes) {
    let mut notes = Notes {
        traces: 1,
        ..Notes::default()
    };
    records.sort_by_cached_key(|facts| (std::cmp::Reverse(filled(facts)), as_text(facts)));
    let mut spans = unique(spans, &mut notes);
    order(&mut spans);
    let ids: HashSet<&str> = spans.iter().map(|span| span.span_id.as_str()).collect();
    let orphan = |span: &SpanFacts| {
        let parent = span.parent_span_id.as_deref();
        parent.is_some_and(|parent| !ids.contains(parent) || parent == span.span_id)
    };
    notes.orphans = spans.iter().filter(|span| orphan(span)).count() as u64;
    // A record stands for the root of its trace, above calls of tools that name no parent.
    let recorded = !records.is_empty();
    let may_be_root = |span: &&SpanFacts| !(recorded && span.kind == kind::TOOL);
    let first = |is: &dyn Fn(&SpanFacts) -> bool| {
        let mut spans = spans.iter().enumerate();
        let found = spans.find(|(_, span)| may_be_root(span) && is(span));
        found.map(|(at, _)| at)
    };
    let root = first(&|span| span.parent_span_id.is_none());
    if root.is_none() && !spans.is_empty() && !recorded {
        notes.without_root = 1;
    }
    let root = root.or_else(|| first(&orphan)).or_else(|| first(&|_| true));
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
    fill_from_spans(&mut facts, &spans);
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
    notes.without_time = u64::from(facts.started_at.is_none());
    notes.without_input = u64::from(facts.input.is_none());
    notes.without_output = u64::from(facts.output.is_none());
    (Assembled { facts, spans }, notes)
}

fn as_text(facts: &impl serde::Serialize) -> String {
    serde_json::to_string(facts).unwrap_or_default()
}

/// How much a record says.
fn filled(facts: &TraceFacts) -> usize {
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
fn unique(spans: Vec<SpanFacts>, notes: &mut Notes) -> Vec<SpanFacts> {
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

fn order(spans: &mut [SpanFacts]) {
    // Spans without time come last, in the order of their ids.
    spans.sort_by(|a, b| {
        let key = |span: &SpanFacts| span.started_at.unwrap_or(i64::MAX);
        key(a).cmp(&key(b)).then_with(|| a.span_id.cmp(&b.span_id))
    });
}

fn or<T>(kept: &mut Option<T>, other: Option<T>) {
    if kept.is_none() {
        *kept = other;
    }
}

/// What is missing in `facts` comes from `other`.
fn fill(facts: &mut TraceFacts, other: TraceFacts) {
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
    or(&mut facts.input, other.input);
    or(&mut facts.output, other.output);
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
    if span.calls.is_empty() {
        span.calls = other.calls;
    }
}

fn fill_from_root(facts: &mut TraceFacts, spans: &[SpanFacts], root: usize) {
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
    // A model call's own input has the whole history and the system's words: its words are looked for below.
    if span.kind != kind::LLM {
        or(&mut facts.input, span.input.clone());
        or(&mut facts.output, span.output.clone());
    }
}

fn fill_from_spans(facts: &mut TraceFacts, spans: &[SpanFacts]) {
    let models = || spans.iter().filter(|span| span.kind == kind::LLM);
    let worded = |payload: &&Payload| payload.said.is_some() || !payload.json;
    if facts.input.is_none() {
        let inputs = || models().filter_map(|span| span.input.as_ref());
        facts.input = inputs().find(worded).or_else(|| inputs().next()).cloned();
    }
    if facts.output.is_none() {
        let outputs = || models().rev().filter_map(|span| span.output.as_ref());
        facts.output = outputs().find(worded).or_else(|| outputs().next()).cloned();
    }
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
        for span in lowest(spans, counts) {
            add(&mut prompt, span.prompt_tokens);
            add(&mut completion, span.completion_tokens);
        }
        (facts.prompt_tokens, facts.completion_tokens) = (prompt, completion);
    }
    if facts.cost_usd.is_none() {
        let costs: Vec<f64> = lowest(spans, |span| span.cost_usd.is_some())
            .filter_map(|s| s.cost_usd)
            .collect();
        facts.cost_usd = (!costs.is_empty()).then(|| costs.iter().sum());
    }
}

fn add(sum: &mut Option<u64>, count: Option<u64>) {
    if let Some(count) = count {
        *sum = Some(sum.unwrap_or(0).saturating_add(count));
    }
}

/// Spans that have something which no span below them has: parents often repeat the sum of their children.
fn lowest<'s>(
    spans: &'s [SpanFacts],
    has: impl Fn(&SpanFacts) -> bool + 's,
) -> impl Iterator<Item = &'s SpanFacts> {
    let places: HashMap<&str, usize> = spans
        .iter()
        .enumerate()
        .map(|(at, span)| (span.span_id.as_str(), at))
        .collect();
    let mut above = vec![false; spans.len()];
    for span in spans.iter().filter(|span| has(span)) {
        let mut parent = span
            .parent_span_id
            .as_deref()
            .and_then(|id| places.get(id))
            .copied();
        while let Some(at) = parent {
            // Also ends circles of parents.
            if std::mem::replace(&mut above[at], true) {
                break;
            }
            parent = spans[at]
                .parent_span_id
                .as_deref()
                .and_then(|id| places.get(id))
                .copied();
        }
    }
    spans
        .iter()
        .zip(above)
        .filter(move |(span, above)| !above && has(span))
        .map(|(span, _)| span)
}

/// Tool spans for the calls that messages tell of. A call with an id is one call however many messages tell of it; calls
/// without id that are equal are as many as the message that tells of most.
fn tool_spans_of_calls(spans: &mut [SpanFacts]) -> Vec<SpanFacts> {
    let with_spans: HashSet<&str> = spans
        .iter()
        .filter(|span| span.kind == kind::TOOL)
        .map(|span| span.name.as_str())
        .collect();
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
    found.retain(|(_, call)| !call.name.is_empty() && !with_spans.contains(call.name.as_str()));
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

/// The text that a payload is embedded as: what was said, else all of it.
pub(crate) fn words(payload: &Payload) -> &str {
    payload.said.as_deref().unwrap_or(&payload.raw)
}

#[cfg(test)]
mod tests {
    use super::super::said::{Speaker, payload};
    use super::*;
    use serde_json::json;

    fn span(id: &str, parent: Option<&str>, kind: &str, start: i64) -> SpanFacts {
        SpanFacts {
            of: TraceFacts {
                trace_id: "t".into(),
                ..TraceFacts::default()
            },
            span_id: id.into(),
            parent_span_id: parent.map(str::to_owned),
            kind: kind.into(),
            name: id.into(),
            started_at: Some(start),
            ended_at: Some(start + 10),
            ..SpanFacts::default()
        }
    }

    #[test]
    fn order_changes_nothing() {
        let mut model = span("m", Some("r"), kind::LLM, 5);
        model.input = payload(&json!([{"role": "user", "content": "hi"}]), Speaker::User);
        model.output = Some(Payload::text("hello"));
        model.prompt_tokens = Some(3);
        let mut root = span("r", None, kind::AGENT, 1);
        root.prompt_tokens = Some(3);
        root.of.session_id = Some("s".into());
        let mut update = model.clone();
        update.ended_at = Some(99);
        update.output = None;
        let lost = span("x", Some("gone"), kind::CHAIN, 2);
        let all = [root, model, update, lost];
        let expected = assemble(Vec::new(), all.to_vec());
        let (trace, notes) = &expected;
        assert_eq!(trace.facts.input.as_ref().map(words), Some("hi"));
        assert_eq!(trace.facts.output.as_ref().map(words), Some("hello"));
        assert_eq!(trace.facts.session_id.as_deref(), Some("s"));
        assert_eq!(
            (trace.facts.prompt_tokens, trace.facts.started_at),
            (Some(3), Some(1))
        );
        assert_eq!(
            (notes.repeated_spans, notes.orphans, notes.spans),
            (1, 1, 3)
        );
        for turn in 0..4 {
            let mut turned = all.to_vec();
            turned.rotate_left(turn);
            assert_eq!(assemble(Vec::new(), turned.clone()), expected);
            turned.reverse();
            assert_eq!(assemble(Vec::new(), turned), expected);
        }
    }

    #[test]
    fn three_differing_copies_of_a_span_are_one_in_any_order() {
        let copy = |end: i64, model: Option<&str>, cost: Option<f64>, tag: &str| SpanFacts {
            ended_at: Some(end),
            model: model.map(str::to_owned),
            cost_usd: cost,
            of: TraceFacts {
                trace_id: "t".into(),
                tags: vec![tag.to_owned()],
                ..TraceFacts::default()
            },
            ..span("m", None, kind::LLM, 5)
        };
        let named = [
            copy(20, None, Some(1.0), "a"),
            copy(30, None, None, "b"),
            copy(10, Some("old"), Some(2.0), "c"),
        ];
        let nameless = ["x", "y", "z"].map(|name| SpanFacts {
            name: name.into(),
            ..span("", Some("m"), kind::TOOL, 7)
        });
        let all = |order: [usize; 3]| {
            let named = order.map(|at| named[at].clone());
            let nameless = order.map(|at| nameless[at].clone());
            assemble(Vec::new(), named.into_iter().chain(nameless).collect())
        };
        let expected = all([0, 1, 2]);
        let merged = &expected.0.spans[0];
        // The one that ended last has its way; what it lacks comes from the one that ended last of the others.
        assert_eq!(
            (merged.ended_at, merged.model.as_deref(), merged.cost_usd),
            (Some(30), Some("old"), Some(1.0))
        );
        assert_eq!(expected.1.repeated_spans, 2);
        for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_eq!(all(order), expected, "{order:?}");
        }
    }

    #[test]
    fn calls_become_spans_once() {
        let call = |id: Option<&str>, name: &str, result: Option<&str>| Call {
            id: id.map(str::to_owned),
            name: name.into(),
            arguments: Some(Payload::text("{}")),
            result: result.map(Payload::text),
            error: None,
        };
        let mut first = span("a", None, kind::LLM, 1);
        first.calls = vec![
            call(Some("c1"), "look", None),
            call(None, "ping", None),
            call(None, "ping", None),
        ];
        let mut second = span("b", None, kind::LLM, 20);
        second.calls = vec![
            call(Some("c1"), "look", Some("found")),
            call(None, "ping", None),
            call(Some("c2"), "has_span", None),
        ];
        let tool = span("has_span", None, kind::TOOL, 30);
        let (trace, notes) = assemble(Vec::new(), vec![first, second, tool]);
        let tools: Vec<_> = trace
            .spans
            .iter()
            .filter(|span| span.kind == kind::TOOL)
            .collect();
        let names: Vec<&str> = tools.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["has_span", "ping", "ping", "look"]);
        assert_eq!(tools[3].output.as_ref().map(words), Some("found"));
        assert_eq!((notes.calls_of_messages, notes.tool_calls), (3, 4));
    }

    #[test]
    fn circles_of_parents_end() {
        let mut one = span("a", Some("b"), kind::CHAIN, 1);
        one.cost_usd = Some(1.0);
        let two = span("b", Some("a"), kind::CHAIN, 2);
        let (trace, notes) = assemble(Vec::new(), vec![one, two]);
        assert_eq!(notes.without_root, 1);
        // A span above itself is counted nowhere rather than twice.
        assert_eq!(trace.facts.cost_usd, None);
    }
}
