//! Answers in the JSON of each dialect.

use serde_json::{Value, json};

use super::{Asked, Dialect, Finish, Reply, Usage};

/// A correct answer to `asked`.
pub(super) fn reply(dialect: Dialect, asked: &Asked, reply: &Reply) -> Value {
    let usage = reply.usage.unwrap_or_else(|| estimate(asked, &reply.text));
    let model = reply.model.as_deref().unwrap_or(&asked.model);
    match dialect {
        Dialect::OpenAi => openai(asked, reply, model, usage),
        Dialect::Anthropic => anthropic(asked, reply, model, usage),
        Dialect::Gemini => gemini(reply, model, usage),
    }
}

/// An error in OpenAI's shape.
pub(super) fn error(message: &str, code: &str) -> Value {
    json!({"error": {"message": message, "type": code, "param": null, "code": code}})
}

fn estimate(asked: &Asked, text: &str) -> Usage {
    let tokens = |chars: usize| chars.div_ceil(4) as u64;
    let turns: usize = asked.turns.iter().map(|(_, t)| t.chars().count()).sum();
    Usage {
        prompt: tokens(asked.system.chars().count() + turns),
        completion: tokens(text.chars().count()),
        cached: 0,
    }
}

fn openai(asked: &Asked, reply: &Reply, model: &str, usage: Usage) -> Value {
    json!({
        "id": format!("chatcmpl-{}", asked.number),
        "object": "chat.completion",
        "created": 1_767_225_600,
        "model": model,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": reply.text, "refusal": null},
            "logprobs": null,
            "finish_reason": match reply.finish {
                Finish::Stop => "stop",
                Finish::Length => "length",
                Finish::ContentFilter => "content_filter",
            },
        }],
        "usage": {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.prompt + usage.completion,
            "prompt_tokens_details": {"cached_tokens": usage.cached},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "system_fingerprint": null,
    })
}

fn anthropic(asked: &Asked, reply: &Reply, model: &str, usage: Usage) -> Value {
    let called = asked
        .tool
        .as_ref()
        .zip(serde_json::from_str::<Value>(&reply.text).ok());
    let (content, stop) = match called {
        Some((tool, input)) => {
            let id = format!("toolu_{}", asked.number);
            let call = json!({"type": "tool_use", "id": id, "name": tool, "input": input});
            (call, "tool_use")
        }
        None => (json!({"type": "text", "text": reply.text}), "end_turn"),
    };
    let content = match says_nothing(reply) {
        true => json!([]),
        false => json!([content]),
    };
    json!({
        "id": format!("msg_{}", asked.number),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": match reply.finish {
            Finish::Stop => stop,
            Finish::Length => "max_tokens",
            Finish::ContentFilter => "refusal",
        },
        "stop_sequence": null,
        // Anthropic counts cached tokens apart from the others.
        "usage": {
            "input_tokens": usage.prompt.saturating_sub(usage.cached),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached,
            "output_tokens": usage.completion,
        },
    })
}

fn gemini(reply: &Reply, model: &str, usage: Usage) -> Value {
    let mut answer = json!({
        "candidates": [{
            "content": {"role": "model", "parts": [{"text": reply.text}]},
            "finishReason": match reply.finish {
                Finish::Stop => "STOP",
                Finish::Length => "MAX_TOKENS",
                Finish::ContentFilter => "SAFETY",
            },
            "index": 0,
        }],
        "usageMetadata": {
            "promptTokenCount": usage.prompt,
            "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": usage.completion,
            "totalTokenCount": usage.prompt + usage.completion,
        },
        "modelVersion": model,
    });
    if says_nothing(reply)
        && let Some(candidate) = answer["candidates"][0].as_object_mut()
    {
        candidate.remove("content");
    }
    answer
}

/// A reply that was stopped before its first word: Anthropic and Gemini send no content then.
fn says_nothing(reply: &Reply) -> bool {
    reply.finish == Finish::ContentFilter && reply.text.is_empty()
}
