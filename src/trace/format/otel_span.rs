//! A span of OpenTelemetry, whatever envelope it came in: which convention its attributes follow, and the facts of it.

use serde_json::{Map, Value};

use super::values::{amount, at, count, nested, text, texts};
use super::{Payload, SpanFacts, TraceFacts, gen_ai, kind, openinference, said, vercel_ai};

/// A span out of its envelope.
#[derive(Debug, Default)]
pub(super) struct RawSpan {
    pub(super) trace_id: String,
    pub(super) span_id: String,
    pub(super) parent_span_id: Option<String>,
    pub(super) name: String,
    /// OpenInference's kind, where the envelope has it beside the attributes.
    pub(super) kind: Option<String>,
    pub(super) started_at: Option<i64>,
    pub(super) ended_at: Option<i64>,
    /// `OK`, `ERROR` or none.
    pub(super) status: Option<&'static str>,
    pub(super) status_message: Option<String>,
    pub(super) attributes: Map<String, Value>,
    pub(super) events: Vec<Event>,
}

/// An event of a span.
#[derive(Debug, Default)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) attributes: Map<String, Value>,
}

/// What a resource tells of the traces of its spans.
#[derive(Debug, Default)]
pub(super) struct Resource {
    environment: Option<String>,
    release: Option<String>,
    project: Option<String>,
    service: Option<String>,
}

impl Resource {
    pub(super) fn new(attributes: Map<String, Value>) -> Self {
        let attributes = Attributes::new(attributes);
        Self {
            environment: attributes.text(&ENVIRONMENT),
            release: attributes.text(&["service.version"]),
            project: attributes.text(&PROJECT),
            service: attributes.text(&["service.name"]),
        }
    }
}

/// Which call of a message a tool's span is.
const CALL_IDS: [&str; 4] = [
    "gen_ai.tool.call.id",
    "tool_call.id",
    "ai.toolCall.id",
    "tool.id",
];
const ENVIRONMENT: [&str; 3] = [
    "deployment.environment.name",
    "deployment.environment",
    "langfuse.environment",
];
const PROJECT: [&str; 1] = ["openinference.project.name"];
const SESSION: [&str; 9] = [
    "session.id",
    "gen_ai.conversation.id",
    "langfuse.session.id",
    "gcp.vertex.agent.session_id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "ai.telemetry.metadata.sessionId",
    "ai.telemetry.metadata.session_id",
    "ai.telemetry.metadata.threadId",
];
const USER: [&str; 6] = [
    "user.id",
    "enduser.id",
    "langfuse.user.id",
    "traceloop.association.properties.user_id",
    "ai.telemetry.metadata.userId",
    "ai.telemetry.metadata.user_id",
];

/// Whether anything is read of an attribute: the others are not worth a copy.
pub(super) fn wanted(key: &str) -> bool {
    let namespace = key.split('.').next().unwrap_or(key);
    let known = matches!(
        namespace,
        "gen_ai"
            | "gcp"
            | "llm"
            | "input"
            | "output"
            | "ai"
            | "traceloop"
            | "session"
            | "user"
            | "enduser"
            | "openinference"
            | "tool"
            | "tool_call"
            | "metadata"
            | "tag"
            | "error"
            | "exception"
            | "retrieval"
            | "embedding"
            | "reranker"
            | "agent"
            | "deployment"
            | "service"
            | "langfuse"
            | "otel"
    );
    known
        && !key.starts_with("llm.request.functions")
        && !key.starts_with("llm.tools")
        && !key.starts_with("ai.embedding")
        && !key.starts_with("ai.prompt.tools")
        && !matches!(
            key,
            "gen_ai.tool.definitions" | "gen_ai.system_instructions"
        )
        && !key.ends_with(".vector")
}

/// Attributes, flat by dotted name or nested.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    all: Value,
    nested: bool,
    openinference: bool,
    gen_ai: bool,
    vercel: bool,
    /// Counts that are there and are none.
    odd: std::cell::Cell<u32>,
}

impl Attributes {
    pub(super) fn new(map: Map<String, Value>) -> Self {
        let mut found = Self::default();
        for (key, value) in &map {
            found.nested |= value.is_object();
            match key.split('.').next().unwrap_or(key) {
                "openinference" | "llm" | "retrieval" | "embedding" | "reranker" | "tool" => {
                    found.openinference = true;
                }
                "input" | "output" => found.openinference |= key.len() > 6 || value.is_object(),
                "gen_ai" | "gcp" | "traceloop" => found.gen_ai = true,
                "ai" => found.vercel = true,
                _ => {}
            }
        }
        found.all = Value::Object(map);
        found
    }

