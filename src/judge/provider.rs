//! Judges behind HTTP: OpenAI-compatible endpoints, Anthropic and Gemini.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use genai::adapter::AdapterKind;
use genai::chat::{ChatMessage, ChatOptions, ChatRequest, ChatResponseFormat, JsonSpec};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden, ServiceTarget};

use super::call::{Call, CallError, CallErrorKind, Judge, Reply, Usage};
use super::model_name::{Provider, ProviderNotConfigured};
use super::secret::Secrets;

/// Where models are asked.
#[derive(Clone, Debug, Default)]
pub struct ProviderSettings {
    /// Base URL of an endpoint of one's own, up to and with `/v1`; without it, the provider's.
    pub url: Option<String>,
    /// The key; without it, the provider's environment variable.
    pub key: Option<String>,
    /// More headers, by name.
    pub headers: BTreeMap<String, String>,
    /// What is secret beside the key and the headers: values that were filled into the URL.
    pub secrets: Vec<String>,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
}

impl ProviderSettings {
    /// What must not be written anywhere.
    pub fn secrets(&self) -> Secrets {
        let mut secrets = Secrets::default();
        let given = self.key.iter().chain(self.headers.values());
        given
            .chain(&self.secrets)
            .for_each(|secret| secrets.add(secret));
        secrets
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
    client: Client,
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
            match route.key(&settings) {
                Some(key) => secrets.add(&key),
                // A server of one's own may need none.
                None if settings.url.is_some() => {}
                None => {
                    return Err(ProviderError::NotConfigured(ProviderNotConfigured {
                        model: model.clone(),
                        variable: route.key_variable,
                    }));
                }
            }
        }
        let client = Client::builder()
            .with_reqwest(http_client(&settings)?)
            .build()
            .map_err(|e| ProviderError::Client(e.to_string()))?;
        Ok(Self {
            client,
            settings,
            secrets,
        })
    }

    fn target(&self, model: &str) -> Result<ServiceTarget, ProviderError> {
        let route = Route::of(model, &self.settings)?;
        // An endpoint without keys ignores the one it is given.
        let key = route.key(&self.settings).unwrap_or_else(|| "none".into());
        Ok(ServiceTarget {
            endpoint: Endpoint::from_owned(route.base_url),
            auth: AuthData::from_single(key),
            model: ModelIden::new(route.adapter, route.name),
        })
    }

    fn error(&self, error: &genai::Error) -> CallError {
        let status = error.status().map(|s| s.as_u16());
        let retry_after = error.headers().and_then(|headers| {
            let text = |name: &str| headers.get(name)?.to_str().ok();
            let millis = text("retry-after-ms").and_then(|ms| ms.trim().parse::<f64>().ok());
            millis
                .map(|ms| ms / 1000.0)
                .or_else(|| seconds_to_wait(text("retry-after")?))
        });
        let retry_after = retry_after.filter(|s| s.is_finite() && *s >= 0.0 && *s < 1e9);
        let (mut message, mut transport) = (error.to_string(), None);
        if let genai::Error::WebModelCall { webc_error, .. }
        | genai::Error::WebAdapterCall { webc_error, .. } = error
        {
            use genai::webc::Error as Web;
            match webc_error {
                Web::ResponseFailedStatus { status, body, .. } => {
                    message = format!("status {}: {}", status.as_u16(), body.trim());
                }
                Web::Reqwest(e) => {
                    transport = Some(if e.is_timeout() {
                        CallErrorKind::Timeout
                    } else {
                        CallErrorKind::Connection
                    });
                    message = with_causes(e);
                }
                Web::ResponseFailedNotJson { content_type, .. } => {
                    message = format!("the answer is `{content_type}`, not JSON");
                }
                Web::ResponseFailedInvalidJson { cause, .. } => {
                    message = format!("the answer is not valid JSON: {cause}");
                }
                Web::JsonValueExt(_) => {}
            }
        }
        let kind = match status {
            Some(status) => kind_of_status(status, &message),
            None => transport.unwrap_or(CallErrorKind::Garbled),
        };
        CallError {
            kind,
            // Taken out before the text is cut: half a key is none that could be found.
            message: shortened(&self.secrets.scrub(&message)),
            retry_after: retry_after.map(Duration::from_secs_f64),
        }
    }
}

