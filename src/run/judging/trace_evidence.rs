//! From the document of a trace to what a judge sees of it.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::question::{ContextOverflow, Evidence, WhenTooLong};
use crate::trace::{Span, label};

/// The evidence of a trace with these members, of at most `most_chars` characters. Its spans stand in the order of
/// (`started_at`, `span_id`) (as in PandaProbe), wherever the files have them: what may be cut depends on what
/// came first and last. Spans without a readable start come behind all others, in stored order.
///
/// # Errors
/// [`ContextOverflow`] if it is longer and may not be cut, or can't be cut to fit.
pub(crate) fn trace_evidence(
    mut members: Map<String, Value>,
    most_chars: usize,
    when: WhenTooLong,
) -> Result<Evidence, ContextOverflow> {
    if let Some(Value::Array(spans)) = members.get_mut("spans") {
        spans.sort_by_cached_key(place);
    }
    Evidence::new(&Value::Object(members), most_chars, when)
}

/// Where a span stands among others.
fn place(span: &Value) -> (bool, Option<(DateTime<Utc>, String)>) {
    let known = Span::of(span).and_then(Span::started_at).map(|start| {
        let id = span.as_object().and_then(|span| label(span, "span_id"));
        (start, id.unwrap_or_default())
    });
    (known.is_none(), known)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ids(spans: Value, most_chars: usize) -> Vec<String> {
        let members = json!({"trace_id": "t", "spans": spans});
        let members = members.as_object().unwrap().clone();
        let evidence = trace_evidence(members, most_chars, WhenTooLong::Cut).unwrap();
        let shown: Value = serde_json::from_str(evidence.text()).unwrap();
        let spans = shown["spans"].as_array().unwrap().iter();
        spans
            .filter_map(|span| span["span_id"].as_str().map(str::to_owned))
            .collect()
    }

    #[test]
    fn spans_stand_in_the_order_of_time_then_of_ids() {
        let spans = json!([
            {"span_id": "z"},
            {"span_id": "c", "started_at": "2026-01-01T00:00:02Z"},
            {"span_id": "y", "started_at": "soon"},
            {"span_id": "b", "started_at": "2026-01-01T00:00:02.000Z"},
            // Earlier than the others, though its text is greater.
            {"span_id": "a", "started_at": "2026-01-01T02:00:01+02:00"},
            {"span_id": "x", "started_at": null},
        ]);
        assert_eq!(ids(spans, usize::MAX), ["a", "b", "c", "z", "y", "x"]);
    }

    #[test]
    fn the_first_and_the_last_span_by_time_outlast_a_cut() {
        let spans: Vec<Value> = (0..60)
            .map(|at| {
                json!({
                    "span_id": format!("s{at:02}"), "kind": "CHAIN", "input": "x".repeat(150),
                    "started_at": format!("2026-01-01T00:00:{:02}Z", (at + 30) % 60),
                })
            })
            .collect();
        let kept = ids(Value::Array(spans), 2000);
        assert!(kept.len() < 60, "{kept:?}");
        let ends = (
            kept.first().unwrap().as_str(),
            kept.last().unwrap().as_str(),
        );
        assert_eq!(ends, ("s30", "s29"));
    }
}
