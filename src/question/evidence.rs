//! What a judge sees of a trace: its document as compact JSON, shortened by a stated rule where it is too long.
//!
//! The rule, in this order, and only as far as needed:
//! 1. A tool call in the input of a span that stood in an earlier place becomes a marker: inputs of model calls repeat the whole
//!    conversation.
//! 2. Payloads of spans (everything but identity, name, kind, status and times) are shortened, the longest first, all down to
//!    one common length. What is cut keeps its start and its end, with a marker between that counts the characters left out.
//!    Cut JSON becomes a text.
//! 3. Spans in the middle are left out, those nearest to the middle first, with a counted marker in their place. The first and
//!    the last span stay.
//!
//! Never shortened or left out: the trace's own fields (its input is the start of the run, its output the end), names and
//! inputs of TOOL spans, and tool calls inside other spans' payloads, also where a payload is a text that holds JSON.

mod payload;
mod tool_calls;

use std::io;

use serde_json::{Value, json};

use payload::shorten_span;
use tool_calls::{holds_call, is_tool, mark_repeated_calls, opened};

use super::prompt::{escape_tags, in_stored_order};

/// Payloads are not cut below this many characters: less says nothing.
const LEAST_PAYLOAD: usize = 200;

/// What happens to a trace that is longer than the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenTooLong {
    /// The metric fails with [`ContextOverflow`].
    #[default]
    Fail,
    /// The trace is shortened by the rule of this module.
    Cut,
}

/// A trace as a judge sees it.
#[derive(Clone, Debug)]
pub struct Evidence {
    text: String,
    value: minijinja::Value,
    truncated: bool,
}

/// The trace does not fit into a prompt (code `context_overflow`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub struct ContextOverflow {
    chars: usize,
    most_chars: usize,
    when: WhenTooLong,
}

impl ContextOverflow {
    /// The code of failed scores.
    pub const CODE: &'static str = "context_overflow";

    fn message(&self) -> String {
        let Self {
            chars,
            most_chars,
            when,
        } = self;
        let length =
            format!("the trace has {chars} characters as JSON, a prompt takes {most_chars}");
        match when {
            WhenTooLong::Fail => format!(
                "{length}; allow shortened traces, or take a judge model with more context and raise the limit"
            ),
            WhenTooLong::Cut => format!(
                "{length}, and what can't be left out of it (its own fields, tool calls, the first and the last span) is longer; take a judge model with more context and raise the limit"
            ),
        }
    }
}

impl Evidence {
    /// The evidence of a trace document: an object with the trace's fields and the list `spans`, first span first. `most_chars`
    /// is the largest number of characters it may take in a prompt.
    ///
    /// # Errors
    /// [`ContextOverflow`] if it is longer and may not be cut, or can't be cut to fit.
    pub fn new(
        trace: &Value,
        most_chars: usize,
        when: WhenTooLong,
    ) -> Result<Self, ContextOverflow> {
        let chars = prompt_chars(trace);
        if chars <= most_chars {
            return Ok(Self::of(trace, false));
        }
        let cut = match when {
            WhenTooLong::Fail => None,
            WhenTooLong::Cut => cut_to_fit(trace, most_chars),
        };
        cut.map(|cut| Self::of(&cut, true)).ok_or(ContextOverflow {
            chars,
            most_chars,
            when,
        })
    }

    fn of(trace: &Value, truncated: bool) -> Self {
        Self {
            text: escape_tags(&trace.to_string()),
            value: in_stored_order(trace),
            truncated,
        }
    }

    /// The JSON text as prompts have it: `<`, `>` and `&` are escapes.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether something was left out. Scores from such evidence say `truncated: true` in their metadata.
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// The document for a prompt's filter `data`.
    pub(crate) fn value(&self) -> minijinja::Value {
        self.value.clone()
    }
}

