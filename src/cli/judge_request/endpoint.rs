//! Where judges are asked, and what opens the door there.

use std::time::Duration;

use super::pairs;
use crate::cli::request::wrong;
use crate::config::{Settings, SettingsError};
use crate::judge::{ProviderSettings, key_of_file, url_fault, with_variables};

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
        key,
        headers,
        connect_timeout: Duration::from_secs(10),
    })
}