    /// An attribute that is there and not empty.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        let found = if self.nested {
            at(&self.all, key)
        } else {
            self.all.get(key)
        };
        found.filter(|value| match value {
            Value::Null => false,
            Value::String(text) => !text.is_empty(),
            _ => true,
        })
    }

    /// The first of these that is there.
    pub(super) fn first(&self, keys: &[&str]) -> Option<&Value> {
        keys.iter().find_map(|key| self.get(key))
    }

    pub(super) fn text(&self, keys: &[&str]) -> Option<String> {
        keys.iter().find_map(|key| text(self.get(key)))
    }

    pub(super) fn count(&self, keys: &[&str]) -> Option<u64> {
        keys.iter().find_map(|key| {
            let written = self.get(key)?;
            let found = count(Some(written));
            if found.is_none() {
                self.odd.set(self.odd.get() + 1);
            }
            found
        })
    }

    /// US dollars, see [`amount`].
    pub(super) fn amount(&self, keys: &[&str]) -> Option<f64> {
        keys.iter().find_map(|key| amount(self.get(key)))
    }

    /// A list: an array, one in text, or attributes by index (`gen_ai.prompt.0.role`).
    pub(super) fn list(&self, prefix: &str) -> Option<Vec<Value>> {
        match self.get(prefix) {
            Some(Value::Array(items)) if !items.is_empty() => return Some(items.clone()),
            Some(Value::String(text)) => {
                if let Some(Value::Array(items)) = nested(text) {
                    return Some(items);
                }
            }
            _ => {}
        }
        let entries: Vec<(&str, &Value)> = self
            .all
            .as_object()?
            .iter()
            .filter_map(|(key, value)| {
                let path = key.strip_prefix(prefix)?.strip_prefix('.')?;
                path.starts_with(|c: char| c.is_ascii_digit())
                    .then_some((path, value))
            })
            .collect();
        if entries.is_empty() {
            return None;
        }
        match grouped(&entries, 0) {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }
}

/// Deeper paths stay names.
const DEEPEST: usize = 16;

/// Nested objects and arrays out of values by dotted path; members whose names are all numbers are an array.
fn grouped(entries: &[(&str, &Value)], depth: usize) -> Value {
    if let [("", value)] = entries {
        return (*value).clone();
    }
    let mut groups: Vec<(&str, Vec<(&str, &Value)>)> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (path, value) in entries {
        let (head, rest) = match path.split_once('.') {
            Some(split) if depth < DEEPEST => split,
            _ => (*path, ""),
        };
        let place = *places.entry(head).or_insert(groups.len());
        if place == groups.len() {
            groups.push((head, Vec::new()));
        }
        groups[place].1.push((rest, value));
    }
    let inner = |group: &[(&str, &Value)]| match group {
        // A value beside members of the same name: the members tell more.
        [_, _, ..] => {
            let members: Vec<_> = group.iter().filter(|e| !e.0.is_empty()).copied().collect();
            grouped(
                if members.is_empty() {
                    &group[..1]
                } else {
                    &members
                },
                depth + 1,
            )
        }
        _ => grouped(group, depth + 1),
    };
    let mut indexes: Vec<(u64, usize)> = Vec::new();
    for (place, (head, _)) in groups.iter().enumerate() {
        match head.parse() {
            Ok(index) => indexes.push((index, place)),
            Err(_) => break,
        }
    }
    if indexes.len() == groups.len() {
        indexes.sort_unstable();
        return indexes
            .iter()
            .map(|(_, place)| inner(&groups[*place].1))
            .collect();
    }
    let members = groups
        .iter()
        .map(|(head, group)| ((*head).to_owned(), inner(group)));
    Value::Object(members.collect())
}

/// A payload together with the document in it.
pub(super) struct Spoken {
    pub(super) payload: Payload,
    pub(super) document: Option<Value>,
}

/// The payload of an exported value; none for null and empty text.
pub(super) fn spoken(value: &Value, speaker: said::Speaker) -> Option<Spoken> {
    match value {
        Value::Null => None,
        Value::String(text) => {
            let (payload, document) = said::of_text(text, speaker)?;
            Some(Spoken { payload, document })
        }
        document => Some(Spoken {
            payload: Payload::document(document, said::said(document, speaker)),
            document: Some(document.clone()),
        }),
    }
}

/// `OK`, `ERROR` or none, of a status code by number or name.
pub(super) fn status(code: Option<&Value>) -> Option<&'static str> {
    match code? {
        Value::Number(number) => match number.as_u64() {
            Some(1) => Some("OK"),
            Some(2) => Some("ERROR"),
            _ => None,
        },
        Value::String(name) => {
            let name = name.to_ascii_uppercase();
            let name = name.rsplit(['.', '_']).next().unwrap_or(&name);
            match name {
                "OK" | "1" => Some("OK"),
                "ERROR" | "2" => Some("ERROR"),
                _ => None,
            }
        }
        _ => None,
    }
}

