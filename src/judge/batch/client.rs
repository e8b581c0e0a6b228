//! OpenAI's file and batch endpoints over HTTP: upload, create, look, fetch.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::{BatchObject, CHAT_COMPLETIONS};
use crate::judge::call::CallErrorKind;
use crate::judge::fault::{asked_wait, kind_of_status, kind_of_transport, shortened, with_causes};
use crate::judge::limited_body::{LONGEST_ANSWER, LONGEST_ERROR, beginning};
use crate::judge::provider::{
    OpenAiEndpoint, ProviderError, ProviderSettings, batches_endpoint, http_client, openai_endpoint,
};
use crate::judge::retries::Retries;
use crate::judge::secret::Secrets;

/// The name under which our key stands in a batch's metadata.
const KEY: &str = "nightmill";
/// Pages of a hundred batches that are looked through for one of ours.
const PAGES: usize = 50;
/// The longest silence of an endpoint while it answers.
const SILENCE: Duration = Duration::from_secs(120);

/// A request about batches that got no good answer.
#[derive(Debug, thiserror::Error)]
#[error("{what} at {endpoint}: {message}")]
pub struct BatchClientError {
    what: &'static str,
    /// Without secrets.
    endpoint: String,
    kind: CallErrorKind,
    message: String,
    /// The wait that the provider asks for.
    retry_after: Option<Duration>,
}

/// Speaks to the batch endpoints of one provider.
pub struct BatchClient {
    http: reqwest::Client,
    endpoint: OpenAiEndpoint,
    settings: ProviderSettings,
    secrets: Secrets,
    retries: Retries,
}

impl std::fmt::Debug for BatchClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BatchClient")
            .field("endpoint", &self.shown_endpoint())
            .finish_non_exhaustive()
    }
}

impl BatchClient {
    /// A client for the endpoint that all these models have in common; without models, for one that has batches.
    ///
    /// # Errors
    /// [`ProviderError`] if a model is asked elsewhere than by OpenAI's protocol, or a key is missing; before anything is sent.
    pub fn new(
        settings: ProviderSettings,
        models: &[String],
        retries: Retries,
    ) -> Result<Self, ProviderError> {
        let mut endpoint = None;
        for model in models {
            endpoint = Some(openai_endpoint(model, &settings)?);
        }
        let endpoint = match endpoint {
            Some(endpoint) => endpoint,
            None => batches_endpoint(&settings)?,
        };
        let mut secrets = settings.secrets();
        endpoint.key.iter().for_each(|key| secrets.add(key));
        Ok(Self {
            http: http_client(&settings)?,
            endpoint,
            settings,
            secrets,
            retries,
        })
    }

    /// The endpoint as it may be written down.
    pub fn shown_endpoint(&self) -> String {
        self.secrets.scrub(self.endpoint.base.identity())
    }

    /// A reply without secrets, which reads as before.
    pub(super) fn scrub_reply(&self, text: &str) -> String {
        self.secrets.scrub_reply(text)
    }

    /// A text without secrets.
    pub(super) fn scrub(&self, text: &str) -> String {
        self.secrets.scrub(text)
    }

    pub(super) fn settings(&self) -> &ProviderSettings {
        &self.settings
    }

    pub(super) fn retries(&self) -> &Retries {
        &self.retries
    }

    /// Uploads a file of requests, read from its start; returns the provider's id of it.
    ///
    /// # Errors
    /// [`BatchClientError`], after retries.
    pub async fn upload(&self, file: &File, bytes: u64) -> Result<String, BatchClientError> {
        const WHAT: &str = "uploading a batch file";
        let answer = self
            .again(WHAT, || async {
                let unreadable =
                    |e: io::Error| self.failed(WHAT, CallErrorKind::Refused, e.to_string());
                let mut file = file.try_clone().map_err(unreadable)?;
                file.rewind().map_err(unreadable)?;
                let body = reqwest::Body::wrap_stream(pieces(file));
                let part = reqwest::multipart::Part::stream_with_length(body, bytes)
                    .file_name("requests.jsonl")
                    .mime_str("application/jsonl")
                    .map_err(|e| self.failed(WHAT, CallErrorKind::Refused, e.to_string()))?;
                let form = reqwest::multipart::Form::new()
                    .text("purpose", "batch")
                    .part("file", part);
                let request = self.request(reqwest::Method::POST, "files").multipart(form);
                self.json(WHAT, request).await
            })
            .await?;
        let id = answer["id"].as_str().filter(|id| !id.is_empty());
        id.map(str::to_owned).ok_or_else(|| {
            let message = "the answer has no `id`; does it have file endpoints?".into();
            self.failed(WHAT, CallErrorKind::Garbled, message)
        })
    }

