//! The pieces of a URL: which of them are secret, and what of it may be written down.

use std::ops::Range;

use super::base_url::{BaseUrl, decoded};
use super::{SECRET, Secrets, only_placeholders};

/// Parts of a URL's query that are no secrets.
const OPEN: [&str; 4] = ["api-version", "version", "model", "deployment"];

/// What a piece of a URL is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Piece {
    /// Scheme, host, separators, and parts of the query that are no secrets.
    Open,
    /// A user that has a password.
    User,
    /// A password, or a user without one.
    Password,
    /// What stands between and after user and password.
    Mark,
    /// A segment of the path.
    Segment,
    /// A value of the query, and the length of the `?name=` before it.
    Value(usize),
}

/// How a URL is written.
#[derive(Clone, Copy, Debug)]
pub enum Written<'a> {
    /// As it was given: `${NAME}` stands for a variable.
    AsGiven,
    /// With the values of variables, at these places.
    Filled(&'a [Range<usize>]),
}

/// The pieces of a URL, in their order; together they are the whole text. Nothing is decoded: it need not be a good URL.
pub(super) fn pieces(url: &str) -> Vec<(Piece, &str)> {
    let mut pieces = Vec::new();
    let after_scheme = url.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = url.split_at(after_scheme);
    pieces.push((Piece::Open, scheme));
    let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let tail = match (authority.rsplit_once('@'), stray_at(authority, tail)) {
        (Some((user, host)), _) => {
            match user
                .split_once(':')
                .filter(|(_, password)| !password.is_empty())
            {
                Some((user, password)) => pieces.extend([
                    (Piece::User, user),
                    (Piece::Mark, ":"),
                    (Piece::Password, password),
                ]),
                None => pieces.push((Piece::Password, user)),
            }
            pieces.extend([(Piece::Mark, "@"), (Piece::Open, host)]);
            tail
        }
        (None, Some(at)) => {
            // A password that was not percent-encoded; where the host begins is anybody's guess.
            let (password, rest) = rest.split_at(end + at);
            pieces.extend([(Piece::Password, password), (Piece::Mark, "@")]);
            let rest = rest.get(1..).unwrap_or_default();
            let (host, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
            pieces.push((Piece::Open, host));
            tail
        }
        (None, None) => {
            pieces.push((Piece::Open, authority));
            tail
        }
    };
    let (tail, fragment) = tail.split_at(tail.find('#').unwrap_or(tail.len()));
    let (path, query) = tail.split_at(tail.find('?').unwrap_or(tail.len()));
    for segment in path.split_inclusive(['/', '\\']) {
        let (name, slash) = segment.split_at(segment.trim_end_matches(['/', '\\']).len());
        pieces.extend([(Piece::Segment, name), (Piece::Open, slash)]);
    }
    for pair in query.split_inclusive('&') {
        let (pair, and) = pair.split_at(pair.trim_end_matches('&').len());
        let (mark, pair) = pair.split_at(usize::from(pair.starts_with('?')));
        let name = pair.find('=').map_or(0, |at| at + 1);
        let (name, value) = pair.split_at(name);
        let piece = match is_open(name.trim_end_matches('='), value) {
            true => Piece::Open,
            // With the mark before the first pair, and the `&` before every other.
            false => Piece::Value(name.len() + 1),
        };
        pieces.extend([
            (Piece::Open, mark),
            (Piece::Open, name),
            (piece, value),
            (Piece::Open, and),
        ]);
    }
    let (mark, fragment) = fragment.split_at(usize::from(!fragment.is_empty()));
    pieces.extend([(Piece::Open, mark), (Piece::Value(1), fragment)]);
    pieces.retain(|(_, text)| !text.is_empty());
    pieces
}

/// Where an `@` is behind the authority, outside of a value of the query.
fn stray_at(authority: &str, tail: &str) -> Option<usize> {
    if authority.contains('@') {
        return None;
    }
    let path = tail.find(['?', '#']).unwrap_or(tail.len());
    let in_path = tail[..path].rfind('@');
    in_path
        .or_else(|| tail[path..].find(['@', '=']).map(|at| path + at))
        .filter(|at| tail[*at..].starts_with('@'))
}

/// Whether a part of the query may be shown.
fn is_open(name: &str, value: &str) -> bool {
    let known = |name: &str| OPEN.iter().any(|open| open.eq_ignore_ascii_case(name));
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    match name {
        "" => known(value),
        name => known(name) && value.chars().all(plain),
    }
}

/// What is wrong with a base URL, in words that show nothing of it.
pub fn url_fault(url: &str) -> Option<String> {
    if !(url.starts_with("http://") || url.starts_with("https://")) {
        return Some("expected a URL that begins with http:// or https://".into());
    }
    let rest = &url[url.find("://").map_or(0, |at| at + 3)..];
    let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    if stray_at(authority, tail).is_some() || tail.contains('#') {
        return Some("a base URL has no `#`, and an `@` only after user and password; in a password write / as %2F, ? as %3F, # as %23 and @ as %40".into());
    }
    match reqwest::Url::parse(url) {
        Ok(_) => None,
        Err(e) => Some(format!(
            "expected a URL: {e}; in a password write / as %2F, ? as %3F, # as %23 and @ as %40"
        )),
    }
}

/// A URL with `[secret]` for its password and for values of its query, whatever their length, and for what variables brought into
/// user and path. In a URL as it was given, `${NAME}` stays.
pub fn masked_url(url: &str, written: Written<'_>) -> String {
    let mut shown = String::new();
    let mut at = 0;
    for (piece, text) in pieces(url) {
        let place = at..at + text.len();
        at = place.end;
        let from_variable = match written {
            Written::AsGiven => false,
            Written::Filled(places) => places
                .iter()
                .any(|p| p.start < place.end && place.start < p.end),
        };
        let secret = match piece {
            Piece::Open | Piece::Mark => false,
            Piece::Segment => from_variable,
            Piece::User | Piece::Password | Piece::Value(_) => {
                !(matches!(written, Written::AsGiven) && only_placeholders(text))
            }
        };
        shown.push_str(if secret { SECRET } else { text });
    }
    shown
}

/// Scheme, host and port of a URL, without user and password.
pub fn host_of(url: &str) -> String {
    let pieces = pieces(url).into_iter();
    let before_path = pieces.take_while(|(_, text)| !text.starts_with(['/', '\\', '?', '#']));
    let open = before_path.filter(|(piece, _)| *piece == Piece::Open);
    open.map(|(_, text)| text).collect()
}

/// The address of a webhook as it was given, with `[secret]` for all that stands behind the host, and for user and password;
/// `${NAME}` stays where nothing else stands there.
pub fn masked_webhook(url: &str) -> String {
    if only_placeholders(url) {
        return url.to_owned();
    }
    let Some(after_scheme) = url.find("://").map(|at| at + 3) else {
        return SECRET.to_owned();
    };
    let rest = url.get(after_scheme..).unwrap_or_default();
    let end = rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len());
    let (before, path) = url.split_at(after_scheme + end);
    let shown = masked_url(before, Written::AsGiven);
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    match parts.all(only_placeholders) {
        true => format!("{shown}{path}"),
        false => format!("{shown}/{SECRET}"),
    }
}

