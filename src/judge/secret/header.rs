//! Which headers are secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{SECRET, has_placeholder};

/// Words of a header's value that say how the key follows.
const SCHEMES: [&str; 5] = ["Bearer", "Basic", "Token", "ApiKey", "Key"];
/// Parts of the names of headers that carry keys.
const NAMES: [&str; 7] = [
    "key",
    "token",
    "secret",
    "password",
    "auth",
    "credential",
    "cookie",
];
/// A word of this length with letters and digits may be a key, whatever its header is called.
const KEY_LENGTH: usize = 16;

/// Whether a header is secret: its name says so, or its value looks like a key. Titles, addresses of pages and the like are none.
fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES.iter().any(|part| name.contains(part)) || value.split_whitespace().any(looks_like_a_key)
}

fn looks_like_a_key(word: &str) -> bool {
    word.len() >= KEY_LENGTH
        && !word.contains("://")
        && !has_placeholder(word)
        && word.bytes().any(|b| b.is_ascii_digit())
        && word.bytes().any(|b| b.is_ascii_alphabetic())
}

/// What is secret of a header: nothing, or its value, and what of it is the key.
pub fn header_secrets(name: &str, value: &str) -> Vec<String> {
    if !is_secret(name, value) {
        return Vec::new();
    }
    let mut found = vec![value.trim().to_owned()];
    if let Some((scheme, key)) = value.trim().split_once(char::is_whitespace) {
        let key = key.trim();
        if is_scheme(scheme) {
            found.push(key.to_owned());
        }
        let decoded = STANDARD
            .decode(key)
            .ok()
            .filter(|_| scheme.eq_ignore_ascii_case("Basic"));
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        found.extend(decoded.and_then(|pair| Some(pair.split_once(':')?.1.to_owned())));
    }
    if name.to_ascii_lowercase().contains("cookie") {
        let cookies = value.split(';').filter_map(|pair| pair.split_once('='));
        found.extend(cookies.map(|(_, value)| value.trim().to_owned()));
    }
    found
}

fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|s| s.eq_ignore_ascii_case(word))
}

/// A header `name=value` as it was given, without what is written out of its key.
pub fn masked_header(header: &str) -> String {
    let Some((name, value)) = header.split_once('=') else {
        // What was meant as a name may be a part of a key.
        return SECRET.to_owned();
    };
    if !is_secret(name, value) {
        return header.to_owned();
    }
    if !has_placeholder(value) {
        return format!("{name}={SECRET}");
    }
    let words =
        value
            .split_whitespace()
            .map(|word| match is_scheme(word) || has_placeholder(word) {
                true => word,
                false => SECRET,
            });
    format!("{name}={}", words.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_written_out_are_masked() {
        for (given, kept) in [
            ("x-key=sk-123", "x-key=[secret]"),
            ("x-key=ab", "x-key=[secret]"),
            ("x-key=${KEY}", "x-key=${KEY}"),
            ("x-key=$${KEY}", "x-key=[secret]"),
            ("authorization=Bearer ${KEY}", "authorization=Bearer ${KEY}"),
            ("authorization=sk-1 ${KEY}", "authorization=[secret] ${KEY}"),
            (
                "x-title=Agent confidence checks",
                "x-title=Agent confidence checks",
            ),
            (
                "http-referer=https://example.com/2026",
                "http-referer=https://example.com/2026",
            ),
            ("x-gateway=sk-canary-7f3a90d1c5", "x-gateway=[secret]"),
            ("Authorization: Bearer sk-123", "[secret]"),
        ] {
            assert_eq!(masked_header(given), kept);
        }
    }

    #[test]
    fn a_key_is_known_with_and_without_its_scheme() {
        assert_eq!(
            header_secrets("Authorization", "Bearer other12345"),
            ["Bearer other12345", "other12345"]
        );
        assert_eq!(
            header_secrets("proxy-authorization", "Basic Ym9iOnMzY3JldHBhc3N3MHJk"),
            [
                "Basic Ym9iOnMzY3JldHBhc3N3MHJk",
                "Ym9iOnMzY3JldHBhc3N3MHJk",
                "s3cretpassw0rd"
            ]
        );
        assert_eq!(
            header_secrets("Cookie", "s=abc1; t=d"),
            ["s=abc1; t=d", "abc1", "d"]
        );
        assert_eq!(header_secrets("X-Auth", "a b"), ["a b"]);
        assert_eq!(header_secrets("x-title", "customer support"), [""; 0]);
    }
}
