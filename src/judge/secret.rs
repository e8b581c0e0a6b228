//! Keys: read from the environment or a file, never written anywhere.

mod address;
mod base_url;
mod header;
mod writing;

use std::ops::Range;
use std::path::Path;

pub use address::{Written, host_of, masked_url, masked_webhook, url_fault, url_secrets};
pub use base_url::BaseUrl;
pub use header::{header_secrets, masked_header};

/// Texts that must not appear in anything that is written, and what stands for them.
#[derive(Clone, Default)]
pub struct Secrets(Vec<Secret>);

#[derive(Clone, PartialEq)]
struct Secret {
    text: String,
    shown: String,
    /// Taken out only where it stands alone, not inside of a longer word.
    alone: bool,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

/// Shorter texts occur by chance; taking them out would garble everything.
const SHORTEST: usize = 6;
/// With letters and digits, and standing alone, a text of this length is no word of a language.
const SHORTEST_ALONE: usize = 4;
/// Stands where a secret was.
pub const SECRET: &str = "[secret]";

impl Secrets {
    /// Adds a secret. One of less than six bytes is found only where it stands alone and has letters and digits; one of less
    /// than four is not looked for.
    pub fn add(&mut self, secret: &str) {
        let text = secret.trim();
        let has = |kind: fn(&char) -> bool| text.chars().any(|c| kind(&c));
        let mixed = has(char::is_ascii_digit) && has(char::is_ascii_alphabetic);
        if text.len() >= SHORTEST || (mixed && text.len() >= SHORTEST_ALONE) {
            self.put(text, SECRET, text.len() < SHORTEST);
        }
    }

    /// Adds a text that holds a secret, of whatever length, and what is shown in its place where it is no piece of a longer word.
    pub fn add_shown(&mut self, text: &str, shown: &str) {
        if text != shown {
            self.put(text, shown, true);
        }
    }

    fn put(&mut self, text: &str, shown: &str, alone: bool) {
        if !self.0.iter().any(|known| known.text == text) {
            let (text, shown) = (text.to_owned(), shown.to_owned());
            self.0.push(Secret { text, shown, alone });
            // What holds another secret goes before it.
            self.0.sort_by_key(|s| std::cmp::Reverse(s.text.len()));
        }
    }

    /// A text without the secrets, in whichever writing they stand in it: as they are, or escaped as in JSON and in URLs.
    pub fn scrub(&self, text: &str) -> String {
        self.replaced(text, |_, shown| shown.to_owned())
    }

    /// A judge's reply without the secrets. It reads as the same verdict: only texts in it change, no key and no number that a
    /// reader may look for. So a key of small letters stays, and a part of a number; a number that is a secret as a whole
    /// becomes a text.
    pub fn scrub_reply(&self, text: &str) -> String {
        self.replaced(text, |found, shown| {
            writing::as_in_reply(text, found, shown)
        })
    }

