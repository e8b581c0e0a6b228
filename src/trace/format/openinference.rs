//! OpenInference's attributes (`openinference.span.kind`, `llm.*`, `input.value`, …).

use serde_json::{Map, Value, json};

use super::otel_span::{Attributes, Spoken, spoken};
use super::said::Speaker;
use super::tool_calls::{answered, asked, plain};
use super::values::{at, text};
use super::{Payload, SpanFacts, kind};

/// Fills what the attributes tell and the span doesn't have yet. The kind may stand beside the attributes.
pub(super) fn fill(attributes: &Attributes, beside: Option<&str>, facts: &mut SpanFacts) {
    let named = attributes.text(&["openinference.span.kind"]);
    if let Some(found) = named.as_deref().or(beside).and_then(kind_of) {
        facts.kind = found.to_owned();
    }
    if facts.kind.is_empty() && attributes.text(&MODELS).is_some() {
        facts.kind = kind::LLM.to_owned();
    }
    facts.model = attributes.text(&MODELS);
    facts.prompt_tokens = attributes.count(&["llm.token_count.prompt"]);
    facts.completion_tokens = attributes.count(&["llm.token_count.completion"]);
    facts.cost_usd = attributes.amount(&["llm.cost.total"]).or_else(|| {
        let prompt = attributes.amount(&["llm.cost.prompt"]);
        let completion = attributes.amount(&["llm.cost.completion"]);
        match (prompt, completion) {
            (None, None) => None,
            (prompt, completion) => Some(prompt.unwrap_or(0.0) + completion.unwrap_or(0.0)),
        }
    });
    facts.finish_reason = attributes.text(&["llm.finish_reason"]);
    if facts.kind == kind::TOOL {
        tool(attributes, facts);
    } else {
        conversation(attributes, facts);
    }
}

const MODELS: [&str; 5] = [
    "llm.response.model_name",
    "llm.model_name",
    "llm.request.model_name",
    "embedding.model_name",
    "reranker.model_name",
];

fn kind_of(written: &str) -> Option<&'static str> {
    Some(match written.to_ascii_uppercase().as_str() {
        "LLM" => kind::LLM,
        "TOOL" => kind::TOOL,
        "AGENT" => kind::AGENT,
        "CHAIN" => kind::CHAIN,
        "RETRIEVER" => kind::RETRIEVER,
        "RERANKER" => kind::RERANKER,
        "EMBEDDING" => kind::EMBEDDING,
        "GUARDRAIL" => kind::GUARDRAIL,
        "EVALUATOR" => kind::EVALUATOR,
        "PROMPT" => kind::OTHER,
        _ => return None,
    })
}

fn tool(attributes: &Attributes, facts: &mut SpanFacts) {
    if let Some(name) = attributes.text(&["tool.name", "tool_call.function.name"]) {
        facts.name = name;
    }
    let arguments = [
        "input.value",
        "tool_call.function.arguments",
        "tool.parameters",
    ];
    facts.input = attributes.first(&arguments).and_then(plain);
    facts.output = attributes.get("output.value").and_then(plain);
}