    /// Creates the batch of an uploaded file under our key. Where an answer is lost, the batch is looked for before it is
    /// asked for again.
    ///
    /// # Errors
    /// [`BatchClientError`], after retries.
    pub async fn create(&self, file_id: &str, key: &str) -> Result<BatchObject, BatchClientError> {
        const WHAT: &str = "creating a batch";
        let body = json!({
            "input_file_id": file_id,
            "endpoint": CHAT_COMPLETIONS,
            "completion_window": "24h",
            "metadata": {KEY: key},
        });
        let mut attempt = 1;
        loop {
            let request = self.request(reqwest::Method::POST, "batches").json(&body);
            let error = match self.json(WHAT, request).await {
                Ok(answer) => return self.object(WHAT, &answer),
                Err(error) => error,
            };
            if !self.is_tried_again(&error, attempt) {
                return Err(error);
            }
            self.rest(&error, attempt).await;
            attempt += 1;
            if let Some(batch) = self.find(key).await? {
                return Ok(batch);
            }
        }
    }

    /// Where a batch stands.
    ///
    /// # Errors
    /// [`BatchClientError`], after retries.
    pub async fn look(&self, id: &str) -> Result<BatchObject, BatchClientError> {
        const WHAT: &str = "looking at a batch";
        let path = format!("batches/{id}");
        let answer = self
            .again(WHAT, || {
                self.json(WHAT, self.request(reqwest::Method::GET, &path))
            })
            .await?;
        self.object(WHAT, &answer)
    }

    /// The batch that was created under our key, if it was.
    ///
    /// # Errors
    /// [`BatchClientError`], after retries.
    pub async fn find(&self, key: &str) -> Result<Option<BatchObject>, BatchClientError> {
        const WHAT: &str = "listing batches";
        let mut after: Option<String> = None;
        for _ in 0..PAGES {
            let path = match &after {
                None => "batches?limit=100".to_owned(),
                Some(id) => format!("batches?limit=100&after={id}"),
            };
            let answer = self
                .again(WHAT, || {
                    self.json(WHAT, self.request(reqwest::Method::GET, &path))
                })
                .await?;
            let Some(batches) = answer["data"].as_array() else {
                let message = "the answer is no list of batches".into();
                return Err(self.failed(WHAT, CallErrorKind::Garbled, message));
            };
            if let Some(batch) = batches.iter().find(|b| b["metadata"][KEY] == key) {
                return self.object(WHAT, batch).map(Some);
            }
            after = batches
                .last()
                .and_then(|b| b["id"].as_str())
                .map(str::to_owned);
            if answer["has_more"] != true || after.is_none() {
                return Ok(None);
            }
        }
        let message = format!(
            "none of the {} newest batches is the one looked for",
            PAGES * 100
        );
        Err(self.failed(WHAT, CallErrorKind::Refused, message))
    }

