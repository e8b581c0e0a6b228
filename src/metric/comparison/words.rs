//! Words of texts: runs of ASCII letters and digits, in lower case.
//!
//! Lower-casing is that of Unicode, of which little remains here: beyond ASCII, only U+212A (Kelvin sign) and U+0130 (I
//! with a dot) have a lower case with ASCII letters in it.

/// Letters that fit in a key.
const KEY_LETTERS: usize = 16;

/// A word of a text.
#[derive(Clone, Copy, Debug)]
pub(in crate::metric) struct Word {
    /// Where it begins.
    pub(in crate::metric) from: usize,
    /// Where it ends.
    pub(in crate::metric) to: usize,
    packed: u128,
}

impl Word {
    /// The word that this text is.
    pub(in crate::metric) fn of(text: &[u8]) -> Self {
        Self::at(text, 0, text.len())
    }

    #[inline]
    fn at(text: &[u8], from: usize, to: usize) -> Self {
        let behind = text.get(from..).unwrap_or_default();
        let bytes = match behind.first_chunk::<KEY_LETTERS>() {
            Some(bytes) => *bytes,
            None => {
                let mut bytes = [0; KEY_LETTERS];
                let own = bytes.iter_mut().zip(behind);
                own.for_each(|(to, from)| *to = *from);
                bytes
            }
        };
        let unused = 8 * KEY_LETTERS.saturating_sub(to - from);
        let used = u32::try_from(unused)
            .ok()
            .and_then(|unused| u128::MAX.checked_shr(unused));
        // Letters differ from their lower case in one bit, which digits have.
        let lower = u128::from_le_bytes(bytes) | u128::from_le_bytes([0x20; KEY_LETTERS]);
        let packed = lower & used.unwrap_or(0);
        Self { from, to, packed }
    }

    /// How many letters it has.
    pub(in crate::metric) fn len(&self) -> usize {
        self.to - self.from
    }

    /// A number that only this word has, whatever the case of its letters: their bytes in lower case, the first one
    /// lowest. None for words of more than 16 letters.
    #[inline]
    pub(in crate::metric) fn key(&self) -> Option<u128> {
        (self.len() <= KEY_LETTERS).then_some(self.packed)
    }
}

/// The words of a text. They stay until another text is read: metrics of one row read the same texts.
#[derive(Debug, Default)]
pub(in crate::metric) struct Words {
    source: String,
    /// The source with the characters replaced that have ASCII letters in their lower case; empty if it has none.
    plain: Vec<u8>,
    words: Vec<Word>,
}

impl Words {
    /// Reads a text.
    pub(in crate::metric) fn read(&mut self, text: &str) {
        if self.source == text {
            return;
        }
        self.source.clear();
        self.source.push_str(text);
        self.plain.clear();
        if has_folding(text) {
            push_plain(text, &mut self.plain);
        }
        self.words.clear();
        // A text of words has one in five or six letters; nearly always this is enough.
        self.words.reserve(text.len() / 4);
        let text = match self.plain.is_empty() {
            true => self.source.as_bytes(),
            false => &self.plain,
        };
        each_word(text, |word| self.words.push(word));
    }

    /// The words in order.
    pub(in crate::metric) fn list(&self) -> &[Word] {
        &self.words
    }

    /// What the words are parts of: the text, or nearly.
    pub(in crate::metric) fn text(&self) -> &[u8] {
        match self.plain.is_empty() {
            true => self.source.as_bytes(),
            false => &self.plain,
        }
    }

    /// Whether the words are not simply the runs of letters and digits of the text that was read.
    pub(in crate::metric) fn are_folded(&self) -> bool {
        !self.plain.is_empty()
    }
}

/// Calls `each` with the runs of ASCII letters and digits of a text, in order.
#[inline]
pub(in crate::metric) fn each_word(text: &[u8], mut each: impl FnMut(Word)) {
    let mut open = None;
    let mut before = 0;
    for (block, bytes) in text.chunks(64).enumerate() {
        let letters = letters_of(bytes);
        // Bits where a word begins or ends.
        let mut edges = letters ^ (letters << 1 | before);
        before = letters >> 63;
        while edges != 0 {
            let at = 64 * block + usize::try_from(edges.trailing_zeros()).unwrap_or(0);
            edges &= edges - 1;
            match open.take() {
                Some(from) => each(Word::at(text, from, at)),
                None => open = Some(at),
            }
        }
    }
    if let Some(from) = open {
        each(Word::at(text, from, text.len()));
    }
}

/// Which of up to 64 bytes are letters or digits; the first one is the lowest bit.
#[inline]
fn letters_of(bytes: &[u8]) -> u64 {
    let mut letters = 0;
    let (eights, rest) = bytes.as_chunks::<8>();
    let mut shift = 0;
    for eight in eights {
        letters |= letters_of_eight(*eight) << shift;
        shift += 8;
    }
    if !rest.is_empty() {
        let mut eight = [0; 8];
        eight
            .iter_mut()
            .zip(rest)
            .for_each(|(to, from)| *to = *from);
        letters |= letters_of_eight(eight) << shift;
    }
    letters
}

