//! Who judges: from an entry of the configuration, or from settings, to an endpoint and a model.

use std::time::Duration;

use crate::judge::{Protocol, ProviderSettings, Retries, Temperature, url_fault, with_variables};
use crate::output::RunError;
use crate::suite::regression::config::JudgeEntry;
use crate::suite::regression::record::JudgeName;
use crate::text::nearest;

/// Providers that a configuration may name.
const PROVIDERS: [&str; 6] = ["anthropic", "openai", "gemini", "google", "groq", "ollama"];
const GROQ_URL: &str = "https://api.groq.com/openai/v1";
const GROQ_KEY: &str = "GROQ_API_KEY";
const OLLAMA_URL: &str = "http://localhost:11434/v1";
/// What is sent to servers that need no key: without it, a key of OpenAI's would go there.
const NO_KEY: &str = "none";

/// Where and how a judge is asked.
#[derive(Clone, Debug)]
pub(in crate::suite::regression::run) struct JudgeRoute {
    /// The endpoint and what opens it.
    pub provider: ProviderSettings,
    /// With the prefix of the protocol's provider.
    pub model: String,
    /// As the configuration calls it.
    pub name: JudgeName,
    /// Randomness.
    pub temperature: Temperature,
    /// Most tokens of a reply.
    pub max_output_tokens: u32,
    /// Longest wait for one answer.
    pub timeout: Duration,
    /// Tries of a call that fails for a time.
    pub tries: u32,
    /// The variable that must hold the key and does not.
    pub missing_key: Option<&'static str>,
}

/// What the user says of judges beside the configuration; it goes before what the configuration says.
#[derive(Clone, Debug, Default)]
pub struct JudgeOverrides {
    /// The full name of the first judge's model.
    pub model: Option<String>,
    /// Other models for single metrics, by name.
    pub models: Vec<(String, String)>,
    /// The endpoint of the first judge, and what opens it.
    pub provider: Option<ProviderSettings>,
    /// Randomness.
    pub temperature: Option<Temperature>,
    /// Most tokens of a reply.
    pub max_output_tokens: Option<u32>,
    /// Longest wait for one answer.
    pub timeout: Option<Duration>,
    /// Tries of a call that fails for a time.
    pub tries: Option<u32>,
    /// Calls under way at once.
    pub concurrency: Option<usize>,
}

impl JudgeOverrides {
    /// Whether the user names a judge.
    pub(in crate::suite::regression::run) fn names_judge(&self) -> bool {
        self.model.is_some() || !self.models.is_empty() || self.provider.is_some()
    }
}

impl JudgeRoute {
    /// The route of an entry.
    ///
    /// # Errors
    /// [`RunError::Request`] if its provider is not known or its address is no good.
    pub fn of_entry(entry: &JudgeEntry, overrides: &JudgeOverrides) -> Result<Self, RunError> {
        let wrong = |problem: String| {
            RunError::Request(format!("the judge of the configuration: {problem}"))
        };
        let named = entry.provider.to_ascii_lowercase();
        let mut provider = ProviderSettings {
            connect_timeout: Duration::from_secs(10),
            ..ProviderSettings::default()
        };
        if let Some(endpoint) = &entry.local_endpoint {
            let endpoint = match named.as_str() {
                "ollama" => with_version(endpoint),
                _ => endpoint.clone(),
            };
            let (url, filled) =
                with_variables("local_endpoint", &endpoint).map_err(|e| wrong(e.to_string()))?;
            if let Some(fault) = url_fault(&url) {
                return Err(wrong(format!("`local_endpoint`: {fault}")));
            }
            (provider.url, provider.filled) = (Some(url), filled);
        }
        let mut missing_key = None;
        let prefix = match named.as_str() {
            "anthropic" => {
                provider.protocol = Protocol::Anthropic;
                "anthropic"
            }
            "gemini" | "google" => {
                provider.protocol = Protocol::Gemini;
                "gemini"
            }
            "groq" => {
                provider.url.get_or_insert_with(|| GROQ_URL.to_owned());
                provider.key = std::env::var(GROQ_KEY).ok().filter(|key| !key.is_empty());
                missing_key = provider.key.is_none().then_some(GROQ_KEY);
                "openai"
            }
            "ollama" => {
                provider.url.get_or_insert_with(|| OLLAMA_URL.to_owned());
                provider.key = Some(NO_KEY.to_owned());
                "openai"
            }
            "openai" => "openai",
            _ if provider.url.is_some() => {
                provider.key = Some(NO_KEY.to_owned());
                "openai"
            }
            other => {
                return Err(wrong(format!(
                    "the provider `{other}` is not known{}; there are {}, and any other with a `local_endpoint` that \
                     speaks OpenAI's protocol",
                    nearest(other, PROVIDERS),
                    PROVIDERS.join(", ")
                )));
            }
        };
        let tries = u32::try_from(entry.retry_attempts).unwrap_or(u32::MAX);
        let model = match entry.model.strip_prefix(&format!("{prefix}/")) {
            // Names of families may be given with their provider.
            Some(rest) if named != "groq" => rest,
            _ => entry.model.as_str(),
        };
        let most = u32::try_from(entry.max_tokens).unwrap_or(u32::MAX);
        Ok(Self {
            provider,
            model: format!("{prefix}/{model}"),
            name: JudgeName {
                provider: entry.provider.clone(),
                model: entry.model.clone(),
            },
            temperature: overrides
                .temperature
                .unwrap_or(Temperature::Usual(entry.temperature)),
            max_output_tokens: overrides.max_output_tokens.unwrap_or(most),
            timeout: overrides
                .timeout
                .unwrap_or(Duration::from_millis(entry.timeout_ms)),
            tries: overrides.tries.unwrap_or(tries.saturating_add(1)),
            missing_key,
        })
    }