    /// Writes a file of the provider to `target`.
    ///
    /// # Errors
    /// [`BatchClientError`], after retries.
    pub async fn fetch(&self, file_id: &str, target: &File) -> Result<(), BatchClientError> {
        const WHAT: &str = "fetching the results of a batch";
        let path = format!("files/{file_id}/content");
        self.again(WHAT, || async {
            let unwritable =
                |e: io::Error| self.failed(WHAT, CallErrorKind::Refused, e.to_string());
            let mut target = target;
            target
                .set_len(0)
                .and_then(|()| target.rewind())
                .map_err(unwritable)?;
            let request = self.request(reqwest::Method::GET, &path);
            let mut answer = self.answer(WHAT, request).await?;
            loop {
                let piece = tokio::time::timeout(SILENCE, answer.chunk()).await;
                let Ok(piece) = piece else {
                    let message = "the file stopped in its middle".into();
                    return Err(self.failed(WHAT, CallErrorKind::Timeout, message));
                };
                match piece.map_err(|e| self.lost(WHAT, &e))? {
                    Some(piece) => target.write_all(&piece).map_err(unwritable)?,
                    None => return Ok(()),
                }
            }
        })
        .await
    }

    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, self.endpoint.base.join(path));
        let headers = self.endpoint.headers.iter();
        headers.fold(request, |request, (name, value)| {
            request.header(name, value)
        })
    }

    /// Sends a request; an answer that is no success is an error.
    async fn answer(
        &self,
        what: &'static str,
        request: reqwest::RequestBuilder,
    ) -> Result<reqwest::Response, BatchClientError> {
        let sent = tokio::time::timeout(SILENCE.saturating_mul(10), request.send()).await;
        let Ok(sent) = sent else {
            let message = "no answer in time".into();
            return Err(self.failed(what, CallErrorKind::Timeout, message));
        };
        let answer = sent.map_err(|e| self.lost(what, &e))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let headers = answer.headers().clone();
        // Whatever of the error's text comes in time.
        let body = beginning(answer.bytes_stream(), LONGEST_ERROR);
        let body = tokio::time::timeout(SILENCE, body).await;
        let (body, _) = body.ok().and_then(Result::ok).unwrap_or_default();
        let body = String::from_utf8_lossy(&body);
        let message = format!("status {}: {}", status.as_u16(), body.trim());
        let kind = kind_of_status(status.as_u16(), &message, false);
        Err(BatchClientError {
            retry_after: asked_wait(&headers, &body),
            ..self.failed(what, kind, message)
        })
    }

    async fn json(
        &self,
        what: &'static str,
        request: reqwest::RequestBuilder,
    ) -> Result<Value, BatchClientError> {
        let answer = self.answer(what, request).await?;
        let bytes = beginning(answer.bytes_stream(), LONGEST_ANSWER);
        let bytes = tokio::time::timeout(SILENCE, bytes).await;
        let Ok(bytes) = bytes else {
            let message = "the answer stopped in its middle".into();
            return Err(self.failed(what, CallErrorKind::Timeout, message));
        };
        let (bytes, whole) = bytes.map_err(|e| self.lost(what, &e))?;
        if !whole {
            let message = format!(
                "the answer is longer than {} MiB; does it have batch endpoints?",
                LONGEST_ANSWER >> 20
            );
            return Err(self.failed(what, CallErrorKind::Refused, message));
        }
        serde_json::from_slice(&bytes).map_err(|e| {
            let message = format!("the answer is not JSON: {e}");
            self.failed(what, CallErrorKind::Garbled, message)
        })
    }

    fn object(&self, what: &'static str, answer: &Value) -> Result<BatchObject, BatchClientError> {
        BatchObject::from_value(answer)
            .map_err(|e| self.failed(what, CallErrorKind::Refused, e.to_string()))
    }

    async fn again<T, F: Future<Output = Result<T, BatchClientError>>>(
        &self,
        what: &'static str,
        mut f: impl FnMut() -> F,
    ) -> Result<T, BatchClientError> {
        let mut attempt = 1;
        loop {
            match f().await {
                Err(e) if self.is_tried_again(&e, attempt) => {
                    tracing::debug!(what, attempt, error = %e, "trying again");
                    self.rest(&e, attempt).await;
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    fn is_tried_again(&self, error: &BatchClientError, attempt: u32) -> bool {
        error.kind.passes()
            && attempt < self.retries.attempts
            && !self.retries.is_too_long(error.retry_after)
    }

    /// Waits before the next try, at least as long as the provider asks for.
    async fn rest(&self, error: &BatchClientError, attempt: u32) {
        // Other processes at the same endpoint wait for other lengths.
        let seed = format!("{} {}", std::process::id(), error.what);
        let asked = self.retries.asked_pause(error.retry_after, &seed, attempt);
        let wait = self.retries.backoff(&seed, attempt);
        tokio::time::sleep(asked.unwrap_or_default().max(wait)).await;
    }

    fn lost(&self, what: &'static str, error: &reqwest::Error) -> BatchClientError {
        self.failed(what, kind_of_transport(error), with_causes(error))
    }

    fn failed(&self, what: &'static str, kind: CallErrorKind, message: String) -> BatchClientError {
        BatchClientError {
            what,
            endpoint: self.shown_endpoint(),
            kind,
            message: shortened(&self.secrets.scrub(&message)),
            retry_after: None,
        }
    }
}

/// A file piece by piece, so that it need not fit memory.
fn pieces(file: File) -> impl futures::Stream<Item = io::Result<Vec<u8>>> {
    futures::stream::try_unfold(file, |mut file| async move {
        let mut piece = vec![0; 1 << 18];
        let length = file.read(&mut piece)?;
        piece.truncate(length);
        Ok((length > 0).then_some((piece, file)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_key_is_named_without_a_model() {
        let settings = ProviderSettings {
            key: Some(" ".into()),
            ..ProviderSettings::default()
        };
        let error = BatchClient::new(settings, &[], Retries::default()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("OPENAI_API_KEY") && text.contains("--judge-key-file"),
            "{text}"
        );
        assert!(
            !text.contains("model") && !text.contains("openai/"),
            "{text}"
        );
    }
}
