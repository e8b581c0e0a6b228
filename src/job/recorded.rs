//! Settings as a manifest keeps them: whole paths, and no secrets.
//!
//! What stands for a secret is kept, a secret is not: `${NAME}` stays `${NAME}`, a key file is its path, and a value that is
//! written out in a header or in a URL becomes `[secret]`.

use serde_json::{Map, Value};

use super::{Given, SETTINGS, Setting, SettingsError, problem, split_pairs};
use crate::judge::{SECRET, Written, masked_header, masked_url};

impl Given {
    /// These settings by key, as a manifest keeps them. Relative paths become whole ones, by the working folder. Who is told
    /// of the run is no part of what it was asked, and stays unsaid.
    pub fn recorded(&self) -> Map<String, Value> {
        let told = |name: &str| Setting::named(name).is_some_and(Setting::of_alerts);
        let mut kept = self.with_whole_paths().only(|name| !told(name));
        kept.change("judge_url", |url| {
            masked(url, |url| masked_url(url, Written::AsGiven))
        });
        kept.change("judge_headers", |headers| {
            for header in headers.as_array_mut().into_iter().flatten() {
                masked(header, masked_header);
            }
        });
        kept.members().clone()
    }

    /// These settings with paths that mean the same in every folder.
    #[must_use]
    pub fn with_whole_paths(&self) -> Self {
        let mut kept = self.clone();
        for setting in SETTINGS {
            if setting.is_path() {
                kept.change(setting.name, |path| {
                    let given = path.as_str().unwrap_or_default();
                    // An address means the same everywhere. The query of one may be a signature.
                    if let Some((scheme, _)) = given.split_once("://") {
                        if scheme.to_ascii_lowercase().starts_with("http") {
                            *path = given.split('?').next().unwrap_or_default().into();
                        }
                        return;
                    }
                    if let Ok(whole) = std::path::absolute(given) {
                        *path = whole.display().to_string().into();
                    }
                });
            }
        }
        kept
    }

    /// Settings out of a manifest.
    ///
    /// # Errors
    /// [`SettingsError`] naming a key that is none of this version's, or that has another type.
    pub fn of_record(record: &Map<String, Value>) -> Result<Self, SettingsError> {
        let mut given = Self::default();
        for (name, value) in record {
            let Some(setting) = Setting::named(name) else {
                return problem(format!(
                    "the setting `{name}` of the manifest is not known to this version of nightmill"
                ));
            };
            given
                .set(setting, value.clone())
                .map_err(|e| SettingsError(format!("settings of the manifest: {e}")))?;
        }
        Ok(given)
    }

    /// Settings out of a manifest, with what was given again: it stands in the place of what was kept, and a header in the
    /// place of the one of its name.
    ///
    /// # Errors
    /// [`SettingsError`] for headers that are no pairs.
    pub fn given_again(self, again: &Self) -> Result<Self, SettingsError> {
        const HEADERS: &str = "judge_headers";
        let items = |given: &Self| -> Vec<String> {
            let items = given.get(HEADERS).and_then(Value::as_array);
            let items = items.into_iter().flatten().filter_map(Value::as_str);
            items.map(str::to_owned).collect()
        };
        let new = split_pairs("judge-headers", &items(again))?;
        let mut headers = items(&self);
        headers.retain(|header| {
            let name = header.split('=').next().unwrap_or_default();
            !new.iter()
                .any(|(other, _)| other.eq_ignore_ascii_case(name))
        });
        headers.extend(items(again));
        let given = again.clone().or(self);
        Ok(match headers.is_empty() {
            true => given,
            false => given.with(HEADERS, headers),
        })
    }

    /// The flags whose secrets were not kept, as they are to be given again.
    pub fn missing_secrets(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let url = self.get("judge_url").map(text).unwrap_or_default();
        if url.contains(SECRET) {
            missing.push(format!("--judge-url {url}"));
        }
        let headers = self.get("judge_headers").and_then(Value::as_array);
        for header in headers.into_iter().flatten().map(text) {
            if header.contains(SECRET) {
                missing.push(format!("--judge-headers '{header}'"));
            }
        }
        missing
    }
}

fn masked(value: &mut Value, mask: impl FnOnce(&str) -> String) {
    *value = mask(value.as_str().unwrap_or_default()).into();
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::job::Kind;

    #[test]
    fn every_setting_comes_back_as_it_was_kept() {
        for setting in SETTINGS {
            let value = match setting.kind {
                Kind::Switch => "true",
                _ => "\"/x=1\"",
            };
            let key = setting.name;
            let given = Given::of_toml(&format!("{key} = {value}")).unwrap();
            let record = given.recorded();
            if setting.of_alerts() {
                assert_eq!(record, Map::new(), "{key}");
                continue;
            }
            assert_eq!(record.keys().collect::<Vec<_>>(), [key]);
            let back = Given::of_record(&record).unwrap();
            assert_eq!(back.recorded(), record, "{key}");
            if key != "judge_headers" {
                assert_eq!(back, given, "{key}");
            }
        }
        assert_eq!(Given::default().recorded(), Map::new());
    }

    #[test]
    fn paths_become_whole() {
        for (given, kept) in [
            ("s3://b/s.parquet", "s3://b/s.parquet"),
            ("https://h/s.parquet?signature=x", "https://h/s.parquet"),
        ] {
            let given = Given::default().with("signals", given);
            assert_eq!(given.recorded()["signals"], kept);
        }
        let given = Given::of_toml("signals = \"s.parquet\"\nledger = \"l.db\"").unwrap();
        let record = given.recorded();
        for key in ["signals", "ledger"] {
            assert!(
                Path::new(record[key].as_str().unwrap()).is_absolute(),
                "{key}"
            );
        }
    }

    #[test]
    fn what_was_not_kept_is_asked_for_by_flag() {
        let text =
            "judge_url = \"http://a:b@host/v1\"\njudge_headers = [\"x-key=abc\", \"y=${Y}\"]";
        let given = Given::of_toml(text).unwrap();
        assert!(given.missing_secrets().is_empty());
        let record = given.recorded();
        let text = Value::Object(record.clone()).to_string();
        assert!(!text.contains("abc") && text.contains("${Y}"), "{text}");
        let missing = Given::of_record(&record).unwrap().missing_secrets();
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[1].contains("x-key"), "{missing:?}");
    }

    #[test]
    fn a_key_of_another_version_is_named() {
        let mut record = Map::new();
        record.insert("windw".into(), Value::from("3"));
        let error = Given::of_record(&record).unwrap_err().to_string();
        assert!(error.contains("`windw`"), "{error}");
    }
}
