//! Reading single values of documents: numbers as text, times in any unit, JSON in text.

use serde_json::{Map, Value};

use crate::text::{Json, parse_instant};

/// A member at a dotted path of nested objects; the whole name is tried first (`attributes` may be flat or nested).
pub(crate) fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    let object = value.as_object()?;
    if let Some(found) = object.get(path) {
        return (!found.is_null()).then_some(found);
    }
    let mut split = path.len();
    // Longest prefix first: `llm.token_count.prompt` may be `llm` → `token_count.prompt` or deeper.
    while let Some(dot) = path[..split].rfind('.') {
        if let Some(inner) = object.get(&path[..dot])
            && let Some(found) = at(inner, &path[dot + 1..])
        {
            return Some(found);
        }
        split = dot;
    }
    None
}

/// A non-empty text: a string, or a number or boolean as it is written.
pub(crate) fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// A number, also as text; none where it isn't one or isn't finite.
pub(crate) fn number(value: Option<&Value>) -> Option<f64> {
    written(value).filter(|n| n.is_finite())
}

/// An amount, say of money: a number, also as text; infinite where it is beyond all that can be read. Who gathers facts
/// leaves such a cost out and counts it.
pub(crate) fn amount(value: Option<&Value>) -> Option<f64> {
    written(value).filter(|n| !n.is_nan())
}

fn written(value: Option<&Value>) -> Option<f64> {
    match value? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A count, also as text or as a float without fraction.
pub(crate) fn count(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::Number(number) if number.is_u64() => number.as_u64(),
        Value::String(text) if text.trim().parse::<u64>().is_ok() => text.trim().parse().ok(),
        other => number(Some(other))
            .filter(|n| *n >= 0.0 && n.fract() == 0.0 && *n < 9e15)
            .map(|n| n as u64),
    }
}

/// Nanoseconds since 1970, from ISO 8601 text (UTC where no zone is given) or from a count, also as text, whose unit is
/// told by its size: seconds below 10^11, milliseconds below 10^14, microseconds below 10^17, else nanoseconds. Counts at
/// or below 0 are no times.
pub(crate) fn nanos(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::Number(number) => match number.as_i64() {
            Some(count) => nanos_of_count(count),
            None => number.as_f64().and_then(nanos_of_float),
        },
        Value::String(text) => {
            let text = text.trim();
            if let Ok(count) = text.parse::<i64>() {
                return nanos_of_count(count);
            }
            if let Ok(float) = text.parse::<f64>() {
                return nanos_of_float(float);
            }
            let instant = parse_instant(text).ok()?;
            instant.timestamp_nanos_opt()
        }
        _ => None,
    }
}

/// The same of a value that must be a time if it is there: 0 and the empty text are none.
///
/// # Errors
/// What stands there instead.
pub(crate) fn time(name: &str, value: Option<&Value>) -> Result<Option<i64>, String> {
    let Some(value) = value else { return Ok(None) };
    let none = match value {
        Value::Null => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => matches!(text.trim(), "" | "0" | "null" | "None" | "NaT"),
        _ => false,
    };
    match nanos(Some(value)) {
        _ if none => Ok(None),
        Some(found) => Ok(Some(found)),
        None => {
            let written = value.to_string();
            let shown: String = written.chars().take(60).collect();
            Err(format!(
                "`{name}` is no time: {shown}; write ISO 8601, or a count since 1970"
            ))
        }
    }
}

fn nanos_of_count(count: i64) -> Option<i64> {
    let factor = match count {
        ..=0 => return None,
        1..100_000_000_000 => 1_000_000_000,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1_000,
        _ => 1,
    };
    count.checked_mul(factor)
}

fn nanos_of_float(count: f64) -> Option<i64> {
    let factor = match count {
        n if n.is_nan() || n <= 0.0 => return None,
        n if n < 1e11 => 1e9,
        n if n < 1e14 => 1e6,
        n if n < 1e17 => 1e3,
        _ => 1.0,
    };
    let nanos = (count * factor).round();
    (nanos < 9e18).then_some(nanos as i64)
}

/// The document in a text that is one JSON object or array; any other value as it is.
pub(crate) fn unwrapped(value: Value) -> Value {
    match &value {
        Value::String(text) => nested(text).unwrap_or(value),
        _ => value,
    }
}

/// The object or array that a text holds; none if it is anything else.
pub(crate) fn nested(text: &str) -> Option<Value> {
    let trimmed = text.trim_start();
    if !trimmed.starts_with(['{', '[']) {
        return None;
    }
    match serde_json::from_str(trimmed) {
        Ok(document) => Some(document),
        Err(_) => lenient(trimmed.as_bytes()),
    }
}

/// A document with what strict JSON refuses: Python's NaN and infinities, which are null, numbers that are too large,
/// which stay as they are written, and halves of a surrogate pair, which stand for no letter.
pub(crate) fn lenient(bytes: &[u8]) -> Option<Value> {
    let parsed = crate::text::parse(bytes).or_else(|problem| match without_halves(bytes) {
        Some(bytes) => crate::text::parse(&bytes),
        None => Err(problem),
    });
    parsed.ok().map(value_of)
}

