//! JSON for an endpoint that is no judge, with the retries, the pauses and the care for secrets that judges have.

use std::time::Duration;

use serde_json::Value;

use super::concurrency_limit::ConcurrencyLimit;
use super::fault::{asked_wait, shortened, with_causes};
use super::limited_body::{LONGEST_ANSWER, LONGEST_ERROR, beginning};
use super::provider::{ProviderError, ProviderSettings, http_client};
use super::rate::{RateGate, RateLimits};
use super::retries::Retries;
use super::secret::{BaseUrl, Secrets, header_secrets, url_secrets};

/// The longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(20);
/// The longest wait for a whole answer.
const ANSWER: Duration = Duration::from_secs(120);

/// Where something is posted, and with which headers.
#[derive(Clone)]
pub struct Endpoint {
    /// The URL that paths are joined to.
    pub url: String,
    /// Headers by name; keys are among them.
    pub headers: Vec<(String, String)>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Endpoint")
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

/// What is done at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `GET`
    Get,
    /// `POST`
    Post,
    /// `PATCH`
    Patch,
}

/// How to find out whether something has arrived, where sending it again would make a second one. It is looked for before
/// every attempt: another process, with another ledger, may have sent it.
pub struct Check<'a> {
    /// The path to look at.
    pub path: String,
    /// What the answer there says of it.
    pub seen: &'a (dyn Fn(&Value) -> Seen + Sync),
}

/// What stands where something would be sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// It is not there.
    No,
    /// It is there as it is.
    Yes,
    /// An earlier form of it is there, which `PATCH` at this path with this body changes.
    Earlier {
        /// The path.
        path: String,
        /// The body.
        body: Value,
    },
}

/// Why something was not taken. No message has a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The key is missing, wrong, or not one for this.
    #[error("{endpoint} does not accept the key: {message}")]
    Denied {
        /// The endpoint.
        endpoint: String,
        /// Its words.
        message: String,
    },
    /// The endpoint will never take this.
    #[error("{endpoint} refuses: {message}")]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// Its status; 0 if there was none.
        status: u16,
        /// Its words.
        message: String,
    },
    /// The endpoint gave no good answer, however often it was tried.
    #[error("{endpoint} gives no answer: {message}")]
    Away {
        /// The endpoint.
        endpoint: String,
        /// The last failure.
        message: String,
    },
}

/// Posts JSON to one endpoint.
pub struct Poster {
    http: reqwest::Client,
    base: BaseUrl,
    headers: Vec<(String, String)>,
    secrets: Secrets,
    retries: Retries,
    limit: ConcurrencyLimit,
    gate: RateGate,
}

impl std::fmt::Debug for Poster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poster")
            .field("endpoint", &self.endpoint())
            .finish_non_exhaustive()
    }
}

/// One attempt that failed.
enum Failure {
    /// It will fail again.
    Final(PostError),
    /// It may go well later.
    Passing {
        message: String,
        /// The wait that was asked for.
        wait: Option<Duration>,
    },
}

impl Poster {
    /// A poster that starts no more requests in a minute than `limits` let through.
    ///
    /// # Errors
    /// If there is no HTTP client on this system.
    pub fn new(
        endpoint: Endpoint,
        retries: Retries,
        limits: RateLimits,
    ) -> Result<Self, ProviderError> {
        let settings = ProviderSettings {
            connect_timeout: CONNECT,
            ..ProviderSettings::default()
        };
        let mut secrets = Secrets::default();
        url_secrets(&endpoint.url, &[], &mut secrets);
        for (name, value) in &endpoint.headers {
            let found = header_secrets(name, value);
            found.iter().for_each(|secret| secrets.add(secret));
        }
        let base = BaseUrl::of(&endpoint.url);
        let mut headers = endpoint.headers;
        let has_key = headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        if let (Some(basic), false) = (&base.basic, has_key) {
            headers.push(("Authorization".into(), format!("Basic {basic}")));
        }
        Ok(Self {
            http: http_client(&settings)?,
            base,
            headers,
            secrets,
            retries,
            limit: ConcurrencyLimit::default(),
            gate: RateGate::new(limits),
        })
    }

    /// The endpoint as it may be written down.
    pub fn endpoint(&self) -> String {
        self.secrets.scrub(self.base.identity())
    }

