//! `NAME=VALUE`: settings with a value for each of several names.

use super::{SettingsError, problem};

/// The setting whose values are keys.
const HEADERS: &str = "judge-headers";
/// Settings of a monitor, which may be headers and URLs.
const SET: &str = "set";

/// `a=b` pairs, each name once. Names of headers are the same in small and in capital letters.
///
/// # Errors
/// If an item has no `=`, or a name comes twice. The message shows no value that may be a secret.
pub fn split_pairs(
    setting: &str,
    items: &[String],
) -> Result<Vec<(String, String)>, SettingsError> {
    let mut pairs: Vec<(String, String)> = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let number = at + 1;
        let (key, value) = match item.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => (key.trim(), value.trim()),
            _ if setting == HEADERS => {
                return problem(format!(
                    "--{HEADERS}: header {number} has no `=`: expected NAME=VALUE; a comma begins the next header, so a value with a \
                     comma goes into a variable, as ${{NAME}}"
                ));
            }
            _ if setting == SET && !item.chars().all(is_of_name) => {
                return problem(format!("--{SET}, number {number}: expected NAME=VALUE"));
            }
            _ => return problem(format!("--{setting} {item}: expected NAME=VALUE")),
        };
        let same = |other: &str| match setting {
            HEADERS => other.eq_ignore_ascii_case(key),
            _ => other == key,
        };
        if pairs.iter().any(|(earlier, _)| same(earlier)) {
            return problem(match setting {
                // What comes before a `=` may be a key whose header has none.
                HEADERS => {
                    format!("--{HEADERS}: header {number} was given before; give each name once")
                }
                _ => format!("--{setting} {key}: given twice"),
            });
        }
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_lowercase() || c == '-' || c == '_'
}

/// `a=number` pairs.
///
/// # Errors
/// If an item is no pair or its value no number.
pub fn split_numbers(setting: &str, items: &[String]) -> Result<Vec<(String, f64)>, SettingsError> {
    split_pairs(setting, items)?
        .into_iter()
        .map(|(key, value)| match value.parse::<f64>() {
            Ok(number) => Ok((key, number)),
            Err(_) => problem(format!(
                "--{setting} {key}={value}: `{value}` is not a number"
            )),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_given_once() {
        let pairs = |setting, items: [&str; 2]| {
            let items = items.map(str::to_owned);
            split_pairs(setting, &items).map_err(|e| e.to_string())
        };
        assert_eq!(pairs("map", ["a=1", "b=1"]).unwrap().len(), 2);
        for setting in ["map", "price", "judge-only", "judge-headers"] {
            let message = pairs(setting, ["a=1", " a =2"]).unwrap_err();
            assert!(
                message.contains("twice") || message.contains("before"),
                "{message}"
            );
        }
        assert!(pairs("judge-headers", ["X-Title=1", "x-title=2"]).is_err());
        assert!(pairs("map", ["A=1", "a=2"]).is_ok());
    }

    #[test]
    fn messages_show_no_keys() {
        let canary = "sk-canary-7f3a";
        let refused = |setting, item: String| {
            let items = ["a=1".to_owned(), item];
            split_pairs(setting, &items).unwrap_err().to_string()
        };
        for item in [
            format!("Authorization: Bearer {canary}"),
            canary.to_owned(),
            format!("={canary}"),
        ] {
            for setting in ["judge-headers", "set"] {
                let message = refused(setting, item.clone());
                assert!(!message.contains("canary"), "{message}");
                assert!(
                    message.contains("NAME=VALUE") && message.contains('2'),
                    "{message}"
                );
            }
        }
        assert!(refused("set", "window".into()).contains("window"));
    }
}
