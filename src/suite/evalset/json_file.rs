//! JSON texts of evaluation folders: read whole, with errors that name the file.

use std::io;
use std::path::Path;

use serde_json::{Map, Number, Value};

use super::criterion::with_paired_surrogates;
use super::place::Place;
pub use super::shape::ShapeFault;
use crate::text::{Json, parse_strict};

/// Larger files are refused: they are read whole, and take several times their size in memory.
pub const MOST_BYTES: u64 = 1 << 30;
/// Characters of a number that an error shows.
const MOST_SHOWN: usize = 40;

/// Why a file of an evaluation folder can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refuses it; see [`FileError::is_missing`].
    #[error("{file}: {source}")]
    Access {
        /// The file.
        file: String,
        /// The system's word.
        source: io::Error,
    },
    /// It is too large.
    #[error("{file}: {bytes} bytes, at most {MOST_BYTES} are read; split it into several")]
    TooLarge {
        /// The file.
        file: String,
        /// Its size.
        bytes: u64,
    },
    /// It is no JSON.
    #[error("{file}: not valid JSON: {reason}; correct the file there")]
    Syntax {
        /// The file.
        file: String,
        /// What is wrong, with line and column.
        reason: String,
    },
    /// It is JSON, but a value is of a wrong kind.
    #[error("{file}: {fault}; correct that value")]
    Shape {
        /// The file.
        file: String,
        /// Which value, and what belongs there.
        fault: ShapeFault,
    },
}

impl FileError {
    pub(super) fn access(file: &Path, source: io::Error) -> Self {
        Self::Access {
            file: file.display().to_string(),
            source,
        }
    }

    pub(super) fn shape(file: &str, fault: ShapeFault) -> Self {
        Self::Shape {
            file: file.to_owned(),
            fault,
        }
    }

    /// Whether the file is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Access { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// What a file holds, and what its owner must know about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded<T> {
    /// What it holds.
    pub value: T,
    /// One line each.
    pub warnings: Vec<String>,
}

/// The text of a file. Bytes that are no UTF-8 are read as U+FFFD, as trpc-agent-go does.
pub(super) fn text_of(path: &Path) -> Result<String, FileError> {
    let failed = |e| FileError::access(path, e);
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > MOST_BYTES {
        return Err(FileError::TooLarge {
            file: path.display().to_string(),
            bytes,
        });
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// The value of one JSON document. Of a repeated key the last value counts; unpaired surrogate escapes are U+FFFD;
/// numbers are the nearest double or, where they have neither fraction nor exponent, up to 64 bits.
pub(super) fn value_of(text: &str, file: &str) -> Result<Value, FileError> {
    let syntax = |reason: String| FileError::Syntax {
        file: file.to_owned(),
        reason,
    };
    let json = parse_strict(&with_paired_surrogates(text)).map_err(|e| syntax(e.to_string()))?;
    plain(json, &Place::Document).map_err(syntax)
}

fn plain(json: Json, place: &Place<'_>) -> Result<Value, String> {
    Ok(match json {
        Json::Integer(literal) | Json::Float(literal) => Value::Number(number(&literal, place)?),
        Json::Array(items) => {
            let items = items.into_iter().enumerate();
            let items = items.map(|(at, item)| plain(item, &Place::Item(place, at)));
            Value::Array(items.collect::<Result<_, _>>()?)
        }
        Json::Object(members) => {
            let mut object = Map::with_capacity(members.len());
            for (name, value) in members {
                let value = plain(value, &Place::Member(place, &name))?;
                object.insert(name, value);
            }
            Value::Object(object)
        }
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::String(text) => Value::String(text),
    })
}

fn number(literal: &str, place: &Place<'_>) -> Result<Number, String> {
    if let Ok(whole) = literal.parse::<i64>() {
        return Ok(whole.into());
    }
    if let Ok(whole) = literal.parse::<u64>() {
        return Ok(whole.into());
    }
    let double = literal.parse().ok().and_then(Number::from_f64);
    double.ok_or_else(|| {
        let shown: String = literal.chars().take(MOST_SHOWN).collect();
        format!("{place}: the number {shown} is beyond the range of a double")
    })
}

/// The text of a file: two spaces a level, and an end of line at the end.
pub(super) fn file_text(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let value = value_of(text, "a.json").map_err(|e| e.to_string())?;
        Ok(value.to_string())
    }

    #[test]
    fn halves_of_surrogate_pairs_are_read_as_replacement_characters() {
        let cases = [
            (r#""\ud83d\ude00""#, "\"😀\""),
            (r#""\ud83dx\ude00""#, "\"\u{fffd}x\u{fffd}\""),
            (r#""\ud83d\ud83d\ude00""#, "\"\u{fffd}😀\""),
            (r#""\uDE00\u0041""#, "\"\u{fffd}A\""),
            (r#""\\ud83d""#, r#""\\ud83d""#),
            (r#""\ud83d\\ude00""#, "\"\u{fffd}\\\\ude00\""),
            (r#"{"\udfff": 1}"#, "{\"\u{fffd}\":1}"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
        for bad in [
            r#""\ud83"#,
            r#""\ud8"#,
            "\\ud8zz",
            r#""\ud83d\"#,
            r#""\ué""#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_are_exact_and_none_is_too_large() {
        assert_eq!(read("1761134484.9804401").unwrap(), "1761134484.9804401");
        assert_eq!(
            read("[3.0,18446744073709551615]").unwrap(),
            "[3.0,18446744073709551615]"
        );
        let beyond_64_bits = value_of("36893488147419103232", "a.json").unwrap();
        assert_eq!(beyond_64_bits.as_f64(), Some(36_893_488_147_419_103_232.0));
        assert_eq!(
            read(r#"{"a":[1,1e999]}"#).unwrap_err(),
            "a.json: not valid JSON: a[1]: the number 1e999 is beyond the range of a double; correct the file there"
        );
        assert!(read(&"9".repeat(400)).is_err());
    }

    #[test]
    fn a_fault_of_syntax_names_file_line_and_column() {
        let error = read("[\n  {\"a\": 1,}\n]").unwrap_err();
        assert!(error.starts_with("a.json: not valid JSON: "), "{error}");
        assert!(error.contains("line 2 column"), "{error}");
        assert!(read(&"[".repeat(10_000)).is_err());
        assert_eq!(read(r#"{"a":1,"a":2}"#).unwrap(), r#"{"a":2}"#);
    }
}