#[async_trait]
impl Judge for HttpJudge {
    async fn ask(&self, call: &Call) -> Result<Reply, CallError> {
        let refused = |message: String| CallError {
            kind: CallErrorKind::Refused,
            message,
            retry_after: None,
        };
        let target = self
            .target(&call.model)
            .map_err(|e| refused(e.to_string()))?;
        let request = ChatRequest::new(vec![
            ChatMessage::system(call.system.to_string()),
            ChatMessage::user(call.user.clone()),
        ]);
        let mut options = ChatOptions::default()
            .with_temperature(call.temperature)
            .with_max_tokens(call.max_output_tokens);
        if let Some(format) = &call.format {
            let spec = JsonSpec::new(format.name, format.schema.as_ref().clone());
            options = options.with_response_format(ChatResponseFormat::JsonSpec(spec));
        }
        if !self.settings.headers.is_empty() {
            let headers: Vec<(String, String)> =
                self.settings.headers.clone().into_iter().collect();
            options = options.with_extra_headers(headers);
        }
        let response = self.client.exec_chat(target, request, Some(&options)).await;
        let response = response.map_err(|e| self.error(&e))?;
        let count = |tokens: Option<i32>| tokens.and_then(|t| u64::try_from(t).ok());
        let usage = &response.usage;
        let counted = count(usage.prompt_tokens).zip(count(usage.completion_tokens));
        let cached = usage
            .prompt_tokens_details
            .as_ref()
            .and_then(|d| count(d.cached_tokens));
        let usage = counted.map(|(prompt, completion)| Usage {
            prompt,
            completion,
            cached: cached.unwrap_or_default(),
        });
        let cut_off = response
            .stop_reason
            .as_ref()
            .is_some_and(|r| r.is_max_tokens());
        let model = self.secrets.scrub(&response.provider_model_iden.model_name);
        let text = response.into_texts().concat();
        // Some servers send a message without content for a refusal: that is an answer, and no verdict.
        Ok(Reply {
            text: self.secrets.scrub(&text),
            model,
            usage,
            cut_off,
        })
    }

    fn endpoint(&self, model: &str) -> String {
        endpoint_of(model, self.settings.url.as_deref())
    }
}

/// Where a model is asked, given the base URL of an own endpoint, if any.
pub fn endpoint_of(model: &str, url: Option<&str>) -> String {
    let settings = ProviderSettings {
        url: url.map(str::to_owned),
        ..ProviderSettings::default()
    };
    Route::of(model, &settings).map_or_else(|_| String::new(), |route| route.base_url)
}

/// An endpoint that speaks OpenAI's protocol, and how it is asked.
pub(super) struct OpenAiEndpoint {
    /// Up to and with `/v1/`.
    pub base_url: String,
    pub key: Option<String>,
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
    if route.adapter != AdapterKind::OpenAI {
        return Err(ProviderError::NoBatches {
            model: model.to_owned(),
        });
    }
    let key = route.key(settings);
    if key.is_none() && settings.url.is_none() {
        return Err(ProviderError::NotConfigured(ProviderNotConfigured {
            model: model.to_owned(),
            variable: route.key_variable,
        }));
    }
    Ok(OpenAiEndpoint {
        base_url: route.base_url,
        key,
    })
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

/// How a model is reached.
struct Route {
    adapter: AdapterKind,
    base_url: String,
    /// The model's name as the endpoint knows it.
    name: String,
    key_variable: &'static str,
}

impl Route {
    fn of(model: &str, settings: &ProviderSettings) -> Result<Self, ProviderError> {
        let unknown = || ProviderError::UnknownProvider {
            model: model.to_owned(),
        };
        let (provider, name) = match Provider::of(model) {
            Some(provider) => (
                provider,
                model.strip_prefix(provider.prefix()).unwrap_or(model),
            ),
            // An endpoint of one's own may call its models anything.
            None if settings.url.is_some() => (Provider::OpenAi, model),
            None => return Err(unknown()),
        };
        if name.is_empty() {
            return Err(unknown());
        }
        let (adapter, url) = match provider {
            Provider::OpenAi => (AdapterKind::OpenAI, "https://api.openai.com/v1"),
            Provider::Anthropic => (AdapterKind::Anthropic, "https://api.anthropic.com/v1"),
            Provider::Gemini => (
                AdapterKind::Gemini,
                "https://generativelanguage.googleapis.com/v1beta",
            ),
            Provider::VertexAi => {
                return Err(ProviderError::NotSpoken {
                    model: model.to_owned(),
                });
            }
        };
        let url = settings.url.as_deref().unwrap_or(url).trim_end_matches('/');
        Ok(Self {
            adapter,
            base_url: format!("{url}/"),
            name: name.to_owned(),
            key_variable: provider.credential_variable(),
        })
    }

