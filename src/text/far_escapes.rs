//! Escapes of characters beyond U+1FFFF in JSON Lines (`\ud842\udfb7`). Arrow's reader of JSON makes other characters of
//! them, without an error.

use std::io::BufRead;
use std::path::Path;

use memchr::memmem::Finder;

/// Refuses a file of JSON Lines that has such an escape.
///
/// # Errors
/// A message that names the line and what to do, or what the system says.
pub fn check_escapes(path: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| e.to_string();
    let file = std::fs::File::open(path).map_err(failed)?;
    match first_far_escape(std::io::BufReader::with_capacity(1 << 20, file)).map_err(failed)? {
        None => Ok(()),
        Some(line) => Err(format!(
            "line {line} has a character beyond U+1FFFF as an escape, which is read wrongly here; write it as it is \
             (Python: json.dumps(…, ensure_ascii=False)), or make traces of the file with `nightmill import`"
        )),
    }
}

/// The number of the first line that has one, counted from 1.
fn first_far_escape(mut reader: impl BufRead) -> std::io::Result<Option<u64>> {
    let escape = Finder::new(b"\\u");
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        number += 1;
        if escape.find_iter(&line).any(|at| is_far(&line, at)) {
            return Ok(Some(number));
        }
    }
}

/// Whether the `\u` at this place begins a high surrogate of a character beyond U+1FFFF, and is no escaped backslash.
fn is_far(line: &[u8], at: usize) -> bool {
    let slashes = line[..at].iter().rev().take_while(|byte| **byte == b'\\');
    let digits = line.get(at + 2..at + 6).unwrap_or_default();
    let code = std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| u16::from_str_radix(digits, 16).ok());
    slashes.count() % 2 == 0 && code.is_some_and(|code| (0xd840..0xdc00).contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_escapes_of_far_characters_are_found() {
        let found = |text: &str| first_far_escape(text.as_bytes()).unwrap();
        assert_eq!(found("{\"a\": 1}\n{\"b\": \"\\ud842\\udfb7\"}\n"), Some(2));
        assert_eq!(found("\"\\\\\\uDBFF\\uDFFF\""), Some(1));
        // An emoji, the character itself, an escaped backslash, a cut escape, a lower surrogate.
        for text in [
            "\"\\ud83e\\udd80\"",
            "𠮷",
            "\"\\\\ud842\"",
            "\"\\ud84",
            "\"\\udfb7\"",
            "",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
