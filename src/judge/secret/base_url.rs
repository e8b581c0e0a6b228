//! The base URL of an endpoint: what is asked below it, and what names it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::SECRET;
use super::address::{Piece, pieces};

/// A base URL in the form that requests are made of.
#[derive(Clone, Debug, PartialEq)]
pub struct BaseUrl {
    /// Up to the end of the path, with a slash; without user and password.
    pub(super) address: String,
    /// What follows the `?`.
    query: Option<String>,
    /// User and password as an `Authorization: Basic` has them.
    pub basic: Option<String>,
    /// What names the endpoint wherever its answers are kept.
    identity: String,
}

impl BaseUrl {
    /// The base URL of a text.
    pub fn of(url: &str) -> Self {
        let (mut open, mut identity) = (String::new(), String::new());
        let (mut user, mut password) = (None, None);
        for (piece, text) in pieces(url) {
            match piece {
                Piece::Mark => continue,
                Piece::User => user = Some(text),
                Piece::Password => password = Some(text),
                Piece::Value(_) => {
                    open.push_str(text);
                    identity.push_str(SECRET);
                }
                Piece::Open | Piece::Segment => {
                    open.push_str(text);
                    identity.push_str(text);
                }
            }
        }
        let pair = match (user, password) {
            // A user without a password stands in its place.
            (None, Some(user)) => Some(format!("{}:", decoded(user.trim_end_matches(':')))),
            (Some(user), Some(password)) => {
                Some(format!("{}:{}", decoded(user), decoded(password)))
            }
            _ => None,
        };
        let (address, query) = split(&open);
        let (named, with) = split(&identity);
        Self {
            address,
            query: query.map(str::to_owned),
            basic: pair.map(|pair| STANDARD.encode(pair)),
            identity: with.map_or(named.clone(), |query| format!("{named}?{query}")),
        }
    }

    /// Names the endpoint: neither user nor password nor a secret value of the query is in it, so that another key finds the same
    /// answers.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// The URL of a resource below; `path` may have a query of its own.
    pub fn join(&self, path: &str) -> String {
        let mark = if path.contains('?') { '&' } else { '?' };
        match &self.query {
            None => format!("{}{path}", self.address),
            Some(query) => format!("{}{path}{mark}{query}", self.address),
        }
    }
}

/// A URL up to the end of its path, with one slash there, and its query.
fn split(url: &str) -> (String, Option<&str>) {
    let (address, query) = match url.split_once('?') {
        Some((address, query)) => (address, Some(query).filter(|query| !query.is_empty())),
        None => (url, None),
    };
    (format!("{}/", address.trim_end_matches('/')), query)
}

/// A text with `%XX` decoded.
pub(super) fn decoded(text: &str) -> String {
    let decoded = percent_encoding::percent_decode_str(text);
    decoded.decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_named_without_its_secrets() {
        for (url, identity) in [
            ("http://h:1/v1", "http://h:1/v1/"),
            ("http://h:1//v1//", "http://h:1//v1/"),
            ("http://me:pw@h/v1", "http://h/v1/"),
            (
                "http://h/v1?api-version=1&k=ab",
                "http://h/v1/?api-version=1&k=[secret]",
            ),
            ("http://h", "http://h/"),
        ] {
            assert_eq!(BaseUrl::of(url).identity(), identity);
        }
    }

    #[test]
    fn paths_are_joined_before_the_query() {
        for (base, path, joined) in [
            ("http://h/v1", "files", "http://h/v1/files"),
            ("http://h/v1/", "files", "http://h/v1/files"),
            ("http://h//v1", "files", "http://h//v1/files"),
            ("http://h/v1?v=1", "files", "http://h/v1/files?v=1"),
            ("http://h/v1/?v=1", "b?limit=2", "http://h/v1/b?limit=2&v=1"),
            ("http://u:p@h?v=1", "files", "http://h/files?v=1"),
        ] {
            assert_eq!(BaseUrl::of(base).join(path), joined);
        }
    }

    #[test]
    fn user_and_password_are_one_header() {
        let basic = |url: &str| BaseUrl::of(url).basic;
        assert_eq!(
            basic("http://bob:s3cretpassw0rd@h").as_deref(),
            Some("Ym9iOnMzY3JldHBhc3N3MHJk")
        );
        assert_eq!(
            basic("http://bob:s3cretpassw0r%64@h"),
            basic("http://bob:s3cretpassw0rd@h")
        );
        assert_eq!(basic("http://bob@h").as_deref(), Some("Ym9iOg=="));
        assert_eq!(basic("http://bob:@h"), basic("http://bob@h"));
        assert_eq!(basic("http://h"), None);
    }
}
