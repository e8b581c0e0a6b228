//! Word sets and their overlap (specification, section 7).

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

/// The words of a text: lower-cased (full Unicode mapping), maximal runs of letters, numbers and
/// `_`; runs of one character and stop words are left out. May repeat.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    let lower = text.to_lowercase();
    let mut found = Vec::new();
    let mut start = None;
    for (at, c) in lower.char_indices() {
        match (is_word_character(c), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                keep(&mut found, &lower[from..at]);
                start = None;
            }
            _ => {}
        }
    }
    if let Some(from) = start {
        keep(&mut found, &lower[from..]);
    }
    found.into_iter()
}

fn keep(found: &mut Vec<String>, word: &str) {
    if word.chars().nth(1).is_some() && STOP_WORDS.binary_search(&word).is_err() {
        found.push(word.to_owned());
    }
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
        let mut hashes: Vec<u64> = words(text).map(|word| hash(&word)).collect();
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

fn hash(word: &str) -> u64 {
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

    #[test]
    fn stop_words_are_sorted_for_the_binary_search() {
        assert!(STOP_WORDS.is_sorted());
    }
}
