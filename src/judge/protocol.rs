//! Protocols that models are asked by: the request of a call, and the message in the answer.

use serde_json::Value;

use super::call::{Call, Usage};

mod anthropic;
mod gemini;
mod openai;

pub(super) use openai::chat_completion;

/// How an endpoint is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// OpenAI's chat completions, which most servers and gateways speak.
    #[default]
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
    /// Gemini's generateContent.
    Gemini,
}

/// What is said of a model in an answer, whatever the protocol.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Message {
    /// Its words; empty if it said none.
    pub text: String,
    /// The model, as the provider names it.
    pub model: Option<String>,
    /// Tokens; `None` unless question and reply were counted.
    pub usage: Option<Usage>,
    /// Why it stopped, in the provider's word.
    pub stop: Option<String>,
}

impl Protocol {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OpenAi, Self::Anthropic, Self::Gemini];

    /// `openai`, `anthropic` or `gemini`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// What it is called for readers.
    pub fn title(self) -> &'static str {
        match self {
            Self::OpenAi => "OpenAI chat completions",
            Self::Anthropic => "Anthropic messages",
            Self::Gemini => "Gemini generateContent",
        }
    }

    /// Where a model is asked, below the base URL.
    pub(super) fn path(self, model: &str) -> String {
        match self {
            Self::OpenAi => "chat/completions".to_owned(),
            Self::Anthropic => "messages".to_owned(),
            Self::Gemini => format!("models/{model}:generateContent"),
        }
    }

    /// The request that a call is, for the model that its endpoint calls `model`.
    pub(super) fn request(self, call: &Call, model: &str) -> Value {
        match self {
            Self::OpenAi => {
                let mut body = chat_completion(call, model);
                body["stream"] = Value::Bool(false);
                body
            }
            Self::Anthropic => anthropic::request(call, model),
            Self::Gemini => gemini::request(call),
        }
    }

    /// The message in an answer; `None` if it has not the form of one.
    pub(super) fn message(self, answer: &Value) -> Option<Message> {
        match self {
            Self::OpenAi => Some(openai::message(answer)),
            Self::Anthropic => anthropic::message(answer),
            Self::Gemini => gemini::message(answer),
        }
    }
}

/// A count of tokens. No call has so many as to be more than this; such a number counts nothing.
fn tokens(count: &Value) -> Option<u64> {
    count.as_u64().filter(|n| *n <= 1 << 40)
}

/// A text that is there.
fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