fn cut_to_fit(trace: &Value, most_chars: usize) -> Option<Value> {
    let (trace, spans) = match trace {
        Value::Object(trace) => (trace, trace.get("spans")?.as_array()?),
        _ => return None,
    };
    let with = |spans: Vec<Value>| {
        let mut trace = trace.clone();
        trace.insert("spans".to_owned(), Value::Array(spans));
        Value::Object(trace)
    };
    let mut spans: Vec<Value> = spans.iter().map(opened).collect();
    mark_repeated_calls(&mut spans);
    let shortened = |most: usize| with(spans.iter().map(|span| shorten_span(span, most)).collect());
    let fitting = |document: Value| (prompt_chars(&document) <= most_chars).then_some(document);

    if let Some(least) = fitting(shortened(LEAST_PAYLOAD)) {
        // The greatest length of payloads that fits; what is returned was measured.
        let (mut best, mut low, mut high) = (least, LEAST_PAYLOAD, most_chars);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match fitting(shortened(middle)) {
                Some(document) => (best, low) = (document, middle),
                None => high = middle,
            }
        }
        return Some(best);
    }

    let short: Vec<Value> = spans
        .iter()
        .map(|span| shorten_span(span, LEAST_PAYLOAD))
        .collect();
    let order = middle_first(&spans);
    let leaving_out = |count: usize| {
        let mut left_out = vec![false; short.len()];
        for &i in order.iter().take(count) {
            if let Some(flag) = left_out.get_mut(i) {
                *flag = true;
            }
        }
        with(without(&short, &left_out))
    };
    let (mut best, mut low, mut high) = (fitting(leaving_out(order.len()))?, 0, order.len());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match fitting(leaving_out(middle)) {
            Some(document) => (best, high) = (document, middle),
            None => low = middle,
        }
    }
    Some(best)
}

/// Positions of the spans that may be left out, nearest to the middle first.
fn middle_first(spans: &[Value]) -> Vec<usize> {
    let last = spans.len().saturating_sub(1);
    let mut order: Vec<usize> = (1..last)
        .filter(|&i| {
            spans
                .get(i)
                .is_some_and(|span| !is_tool(span) && !holds_call(span))
        })
        .collect();
    order.sort_by_key(|&i| ((2 * i).abs_diff(last), i));
    order
}

/// The spans that stay, with a marker for each run of others.
fn without(spans: &[Value], left_out: &[bool]) -> Vec<Value> {
    let mut kept = Vec::new();
    let mut run = 0;
    let marker = |run: usize| json!({"left_out": format!("[… {run} spans left out …]")});
    for (span, &out) in spans.iter().zip(left_out) {
        if out {
            run += 1;
            continue;
        }
        if run > 0 {
            kept.push(marker(std::mem::take(&mut run)));
        }
        kept.push(span.clone());
    }
    if run > 0 {
        kept.push(marker(run));
    }
    kept
}

