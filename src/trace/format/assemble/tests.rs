use super::super::parts::Call;
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
    one.prompt_tokens = Some(3);
    let mut two = span("b", Some("a"), kind::CHAIN, 2);
    two.prompt_tokens = Some(5);
    let (trace, notes) = assemble(Vec::new(), vec![one, two]);
    assert_eq!((notes.without_root, notes.orphans), (1, 1));
    // Cut at `a`: `b` is below it.
    assert_eq!(trace.facts.cost_usd, Some(1.0));
    assert_eq!(trace.facts.prompt_tokens, Some(5));
    let mut own = span("a", Some("a"), kind::LLM, 1);
    own.prompt_tokens = Some(3);
    let (trace, _) = assemble(Vec::new(), vec![own]);
    assert_eq!(trace.facts.prompt_tokens, Some(3));
}

fn model(id: &str, parent: Option<&str>, start: i64, input: &str, output: &str) -> SpanFacts {
    SpanFacts {
        input: payload(&json!([{"role": "user", "content": input}]), Speaker::User),
        output: payload(
            &json!([{"role": "assistant", "content": output}]),
            Speaker::Agent,
        ),
        ..span(id, parent, kind::LLM, start)
    }
}

fn said_by(spans: Vec<SpanFacts>) -> (String, String) {
    let facts = assemble(Vec::new(), spans).0.facts;
    let of = |payload: &Option<Payload>| payload.as_ref().map_or("none", words).to_owned();
    (of(&facts.input), of(&facts.output))
}

#[test]
fn a_root_that_is_a_model_call_has_its_own_words() {
    let root = || model("r", None, 1, "root in", "root out");
    let child = || model("c", Some("r"), 5, "child in", "child out");
    let words = |input: &str, output: &str| (input.to_owned(), output.to_owned());
    assert_eq!(said_by(vec![root(), child()]), words("root in", "root out"));
    // One call after the other: the last one answers, or nobody does.
    let second = model("s", None, 20, "root in", "second out");
    assert_eq!(
        said_by(vec![root(), child(), second]),
        words("root in", "second out")
    );
    let silent = model("s", None, 20, "root in", "");
    assert_eq!(said_by(vec![root(), silent]), words("root in", ""));
    let mut bare = root();
    (bare.input, bare.output) = (None, None);
    assert_eq!(said_by(vec![bare, child()]), words("child in", "child out"));
    // An empty document of the root is as good as none.
    let mut agent = span("r", None, kind::AGENT, 1);
    agent.output = payload(&json!({}), Speaker::Agent);
    assert_eq!(
        said_by(vec![agent, child()]),
        words("child in", "child out")
    );
}

#[test]
fn an_end_stands_for_a_start_that_nobody_knows() {
    let mut only = span("a", None, kind::LLM, 1);
    only.started_at = None;
    let (trace, notes) = assemble(Vec::new(), vec![only.clone()]);
    assert_eq!(trace.facts.started_at, Some(11));
    assert_eq!((notes.without_start, notes.without_order), (1, 0));
    only.ended_at = None;
    let (_, notes) = assemble(Vec::new(), vec![only]);
    assert_eq!((notes.without_start, notes.without_order), (0, 1));
}

#[test]
fn one_span_id_in_two_projects_is_told_too() {
    let of = |project: &str| {
        let mut span = span("a", None, kind::LLM, 1);
        span.of.project_id = Some(project.into());
        span
    };
    let (trace, notes) = assemble(Vec::new(), vec![of("p"), of("q")]);
    assert_eq!((trace.spans.len(), notes.several_projects), (1, 1));
    let (_, notes) = assemble(Vec::new(), vec![of("p"), of("p")]);
    assert_eq!((notes.repeated_spans, notes.several_projects), (1, 0));
}

#[test]
fn projects_of_one_trace_and_sums_beyond_all_numbers_are_told() {
    let mut one = span("a", None, kind::LLM, 1);
    one.of.project_id = Some("p".into());
    one.cost_usd = Some(1e308);
    let mut two = span("b", None, kind::LLM, 2);
    two.of.project_id = Some("q".into());
    two.cost_usd = Some(1e308);
    let (trace, notes) = assemble(Vec::new(), vec![one, two]);
    assert_eq!(notes.several_projects, 1);
    assert_eq!(notes.of_several_projects, ["t"]);
    assert_eq!((trace.facts.cost_usd, notes.odd_costs), (None, 1));
}

#[test]
fn a_call_that_has_no_span_is_found_where_spans_say_which_call_they_are() {
    let mut first = span("a", None, kind::LLM, 1);
    let call = |id: &str| Call {
        id: Some(id.into()),
        name: "search".into(),
        ..Call::default()
    };
    first.calls = vec![call("1"), call("2")];
    let mut tool = span("t", None, kind::TOOL, 5);
    tool.name = "search".into();
    let calls = |spans| assemble(Vec::new(), spans).1.tool_calls;
    assert_eq!(calls(vec![first.clone(), tool.clone()]), 1);
    tool.call_id = Some("other".into());
    assert_eq!(calls(vec![first.clone(), tool.clone()]), 1);
    tool.call_id = Some("1".into());
    assert_eq!(calls(vec![first, tool]), 2);
}
