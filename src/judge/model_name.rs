//! Names of judge models: which provider a name means and what that provider needs. (Specification, section 11.)

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

const ALL: [Provider; 4] = [
    Provider::OpenAi,
    Provider::Anthropic,
    Provider::Gemini,
    Provider::VertexAi,
];

/// Starts of bare names that mean a provider.
const FAMILIES: [(&str, Provider); 5] = [
    ("gpt-", Provider::OpenAi),
    ("o1-", Provider::OpenAi),
    ("o3-", Provider::OpenAi),
    ("claude-", Provider::Anthropic),
    ("gemini-", Provider::Gemini),
];

impl Provider {
    /// The provider of a resolved model name, if it is a known one.
    pub fn of(resolved: &str) -> Option<Self> {
        ALL.into_iter()
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

#[cfg(test)]
mod tests {
    use super::*;

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
