//! Fixed lists of words and phrases, all of them looked for in one pass over a text.

use super::phrases::is_edge;
use super::words::{Word, Words, each_word};

/// Slots for some hundred words, few of which share one.
const SLOTS: usize = 512;

/// Words and phrases of ASCII. Each phrase begins and ends with a letter or a digit, and neither a word nor the first
/// word of a phrase has over 16 letters.
#[derive(Debug)]
pub(in crate::metric) struct Lexicon {
    /// Keys of words; open addressing, 0 is free. There are many more slots than words.
    keys: Vec<u128>,
    /// What the words in the slots are.
    entries: Vec<Entry>,
    /// Phrases without their first word, by first words.
    phrases: Vec<Phrase>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The lists that the word is in, as bits.
    lists: u8,
    /// The phrases that it begins: the first, and how many.
    phrases: (usize, usize),
}

#[derive(Debug)]
struct Phrase {
    rest: &'static [u8],
    /// Its place in the list.
    number: usize,
}

/// Something of a lexicon in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::metric) enum Hit {
    /// A word, with the lists that it is in as bits.
    Word(u8),
    /// A phrase, with its place in the list.
    Phrase(usize),
}

impl Lexicon {
    /// A lexicon of up to eight lists of words, and one list of phrases.
    pub(in crate::metric) fn new(lists: &[&[&str]], phrases: &[&'static str]) -> Self {
        let mut lexicon = Self {
            keys: vec![0; SLOTS],
            entries: vec![Entry::default(); SLOTS],
            phrases: Vec::new(),
        };
        for (list, words) in lists.iter().enumerate() {
            for word in *words {
                if let Some(entry) = lexicon.entry(word.as_bytes()) {
                    entry.lists |= 1 << list;
                }
            }
        }
        let mut split: Vec<(&[u8], Phrase)> = Vec::new();
        for (number, phrase) in phrases.iter().enumerate() {
            let phrase = phrase.as_bytes();
            let end = phrase.iter().position(|byte| !byte.is_ascii_alphanumeric());
            let (first, rest) = phrase.split_at(end.unwrap_or(phrase.len()));
            split.push((first, Phrase { rest, number }));
        }
        split.sort_by_key(|(first, _)| first.to_ascii_lowercase());
        for (first, phrase) in split {
            let at = lexicon.phrases.len();
            if let Some(entry) = lexicon.entry(first) {
                let (from, count) = entry.phrases;
                entry.phrases = (if count == 0 { at } else { from }, count + 1);
            }
            lexicon.phrases.push(phrase);
        }
        lexicon
    }

    fn entry(&mut self, word: &[u8]) -> Option<&mut Entry> {
        let key = Word::of(word).key()?;
        let at = self.slot(key);
        *self.keys.get_mut(at)? = key;
        self.entries.get_mut(at)
    }

    /// The slot that has the key, or the free one where it would be.
    #[inline]
    fn slot(&self, key: u128) -> usize {
        let mut at = spot(key);
        while self
            .keys
            .get(at)
            .is_some_and(|other| *other != key && *other != 0)
        {
            at = (at + 1) % SLOTS;
        }
        at
    }

    /// Calls `found` with the words and phrases of a text, each time that they occur. Words are those of the
    /// lower-cased text, runs of letters and digits; phrases stand between the edges of words of ASCII. `words` are
    /// those of the text.
    pub(in crate::metric) fn each_in(&self, text: &str, words: &Words, mut found: impl FnMut(Hit)) {
        let folded = words.are_folded();
        for word in words.list() {
            let Some(entry) = self.of(word) else {
                continue;
            };
            if entry.lists != 0 {
                found(Hit::Word(entry.lists));
            }
            if !folded {
                self.each_phrase(entry, word, text, &mut found);
            }
        }
        if folded {
            each_word(text.as_bytes(), |word| {
                if let Some(entry) = self.of(&word) {
                    self.each_phrase(entry, &word, text, &mut found);
                }
            });
        }
    }

    fn each_phrase(&self, entry: &Entry, word: &Word, text: &str, found: &mut impl FnMut(Hit)) {
        let (from, count) = entry.phrases;
        for phrase in self.phrases.iter().skip(from).take(count) {
            if phrase.is_at(text.as_bytes(), word) {
                found(Hit::Phrase(phrase.number));
            }
        }
    }

    #[inline]
    fn of(&self, word: &Word) -> Option<&Entry> {
        let key = word.key()?;
        let at = self.slot(key);
        let is_known = self.keys.get(at) == Some(&key);
        self.entries.get(at).filter(|_| is_known)
    }
}

impl Phrase {
    /// Whether the phrase begins with this word of the text.
    fn is_at(&self, text: &[u8], word: &Word) -> bool {
        let end = word.to + self.rest.len();
        let here = text.get(word.to..end);
        here.is_some_and(|here| here.eq_ignore_ascii_case(self.rest))
            && is_edge(text, word.from)
            && is_edge(text, end)
    }
}

fn spot(key: u128) -> usize {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let halves = (key ^ key >> 64) & u128::from(u64::MAX);
    let spread = u64::try_from(halves).unwrap_or(0).wrapping_mul(ODD);
    usize::try_from(spread >> 55).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::phrases::Phrases;
    use super::*;

    const WORDS: [&[&str]; 2] = [&["kind", "sort"], &["sort", "sixteen0letters0"]];
    const PHRASES: [&str; 5] = ["I'm sorry", "kind", "kind of", "I", "i-k"];

    fn hits(text: &str) -> (Vec<u8>, Vec<usize>) {
        let (mut words, mut phrases) = (Vec::new(), Vec::new());
        let mut read = Words::default();
        read.read(text);
        Lexicon::new(&WORDS, &PHRASES).each_in(text, &read, |hit| match hit {
            Hit::Word(lists) => words.push(lists),
            Hit::Phrase(number) => phrases.push(number),
        });
        phrases.sort_unstable();
        (words, phrases)
    }

    #[test]
    fn words_and_phrases_have_edges_of_their_own() {
        for (text, words, phrases) in [
            ("Kind of sort", &[1, 1 | 2][..], &[1, 2][..]),
            ("_kind I_", &[1], &[]),
            ("kindé éSORT", &[1, 1 | 2], &[1]),
            ("i'm sorry, I'M SORRY5", &[], &[0, 3, 3]),
            ("sixteen0letters0 sixteen0letters01", &[2], &[]),
            ("\u{212a}ind", &[1], &[]),
            ("i\u{212a} kind", &[1], &[1, 3]),
            ("i-k\u{212a}", &[], &[3, 4]),
            ("\u{130} sort", &[3], &[]),
        ] {
            assert_eq!(hits(text), (words.to_vec(), phrases.to_vec()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn phrases_are_those_of_the_phrase_search(text in "((?i)kind| of|i|'m sorry|-k|[ _.é]){0,8}") {
            let mut expected = Vec::new();
            let phrases = PHRASES.map(str::to_owned);
            Phrases::kept(&mut None, &phrases).each_in(&text, |number| expected.push(number));
            expected.sort_unstable();
            prop_assert_eq!(hits(&text).1, expected);
        }
    }
}
