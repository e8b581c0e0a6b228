//! JSON documents with everything that writing them again needs: stored key order, numbers as they were written, and the
//! literals that are no JSON and occur all the same.

use jiter::{Jiter, Peek};
use serde_json::Value;

/// Deeper documents are refused: PandaProbe sets no depth, the stack does.
const MAX_DEPTH: usize = 200;

/// A JSON value. Object keys keep stored order; a repeated key has its last value at the place of
/// its first occurrence (as in PandaProbe).
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number without fraction and exponent, as its digits; the reader takes up to 4300 of them.
    Integer(String),
    /// Any other number, as it was written; may be `NaN`, or too large for f64.
    Float(String),
    /// A string, escapes resolved.
    String(String),
    /// An array.
    Array(Vec<Json>),
    /// An object in stored order, keys distinct.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// A number that was read as one.
    pub fn of_f64(number: f64) -> Self {
        Self::Float(number.to_string())
    }

    /// The member of this name; none if this is no object.
    pub fn get(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else {
            return None;
        };
        let found = members.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value)
    }

    /// The text of a string.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The items of an array.
    pub fn items(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }

    /// The nearest f64 of a number, infinite where it is too large.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(literal) | Self::Float(literal) => literal.parse().ok(),
            _ => None,
        }
    }

    /// False for null, false, zero and whatever is empty.
    pub fn is_truthy(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(value) => *value,
            Self::Integer(_) | Self::Float(_) => self.number() != Some(0.0),
            Self::String(text) => !text.is_empty(),
            Self::Array(items) => !items.is_empty(),
            Self::Object(members) => !members.is_empty(),
        }
    }

    /// JSON text without spaces: numbers as written, characters beyond ASCII as themselves.
    pub fn compact(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        let quoted = |text: &str| Value::from(text).to_string();
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Integer(literal) | Self::Float(literal) => out.push_str(literal),
            Self::String(text) => out.push_str(&quoted(text)),
            Self::Array(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (i, (key, value)) in members.iter().enumerate() {
                    out.push_str(if i > 0 { "," } else { "" });
                    out.push_str(&quoted(key));
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// A value for documents. Whole numbers beyond 64 bits and numbers that are not finite become text.
impl From<Json> for Value {
    fn from(json: Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => value.into(),
            Json::Integer(digits) => match (digits.parse::<i64>(), digits.parse::<u64>()) {
                (Ok(number), _) => number.into(),
                (_, Ok(number)) => number.into(),
                _ => digits.into(),
            },
            Json::Float(literal) => {
                let number = literal.parse().unwrap_or(f64::NAN);
                let finite = serde_json::Number::from_f64(number).map(Self::Number);
                finite.unwrap_or_else(|| number.to_string().into())
            }
            Json::String(text) => text.into(),
            Json::Array(items) => items.into_iter().map(Self::from).collect(),
            Json::Object(members) => {
                let members = members.into_iter();
                members
                    .map(|(key, value)| (key, value.into()))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }
        }
    }
}

/// Why a cell is not a JSON document (status code `invalid_json`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON document: {reason}")]
pub struct JsonError {
    reason: String,
}

/// Reads exactly one JSON document. `NaN`, `Infinity` and `-Infinity` are accepted; unpaired
/// surrogate escapes, a byte-order mark and text after the document are not.
///
/// # Errors
/// [`JsonError`] with the position of the first problem.
pub fn parse(json: &[u8]) -> Result<Json, JsonError> {
    read_document(Jiter::new(json).with_allow_inf_nan())
}

/// The same without the literals that are no JSON.
///
/// # Errors
/// As [`parse`].
pub fn parse_strict(json: &str) -> Result<Json, JsonError> {
    read_document(Jiter::new(json.as_bytes()))
}

fn read_document(mut reader: Jiter<'_>) -> Result<Json, JsonError> {
    let first = reader.peek().map_err(|e| error(&reader, &e))?;
    let value = read_value(&mut reader, first, 0)?;
    reader.finish().map_err(|e| error(&reader, &e))?;
    Ok(value)
}

/// Reads exactly one JSON document; of an object only the members that `wanted` names are built. The others are checked
/// and passed over, however large they are.
///
/// # Errors
/// As [`parse`].
pub fn parse_members(json: &[u8], mut wanted: impl FnMut(&str) -> bool) -> Result<Json, JsonError> {
    let mut reader = Jiter::new(json).with_allow_inf_nan();
    let first = reader.peek().map_err(|e| error(&reader, &e))?;
    if first != Peek::Object {
        return parse(json);
    }
    let mut members = Members::default();
    let mut key = match reader.known_object() {
        Ok(key) => key.map(str::to_owned),
        Err(e) => return Err(error(&reader, &e)),
    };
    while let Some(name) = key {
        let peek = reader.peek().map_err(|e| error(&reader, &e))?;
        match wanted(&name) {
            true => {
                let value = read_value(&mut reader, peek, 1)?;
                members.insert(name, value);
            }
            false => reader.known_skip(peek).map_err(|e| error(&reader, &e))?,
        }
        key = match reader.next_key() {
            Ok(key) => key.map(str::to_owned),
            Err(e) => return Err(error(&reader, &e)),
        };
    }
    reader.finish().map_err(|e| error(&reader, &e))?;
    Ok(Json::Object(members.list))
}

fn error(reader: &Jiter<'_>, source: &jiter::JiterError) -> JsonError {
    let position = source.get_position(reader);
    JsonError {
        reason: format!("{} at {position}", source.error_type),
    }
}

fn read_value(reader: &mut Jiter<'_>, peek: Peek, depth: usize) -> Result<Json, JsonError> {
    if depth > MAX_DEPTH {
        return Err(JsonError {
            reason: format!("nested deeper than {MAX_DEPTH} levels"),
        });
    }
    macro_rules! attempt {
        ($e:expr) => {
            match $e {
                Ok(value) => value,
                Err(source) => return Err(error(reader, &source)),
            }
        };
    }
    match peek {
        Peek::Null => {
            attempt!(reader.known_null());
            Ok(Json::Null)
        }
        Peek::True | Peek::False => Ok(Json::Bool(attempt!(reader.known_bool(peek)))),
        Peek::String => match reader.known_str() {
            Ok(text) => Ok(Json::String(text.to_owned())),
            Err(source) => Err(error(reader, &source)),
        },
        Peek::Array => {
            let mut items = Vec::new();
            let mut next = attempt!(reader.known_array());
            while let Some(peek) = next {
                items.push(read_value(reader, peek, depth + 1)?);
                next = attempt!(reader.array_step());
            }
            Ok(Json::Array(items))
        }
        Peek::Object => {
            let mut members = Members::default();
            let mut key = attempt!(reader.known_object().map(|k| k.map(str::to_owned)));
            while let Some(name) = key {
                let peek = attempt!(reader.peek());
                let value = read_value(reader, peek, depth + 1)?;
                members.insert(name, value);
                key = attempt!(reader.next_key().map(|k| k.map(str::to_owned)));
            }
            Ok(Json::Object(members.list))
        }
        _ => match reader.known_number_bytes(peek) {
            Ok(digits) => read_number(digits),
            Err(source) => Err(error(reader, &source)),
        },
    }
}

fn read_number(digits: &[u8]) -> Result<Json, JsonError> {
    let literal = String::from_utf8_lossy(digits);
    let is_integer = literal.bytes().all(|b| b == b'-' || b.is_ascii_digit());
    Ok(match literal.as_ref() {
        "-0" => Json::Integer("0".into()),
        integer if is_integer => Json::Integer(integer.into()),
        // As Python reads it.
        "-NaN" => Json::Float("NaN".into()),
        number => {
            let read = number.parse::<f64>();
            read.map_err(|_| JsonError {
                reason: format!("bad number `{number}`"),
            })?;
            Json::Float(number.into())
        }
    })
}

/// Object members with the rule for repeated keys. Small objects are searched, large ones indexed,
/// so that a hostile object of a million keys stays linear.
#[derive(Default)]
struct Members {
    list: Vec<(String, Json)>,
    index: Option<std::collections::HashMap<String, usize>>,
}

impl Members {
    const INDEXED_FROM: usize = 32;

    fn insert(&mut self, key: String, value: Json) {
        if self.index.is_none() && self.list.len() >= Self::INDEXED_FROM {
            self.index = Some(
                self.list
                    .iter()
                    .enumerate()
                    .map(|(i, (k, _))| (k.clone(), i))
                    .collect(),
            );
        }
        let found = match &self.index {
            Some(index) => index.get(&key).copied(),
            None => self.list.iter().position(|(k, _)| *k == key),
        };
        if let Some(member) = found.and_then(|at| self.list.get_mut(at)) {
            member.1 = value;
            return;
        }
        if let Some(index) = &mut self.index {
            index.insert(key.clone(), self.list.len());
        }
        self.list.push((key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_keys_keep_the_first_place_and_the_last_value_in_large_objects_too() {
        let mut text = String::from("{");
        for i in 0..100 {
            text.push_str(&format!("\"k{i}\":{i},"));
        }
        text.push_str("\"k7\":\"again\"}");
        let Json::Object(members) = parse(text.as_bytes()).unwrap() else {
            panic!("not an object")
        };
        assert_eq!(members.len(), 100);
        assert_eq!(members[7], ("k7".into(), Json::String("again".into())));
    }

    #[test]
    fn members_that_nobody_wants_are_checked_and_not_built() {
        let text = br#"{"a": 1, "b": [{"c": "\u00e9", "d": [1.5, 2]}], "a": "last", "e": null}"#;
        let read = |wanted: &str| parse_members(text, |name| wanted.contains(name)).unwrap();
        let a = ("a".to_owned(), Json::String("last".into()));
        assert_eq!(read("a"), Json::Object(vec![a.clone()]));
        assert_eq!(read("ae"), Json::Object(vec![a, ("e".into(), Json::Null)]));
        assert_eq!(read("abe"), parse(text).unwrap());
        for bad in [
            &b"{\"b\": [1,]}"[..],
            b"{\"b\": 1",
            b"{\"b\": nul}",
            b"{\"b\": 1} x",
            b"{b: 1}",
        ] {
            assert!(parse_members(bad, |_| false).is_err());
        }
        assert_eq!(parse_members(b"[1]", |_| false), parse(b"[1]"));
    }

    #[test]
    fn what_is_not_one_document_is_refused() {
        for bad in [
            "",
            " ",
            "{",
            "[1,]",
            "nul",
            "1 2",
            "\u{feff}1",
            "\"\\ud800\"",
            "'a'",
            "01",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?} was accepted");
        }
        assert!(parse(b"\"\xff\"").is_err(), "invalid UTF-8 was accepted");
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn integers_keep_their_digits_up_to_the_limit_of_the_reader() {
        let digits = "9".repeat(4300);
        assert_eq!(parse(digits.as_bytes()).unwrap(), Json::Integer(digits));
        assert!(parse("9".repeat(4400).as_bytes()).is_err());
    }

    #[test]
    fn strict_documents_have_no_literals_of_their_own() {
        for bad in [
            "NaN",
            "[Infinity]",
            "-Infinity",
            "+1",
            "1.",
            ".5",
            "1e",
            "\"\n\"",
            "truefalse",
        ] {
            assert!(parse_strict(bad).is_err(), "{bad:?} was accepted");
        }
        let bad = [
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\udc00\"",
            "\"\\ud800\\u0041\"",
            "\u{a0}1",
        ];
        for bad in bad {
            assert!(parse_strict(bad).is_err(), "{bad:?} was accepted");
        }
        let json = parse_strict(r#" {"a": 1, "b": "\u00e9\ud83d\ude00\/\n", "a": 2} "#).unwrap();
        assert_eq!(json.get("a").unwrap().number(), Some(2.0));
        assert_eq!(json.get("b").unwrap().text(), Some("é😀/\n"));
        assert_eq!(json.get("c"), None);
    }

    #[test]
    fn compact_text_keeps_digits_order_and_letters() {
        let text =
            r#"{ "z" : 12345678901234567890123, "a": [ 1.10, "\u00e9\"" , null, true ], "e": {} }"#;
        let compact = r#"{"z":12345678901234567890123,"a":[1.10,"é\"",null,true],"e":{}}"#;
        assert_eq!(parse_strict(text).unwrap().compact(), compact);
    }

    #[test]
    fn numbers_are_binary64_and_too_large_ones_infinite() {
        let number = |text: &str| parse_strict(text).unwrap().number().unwrap();
        assert_eq!(number("9007199254740993"), 9007199254740992.0);
        assert_eq!(number("1e999"), f64::INFINITY);
        assert_eq!(number("-1e999"), f64::NEG_INFINITY);
        assert_eq!(number("-0.0E+2"), 0.0);
    }
}
