//! Mapping files: what a house's own format calls things, as TOML.
//!
//! ```toml
//! documents = "trace"            # what one document is: a trace (the default) or a span
//! list = "turns"                 # where the documents are in a line or file; without it, each line, row or file is one
//!
//! [columns]                      # canonical column = path in the document
//! trace_id = "id"
//! session_id = "/conversation.id"  # with a slash: from the top, not from the element of the list
//! started_at = "time"
//! input = "question"
//! output = "answer.text"
//!
//! [constants]                    # canonical column = value
//! environment = "production"
//!
//! [tools]                        # calls of tools in a trace's document
//! list = "steps"
//! name = "tool"
//! arguments = "args"
//! result = "observation"
//! error = "error"
//!
//! [kinds]                        # of spans: their word = agent, llm, tool, retriever, …
//! function_call = "tool"
//! ```
//!
//! Paths are dotted; they enter JSON in texts too. An input or output that is a document is embedded by what was said in it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Deserialize;
use serde_json::Value;

use super::parts::{Call, Parts, SpanFacts, TraceFacts, kind};
use super::said::{Speaker, payload};
use super::{Place, values};
use crate::text::nearest;

/// Columns of traces that can be mapped.
const OF_TRACES: [&str; 18] = [
    "trace_id",
    "session_id",
    "project_id",
    "name",
    "started_at",
    "ended_at",
    "status",
    "error",
    "environment",
    "release",
    "user_id",
    "model",
    "prompt_tokens",
    "completion_tokens",
    "cost_usd",
    "input",
    "output",
    "expected",
];
/// Further columns where documents are spans.
const OF_SPANS: [&str; 5] = ["span_id", "parent_span_id", "kind", "finish_reason", "tags"];

/// What one document is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Documents {
    #[default]
    Trace,
    Span,
}

/// Where the calls of tools are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tools {
    list: String,
    name: String,
    arguments: Option<String>,
    result: Option<String>,
    error: Option<String>,
    id: Option<String>,
}

/// A mapping file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapping {
    #[serde(default)]
    documents: Documents,
    list: Option<String>,
    columns: BTreeMap<String, String>,
    #[serde(default)]
    constants: BTreeMap<String, String>,
    tools: Option<Tools>,
    #[serde(default)]
    kinds: BTreeMap<String, String>,
    /// Which of `columns` were in a document, a bit each.
    #[serde(skip)]
    met: Arc<AtomicU64>,
}

