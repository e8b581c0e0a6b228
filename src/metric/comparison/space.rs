//! White space, fences and lengths of texts, as ECMAScript sees them.

/// White space: what `\s` matches in ECMAScript. U+0085 and U+200B are none.
pub(in crate::metric) fn is_space(character: char) -> bool {
    match character {
        '\t'..='\r' | ' ' => true,
        _ if character.is_ascii() => false,
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{2028}' | '\u{2029}' => true,
        '\u{202f}' | '\u{205f}' | '\u{3000}' | '\u{feff}' => true,
        _ => false,
    }
}

/// The text without white space at both ends.
pub(in crate::metric) fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// The text without a code fence around it, trimmed. Only a fence at the very start and one at the very end go: white
/// space outside a fence keeps it.
pub(in crate::metric) fn strip_fences(text: &str) -> &str {
    let mut inside = text;
    if let Some(opened) = inside.strip_prefix("```") {
        let tagged = opened.trim_start_matches(|tag: char| tag.is_ascii_alphabetic());
        inside = tagged.strip_prefix('\n').unwrap_or(tagged);
    }
    trim(inside.strip_suffix("```").unwrap_or(inside))
}

/// The length of a text in UTF-16 code units.
pub(in crate::metric) fn units(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    // Every character is one unit, and one of four bytes is two.
    let of_byte = |byte: u8| usize::from(byte & 0xc0 != 0x80) + usize::from(byte >= 0xf0);
    text.bytes().map(of_byte).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_that_of_ecmascript() {
        let spaces = "\t\n\u{b}\u{c}\r \u{a0}\u{1680}\u{2000}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";
        assert!(spaces.chars().all(is_space));
        assert_eq!(
            ('\0'..=char::MAX).filter(|c| is_space(*c)).count(),
            6 + 2 + 11 + 2 + 4
        );
        assert!(!"\u{85}\u{200b}\u{180e}\u{1c}".chars().any(is_space));
        assert_eq!(trim("\u{feff} a b\u{3000}\n"), "a b");
    }

    #[test]
    fn only_fences_at_the_very_ends_go() {
        for (text, inside) in [
            ("```json\n{}\n```", "{}"),
            ("```{}```", "{}"),
            ("```JSON {}\n```", "{}"),
            ("```\n\n{}", "{}"),
            ("{}```", "{}"),
            (" ```\n{}", "```\n{}"),
            ("{}\n```\n", "{}\n```"),
            ("```", ""),
            ("``````", ""),
            ("```json5\n{}```", "5\n{}"),
            ("```c++\nx```", "++\nx"),
            ("`{}`", "`{}`"),
        ] {
            assert_eq!(strip_fences(text), inside, "{text:?}");
        }
    }

    #[test]
    fn lengths_are_in_code_units() {
        for text in ["", "abc", "é", "a😀é", "東京", "😀😀"] {
            assert_eq!(units(text), text.encode_utf16().count(), "{text}");
        }
    }
}
