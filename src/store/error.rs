//! What goes wrong between here and a bucket, told without secrets.

/// An address, what is wrong there, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("`{address}`: {problem}; {advice}")]
pub struct StoreError {
    /// The address as people gave it, without query and password.
    address: String,
    problem: String,
    advice: String,
}

impl StoreError {
    pub(super) fn new(
        address: impl Into<String>,
        problem: impl ToString,
        advice: impl Into<String>,
    ) -> Self {
        Self {
            address: without_user(&Into::<String>::into(address)),
            problem: told(&problem.to_string(), &[]),
            advice: advice.into(),
        }
    }
}

/// Longer problems are cut: servers answer with whole pages.
const LONGEST: usize = 400;

/// What a server or library says, in one short line: without the queries of addresses, which carry signatures, and without
/// secrets of the environment and `further` ones, which servers may repeat.
pub(super) fn told(text: &str, further: &[String]) -> String {
    let mut text = text.to_owned();
    let variables = std::env::vars_os();
    let variables = variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let secrets = variables.filter(|(name, value)| is_secret(name) && value.len() >= 8);
    let secrets = secrets.map(|(_, value)| value);
    for secret in secrets.chain(further.iter().filter(|s| s.len() >= 8).cloned()) {
        text = text.replace(&secret, "[secret]");
    }
    let words = text
        .split_whitespace()
        .map(|word| without_query(&without_user(word)));
    let text = words.collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

/// Whether a variable of a cloud holds a secret, by its name.
fn is_secret(name: &str) -> bool {
    let of_cloud = ["AWS_", "AZURE_", "GOOGLE_"]
        .iter()
        .any(|c| name.starts_with(c));
    let secret = ["SECRET", "KEY", "TOKEN", "SAS"]
        .iter()
        .any(|s| name.contains(s));
    let is_name = ["_ID", "_FILE", "_URI", "_URL"]
        .iter()
        .any(|e| name.ends_with(e));
    of_cloud && secret && !is_name
}

/// A word without the users and passwords of web addresses in it.
fn without_user(word: &str) -> String {
    let (mut rest, mut clean) = (word, String::new());
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        clean.push_str(before);
        let end = after.find(['/', '?', '#', '"', '\'', '`', ')', '>', ',', '<']);
        let authority = &after[..end.unwrap_or(after.len())];
        // Containers of Azure stand where users do.
        let of_web = ["http://", "https://"]
            .iter()
            .any(|scheme| before.to_ascii_lowercase().ends_with(scheme));
        rest = match authority.rfind('@') {
            Some(user) if of_web || authority[..user].contains(':') => &after[user + 1..],
            _ => after,
        };
    }
    clean.push_str(rest);
    clean
}

fn without_query(word: &str) -> String {
    let Some(address) = word.find("://") else {
        return word.to_owned();
    };
    let Some(query) = word[address..].find('?').map(|at| address + at) else {
        return word.to_owned();
    };
    let end = word[query..].find(['"', '\'', '`', ')', '>', ',', '<']);
    let rest = end.map_or("", |end| &word[query + end..]);
    format!("{}{rest}", &word[..query])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_and_tokens_are_not_told() {
        let text = told(
            "GET (https://h/c/x?sv=1&sig=abc%3D) said\n  <Token-0>night-token-1</Token-0>",
            &["night-token-1".to_owned()],
        );
        assert_eq!(text, "GET (https://h/c/x) said <Token-0>[secret]</Token-0>");
        for (word, clean) in [
            ("http://me:pw12345@h:9/x", "http://h:9/x"),
            ("(HTTPS://me:p@w@h/x?y=1)", "(HTTPS://h/x)"),
            ("abfss://box@account.net/x", "abfss://box@account.net/x"),
            (
                "url=\"http://token@h\",http://u:p@h",
                "url=\"http://h\",http://h",
            ),
            ("http://h/a@b:c", "http://h/a@b:c"),
        ] {
            assert_eq!(told(word, &[]), clean);
        }
        assert!(is_secret("AWS_SECRET_ACCESS_KEY") && is_secret("AZURE_STORAGE_SAS_TOKEN"));
        assert!(!is_secret("AWS_ACCESS_KEY_ID") && !is_secret("HOME_TOKEN"));
        assert!(told(&"x".repeat(2000), &[]).chars().count() < 410);
    }
}