impl Mapping {
    /// Reads a mapping file.
    ///
    /// # Errors
    /// What is wrong with it, and the nearest name of a column that is not known.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
        Self::of(&text)
    }

    fn of(text: &str) -> Result<Self, String> {
        let mapping: Self = toml::from_str(text).map_err(|e| e.to_string().trim().to_owned())?;
        let spans = mapping.documents == Documents::Span;
        for column in mapping.columns.keys().chain(mapping.constants.keys()) {
            let known = OF_TRACES
                .iter()
                .chain(OF_SPANS.iter().filter(|name| spans || **name == "tags"));
            if !known.clone().any(|name| name == column) {
                let names: Vec<&str> = known.copied().collect();
                let near = nearest(column, names.iter().copied());
                return Err(format!(
                    "`{column}` is no column{near}; columns are {}",
                    names.join(", ")
                ));
            }
            if mapping.columns.contains_key(column) && mapping.constants.contains_key(column) {
                return Err(format!(
                    "`{column}` is in [columns] and in [constants]; keep one"
                ));
            }
        }
        if !mapping.columns.contains_key("trace_id") {
            return Err(
                "[columns] has no trace_id: say which field tells one trace from another".into(),
            );
        }
        if spans && mapping.tools.is_some() {
            return Err(
                "[tools] is for documents that are traces; give spans a kind instead".into(),
            );
        }
        Ok(mapping)
    }

    /// Canonical columns and where they come from, and what else the file says.
    pub fn lines(&self) -> Vec<(String, String)> {
        let pair = |(name, value): (&String, &String)| (name.clone(), value.clone());
        let mut lines: Vec<(String, String)> = self.columns.iter().map(pair).collect();
        let constants = self.constants.iter();
        lines.extend(constants.map(|(name, value)| (name.clone(), format!("always `{value}`"))));
        let documents = match self.documents {
            Documents::Trace => "each is a trace",
            Documents::Span => "each is a span",
        };
        let list = self
            .list
            .as_ref()
            .map(|list| format!("those of the list `{list}`; {documents}"));
        let each = || format!("lines, rows or files; {documents}");
        lines.push(("documents".into(), list.unwrap_or_else(each)));
        if let Some(tools) = &self.tools {
            let members = [
                ("name", Some(&tools.name)),
                ("id", tools.id.as_ref()),
                ("arguments", tools.arguments.as_ref()),
                ("result", tools.result.as_ref()),
                ("error", tools.error.as_ref()),
            ];
            let members = members
                .into_iter()
                .filter_map(|(name, path)| Some(format!("{name} from {}", path?)));
            let members = members.collect::<Vec<_>>().join(", ");
            lines.push((
                "spans".into(),
                format!("calls of tools in `{}`: {members}", tools.list),
            ));
        }
        if !self.kinds.is_empty() {
            let kinds = self
                .kinds
                .iter()
                .map(|(word, kind)| format!("{word} is {kind}"));
            lines.push(("kinds".into(), kinds.collect::<Vec<_>>().join(", ")));
        }
        lines
    }

    /// Columns that were in no document that was read, and where they should have been.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&str, &str)> {
        let met = self.met.load(Relaxed);
        let columns = self.columns.iter().enumerate();
        columns
            .filter(move |(at, _)| met >> at & 1 == 0)
            .map(|(_, (column, path))| (column.as_str(), path.as_str()))
    }

    /// Reads one document.
    ///
    /// # Errors
    /// What is missing in it.
    pub(super) fn read_document(
        &self,
        top: &Value,
        _: &Place<'_>,
        parts: &mut Parts,
    ) -> Result<(), String> {
        match &self.list {
            None => self.read_one(top, top, parts),
            Some(list) => match reach(top, list) {
                Some(Value::Array(items)) => items
                    .iter()
                    .try_for_each(|item| self.read_one(top, item, parts)),
                _ => Err(format!(
                    "has no list at `{list}`; correct `list` in the mapping file"
                )),
            },
        }
    }

    fn read_one(&self, top: &Value, document: &Value, parts: &mut Parts) -> Result<(), String> {
        let at = |column: &str| -> Option<Value> {
            if let Some(constant) = self.constants.get(column) {
                return Some(Value::from(constant.as_str()));
            }
            let path = self.columns.get(column)?;
            let found = match path.strip_prefix('/') {
                Some(path) => reach(top, path),
                None => reach(document, path),
            };
            if found.is_some() {
                let at = self.columns.keys().position(|name| name == column);
                self.met.fetch_or(1 << at.unwrap_or_default(), Relaxed);
            }
            found
        };
        let text = |column: &str| values::text(at(column).as_ref());
        let count = |column: &str| values::count(at(column).as_ref());
        let time = |column: &str| -> Result<Option<i64>, String> {
            match at(column) {
                None => Ok(None),
                Some(value) => values::nanos(Some(&value))
                    .map(Some)
                    .ok_or_else(|| format!("`{column}` is no time: {value}")),
            }
        };
        let said = |column: &str, speaker| at(column).and_then(|value| payload(&value, speaker));
        let trace_id = text("trace_id").ok_or("has no trace id where the mapping says it is")?;
        let spans = self.documents == Documents::Span;
        let mut facts = TraceFacts {
            trace_id,
            session_id: text("session_id"),
            project_id: text("project_id"),
            environment: text("environment"),
            release: text("release"),
            user_id: text("user_id"),
            expected: said("expected", Speaker::Agent),
            tags: values::texts(at("tags").as_ref()),
            ..TraceFacts::default()
        };
        let (started_at, ended_at) = (time("started_at")?, time("ended_at")?);
        let cost_usd = values::amount(at("cost_usd").as_ref());
        if spans {
            let word = text("kind").unwrap_or_default();
            let kind = self.kinds.get(&word).unwrap_or(&word).to_uppercase();
            parts.span(SpanFacts {
                of: facts,
                span_id: text("span_id").unwrap_or_default(),
                parent_span_id: text("parent_span_id"),
                kind: if kind.is_empty() {
                    kind::OTHER.to_owned()
                } else {
                    kind
                },
                name: text("name").unwrap_or_default(),
                input: said("input", Speaker::User),
                output: said("output", Speaker::Agent),
                started_at,
                ended_at,
                status: text("status"),
                error: text("error"),
                model: text("model"),
                prompt_tokens: count("prompt_tokens"),
                completion_tokens: count("completion_tokens"),
                cost_usd,
                finish_reason: text("finish_reason"),
                ..SpanFacts::default()
            });
            return Ok(());
        }
        facts.name = text("name");
        (facts.started_at, facts.ended_at) = (started_at, ended_at);
        (facts.status, facts.error, facts.model) = (text("status"), text("error"), text("model"));
        (facts.prompt_tokens, facts.completion_tokens) =
            (count("prompt_tokens"), count("completion_tokens"));
        facts.cost_usd = cost_usd;
        facts.input = said("input", Speaker::User);
        facts.output = said("output", Speaker::Agent);
        if let Some(tools) = &self.tools {
            self.read_tools(tools, document, &facts, parts);
        }
        parts.trace(facts);
        Ok(())
    }

    fn read_tools(&self, tools: &Tools, document: &Value, facts: &TraceFacts, parts: &mut Parts) {
        let Some(Value::Array(items)) = reach(document, &tools.list) else {
            return;
        };
        // Several documents may tell of one trace, and each counts its calls anew; one that comes twice tells of the same.
        let of_document = mark(&document.to_string());
        let moment = facts.started_at.unwrap_or_default();
        for (number, item) in items.iter().enumerate() {
            let at = |path: &Option<String>| reach(item, path.as_deref()?);
            let Some(name) = values::text(reach(item, &tools.name).as_ref()) else {
                continue;
            };
            let call = Call {
                id: values::text(at(&tools.id).as_ref()),
                name,
                arguments: at(&tools.arguments).and_then(|value| payload(&value, Speaker::User)),
                result: at(&tools.result).and_then(|value| payload(&value, Speaker::Agent)),
                error: values::text(at(&tools.error).as_ref()),
            };
            parts.span(SpanFacts {
                of: TraceFacts {
                    trace_id: facts.trace_id.clone(),
                    ..TraceFacts::default()
                },
                span_id: match call.id {
                    // Of one id, calls of other tools or with other arguments are other calls.
                    Some(id) => {
                        let arguments = call.arguments.as_ref().map_or("", |a| a.raw.as_str());
                        format!("{id}-{}", mark(&format!("{}\n{arguments}", call.name)))
                    }
                    None => format!("tool-{moment:020}-{of_document}-{number:04}"),
                },
                kind: kind::TOOL.to_owned(),
                name: call.name,
                input: call.arguments,
                output: call.result,
                status: call.error.is_some().then(|| "ERROR".to_owned()),
                error: call.error,
                ..SpanFacts::default()
            });
        }
    }
}

