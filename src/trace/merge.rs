//! Rows of one trace as one document.

use serde_json::{Map, Value};

/// Members of a trace that its last row decides alone. So does it for `started_at`, but a row without one is set aside.
const STATED_BY_THE_LAST: [&str; 2] = ["name", "status"];

/// Folds a later row of the same trace into its document (as in PandaProbe): its name and status stand, also where
/// it has none; any other value of the later row that is there replaces; metadata merges at the top level, tags unite, spans
/// merge by their id.
pub fn merge_documents(earlier: &mut Map<String, Value>, later: Map<String, Value>) {
    for name in STATED_BY_THE_LAST {
        if !later.contains_key(name) {
            // The other members keep their order.
            earlier.shift_remove(name);
        }
    }
    for (name, value) in later {
        match (name.as_str(), earlier.get_mut(&name), value) {
            ("metadata", Some(Value::Object(kept)), Value::Object(new)) => kept.extend(new),
            ("tags", Some(Value::Array(kept)), Value::Array(new)) => {
                for tag in new {
                    if !kept.contains(&tag) {
                        kept.push(tag);
                    }
                }
            }
            ("spans", Some(Value::Array(kept)), Value::Array(new)) => {
                for span in new {
                    let id = span.get("span_id").cloned();
                    match kept
                        .iter_mut()
                        .find(|s| id.is_some() && s.get("span_id") == id.as_ref())
                    {
                        Some(Value::Object(same)) => {
                            if let Value::Object(span) = span {
                                same.extend(span.into_iter().filter(|(_, v)| !v.is_null()));
                            }
                        }
                        _ => kept.push(span),
                    }
                }
            }
            (_, _, value) => {
                earlier.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn rows_of_one_trace_merge_as_in_pandaprobe() {
        let mut document = object(json!({
            "output": "old", "tags": ["a"], "metadata": {"x": 1, "y": 1},
            "spans": [{"span_id": "1", "name": "n", "output": null}],
        }));
        merge_documents(
            &mut document,
            object(json!({
                "output": "new", "tags": ["b", "a"], "metadata": {"y": 2},
                "spans": [{"span_id": "1", "output": "o"}, {"span_id": "2"}],
            })),
        );
        let expected = json!({
            "output": "new", "tags": ["a", "b"], "metadata": {"x": 1, "y": 2},
            "spans": [{"span_id": "1", "name": "n", "output": "o"}, {"span_id": "2"}],
        });
        assert_eq!(Value::Object(document), expected);
    }

    #[test]
    fn the_later_row_says_name_and_status_also_by_silence() {
        let merged = |later: Value| {
            let mut document = object(json!({
                "trace_id": "t", "name": "old", "status": "ERROR",
                "started_at": "2026-01-01T00:00:00Z", "user_id": "u", "output": "o",
            }));
            merge_documents(&mut document, object(later));
            Value::Object(document).to_string()
        };
        let silent = json!({"trace_id": "t", "started_at": "2026-01-01T00:00:01Z"});
        let rest = r#""started_at":"2026-01-01T00:00:01Z","user_id":"u","output":"o""#;
        assert_eq!(
            merged(silent.clone()),
            format!(r#"{{"trace_id":"t",{rest}}}"#)
        );
        let mut told = silent;
        told["name"] = json!("new");
        told["status"] = json!("OK");
        let said = r#""name":"new","status":"OK""#;
        assert_eq!(merged(told), format!(r#"{{"trace_id":"t",{said},{rest}}}"#));
    }
}
