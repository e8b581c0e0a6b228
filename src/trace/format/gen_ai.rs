//! Attributes and events of OpenTelemetry's conventions for generative AI, now and before: `gen_ai.input.messages`,
//! `gen_ai.prompt.0.content` (OpenLLMetry), `gen_ai.user.message` events, and what Traceloop, Google's ADK and any-agent
//! write beside them.

use serde_json::{Map, Value, json};

use super::otel_span::{Attributes, Event, Spoken, spoken};
use super::said::{self, Speaker};
use super::tool_calls::{answered, asked, plain};
use super::values::{nested, object, text};
use super::{Payload, SpanFacts, kind};

/// Fills what the attributes and events tell and the span doesn't have yet.
pub(super) fn fill(attributes: &Attributes, events: &[Event], facts: &mut SpanFacts) {
    let details = details(events);
    if facts.kind.is_empty() {
        facts.kind = kind_of(attributes, events, &facts.name).to_owned();
    }
    if facts.kind == kind::TOOL {
        tool(attributes, facts);
        return;
    }
    if facts.model.is_none() {
        let names = ["gen_ai.response.model", "gen_ai.request.model"];
        facts.model = attributes.text(&names);
    }
    if facts.prompt_tokens.is_none() {
        facts.prompt_tokens = attributes.count(&[
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.prompt_tokens",
            "llm.usage.prompt_tokens",
        ]);
    }
    if facts.completion_tokens.is_none() {
        facts.completion_tokens = attributes.count(&[
            "gen_ai.usage.output_tokens",
            "gen_ai.usage.completion_tokens",
            "llm.usage.completion_tokens",
        ]);
    }
    if facts.cost_usd.is_none() {
        facts.cost_usd = cost(attributes);
    }
    let asks_model = facts.kind == kind::LLM;
    if facts.input.is_none()
        && let Some(found) = input(attributes, details.as_ref(), events)
    {
        facts.input = Some(found.payload);
        if asks_model {
            facts.calls.extend(found.document.iter().flat_map(answered));
        }
    }
    if facts.finish_reason.is_none() {
        facts.finish_reason = listed(attributes.get("gen_ai.response.finish_reasons"));
    }
    if facts.output.is_none()
        && let Some(found) = output(attributes, details.as_ref(), events)
    {
        facts.output = Some(found.payload);
        if facts.finish_reason.is_none() {
            facts.finish_reason = found.document.as_ref().and_then(finish_reason);
        }
        if asks_model {
            facts.calls.extend(found.document.iter().flat_map(asked));
        }
    }
}

fn kind_of(attributes: &Attributes, events: &[Event], name: &str) -> &'static str {
    let operation = attributes
        .text(&["gen_ai.operation.name"])
        .unwrap_or_default();
    match operation.as_str() {
        "chat" | "text_completion" | "generate_content" | "call_llm" | "completion" => {
            return kind::LLM;
        }
        "embeddings" | "embedding" => return kind::EMBEDDING,
        "execute_tool" => return kind::TOOL,
        "invoke_agent" | "create_agent" | "invoke_workflow" | "invoke_swarm" => return kind::AGENT,
        "retrieval" | "retrieve" => return kind::RETRIEVER,
        _ => {}
    }
    match attributes.text(&["llm.request.type"]).as_deref() {
        Some("chat" | "completion") => return kind::LLM,
        Some("embedding") => return kind::EMBEDDING,
        Some("rerank") => return kind::RERANKER,
        _ => {}
    }
    match attributes.text(&["traceloop.span.kind"]).as_deref() {
        Some("tool") => return kind::TOOL,
        Some("agent") => return kind::AGENT,
        Some("workflow" | "task") => return kind::CHAIN,
        _ => {}
    }
    let tool = ["gen_ai.tool.name", "gcp.vertex.agent.tool_call_args"];
    if name.starts_with("execute_tool ") || attributes.first(&tool).is_some() {
        return kind::TOOL;
    }
    if name.starts_with("agent_run ") || name.starts_with("invoke_agent ") {
        return kind::AGENT;
    }
    let of_model = [
        "gcp.vertex.agent.llm_request",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "gen_ai.prompt",
        "gen_ai.prompt.0.role",
        "gen_ai.prompt.0.content",
        "gen_ai.completion",
        "gen_ai.completion.0.role",
        "gen_ai.completion.0.content",
        "gen_ai.response.id",
    ];
    let choice = |event: &Event| event.name == "gen_ai.choice";
    if attributes.first(&of_model).is_some() || events.iter().any(choice) {
        return kind::LLM;
    }
    ""
}

/// The first of a list, also of one in text (`["stop"]`).
fn listed(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::Array(items) => text(items.first()),
        Value::String(text) => match nested(text) {
            Some(Value::Array(items)) => listed(Some(&Value::Array(items))),
            _ => Some(text.clone()),
        },
        _ => None,
    }
}

