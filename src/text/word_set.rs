//! Word sets and their overlap (as in PandaProbe).

use std::ops::Range;

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

/// Words that carry no meaning of their own; they never make two texts alike. Sorted.
const STOP_WORDS: [&str; 70] = [
    "a", "above", "after", "all", "an", "and", "any", "are", "as", "at", "be", "been", "before",
    "being", "below", "both", "but", "by", "can", "could", "did", "do", "does", "during", "each",
    "either", "every", "few", "for", "from", "had", "has", "have", "in", "into", "is", "it", "its",
    "may", "might", "more", "most", "neither", "no", "nor", "not", "of", "on", "only", "or",
    "other", "own", "same", "shall", "should", "so", "some", "such", "than", "the", "through",
    "to", "too", "very", "was", "were", "will", "with", "would", "yet",
];

/// Bytes of text that are lower-cased at once: a long text is never in memory a second time.
const PIECE: usize = 1 << 16;

/// The words of a text: lower-cased (full Unicode mapping), maximal runs of letters, numbers and
/// `_`; runs of one character and stop words are left out. May repeat.
pub fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    each_word(text, |word| found.push(word.to_owned()));
    found
}

fn each_word(text: &str, mut each: impl FnMut(&str)) {
    let mut keep = |word: &str| {
        if word.chars().nth(1).is_some() && STOP_WORDS.binary_search(&word).is_err() {
            each(word);
        }
    };
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(piece_end(rest));
        rest = after;
        let lower = piece.to_lowercase();
        let mut start = None;
        for (at, c) in lower.char_indices() {
            match (is_word_character(c), start) {
                (true, None) => start = Some(at),
                (false, Some(from)) => {
                    keep(&lower[from..at]);
                    start = None;
                }
                _ => {}
            }
        }
        if let Some(from) = start {
            keep(&lower[from..]);
        }
    }
}

/// A run of letters, numbers and `_` in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordAt {
    /// Where it stands, in bytes.
    pub at: Range<usize>,
    /// The same in small letters.
    pub word: String,
    /// Whether it counts as one of [`words`].
    pub counts: bool,
}

/// All runs of letters, numbers and `_` of a text, in their order, to be shown: those that count are [`words`], but for
/// letters whose lower case is none.
pub fn words_at(text: &str) -> Vec<WordAt> {
    let mut found = Vec::new();
    let mut push = |at: Range<usize>| {
        let word = text[at.clone()].to_lowercase();
        let counts =
            word.chars().nth(1).is_some() && STOP_WORDS.binary_search(&word.as_str()).is_err();
        found.push(WordAt { at, word, counts });
    };
    let mut start = None;
    for (at, c) in text.char_indices() {
        match (is_word_character(c), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                push(from..at);
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        push(from..text.len());
    }
    found
}

/// Where a piece of the text ends: at ASCII white space, beyond which nothing decides the lower case of a letter.
fn piece_end(text: &str) -> usize {
    let beyond = text.as_bytes().get(PIECE..).unwrap_or_default();
    let space = beyond.iter().position(u8::is_ascii_whitespace);
    space.map_or(text.len(), |space| PIECE + space)
}

fn is_word_character(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || c == '_';
    }
    matches!(
        c.general_category_group(),
        GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number
    )
}

/// The set of a text's words, as sorted 64-bit hashes. Two different words of one pair of texts
/// share a hash with a chance of about one in 10^13, so that comparing hashes is comparing words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordSet(Vec<u64>);

impl WordSet {
    /// The word set of a text.
    pub fn of(text: &str) -> Self {
        // Repeated words are dropped whenever there are twice as many as after the last time.
        let mut hashes: Vec<u64> = Vec::new();
        let mut most = PIECE;
        each_word(text, |word| {
            hashes.push(hash(word));
            if hashes.len() >= most {
                hashes.sort_unstable();
                hashes.dedup();
                most = PIECE.max(2 * hashes.len());
            }
        });
        hashes.sort_unstable();
        hashes.dedup();
        Self(hashes)
    }

    /// The sorted hashes.
    pub fn hashes(&self) -> &[u64] {
        &self.0
    }

    /// The overlap |A ∩ B| / |A ∪ B| of two sorted sets of hashes, in [0, 1]; 0 when both are empty.
    pub fn jaccard(a: &[u64], b: &[u64]) -> f64 {
        let (mut i, mut j, mut shared) = (0, 0, 0usize);
        while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
            shared += usize::from(x == y);
            i += usize::from(x <= y);
            j += usize::from(y <= x);
        }
        let all = a.len() + b.len() - shared;
        if all == 0 {
            0.0
        } else {
            shared as f64 / all as f64
        }
    }
}

pub(super) fn hash(word: &str) -> u64 {
    let mut first = [0u8; 8];
    first.copy_from_slice(&blake3::hash(word.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// Jaccard similarity of two texts' word sets, in [0, 1], unrounded.
pub fn jaccard_of_texts(a: &str, b: &str) -> f64 {
    WordSet::jaccard(WordSet::of(a).hashes(), WordSet::of(b).hashes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole text at once: the rule in its plainest form.
    fn words_of_whole(text: &str) -> Vec<String> {
        let lower = text.to_lowercase();
        let runs = lower.split(|c| !is_word_character(c));
        let kept = runs
            .filter(|run| run.chars().nth(1).is_some() && STOP_WORDS.binary_search(run).is_err());
        kept.map(str::to_owned).collect()
    }

    #[test]
    fn long_texts_have_the_words_of_their_whole() {
        let unit = "Straße ΟΔΟΣ ΑΣ'Α the_end İstanbul 42 \u{65e5}\u{672c}, x ";
        for text in [
            unit.repeat(6000),
            "Σ".repeat(PIECE),
            format!("{} ΟΔΟΣ", "a".repeat(PIECE - 1)),
            format!("{}ΟΔΟΣ tail", "a ".repeat(PIECE / 2)),
        ] {
            assert!(text.len() > PIECE);
            assert_eq!(words(&text), words_of_whole(&text));
            let mut hashes: Vec<u64> = words_of_whole(&text).iter().map(|w| hash(w)).collect();
            hashes.sort_unstable();
            hashes.dedup();
            assert_eq!(WordSet::of(&text).hashes(), hashes);
        }
    }

    #[test]
    fn words_stand_where_they_are_found() {
        let text = "The Straße is ΟΔΟΣ, x_1: 日本 a";
        let found = words_at(text);
        let counting = found.iter().filter(|word| word.counts);
        let counting: Vec<String> = counting.map(|word| word.word.clone()).collect();
        assert_eq!(counting, words(text));
        let there: Vec<&str> = found.iter().map(|word| &text[word.at.clone()]).collect();
        assert_eq!(there, ["The", "Straße", "is", "ΟΔΟΣ", "x_1", "日本", "a"]);
    }

    #[test]
    fn stop_words_are_sorted_for_the_binary_search() {
        assert!(STOP_WORDS.is_sorted());
    }
}
