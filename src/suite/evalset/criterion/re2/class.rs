//! Classes of characters and escapes of single ones, from RE2 syntax to that of the `regex` crate.

use super::BadPattern;
use super::scripts::SCRIPTS;

/// A class without members.
pub(super) const NOTHING: &str = r"[^\x{0}-\x{10FFFF}]";
/// The members of a class of everything.
const ANYTHING: &str = r"\x{0}-\x{10FFFF}";

/// Classes in `[[:…:]]`; the `regex` crate has the same.
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// General categories. Unlike Unicode's, the category `C` has no unassigned code points.
const CATEGORIES: [&str; 37] = [
    "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N",
    "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So",
    "Z", "Zl", "Zp", "Zs", "Any",
];

/// A class in brackets at the beginning of the text, and what follows it.
pub(super) fn bracketed(text: &str) -> Result<(String, &str), BadPattern> {
    let mut rest = text.strip_prefix('[').unwrap_or(text);
    let mut negated = false;
    if let Some(after) = rest.strip_prefix('^') {
        (negated, rest) = (true, after);
    }
    let mut items = String::new();
    let mut first = true;
    loop {
        match rest.strip_prefix(']') {
            // A bracket that comes first stands for itself.
            Some(after) if !first => {
                rest = after;
                break;
            }
            _ => first = false,
        }
        if let Some((item, after)) = posix(rest)? {
            items.push_str(&item);
            rest = after;
        } else if let Some((item, after)) = escaped(rest)? {
            items.push_str(&item);
            rest = after;
        } else {
            rest = range(rest, &mut items)?;
        }
    }
    let class = match (items.is_empty(), negated) {
        (true, false) => NOTHING.to_owned(),
        (true, true) => format!("[{ANYTHING}]"),
        (false, false) => format!("[{items}]"),
        (false, true) => format!("[^{items}]"),
    };
    Ok((class, rest))
}

/// `[:alpha:]` or `[:^alpha:]` at the beginning of the text.
fn posix(text: &str) -> Result<Option<(String, &str)>, BadPattern> {
    let Some((name, after)) = text.strip_prefix("[:").and_then(|t| t.split_once(":]")) else {
        return Ok(None);
    };
    match POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
        true => Ok(Some((format!("[:{name}:]"), after))),
        false => Err(BadPattern::Range(format!("[:{name}:]"))),
    }
}

/// A character or a range at the beginning of the text, added to the items. Returns what follows.
fn range<'t>(text: &'t str, items: &mut String) -> Result<&'t str, BadPattern> {
    let (low, mut rest) = class_character(text)?;
    let mut high = low;
    if let Some(after) = rest.strip_prefix('-')
        && !after.starts_with(']')
        && !after.is_empty()
    {
        (high, rest) = class_character(after)?;
        if high < low {
            let range = text.get(..text.len() - rest.len());
            return Err(BadPattern::Range(range.unwrap_or_default().to_owned()));
        }
    }
    // No text holds a surrogate.
    for (low, high) in [(low, high.min(0xD7FF)), (low.max(0xE000), high)] {
        if low <= high {
            items.push_str(&format!(r"\x{{{low:X}}}-\x{{{high:X}}}"));
        }
    }
    Ok(rest)
}

fn class_character(text: &str) -> Result<(u32, &str), BadPattern> {
    match text.chars().next() {
        None => Err(BadPattern::MissingBracket),
        Some('\\') => character(text),
        Some(character) => Ok((u32::from(character), &text[character.len_utf8()..])),
    }
}

/// The items of an escape that stands for a class: `\d`, `\pN`, `\p{Greek}`. None if it is another one, or no escape.
pub(super) fn escaped(text: &str) -> Result<Option<(String, &str)>, BadPattern> {
    let Some(escape) = text.strip_prefix('\\') else {
        return Ok(None);
    };
    let mut characters = escape.chars();
    let items = match characters.next() {
        Some('d') => "0-9",
        Some('D') => "[^0-9]",
        Some('w') => "0-9A-Za-z_",
        Some('W') => "[^0-9A-Za-z_]",
        Some('s') => r"\t\n\x0C\r\x20",
        Some('S') => r"[^\t\n\x0C\r\x20]",
        Some('p') => return unicode(characters.as_str(), false).map(Some),
        Some('P') => return unicode(characters.as_str(), true).map(Some),
        _ => return Ok(None),
    };
    Ok(Some((items.to_owned(), characters.as_str())))
}

/// The items of `N`, `{Greek}` or `{^Greek}` after a `\p`.
fn unicode(text: &str, mut negated: bool) -> Result<(String, &str), BadPattern> {
    let bad = || BadPattern::Range(format!(r"\p{}", text.chars().take(24).collect::<String>()));
    let (mut name, after) = match text.strip_prefix('{') {
        Some(inside) => inside.split_once('}').ok_or_else(bad)?,
        None => text.split_at(text.chars().next().map_or(0, char::len_utf8)),
    };
    if let Some(inner) = name.strip_prefix('^') {
        (name, negated) = (inner, !negated);
    }
    let items = match name {
        "Any" => ANYTHING.to_owned(),
        "Cs" => NOTHING.to_owned(),
        "C" => r"\p{gc=Cc}\p{gc=Cf}\p{gc=Co}".to_owned(),
        category if CATEGORIES.contains(&category) => format!(r"\p{{gc={category}}}"),
        script if SCRIPTS.binary_search(&script).is_ok() => format!(r"\p{{sc={script}}}"),
        _ => return Err(bad()),
    };
    match negated {
        true => Ok((format!("[^{items}]"), after)),
        false => Ok((items, after)),
    }
}

/// The code point that the escape at the beginning of the text stands for, and what follows it.
pub(super) fn character(text: &str) -> Result<(u32, &str), BadPattern> {
    let escape = text.strip_prefix('\\').unwrap_or(text);
    let bad = || BadPattern::Escape(text.chars().take(8).collect());
    let letter = escape.chars().next().ok_or(BadPattern::TrailingBackslash)?;
    let after = &escape[letter.len_utf8()..];
    let code = match letter {
        'a' => 0x07,
        'f' => 0x0C,
        'n' => 0x0A,
        'r' => 0x0D,
        't' => 0x09,
        'v' => 0x0B,
        'x' => return hexadecimal(after).ok_or_else(bad),
        // A single digit but 0 would be a back-reference.
        '0'..='7' => {
            let is_octal = |c: &char| ('0'..='7').contains(c);
            let digits = escape.chars().take(3).take_while(is_octal).count();
            if letter != '0' && digits < 2 {
                return Err(bad());
            }
            let (digits, after) = escape.split_at(digits);
            let code = u32::from_str_radix(digits, 8).map_err(|_| bad())?;
            return Ok((code, after));
        }
        other if other.is_ascii() && !other.is_ascii_alphanumeric() => u32::from(other),
        _ => return Err(bad()),
    };
    Ok((code, after))
}

/// `41` or `{1F600}`, and what follows.
fn hexadecimal(text: &str) -> Option<(u32, &str)> {
    let (digits, after) = match text.strip_prefix('{') {
        Some(inside) => inside.split_once('}')?,
        None => text.split_at_checked(2)?,
    };
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    // Leading zeros are any number of them.
    let digits = match digits.trim_start_matches('0') {
        "" => "0",
        significant => significant,
    };
    let code = u32::from_str_radix(digits, 16).ok()?;
    (is_number && code <= 0x0010_FFFF).then_some((code, after))
}
