//! The strict JSON reader of this judge (as in Connexity).
//!
//! Numbers keep their literal, so that evidence is printed with the digits it came with; read as a
//! value they are f64, and a literal too large for it is infinite.

/// Deeper nesting is refused.
const MAX_DEPTH: usize = 128;

/// A JSON value. Objects keep every member in stored order; [`Json::get`] gives the last of a repeated key.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::conversation) enum Json {
    Null,
    Bool(bool),
    /// The literal as written.
    Number(String),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Why a text is not a JSON document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON document: {reason} at byte {position}")]
pub(in crate::conversation) struct NotJson {
    reason: &'static str,
    position: usize,
}

impl Json {
    /// Reads exactly one document. White space around it is allowed, a byte order mark is not.
    pub(in crate::conversation) fn parse(text: &str) -> Result<Self, NotJson> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.skip_space();
        if reader.at < text.len() {
            return Err(reader.fault("text after the document"));
        }
        Ok(value)
    }

    /// The last member of this name. `None` if this is not an object.
    pub(in crate::conversation) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Object(members) = self else {
            return None;
        };
        let found = members.iter().rev().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    }

    /// The number as f64; infinite if the literal is too large for it.
    pub(in crate::conversation) fn number(&self) -> Option<f64> {
        match self {
            Self::Number(literal) => literal.parse().ok(),
            _ => None,
        }
    }

    pub(in crate::conversation) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(in crate::conversation) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// False for null, false, zero and whatever is empty.
    pub(in crate::conversation) fn is_truthy(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(value) => *value,
            Self::Number(_) => self.number() != Some(0.0),
            Self::Text(text) => !text.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Object(members) => !members.is_empty(),
        }
    }

    /// JSON text without spaces: numbers as written, characters beyond ASCII as themselves.
    pub(in crate::conversation) fn compact(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(literal) => out.push_str(literal),
            Self::Text(text) => write_text(text, out),
            Self::List(items) => {
                out.push('[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            Self::Object(members) => {
                out.push('{');
                for (i, (key, value)) in members.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write_text(key, out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn fault(&self, reason: &'static str) -> NotJson {
        let position = self.at;
        NotJson { reason, position }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes one byte if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Result<Json, NotJson> {
        self.skip_space();
        match self.peek() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => Err(self.fault("nesting deeper than 128")),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.list(depth + 1),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => self.word(),
            None => Err(self.fault("the text ends where a value should be")),
        }
    }

    fn word(&mut self) -> Result<Json, NotJson> {
        let words = [
            ("null", Json::Null),
            ("true", Json::Bool(true)),
            ("false", Json::Bool(false)),
        ];
        let rest = self.text.get(self.at..).unwrap_or_default();
        let found = words.into_iter().find(|(word, _)| rest.starts_with(word));
        let (word, value) = found.ok_or_else(|| self.fault("no JSON value"))?;
        self.at += word.len();
        Ok(value)
    }

    fn list(&mut self, depth: usize) -> Result<Json, NotJson> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.take(b']') {
            return Ok(Json::List(items));
        }
        loop {
            items.push(self.value(depth)?);
            self.skip_space();
            if self.take(b']') {
                return Ok(Json::List(items));
            }
            if !self.take(b',') {
                return Err(self.fault("neither `,` nor `]` after an item"));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, NotJson> {
        self.at += 1;
        let mut members = Vec::new();
        self.skip_space();
        if self.take(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.fault("no key"));
            }
            let key = self.string()?;
            self.skip_space();
            if !self.take(b':') {
                return Err(self.fault("no `:` after a key"));
            }
            members.push((key, self.value(depth)?));
            self.skip_space();
            if self.take(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.take(b',') {
                return Err(self.fault("neither `,` nor `}` after a member"));
            }
        }
    }

    fn digits(&mut self) -> Result<(), NotJson> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.fault("a digit is missing"));
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Json, NotJson> {
        let start = self.at;
        self.take(b'-');
        // A leading zero stands alone; further digits are found as text after the value.
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let literal = self.text.get(start..self.at).unwrap_or_default();
        Ok(Json::Number(literal.to_owned()))
    }

    fn string(&mut self) -> Result<String, NotJson> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let stop = |b: u8| b == b'"' || b == b'\\' || b < 0x20;
            let Some(length) = rest.bytes().position(stop) else {
                return Err(self.fault("the text ends inside of a string"));
            };
            out.push_str(rest.get(..length).unwrap_or_default());
            self.at += length;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                _ => return Err(self.fault("a control character in a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, NotJson> {
        self.at += 1;
        let escaped = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.fault("an unknown escape")),
        };
        self.at += 1;
        Ok(escaped)
    }

    fn unicode_escape(&mut self) -> Result<char, NotJson> {
        let mut units = vec![self.code_unit()?];
        let leading = matches!(units.first(), Some(0xD800..=0xDBFF));
        if leading && self.take(b'\\') && self.peek() == Some(b'u') {
            units.push(self.code_unit()?);
        }
        let mut decoded = char::decode_utf16(units);
        match (decoded.next(), decoded.next()) {
            (Some(Ok(c)), None) => Ok(c),
            _ => Err(self.fault("an unpaired surrogate")),
        }
    }

    /// `uXXXX`
    fn code_unit(&mut self) -> Result<u16, NotJson> {
        self.at += 1;
        let digits = self.text.get(self.at..self.at + 4).unwrap_or_default();
        if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(self.fault("four hexadecimal digits are missing"));
        }
        self.at += 4;
        u16::from_str_radix(digits, 16).map_err(|_| self.fault("no code unit"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_one_strict_document_is_refused() {
        for bad in [
            "",
            " ",
            "{",
            "[",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\"}",
            "{a:1}",
            "[1 2]",
            "nul",
            "1 2",
            "\u{feff}1",
            "'a'",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "NaN",
            "Infinity",
            "-Infinity",
            "// x\n1",
            "\"a",
            "\"\n\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u+123\"",
            "\"\\ud800\"",
            "\"\\ud800x\"",
            "\"\\udc00\"",
            "\"\\ud800\\n\"",
            "\"\\ud800\\u0041\"",
            "\u{a0}1",
            "truefalse",
            "[é]",
            "\"\\u00é\"",
        ] {
            assert!(Json::parse(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn nesting_is_allowed_to_128_levels() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Json::parse(&nested(128)).is_ok());
        assert!(Json::parse(&nested(129)).is_err());
        assert!(Json::parse(&"{\"a\":".repeat(100_000)).is_err());
    }

    #[test]
    fn numbers_are_binary64_and_too_large_ones_infinite() {
        let number = |text: &str| Json::parse(text).unwrap().number().unwrap();
        assert_eq!(number("9007199254740993"), 9007199254740992.0);
        assert_eq!(number("1e999"), f64::INFINITY);
        assert_eq!(number(&format!("-{}", "9".repeat(5000))), f64::NEG_INFINITY);
        assert_eq!(number("-0.0E+2"), 0.0);
    }

    #[test]
    fn the_last_of_a_repeated_key_counts_and_escapes_are_resolved() {
        let json = Json::parse(r#" {"a": 1, "b": "\u00e9\ud83d\ude00\/\n", "a": 2} "#).unwrap();
        assert_eq!(json.get("a").unwrap().number(), Some(2.0));
        assert_eq!(json.get("b").unwrap().text(), Some("é😀/\n"));
        assert_eq!(json.get("c"), None);
    }

    #[test]
    fn compact_text_keeps_digits_order_and_letters() {
        let text =
            r#"{ "z" : 12345678901234567890123, "a": [ 1.10, "\u00e9\"" , null, true ], "e": {} }"#;
        let compact = r#"{"z":12345678901234567890123,"a":[1.10,"é\"",null,true],"e":{}}"#;
        assert_eq!(Json::parse(text).unwrap().compact(), compact);
    }
}