/// An id in lower-case hexadecimal digits: exporters also write base64 (protobuf's JSON) and `0x…`. Other ids stay as
/// they are; empty ones are none.
pub(super) fn id(written: &str) -> Option<String> {
    let written = written.trim();
    let digits = written.strip_prefix("0x").unwrap_or(written);
    if digits.is_empty() {
        return None;
    }
    if matches!(digits.len(), 16 | 32) && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Some(digits.to_ascii_lowercase());
    }
    let of_base64 = match (written.len(), written.ends_with('=')) {
        (24, true) => base64(written).filter(|bytes| bytes.len() == 16),
        (12, true) => base64(written).filter(|bytes| bytes.len() == 8),
        _ => None,
    };
    Some(match of_base64 {
        Some(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        None => digits.to_owned(),
    })
}

/// The id of a parent, for exporters that write zeros where there is none.
pub(super) fn parent(written: Option<String>) -> Option<String> {
    let found = id(&written?)?;
    (!is_zero(&found)).then_some(found)
}

fn is_zero(id: &str) -> bool {
    id.bytes().all(|byte| byte == b'0')
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
}

impl RawSpan {
    /// The facts of the span.
    pub(super) fn facts(self, resource: &Resource) -> Result<SpanFacts, String> {
        // OpenTelemetry's zeros say that there is no trace.
        let Some(trace_id) = id(&self.trace_id).filter(|id| !is_zero(id)) else {
            return Err(format!("span {:?} has no trace id", self.name));
        };
        let Some(span_id) = id(&self.span_id) else {
            return Err(format!("span {:?} has no span id", self.name));
        };
        let parent_span_id = self.parent_span_id.as_deref().and_then(id);
        let attributes = Attributes::new(self.attributes);
        let mut facts = SpanFacts {
            of: of(&attributes, resource, trace_id),
            span_id,
            parent_span_id,
            name: self.name,
            started_at: self.started_at,
            ended_at: self.ended_at,
            status: self.status.map(str::to_owned),
            ..SpanFacts::default()
        };
        if attributes.openinference || self.kind.is_some() {
            openinference::fill(&attributes, self.kind.as_deref(), &mut facts);
        }
        if attributes.vercel {
            vercel_ai::fill(&attributes, &mut facts);
        }
        if attributes.gen_ai || self.events.iter().any(|e| e.name.starts_with("gen_ai.")) {
            gen_ai::fill(&attributes, &self.events, &mut facts);
        }
        if facts.kind.is_empty() {
            facts.kind = kind::OTHER.to_owned();
        }
        // Conventions give `error.type` to operations that failed and to no others; `OK` is said by hand.
        let failed = self.status.is_none() && attributes.get("error.type").is_some();
        if failed || self.status == Some("ERROR") {
            facts.error = self
                .status_message
                .filter(|message| !message.is_empty())
                .or_else(|| exception(&self.events))
                .or_else(|| attributes.text(&["error.message", "exception.message", "error.type"]))
                .or(facts.error);
        }
        if facts.error.is_some() {
            facts.status = Some("ERROR".to_owned());
        }
        facts.odd_counts = attributes.odd.get();
        if facts.kind == kind::TOOL {
            facts.call_id = attributes.text(&CALL_IDS);
        }
        if facts.parent_span_id.is_none() {
            facts.of.name.get_or_insert_with(|| facts.name.clone());
            if let Some(service) = &resource.service {
                let service = Value::String(service.clone());
                facts.of.metadata.entry("service.name").or_insert(service);
            }
        }
        Ok(facts)
    }
}

fn of(attributes: &Attributes, resource: &Resource, trace_id: String) -> TraceFacts {
    let metadata = match attributes.get("metadata") {
        Some(Value::Object(members)) => members.clone(),
        Some(Value::String(text)) => match nested(text) {
            Some(Value::Object(members)) => members,
            _ => Map::new(),
        },
        _ => Map::new(),
    };
    let tags = attributes.first(&[
        "tag.tags",
        "langfuse.trace.tags",
        "ai.telemetry.metadata.tags",
    ]);
    TraceFacts {
        trace_id,
        session_id: attributes.text(&SESSION),
        user_id: attributes.text(&USER),
        project_id: attributes
            .text(&PROJECT)
            .or_else(|| resource.project.clone()),
        environment: attributes
            .text(&ENVIRONMENT)
            .or_else(|| resource.environment.clone()),
        release: resource
            .release
            .clone()
            .or_else(|| attributes.text(&["service.version", "langfuse.release"])),
        name: attributes.text(&["langfuse.trace.name"]),
        tags: texts(tags),
        metadata,
        ..TraceFacts::default()
    }
}