/// The same for eight bytes, all of them at once.
#[inline]
fn letters_of_eight(eight: [u8; 8]) -> u64 {
    const fn all(byte: u8) -> u64 {
        u64::from_le_bytes([byte; 8])
    }
    const TOP: u64 = all(0x80);
    let bytes = u64::from_le_bytes(eight);
    let low = bytes & !TOP;
    let lower = low | all(0x20);
    // The top bit of a byte says whether it is at least the first letter, and not beyond the last one.
    let letter = (lower + all(0x80 - b'a')) & !(lower + all(0x7f - b'z'));
    let digit = (low + all(0x80 - b'0')) & !(low + all(0x7f - b'9'));
    let found = (letter | digit) & !bytes & TOP;
    // Gathers the top bits.
    (found >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Whether a text has characters beyond ASCII with ASCII letters in their lower case.
fn has_folding(text: &str) -> bool {
    !text.is_ascii() && text.contains(['\u{212a}', '\u{130}'])
}

fn push_plain(text: &str, out: &mut Vec<u8>) {
    for character in text.chars() {
        match character {
            '\u{212a}' => out.push(b'k'),
            '\u{130}' => out.extend_from_slice("i\u{307}".as_bytes()),
            _ => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

/// Fills `out` with the text in lower case, ASCII as it is, for looking up words in it. Other characters become bytes
/// that no word has.
pub(in crate::metric) fn letters_for_search(text: &str, out: &mut Vec<u8>) {
    const OTHER: u8 = 0xff;
    out.clear();
    if !has_folding(text) {
        out.extend(text.bytes().map(|byte| byte.to_ascii_lowercase()));
        return;
    }
    for character in text.chars() {
        match character {
            '\u{212a}' => out.push(b'k'),
            '\u{130}' => out.extend_from_slice(&[b'i', OTHER]),
            _ => out.push(
                u8::try_from(character).map_or(OTHER, |byte| match byte.is_ascii() {
                    true => byte.to_ascii_lowercase(),
                    false => OTHER,
                }),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens by the rule as it is said.
    fn tokens(text: &str) -> Vec<String> {
        let kept = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let lower = text.to_lowercase().replace(|c| !kept(c), " ");
        let tokens = lower.split(' ').filter(|token| !token.is_empty());
        tokens.map(str::to_owned).collect()
    }

    fn words(text: &str) -> Vec<String> {
        let mut words = Words::default();
        words.read("something else");
        words.read(text);
        let letters = words.list().iter().map(|word| {
            let letters = words.text()[word.from..word.to].to_ascii_lowercase();
            assert_eq!(word.key(), Word::of(&letters).key());
            assert_eq!(word.key().is_some(), letters.len() <= 16);
            String::from_utf8(letters).unwrap()
        });
        letters.collect()
    }

    #[test]
    fn words_are_those_of_the_lower_cased_text() {
        for text in [
            "It's 3.14!",
            "caf\u{e9}S",
            "\u{212a}elvin \u{130}x",
            "a_b\u{a0}c",
            "",
            "東京a",
            " abcdefghijklmnop abcdefghijklmnopq",
        ] {
            assert_eq!(words(text), tokens(text), "{text}");
        }
    }

    #[test]
    fn every_byte_is_seen_for_what_it_is() {
        for byte in 0..=u8::MAX {
            for place in 0..8 {
                let mut eight = *b"a Z-0\xff\0 ";
                eight[place] = byte;
                let expected = eight.iter().rev().fold(0, |bits, byte| {
                    bits << 1 | u64::from(byte.is_ascii_alphanumeric())
                });
                assert_eq!(letters_of_eight(eight), expected, "{eight:?}");
            }
        }
    }

    #[test]
    fn words_may_be_anywhere() {
        for (before, length, after) in (0..70)
            .flat_map(|before| [1, 7, 64, 65, 128].map(|length| (before, length, before % 3)))
        {
            let text = format!(
                "{}{}{}",
                " ".repeat(before),
                "x".repeat(length),
                "-".repeat(after)
            );
            assert_eq!(words(&text), ["x".repeat(length)]);
            assert_eq!(words(&format!("{text}_a")).len(), 2);
        }
    }

    #[test]
    fn no_other_character_has_ascii_letters_in_its_lower_case() {
        for character in '\u{80}'..=char::MAX {
            let text = character.to_string();
            assert_eq!(words(&text), tokens(&text), "{character:?}");
        }
    }

    #[test]
    fn search_letters_keep_ascii_and_lose_the_rest() {
        let mut out = Vec::new();
        letters_for_search("A-\u{212a}\u{130}\u{e9}B", &mut out);
        assert_eq!(out, b"a-ki\xff\xffb");
        letters_for_search("A-b", &mut out);
        assert_eq!(out, b"a-b");
    }
}
