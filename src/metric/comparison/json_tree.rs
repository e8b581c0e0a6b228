//! JSON as the comparing metrics read it: numbers as binary64, keys in the order of ECMAScript, and one set of buffers
//! for document after document.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use jiter::{Jiter, Peek};

use super::json_fields::{Fields, array_index};
use super::number_text::push_number;

/// Most containers inside each other. Deeper documents are not JSON here, so that walking a tree has its bounds.
const MOST_LEVELS: usize = 128;

/// A text of a document.
pub(in crate::metric) type Text = Range<usize>;

/// A value of a document; its texts and children are in the tree.
#[derive(Clone, Debug, Default)]
pub(in crate::metric) enum JsonValue {
    /// `null`
    #[default]
    Null,
    /// `true` or `false`
    Bool(bool),
    /// The nearest binary64, infinite where the literal is too large.
    Number(f64),
    /// A string, see [`JsonTree::text`].
    Text(Text),
    /// An array, see [`JsonTree::items`].
    List(Range<usize>),
    /// An object, see [`JsonTree::members`].
    Object(Range<usize>),
}

/// A key of an object with its value.
#[derive(Clone, Debug)]
pub(in crate::metric) struct Member {
    /// The key, see [`JsonTree::text`].
    pub(in crate::metric) key: Text,
    /// The value.
    pub(in crate::metric) value: JsonValue,
    /// A number that different keys rarely share.
    pub(super) print: u64,
}

/// A document.
#[derive(Debug, Default)]
pub(in crate::metric) struct JsonTree {
    /// The text that was read last, and whether it is JSON: metrics of one row read the same texts.
    source: String,
    is_json: bool,
    root: JsonValue,
    items: Vec<JsonValue>,
    members: Vec<Member>,
    letters: String,
    /// Children of containers that are being read.
    open_items: Vec<JsonValue>,
    open_members: Vec<Member>,
    tape: Vec<u8>,
    /// Of the keys of the object at hand.
    prints: Vec<u64>,
}

impl JsonTree {
    /// Reads a text that is exactly one document of strict JSON; nothing is left of the one before. False where it is
    /// none, has over 128 levels, an unpaired surrogate or a whole number of over 4300 digits.
    pub(in crate::metric) fn read(&mut self, text: &str) -> bool {
        // Most texts are prose, and that shows at once.
        let first = text.trim_start_matches([' ', '\t', '\n', '\r']);
        if !first
            .starts_with(|c: char| matches!(c, '{' | '[' | '"' | '-' | 't' | 'f' | 'n' | '0'..='9'))
        {
            return false;
        }
        if self.source != text {
            self.items.clear();
            self.members.clear();
            self.letters.clear();
            self.open_items.clear();
            self.open_members.clear();
            self.source.clear();
            self.source.push_str(text);
            let mut reader = Jiter::with_tape(text.as_bytes(), std::mem::take(&mut self.tape));
            let root = self.read_document(&mut reader);
            self.tape = reader.into_tape();
            self.is_json = root.is_some();
            self.root = root.unwrap_or_default();
        }
        self.is_json
    }

    fn read_document(&mut self, reader: &mut Jiter<'_>) -> Option<JsonValue> {
        let first = reader.peek().ok()?;
        let root = self.read_value(reader, first, 0)?;
        reader.finish().ok()?;
        Some(root)
    }

    fn read_value(
        &mut self,
        reader: &mut Jiter<'_>,
        peek: Peek,
        level: usize,
    ) -> Option<JsonValue> {
        Some(match peek {
            Peek::Null => {
                reader.known_null().ok()?;
                JsonValue::Null
            }
            Peek::True | Peek::False => JsonValue::Bool(reader.known_bool(peek).ok()?),
            Peek::String => JsonValue::Text(self.keep(reader.known_str().ok()?)),
            Peek::Array | Peek::Object if level == MOST_LEVELS => return None,
            Peek::Array => self.read_list(reader, level + 1)?,
            Peek::Object => self.read_object(reader, level + 1)?,
            _ => {
                let digits = reader.known_number_bytes(peek).ok()?;
                JsonValue::Number(std::str::from_utf8(digits).ok()?.parse().ok()?)
            }
        })
    }

    fn read_list(&mut self, reader: &mut Jiter<'_>, level: usize) -> Option<JsonValue> {
        let open = self.open_items.len();
        let mut next = reader.known_array().ok()?;
        while let Some(peek) = next {
            let item = self.read_value(reader, peek, level)?;
            self.open_items.push(item);
            next = reader.array_step().ok()?;
        }
        let from = self.items.len();
        self.items.extend(self.open_items.drain(open..));
        Some(JsonValue::List(from..self.items.len()))
    }

