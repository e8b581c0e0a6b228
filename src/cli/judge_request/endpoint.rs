//! Where judges are asked, and what opens the door there.

use std::time::Duration;

use super::pairs;
use crate::cli::request::{one_of, wrong};
use crate::job::{JudgeSettings, Settings, SettingsError};
use crate::judge::{
    Protocol, ProviderSettings, key_of_file, resolve, resolve_at, url_fault, with_variables,
};

/// What the endpoint at --judge-url speaks.
fn protocol(given: &JudgeSettings) -> Result<Protocol, SettingsError> {
    let known = Protocol::ALL.map(|protocol| (protocol.name(), protocol));
    let protocol = one_of("judge-protocol", given.judge_protocol.as_deref(), &known)?;
    match (protocol, &given.judge_url) {
        (Some(_), None) => wrong(
            "--judge-protocol: the provider's own endpoint speaks one protocol, which the model's name says; \
             it is for an endpoint that is named with --judge-url"
                .into(),
        ),
        (protocol, _) => Ok(protocol.unwrap_or_default()),
    }
}

/// The full name of a model where these settings ask it.
pub(super) fn full_name(given: &JudgeSettings, name: &str) -> Result<String, SettingsError> {
    let protocol = protocol(given)?;
    Ok(match given.judge_url {
        Some(_) => resolve_at(name, protocol),
        None => resolve(name),
    })
}

pub(in crate::cli) fn provider(settings: &Settings) -> Result<ProviderSettings, SettingsError> {
    let given = &settings.judge;
    let secret = |e: crate::judge::SecretError| SettingsError(e.to_string());
    let (url, filled) = match &given.judge_url {
        None => (None, Vec::new()),
        Some(url) => {
            let (url, filled) = with_variables("judge-url", url).map_err(secret)?;
            if let Some(fault) = url_fault(&url) {
                return wrong(format!("--judge-url: {fault}"));
            }
            (Some(url), filled)
        }
    };
    let mut secrets = Vec::new();
    let headers = pairs("judge-headers", given.judge_headers.as_deref())?
        .into_iter()
        .map(|(name, value)| {
            let (value, places) = with_variables("judge-headers", &value).map_err(secret)?;
            let values = places.into_iter().filter_map(|place| value.get(place));
            secrets.extend(values.map(str::to_owned));
            Ok((name, value))
        })
        .collect::<Result<_, SettingsError>>()?;
    let key = given
        .judge_key_file
        .as_deref()
        .map(key_of_file)
        .transpose()
        .map_err(secret)?;
    Ok(ProviderSettings {
        secrets,
        filled,
        url,
        protocol: protocol(given)?,
        key,
        headers,
        connect_timeout: Duration::from_secs(10),
    })
}
