//! Scores of sequences of words.

use std::collections::HashMap;

use super::RougeScore;

/// Most steps of a comparison: for common subsequences, pairs of words.
const MOST_STEPS: usize = 1 << 28;

fn score(hits: usize, actual: usize, expected: usize) -> RougeScore {
    // Counts of words are far below 2^53.
    let part = |whole: usize| hits as f64 / whole.max(1) as f64;
    let (precision, recall) = (part(actual), part(expected));
    let f1 = match precision + recall > 0.0 {
        true => 2.0 * precision * recall / (precision + recall),
        false => 0.0,
    };
    RougeScore {
        precision,
        recall,
        f1,
    }
}

/// Of sequences of so many words. None if that takes too long.
pub(super) fn gram_score(actual: &[u32], expected: &[u32], size: usize) -> Option<RougeScore> {
    let grams = |words: &[u32]| words.len().saturating_sub(size - 1);
    let (of_actual, of_expected) = (grams(actual), grams(expected));
    if (of_actual + of_expected).saturating_mul(size) > MOST_STEPS {
        return None;
    }
    let mut counts: HashMap<&[u32], usize> = HashMap::new();
    for gram in expected.windows(size) {
        *counts.entry(gram).or_default() += 1;
    }
    let mut hits = 0;
    for gram in actual.windows(size) {
        if let Some(left) = counts.get_mut(gram).filter(|left| **left > 0) {
            *left -= 1;
            hits += 1;
        }
    }
    Some(score(hits, of_actual, of_expected))
}

/// Of the longest common subsequence. None if that takes too long.
pub(super) fn subsequence_score(actual: &[u32], expected: &[u32]) -> Option<RougeScore> {
    if actual.len().saturating_mul(expected.len()) > MOST_STEPS {
        return None;
    }
    let mut row = vec![0_usize; actual.len() + 1];
    for word in expected {
        let mut diagonal = 0;
        for (at, other) in actual.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = match word == other {
                true => diagonal + 1,
                false => above.max(row[at]),
            };
            diagonal = above;
        }
    }
    let longest = row.last().copied().unwrap_or(0);
    Some(score(longest, actual.len(), expected.len()))
}

/// Of the words of each expected sentence that are common with some actual one, none counted more often than it occurs.
/// None if that takes too long.
pub(super) fn summary_score(actual: &[Vec<u32>], expected: &[Vec<u32>]) -> Option<RougeScore> {
    let count = |sentences: &[Vec<u32>]| sentences.iter().map(Vec::len).sum::<usize>();
    let (of_actual, of_expected) = (count(actual), count(expected));
    if of_actual.saturating_mul(of_expected) > MOST_STEPS {
        return None;
    }
    let mut left_actual = occurrences(actual);
    let mut left_expected = occurrences(expected);
    let mut hits = 0;
    for sentence in expected {
        let mut common = vec![false; sentence.len()];
        for other in actual {
            mark_common(sentence, other, &mut common);
        }
        let common = sentence.iter().zip(&common).filter(|(_, common)| **common);
        for (word, _) in common {
            let left = (left_actual.get_mut(word), left_expected.get_mut(word));
            if let (Some(actual @ 1..), Some(expected @ 1..)) = left {
                hits += 1;
                *actual -= 1;
                *expected -= 1;
            }
        }
    }
    Some(score(hits, of_actual, of_expected))
}

fn occurrences(sentences: &[Vec<u32>]) -> HashMap<u32, usize> {
    let mut counts = HashMap::new();
    for word in sentences.iter().flatten() {
        *counts.entry(*word).or_default() += 1;
    }
    counts
}

/// Marks the words of a sentence that are in its longest common subsequence with another; of several, the one that
/// rouge_score finds.
fn mark_common(sentence: &[u32], other: &[u32], common: &mut [bool]) {
    let width = other.len();
    // Per pair of places: whether the way back goes to the word before in the other sentence. A bit a pair.
    let mut to_other = vec![0_u64; (sentence.len() * width).div_ceil(64)];
    let mut row = vec![0_usize; width + 1];
    for (i, word) in sentence.iter().enumerate() {
        let mut diagonal = 0;
        for (j, candidate) in other.iter().enumerate() {
            let above = row[j + 1];
            row[j + 1] = match word == candidate {
                true => diagonal + 1,
                false => {
                    if row[j] > above {
                        let bit = i * width + j;
                        to_other[bit / 64] |= 1 << (bit % 64);
                    }
                    above.max(row[j])
                }
            };
            diagonal = above;
        }
    }
    let (mut i, mut j) = (sentence.len(), width);
    while i > 0 && j > 0 {
        let bit = (i - 1) * width + j - 1;
        if sentence[i - 1] == other[j - 1] {
            common[i - 1] = true;
            i -= 1;
            j -= 1;
        } else if to_other[bit / 64] >> (bit % 64) & 1 == 1 {
            j -= 1;
        } else {
            i -= 1;
        }
    }
}
