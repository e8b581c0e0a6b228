//! Word sets in a few hundred bytes: two texts can be compared long after both are gone.

use super::word_set::{WordSet, hash};

/// Words that a sketch keeps. Texts with at most so many distinct words are compared exactly, longer ones by a sample.
pub const SKETCH: usize = 64;

/// The smallest hashes of a text's word set, sorted and distinct: at most [`SKETCH`] of them.
///
/// Hashes fall on words evenly, so that the smallest ones of two texts are a fair sample of the words of both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordSketch(Vec<u32>);

impl WordSketch {
    /// The sketch of a text.
    pub fn of(text: &str) -> Self {
        Self::of_hashes(WordSet::of(text).hashes().iter().copied())
    }

    /// The sketch of a text that is also one word as a whole: texts of the same words are not the same then.
    pub fn of_whole(text: &str) -> Self {
        let mut hashes = WordSet::of(text).hashes().to_vec();
        hashes.push(text_hash(text));
        hashes.sort_unstable();
        Self::of_hashes(hashes.into_iter())
    }

    fn of_hashes(sorted: impl Iterator<Item = u64>) -> Self {
        // The upper half orders as the whole does.
        let mut hashes: Vec<u32> = sorted
            .take(SKETCH)
            .map(|hash| (hash >> 32) as u32)
            .collect();
        hashes.dedup();
        Self(hashes)
    }

    /// From what [`WordSketch::hashes`] gave.
    pub fn from_hashes(mut hashes: Vec<u32>) -> Self {
        hashes.sort_unstable();
        hashes.dedup();
        hashes.truncate(SKETCH);
        Self(hashes)
    }

    /// The hashes, sorted.
    pub fn hashes(&self) -> &[u32] {
        &self.0
    }

    /// The overlap |A ∩ B| / |A ∪ B| of the word sets, in [0, 1]: exact for short texts, and estimated from the smallest
    /// hashes of the union for long ones; 0 when both are empty.
    pub fn jaccard(&self, other: &Self) -> f64 {
        let (a, b) = (&self.0, &other.0);
        // Beyond the last hash of a full sketch nobody knows what the other text shares with it.
        let most = match a.len() == SKETCH || b.len() == SKETCH {
            true => SKETCH,
            false => usize::MAX,
        };
        let (mut i, mut j, mut shared, mut all) = (0, 0, 0usize, 0usize);
        while all < most {
            let (take_a, take_b) = match (a.get(i), b.get(j)) {
                (None, None) => break,
                (Some(_), None) => (true, false),
                (None, Some(_)) => (false, true),
                (Some(x), Some(y)) => (x <= y, y <= x),
            };
            i += usize::from(take_a);
            j += usize::from(take_b);
            shared += usize::from(take_a && take_b);
            all += 1;
        }
        match all {
            0 => 0.0,
            all => shared as f64 / all as f64,
        }
    }
}

/// A 64-bit hash of a whole text, for asking whether two texts are equal.
pub fn text_hash(text: &str) -> u64 {
    hash(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::jaccard_of_texts;

    fn numbered(range: std::ops::Range<usize>) -> String {
        range.map(|i| format!("word{i} ")).collect()
    }

    #[test]
    fn short_texts_are_compared_exactly() {
        for (a, b) in [
            ("", ""),
            ("red car", ""),
            ("red car", "red bike"),
            ("red car", "Car, red!"),
        ] {
            let estimated = WordSketch::of(a).jaccard(&WordSketch::of(b));
            assert_eq!(estimated, jaccard_of_texts(a, b), "{a:?} {b:?}");
        }
        let (a, b) = (numbered(0..40), numbered(20..60));
        let estimated = WordSketch::of(&a).jaccard(&WordSketch::of(&b));
        assert_eq!(estimated, 20.0 / 60.0);
    }

    #[test]
    fn long_texts_are_compared_by_a_sample() {
        let (a, b) = (numbered(0..3000), numbered(1000..4000));
        let estimated = WordSketch::of(&a).jaccard(&WordSketch::of(&b));
        assert!((estimated - 0.5).abs() < 0.2, "{estimated}");
        assert_eq!(WordSketch::of(&a).jaccard(&WordSketch::of(&a)), 1.0);
        assert_eq!(WordSketch::of(&a).hashes().len(), SKETCH);
    }

    #[test]
    fn a_text_as_a_whole_is_a_word_of_its_own() {
        let [one, two] = ["page 1", "page 2"].map(WordSketch::of_whole);
        assert_eq!(one.jaccard(&two), 1.0 / 3.0);
        assert_eq!(one.jaccard(&one.clone()), 1.0);
        let back = WordSketch::from_hashes(one.hashes().to_vec());
        assert_eq!(back, one);
    }
}
