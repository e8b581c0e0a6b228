//! Judges behind HTTP: OpenAI-compatible endpoints, Anthropic and Gemini.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use genai::adapter::AdapterKind;
use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ChatResponseFormat, JsonSpec, ReasoningEffort,
};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden, ServiceTarget};

use super::call::{Call, CallError, CallErrorKind, Judge, Reply, Usage};
use super::fault::{blocked, failure, no_message};
use super::model_name::{Provider, ProviderNotConfigured};
use super::secret::{BaseUrl, Secrets, Written, header_secrets, masked_url, url_secrets};

/// Where models are asked.
#[derive(Clone, Debug, Default)]
pub struct ProviderSettings {
    /// Base URL of an endpoint of one's own, up to and with `/v1`; without it, the provider's.
    pub url: Option<String>,
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
            let key = route.needed_key(model, &settings)?;
            key.iter().for_each(|key| secrets.add(key));
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

    /// Where and with which headers a model is asked.
    fn target(&self, model: &str) -> Result<(ServiceTarget, Vec<(String, String)>), ProviderError> {
        let route = Route::of(model, &self.settings)?;
        // An endpoint without keys ignores the one it is given.
        let key = route.key(&self.settings).unwrap_or_else(|| "none".into());
        let headers = route.headers(Some(&key), &self.settings);
        let below = match route.adapter {
            AdapterKind::Anthropic => Some("messages".to_owned()),
            AdapterKind::Gemini => {
                // As the client does, which takes an effort from the end of the name.
                let (_, name) = ReasoningEffort::from_model_name(&route.name);
                Some(format!("models/{name}:generateContent"))
            }
            // The client knows how to keep a query here.
            _ => None,
        };
        let auth = match below.filter(|_| route.base.has_query()) {
            Some(path) => AuthData::RequestOverride {
                url: route.base.join(&path),
                headers: headers.clone().into(),
            },
            None => AuthData::from_single(key),
        };
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(route.base.join("")),
            auth,
            model: ModelIden::new(route.adapter, route.name),
        };
        Ok((target, headers))
    }
}

#[async_trait]
impl Judge for HttpJudge {
    async fn ask(&self, call: &Call) -> Result<Reply, CallError> {
        let refused = |message: String| CallError {
            kind: CallErrorKind::Refused,
            message,
            retry_after: None,
            usage: None,
        };
        let (target, headers) = self
            .target(&call.model)
            .map_err(|e| refused(e.to_string()))?;
        let request = ChatRequest::new(vec![
            ChatMessage::system(call.system.to_string()),
            ChatMessage::user(call.user.clone()),
        ]);
        let mut options = ChatOptions::default()
            .with_max_tokens(call.max_output_tokens)
            // What a block says of itself is only in there.
            .with_capture_raw_body(true)
            // All of them, in the place of the client's own of the same names.
            .with_extra_headers(headers);
        if let Some(temperature) = call.temperature {
            options = options.with_temperature(temperature);
        }
        if target.model.adapter_kind == AdapterKind::OpenAI {
            // Without an effort of ours, `mistral-medium` would be sent as a model `mistral` and the effort `medium`. An effort
            // in tokens is unknown to this protocol and is not sent.
            options = options.with_reasoning_effort(ReasoningEffort::Budget(0));
        }
        if let Some(format) = &call.format {
            let spec = JsonSpec::new(format.name, format.schema.as_ref().clone());
            options = options.with_response_format(ChatResponseFormat::JsonSpec(spec));
        }
        let response = self.client.exec_chat(target, request, Some(&options)).await;
        let response = response.map_err(|e| failure(&e, call.format.is_some(), &self.secrets))?;
        let usage = counted(&response.usage);
        if let Some(blocked) = blocked(&response, usage, &self.secrets) {
            return Err(blocked);
        }
        if let Some(none) = no_message(&response, call.format.is_some(), usage, &self.secrets) {
            return Err(none);
        }
        let cut_off = response
            .stop_reason
            .as_ref()
            .is_some_and(|r| r.is_max_tokens());
        let model = self.secrets.scrub(&response.provider_model_iden.model_name);
        let text = response.into_texts().concat();
        // A message that ended without a word is an answer too, and no verdict.
        Ok(Reply {
            text: self.secrets.scrub_reply(&text),
            model,
            usage,
            cut_off,
        })
    }

    fn endpoint(&self, model: &str) -> String {
        endpoint_of(model, self.settings.url.as_deref())
    }
}