fn finish_reason(document: &Value) -> Option<String> {
    let last = document.as_array().and_then(|items| items.last());
    let message = last.unwrap_or(document);
    text(message.get("finish_reason")).or_else(|| text(message.get("finishReason")))
}

fn cost(attributes: &Attributes) -> Option<f64> {
    let total = attributes.amount(&["gen_ai.usage.cost", "gen_ai.usage.total_cost"]);
    total.or_else(|| {
        let input = attributes.amount(&["gen_ai.usage.input_cost"]);
        let output = attributes.amount(&["gen_ai.usage.output_cost"]);
        match (input, output) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0.0) + output.unwrap_or(0.0)),
        }
    })
}

/// The attributes of the event that carries messages instead of the span.
fn details(events: &[Event]) -> Option<Attributes> {
    let event = events
        .iter()
        .find(|event| event.name == "gen_ai.client.inference.operation.details")?;
    Some(Attributes::new(event.attributes.clone()))
}

fn input(a: &Attributes, details: Option<&Attributes>, events: &[Event]) -> Option<Spoken> {
    let told = |value: &Value| spoken(value, Speaker::User);
    let now = ["gen_ai.input.messages"];
    a.first(&now)
        .or_else(|| details?.first(&now))
        .and_then(told)
        .or_else(|| told(&indexed(a, "gen_ai.prompt")?))
        .or_else(|| a.get("gen_ai.prompt").and_then(told))
        .or_else(|| told(&said_in_events(events, &Side::Input)?))
        .or_else(|| {
            // Google's ADK: the request as a whole is mostly instructions and tools.
            let request = object(a.get("gcp.vertex.agent.llm_request"))?;
            told(request.get("contents")?)
        })
        .or_else(|| entity(a.get("traceloop.entity.input")?, "inputs", Speaker::User))
        .or_else(|| {
            a.first(&["gen_ai.input", "input.value", "input"])
                .and_then(told)
        })
}

fn output(a: &Attributes, details: Option<&Attributes>, events: &[Event]) -> Option<Spoken> {
    let told = |value: &Value| spoken(value, Speaker::Agent);
    let now = ["gen_ai.output.messages"];
    a.first(&now)
        .or_else(|| details?.first(&now))
        .and_then(told)
        .or_else(|| told(&indexed(a, "gen_ai.completion")?))
        .or_else(|| a.get("gen_ai.completion").and_then(told))
        .or_else(|| told(&said_in_events(events, &Side::Output)?))
        .or_else(|| {
            let response = object(a.get("gcp.vertex.agent.llm_response"))?;
            told(response.get("content")?)
        })
        .or_else(|| entity(a.get("traceloop.entity.output")?, "outputs", Speaker::Agent))
        .or_else(|| {
            a.first(&["gen_ai.output", "output.value", "output"])
                .and_then(told)
        })
}

/// Messages by index, as OpenLLMetry writes them; a content of several parts is JSON text there.
fn indexed(attributes: &Attributes, prefix: &str) -> Option<Value> {
    if attributes
        .get(prefix)
        .is_some_and(|whole| !whole.is_object())
    {
        return None;
    }
    let mut messages = attributes.list(prefix)?;
    for message in &mut messages {
        if let Some(content) = message.get_mut("content")
            && let Some(Value::Array(parts)) = content.as_str().and_then(nested)
            && parts.iter().all(|part| part.get("type").is_some())
        {
            *content = Value::Array(parts);
        }
    }
    Some(Value::Array(messages))
}

/// What Traceloop says about a workflow, a task or a tool: the inputs (outputs) within, where it has them apart.
fn entity(value: &Value, member: &str, speaker: Speaker) -> Option<Spoken> {
    let mut found = spoken(value, speaker)?;
    let Some(document) = &found.document else {
        return Some(found);
    };
    let full = |name: &str| {
        let inner = document.get(name)?;
        let empty = match inner {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(members) => members.is_empty(),
            _ => false,
        };
        (!empty).then_some(inner)
    };
    if let Some(inner) = full(member)
        .or_else(|| full("args"))
        .or_else(|| full("kwargs"))
    {
        found.payload.said = said::said(inner, speaker);
    }
    Some(found)
}

enum Side {
    Input,
    Output,
}