/// How many characters a value takes in a prompt.
fn prompt_chars(value: &Value) -> usize {
    let mut count = CharCount(0);
    // Counting can't fail, and neither can writing a JSON value.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// Counts characters of UTF-8, escapes of `<`, `>` and `&` at their length.
struct CharCount(usize);

impl io::Write for CharCount {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.0 += match byte {
                b'<' | b'>' | b'&' => "\\u003c".len(),
                0x80..=0xbf => 0,
                _ => 1,
            };
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spans_of(evidence: &Evidence) -> Vec<Value> {
        let trace: Value = serde_json::from_str(evidence.text()).unwrap();
        trace["spans"].as_array().unwrap().clone()
    }

    fn cut(trace: &Value, most_chars: usize) -> Evidence {
        Evidence::new(trace, most_chars, WhenTooLong::Cut).unwrap()
    }

    /// All tool calls in a value, as text.
    fn calls_in(value: &Value) -> Vec<String> {
        match value {
            Value::Object(entries) => entries
                .iter()
                .flat_map(|(key, value)| match key.as_str() {
                    "tool_calls" if value.is_array() => vec![value.to_string()],
                    _ => calls_in(value),
                })
                .collect(),
            Value::Array(items) => items.iter().flat_map(calls_in).collect(),
            Value::String(text) if text.starts_with('{') => {
                serde_json::from_str(text).map_or(Vec::new(), |inside| calls_in(&inside))
            }
            _ => Vec::new(),
        }
    }

    fn call(id: usize) -> Value {
        let arguments = format!("{{\"city\": \"<{id}>\"}}");
        json!([{"id": format!("call_{id}"), "type": "function", "function": {"name": "look_up", "arguments": arguments}}])
    }

    #[test]
    fn a_short_trace_stays_as_it_is_in_stored_order() {
        let trace = json!({"trace_id": "t", "name": "é<&>", "input": 1, "a": null, "spans": [{"name": "z", "kind": "LLM", "b": 1.5}]});
        let length = r#"{"trace_id":"t","name":"é\u003c\u0026\u003e","input":1,"a":null,"spans":[{"name":"z","kind":"LLM","b":1.5}]}"#;
        let evidence = Evidence::new(&trace, length.chars().count(), WhenTooLong::Fail).unwrap();
        assert_eq!((evidence.text(), evidence.truncated()), (length, false));
        let too_long = Evidence::new(&trace, length.chars().count() - 1, WhenTooLong::Fail);
        assert_eq!(too_long.unwrap_err().chars, length.chars().count());
    }

    #[test]
    fn the_longest_payloads_are_cut_first_and_say_by_how_much() {
        let (short, long) = ("s".repeat(900), format!("start{}end", "x".repeat(9000)));
        let trace = json!({"input": "i".repeat(2000), "spans": [
            {"span_id": "1", "kind": "LLM", "input": short, "output": long},
            {"span_id": "2", "kind": "TOOL", "input": {"q": long}, "output": {"rows": [long]}},
        ]});
        let evidence = cut(&trace, 16_000);
        let spans = spans_of(&evidence);
        assert_eq!(spans[0]["input"], short);
        assert_eq!(spans[1]["input"]["q"], long);
        let (output, rows) = (
            spans[0]["output"].as_str().unwrap(),
            spans[1]["output"].as_str().unwrap(),
        );
        assert!(output.starts_with("start") && output.ends_with("end"));
        assert!(rows.starts_with("{\"rows\":[\"start") && rows.ends_with("end\"]}"));
        let (start, rest) = output.split_once("[… ").unwrap();
        let (count, end) = rest.split_once(" characters left out …]").unwrap();
        assert_eq!(
            start.len() + count.parse::<usize>().unwrap() + end.len(),
            long.len()
        );
        // Almost all of the room is used.
        assert!(
            evidence.text().chars().count() > 15_900,
            "{}",
            evidence.text().len()
        );
    }

    #[test]
    fn middle_spans_go_before_tool_calls_and_the_ends_do() {
        let spans: Vec<Value> = (0..100)
            .map(|i| match i {
                20 => json!({"span_id": i, "kind": "TOOL", "name": "t", "input": "q"}),
                60 => json!({"span_id": i, "kind": "LLM", "output": {"tool_calls": call(1)}}),
                _ => json!({"span_id": i, "kind": "CHAIN", "input": "x".repeat(150)}),
            })
            .collect();
        let trace = json!({"input": "a", "output": "b", "spans": spans});
        let evidence = cut(&trace, 3000);
        let kept = spans_of(&evidence);
        let ids: Vec<u64> = kept
            .iter()
            .filter_map(|span| span["span_id"].as_u64())
            .collect();
        assert!(
            [0, 20, 60, 99].iter().all(|id| ids.contains(id)) && !ids.contains(&50),
            "{ids:?}"
        );
        let counts = kept.iter().filter_map(|span| span["left_out"].as_str());
        let left_out: usize = counts
            .map(|text| text.split(' ').nth(1).unwrap().parse::<usize>().unwrap())
            .sum();
        assert_eq!(left_out + ids.len(), 100);
        let overflow = Evidence::new(&trace, 500, WhenTooLong::Cut).unwrap_err();
        assert!(
            overflow.to_string().contains("a prompt takes 500"),
            "{overflow}"
        );
    }

    #[test]
    fn repeated_conversations_carry_each_call_once() {
        let message = |i: usize| json!({"role": "assistant", "content": "x".repeat(300), "tool_calls": call(i)});
        let spans: Vec<Value> = (0..40)
            .map(|i| {
                let history: Vec<Value> = (0..i).map(message).collect();
                json!({"span_id": i, "kind": "LLM", "input": {"messages": history}, "output": message(i)})
            })
            .collect();
        // The agent makes its first call again: that is no repeated conversation.
        let again = json!({"span_id": 40, "kind": "LLM", "output": message(0)});
        let spans = [spans, vec![again]].concat();
        let trace = json!({ "spans": spans });
        let evidence = cut(&trace, 40_000);
        let kept: Value = serde_json::from_str(evidence.text()).unwrap();
        let mut calls = calls_in(&kept);
        calls.sort();
        let mut expected: Vec<String> = (0..40).chain([0]).map(|i| call(i).to_string()).collect();
        expected.sort();
        assert_eq!(calls, expected);
    }

    fn payload() -> impl Strategy<Value = Value> {
        prop_oneof![
            "[a-z<>&\"é]{0,40}".prop_map(Value::from),
            (0..1500usize).prop_map(|n| Value::from("<é".repeat(n))),
            (0..500usize).prop_map(|n| json!({"rows": vec![0.5; n]})),
            (0..30usize, 0..2000usize).prop_map(
                |(id, n)| json!({"messages": [{"content": "c".repeat(n), "tool_calls": call(id)}]})
            ),
            (0..30usize, 0..900usize).prop_map(|(id, n)| {
                json!({"text": "t".repeat(n), "tool_calls": call(id)})
                    .to_string()
                    .into()
            }),
            Just(Value::Null),
        ]
    }

    fn trace() -> impl Strategy<Value = Value> {
        let kind = prop::sample::select(vec!["TOOL", "LLM", "AGENT", "CHAIN", "OTHER"]);
        let span = (kind, payload(), payload(), payload());
        (payload(), prop::collection::vec(span, 0..15)).prop_map(|(input, spans)| {
            let spans = spans.into_iter().enumerate().map(|(i, (kind, input, output, metadata))| {
                json!({"span_id": i, "name": format!("s{i}"), "kind": kind, "input": input, "output": output, "metadata": metadata})
            });
            json!({"trace_id": "t", "input": input, "output": {"a": 1}, "spans": spans.collect::<Vec<_>>()})
        })
    }

    proptest! {
        #[test]
        fn evidence_fits_and_holds_every_tool_call(trace in trace(), most_chars in 0..25_000usize) {
            let whole = escape_tags(&trace.to_string());
            prop_assert_eq!(prompt_chars(&trace), whole.chars().count());
            let failing = Evidence::new(&trace, most_chars, WhenTooLong::Fail);
            prop_assert_eq!(failing.is_ok(), whole.chars().count() <= most_chars);
            let Ok(evidence) = Evidence::new(&trace, most_chars, WhenTooLong::Cut) else {
                prop_assert!(whole.chars().count() > most_chars);
                return Ok(());
            };
            prop_assert!(evidence.text().chars().count() <= most_chars);
            prop_assert_eq!(evidence.truncated(), whole.chars().count() > most_chars);
            prop_assert_eq!(evidence.text() == whole, !evidence.truncated());
            let again = Evidence::new(&trace, most_chars, WhenTooLong::Cut).unwrap();
            prop_assert_eq!(again.text(), evidence.text());

            let kept: Value = serde_json::from_str(evidence.text()).unwrap();
            prop_assert_eq!(&kept["input"], &trace["input"]);
            let spans = trace["spans"].as_array().unwrap();
            let kept_spans = spans_of(&evidence);
            let found = |id: &Value| kept_spans.iter().find(|span| span["span_id"] == *id);
            for span in spans.iter().filter(|span| span["kind"] == "TOOL") {
                let same = found(&span["span_id"]).unwrap();
                prop_assert_eq!(&same["name"], &span["name"]);
                prop_assert_eq!(&same["input"], &span["input"]);
            }
            for end in spans.first().into_iter().chain(spans.last()) {
                prop_assert!(found(&end["span_id"]).is_some());
            }
            let calls = calls_in(&kept);
            for call in calls_in(&trace) {
                prop_assert!(calls.contains(&call), "{} is gone", call);
            }
        }
    }
}