    fn read_object(&mut self, reader: &mut Jiter<'_>, level: usize) -> Option<JsonValue> {
        let open = self.open_members.len();
        let mut next = reader
            .known_object()
            .ok()?
            .map(|key| keep(&mut self.letters, key));
        while let Some(key) = next {
            let peek = reader.peek().ok()?;
            let value = self.read_value(reader, peek, level)?;
            let print = print(self.letters.get(key.clone()).unwrap_or_default());
            self.open_members.push(Member { key, value, print });
            next = reader
                .next_key()
                .ok()?
                .map(|key| keep(&mut self.letters, key));
        }
        let from = self.members.len();
        self.members.extend(self.open_members.drain(open..));
        self.settle_members(from);
        Some(JsonValue::Object(from..self.members.len()))
    }

    /// Gives the members from `from` on the order of ECMAScript: keys that are array indices ascending, then the
    /// others as written; a repeated key keeps its first place and its last value.
    fn settle_members(&mut self, from: usize) {
        let Self {
            members,
            letters,
            prints,
            ..
        } = self;
        let key = |member: &Member| letters.get(member.key.clone()).unwrap_or_default();
        let mut indices = false;
        prints.clear();
        for member in members.iter().skip(from) {
            indices |= key(member).starts_with(|c: char| c.is_ascii_digit());
            prints.push(member.print);
        }
        prints.sort_unstable();
        if prints.windows(2).any(|two| two.first() == two.last()) {
            let mut first: HashMap<&str, usize> = HashMap::with_capacity(prints.len());
            let mut kept: Vec<Member> = Vec::with_capacity(prints.len());
            for member in members.drain(from..) {
                let at = *first.entry(key(&member)).or_insert(kept.len());
                match kept.get_mut(at) {
                    Some(earlier) => earlier.value = member.value,
                    None => kept.push(member),
                }
            }
            members.extend(kept);
        }
        if indices && let Some(members) = members.get_mut(from..) {
            members.sort_by_key(|member| array_index(key(member)).unwrap_or(u64::MAX));
        }
    }

    fn keep(&mut self, text: &str) -> Text {
        keep(&mut self.letters, text)
    }

    /// The document's value; null before the first document.
    pub(in crate::metric) fn root(&self) -> &JsonValue {
        &self.root
    }

    /// The characters of a text.
    pub(in crate::metric) fn text(&self, text: &Text) -> &str {
        self.letters.get(text.clone()).unwrap_or_default()
    }

    /// The items of an array.
    pub(in crate::metric) fn items(&self, list: &Range<usize>) -> &[JsonValue] {
        self.items.get(list.clone()).unwrap_or_default()
    }

    /// The members of an object, keys distinct.
    pub(in crate::metric) fn members(&self, object: &Range<usize>) -> &[Member] {
        self.members.get(object.clone()).unwrap_or_default()
    }

    /// The fields of a container, in order; an array has its indices as keys.
    pub(in crate::metric) fn fields(&self, value: &JsonValue) -> Option<Fields<'_>> {
        match value {
            JsonValue::List(items) => Some(Fields::List(self.items(items))),
            JsonValue::Object(members) => Some(Fields::Object(self, self.members(members))),
            _ => None,
        }
    }

    /// The value of this key of an object; none if it is no object.
    pub(in crate::metric) fn get(&self, object: &JsonValue, key: &str) -> Option<&JsonValue> {
        let JsonValue::Object(members) = object else {
            return None;
        };
        let mut members = self.members(members).iter();
        let found = members.find(|member| self.text(&member.key) == key);
        found.map(|member| &member.value)
    }

    /// The value as a text: strings as they are, numbers as ECMAScript writes them, containers as compact JSON.
    pub(in crate::metric) fn shown(&self, value: &JsonValue) -> Cow<'_, str> {
        match value {
            JsonValue::Null => "null".into(),
            JsonValue::Bool(true) => "true".into(),
            JsonValue::Bool(false) => "false".into(),
            JsonValue::Text(text) => self.text(text).into(),
            other => self.compact(other, usize::MAX).into(),
        }
    }

    /// Compact JSON of a value. It may end after `enough` bytes.
    pub(in crate::metric) fn compact(&self, value: &JsonValue, enough: usize) -> String {
        let mut out = String::new();
        self.push_compact(value, enough, &mut out);
        out
    }

    fn push_compact(&self, value: &JsonValue, enough: usize, out: &mut String) {
        if out.len() > enough {
            return;
        }
        match value {
            JsonValue::Number(number) => push_number(*number, out),
            JsonValue::Text(text) => push_quoted(self.text(text), out),
            JsonValue::List(items) => {
                out.push('[');
                for (at, item) in self.items(items).iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    self.push_compact(item, enough, out);
                    if out.len() > enough {
                        return;
                    }
                }
                out.push(']');
            }
            JsonValue::Object(members) => {
                out.push('{');
                for (at, member) in self.members(members).iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    push_quoted(self.text(&member.key), out);
                    out.push(':');
                    self.push_compact(&member.value, enough, out);
                    if out.len() > enough {
                        return;
                    }
                }
                out.push('}');
            }
            plain => out.push_str(&self.shown(plain)),
        }
    }
}

