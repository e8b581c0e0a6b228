//! The shape of a stage's reply, declared once. From it come the JSON schema for the provider, the keys named in the prompt and
//! the reader. As in PandaProbe.

mod read;

use serde_json::{Map, Value, json};

use crate::text::{Json, parse};
use read::{without_fence, wrong_type};

/// What the value of a key must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A string.
    Text,
    /// A string, null, or no key at all.
    OptionalText,
    /// A number from 0 to 1, both included. Booleans and numeric strings count as numbers.
    Share,
    /// A list of objects. The members are what the judge is asked for; the reader takes any object.
    Objects(&'static [Member]),
    /// A list of strings.
    Texts,
    /// A list of `{"verdict": "yes" | "no", "reason": text or null}`.
    Verdicts,
}

/// One key of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub key: &'static str,
    pub kind: Kind,
    /// What belongs there, for the judge.
    pub about: &'static str,
}

/// One key of an object in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub key: &'static str,
    pub kind: MemberKind,
    pub about: &'static str,
}

/// What the value of a member should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberKind {
    Text,
    OptionalText,
    /// An object with keys nobody knows beforehand. Strict schemas can't say that: they demand every key by name. So the
    /// schema asks for the JSON text of the object, and the reader opens such a text again. A judge that answers with the
    /// object itself (the plain call) is understood as well, and both give the same value.
    FreeObject,
}

/// The keys of a stage's reply.
#[derive(Debug, PartialEq, Eq)]
pub struct ReplyShape {
    fields: &'static [Field],
}

/// A reply that has its shape. Optional keys are there, as null where the judge left them out; keys nobody asked for are gone.
#[derive(Clone, Debug, PartialEq)]
pub struct StageReply {
    values: Map<String, Value>,
}

/// Why a reply is not valid. The texts quote nothing of the reply but numbers, so that they can go into a prompt.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReplyFault {
    /// Three backticks start the reply and no line ends after them.
    #[error("the reply starts a code fence that has no line of its own; answer without a fence")]
    Fence,
    /// Not exactly one JSON document: prose around it, a byte-order mark, broken JSON, nothing at all.
    #[error("the reply is {problem}; answer with one JSON object and no text before or after it")]
    NotJson {
        /// What the JSON reader found, and where.
        problem: String,
    },
    /// A key that must be there is not. Keys are case-sensitive.
    #[error("the key `{at}` is missing; answer with all keys, spelled as asked")]
    Missing {
        /// The key, with the place in its list: `verdicts[2].verdict`.
        at: String,
    },
    /// A value of another type.
    #[error("{at} is {found}; answer with {needed} there")]
    WrongType {
        /// The reply or a key in backticks.
        at: String,
        /// What is there.
        found: &'static str,
        /// What must be there.
        needed: &'static str,
    },
    /// A score outside of [0, 1], NaN or infinite.
    #[error("`{at}` is {found}; answer with a number from 0 to 1 there")]
    OutOfRange {
        /// The key.
        at: String,
        /// The number.
        found: f64,
    },
    /// A verdict that is neither `yes` nor `no`.
    #[error("`{at}` is another word; answer with `yes` or `no` there, in lower case")]
    WrongWord {
        /// The key.
        at: String,
    },
}

impl ReplyShape {
    /// A shape of these keys.
    pub(crate) const fn new(fields: &'static [Field]) -> Self {
        Self { fields }
    }

