//! JSON laid out for reading: one member a line, keys sorted.

use serde_json::Value;

use crate::text::{Json, parse_strict};

/// Longer texts are not read as JSON.
const MOST_BYTES: usize = 256 * 1024;
/// Deeper levels are indented no further: indentation must not make a short text long.
const MOST_INDENTED: usize = 20;

/// An object or array with one member a line and sorted keys, numbers as they were written; none if the text is no
/// JSON, or a JSON value without members, which reads best as it is.
pub(super) fn ordered(text: &str) -> Option<String> {
    let start = text.trim_start().chars().next()?;
    if text.len() > MOST_BYTES || !matches!(start, '{' | '[') {
        return None;
    }
    let value = parse_strict(text).ok()?;
    let mut out = String::with_capacity(text.len() * 2);
    write(&mut out, &value, 0);
    Some(out)
}

/// As deep as the reader allows: 200 levels.
fn write(out: &mut String, value: &Json, depth: usize) {
    match value {
        Json::Array(items) if !items.is_empty() => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                next(out, at, depth + 1);
                write(out, item, depth + 1);
            }
            line(out, depth);
            out.push(']');
        }
        Json::Object(members) if !members.is_empty() => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            out.push('{');
            for (at, (key, value)) in members.into_iter().enumerate() {
                next(out, at, depth + 1);
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push_str(": ");
                write(out, value, depth + 1);
            }
            line(out, depth);
            out.push('}');
        }
        single => out.push_str(&single.compact()),
    }
}

fn next(out: &mut String, at: usize, depth: usize) {
    out.push_str(if at > 0 { "," } else { "" });
    line(out, depth);
}

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    out.push_str(&"  ".repeat(depth.min(MOST_INDENTED)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_at_every_level_and_numbers_stay_as_written() {
        assert_eq!(
            ordered(r#" {"b":[1.0,{"z":null,"a":"x\ny"}],"a":{},"c":[]}"#).unwrap(),
            "{\n  \"a\": {},\n  \"b\": [\n    1.0,\n    {\n      \"a\": \"x\\ny\",\n      \"z\": null\n    }\n  ],\n  \"c\": []\n}"
        );
    }

    #[test]
    fn what_has_no_members_or_is_no_json_stays() {
        for text in ["", "12", "\"a\"", "{a: 1}", "[1] and more", "hello"] {
            assert_eq!(ordered(text), None, "{text}");
        }
        let long = format!("[{}1]", "1,".repeat(MOST_BYTES));
        assert_eq!(ordered(&long), None);
        assert_eq!(ordered(&"[".repeat(100_000)), None);
    }

    #[test]
    fn deep_values_do_not_grow_by_their_indentation() {
        let deep = format!(
            "{}{}{}",
            "[".repeat(150),
            "1,".repeat(9_999) + "1",
            "]".repeat(150)
        );
        let laid_out = ordered(&deep).unwrap();
        assert!(laid_out.len() < 25 * deep.len(), "{}", laid_out.len());
    }
}
