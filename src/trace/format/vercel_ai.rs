//! Attributes of Vercel's AI SDK (`ai.*`).

use super::otel_span::{Attributes, spoken};
use super::said::Speaker;
use super::tool_calls::{answered, asked, plain};
use super::{SpanFacts, kind};

/// Fills what the attributes tell and the span doesn't have yet.
pub(super) fn fill(attributes: &Attributes, facts: &mut SpanFacts) {
    let operation = attributes.text(&["ai.operationId"]).unwrap_or_default();
    if facts.kind.is_empty() {
        facts.kind = kind_of(&operation).to_owned();
    }
    if facts.kind == kind::TOOL {
        if let Some(name) = attributes.text(&["ai.toolCall.name"]) {
            facts.name = name;
        }
        let input = attributes.first(&["ai.toolCall.args", "ai.toolCall.input"]);
        let output = attributes.first(&["ai.toolCall.result", "ai.toolCall.output"]);
        facts.input = facts.input.take().or_else(|| input.and_then(plain));
        facts.output = facts.output.take().or_else(|| output.and_then(plain));
        return;
    }
    if facts.model.is_none() {
        facts.model = attributes.text(&["ai.response.model", "ai.model.id"]);
    }
    if facts.prompt_tokens.is_none() {
        let names = [
            "ai.usage.inputTokens",
            "ai.usage.promptTokens",
            "ai.usage.tokens",
        ];
        facts.prompt_tokens = attributes.count(&names);
    }
    if facts.completion_tokens.is_none() {
        let names = ["ai.usage.outputTokens", "ai.usage.completionTokens"];
        facts.completion_tokens = attributes.count(&names);
    }
    if facts.finish_reason.is_none() {
        facts.finish_reason = attributes.text(&["ai.response.finishReason", "ai.finishReason"]);
    }
    let asks_model = facts.kind == kind::LLM;
    if facts.input.is_none() {
        let prompt = attributes.first(&["ai.prompt.messages", "ai.prompt", "ai.value"]);
        let values = || attributes.list("ai.values").map(serde_json::Value::Array);
        let found = match prompt {
            Some(prompt) => spoken(prompt, Speaker::User),
            None => values().and_then(|list| spoken(&list, Speaker::User)),
        };
        if let Some(found) = found {
            facts.input = Some(found.payload);
            if asks_model {
                facts.calls.extend(found.document.iter().flat_map(answered));
            }
        }
    }
    let calls = attributes.first(&["ai.response.toolCalls", "ai.result.toolCalls"]);
    let calls = calls.and_then(|calls| spoken(calls, Speaker::Agent));
    if facts.output.is_none() {
        let names = [
            "ai.response.text",
            "ai.response.object",
            "ai.result.text",
            "ai.result.object",
        ];
        let words = attributes
            .first(&names)
            .and_then(|words| spoken(words, Speaker::Agent));
        facts.output = match (words, &calls) {
            (Some(words), _) => Some(words.payload),
            (None, Some(calls)) => plain(&calls.payload.raw.clone().into()),
            (None, None) => None,
        };
    }
    if asks_model && let Some(calls) = calls {
        facts.calls.extend(calls.document.iter().flat_map(asked));
    }
}

fn kind_of(operation: &str) -> &'static str {
    match operation {
        "ai.toolCall" => kind::TOOL,
        o if o.starts_with("ai.embed") => kind::EMBEDDING,
        o if o.ends_with(".doGenerate") || o.ends_with(".doStream") => kind::LLM,
        // The whole of a generation, in which models and tools are called.
        o if o.starts_with("ai.generate") || o.starts_with("ai.stream") => kind::AGENT,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::super::Payload;
    use super::*;
    use serde_json::{Value, json};

    fn read(attributes: Value) -> SpanFacts {
        let Value::Object(map) = attributes else {
            panic!("{attributes}")
        };
        let mut facts = SpanFacts::default();
        fill(&Attributes::new(map), &mut facts);
        facts
    }

    #[test]
    fn generations_and_tools_are_read() {
        let facts = read(json!({
            "ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m",
            "ai.prompt.messages": "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Two?\"}]}]",
            "ai.response.toolCalls": "[{\"toolCallId\":\"c\",\"toolName\":\"f\",\"input\":{}}]",
            "ai.response.finishReason": "tool-calls", "ai.usage.inputTokens": 5,
        }));
        assert_eq!(facts.kind, kind::LLM);
        assert_eq!(facts.input.unwrap().said.as_deref(), Some("Two?"));
        assert_eq!(facts.output.unwrap().said, None);
        assert_eq!(facts.calls[0].name, "f");
        assert_eq!(facts.finish_reason.as_deref(), Some("tool-calls"));
        assert_eq!(facts.prompt_tokens, Some(5));

        let facts = read(json!({
            "ai.operationId": "ai.streamText", "ai.prompt": "{\"system\":\"s\",\"prompt\":\"Two?\"}",
            "ai.response.text": "2",
        }));
        assert_eq!(facts.kind, kind::AGENT);
        assert_eq!(facts.input.unwrap().said.as_deref(), Some("Two?"));
        assert_eq!(facts.output, Some(Payload::text("2")));

        let facts = read(json!({
            "ai.operationId": "ai.toolCall", "ai.toolCall.name": "f", "ai.toolCall.id": "c",
            "ai.toolCall.args": "{\"a\":1}", "ai.toolCall.result": "\"ok\"",
        }));
        assert_eq!(
            (facts.kind.as_str(), facts.name.as_str()),
            (kind::TOOL, "f")
        );
        assert_eq!(facts.input.unwrap().raw, "{\"a\":1}");
    }
}
