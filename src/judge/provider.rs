//! Judges behind HTTP: OpenAI-compatible endpoints, Anthropic and Gemini.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::call::{Call, CallError, CallErrorKind, Judge, Reply};
use super::exchange;
use super::fault::{blocked, cut_off, failure, no_message};
use super::model_name::ProviderNotConfigured;
use super::protocol::Protocol;
use super::secret::{BaseUrl, Secrets, Written, header_secrets, masked_url, url_secrets};

mod route;

use route::Route;

/// Where models are asked.
#[derive(Clone, Debug, Default)]
pub struct ProviderSettings {
    /// Base URL of an endpoint of one's own, up to and with `/v1`; without it, the provider's.
    pub url: Option<String>,
    /// What that endpoint speaks. Without a URL, the model's name says it.
    pub protocol: Protocol,
    /// The key; without it, the provider's environment variable.
    pub key: Option<String>,
    /// More headers, by name.
    pub headers: BTreeMap<String, String>,
    /// Where in the URL values of variables are.
    pub filled: Vec<Range<usize>>,
    /// Values of variables in headers: secrets, whatever the header is called.
    pub secrets: Vec<String>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
}

impl ProviderSettings {
    /// What must not be written anywhere.
    pub fn secrets(&self) -> Secrets {
        let mut secrets = Secrets::default();
        let given = self.key.iter().chain(&self.secrets);
        given.for_each(|secret| secrets.add(secret));
        for (name, value) in &self.headers {
            let found = header_secrets(name, value);
            found.iter().for_each(|secret| secrets.add(secret));
        }
        if let Some(url) = &self.url {
            url_secrets(url, &self.filled, &mut secrets);
        }
        secrets
    }

    /// The URL as it may be written down.
    pub fn shown_url(&self) -> Option<String> {
        let url = self.url.as_ref()?;
        Some(masked_url(url, Written::Filled(&self.filled)))
    }
}

/// A provider that can't be asked.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// No provider is known for a model's name.
    #[error(
        "judge `{model}`: name the provider, as in openai/{model}, anthropic/{model} or gemini/{model}; for an endpoint of your own that speaks \
         OpenAI's protocol, openai/{model} and --judge-url"
    )]
    UnknownProvider {
        /// The model.
        model: String,
    },
    /// A key is missing.
    #[error("provider_not_configured: {0}; a key in a file is named with --judge-key-file")]
    NotConfigured(#[from] ProviderNotConfigured),
    /// A key is missing for an endpoint that is asked about no model.
    #[error(
        "{endpoint} needs a key: set the environment variable {variable}, or name a file with the key with --judge-key-file"
    )]
    NoKey {
        /// The endpoint.
        endpoint: String,
        /// The variable that is missing or empty.
        variable: &'static str,
    },
    /// A provider that is known and can't be asked.
    #[error(
        "judge `{model}`: Vertex AI is not spoken; use gemini/ with a Gemini key, or Vertex's OpenAI-compatible endpoint with openai/ and --judge-url"
    )]
    NotSpoken {
        /// The model.
        model: String,
    },
    /// A provider without OpenAI's batch files.
    #[error(
        "judge `{model}`: --batch speaks OpenAI's batch files, which this provider has not; leave --batch out, or name an endpoint that has them"
    )]
    NoBatches {
        /// The model.
        model: String,
    },
    /// The client could not be made.
    #[error("the HTTP client could not be set up: {0}")]
    Client(String),
}

/// Asks providers over HTTP.
pub struct HttpJudge {
    client: reqwest::Client,
    settings: ProviderSettings,
    secrets: Secrets,
}

impl HttpJudge {
    /// A judge for these models, whose keys must be there.
    ///
    /// # Errors
    /// [`ProviderError`], before anything is sent.
    pub fn new(settings: ProviderSettings, models: &[String]) -> Result<Self, ProviderError> {
        let mut secrets = settings.secrets();
        for model in models {
            let route = Route::of(model, &settings)?;
            let key = route.needed_key(model, &settings)?;
            key.iter().for_each(|key| secrets.add(key));
        }
        Ok(Self {
            client: http_client(&settings)?,
            settings,
            secrets,
        })
    }

