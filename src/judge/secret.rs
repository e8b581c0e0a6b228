//! Keys: read from the environment or a file, never written anywhere.

use std::path::Path;

/// Texts that must not appear in anything that is written.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

/// Shorter texts occur by chance; taking them out would garble everything.
const SHORTEST: usize = 6;
const SHOWN: &str = "[secret]";

impl Secrets {
    /// Adds a secret.
    pub fn add(&mut self, secret: &str) {
        // A header's value is a scheme and a key.
        for part in secret.split_whitespace().chain([secret.trim()]) {
            if part.len() >= SHORTEST && !self.0.iter().any(|known| known == part) {
                self.0.push(part.to_owned());
            }
        }
        self.0.sort_by_key(|s| std::cmp::Reverse(s.len()));
    }

    /// A text without the secrets.
    pub fn scrub(&self, text: &str) -> String {
        let mut clean = text.to_owned();
        for secret in &self.0 {
            if clean.contains(secret.as_str()) {
                clean = clean.replace(secret.as_str(), SHOWN);
            }
        }
        clean
    }
}

/// A key file's or variable's problem.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SecretError(String);

/// The key in a file: its content without white space around it.
///
/// # Errors
/// If it can't be read or holds nothing.
pub fn key_of_file(path: &Path) -> Result<String, SecretError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|e| SecretError(format!("key file `{shown}`: {e}")))?;
    match text.trim() {
        "" => Err(SecretError(format!("key file `{shown}` is empty"))),
        key => Ok(key.to_owned()),
    }
}

/// A setting with `${NAME}` replaced by environment variables, and their values; `$$` is a dollar sign.
///
/// # Errors
/// If a variable is not set or a placeholder has no end. The message does not show the value.
pub fn with_variables(setting: &str, text: &str) -> Result<(String, Vec<String>), SecretError> {
    let (mut filled, mut values) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        filled.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            filled.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let Some((name, after)) = after.split_once('}') else {
                return Err(SecretError(format!("--{setting}: `${{` without `}}`")));
            };
            let value = std::env::var(name).map_err(|_| {
                SecretError(format!("--{setting}: the variable `{name}` is not set"))
            })?;
            filled.push_str(&value);
            values.push(value);
            rest = after;
        } else {
            filled.push('$');
        }
    }
    filled.push_str(rest);
    Ok((filled, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_of_texts_and_of_debug_output() {
        let mut secrets = Secrets::default();
        secrets.add("Bearer sk-canary-123");
        secrets.add("abc");
        assert_eq!(
            secrets.scrub("key sk-canary-123 of Bearer sk-canary-123, abc"),
            "key [secret] of [secret], abc"
        );
        assert!(!format!("{secrets:?}").contains("canary"));
    }

    #[test]
    fn variables_are_filled_in() {
        let path = std::env::var("PATH").unwrap();
        assert_eq!(
            with_variables("x", "a ${PATH} $$ $b").unwrap(),
            (format!("a {path} $ $b"), vec![path])
        );
        let message = with_variables("judge-headers", "k=${NIGHTMILL_NOT_SET_ANYWHERE}")
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("judge-headers") && message.contains("NIGHTMILL_NOT_SET_ANYWHERE")
        );
        assert!(with_variables("x", "${PATH").is_err());
    }
}
