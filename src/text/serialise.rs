//! A JSON value as text, digit for digit the way PandaProbe writes it: the defaults of Python's
//! `json.dumps`.

use std::fmt::Write as _;

use super::json::Json;

/// The text of a value: a string is its content, null is empty, anything else is JSON text.
pub fn to_text(value: &Json) -> String {
    let mut out = String::new();
    match value {
        Json::Null => {}
        Json::String(text) => out.push_str(text),
        other => push_value(&mut out, other),
    }
    out
}

fn push_value(out: &mut String, value: &Json) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(true) => out.push_str("true"),
        Json::Bool(false) => out.push_str("false"),
        Json::Integer(digits) => out.push_str(digits),
        Json::Float(literal) => push_number(out, literal.parse().unwrap_or(f64::NAN)),
        Json::String(text) => push_json_string(out, text),
        Json::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                push_value(out, item);
            }
            out.push(']');
        }
        Json::Object(members) => {
            out.push('{');
            for (i, (key, value)) in members.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                push_json_string(out, key);
                out.push_str(": ");
                push_value(out, value);
            }
            out.push('}');
        }
    }
}

/// Appends `text` as an ASCII JSON string: everything outside U+0020..U+007E is escaped, characters
/// above U+FFFF as a surrogate pair.
pub fn push_json_string(out: &mut String, text: &str) {
    out.push('"');
    let is_plain = |b: &u8| matches!(b, b' '..=b'~') & (*b != b'"') & (*b != b'\\');
    // Piece by piece, each without a way out, so that its bytes are looked at together.
    let mut pieces = text.as_bytes().chunks(16);
    if pieces.all(|piece| piece.iter().fold(true, |plain, b| plain & is_plain(b))) {
        out.push_str(text);
        out.push('"');
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String can't fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

/// Appends a number in shortest round-trip digits: fixed notation from 1e-4 up to 1e16, scientific
/// with a signed exponent of at least two digits outside.
pub fn push_number(out: &mut String, x: f64) {
    if x.is_nan() {
        return out.push_str("NaN");
    }
    if x.is_infinite() {
        return out.push_str(if x > 0.0 { "Infinity" } else { "-Infinity" });
    }
    if x == 0.0 {
        return out.push_str(if x.is_sign_negative() { "-0.0" } else { "0.0" });
    }
    let magnitude = x.abs();
    if (1e-4..1e16).contains(&magnitude) {
        let start = out.len();
        let _ = write!(out, "{x}");
        if !out[start..].contains('.') {
            out.push_str(".0");
        }
        return;
    }
    let scientific = format!("{x:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let (sign, power) = match exponent.strip_prefix('-') {
        Some(power) => ('-', power),
        None => ('+', exponent),
    };
    let _ = write!(out, "{digits}e{sign}{power:0>2}");
}