    fn key(&self, settings: &ProviderSettings) -> Option<String> {
        let from_variable = || std::env::var(self.key_variable).ok();
        settings
            .key
            .clone()
            .or_else(from_variable)
            .filter(|key| !key.trim().is_empty())
    }
}

/// What an answer of this status, that is no success, means.
pub(super) fn kind_of_status(status: u16, message: &str) -> CallErrorKind {
    match status {
        429 => CallErrorKind::RateLimited,
        401 | 403 => CallErrorKind::Denied,
        408 => CallErrorKind::Timeout,
        500.. => CallErrorKind::ServerError,
        400..=499 => kind_of_refusal(message),
        // A redirect or the like.
        _ => CallErrorKind::Refused,
    }
}

/// What a refusal below 500 is about.
fn kind_of_refusal(message: &str) -> CallErrorKind {
    let message = message.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if says(&[
        "context_length",
        "context length",
        "maximum context",
        "too many tokens",
        "prompt is too long",
    ]) {
        CallErrorKind::TooLong
    } else if says(&[
        "response_format",
        "json_schema",
        "output_config",
        "responseschema",
        "response_schema",
        "output_format",
    ]) {
        CallErrorKind::FormatRejected
    } else {
        CallErrorKind::Refused
    }
}

/// Seconds of a `Retry-After` header: a number, or a date.
fn seconds_to_wait(header: &str) -> Option<f64> {
    let header = header.trim();
    header.parse().ok().or_else(|| {
        let until = chrono::DateTime::parse_from_rfc2822(header).ok()?;
        let wait = until.signed_duration_since(chrono::Utc::now());
        Some(wait.num_milliseconds().max(0) as f64 / 1000.0)
    })
}

pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        message.push_str(&format!(": {source}"));
        cause = source.source();
    }
    message
}

/// An error text that fits a table: providers send whole pages.
pub(super) fn shortened(message: &str) -> String {
    const MOST: usize = 500;
    match message.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_find_their_endpoint() {
        assert_eq!(
            endpoint_of("openai/x", Some("http://h:1/v1")),
            "http://h:1/v1/"
        );
        assert_eq!(
            endpoint_of("openai/org/x", None),
            "https://api.openai.com/v1/"
        );
        assert!(endpoint_of("anthropic/x", None).contains("anthropic"));
        for bad in ["x", "openai/", "/x", "other/x"] {
            let error = Route::of(bad, &ProviderSettings::default())
                .map(|r| r.name)
                .unwrap_err();
            assert!(error.to_string().contains("openai/"), "{error}");
        }
        let own = ProviderSettings {
            url: Some("http://h/v1/".into()),
            ..ProviderSettings::default()
        };
        assert_eq!(Route::of("org/llama", &own).unwrap().name, "org/llama");
        assert_eq!(
            Route::of("openai/org/llama", &own).unwrap().name,
            "org/llama"
        );
    }

    #[test]
    fn waits_are_read_as_seconds_or_dates() {
        assert_eq!(seconds_to_wait(" 7 "), Some(7.0));
        assert_eq!(seconds_to_wait("1.5"), Some(1.5));
        let soon = chrono::Utc::now() + chrono::TimeDelta::seconds(30);
        let wait = seconds_to_wait(&soon.to_rfc2822()).unwrap();
        assert!((28.0..=30.0).contains(&wait), "{wait}");
        assert_eq!(seconds_to_wait("soon"), None);
    }

    #[test]
    fn refusals_are_told_apart() {
        let kind = |m| kind_of_refusal(m);
        assert_eq!(
            kind("This model's maximum context length is 8192"),
            CallErrorKind::TooLong
        );
        assert_eq!(
            kind("Invalid parameter: 'response_format' of type json_schema"),
            CallErrorKind::FormatRejected
        );
        assert_eq!(kind("no such model"), CallErrorKind::Refused);
    }
}
