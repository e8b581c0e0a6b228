//! Settings as a manifest keeps them: whole paths, and no secrets.
//!
//! What stands for a secret is kept, a secret is not: `${NAME}` stays `${NAME}`, a key file is its path, and a value that is
//! written out in a header or in a URL becomes `[secret]`.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::{Settings, SettingsError, problem};

/// Stands where a secret was.
const SECRET: &str = "[secret]";
/// Words of a header's value that say how the key follows.
const SCHEMES: [&str; 5] = ["Bearer", "Basic", "Token", "ApiKey", "Key"];
/// Parts of a URL's query that are no secrets.
const OPEN: [&str; 4] = ["api-version", "version", "model", "deployment"];

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
            .map(|url| map_url_secrets(&url, |_| SECRET.to_owned()));
        for header in kept.judge.judge_headers.iter_mut().flatten() {
            *header = without_secret(header);
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
        if let Some(unknown) = record.keys().find(|key| !keys.contains(&key.as_str())) {
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

/// Whether a text has a `${NAME}`; `$$` is a dollar sign.
fn has_placeholder(text: &str) -> bool {
    text.replace("$$", "").contains("${")
}

/// A header `name=value` without what is written out of its key.
fn without_secret(header: &str) -> String {
    let Some((name, value)) = header.split_once('=') else {
        return header.to_owned();
    };
    if !has_placeholder(value) {
        return format!("{name}={SECRET}");
    }
    let words = value.split_whitespace().map(|word| {
        let is_scheme = SCHEMES.iter().any(|s| s.eq_ignore_ascii_case(word));
        match is_scheme || has_placeholder(word) {
            true => word,
            false => SECRET,
        }
    });
    format!("{name}={}", words.collect::<Vec<_>>().join(" "))
}

/// The secrets that are written out in a URL: its user and password, and the values of its query.
pub fn secrets_of_url(url: &str) -> Vec<String> {
    let mut found = Vec::new();
    map_url_secrets(url, |secret| {
        found.push(secret.to_owned());
        String::new()
    });
    found
}

/// A URL with each secret that is written out in it replaced.
fn map_url_secrets(url: &str, mut other: impl FnMut(&str) -> String) -> String {
    let mut replaced = |text: &str| match text.is_empty() || has_placeholder(text) {
        true => text.to_owned(),
        false => other(text),
    };
    let (address, query) = match url.split_once('?') {
        Some((address, query)) => (address, Some(query)),
        None => (url, None),
    };
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), address),
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = match host.rsplit_once('@') {
        Some((user, host)) => {
            let parts: Vec<String> = user.split(':').map(&mut replaced).collect();
            format!("{}@{host}", parts.join(":"))
        }
        None => host.to_owned(),
    };
    let query = query.map(|query| {
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some((key, value)) if !OPEN.contains(&key) => format!("{key}={}", replaced(value)),
            _ => pair.to_owned(),
        });
        format!("?{}", pairs.collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}{host}{path}{}", query.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_setting_comes_back_as_it_was_kept() {
        let switches = [super::super::SWITCHES, super::super::judge::SWITCHES].concat();
        for key in super::super::keys() {
            let value = match switches.contains(&key) {
                true => "true",
                false => "\"/x=1\"",
            };
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
    fn secrets_that_are_written_out_are_not_kept() {
        for (given, kept) in [
            ("x-key=sk-123", "x-key=[secret]"),
            ("x-key=ab", "x-key=[secret]"),
            ("x-key=${KEY}", "x-key=${KEY}"),
            ("x-key=$${KEY}", "x-key=[secret]"),
            ("authorization=Bearer ${KEY}", "authorization=Bearer ${KEY}"),
            ("authorization=sk-1 ${KEY}", "authorization=[secret] ${KEY}"),
        ] {
            assert_eq!(without_secret(given), kept);
        }
        for (given, kept) in [
            ("http://host:8000/v1", "http://host:8000/v1"),
            ("https://me:pw@host/v1", "https://[secret]:[secret]@host/v1"),
            ("https://${U}:${P}@host/v1", "https://${U}:${P}@host/v1"),
            ("https://host/${KEY}/v1", "https://host/${KEY}/v1"),
            (
                "https://host/v1?key=abc&api-version=2024-06-01&k=${K}",
                "https://host/v1?key=[secret]&api-version=2024-06-01&k=${K}",
            ),
            ("https://host?key=a@b", "https://host?key=[secret]"),
        ] {
            assert_eq!(map_url_secrets(given, |_| SECRET.into()), kept);
        }
        assert_eq!(
            secrets_of_url("https://me:pw@host/v1?key=abc"),
            ["me", "pw", "abc"]
        );
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
