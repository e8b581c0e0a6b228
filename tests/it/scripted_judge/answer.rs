//! What a script can answer.

use std::time::Duration;

/// One answer of a script.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::enum_variant_names,
    reason = "the two ends before an answer differ in kind"
)]
pub enum Answer {
    /// A correct answer in the shape of the endpoint that was asked.
    Reply(Reply),
    /// The same after a delay.
    ReplyLater(Duration, Reply),
    /// Any status with headers and body as given; `content-type` is JSON unless given.
    Status(u16, Vec<(String, String)>, String),
    /// Status 200 and a JSON content type with these bytes.
    Garbage(Vec<u8>),
    /// A correct answer that ended at the token limit.
    Truncated(String),
    /// The connection is reset before a byte of the answer.
    CloseBeforeAnswer,
    /// The connection is ended in good order before a byte of the answer.
    EndBeforeAnswer,
    /// The connection is ended when half of the body is written.
    CloseMidBody,
    /// No answer until the client gives up or the judge is dropped.
    Hang,
    /// The head at once, and then a body that goes on until the client ends the connection: chunks of this text.
    Endless(String),
    /// The head at once, then each byte of the body after a pause.
    SlowBytes(Duration, Reply),
}

impl Answer {
    /// A correct answer.
    pub fn reply(reply: impl Into<Reply>) -> Self {
        Self::Reply(reply.into())
    }

    /// A correct answer after a delay.
    pub fn later(delay: Duration, reply: impl Into<Reply>) -> Self {
        Self::ReplyLater(delay, reply.into())
    }

    /// A status with headers, and an error body in OpenAI's shape that holds `message`.
    pub fn status(status: u16, headers: &[(&str, &str)], message: &str) -> Self {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let code = match status {
            429 => "rate_limit_exceeded",
            500.. => "server_error",
            _ => "invalid_request_error",
        };
        Self::Status(
            status,
            headers,
            super::shape::error(message, code).to_string(),
        )
    }
}

/// The content of a correct answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// What the model says.
    pub text: String,
    /// Token counts; unless given, a quarter of the characters, rounded up, and nothing cached.
    pub usage: Option<Usage>,
    /// Why the model stopped.
    pub finish: Finish,
    /// The model named in the answer; unless given, the one asked for.
    pub model: Option<String>,
}

/// Token counts of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the request, cached ones included.
    pub prompt: u64,
    /// Tokens of the answer.
    pub completion: u64,
    /// Tokens of the request that came from the provider's cache.
    pub cached: u64,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It had said everything.
    Stop,
    /// It met the token limit.
    Length,
    /// A filter of the provider stopped it.
    ContentFilter,
}

impl Reply {
    /// The same with token counts.
    pub fn usage(mut self, prompt: u64, completion: u64, cached: u64) -> Self {
        self.usage = Some(Usage {
            prompt,
            completion,
            cached,
        });
        self
    }

    /// The same with another reason to stop.
    pub fn finish(mut self, finish: Finish) -> Self {
        self.finish = finish;
        self
    }

    /// The same with a model's name of its own.
    pub fn model(mut self, model: &str) -> Self {
        self.model = Some(model.to_owned());
        self
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self {
            text,
            usage: None,
            finish: Finish::Stop,
            model: None,
        }
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<serde_json::Value> for Reply {
    fn from(value: serde_json::Value) -> Self {
        value.to_string().into()
    }
}