/// Messages in the events of a span: one event a message, or one event for all.
fn said_in_events(events: &[Event], side: &Side) -> Option<Value> {
    let mut messages = Vec::new();
    for event in events {
        let body = object(event.attributes.get("gen_ai.event.content"));
        let member = |name: &str| {
            let found = body.as_ref().and_then(|body| body.get(name));
            found.or_else(|| event.attributes.get(name)).cloned()
        };
        match (event.name.as_str(), side) {
            ("gen_ai.content.prompt", Side::Input) => return member("gen_ai.prompt"),
            ("gen_ai.content.completion", Side::Output) => return member("gen_ai.completion"),
            ("gen_ai.choice", Side::Output) => {
                let mut message = match member("message") {
                    Some(found) => match object(Some(&found)) {
                        Some(message) => message,
                        None => Map::from_iter([("content".to_owned(), found)]),
                    },
                    None => Map::new(),
                };
                message.entry("role").or_insert_with(|| json!("assistant"));
                for name in ["content", "tool_calls", "finish_reason"] {
                    if let Some(found) = member(name) {
                        message.entry(name).or_insert_with(|| unwrapped_list(found));
                    }
                }
                messages.push(Value::Object(message));
            }
            (name, Side::Input) => {
                let role = match name {
                    "gen_ai.system.message" => "system",
                    "gen_ai.user.message" => "user",
                    "gen_ai.assistant.message" => "assistant",
                    "gen_ai.tool.message" => "tool",
                    _ => continue,
                };
                let mut message = Map::from_iter([("role".to_owned(), json!(role))]);
                for (name, as_name) in [
                    ("content", "content"),
                    ("tool_calls", "tool_calls"),
                    ("name", "name"),
                    ("id", "tool_call_id"),
                ] {
                    if let Some(found) = member(name) {
                        message.insert(as_name.to_owned(), unwrapped_list(found));
                    }
                }
                messages.push(Value::Object(message));
            }
            _ => {}
        }
    }
    (!messages.is_empty()).then_some(Value::Array(messages))
}

/// A list that came as text.
fn unwrapped_list(value: Value) -> Value {
    match value.as_str().and_then(nested) {
        Some(list @ Value::Array(_)) => list,
        _ => value,
    }
}

