//! How a text reads: pieces between white space, words and sentences.

use crate::metric::comparison::is_space;

/// Counts of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// Pieces between runs of white space. White space at an end leaves an empty piece there, and the empty text is
    /// one.
    pub(super) pieces: usize,
    /// Pieces that are not empty.
    pub(super) words: usize,
    /// Texts between the marks that end sentences, without blank ones. The marks are runs of `.`, `!`, `?` and `…` with
    /// white space or the end behind them, and `。`, `！` and `？`.
    pub(super) sentences: usize,
}

impl Reading {
    /// Words in a sentence, in the mean; 0 without either.
    pub(super) fn words_per_sentence(self) -> f64 {
        match self.sentences {
            0 => 0.0,
            sentences => self.words as f64 / sentences as f64,
        }
    }
}

/// Counts a text.
pub(super) fn read(text: &str) -> Reading {
    if text.is_ascii() {
        return read_ascii(text.as_bytes());
    }
    let mut counter = Counter::default();
    text.chars()
        .for_each(|character| counter.step(kind_of(character)));
    counter.end()
}

/// The same for ASCII, where marks are few and everything else is counted without looking at the order.
fn read_ascii(text: &[u8]) -> Reading {
    let is_space = |byte: &u8| matches!(byte, b'\t'..=b'\r' | b' ');
    let [at_start, at_end] =
        [text.first(), text.last()].map(|end| usize::from(end.is_some_and(is_space)));
    let mut gaps = 0;
    let mut before = false;
    // In blocks whose counts fit in a byte, which compilers count many at a time.
    for block in text.chunks(128) {
        let after = block
            .first()
            .map_or(0, |first| u8::from(is_space(first) && !before));
        let later = block.iter().skip(1).zip(block);
        let later = later.map(|(byte, before)| u8::from(is_space(byte) & !is_space(before)));
        gaps += usize::from(after + later.sum::<u8>());
        before = block.last().is_some_and(is_space);
    }
    let words = match text.is_empty() {
        true => 0,
        // Of pieces, only those at the ends may be empty.
        false => gaps + 1 - at_start - at_end,
    };
    let mut sentences = 0;
    let mut from = 0;
    let mut end_sentence = |from: usize, to: usize| {
        let sentence = text.get(from..to).unwrap_or_default();
        sentences += usize::from(!sentence.iter().all(is_space));
    };
    // The first mark of the run at hand.
    let mut run = 0;
    let mut before = None;
    for at in memchr::memchr3_iter(b'.', b'!', b'?', text) {
        if before.is_none_or(|before| before + 1 < at) {
            run = at;
        }
        before = Some(at);
        // Marks without white space behind them are text, and marks before other marks wait for the last one.
        if text.get(at + 1).is_none_or(is_space) {
            end_sentence(from, run);
            from = at + 1;
        }
    }
    end_sentence(from, text.len());
    Reading {
        pieces: gaps + 1,
        words,
        sentences,
    }
}

/// What a character is for counting.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    /// Also what is before the text.
    #[default]
    Space,
    /// Ends a sentence if white space follows.
    Mark,
    /// Ends a sentence.
    WideMark,
    Other,
}

#[derive(Default)]
struct Counter {
    /// Runs of white space.
    gaps: usize,
    words: usize,
    sentences: usize,
    /// Whether the sentence at hand has anything in it; marks that may end it do not count yet.
    has_text: bool,
    before: Kind,
    started: bool,
}

impl Counter {
    #[inline]
    fn step(&mut self, kind: Kind) {
        let after_space = self.before == Kind::Space;
        match kind {
            Kind::Space => {
                self.gaps += usize::from(!after_space || !self.started);
                if self.before == Kind::Mark {
                    self.end_sentence();
                }
            }
            Kind::Mark => self.words += usize::from(after_space),
            Kind::Other => {
                self.words += usize::from(after_space);
                self.has_text = true;
            }
            Kind::WideMark => {
                self.words += usize::from(after_space);
                // Marks without white space behind them are text.
                self.has_text |= self.before == Kind::Mark;
                self.end_sentence();
            }
        }
        self.before = kind;
        self.started = true;
    }

    fn end_sentence(&mut self) {
        self.sentences += usize::from(self.has_text);
        self.has_text = false;
    }

    fn end(mut self) -> Reading {
        self.end_sentence();
        Reading {
            pieces: self.gaps + 1,
            words: self.words,
            sentences: self.sentences,
        }
    }
}

fn kind_of(character: char) -> Kind {
    match character {
        '.' | '!' | '?' | '…' => Kind::Mark,
        '。' | '！' | '？' => Kind::WideMark,
        _ if is_space(character) => Kind::Space,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The counts by the rules as they are said.
    fn by_the_rules(text: &str) -> Reading {
        let pieces: Vec<&str> = {
            let mut pieces = Vec::new();
            let mut rest = text;
            while let Some(at) = rest.find(is_space) {
                pieces.push(&rest[..at]);
                rest = rest[at..].trim_start_matches(is_space);
            }
            pieces.push(rest);
            pieces
        };
        let characters: Vec<char> = text.chars().collect();
        let mut sentences = vec![String::new()];
        let mut at = 0;
        while let Some(character) = characters.get(at) {
            let narrow = characters[at..]
                .iter()
                .take_while(|c| ".!?…".contains(**c))
                .count();
            let ends = narrow > 0 && characters.get(at + narrow).is_none_or(|c| is_space(*c));
            match narrow {
                0 if "。！？".contains(*character) => sentences.push(String::new()),
                0 => sentences.last_mut().unwrap().push(*character),
                _ if ends => sentences.push(String::new()),
                _ => sentences
                    .last_mut()
                    .unwrap()
                    .extend(&characters[at..at + narrow]),
            }
            at += narrow.max(1);
        }
        Reading {
            pieces: pieces.len(),
            words: pieces.iter().filter(|piece| !piece.is_empty()).count(),
            sentences: sentences
                .iter()
                .filter(|s| !s.chars().all(is_space))
                .count(),
        }
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_rules(text in "[a .!。\n…]{0,14}", ascii in "[a .!\n]{0,14}") {
            prop_assert_eq!(read(&text), by_the_rules(&text));
            prop_assert_eq!(read(&ascii), by_the_rules(&ascii));
        }
    }

    #[test]
    fn counts_of_some_texts() {
        for (text, pieces, words, sentences) in [
            ("", 1, 0, 0),
            ("\n\nTherefore\n\n", 3, 1, 1),
            ("Wait... what?! No!!", 3, 3, 3),
            ("3.14 is pi. v1.2", 4, 4, 2),
            ("!!!", 1, 1, 0),
            (". a", 2, 2, 1),
            ("東京です。はい！", 1, 1, 2),
            ("a.。", 1, 1, 1),
            (".。", 1, 1, 1),
            (" ", 2, 0, 0),
        ] {
            let expected = Reading {
                pieces,
                words,
                sentences,
            };
            assert_eq!(read(text), expected, "{text:?}");
        }
    }
}
