//! Secrets in a text, in the writings that servers repeat them in.

use std::ops::Range;

/// Where a secret ends that begins at this byte of a text, if it does. It may stand there as it is, with escapes of JSON (also
/// of JSON inside of JSON), of URLs or of HTML.
pub(super) fn end_of(secret: &str, text: &str, at: usize) -> Option<usize> {
    let mut rest = text.get(at..)?;
    let mut wanted = secret.chars().peekable();
    while let Some(c) = wanted.next() {
        if c != '\\' {
            rest = after(rest, c)?;
            continue;
        }
        // Each level of JSON doubles them, and whatever follows may add its own.
        let mut least = 1;
        while wanted.next_if_eq(&'\\').is_some() {
            least += 1;
        }
        let run = backslashes(rest);
        if run >= least {
            rest = &rest[run..];
            continue;
        }
        for _ in 0..least {
            rest = percent_encoded(rest, '\\')?;
        }
    }
    Some(text.len() - rest.len())
}

/// What follows a character that stands at the start of a text, in whichever writing.
fn after(text: &str, c: char) -> Option<&str> {
    text.strip_prefix(c)
        .or_else(|| json_escaped(text, c))
        .or_else(|| percent_encoded(text, c))
        .or_else(|| text.strip_prefix('+').filter(|_| c == ' '))
        .or_else(|| html_escaped(text, c))
}

fn backslashes(text: &str) -> usize {
    text.len() - text.trim_start_matches('\\').len()
}

fn json_escaped(text: &str, c: char) -> Option<&str> {
    let after_run = |text: &'_ str| -> Option<usize> {
        let run = backslashes(text);
        (run > 0).then_some(run)
    };
    let tail = &text[after_run(text)?..];
    let letter = match c {
        '"' | '\'' | '/' => Some(c),
        '\n' => Some('n'),
        '\t' => Some('t'),
        '\r' => Some('r'),
        '\u{8}' => Some('b'),
        '\u{c}' => Some('f'),
        _ => None,
    };
    if let Some(rest) = letter.and_then(|letter| tail.strip_prefix(letter)) {
        return Some(rest);
    }
    let mut rest = text;
    for unit in c.encode_utf16(&mut [0; 2]).iter() {
        let digits = rest[after_run(rest)?..].strip_prefix('u')?;
        let value = u16::from_str_radix(digits.get(..4)?, 16).ok()?;
        if value != *unit {
            return None;
        }
        rest = digits.get(4..)?;
    }
    Some(rest)
}

fn percent_encoded(text: &str, c: char) -> Option<&str> {
    let mut rest = text;
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        let digits = rest.strip_prefix('%')?;
        let value = u8::from_str_radix(digits.get(..2)?, 16).ok()?;
        if value != byte {
            return None;
        }
        rest = digits.get(2..)?;
    }
    Some(rest)
}

fn html_escaped(text: &str, c: char) -> Option<&str> {
    let names: &[&str] = match c {
        '"' => &["&quot;", "&#34;", "&#x22;"],
        '\'' => &["&apos;", "&#39;", "&#x27;"],
        '&' => &["&amp;"],
        '<' => &["&lt;"],
        '>' => &["&gt;"],
        _ => &[],
    };
    names.iter().find_map(|name| text.strip_prefix(name))
}

/// Whether a part of a text is no piece of a longer word.
pub(super) fn stands_alone(text: &str, found: &Range<usize>) -> bool {
    let goes_on = |at: usize| {
        let (before, after) = text.split_at_checked(at).unwrap_or_default();
        let of_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        of_word(before.chars().next_back()) && of_word(after.chars().next())
    };
    !goes_on(found.start) && !goes_on(found.end)
}

/// What stands for a secret that was found in a reply, so that the reply reads as the same verdict.
pub(super) fn as_in_reply(reply: &str, found: Range<usize>, shown: &str) -> String {
    let (before, secret, after) = (
        reply.get(..found.start).unwrap_or_default(),
        reply.get(found.clone()).unwrap_or_default(),
        reply.get(found.end..).unwrap_or_default(),
    );
    let of_key = |c: char| c.is_ascii_lowercase() || c == '_';
    if secret.chars().all(of_key) {
        let ends = after.trim_start_matches(of_key).strip_prefix('"');
        let is_key = before.trim_end_matches(of_key).ends_with('"')
            && ends.is_some_and(|rest| rest.trim_start().starts_with(':'));
        if is_key {
            return secret.to_owned();
        }
    }
    let of_number = |c: char| c.is_ascii_digit() || ".eE+-".contains(c);
    if secret.chars().all(of_number) && !in_text(before) {
        let whole = !before.ends_with(of_number) && !after.starts_with(of_number);
        return match whole && secret.bytes().all(|b| b.is_ascii_digit()) {
            true => format!("\"{shown}\""),
            false => secret.to_owned(),
        };
    }
    shown.to_owned()
}

/// Whether what follows the beginning of a reply is text: prose outside of its JSON, or inside of a string.
fn in_text(before: &str) -> bool {
    let Some(start) = before.find(['{', '[']) else {
        return true;
    };
    let (mut text, mut escaped) = (false, false);
    for c in before[start..].chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = text,
            '"' => text = !text,
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is_found(secret: &str, text: &str) {
        let padded = format!("x{text}y");
        assert_eq!(end_of(secret, &padded, 1), Some(1 + text.len()), "{text}");
    }

    #[test]
    fn a_secret_is_found_in_every_writing() {
        const SECRET: &str = "sk\"can\\12/3 é\t<😀";
        is_found(SECRET, SECRET);
        let mut json = SECRET.to_owned();
        for _ in 0..3 {
            json = serde_json::to_string(&json).unwrap();
            let inside = json.trim_matches('"').trim_end_matches(['\\', '"']);
            is_found(SECRET, inside.trim_start_matches(['\\', '"']));
        }
        is_found(SECRET, r#"sk\"can\\12\/3 \u00e9\t\u003c\ud83d\ude00"#);
        is_found(SECRET, "sk%22can%5C12%2F3+%c3%A9%09%3C%F0%9F%98%80");
        is_found(SECRET, "sk&quot;can\\12/3 é\t&lt;😀");
    }

    #[test]
    fn other_texts_are_not_taken_for_it() {
        for other in [
            "sk-canarx",
            "sk-cana",
            "sk%2Dcanarx",
            "sk\\u002ecanary",
            "%",
        ] {
            assert_eq!(end_of("sk-canary", other, 0), None, "{other}");
        }
        assert_eq!(end_of("é", "%C3", 0), None);
        assert_eq!(end_of("a\\b", "a%5", 0), None);
    }
}
