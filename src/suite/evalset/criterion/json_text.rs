//! JSON values in texts, read as Go reads them: unpaired surrogate escapes become U+FFFD, and of equal keys the last
//! one counts.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

/// The JSON value that a text begins with. What follows it is not looked at, and a code fence around it is no JSON.
///
/// # Errors
/// What is wrong, for a reader. Values nested more than 127 levels deep are not read.
pub fn first_value(text: &str) -> Result<Value, String> {
    let text = with_paired_surrogates(zero_alone(text));
    Value::deserialize(&mut serde_json::Deserializer::from_str(&text)).map_err(|e| e.to_string())
}

/// The JSON value that a text is, with nothing but white space around it.
///
/// # Errors
/// What is wrong, for a reader. Values nested more than 127 levels deep are not read.
pub fn only_value(text: &str) -> Result<Value, String> {
    serde_json::from_str(&with_paired_surrogates(text)).map_err(|e| e.to_string())
}

/// A text that begins with a number of leading zeros holds the number 0, and then something else.
fn zero_alone(text: &str) -> &str {
    let number = text.trim_start_matches([' ', '\t', '\n', '\r']);
    let digits = number.strip_prefix('-').unwrap_or(number);
    match digits.strip_prefix('0') {
        Some(after) if after.starts_with(|c: char| c.is_ascii_digit()) => {
            &text[..text.len() - after.len()]
        }
        _ => text,
    }
}

/// The text with `\uFFFD` for every escaped surrogate that is not half of a pair.
pub(in crate::suite::evalset) fn with_paired_surrogates(text: &str) -> Cow<'_, str> {
    let mut mended = String::new();
    // All before this is in `mended`.
    let mut kept = 0;
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        match unit_at(text, at) {
            // `\\`, `\n` and the like. What follows the backslash may be a character of several bytes, which is no
            // JSON; then the search goes on behind it.
            None => {
                let escaped = text[at + 1..].chars().next();
                at += 1 + escaped.map_or(0, char::len_utf8);
            }
            Some(0xD800..=0xDBFF) if matches!(unit_at(text, at + 6), Some(0xDC00..=0xDFFF)) => {
                at += 12;
            }
            Some(0xD800..=0xDFFF) => {
                mended.push_str(&text[kept..at]);
                mended.push_str(r"\uFFFD");
                at += 6;
                kept = at;
            }
            Some(_) => at += 6,
        }
    }
    match kept {
        0 => Cow::Borrowed(text),
        _ => Cow::Owned(mended + &text[kept..]),
    }
}

/// The number in the escape `\uXXXX` at this place, if there is one.
fn unit_at(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix(r"\u")?;
    let is_number = digits.chars().all(|c| c.is_ascii_hexdigit());
    is_number.then(|| u16::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_value_counts() {
        assert_eq!(first_value(" {\"a\": 1} and so on"), Ok(json!({"a": 1})));
        assert_eq!(first_value("3abc"), Ok(json!(3)));
        assert_eq!(first_value("truefalse"), Ok(json!(true)));
        assert_eq!(first_value("\n007"), Ok(json!(0)));
        assert_eq!(first_value("0.5"), Ok(json!(0.5)));
        for bad in [
            "",
            "  ",
            "{",
            "{'a':1}",
            "3.x",
            "-",
            "```json\n1\n```",
            "1e999",
            "[1,]",
        ] {
            assert!(first_value(bad).is_err(), "{bad}");
        }
        assert!(only_value("1 2").is_err());
        assert_eq!(only_value(" 1 "), Ok(json!(1)));
    }

    #[test]
    fn unpaired_surrogates_are_replaced() {
        for (text, read) in [
            (r#""\ud83d\ude00""#, "😀"),
            (r#""\ud83d""#, "\u{FFFD}"),
            (r#""\ude00x""#, "\u{FFFD}x"),
            (r#""\ud83d\ud83d\ude00""#, "\u{FFFD}😀"),
            (r#""\ud83d\u0041""#, "\u{FFFD}A"),
            (r#""\\ud83d""#, r"\ud83d"),
            (r#""a\ud83d\nb\uDE00c""#, "a\u{FFFD}\nb\u{FFFD}c"),
        ] {
            assert_eq!(first_value(text), Ok(json!(read)), "{text}");
        }
        for bad in [r#""\ud8""#, "\"\\ä\"", "\\", r#""\ud83"#] {
            assert!(first_value(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn of_equal_keys_the_last_counts() {
        assert_eq!(first_value(r#"{"a":1,"a":2}"#), Ok(json!({"a": 2})));
    }

    #[test]
    fn deep_texts_are_refused_and_do_no_harm() {
        assert!(first_value(&"[".repeat(1_000_000)).is_err());
        assert!(only_value(&"{\"a\":".repeat(1_000_000)).is_err());
    }
}
