//! A message to an address that is a secret itself, as the webhooks of chats are: whoever knows it may write there.

use std::ops::Range;
use std::time::Duration;

use super::fault::{asked_wait, shortened, with_causes};
use super::limited_body::{LONGEST_ERROR, beginning};
use super::provider::{ProviderSettings, http_client};
use super::retries::Retries;
use super::secret::{SECRET, Secrets, host_of, url_fault, url_secrets};

/// The longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest wait for a whole answer.
const ANSWER: Duration = Duration::from_secs(20);
/// A run has ended, and somebody waits for its exit code: a message is not worth minutes.
const RETRIES: Retries = Retries {
    attempts: 4,
    wait: Duration::from_millis(500),
    longest_wait: Duration::from_secs(10),
    patience: Duration::from_secs(30),
    others: Duration::ZERO,
    stop: false,
    away: Duration::ZERO,
};

/// Why a message was not delivered, as far as is known. No message has a secret; of the address it shows the host alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebhookError {
    /// The address can't be one.
    #[error("{0}")]
    Address(String),
    /// No connection can be made on this system.
    #[error("no connection can be opened: {0}")]
    Client(String),
    /// It will never be taken.
    #[error("{host} refuses it: {message}")]
    Refused {
        /// The host.
        host: String,
        /// Its words.
        message: String,
    },
    /// It was not taken, however often it was tried.
    #[error("{host} does not take it: {message}")]
    Away {
        /// The host.
        host: String,
        /// The last failure.
        message: String,
    },
    /// It was sent and not answered. It was not sent again, since it would then be there twice.
    #[error("{host} gave no answer, so that it may have arrived or not: {message}")]
    Unsure {
        /// The host.
        host: String,
        /// What happened to the answer.
        message: String,
    },
}

/// Sends single messages to one address.
pub struct Webhook {
    http: reqwest::Client,
    url: String,
    host: String,
    secrets: Secrets,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

/// One attempt that failed.
enum Failure {
    /// It will fail again, or must not be tried again.
    Final(WebhookError),
    /// It may go well later.
    Passing {
        message: String,
        /// The wait that was asked for.
        wait: Option<Duration>,
    },
}

impl Webhook {
    /// A webhook at a URL in which the values of variables were filled in at these places.
    ///
    /// # Errors
    /// [`WebhookError::Address`] in words that show nothing of it, and [`WebhookError::Client`].
    pub fn new(url: &str, filled: &[Range<usize>]) -> Result<Self, WebhookError> {
        if let Some(fault) = url_fault(url) {
            return Err(WebhookError::Address(fault));
        }
        let host = host_of(url);
        let settings = ProviderSettings {
            connect_timeout: CONNECT,
            ..ProviderSettings::default()
        };
        let http = http_client(&settings).map_err(|e| WebhookError::Client(e.to_string()))?;
        Ok(Self {
            http,
            url: url.to_owned(),
            secrets: secrets_of(url, &host, filled),
            host,
        })
    }

    /// Scheme, host and port: what may be shown of the address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Sends a message until it is taken: again after a refusal for a time and where no connection could be made, but not
    /// where the answer was lost.
    ///
    /// # Errors
    /// [`WebhookError`], after retries.
    pub async fn send(&self, content_type: &'static str, body: &str) -> Result<(), WebhookError> {
        let seed = format!("{} webhook", std::process::id());
        let mut attempt = 1;
        loop {
            let (message, wait) = match self.once(content_type, body).await {
                Ok(()) => return Ok(()),
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Passing { message, wait }) => (message, wait),
            };
            if attempt >= RETRIES.attempts || RETRIES.is_too_long(wait) {
                let host = self.host.clone();
                return Err(WebhookError::Away { host, message });
            }
            let asked = RETRIES.asked_pause(wait, &seed, attempt);
            let rest = RETRIES.backoff(&seed, attempt);
            tracing::debug!(attempt, message, "sending again");
            tokio::time::sleep(asked.unwrap_or_default().max(rest)).await;
            attempt += 1;
        }
    }

    async fn once(&self, content_type: &'static str, body: &str) -> Result<(), Failure> {
        let request = self
            .http
            .post(&self.url)
            .header(reqwest::header::CONTENT_TYPE, content_type)
            .body(body.to_owned())
            .timeout(ANSWER);
        let answer = request.send().await.map_err(|error| self.lost(error))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        if status.is_success() {
            return Ok(());
        }
        let read = beginning(answer.bytes_stream(), LONGEST_ERROR).await;
        let (bytes, _) = read.unwrap_or_default();
        let said = String::from_utf8_lossy(&bytes).into_owned();
        let message = self.clean(&format!("status {}: {}", status.as_u16(), said.trim()));
        Err(match status.as_u16() {
            408 | 425 | 429 | 500.. => Failure::Passing {
                message,
                wait: asked_wait(&headers, &said),
            },
            _ => Failure::Final(WebhookError::Refused {
                host: self.host.clone(),
                message,
            }),
        })
    }

    fn lost(&self, error: reqwest::Error) -> Failure {
        let (never_sent, no_connection) = (error.is_builder(), error.is_connect());
        let message = self.clean(&with_causes(&error.without_url()));
        let host = self.host.clone();
        match (never_sent, no_connection) {
            (true, _) => Failure::Final(WebhookError::Refused { host, message }),
            (_, true) => Failure::Passing {
                message,
                wait: None,
            },
            _ => Failure::Final(WebhookError::Unsure { host, message }),
        }
    }

    /// What a server says of the address goes before what says only that it was shortened.
    fn clean(&self, message: &str) -> String {
        shortened(&self.secrets.scrub(message))
    }
}

/// All that stands behind the host is secret, and so is each part of it that is no short word.
fn secrets_of(url: &str, host: &str, filled: &[Range<usize>]) -> Secrets {
    let mut secrets = Secrets::default();
    url_secrets(url, filled, &mut secrets);
    secrets.add_shown(url, &format!("{host}/{SECRET}"));
    let after = url.find("://").map_or(0, |at| at + 3);
    let rest = url.get(after..).unwrap_or_default();
    let path = rest.find('/').and_then(|at| rest.get(at..));
    for part in path
        .into_iter()
        .flat_map(|path| path.split(['/', '?', '&', '=']))
    {
        secrets.add(part);
    }
    path.into_iter().for_each(|path| secrets.add(path));
    secrets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_address_is_shown_but_its_host() {
        let url = "https://hooks.slack.com/services/T0000/B0000/XXcanaryXX?k=canaryKEY";
        let webhook = Webhook::new(url, &[]).unwrap();
        assert_eq!(webhook.host(), "https://hooks.slack.com");
        for said in [
            format!("no such hook: {url}"),
            "status 404: /services/T0000/B0000/XXcanaryXX".to_owned(),
            "XXcanaryXX is not known; canaryKEY neither".to_owned(),
        ] {
            let clean = webhook.clean(&said);
            assert!(!clean.contains("canary"), "{clean}");
        }
        assert!(!format!("{webhook:?}").contains("services"));
        let with_user = Webhook::new("http://bob:s3cret99@h:1/x", &[]).unwrap();
        assert_eq!(with_user.host(), "http://h:1");
        assert!(!with_user.clean("bob:s3cret99@h").contains("s3cret99"));
    }

    #[test]
    fn what_is_no_address_is_refused_without_showing_it() {
        for url in [
            "ftp://h/canary",
            "hooks.slack.com/canary",
            "http://h/a#canary",
        ] {
            let error = Webhook::new(url, &[]).unwrap_err().to_string();
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
