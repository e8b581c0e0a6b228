//! A chat endpoint that is asked for an agent's part in a conversation, and for no verdict: no ledger, no budget.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{sleep, timeout};

use super::call::{CallError, CallErrorKind};
use super::exchange;
use super::fault::{failure, no_message};
use super::protocol::Protocol;
use super::provider::{
    ProviderError, ProviderSettings, http_client, name_at_endpoint, openai_endpoint,
};
use super::retries::Retries;
use super::secret::Secrets;

/// Asks a model by OpenAI's chat completions.
pub struct Chat {
    client: reqwest::Client,
    url: String,
    headers: Vec<(String, String)>,
    /// As the endpoint calls it.
    model: String,
    retries: Retries,
    timeout: Duration,
    secrets: Secrets,
}

/// An endpoint that can't be asked.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// It is a provider without chat completions.
    #[error(
        "model `{model}`: only OpenAI's chat completions are spoken here; name the provider's endpoint for them by its URL"
    )]
    NotSpoken {
        /// The model.
        model: String,
    },
    /// It is not known, or its key is missing.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

impl std::fmt::Debug for Chat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL and the headers may hold keys.
        f.debug_struct("Chat")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl Chat {
    /// Asks this model. An answer may take `timeout`; what fails for a time is repeated by the rules of `retries`.
    ///
    /// # Errors
    /// [`ChatError`], before anything is sent.
    pub fn new(
        settings: &ProviderSettings,
        model: &str,
        retries: Retries,
        timeout: Duration,
    ) -> Result<Self, ChatError> {
        let endpoint = openai_endpoint(model, settings).map_err(|error| match error {
            ProviderError::NoBatches { model } => ChatError::NotSpoken { model },
            error => ChatError::Provider(error),
        })?;
        let mut secrets = settings.secrets();
        endpoint.key.iter().for_each(|key| secrets.add(key));
        let name = name_at_endpoint(model, settings);
        Ok(Self {
            client: http_client(settings)?,
            url: endpoint.base.join(&Protocol::OpenAi.path(&name)),
            headers: endpoint.headers,
            model: name,
            retries,
            timeout,
            secrets,
        })
    }

    /// The answer to a request with this body: the model is added to it, and it is not streamed. The answer has a
    /// message, `choices[0].message`, and no keys in its texts.
    ///
    /// # Errors
    /// [`CallError`] after the last try.
    pub async fn complete(&self, mut body: Map<String, Value>) -> Result<Value, CallError> {
        body.insert("model".to_owned(), self.model.as_str().into());
        body.shift_remove("stream");
        let body = Value::Object(body);
        let mut attempt = 1;
        loop {
            let asked = timeout(self.timeout, self.ask(&body)).await;
            let error = match asked.unwrap_or_else(|_| Err(self.no_answer())) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let hopeless = !error.kind.passes() || self.retries.is_too_long(error.retry_after);
            if hopeless || attempt >= self.retries.attempts {
                return Err(error);
            }
            let asked = self
                .retries
                .asked_pause(error.retry_after, &self.url, attempt);
            sleep(asked.unwrap_or_else(|| self.retries.backoff(&self.url, attempt))).await;
            attempt += 1;
        }
    }

    async fn ask(&self, body: &Value) -> Result<Value, CallError> {
        let answer = exchange::post(&self.client, &self.url, &self.headers, body).await;
        let mut answer = answer.map_err(|none| failure(&none, false, &self.secrets))?;
        let message = answer.pointer("/choices/0/message");
        let none = match message {
            Some(Value::Object(_)) => None,
            _ => no_message(None, &answer, false, &self.secrets),
        };
        if let Some(none) = none {
            return Err(none);
        }
        scrub(&mut answer, &self.secrets);
        Ok(answer)
    }

    fn no_answer(&self) -> CallError {
        CallError {
            kind: CallErrorKind::Timeout,
            message: format!("no answer within {} s", self.timeout.as_secs_f64()),
            retry_after: None,
            usage: None,
        }
    }
}

/// Takes secrets out of all texts. As deep as the reader of answers lets them be.
fn scrub(value: &mut Value, secrets: &Secrets) {
    match value {
        Value::String(text) => *text = secrets.scrub(text),
        Value::Array(items) => items.iter_mut().for_each(|item| scrub(item, secrets)),
        Value::Object(members) => members.values_mut().for_each(|value| scrub(value, secrets)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests;