fn conversation(attributes: &Attributes, facts: &mut SpanFacts) {
    let asks_model = facts.kind == kind::LLM;
    let messages = |name| {
        let list = attributes.list(name)?;
        Some(Value::Array(list.iter().map(message).collect()))
    };
    let input = value(attributes, "input", Speaker::User);
    let input = match messages("llm.input_messages") {
        // What a model was asked is told best by messages; what an agent was asked, by its input.
        Some(list) if asks_model || input.is_none() => spoken(&list, Speaker::User),
        _ => input,
    };
    if let Some(Spoken { payload, document }) = input {
        facts.input = Some(payload);
        if asks_model {
            facts.calls.extend(document.iter().flat_map(answered));
        }
    }
    let output = value(attributes, "output", Speaker::Agent);
    let list = messages("llm.output_messages");
    let reason = |document: &Option<Value>| {
        let document = document.as_ref()?;
        let last = document.as_array().and_then(|items| items.last());
        text(last.unwrap_or(document).get("finish_reason"))
    };
    if facts.finish_reason.is_none() {
        facts.finish_reason = reason(&list).or_else(|| reason(&output.as_ref()?.document));
    }
    let output = match list {
        Some(list) if asks_model || output.is_none() => spoken(&list, Speaker::Agent),
        _ => output,
    };
    if let Some(Spoken { payload, document }) = output {
        facts.output = Some(payload);
        if asks_model {
            facts.calls.extend(document.iter().flat_map(asked));
        }
    }
    if facts.output.is_none()
        && let Some(list) = attributes.list("retrieval.documents")
    {
        let found = list
            .iter()
            .map(|item| at(item, "document").unwrap_or(item).clone());
        let found: Value = found.collect();
        facts.output = Some(Payload::document(&found, None));
    }
    if facts.input.is_none() {
        let asked = attributes.first(&["retrieval.query", "reranker.query", "embedding.text"]);
        facts.input = asked
            .and_then(|value| spoken(value, Speaker::User))
            .map(|s| s.payload);
    }
}

/// `input.value` or `output.value`: what is declared to be plain text is not read as JSON.
fn value(attributes: &Attributes, side: &str, speaker: Speaker) -> Option<Spoken> {
    let value = attributes.get(&format!("{side}.value"))?;
    let declared = attributes.text(&[&format!("{side}.mime_type")]);
    match (declared.as_deref(), value) {
        (Some("text/plain"), Value::String(text)) => Some(Spoken {
            payload: Payload::text(text.clone()),
            document: None,
        }),
        _ => spoken(value, speaker),
    }
}