    fn replaced(&self, text: &str, replace: impl Fn(Range<usize>, &str) -> String) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        let mut clean = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(next) = text[at..].chars().next() {
            let found = self.0.iter().find_map(|secret| {
                let end = writing::end_of(&secret.text, text, at)?;
                let stands = !secret.alone || writing::stands_alone(text, &(at..end));
                stands.then_some((end, secret))
            });
            let Some((end, secret)) = found else {
                clean.push(next);
                at += next.len_utf8();
                continue;
            };
            let shown = replace(at..end, &secret.shown);
            // Half of an escape that the secret's first letter was the other half of.
            let escapes = clean.len() - clean.trim_end_matches('\\').len();
            if escapes % 2 == 1 && shown != text[at..end] {
                clean.pop();
            }
            clean.push_str(&shown);
            at = end;
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

/// A setting with `${NAME}` replaced by environment variables, and where their values are in it; `$$` is a dollar sign.
///
/// # Errors
/// If a variable is not set or a placeholder has no end. The message does not show the value.
pub fn with_variables(
    setting: &str,
    text: &str,
) -> Result<(String, Vec<Range<usize>>), SecretError> {
    let (mut filled, mut places) = (String::new(), Vec::new());
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
            places.push(filled.len()..filled.len() + value.len());
            filled.push_str(&value);
            rest = after;
        } else {
            filled.push('$');
        }
    }
    filled.push_str(rest);
    Ok((filled, places))
}

/// Whether a text has a `${NAME}`; `$$` is a dollar sign.
fn has_placeholder(text: &str) -> bool {
    text.replace("$$", "").contains("${")
}

/// Whether a text is made of `${NAME}` and nothing else.
fn only_placeholders(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, after)) = rest.strip_prefix("${").and_then(|r| r.split_once('}')) {
        rest = after;
    }
    rest.is_empty() && !text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(texts: &[&str]) -> Secrets {
        let mut secrets = Secrets::default();
        texts.iter().for_each(|text| secrets.add(text));
        secrets
    }

    #[test]
    fn secrets_are_taken_out_of_texts_and_of_debug_output() {
        let secrets = secrets(&["Bearer sk-canary-123", "sk-canary-123", "abc"]);
        assert_eq!(
            secrets.scrub("key sk-canary-123 of Bearer sk-canary-123, abc"),
            "key [secret] of [secret], abc"
        );
        assert!(!format!("{secrets:?}").contains("canary"));
    }

    #[test]
    fn a_short_secret_is_found_where_it_stands_alone() {
        let short = secrets(&["pw12", "test", "a1"]);
        assert_eq!(
            short.scrub("pw12 of pw123, \"pw12\": test a1"),
            "[secret] of pw123, \"[secret]\": test a1"
        );
        let mut shown = Secrets::default();
        shown.add_shown("http://h/ab/v1", "http://h/[secret]/v1");
        assert_eq!(
            shown.scrub("at http://h/ab/v1/x and ab"),
            "at http://h/[secret]/v1/x and ab"
        );
    }

    #[test]
    fn a_reply_reads_as_before() {
        let secrets = secrets(&["confidence", "secret key 1", "123456", "nightkey1"]);
        for (reply, kept) in [
            (
                r#"{"confidence": 0.123456, "reason": "confidence of secret key 1"}"#,
                r#"{"confidence": 0.123456, "reason": "[secret] of [secret]"}"#,
            ),
            (
                r#"{"n": 123456, "m": [1234567]}"#,
                r#"{"n": "[secret]", "m": [1234567]}"#,
            ),
            (
                r#"{"reason": "a, 123456, b"}"#,
                r#"{"reason": "a, [secret], b"}"#,
            ),
            (
                "```json\n{\"confidence\" : 1}\n```",
                "```json\n{\"confidence\" : 1}\n```",
            ),
            (
                r#"{"reason": "\nightkey1 \\nightkey1"}"#,
                r#"{"reason": "[secret] \\[secret]"}"#,
            ),
            ("my confidence is 123456", "my [secret] is [secret]"),
        ] {
            assert_eq!(secrets.scrub_reply(reply), kept);
        }
    }

    #[test]
    fn variables_are_filled_in() {
        let path = std::env::var("PATH").unwrap();
        let (filled, places) = with_variables("x", "a ${PATH} $$ $b").unwrap();
        assert_eq!(filled, format!("a {path} $ $b"));
        assert!(matches!(&places[..], [place] if filled[place.clone()] == path));
        let message = with_variables("judge-headers", "k=${NIGHTMILL_NOT_SET_ANYWHERE}")
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("judge-headers") && message.contains("NIGHTMILL_NOT_SET_ANYWHERE")
        );
        assert!(with_variables("x", "${PATH").is_err());
    }

    #[test]
    fn placeholders_are_told_from_what_is_written_out() {
        for (text, has, only) in [
            ("${KEY}", true, true),
            ("${A}${B}", true, true),
            ("a${B}", true, false),
            ("$${KEY}", false, false),
            ("", false, false),
        ] {
            assert_eq!(
                (has_placeholder(text), only_placeholders(text)),
                (has, only),
                "{text}"
            );
        }
    }
}