/// A number that different keys rarely share.
pub(super) fn print(key: &str) -> u64 {
    let key = key.as_bytes();
    let length = u64::try_from(key.len()).unwrap_or(u64::MAX);
    key.chunks(8).fold(length, |print, chunk| {
        let mut eight = [0; 8];
        eight
            .iter_mut()
            .zip(chunk)
            .for_each(|(to, from)| *to = *from);
        (print.rotate_left(5) ^ u64::from_le_bytes(eight)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

fn keep(letters: &mut String, text: &str) -> Text {
    let from = letters.len();
    letters.push_str(text);
    from..letters.len()
}

fn push_quoted(text: &str, out: &mut String) {
    if text
        .bytes()
        .all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
    {
        out.push('"');
        out.push_str(text);
        out.push('"');
        return;
    }
    match serde_json::to_string(text) {
        Ok(quoted) => out.push_str(&quoted),
        Err(_) => debug_assert!(false, "texts are always JSON"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compact(text: &str) -> Option<String> {
        let mut tree = JsonTree::default();
        assert!(tree.read("[1, {\"left\": \"over\"}]"));
        let is_json = tree.read(text);
        is_json.then(|| tree.compact(tree.root(), usize::MAX))
    }

    #[test]
    fn documents_are_read_strictly() {
        for (text, json) in [
            (
                " {\"b\": 1.0, \"a\": [true, null, \"x\\u00e9\\n\"]}\r\n",
                "{\"b\":1,\"a\":[true,null,\"xé\\n\"]}",
            ),
            ("42", "42"),
            ("-0", "0"),
            ("1e400", "Infinity"),
            ("1E2", "100"),
            ("\"\\ud83d\\ude00\"", "\"😀\""),
            ("[]", "[]"),
            ("{\"\":{}}", "{\"\":{}}"),
        ] {
            assert_eq!(compact(text).as_deref(), Some(json), "{text}");
        }
        for text in [
            "",
            " ",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{'a':1}",
            "01",
            "+1",
            ".5",
            "1.",
            "NaN",
            "[Infinity]",
            "-Infinity",
            "tru",
            "nullx",
            "\"\\x41\"",
            "\"\\ud800\"",
            "\"\n\"",
            "\u{feff}1",
            "\u{a0}1",
            "1 2",
            "true story",
            "\"a\" b",
            "- a",
        ] {
            assert_eq!(compact(text), None, "{text}");
        }
    }

    #[test]
    fn documents_have_at_most_128_levels() {
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
        assert!(compact(&nested(128)).is_some());
        assert!(compact(&nested(129)).is_none());
        assert!(compact(&nested(128).replace('1', "")).is_some());
        assert!(compact(&nested(129).replace('1', "")).is_none());
        assert!(compact(&"[".repeat(100_000)).is_none());
    }

    #[test]
    fn keys_have_the_order_of_ecmascript() {
        for (text, json) in [
            (
                r#"{"b":1,"10":2,"a":3,"9":4,"01":5}"#,
                r#"{"9":4,"10":2,"b":1,"a":3,"01":5}"#,
            ),
            (
                r#"{"4294967295":1,"4294967294":2,"-1":3,"1.0":4,"0":5}"#,
                r#"{"0":5,"4294967294":2,"4294967295":1,"-1":3,"1.0":4}"#,
            ),
            (r#"{"a":1,"b":2,"a":3}"#, r#"{"a":3,"b":2}"#),
        ] {
            assert_eq!(compact(text).as_deref(), Some(json));
        }
        let many: Vec<String> = (0..100).map(|i| format!("\"k{}\":{i}", i % 60)).collect();
        let mut tree = JsonTree::default();
        assert!(tree.read(&format!("{{{}}}", many.join(","))));
        let fields = tree.fields(tree.root()).unwrap();
        assert_eq!(fields.len(), 60);
        let (key, value) = fields.iter().next().unwrap();
        assert_eq!((&*key, &*tree.shown(value)), ("k0", "60"));
        let index = fields.index();
        for near in [0, 7, 99] {
            assert_eq!(tree.shown(index.get("k7", near).unwrap()), "67");
            assert!(index.get("k60", near).is_none());
        }
    }

    #[test]
    fn compact_text_may_end_early() {
        let mut tree = JsonTree::default();
        assert!(tree.read(&format!("[{}1]", "1,".repeat(10_000))));
        assert!((100..110).contains(&tree.compact(tree.root(), 100).len()));
    }
}