/// What the first exception says.
fn exception(events: &[Event]) -> Option<String> {
    let exception = events.iter().find(|event| event.name == "exception")?;
    let member = |name| text(exception.attributes.get(name));
    member("exception.message").or_else(|| member("exception.type"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attributes(value: Value) -> Attributes {
        match value {
            Value::Object(map) => Attributes::new(map),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn attributes_by_index_are_a_list_in_the_order_of_their_numbers() {
        let found = attributes(json!({
            "gen_ai.prompt.10.role": "user", "gen_ai.prompt.2.role": "tool",
            "gen_ai.prompt.2.tool_calls.0.name": "f", "gen_ai.prompt.4000000000.role": "assistant",
            "gen_ai.prompt.note": 1,
        }));
        assert_eq!(
            found.list("gen_ai.prompt"),
            Some(vec![
                json!({"role": "tool", "tool_calls": [{"name": "f"}]}),
                json!({"role": "user"}),
                json!({"role": "assistant"}),
            ])
        );
        assert_eq!(found.list("gen_ai.completion"), None);
    }

    #[test]
    fn long_paths_do_not_go_deeper() {
        let key = format!("gen_ai.prompt.0{}", ".a".repeat(100_000));
        let found = attributes(json!({key: "x"}));
        assert_eq!(found.list("gen_ai.prompt").map(|list| list.len()), Some(1));
    }

    #[test]
    fn ids_are_read_in_hexadecimal_and_base64() {
        let hex = Some("5b8efff798038103d269b633813fc60c".to_owned());
        assert_eq!(id("5B8EFFF798038103D269B633813FC60C"), hex);
        assert_eq!(id("0x5b8efff798038103d269b633813fc60c"), hex);
        assert_eq!(id("W47/95gDgQPSabYzgT/GDA=="), hex);
        assert_eq!(id("7uGbfsPBsXM="), Some("eee19b7ec3c1b173".to_owned()));
        assert_eq!(id("fixture-trace-1"), Some("fixture-trace-1".to_owned()));
        assert_eq!(id(""), None);
        for none in ["", "0000000000000000", "0x0", "AAAAAAAAAAA="] {
            assert_eq!(parent(Some(none.to_owned())), None, "{none}");
        }
    }

    #[test]
    fn statuses_are_read_by_number_and_name() {
        for (code, expected) in [
            (json!(0), None),
            (json!(1), Some("OK")),
            (json!("STATUS_CODE_ERROR"), Some("ERROR")),
            (json!("StatusCode.OK"), Some("OK")),
            (json!("unset"), None),
        ] {
            assert_eq!(status(Some(&code)), expected, "{code}");
        }
    }

    #[test]
    fn errors_are_what_the_status_or_else_the_exception_says() {
        let span = |message: &str| RawSpan {
            trace_id: "t".into(),
            span_id: "s".into(),
            status: Some("ERROR"),
            status_message: Some(message.into()),
            events: vec![Event {
                name: "exception".into(),
                attributes: [("exception.message".to_owned(), json!("broke"))]
                    .into_iter()
                    .collect(),
            }],
            ..RawSpan::default()
        };
        let mut unset = span("");
        (unset.status, unset.events) = (None, Vec::new());
        unset.attributes = [
            ("gen_ai.operation.name".to_owned(), json!("execute_tool")),
            ("gen_ai.tool.call.id".to_owned(), json!("c")),
            ("error.type".to_owned(), json!("ValueError")),
            ("gen_ai.usage.input_tokens".to_owned(), json!("1,200")),
        ]
        .into_iter()
        .collect();
        let facts = unset.facts(&Resource::default()).unwrap();
        assert_eq!(facts.error.as_deref(), Some("ValueError"));
        assert_eq!(facts.status.as_deref(), Some("ERROR"));
        assert_eq!(facts.call_id.as_deref(), Some("c"));
        let mut model = span("");
        model.attributes = [
            ("gen_ai.operation.name".to_owned(), json!("chat")),
            ("gen_ai.usage.input_tokens".to_owned(), json!("1,200")),
            ("gen_ai.usage.output_tokens".to_owned(), json!(7.9)),
        ]
        .into_iter()
        .collect();
        let facts = model.facts(&Resource::default()).unwrap();
        assert_eq!((facts.prompt_tokens, facts.odd_counts), (None, 2));
        let of = |message| span(message).facts(&Resource::default()).unwrap().error;
        assert_eq!(of("timeout").as_deref(), Some("timeout"));
        assert_eq!(of("").as_deref(), Some("broke"));
        assert!(RawSpan::default().facts(&Resource::default()).is_err());
    }
}