    /// The JSON schema of the reply in the form strict modes take: every property required, null allowed where a value is
    /// optional, no other properties. The range of a score is in its description only, because some strict modes refuse
    /// `minimum` and `maximum`; the reader checks it.
    pub fn schema(&self) -> Value {
        object_schema(self.fields.iter().map(|field| {
            let schema = match field.kind {
                Kind::Text => json!({"type": "string"}),
                Kind::OptionalText => json!({"type": ["string", "null"]}),
                Kind::Share => json!({"type": "number"}),
                Kind::Texts => json!({"type": "array", "items": {"type": "string"}}),
                Kind::Objects(members) => {
                    json!({"type": "array", "items": object_schema(members.iter().map(Member::schema))})
                }
                Kind::Verdicts => json!({"type": "array", "items": object_schema([
                    ("verdict", json!({"type": "string", "enum": ["yes", "no"]})),
                    ("reason", json!({"type": ["string", "null"]})),
                ])}),
            };
            (field.key, described(schema, &format!("{}: {}", field.kind.phrase(), field.about)))
        }))
    }

    /// A reply of this shape in which every value says what would stand there.
    pub fn placeholder(&self) -> StageReply {
        let of_reply = |about: &str| format!("(of a reply: {})", about.trim_end_matches('.'));
        let values = self.fields.iter().map(|field| {
            let value = match field.kind {
                Kind::Text | Kind::OptionalText => of_reply(field.about).into(),
                Kind::Share => 0.5.into(),
                Kind::Texts => json!([of_reply(field.about)]),
                Kind::Verdicts => json!([{"verdict": "yes", "reason": null}]),
                Kind::Objects(members) => {
                    let members = members
                        .iter()
                        .map(|m| (m.key.to_owned(), of_reply(m.about).into()));
                    Value::Array(vec![Value::Object(members.collect())])
                }
            };
            (field.key.to_owned(), value)
        });
        StageReply {
            values: values.collect(),
        }
    }

    /// The keys in words, for the end of a prompt. Holds only text of the program itself.
    pub fn instructions(&self) -> String {
        let mut text = String::from(
            "Answer with JSON only: one JSON object, no prose before or after it, no code fence. Its keys, all in lower case:\n",
        );
        for field in self.fields {
            text.push_str(&format!(
                "- `{}` ({}): {}",
                field.key,
                field.kind.phrase(),
                field.about
            ));
            match field.kind {
                Kind::Objects(members) => {
                    text.push_str(" The keys of each object:");
                    for Member { key, kind, about } in members {
                        text.push_str(&format!("\n  - `{key}` ({}): {about}", kind.phrase()));
                    }
                }
                Kind::Verdicts => text.push_str(
                    " The keys of each object:\n  - `verdict` (\"yes\" or \"no\")\n  - `reason` (text or null): why, in one sentence; needed where the verdict is \"no\"",
                ),
                _ => {}
            }
            text.push('\n');
        }
        text
    }

    /// Reads a reply: white space and a code fence around it go, then it must be exactly one JSON object with these keys.
    ///
    /// `NaN` and `Infinity` are read and then fail where they are scores; a repeated key has its last value.
    ///
    /// # Errors
    /// [`ReplyFault`] says what the judge must do differently.
    pub fn read(&self, text: &str) -> Result<StageReply, ReplyFault> {
        let json = without_fence(text)?;
        let document = parse(json.as_bytes()).map_err(|problem| ReplyFault::NotJson {
            problem: problem.to_string(),
        })?;
        if !matches!(document, Json::Object(_)) {
            let at = "the reply".to_owned();
            return Err(wrong_type(at, &document, "one JSON object"));
        }
        let mut values = Map::new();
        for field in self.fields {
            let value = document.get(field.key);
            values.insert(field.key.to_owned(), field.kind.read(field.key, value)?);
        }
        Ok(StageReply { values })
    }
}

impl StageReply {
    /// The text under a key of kind text; empty if the shape has none of that name.
    pub fn text(&self, key: &str) -> &str {
        self.optional_text(key).unwrap_or_default()
    }

    /// The text under a key, if the judge gave one.
    pub fn optional_text(&self, key: &str) -> Option<&str> {
        self.values.get(key).and_then(Value::as_str)
    }

