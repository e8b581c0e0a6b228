//! The way to a model: which protocol, where, under which name and with which headers.

use super::{ProviderError, ProviderSettings};
use crate::judge::model_name::{Provider, ProviderNotConfigured};
use crate::judge::protocol::Protocol;
use crate::judge::secret::BaseUrl;

/// As they are written everywhere here; names of headers are compared without case.
const AUTHORIZATION: &str = "Authorization";
/// The version of Anthropic's protocol that is spoken.
const ANTHROPIC_VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// How a model is reached.
pub(super) struct Route {
    pub protocol: Protocol,
    pub base: BaseUrl,
    /// The model's name as the endpoint knows it.
    pub name: String,
    key_variable: &'static str,
}

impl Route {
    /// At an endpoint of one's own the settings say the protocol, whatever the model is called; the prefix of that protocol's
    /// provider is ours and is not sent. Elsewhere the prefix is the provider.
    pub fn of(model: &str, settings: &ProviderSettings) -> Result<Self, ProviderError> {
        let unknown = || ProviderError::UnknownProvider {
            model: model.to_owned(),
        };
        let named = Provider::of(model);
        let provider = match (&settings.url, named) {
            (Some(_), _) => Provider::speaking(settings.protocol),
            (None, Some(provider)) => provider,
            (None, None) => return Err(unknown()),
        };
        let (Some(protocol), Some(own)) = (provider.protocol(), provider.base_url()) else {
            return Err(ProviderError::NotSpoken {
                model: model.to_owned(),
            });
        };
        let name = model.strip_prefix(provider.prefix()).unwrap_or(model);
        if name.is_empty() {
            return Err(unknown());
        }
        Ok(Self {
            protocol,
            base: BaseUrl::of(settings.url.as_deref().unwrap_or(own)),
            name: name.to_owned(),
            key_variable: provider.credential_variable(),
        })
    }

    /// What names the place where `model` is asked, with the protocol where that is not the one that the model's name stands for:
    /// one endpoint may speak several.
    pub fn identity(&self, model: &str) -> String {
        let of_name = Provider::of(model).and_then(Provider::protocol);
        let identity = self.base.identity();
        match of_name.unwrap_or_default() == self.protocol {
            true => identity.to_owned(),
            false => format!("{identity} ({})", self.protocol.name()),
        }
    }

    /// The key; none only where a server of one's own may need none.
    pub fn needed_key(
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
        match self.protocol {
            Protocol::Anthropic => "x-api-key",
            Protocol::Gemini => "x-goog-api-key",
            Protocol::OpenAi => AUTHORIZATION,
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
    pub fn headers(&self, key: Option<&str>, settings: &ProviderSettings) -> Vec<(String, String)> {
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
        if self.protocol == Protocol::Anthropic {
            let (name, version) = ANTHROPIC_VERSION;
            unless_given(name, version.to_owned());
        }
        headers
    }

    /// The key that is sent; none where the user says something else in its place.
    pub fn key(&self, settings: &ProviderSettings) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at_url(protocol: Protocol) -> ProviderSettings {
        ProviderSettings {
            url: Some("http://h:1/v1".into()),
            protocol,
            ..ProviderSettings::default()
        }
    }

    #[test]
    fn without_a_url_the_prefix_is_the_provider() {
        let usual = ProviderSettings::default();
        let way = |model| {
            let route = Route::of(model, &usual).unwrap();
            (route.identity(model), route.name)
        };
        assert_eq!(
            way("openai/org/x"),
            ("https://api.openai.com/v1/".into(), "org/x".into())
        );
        assert!(way("anthropic/x").0.contains("anthropic"));
        assert!(way("gemini/x").0.contains("googleapis"));
        for bad in ["x", "openai/", "/x", "other/x"] {
            let error = Route::of(bad, &usual).map(|r| r.name).unwrap_err();
            assert!(error.to_string().contains("openai/"), "{error}");
        }
        let vertex = Route::of("vertex_ai/x", &usual).map(|r| r.name);
        assert!(matches!(vertex, Err(ProviderError::NotSpoken { .. })));
    }

    #[test]
    fn a_url_speaks_one_protocol_whatever_the_model_is_called() {
        use Protocol::{Anthropic, Gemini, OpenAi};
        for (protocol, model, name, mark) in [
            (OpenAi, "openai/gpt-4o", "gpt-4o", ""),
            (OpenAi, "openai/org/llama", "org/llama", ""),
            (OpenAi, "org/llama", "org/llama", ""),
            (OpenAi, "claude-x", "claude-x", ""),
            (
                OpenAi,
                "anthropic/claude-x",
                "anthropic/claude-x",
                " (openai)",
            ),
            (OpenAi, "gemini/gemini-x", "gemini/gemini-x", " (openai)"),
            (OpenAi, "vertex_ai/gemini-x", "vertex_ai/gemini-x", ""),
            (Anthropic, "anthropic/claude-x", "claude-x", ""),
            (Anthropic, "claude-x", "claude-x", " (anthropic)"),
            (Anthropic, "openai/x", "openai/x", " (anthropic)"),
            (Gemini, "gemini/gemini-x", "gemini-x", ""),
        ] {
            let route = Route::of(model, &at_url(protocol)).unwrap();
            assert_eq!((route.protocol, route.name.as_str()), (protocol, name));
            assert_eq!(route.identity(model), format!("http://h:1/v1/{mark}"));
        }
        assert!(Route::of("openai/", &at_url(OpenAi)).is_err());
    }
}