/// Adds what is secret of a URL in which variables were filled in at these places.
pub fn url_secrets(url: &str, places: &[Range<usize>], secrets: &mut Secrets) {
    let mut at = 0;
    let mut path = None;
    for (piece, text) in pieces(url) {
        let start = at;
        at += text.len();
        match piece {
            Piece::Open | Piece::Mark => {}
            // By itself it may be any word.
            Piece::User => secrets.add_shown(&format!("//{text}:"), &format!("//{SECRET}:")),
            Piece::Password => {
                secrets.add(text);
                secrets.add(&decoded(text));
                secrets.add_shown(&format!(":{text}@"), &format!(":{SECRET}@"));
            }
            Piece::Value(before) => {
                secrets.add(text);
                secrets.add(&decoded(&text.replace('+', " ")));
                if let Some(name) = url
                    .get(start.saturating_sub(before)..start)
                    .filter(|n| n.len() > 1)
                {
                    secrets.add_shown(&format!("{name}{text}"), &format!("{name}{SECRET}"));
                }
            }
            Piece::Segment => path = path.or(Some(start)),
        }
    }
    if let Some(path) = path {
        // A variable that is the whole URL has no secret in its path that could be told from the rest.
        let inside = places.iter().filter(|place| place.start >= path);
        for value in inside.filter_map(|place| url.get(place.clone())) {
            secrets.add(value);
        }
    }
    let base = BaseUrl::of(url);
    if let Some(basic) = &base.basic {
        secrets.add(basic);
    }
    let shown = masked_url(url, Written::Filled(places));
    secrets.add_shown(&base.address, &BaseUrl::of(&shown).address);
}

#[cfg(test)]
mod tests {
    use super::*;