    /// The number in [0, 1] under a key; NaN, which never becomes a score, if the shape has none of that name.
    pub fn share(&self, key: &str) -> f64 {
        self.values
            .get(key)
            .and_then(Value::as_f64)
            .unwrap_or(f64::NAN)
    }

    /// The items of the list under a key; none if the shape has no list of that name.
    pub fn list(&self, key: &str) -> &[Value] {
        self.values
            .get(key)
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// The value under a key; null if the shape has none of that name.
    pub fn value(&self, key: &str) -> &Value {
        self.values.get(key).unwrap_or(&Value::Null)
    }
}

impl Kind {
    fn phrase(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::OptionalText => "text or null",
            Self::Share => "number from 0 to 1",
            Self::Objects(_) => "list of objects",
            Self::Texts => "list of texts",
            Self::Verdicts => "list of objects, one verdict each",
        }
    }
}

impl Member {
    fn schema(&self) -> (&'static str, Value) {
        let schema = match self.kind {
            MemberKind::Text => json!({"type": "string"}),
            MemberKind::OptionalText => json!({"type": ["string", "null"]}),
            MemberKind::FreeObject => json!({"type": "string"}),
        };
        (
            self.key,
            described(schema, &format!("{}: {}", self.kind.phrase(), self.about)),
        )
    }
}

impl MemberKind {
    fn phrase(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::OptionalText => "text or null",
            Self::FreeObject => {
                "JSON object; where the response format demands a string, the JSON text of that object"
            }
        }
    }
}

fn object_schema(properties: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let properties: Map<String, Value> = properties
        .into_iter()
        .map(|(key, schema)| (key.to_owned(), schema))
        .collect();
    let required: Vec<&String> = properties.keys().collect();
    json!({"type": "object", "required": required, "additionalProperties": false, "properties": properties})
}

fn described(mut schema: Value, about: &str) -> Value {
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".to_owned(), about.into());
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) static SHAPE: ReplyShape = ReplyShape::new(&[
        Field {
            key: "score",
            kind: Kind::Share,
            about: "how good.",
        },
        Field {
            key: "reason",
            kind: Kind::OptionalText,
            about: "why.",
        },
    ]);
    pub(super) static CALLS: ReplyShape = ReplyShape::new(&[Field {
        key: "calls",
        kind: Kind::Objects(&[
            Member {
                key: "name",
                kind: MemberKind::Text,
                about: "the tool.",
            },
            Member {
                key: "parameters",
                kind: MemberKind::FreeObject,
                about: "the arguments.",
            },
        ]),
        about: "the calls.",
    }]);
    pub(super) static VERDICTS: ReplyShape = ReplyShape::new(&[Field {
        key: "verdicts",
        kind: Kind::Verdicts,
        about: "one a call.",
    }]);

    /// Strict modes want every property required and nothing else allowed, in every object.
    fn assert_strict(schema: &Value) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            let names: Vec<&String> = properties.keys().collect();
            assert_eq!(schema["required"], json!(names));
            assert_eq!(schema["additionalProperties"], false);
            properties.values().for_each(assert_strict);
        } else {
            assert_ne!(
                schema["type"], "object",
                "an object without properties: {schema}"
            );
        }
        if let Some(items) = schema.get("items") {
            assert_strict(items);
        }
    }

    #[test]
    fn schemas_are_strict_and_instructions_name_every_key() {
        for shape in [&SHAPE, &CALLS, &VERDICTS] {
            assert_strict(&shape.schema());
            for key in shape.schema()["properties"].as_object().unwrap().keys() {
                assert!(shape.instructions().contains(&format!("`{key}`")), "{key}");
            }
        }
        assert_eq!(
            SHAPE.schema()["properties"]["reason"]["type"],
            json!(["string", "null"])
        );
        let verdict =
            &VERDICTS.schema()["properties"]["verdicts"]["items"]["properties"]["verdict"];
        assert_eq!(verdict["enum"], json!(["yes", "no"]));
    }
}