fn tool(attributes: &Attributes, facts: &mut SpanFacts) {
    let names = ["gen_ai.tool.name", "traceloop.entity.name"];
    if let Some(name) = attributes.text(&names) {
        facts.name = name;
    } else if let Some(name) = facts.name.strip_prefix("execute_tool ") {
        facts.name = name.to_owned();
    }
    if facts.input.is_none() {
        let names = [
            "gen_ai.tool.call.arguments",
            "gen_ai.tool.args",
            "gcp.vertex.agent.tool_call_args",
            "traceloop.entity.input",
            "input.value",
            "input",
        ];
        facts.input = attributes.first(&names).and_then(plain);
    }
    let names = [
        "gen_ai.tool.call.result",
        "gcp.vertex.agent.tool_response",
        "gen_ai.output",
        "traceloop.entity.output",
        "output.value",
        "output",
    ];
    if facts.output.is_none()
        && let Some(Spoken { payload, document }) = attributes
            .first(&names)
            .and_then(|value| spoken(value, Speaker::Agent))
    {
        // The Model Context Protocol's results say so if they are errors.
        if document.is_some_and(|found| found.get("isError") == Some(&Value::Bool(true))) {
            let words = payload.said.clone().filter(|words| !words.is_empty());
            facts.error = Some(words.unwrap_or_else(|| payload.raw.clone()));
        }
        facts.output = Some(Payload {
            said: None,
            ..payload
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_with(attributes: Value, events: &[Event]) -> SpanFacts {
        let Value::Object(map) = attributes else {
            panic!("{attributes}")
        };
        let mut facts = SpanFacts::default();
        fill(&Attributes::new(map), events, &mut facts);
        facts
    }

    fn read(attributes: Value) -> SpanFacts {
        read_with(attributes, &[])
    }

    fn words(facts: &SpanFacts) -> [String; 2] {
        [&facts.input, &facts.output].map(|payload| match payload {
            Some(Payload {
                said: Some(said), ..
            }) => said.clone(),
            Some(Payload {
                raw, json: false, ..
            }) => raw.clone(),
            _ => String::new(),
        })
    }

    #[test]
    fn messages_are_read_now_and_before() {
        for document in [
            json!({
                "gen_ai.operation.name": "chat",
                "gen_ai.input.messages": "[{\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"content\":\"Q\"}]}]",
                "gen_ai.output.messages": "[{\"role\":\"assistant\",\"parts\":[{\"type\":\"text\",\"content\":\"A\"}],\"finish_reason\":\"stop\"}]",
            }),
            json!({
                "llm.request.type": "chat",
                "gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "S",
                "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "[{\"type\":\"text\",\"text\":\"Q\"}]",
                "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "A",
                "gen_ai.completion.0.finish_reason": "stop",
            }),
            json!({
                "gen_ai.prompt": "Q", "gen_ai.completion": "A",
                "gen_ai.response.finish_reasons": "[\"stop\"]",
            }),
            json!({
                "gcp.vertex.agent.llm_request": "{\"config\":{\"x\":1},\"contents\":[{\"parts\":[{\"text\":\"Q\"}],\"role\":\"user\"}]}",
                "gcp.vertex.agent.llm_response": "{\"content\":{\"parts\":[{\"text\":\"A\"}],\"role\":\"model\"}}",
                "gen_ai.response.finish_reasons": ["stop"],
            }),
        ] {
            let facts = read(document.clone());
            assert_eq!(facts.kind, kind::LLM, "{document}");
            assert_eq!(words(&facts), ["Q", "A"], "{document}");
            assert_eq!(facts.finish_reason.as_deref(), Some("stop"), "{document}");
        }
    }

    #[test]
    fn messages_in_events_are_read() {
        let event = |name: &str, attributes: Value| Event {
            name: name.to_owned(),
            attributes: attributes.as_object().unwrap().clone(),
        };
        for events in [
            vec![
                event("gen_ai.system.message", json!({"content": "S"})),
                event("gen_ai.user.message", json!({"content": "Q"})),
                event(
                    "gen_ai.choice",
                    json!({"message": "{\"content\":\"A\"}", "finish_reason": "stop"}),
                ),
            ],
            vec![
                event(
                    "gen_ai.user.message",
                    json!({"gen_ai.event.content": "{\"content\":\"Q\",\"role\":\"user\"}"}),
                ),
                event(
                    "gen_ai.choice",
                    json!({"gen_ai.event.content": "{\"message\":{\"content\":\"A\"},\"finish_reason\":\"stop\"}"}),
                ),
            ],
            vec![
                event(
                    "gen_ai.content.prompt",
                    json!({"gen_ai.prompt": "[{\"role\":\"user\",\"content\":\"Q\"}]"}),
                ),
                event(
                    "gen_ai.content.completion",
                    json!({"gen_ai.completion": "[{\"role\":\"assistant\",\"content\":\"A\",\"finish_reason\":\"stop\"}]"}),
                ),
            ],
            vec![event(
                "gen_ai.client.inference.operation.details",
                json!({
                    "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "Q"}]}],
                    "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "A"}], "finish_reason": "stop"}],
                }),
            )],
        ] {
            let facts = read_with(json!({"gen_ai.operation.name": "chat"}), &events);
            assert_eq!(words(&facts), ["Q", "A"], "{events:?}");
            assert_eq!(facts.finish_reason.as_deref(), Some("stop"), "{events:?}");
        }
    }

    #[test]
    fn tools_are_read_and_their_errors_found() {
        let facts = read(json!({
            "gen_ai.tool.name": "f", "gcp.vertex.agent.llm_request": "{}",
            "gcp.vertex.agent.tool_call_args": "{\"a\":1}",
            "gcp.vertex.agent.tool_response": "{\"content\":[{\"type\":\"text\",\"text\":\"no\"}],\"isError\":true}",
        }));
        assert_eq!(
            (facts.kind.as_str(), facts.name.as_str()),
            (kind::TOOL, "f")
        );
        assert_eq!(facts.input.unwrap().raw, "{\"a\":1}");
        assert_eq!(facts.error.as_deref(), Some("no"));
    }

    #[test]
    fn calls_and_costs_are_read() {
        let facts = read(json!({
            "gen_ai.operation.name": "call_llm", "gen_ai.request.model": "m",
            "gen_ai.usage.input_cost": 0.25, "gen_ai.usage.output_cost": 0.5,
            "gen_ai.usage.prompt_tokens": "12",
            "gen_ai.output": "[{\"tool.name\":\"f\",\"tool.args\":{\"a\":1}}]",
        }));
        assert_eq!(facts.cost_usd, Some(0.75));
        assert_eq!(facts.prompt_tokens, Some(12));
        assert_eq!(facts.calls.len(), 1);
        assert_eq!(words(&facts)[1], "");
    }

    #[test]
    fn workflows_of_traceloop_are_read() {
        let facts = read(json!({
            "traceloop.span.kind": "workflow",
            "traceloop.entity.input": "{\"inputs\":{\"question\":\"Q\"},\"kwargs\":{\"name\":\"x\"}}",
            "traceloop.entity.output": "{\"outputs\":\"A\",\"kwargs\":{\"tags\":[]}}",
        }));
        assert_eq!(facts.kind, kind::CHAIN);
        assert_eq!(words(&facts), ["Q", "A"]);
        let facts = read(json!({
            "traceloop.span.kind": "task",
            "traceloop.entity.input": "{\"args\":[],\"kwargs\":{\"question\":\"Q\"}}",
        }));
        assert_eq!(words(&facts)[0], "Q");
    }
}
