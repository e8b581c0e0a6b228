//! Settings as a manifest keeps them: whole paths, and no secrets.
//!
//! What stands for a secret is kept, a secret is not: `${NAME}` stays `${NAME}`, a key file is its path, and a value that is
//! written out in a header or in a URL becomes `[secret]`.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::job::{Settings, SettingsError, problem};
use crate::judge::{SECRET, Written, masked_header, masked_url};

impl Settings {
    /// These settings by key, those that were not given left out. Relative paths become whole ones, by the working folder.
    /// Empty if a path is not UTF-8, which JSON can't hold.
    pub fn recorded(&self) -> Map<String, Value> {
        let mut kept = self.clone();
        kept.signals = kept.signals.map(|path| {
            let whole = std::path::absolute(&path);
            whole.map_or(path, |whole| whole.display().to_string())
        });
        for path in [
            &mut kept.model,
            &mut kept.cache,
            &mut kept.judge.ledger,
            &mut kept.judge.judge_config,
            &mut kept.judge.judge_key_file,
        ] {
            *path = path.take().map(whole);
        }
        kept.judge.judge_url = kept
            .judge
            .judge_url
            .map(|url| masked_url(&url, Written::AsGiven));
        for header in kept.judge.judge_headers.iter_mut().flatten() {
            *header = masked_header(header);
        }
        let mut map = match serde_json::to_value(&kept) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        };
        map.retain(|_, value| !value.is_null() && *value != Value::Bool(false));
        map
    }

    /// Settings out of a manifest.
    ///
    /// # Errors
    /// [`SettingsError`] naming a key that is none of this version's, or that has another type.
    pub fn of_record(record: &Map<String, Value>) -> Result<Self, SettingsError> {
        let keys = super::keys();
        let is_known = |name: &String| keys.iter().any(|key| key.name == *name);
        if let Some(unknown) = record.keys().find(|name| !is_known(name)) {
            return problem(format!(
                "the setting `{unknown}` of the manifest is not known to this version of nightmill"
            ));
        }
        serde_json::from_value(Value::Object(record.clone()))
            .map_err(|e| SettingsError(format!("settings of the manifest: {e}")))
    }

    /// The flags whose secrets were not kept, as they are to be given again.
    pub fn missing_secrets(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let url = self.judge.judge_url.as_deref().unwrap_or_default();
        if url.contains(SECRET) {
            missing.push(format!("--judge-url {url}"));
        }
        for header in self.judge.judge_headers.iter().flatten() {
            if header.contains(SECRET) {
                missing.push(format!("--judge-headers '{header}'"));
            }
        }
        missing
    }
}

fn whole(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_setting_comes_back_as_it_was_kept() {
        for key in super::super::keys() {
            let value = match key.is_switch {
                true => "true",
                false => "\"/x=1\"",
            };
            let key = key.name.as_str();
            let settings = Settings::of_toml(&format!("{key} = {value}")).unwrap();
            let record = settings.recorded();
            assert_eq!(record.keys().collect::<Vec<_>>(), [key]);
            let back = Settings::of_record(&record).unwrap();
            assert_eq!(back.recorded(), record, "{key}");
            if key != "judge_headers" {
                assert_eq!(back, settings, "{key}");
            }
        }
        assert_eq!(Settings::default().recorded(), Map::new());
    }

    #[test]
    fn paths_become_whole() {
        let settings = Settings::of_toml("signals = \"s.parquet\"\nledger = \"l.db\"").unwrap();
        let back = Settings::of_record(&settings.recorded()).unwrap();
        assert!(Path::new(&back.signals.unwrap()).is_absolute());
        assert!(back.judge.ledger.unwrap().is_absolute());
    }

    #[test]
    fn what_was_not_kept_is_asked_for_by_flag() {
        let text =
            "judge_url = \"http://a:b@host/v1\"\njudge_headers = [\"x-key=abc\", \"y=${Y}\"]";
        let settings = Settings::of_toml(text).unwrap();
        assert!(settings.missing_secrets().is_empty());
        let record = settings.recorded();
        let text = Value::Object(record.clone()).to_string();
        assert!(!text.contains("abc") && text.contains("${Y}"), "{text}");
        let missing = Settings::of_record(&record).unwrap().missing_secrets();
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[1].contains("x-key"), "{missing:?}");
    }

    #[test]
    fn a_key_of_another_version_is_named() {
        let mut record = Map::new();
        record.insert("windw".into(), Value::from("3"));
        let error = Settings::of_record(&record).unwrap_err().to_string();
        assert!(error.contains("`windw`"), "{error}");
    }
}
