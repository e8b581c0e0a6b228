//! One question to a judge model and what can come back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

/// A question: everything that decides its answer.
#[derive(Clone, Debug)]
pub struct Call {
    /// Provider and model, as in `openai/gpt-4o`.
    pub model: String,
    /// Casts the model as a judge; the same for many calls.
    pub system: Arc<str>,
    /// The stage's prompt with its evidence.
    pub user: String,
    /// The reply's shape for providers that can hold a model to one; `None` asks in plain words.
    pub format: Option<ReplyFormat>,
    /// Randomness of the model, from 0; `None` is the model's own.
    pub temperature: Option<f64>,
    /// Most tokens of the reply.
    pub max_output_tokens: u32,
    /// The prompt's name and version.
    pub prompt: PromptLabel,
    /// Tells apart calls that are equal otherwise and must not share an answer: a repeated attempt, or a metric that
    /// shares no stages. Empty for all others.
    pub apart: String,
    /// What the request says beside model and messages, where a file of the user says all of it; only OpenAI's protocol
    /// has it. Temperature, largest reply and form are then what this says of them.
    pub body: Option<Arc<serde_json::Map<String, Value>>>,
}

/// Which text of ours a call was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptLabel {
    /// The prompt's name.
    pub name: &'static str,
    /// Counts up when its text changes.
    pub version: u32,
}

/// A JSON schema with a name, as providers want it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyFormat {
    /// Letters, digits and underscores.
    pub name: &'static str,
    /// A JSON schema.
    pub schema: Arc<Value>,
}

/// Identifies a call: equal calls to one endpoint have equal hashes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallHash(String);

impl CallHash {
    /// A hash that was written down.
    pub(super) fn of_text(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// 32 hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Call {
    /// The hash of everything that decides the answer; `endpoint` is where the model is asked.
    pub fn hash(&self, endpoint: &str) -> CallHash {
        let mut hasher = blake3::Hasher::new();
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        part(endpoint.as_bytes());
        part(self.model.as_bytes());
        part(self.system.as_bytes());
        part(self.user.as_bytes());
        match &self.format {
            None => part(b""),
            Some(format) => {
                part(format.name.as_bytes());
                part(format.schema.to_string().as_bytes());
            }
        }
        match self.temperature {
            None => part(b""),
            Some(temperature) => part(&temperature.to_le_bytes()),
        }
        part(&self.max_output_tokens.to_le_bytes());
        part(self.prompt.name.as_bytes());
        part(&self.prompt.version.to_le_bytes());
        part(self.apart.as_bytes());
        if let Some(body) = &self.body {
            part(Value::Object((**body).clone()).to_string().as_bytes());
        }
        CallHash(hasher.finalize().to_hex()[..32].to_owned())
    }

    /// Tokens of the question that no tokenizer exceeds: one for each byte, and some for the envelope.
    pub fn most_prompt_tokens(&self) -> u64 {
        let schema = self
            .format
            .as_ref()
            .map_or(0, |f| f.schema.to_string().len());
        (self.system.len() + self.user.len() + schema) as u64 + ENVELOPE_TOKENS
    }

    /// Tokens of the question as its characters suggest, envelope and all. What providers count is near a multiple of this
    /// that depends on the model alone, whatever the language and however much of it is numbers.
    pub fn likely_prompt_tokens(&self) -> f64 {
        let schema = self.format.as_ref().map(|f| f.schema.to_string());
        let texts = [
            &*self.system,
            &self.user,
            schema.as_deref().unwrap_or_default(),
        ];
        let tokens: f64 = texts.into_iter().map(likely_tokens).sum();
        tokens + ENVELOPE_TOKENS as f64
    }

    /// Tokens of the question as they usually are: a token for four bytes.
    pub fn usual_prompt_tokens(&self) -> u64 {
        usual_tokens(self.system.len() + self.user.len()) + ENVELOPE_TOKENS
    }
}

/// Tokens that roles and separators take, at most.
const ENVELOPE_TOKENS: u64 = 32;

/// A token for four letters or spaces, for two digits or signs, and for each character of other scripts.
fn likely_tokens(text: &str) -> f64 {
    let quarters: u64 = text
        .bytes()
        .map(|byte| match byte {
            b' ' | b'\n' | b'a'..=b'z' | b'A'..=b'Z' => 1,
            0..=0x7f => 2,
            // Further bytes of a character that is counted by its first.
            0x80..=0xbf => 0,
            _ => 4,
        })
        .sum();
    quarters as f64 / 4.0
}

/// Tokens of a text of so many bytes, as they usually are.
pub fn usual_tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

/// Tokens as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the question.
    pub prompt: u64,
    /// Tokens of the reply.
    pub completion: u64,
    /// Tokens of the question that came out of the provider's cache; a part of `prompt`.
    pub cached: u64,
}

impl Usage {
    /// Question and reply.
    pub fn total(self) -> u64 {
        self.prompt + self.completion
    }
}