    /// Sends a body until it is answered, and returns the JSON of the answer; null if it has none. With a `check`, it is
    /// looked for before it is sent, and what is there already is not sent again.
    ///
    /// # Errors
    /// [`PostError`], after retries.
    pub async fn send(
        &self,
        verb: Verb,
        path: &str,
        body: Option<&Value>,
        check: Option<&Check<'_>>,
    ) -> Result<Value, PostError> {
        let ticket = self.limit.ticket();
        let seed = format!("{} {path}", std::process::id());
        let mut attempt = 1;
        loop {
            // Neither has a limit that a request could be too large or too late for.
            let (Ok(()), Ok(passage)) =
                (self.gate.pass(0).await, self.limit.pass(ticket, None).await)
            else {
                return Err(self.away("it is never its turn".into()));
            };
            let tried = match check {
                Some(check) => self.once_looked_for(check, verb, path, body).await,
                None => self.once(verb, path, body).await,
            };
            let (message, wait) = match tried {
                Ok(answer) => {
                    passage.answered();
                    return Ok(answer);
                }
                Err(Failure::Final(error)) => {
                    passage.answered();
                    return Err(error);
                }
                Err(Failure::Passing { message, wait }) => (message, wait),
            };
            if attempt >= self.retries.attempts || self.retries.is_too_long(wait) {
                return Err(self.away(message));
            }
            let asked = self.retries.asked_pause(wait, &seed, attempt);
            match asked {
                Some(asked) => {
                    passage.paused(asked);
                }
                None => drop(passage),
            }
            let rest = self.retries.backoff(&seed, attempt);
            tracing::debug!(path, attempt, message, "sending again");
            tokio::time::sleep(asked.unwrap_or_default().max(rest)).await;
            attempt += 1;
        }
    }

    /// Waits before a further attempt of what was answered, and must be sent again; false if there is to be none.
    pub async fn rest(&self, attempt: u32) -> bool {
        if attempt >= self.retries.attempts {
            return false;
        }
        let seed = format!("{} again", std::process::id());
        tokio::time::sleep(self.retries.backoff(&seed, attempt)).await;
        true
    }

    /// Looks whether something is there, and sends it if not.
    async fn once_looked_for(
        &self,
        check: &Check<'_>,
        verb: Verb,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let there = self.once(Verb::Get, &check.path, None).await?;
        let seen = (check.seen)(&there);
        if seen == Seen::Yes {
            return Ok(Value::Null);
        }
        // Another request, which counts like all others.
        if self.gate.pass(0).await.is_err() {
            return Err(Failure::Final(self.away("it is never its turn".into())));
        }
        match seen {
            Seen::Earlier { path, body } => self.once(Verb::Patch, &path, Some(&body)).await,
            _ => self.once(verb, path, body).await,
        }
    }

    async fn once(&self, verb: Verb, path: &str, body: Option<&Value>) -> Result<Value, Failure> {
        let method = match verb {
            Verb::Get => reqwest::Method::GET,
            Verb::Post => reqwest::Method::POST,
            Verb::Patch => reqwest::Method::PATCH,
        };
        let mut request = self.http.request(method, self.base.join(path));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.timeout(ANSWER).send().await;
        let answer = answer.map_err(|e| self.lost(&e))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        if status.is_success() {
            let (bytes, whole) = beginning(answer.bytes_stream(), LONGEST_ANSWER)
                .await
                .map_err(|e| self.lost(&e))?;
            let text = String::from_utf8_lossy(&bytes);
            if text.trim().is_empty() {
                return Ok(Value::Null);
            }
            return match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
                Ok(answer) if whole => Ok(answer),
                _ => Err(Failure::Final(self.refused(
                    status.as_u16(),
                    "the answer is no JSON, as of a page for people; is it the right URL?".into(),
                ))),
            };
        }
        let read = beginning(answer.bytes_stream(), LONGEST_ERROR).await;
        let (bytes, _) = read.unwrap_or_default();
        let body = String::from_utf8_lossy(&bytes).into_owned();
        let message = self.clean(&format!("status {}: {}", status.as_u16(), body.trim()));
        Err(match status.as_u16() {
            401 | 403 => Failure::Final(PostError::Denied {
                endpoint: self.endpoint(),
                message,
            }),
            408 | 425 | 429 | 500.. => Failure::Passing {
                message,
                wait: asked_wait(&headers, &body),
            },
            code => Failure::Final(self.refused(code, message)),
        })
    }

    fn lost(&self, error: &reqwest::Error) -> Failure {
        let message = self.clean(&with_causes(error));
        match error.is_builder() {
            true => Failure::Final(self.refused(0, message)),
            false => Failure::Passing {
                message,
                wait: None,
            },
        }
    }

    fn refused(&self, status: u16, message: String) -> PostError {
        PostError::Refused {
            endpoint: self.endpoint(),
            status,
            message,
        }
    }

    fn away(&self, message: String) -> PostError {
        PostError::Away {
            endpoint: self.endpoint(),
            message,
        }
    }

    fn clean(&self, message: &str) -> String {
        shortened(&self.secrets.scrub(message))
    }
}