    /// What an answer comes to: a reply, or why it is none.
    fn reply(&self, call: &Call, route: Route, answer: &Value) -> Result<Reply, CallError> {
        let message = route.protocol.message(answer);
        let none = blocked(message.as_ref(), answer, &self.secrets).or_else(|| {
            let structured = call.format.is_some();
            no_message(message.as_ref(), answer, structured, &self.secrets)
        });
        if let Some(none) = none {
            return Err(none);
        }
        // A message that ended without a word is an answer too, and no verdict.
        let message = message.unwrap_or_default();
        let cut_off = cut_off(&message);
        Ok(Reply {
            cut_off,
            text: self.secrets.scrub_reply(&message.text),
            model: self.secrets.scrub(&message.model.unwrap_or(route.name)),
            usage: message.usage,
        })
    }
}

#[async_trait]
impl Judge for HttpJudge {
    async fn ask(&self, call: &Call) -> Result<Reply, CallError> {
        let route = Route::of(&call.model, &self.settings).map_err(|e| CallError {
            kind: CallErrorKind::Refused,
            message: e.to_string(),
            retry_after: None,
            usage: None,
        })?;
        // An endpoint without keys ignores the one it is given.
        let key = route.key(&self.settings).unwrap_or_else(|| "none".into());
        let headers = route.headers(Some(&key), &self.settings);
        let url = route.base.join(&route.protocol.path(&route.name));
        let body = route.protocol.request(call, &route.name);
        match exchange::post(&self.client, &url, &headers, &body).await {
            Ok(answer) => self.reply(call, route, &answer),
            Err(none) => Err(failure(&none, call.format.is_some(), &self.secrets)),
        }
    }

    fn endpoint(&self, model: &str) -> String {
        endpoint_of(model, &self.settings)
    }
}

/// What names the place where a model is asked. User, password and secret values of the query are not in it.
pub fn endpoint_of(model: &str, settings: &ProviderSettings) -> String {
    let route = Route::of(model, settings);
    route.map_or_else(|_| String::new(), |route| route.identity(model))
}

/// An endpoint that speaks OpenAI's protocol, and how it is asked.
pub(super) struct OpenAiEndpoint {
    pub base: BaseUrl,
    pub key: Option<String>,
    /// Headers of every request, that with the key included.
    pub headers: Vec<(String, String)>,
}

/// The endpoint of a model, for what OpenAI's protocol has and the others have not.
///
/// # Errors
/// [`ProviderError`].
pub(super) fn openai_endpoint(
    model: &str,
    settings: &ProviderSettings,
) -> Result<OpenAiEndpoint, ProviderError> {
    let route = Route::of(model, settings)?;
    if route.protocol != Protocol::OpenAi {
        return Err(ProviderError::NoBatches {
            model: model.to_owned(),
        });
    }
    let key = route.needed_key(model, settings)?;
    Ok(OpenAiEndpoint {
        headers: route.headers(key.as_deref(), settings),
        key,
        base: route.base,
    })
}

/// The endpoint whose batches are looked at, whatever their models are.
///
/// # Errors
/// [`ProviderError::NoKey`].
pub(super) fn batches_endpoint(
    settings: &ProviderSettings,
) -> Result<OpenAiEndpoint, ProviderError> {
    // Of the name only the provider matters.
    match openai_endpoint("openai/batches", settings) {
        Err(ProviderError::NotConfigured(missing)) => Err(ProviderError::NoKey {
            endpoint: endpoint_of(&missing.model, settings),
            variable: missing.variable,
        }),
        endpoint => endpoint,
    }
}

/// The name of a model as its endpoint knows it.
pub(super) fn name_at_endpoint(model: &str, settings: &ProviderSettings) -> String {
    Route::of(model, settings).map_or_else(|_| model.to_owned(), |route| route.name)
}

/// The client that all requests go through.
///
/// # Errors
/// [`ProviderError::Client`].
pub(super) fn http_client(settings: &ProviderSettings) -> Result<reqwest::Client, ProviderError> {
    reqwest::Client::builder()
        .connect_timeout(settings.connect_timeout)
        .tcp_nodelay(true)
        .user_agent(concat!("nightmill/", env!("CARGO_PKG_VERSION")))
        // Keys must not travel on to wherever an endpoint points.
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|e| ProviderError::Client(e.to_string()))
}
