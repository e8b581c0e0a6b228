//! Names of judge models: which provider a name means and what that provider needs. As in PandaProbe.

use super::protocol::Protocol;

/// A provider that nightmill knows credentials for. Other names are passed on as they are and need none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// `openai/`
    OpenAi,
    /// `anthropic/`
    Anthropic,
    /// `gemini/`
    Gemini,
    /// `vertex_ai/`
    VertexAi,
}

/// Starts of bare names that mean a provider.
const FAMILIES: [(&str, Provider); 5] = [
    ("gpt-", Provider::OpenAi),
    ("o1-", Provider::OpenAi),
    ("o3-", Provider::OpenAi),
    ("claude-", Provider::Anthropic),
    ("gemini-", Provider::Gemini),
];

impl Provider {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OpenAi, Self::Anthropic, Self::Gemini, Self::VertexAi];

    /// The provider whose protocol this is.
    pub fn speaking(protocol: Protocol) -> Self {
        match protocol {
            Protocol::OpenAi => Self::OpenAi,
            Protocol::Anthropic => Self::Anthropic,
            Protocol::Gemini => Self::Gemini,
        }
    }

    /// How it is spoken to; none if it is not.
    pub fn protocol(self) -> Option<Protocol> {
        match self {
            Self::OpenAi => Some(Protocol::OpenAi),
            Self::Anthropic => Some(Protocol::Anthropic),
            Self::Gemini => Some(Protocol::Gemini),
            Self::VertexAi => None,
        }
    }

    /// Where it is asked; none if it is not.
    pub fn base_url(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("https://api.openai.com/v1"),
            Self::Anthropic => Some("https://api.anthropic.com/v1"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            Self::VertexAi => None,
        }
    }

    /// Starts of bare names that mean this provider.
    pub fn families(self) -> impl Iterator<Item = &'static str> {
        let of_this = FAMILIES.iter().filter(move |(_, of)| *of == self);
        of_this.map(|(start, _)| *start)
    }

    /// The provider of a resolved model name, if it is a known one.
    pub fn of(resolved: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|provider| resolved.starts_with(provider.prefix()))
    }

    /// What model names of this provider start with, slash included.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::OpenAi => "openai/",
            Self::Anthropic => "anthropic/",
            Self::Gemini => "gemini/",
            Self::VertexAi => "vertex_ai/",
        }
    }

    /// The environment variable that must be set.
    pub fn credential_variable(self) -> &'static str {
        match self {
            Self::OpenAi => "OPENAI_API_KEY",
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::Gemini => "GEMINI_API_KEY",
            Self::VertexAi => "GOOGLE_CLOUD_PROJECT",
        }
    }
}

/// The provider of the judge model lacks its credentials (code `provider_not_configured`). No call is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the judge model `{model}` needs the environment variable {variable}; set it or choose another model"
)]
pub struct ProviderNotConfigured {
    /// The resolved name.
    pub model: String,
    /// The variable that is missing or empty.
    pub variable: &'static str,
}

impl ProviderNotConfigured {
    /// The code of failed scores.
    pub const CODE: &'static str = "provider_not_configured";
}

/// Whether a model of this name reasons before it replies: such models refuse a temperature, and their limit of tokens goes by another
/// name.
pub(super) fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    ["gpt-5", "gpt-6", "o1", "o3", "o4"]
        .iter()
        .any(|family| name.starts_with(family))
}

/// The full name of a model: a bare name of a known family gets the prefix of its provider, any other name stays. Applied twice
/// it changes nothing more.
pub fn resolve(name: &str) -> String {
    if Provider::of(name).is_some() {
        return name.to_owned();
    }
    match FAMILIES.iter().find(|(start, _)| name.starts_with(start)) {
        Some((_, provider)) => format!("{}{name}", provider.prefix()),
        None => name.to_owned(),
    }
}

/// The full name of a model at an endpoint of one's own, which speaks this protocol: as [`resolve`], for bare names of the families
/// of that protocol's provider. Whatever else a name looks like, it is the endpoint's.
pub fn resolve_at(name: &str, protocol: Protocol) -> String {
    let provider = Provider::speaking(protocol);
    let bare = Provider::of(name).is_none();
    match bare && provider.families().any(|start| name.starts_with(start)) {
        true => format!("{}{name}", provider.prefix()),
        false => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_an_endpoint_of_ones_own_are_its_own() {
        use Protocol::{Anthropic, Gemini, OpenAi};
        for (name, protocol, expected) in [
            ("gpt-4o", OpenAi, "openai/gpt-4o"),
            ("openai/gpt-4o", OpenAi, "openai/gpt-4o"),
            ("claude-x", OpenAi, "claude-x"),
            ("anthropic/claude-x", OpenAi, "anthropic/claude-x"),
            ("claude-x", Anthropic, "anthropic/claude-x"),
            ("gpt-4o", Anthropic, "gpt-4o"),
            ("gemini-2", Gemini, "gemini/gemini-2"),
            ("vertex_ai/gemini-x", OpenAi, "vertex_ai/gemini-x"),
        ] {
            assert_eq!(resolve_at(name, protocol), expected);
            assert_eq!(resolve_at(expected, protocol), expected);
        }
    }

    #[test]
    fn names_resolve_by_prefix_and_family() {
        for (name, expected) in [
            ("gpt-4o", "openai/gpt-4o"),
            ("o1-mini", "openai/o1-mini"),
            ("o3-x", "openai/o3-x"),
            ("o3", "o3"),
            ("claude-x", "anthropic/claude-x"),
            ("gemini-2", "gemini/gemini-2"),
            ("vertex_ai/gemini-x", "vertex_ai/gemini-x"),
            ("openai/claude-x", "openai/claude-x"),
            ("groq/gpt-oss", "groq/gpt-oss"),
            ("GPT-4o", "GPT-4o"),
            ("openai", "openai"),
            ("", ""),
        ] {
            assert_eq!(resolve(name), expected);
            assert_eq!(resolve(expected), expected);
        }
    }
}
