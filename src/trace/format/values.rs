//! Reading single values of documents: numbers as text, times in any unit, JSON in text.

use serde_json::{Map, Value};

use crate::text::parse_instant;

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
    let number = match value? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|n: &f64| n.is_finite())
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
    fn counts_are_read_as_text_too() {
        assert_eq!(count(Some(&json!("12"))), Some(12));
        assert_eq!(count(Some(&json!(12.0))), Some(12));
        assert_eq!(count(Some(&json!(-1))), None);
        assert_eq!(count(Some(&json!(1.5))), None);
    }
}
