//! Where judges are asked, and what opens the door there.

use std::time::Duration;

use super::wrong;
use crate::job::{Job, SettingsError};
use crate::judge::{
    Protocol, ProviderSettings, key_of_file, resolve, resolve_at, url_fault, with_variables,
};

/// What the endpoint at --judge-url speaks.
fn protocol(job: &Job) -> Result<Protocol, SettingsError> {
    match (job.judge_protocol, &job.judge_url) {
        (Some(_), None) => wrong(
            "--judge-protocol: the provider's own endpoint speaks one protocol, which the model's name says; \
             it is for an endpoint that is named with --judge-url"
                .into(),
        ),
        (protocol, _) => Ok(protocol.unwrap_or_default()),
    }
}

/// The full name of a model where these settings ask it.
pub(super) fn full_name(job: &Job, name: &str) -> Result<String, SettingsError> {
    let protocol = protocol(job)?;
    Ok(match job.judge_url {
        Some(_) => resolve_at(name, protocol),
        None => resolve(name),
    })
}

/// The endpoint that judges are asked at, and what opens it.
///
/// # Errors
/// If the address, a header or the key file is no good. The message shows no secret.
pub fn provider(job: &Job) -> Result<ProviderSettings, SettingsError> {
    let secret = |e: crate::judge::SecretError| SettingsError(e.to_string());
    let (url, filled) = match &job.judge_url {
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
    let headers = job
        .judge_headers
        .clone()
        .unwrap_or_default()
        .into_iter()
        .map(|(name, value)| {
            let (value, places) = with_variables("judge-headers", &value).map_err(secret)?;
            let values = places.into_iter().filter_map(|place| value.get(place));
            secrets.extend(values.map(str::to_owned));
            Ok((name, value))
        })
        .collect::<Result<_, SettingsError>>()?;
    let key = job
        .judge_key_file
        .as_deref()
        .map(key_of_file)
        .transpose()
        .map_err(secret)?;
    Ok(ProviderSettings {
        secrets,
        filled,
        url,
        protocol: protocol(job)?,
        key,
        headers,
        connect_timeout: Duration::from_secs(10),
    })
}