    const URLS: [(&str, &str); 16] = [
        ("http://host:8000/v1", "http://host:8000/v1"),
        ("https://me:pw@host/v1", "https://[secret]:[secret]@host/v1"),
        ("https://sk-1@host/v1", "https://[secret]@host/v1"),
        ("https://sk-1:@host/v1", "https://[secret]@host/v1"),
        ("https://${U}:${P}@host/v1", "https://${U}:${P}@host/v1"),
        (
            "https://me:a${P}@host/v1",
            "https://[secret]:[secret]@host/v1",
        ),
        (
            "https://me:$${P}@host/v1",
            "https://[secret]:[secret]@host/v1",
        ),
        ("https://host/${KEY}/v1", "https://host/${KEY}/v1"),
        (
            "https://host/v1?key=abc&api-version=2024-06-01&k=${K}",
            "https://host/v1?key=[secret]&api-version=2024-06-01&k=${K}",
        ),
        ("https://host?key=a@b", "https://host?key=[secret]"),
        ("https://host/v1?canaryKEY99", "https://host/v1?[secret]"),
        (
            "https://host/v1?version=1;key=ab",
            "https://host/v1?version=[secret]",
        ),
        ("https://u:sk/123456@host/v1", "https://[secret]@host/v1"),
        ("https://u:12?3456@host/v1", "https://[secret]@host/v1"),
        ("https://u:12#3456@host/v1", "https://[secret]@host/v1"),
        ("https://host/v1#abc", "https://host/v1#[secret]"),
    ];

    #[test]
    fn secrets_of_urls_are_masked_whatever_their_length() {
        for (given, shown) in URLS {
            let whole: String = pieces(given).iter().map(|(_, text)| *text).collect();
            assert_eq!(whole, given);
            assert_eq!(masked_url(given, Written::AsGiven), shown, "{given}");
        }
        let filled = "http://h/ab/v1";
        let path = 9..11;
        assert_eq!(
            masked_url(filled, Written::Filled(std::slice::from_ref(&path))),
            "http://h/[secret]/v1"
        );
        // Only where a variable is still to be filled in does `${` stand for one.
        assert_eq!(
            masked_url("http://u:${P}@h", Written::Filled(&[])),
            "http://[secret]:[secret]@h"
        );
    }

    #[test]
    fn of_a_webhook_only_the_host_is_shown() {
        for (given, shown) in [
            ("https://h:1/services/T/B", "https://h:1/[secret]"),
            (
                "https://u:p@h/x?k=1",
                "https://[secret]:[secret]@h/[secret]",
            ),
            ("https://h/${A}/${B}", "https://h/${A}/${B}"),
            ("https://h/${A}/b", "https://h/[secret]"),
            ("https://h/", "https://h/"),
            ("https://h?k=1", "https://h/[secret]"),
            ("${HOOK}", "${HOOK}"),
            ("xoxb-1", "[secret]"),
        ] {
            assert_eq!(masked_webhook(given), shown, "{given}");
        }
        assert_eq!(host_of("https://u:p@h:1/x?k=1"), "https://h:1");
        assert_eq!(host_of("https://h?k=1"), "https://h");
    }

    #[test]
    fn what_a_server_repeats_of_a_url_is_found() {
        let mut secrets = Secrets::default();
        let url = "http://bob:pw%2F1@h/ab/v1?key=canary%20KEY99&k=x1";
        let segment = url.find("ab").unwrap();
        let place = segment..segment + 2;
        url_secrets(url, std::slice::from_ref(&place), &mut secrets);
        for (said, kept) in [
            ("Basic Ym9iOnB3LzE=", "Basic [secret]"),
            ("pw/1", "[secret]"),
            ("http://bob:pw%2F1@h", "http://[secret]:[secret]@h"),
            ("canary KEY99 canary+KEY99", "[secret] [secret]"),
            ("/x?key=canary%20KEY99&k=x1", "/x?key=[secret]&k=[secret]"),
            ("http://h/ab/v1/models", "http://h/[secret]/v1/models"),
            ("bob has ab and x1", "bob has ab and x1"),
        ] {
            assert_eq!(secrets.scrub(said), kept);
        }
    }

    #[test]
    fn wrong_urls_are_refused_without_showing_them() {
        for url in [
            "ftp://h",
            "http://u:sk-can/123456@h",
            "http://u:sk-can?123456@h",
            "http://u:12/3456@h",
            "http://u:12?3456@h",
            "http://h/v1#x",
            "http://",
        ] {
            let fault = url_fault(url).unwrap();
            assert!(
                !fault.contains("3456") && !fault.contains("sk-can"),
                "{fault}"
            );
        }
        for url in [
            "http://h:1/v1",
            "https://u:p%2F@h/v1?api-version=1",
            "http://h?a=b@c",
        ] {
            assert_eq!(url_fault(url), None);
        }
    }
}