/// A message as models' interfaces write it, out of `message.role`, `message.contents.0.message_content.text` and so on,
/// flat or nested.
fn message(item: &Value) -> Value {
    let member = |name: &str| at(item, &format!("message.{name}")).or_else(|| at(item, name));
    let mut message = Map::new();
    for name in ["role", "name", "tool_call_id", "finish_reason"] {
        if let Some(found) = member(name) {
            message.insert(name.to_owned(), found.clone());
        }
    }
    let contents = member("contents").and_then(Value::as_array);
    let content = match (member("content"), contents) {
        (Some(content), _) => content.clone(),
        (None, Some(parts)) => parts.iter().map(part).collect(),
        (None, None) => Value::Null,
    };
    message.insert("content".to_owned(), content);
    let calls = member("tool_calls").and_then(Value::as_array);
    let mut calls: Vec<Value> = calls.into_iter().flatten().map(call).collect();
    if let Some(name) = member("function_call_name") {
        let arguments = member("function_call_arguments_json");
        calls.push(json!({"type": "function", "function": {"name": name, "arguments": arguments}}));
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Value::Object(message)
}

fn part(item: &Value) -> Value {
    let member =
        |name: &str| at(item, &format!("message_content.{name}")).or_else(|| at(item, name));
    let mut part = Map::new();
    for name in [
        "type",
        "text",
        "id",
        "name",
        "input",
        "tool_use_id",
        "content",
    ] {
        if let Some(found) = member(name) {
            part.insert(name.to_owned(), found.clone());
        }
    }
    Value::Object(part)
}

fn call(item: &Value) -> Value {
    let member = |name: &str| at(item, &format!("tool_call.{name}")).or_else(|| at(item, name));
    let mut call = Map::new();
    if let Some(id) = member("id") {
        call.insert("id".to_owned(), id.clone());
    }
    let mut function = Map::new();
    for name in ["name", "arguments"] {
        if let Some(found) = member(&format!("function.{name}")) {
            function.insert(name.to_owned(), found.clone());
        }
    }
    call.insert("type".to_owned(), json!("function"));
    call.insert("function".to_owned(), Value::Object(function));
    Value::Object(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(attributes: Value) -> SpanFacts {
        let Value::Object(map) = attributes else {
            panic!("{attributes}")
        };
        let mut facts = SpanFacts::default();
        fill(&Attributes::new(map), None, &mut facts);
        facts
    }

    fn said(payload: Option<&Payload>) -> Option<&str> {
        payload?.said.as_deref()
    }

    #[test]
    fn a_model_call_is_read_from_attributes_by_index() {
        let facts = read(json!({
            "openinference.span.kind": "LLM", "llm.model_name": "m",
            "llm.token_count.prompt": 7.0, "llm.token_count.completion": "3",
            "llm.cost.prompt": 0.25, "llm.cost.completion": 0.25,
            "input.value": "{\"messages\": \"redacted\"}",
            "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": "Be kind.",
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.contents.0.message_content.type": "text",
            "llm.input_messages.1.message.contents.0.message_content.text": "Weather?",
            "llm.input_messages.2.message.role": "assistant",
            "llm.input_messages.2.message.tool_calls.0.tool_call.id": "c1",
            "llm.input_messages.2.message.tool_calls.0.tool_call.function.name": "weather",
            "llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments": "{}",
            "llm.input_messages.3.message.role": "tool",
            "llm.input_messages.3.message.content": "rain",
            "llm.input_messages.3.message.tool_call_id": "c1",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "It rains.",
            "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c2",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "umbrella",
            "output.value": "{\"text\": \"x\", \"finish_reason\": \"tool_calls\"}",
        }));
        assert_eq!(facts.kind, kind::LLM);
        assert_eq!(said(facts.input.as_ref()), Some("Weather?"));
        assert_eq!(said(facts.output.as_ref()), Some("It rains."));
        assert_eq!(
            (facts.prompt_tokens, facts.completion_tokens),
            (Some(7), Some(3))
        );
        assert_eq!(facts.cost_usd, Some(0.5));
        assert_eq!(facts.finish_reason.as_deref(), Some("tool_calls"));
        let calls: Vec<_> = facts
            .calls
            .iter()
            .map(|c| (c.name.as_str(), c.result.is_some()))
            .collect();
        assert_eq!(calls, [("weather", true), ("umbrella", false)]);
    }

    #[test]
    fn messages_are_read_from_lists_flat_and_nested() {
        for list in [
            json!([{"message.role": "user", "message.content": "Hi"}]),
            json!([{"message": {"role": "user", "content": "Hi"}}]),
            json!("[{\"message.role\": \"user\", \"message.content\": \"Hi\"}]"),
        ] {
            for document in [
                json!({"openinference.span.kind": "LLM", "llm.input_messages": list}),
                json!({"openinference": {"span": {"kind": "LLM"}}, "llm": {"input_messages": list}}),
            ] {
                let facts = read(document.clone());
                assert_eq!(said(facts.input.as_ref()), Some("Hi"), "{document}");
                assert_eq!(facts.kind, kind::LLM);
            }
        }
    }

    #[test]
    fn agents_are_asked_what_their_input_says_and_plain_text_stays_text() {
        let facts = read(json!({
            "openinference.span.kind": "agent",
            "input.value": "{\"question\": \"is data\"}", "input.mime_type": "text/plain",
            "output.value": "{\"answer\": \"yes\"}",
            "llm.input_messages": [{"message.role": "user", "message.content": "other"}],
        }));
        assert_eq!(facts.kind, kind::AGENT);
        assert_eq!(
            facts.input,
            Some(Payload::text("{\"question\": \"is data\"}"))
        );
        assert_eq!(said(facts.output.as_ref()), Some("yes"));
    }

    #[test]
    fn tools_and_retrievers_are_read() {
        let facts = read(json!({
            "openinference.span.kind": "TOOL", "tool.name": "f",
            "tool.parameters": "{\"a\": 1}", "output.value": "done",
        }));
        assert_eq!(facts.name, "f");
        assert_eq!(facts.input.unwrap().raw, "{\"a\": 1}");
        assert_eq!(facts.output, Some(Payload::text("done")));
        let facts = read(json!({
            "openinference.span.kind": "RETRIEVER", "input.value": "q",
            "retrieval.documents.0.document.content": "text", "retrieval.documents.0.document.score": 0.5,
        }));
        assert_eq!(
            facts.output.unwrap().raw,
            r#"[{"content":"text","score":0.5}]"#
        );
    }
}
