//! A script under which everything passes: replies made from the JSON schema of the request.

use serde_json::{Map, Value, json};

use super::{Answer, Asked};

/// Deeper schemas end in null: a recursive schema has no deepest object.
const MAX_DEPTH: usize = 16;

/// How replies are made.
#[derive(Clone, Debug, Default)]
pub struct PassRules {
    /// Numbers of a schema are a fixed function of the request's model and texts, spread over their range, instead of
    /// nine tenths of it.
    pub hashed: bool,
    /// For requests without a schema: the reply of the first entry whose word is in the system or user text. Without
    /// one the request is refused with status 400.
    pub words: Vec<(String, String)>,
}

/// Every number is nine tenths up its range (0.9 of 0 to 1, 4 of 0 to 5), every boolean true, every enum its first
/// word, every array one item long.
pub fn pass_judge() -> impl Fn(&Asked) -> Answer + Clone + Send + Sync + 'static {
    pass_judge_with(PassRules::default())
}

/// The same with rules.
pub fn pass_judge_with(
    rules: PassRules,
) -> impl Fn(&Asked) -> Answer + Clone + Send + Sync + 'static {
    move |asked| match &asked.schema {
        Some(schema) => {
            let filler = Filler {
                root: schema,
                seed: rules.hashed.then(|| seed(asked)),
            };
            Answer::reply(filler.fill(schema, "", 0))
        }
        None => {
            let holds = |word: &str| asked.user.contains(word) || asked.system.contains(word);
            match rules.words.iter().find(|(word, _)| holds(word)) {
                Some((_, reply)) => Answer::reply(reply.as_str()),
                None => Answer::status(400, &[], "no schema, and no word that the script knows"),
            }
        }
    }
}

struct Filler<'a> {
    root: &'a Value,
    seed: Option<u64>,
}

impl Filler<'_> {
    fn fill(&self, schema: &Value, path: &str, depth: usize) -> Value {
        if depth > MAX_DEPTH {
            return Value::Null;
        }
        // A judge that lets everything pass names no failure.
        if path.ends_with("/failure_code") && allows_null(schema) {
            return Value::Null;
        }
        if let Some(pointer) = schema["$ref"].as_str() {
            let target = self.root.pointer(pointer.trim_start_matches('#'));
            return self.fill(target.unwrap_or(&Value::Null), path, depth + 1);
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(first) = schema["enum"].get(0) {
            return first.clone();
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            if let Some(choices) = schema[key].as_array() {
                let choice = choices.iter().find(|c| c["type"] != "null");
                return self.fill(choice.unwrap_or(&Value::Null), path, depth + 1);
            }
        }
        match kind(schema).as_deref() {
            Some("object") => {
                let mut object = Map::new();
                for (name, property) in self.required(schema) {
                    let value = self.fill(property, &format!("{path}/{name}"), depth + 1);
                    object.insert(name.to_owned(), value);
                }
                Value::Object(object)
            }
            Some("array") => json!([self.fill(&schema["items"], &format!("{path}/0"), depth + 1)]),
            Some("number") => {
                let low = schema["minimum"].as_f64().unwrap_or(0.0);
                let high = schema["maximum"].as_f64().unwrap_or(low + 1.0);
                let share = self.draw(path).map_or(0.9, |d| (d % 1001) as f64 / 1000.0);
                json!(low + share * (high - low))
            }
            Some("integer") => {
                let low = schema["minimum"].as_i64().unwrap_or(0);
                let high = schema["maximum"].as_i64().unwrap_or(low + 1).max(low);
                let span = high.abs_diff(low);
                let step = match self.draw(path) {
                    Some(draw) => draw % (span + 1),
                    // The only two numbers of a range without a wider one: the upper.
                    None if span == 1 => 1,
                    None => span * 9 / 10,
                };
                json!(low + step as i64)
            }
            Some("boolean") => json!(true),
            Some("string") => json!(format!("pass{}", path.replace('/', " "))),
            _ => Value::Null,
        }
    }

    /// The required properties; every property where the schema does not say.
    fn required<'s>(&self, schema: &'s Value) -> Vec<(&'s str, &'s Value)> {
        let properties = schema["properties"].as_object().into_iter().flatten();
        let required = schema["required"].as_array();
        properties
            .map(|(name, property)| (name.as_str(), property))
            .filter(|(name, _)| required.is_none_or(|names| names.iter().any(|n| n == name)))
            .collect()
    }

    fn draw(&self, path: &str) -> Option<u64> {
        self.seed.map(|seed| spread(fnv(seed, path.as_bytes())))
    }
}

/// The first type that is not null, in lower case: Gemini's schemas write types in capitals.
fn kind(schema: &Value) -> Option<String> {
    let name = match &schema["type"] {
        Value::Array(types) => types.iter().find(|t| *t != "null").and_then(Value::as_str),
        one => one.as_str(),
    };
    match name {
        Some(name) => Some(name.to_ascii_lowercase()),
        None => schema.get("properties").map(|_| "object".to_owned()),
    }
}

fn allows_null(schema: &Value) -> bool {
    let among = |list: &Value| {
        list.as_array()
            .is_some_and(|l| l.iter().any(|t| t == "null" || t["type"] == "null"))
    };
    schema["nullable"] == true || among(&schema["type"]) || among(&schema["anyOf"])
}

fn seed(asked: &Asked) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for text in [&asked.model, &asked.system, &asked.user] {
        hash = fnv(fnv(hash, text.as_bytes()), &[0xff]);
    }
    hash
}

/// FNV-1a: the same on every platform and with every compiler, as replies that tests compare must be.
pub(super) fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

/// Carries the high bits of a hash into the low ones, which a remainder looks at.
fn spread(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}
