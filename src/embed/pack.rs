//! Packing: tokenised texts, sorted by length, in batches of about equal work.

use crate::encoder::Packed;

/// Tokens a batch aims at. Large enough to keep the kernels' panels in cache across many rows, small
/// enough that a batch's activations stay in the last-level cache and that all threads have work.
pub(super) const TOKENS_PER_BATCH: usize = 256;

/// Splits `texts` (token ids) into batches of at most `budget` tokens, longer texts first, so that
/// the last batches to finish are the small ones. Returns the texts' positions per batch; a text
/// longer than the budget is alone in its batch.
pub(super) fn batches(texts: &[Vec<u32>], budget: usize) -> Vec<Vec<usize>> {
    let mut by_length: Vec<usize> = (0..texts.len()).collect();
    by_length.sort_by_key(|&at| std::cmp::Reverse(texts[at].len()));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut tokens = usize::MAX;
    for at in by_length {
        let more = texts[at].len();
        if tokens.saturating_add(more) > budget {
            batches.push(Vec::new());
            tokens = 0;
        }
        if let Some(batch) = batches.last_mut() {
            batch.push(at);
            tokens += more;
        }
    }
    batches
}

/// Packs the texts of one batch end to end.
pub(super) fn packed(texts: &[Vec<u32>], batch: &[usize]) -> Packed {
    let mut packed = Packed::default();
    for &at in batch {
        packed.push(&texts[at]);
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_text_is_in_exactly_one_batch_within_the_budget(lengths in prop::collection::vec(1usize..300, 0..200)) {
            let texts: Vec<Vec<u32>> = lengths.iter().map(|n| vec![7; *n]).collect();
            let batches = batches(&texts, 256);
            let mut all: Vec<usize> = batches.iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..texts.len()).collect::<Vec<_>>());
            for batch in &batches {
                let tokens: usize = batch.iter().map(|&at| texts[at].len()).sum();
                prop_assert!(tokens <= 256 || batch.len() == 1);
                prop_assert_eq!(packed(&texts, batch).tokens(), tokens);
            }
        }
    }
}