fn value_of(json: Json) -> Value {
    match json {
        Json::Float(literal) if !literal.parse().is_ok_and(f64::is_finite) => {
            match literal.ends_with(|c: char| c.is_ascii_digit()) {
                true => literal.into(),
                false => Value::Null,
            }
        }
        Json::Array(items) => items.into_iter().map(value_of).collect(),
        Json::Object(members) => Value::Object(
            members
                .into_iter()
                .map(|(name, member)| (name, value_of(member)))
                .collect(),
        ),
        other => other.into(),
    }
}

/// The same with `\ufffd` for escapes that are half of a pair; none if there are none.
fn without_halves(bytes: &[u8]) -> Option<Vec<u8>> {
    let half = |at: usize| {
        let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        let number = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        (0xd800..0xe000).contains(&number).then_some(number)
    };
    let mut changed = bytes.to_vec();
    let (mut at, mut any) = (0, false);
    while at < bytes.len() {
        if bytes[at] != b'\\' {
            at += 1;
            continue;
        }
        match (half(at), half(at + 6)) {
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => at += 12,
            (Some(_), _) => {
                changed.get_mut(at + 2..at + 6)?.copy_from_slice(b"fffd");
                any = true;
                at += 6;
            }
            // The letter after the backslash is no beginning of another escape.
            (None, _) => at += 2,
        }
    }
    any.then_some(changed)
}

/// The text in a text that is one JSON string with its quotes.
pub(crate) fn quoted(text: &str) -> Option<String> {
    let trimmed = text.trim();
    if trimmed.len() < 2 || !trimmed.starts_with('"') || !trimmed.ends_with('"') {
        return None;
    }
    serde_json::from_str(trimmed).ok()
}

/// An object, also one in a text.
pub(crate) fn object(value: Option<&Value>) -> Option<Map<String, Value>> {
    match unwrapped(value?.clone()) {
        Value::Object(members) => Some(members),
        _ => None,
    }
}

/// Texts of a list, also of one in a text; a plain text is a list of one.
pub(crate) fn texts(value: Option<&Value>) -> Vec<String> {
    match value.cloned().map(unwrapped) {
        Some(Value::Array(items)) => items.iter().filter_map(|item| text(Some(item))).collect(),
        Some(Value::String(one)) if !one.is_empty() => vec![one],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_are_found_flat_nested_and_in_between() {
        for document in [
            json!({"a.b.c": 1}),
            json!({"a": {"b": {"c": 1}}}),
            json!({"a.b": {"c": 1}}),
            json!({"a": {"b.c": 1}}),
        ] {
            assert_eq!(at(&document, "a.b.c"), Some(&json!(1)), "{document}");
        }
        assert_eq!(at(&json!({"a": null}), "a"), None);
    }

    #[test]
    fn times_are_read_in_every_unit() {
        let expected = 1_700_000_000_123_000_000;
        for value in [
            json!(1_700_000_000.123),
            json!(1_700_000_000_123_i64),
            json!("1700000000123000"),
            json!(1_700_000_000_123_000_000_i64),
            json!("2023-11-14T22:13:20.123Z"),
            json!("2023-11-14 22:13:20.123000"),
        ] {
            let off = nanos(Some(&value)).unwrap() - expected;
            assert!(off.abs() < 1000, "{value}: {off}");
        }
        for none in [json!(0), json!(-5), json!("soon"), json!(null), json!(true)] {
            assert_eq!(nanos(Some(&none)), None, "{none}");
        }
    }

    #[test]
    fn what_is_there_and_no_time_is_refused() {
        for none in [json!(null), json!(""), json!(0), json!("0")] {
            assert_eq!(time("t", Some(&none)), Ok(None), "{none}");
        }
        assert_eq!(time("t", Some(&json!(1))), Ok(Some(1_000_000_000)));
        for bad in [
            json!("2025-02-30 00:00:00"),
            json!("Jan 1 2025"),
            json!(-5),
            json!({"a": 1}),
            json!("9999-01-01"),
        ] {
            let problem = time("start_time", Some(&bad)).unwrap_err();
            assert!(problem.contains("`start_time` is no time"), "{problem}");
        }
    }

    #[test]
    fn what_python_writes_is_read() {
        assert_eq!(
            nested(r#"{"a": [NaN, -Infinity, 1e400, "\ud83d x \ud83d\ude00 \\ud83d"]}"#),
            Some(json!({"a": [null, null, "1e400", "\u{fffd} x \u{1f600} \\ud83d"]}))
        );
        assert_eq!(nested("{\"a\": }"), None);
        assert_eq!(quoted(" \"a \\\"b\\\"\" ").as_deref(), Some("a \"b\""));
        assert_eq!(quoted("\"a\" and \"b\""), None);
    }

    #[test]
    fn counts_are_read_as_text_too() {
        assert_eq!(count(Some(&json!("12"))), Some(12));
        assert_eq!(count(Some(&json!(12.0))), Some(12));
        assert_eq!(count(Some(&json!(-1))), None);
        assert_eq!(count(Some(&json!(1.5))), None);
    }
}