/// What a judge model said.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Its text, unread.
    pub text: String,
    /// The model that the provider names.
    pub model: String,
    /// Tokens; `None` if the provider did not count.
    pub usage: Option<Usage>,
    /// The reply reached its largest size and ends somewhere.
    pub cut_off: bool,
}

/// Why a call got no reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct CallError {
    /// What to do about it.
    pub kind: CallErrorKind,
    /// What the provider or the network said, without secrets.
    pub message: String,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// Tokens that the provider counted although there is no reply.
    pub usage: Option<Usage>,
}

/// Kinds of failed calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallErrorKind {
    /// 429.
    RateLimited,
    /// 5xx.
    ServerError,
    /// No answer in time.
    Timeout,
    /// There is no connection to the endpoint: the question was never sent.
    NoConnection,
    /// The connection broke.
    Connection,
    /// An answer that is none: no JSON, no message.
    Garbled,
    /// The endpoint does not know the reply format.
    FormatRejected,
    /// The question is longer than the model can read.
    TooLong,
    /// 401: the key is missing or wrong.
    Denied,
    /// 403: the key is not one for this.
    Forbidden,
    /// 404: the endpoint does not know the model, or nothing is there.
    NotFound,
    /// The answer is longer than any reply.
    TooLarge,
    /// The model refuses to reply, or a filter of the provider holds its reply or the question back.
    Blocked,
    /// Any other answer below 500.
    Refused,
}

impl CallErrorKind {
    /// Whether the same call may succeed later.
    pub fn passes(self) -> bool {
        use CallErrorKind::*;
        matches!(
            self,
            RateLimited | ServerError | Timeout | NoConnection | Connection | Garbled
        )
    }

    /// The kind of a name in tables.
    pub fn named(code: &str) -> Option<Self> {
        use CallErrorKind::*;
        [
            RateLimited,
            ServerError,
            Timeout,
            NoConnection,
            Connection,
            Garbled,
            FormatRejected,
            TooLong,
            Denied,
            Forbidden,
            NotFound,
            TooLarge,
            Blocked,
            Refused,
        ]
        .into_iter()
        .find(|kind| kind.code() == code)
    }

    /// Its name in tables.
    pub fn code(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::ServerError => "server_error",
            Self::Timeout => "timeout",
            Self::NoConnection => "no_connection",
            Self::Connection => "connection",
            Self::Garbled => "garbled_answer",
            Self::FormatRejected => "format_rejected",
            Self::TooLong => "context_overflow",
            Self::Denied => "access_denied",
            Self::Forbidden => "access_forbidden",
            Self::NotFound => "not_found",
            Self::TooLarge => "answer_too_large",
            Self::Blocked => "blocked",
            Self::Refused => "refused",
        }
    }
}

impl fmt::Display for CallErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// Something that answers calls: a provider, or a stand-in in tests.
#[async_trait]
pub trait Judge: Send + Sync {
    /// Asks once. No retries in here: budgets and limits must see every call.
    async fn ask(&self, call: &Call) -> Result<Reply, CallError>;

    /// Where it is asked; a part of what decides an answer.
    fn endpoint(&self, model: &str) -> String;
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::judge) fn call(user: &str) -> Call {
        Call {
            model: "openai/test".into(),
            system: "You judge.".into(),
            user: user.into(),
            format: None,
            temperature: Some(1.0),
            max_output_tokens: 100,
            prompt: PromptLabel {
                name: "test",
                version: 1,
            },
            apart: String::new(),
            body: None,
        }
    }

    #[test]
    fn everything_that_decides_an_answer_is_in_the_hash() {
        let format = |name| {
            Some(ReplyFormat {
                name,
                schema: Arc::new(serde_json::json!({"type": "object"})),
            })
        };
        let base = call("a");
        let others = [
            Call {
                model: "openai/other".into(),
                ..base.clone()
            },
            Call {
                system: "You judgea".into(),
                user: String::new(),
                ..base.clone()
            },
            Call {
                user: "b".into(),
                ..base.clone()
            },
            Call {
                format: format("x"),
                ..base.clone()
            },
            Call {
                format: format("y"),
                ..base.clone()
            },
            Call {
                temperature: Some(0.0),
                ..base.clone()
            },
            Call {
                max_output_tokens: 101,
                ..base.clone()
            },
            Call {
                prompt: PromptLabel {
                    name: "test",
                    version: 2,
                },
                ..base.clone()
            },
            Call {
                apart: "2".into(),
                ..base.clone()
            },
            Call {
                body: Some(Arc::default()),
                ..base.clone()
            },
        ];
        let mut hashes: Vec<CallHash> = others.iter().map(|c| c.hash("here")).collect();
        hashes.push(base.hash("here"));
        hashes.push(base.hash("there"));
        assert_eq!(base.hash("here"), base.clone().hash("here"));
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), others.len() + 2);
    }
}