    /// The route of a model that the user names, as the configuration's `usual` entry is asked.
    pub fn of_model(model: &str, provider: ProviderSettings, overrides: &JudgeOverrides) -> Self {
        Self {
            provider,
            model: model.to_owned(),
            name: name_of(model),
            temperature: overrides.temperature.unwrap_or(Temperature::Usual(0.1)),
            max_output_tokens: overrides.max_output_tokens.unwrap_or(4096),
            timeout: overrides.timeout.unwrap_or(Duration::from_secs(30)),
            tries: overrides.tries.unwrap_or(4),
            missing_key: None,
        }
    }

    /// The same judge with another model at its endpoint.
    pub fn with_model(&self, model: &str) -> Self {
        Self {
            model: model.to_owned(),
            name: name_of(model),
            ..self.clone()
        }
    }

    /// The same judge at the endpoint that the user names, and with the key and headers given for it.
    pub fn at(mut self, given: &ProviderSettings) -> Self {
        let own = &mut self.provider;
        if given.url.is_some() {
            own.url.clone_from(&given.url);
            own.filled.clone_from(&given.filled);
            own.protocol = given.protocol;
            // A key for another place stays at home.
            own.key = None;
            self.missing_key = None;
        }
        if given.key.is_some() {
            own.key.clone_from(&given.key);
            self.missing_key = None;
        }
        own.headers.clone_from(&given.headers);
        own.secrets.clone_from(&given.secrets);
        self
    }

    /// How calls to it are repeated.
    pub fn retries(&self, usual: Retries) -> Retries {
        Retries {
            attempts: self.tries,
            longest_wait: Duration::from_secs(30),
            ..usual
        }
    }
}

/// Ollama's own address has no version; its part that speaks OpenAI's protocol is below it.
fn with_version(endpoint: &str) -> String {
    let bare = endpoint.trim_end_matches('/');
    match bare.ends_with("/v1") {
        true => bare.to_owned(),
        false => format!("{bare}/v1"),
    }
}

fn name_of(model: &str) -> JudgeName {
    let (provider, name) = model.split_once('/').unwrap_or(("", model));
    JudgeName {
        provider: match provider {
            "" => "openai".to_owned(),
            provider => provider.to_owned(),
        },
        model: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(provider: &str, model: &str, endpoint: Option<&str>) -> JudgeEntry {
        JudgeEntry {
            provider: provider.to_owned(),
            model: model.to_owned(),
            temperature: 0.1,
            max_tokens: 100,
            timeout_ms: 1500,
            retry_attempts: 2,
            local_endpoint: endpoint.map(str::to_owned),
        }
    }

    fn route(provider: &str, model: &str, endpoint: Option<&str>) -> Result<JudgeRoute, String> {
        let route = JudgeRoute::of_entry(
            &entry(provider, model, endpoint),
            &JudgeOverrides::default(),
        );
        route.map_err(|e| e.to_string())
    }

    #[test]
    fn providers_become_endpoints() {
        for (provider, model, endpoint, full, url) in [
            ("openai", "gpt-4o", None, "openai/gpt-4o", None),
            ("openai", "openai/gpt-4o", None, "openai/gpt-4o", None),
            ("Anthropic", "claude-x", None, "anthropic/claude-x", None),
            ("google", "gemini-x", None, "gemini/gemini-x", None),
            (
                "groq",
                "openai/gpt-oss",
                None,
                "openai/openai/gpt-oss",
                Some(GROQ_URL),
            ),
            ("ollama", "llama3", None, "openai/llama3", Some(OLLAMA_URL)),
            (
                "ollama",
                "l",
                Some("http://h:1/"),
                "openai/l",
                Some("http://h:1/v1"),
            ),
            (
                "mine",
                "m",
                Some("http://h:1/v1"),
                "openai/m",
                Some("http://h:1/v1"),
            ),
        ] {
            let route = route(provider, model, endpoint).unwrap();
            assert_eq!(route.model, full);
            assert_eq!(route.provider.url.as_deref(), url);
            assert_eq!(route.name.model, model);
            assert_eq!((route.tries, route.timeout.as_millis()), (3, 1500));
        }
        let unknown = route("opnai", "m", None).unwrap_err();
        assert!(unknown.contains("did you mean `openai`"), "{unknown}");
        assert!(route("openai", "m", Some("no address")).is_err());
    }

    #[test]
    fn a_server_of_ones_own_gets_no_key_of_a_provider() {
        for provider in ["ollama", "mine"] {
            let route = route(provider, "m", Some("http://h:1/v1")).unwrap();
            assert_eq!(route.provider.key.as_deref(), Some(NO_KEY));
        }
    }

    #[test]
    fn what_the_user_says_goes_first() {
        let given = ProviderSettings {
            url: Some("http://other:2/v1".to_owned()),
            ..ProviderSettings::default()
        };
        let route = route("ollama", "llama3", None).unwrap().at(&given);
        assert_eq!(route.provider.url.as_deref(), Some("http://other:2/v1"));
        assert_eq!(route.provider.key, None);
        assert_eq!(route.with_model("openai/x").name.model, "x");
    }
}