/// Tells texts apart.
fn mark(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..12].to_owned()
}

/// A member at a dotted path; texts that are JSON documents are entered.
fn reach(value: &Value, path: &str) -> Option<Value> {
    if let Some(found) = values::at(value, path) {
        return Some(found.clone());
    }
    let (first, rest) = path.split_once('.')?;
    match value.get(first)? {
        Value::String(text) => reach(&values::nested(text)?, rest),
        Value::Array(items) => reach(
            items.get(rest.split('.').next()?.parse::<usize>().ok()?)?,
            rest.split_once('.')?.1,
        ),
        inner => reach(inner, rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PLACE: Place<'_> = Place {
        stem: "file",
        row: 0,
    };

    #[test]
    fn a_house_format_is_read() {
        let mapping = Mapping::of(
            r#"
            list = "turns"
            [columns]
            trace_id = "id"
            session_id = "/conversation.id"
            started_at = "time"
            input = "question"
            output = "answer.text"
            [constants]
            environment = "production"
            [tools]
            list = "steps"
            name = "tool"
            arguments = "args"
            result = "observation"
            "#,
        )
        .unwrap();
        let document = json!({"conversation": {"id": 7}, "turns": [{
            "id": "t1", "time": 1_700_000_000, "question": "Hi?", "answer": "{\"text\": \"Yes.\"}",
            "steps": [{"tool": "look", "args": {"q": 1}, "observation": "found"}, {"thought": "none"}],
        }]});
        let mut parts = Parts::default();
        mapping
            .read_document(&document, &PLACE, &mut parts)
            .unwrap();
        let [trace] = &parts.traces[..] else {
            panic!("{parts:?}")
        };
        assert_eq!(
            (trace.trace_id.as_str(), trace.session_id.as_deref()),
            ("t1", Some("7"))
        );
        assert_eq!(trace.output.as_ref().map(|p| p.raw.as_str()), Some("Yes."));
        assert_eq!(trace.environment.as_deref(), Some("production"));
        let [tool] = &parts.spans[..] else {
            panic!("{parts:?}")
        };
        assert_eq!(
            (
                tool.name.as_str(),
                tool.output.as_ref().map(|p| p.raw.as_str())
            ),
            ("look", Some("found"))
        );
        assert_eq!(mapping.missing().count(), 0);
        let refused =
            mapping.read_document(&json!({"turns": [{"question": "Hi?"}]}), &PLACE, &mut parts);
        assert!(refused.unwrap_err().contains("trace id"));
    }

    #[test]
    fn calls_of_several_documents_of_one_trace_are_all_there() {
        let mapping = |id: &str| {
            Mapping::of(&format!(
                "[columns]\ntrace_id = 'id'\n[tools]\nlist = 'steps'\nname = 'tool'\narguments = 'args'\nresult = \
                 'got'\n{id}"
            ))
            .unwrap()
        };
        let document = |args: u32, got: &str| json!({"id": "t", "steps": [{"call": "c1", "tool": "look", "args": {"q": args}, "got": got}]});
        let (first, second) = (document(1, "one"), document(2, "two"));
        for (id, documents, calls) in [
            ("", vec![&first, &second], 2),
            ("", vec![&first, &second, &first], 2),
            ("id = 'call'", vec![&second, &first], 2),
            ("id = 'call'", vec![&first, &first], 1),
        ] {
            let mut parts = Parts::default();
            for document in documents {
                mapping(id)
                    .read_document(document, &PLACE, &mut parts)
                    .unwrap();
            }
            let (trace, notes) = super::super::assemble::assemble(parts.traces, parts.spans);
            assert_eq!((notes.tool_calls, notes.orphans), (calls, 0), "{id}");
            assert_eq!(
                trace.facts.output, None,
                "what a tool gave back is no answer"
            );
            assert_eq!(trace.facts.name, None);
        }
    }

    #[test]
    fn all_that_a_mapping_says_is_told() {
        let mapping = Mapping::of(
            "list = 'turns'\n[columns]\ntrace_id = 'id'\n[constants]\nenvironment = 'prod'\n[tools]\nlist = \
             'steps'\nname = 'tool'",
        );
        let told: Vec<String> = mapping
            .unwrap()
            .lines()
            .into_iter()
            .map(|(name, source)| format!("{name}: {source}"))
            .collect();
        assert_eq!(
            told,
            [
                "trace_id: id",
                "environment: always `prod`",
                "documents: those of the list `turns`; each is a trace",
                "spans: calls of tools in `steps`: name from tool",
            ]
        );
    }

    #[test]
    fn what_can_not_be_meant_is_refused() {
        for (text, words) in [
            ("[columns]\ninput = 'q'", "no trace_id"),
            (
                "[columns]\ntrace_id = 'a'\nimput = 'q'",
                "did you mean `input`?",
            ),
            (
                "[columns]\ntrace_id = 'a'\n[constants]\ntrace_id = 'b'",
                "keep one",
            ),
            ("columns = 3", "columns"),
            (
                "[columns]\ntrace_id = 'a'\nspan_id = 'b'",
                "`span_id` is no column",
            ),
        ] {
            let refused = Mapping::of(text).unwrap_err();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }
}