/// What names the place where a model is asked, given the base URL of an own endpoint, if any. User, password and secret values of
/// the query are not in it.
pub fn endpoint_of(model: &str, url: Option<&str>) -> String {
    let settings = ProviderSettings {
        url: url.map(str::to_owned),
        ..ProviderSettings::default()
    };
    let route = Route::of(model, &settings);
    route.map_or_else(|_| String::new(), |route| route.base.identity().to_owned())
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
    if route.adapter != AdapterKind::OpenAI {
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
            endpoint: endpoint_of(&missing.model, settings.url.as_deref()),
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

/// In the client's own spelling: it tells names apart by case.
const AUTHORIZATION: &str = "Authorization";
/// The version of Anthropic's protocol that is spoken.
const ANTHROPIC_VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// How a model is reached.
struct Route {
    adapter: AdapterKind,
    base: BaseUrl,
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
        Ok(Self {
            adapter,
            base: BaseUrl::of(settings.url.as_deref().unwrap_or(url)),
            name: name.to_owned(),
            key_variable: provider.credential_variable(),
        })
    }

    /// The key; none only where a server of one's own may need none.
    fn needed_key(
        &self,
        model: &str,
        settings: &ProviderSettings,
    ) -> Result<Option<String>, ProviderNotConfigured> {
        match self.key(settings) {
            None if settings.url.is_none() && !self.has_own_key(settings) => {
                Err(ProviderNotConfigured {
                    model: model.to_owned(),
                    variable: self.key_variable,
                })
            }
            key => Ok(key),
        }
    }

    /// The header that carries the key.
    fn key_header(&self) -> &'static str {
        match self.adapter {
            AdapterKind::Anthropic => "x-api-key",
            AdapterKind::Gemini => "x-goog-api-key",
            _ => AUTHORIZATION,
        }
    }

    /// Whether the user's own headers or URL say what the key would say.
    fn has_own_key(&self, settings: &ProviderSettings) -> bool {
        let name = self.key_header();
        let mut given = settings.headers.keys();
        given.any(|given| given.eq_ignore_ascii_case(name))
            || (name == AUTHORIZATION && self.base.basic.is_some())
    }

    /// The headers of a request, each once: those of the user go before user and password of the URL, and these before the key.
    fn headers(&self, key: Option<&str>, settings: &ProviderSettings) -> Vec<(String, String)> {
        let mut headers: Vec<(String, String)> = Vec::new();
        let key_header = self.key_header();
        for (name, value) in &settings.headers {
            let known = [AUTHORIZATION, key_header, ANTHROPIC_VERSION.0];
            let same = known.iter().find(|known| known.eq_ignore_ascii_case(name));
            headers.push((
                same.map_or(name.as_str(), |known| *known).to_owned(),
                value.clone(),
            ));
        }
        let mut unless_given = |name: &str, value: String| {
            if !headers.iter().any(|(given, _)| given == name) {
                headers.push((name.to_owned(), value));
            }
        };
        if let Some(basic) = &self.base.basic {
            unless_given(AUTHORIZATION, format!("Basic {basic}"));
        }
        if let Some(key) = key {
            let bearer = key_header == AUTHORIZATION;
            let value = if bearer {
                format!("Bearer {key}")
            } else {
                key.to_owned()
            };
            unless_given(key_header, value);
        }
        if self.adapter == AdapterKind::Anthropic {
            let (name, version) = ANTHROPIC_VERSION;
            unless_given(name, version.to_owned());
        }
        headers
    }

    /// The key that is sent; none where the user says something else in its place.
    fn key(&self, settings: &ProviderSettings) -> Option<String> {
        if self.has_own_key(settings) {
            return None;
        }
        let from_variable = || std::env::var(self.key_variable).ok();
        settings
            .key
            .clone()
            .or_else(from_variable)
            .filter(|key| !key.trim().is_empty())
    }
}

/// Tokens as the provider counted them; `None` unless it counted question and reply.
fn counted(usage: &genai::chat::Usage) -> Option<Usage> {
    let count = |tokens: Option<i32>| tokens.and_then(|t| u64::try_from(t).ok());
    let prompt = count(usage.prompt_tokens)?;
    // Gemini counts no reply where there is none, though thoughts may have been billed: these are in the total alone.
    let rest = || count(usage.total_tokens)?.checked_sub(prompt);
    let details = usage.prompt_tokens_details.as_ref();
    Some(Usage {
        prompt,
        completion: count(usage.completion_tokens).or_else(rest)?,
        cached: details
            .and_then(|d| count(d.cached_tokens))
            .unwrap_or_default(),
    })
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
    fn tokens_are_counted_where_the_provider_did() {
        let usage = |prompt, completion, total| genai::chat::Usage {
            prompt_tokens: prompt,
            completion_tokens: completion,
            total_tokens: total,
            ..genai::chat::Usage::default()
        };
        let tokens = |usage| counted(&usage).map(|u| (u.prompt, u.completion, u.cached));
        assert_eq!(tokens(usage(Some(7), Some(2), None)), Some((7, 2, 0)));
        assert_eq!(tokens(usage(Some(7), None, Some(12))), Some((7, 5, 0)));
        for unknown in [
            usage(None, Some(2), Some(9)),
            usage(Some(7), None, None),
            usage(Some(7), None, Some(3)),
            usage(Some(-1), Some(2), None),
        ] {
            assert_eq!(tokens(unknown), None);
        }
    }
}
