//! Packing: tokenised texts wait in a window, and leave it in batches of about equal work.

use std::collections::BTreeMap;

/// Texts that are tokenised and not yet encoded, by their number of tokens.
#[derive(Debug)]
pub(super) struct Window<T> {
    by_length: BTreeMap<usize, Vec<T>>,
    texts: usize,
    tokens: usize,
}

impl<T> Default for Window<T> {
    fn default() -> Self {
        Self {
            by_length: BTreeMap::new(),
            texts: 0,
            tokens: 0,
        }
    }
}

impl<T> Window<T> {
    /// How many texts wait.
    pub fn texts(&self) -> usize {
        self.texts
    }

    /// How many tokens they have.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Adds a text of so many tokens.
    pub fn insert(&mut self, tokens: usize, text: T) {
        self.by_length.entry(tokens).or_default().push(text);
        self.texts += 1;
        self.tokens += tokens;
    }

    /// Takes a batch: the longest text, and then each time the longest one that still fits into `budget` tokens. So
    /// batches are full and of similar lengths, and the last ones to finish are small. A text longer than the
    /// budget is alone in its batch.
    pub fn take(&mut self, budget: usize) -> Vec<T> {
        let mut batch = Vec::new();
        let mut left = usize::MAX;
        while let Some((&tokens, _)) = self.by_length.range(..=left).next_back() {
            if let Some(texts) = self.by_length.get_mut(&tokens) {
                batch.extend(texts.pop());
                if texts.is_empty() {
                    self.by_length.remove(&tokens);
                }
            }
            self.tokens -= tokens;
            left = left.min(budget).saturating_sub(tokens);
        }
        self.texts -= batch.len();
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_text_leaves_once_in_a_full_batch_within_the_budget(lengths in prop::collection::vec(1usize..300, 0..200)) {
            let mut window = Window::default();
            lengths.iter().enumerate().for_each(|(at, n)| window.insert(*n, at));
            prop_assert_eq!(window.tokens(), lengths.iter().sum::<usize>());
            let (mut all, mut sums) = (Vec::new(), Vec::new());
            while window.texts() > 0 {
                let batch = window.take(256);
                let tokens: usize = batch.iter().map(|&at| lengths[at]).sum();
                prop_assert!(!batch.is_empty() && (tokens <= 256 || batch.len() == 1));
                sums.push((tokens, batch.iter().map(|&at| lengths[at]).min().unwrap_or(0)));
                all.extend(batch);
            }
            prop_assert!(window.take(256).is_empty() && window.tokens() == 0);
            all.sort_unstable();
            prop_assert_eq!(all, (0..lengths.len()).collect::<Vec<_>>());
            // Nothing that left later would have fitted in.
            for (at, (tokens, _)) in sums.iter().enumerate() {
                for (_, least) in &sums[at + 1..] {
                    prop_assert!(tokens + least > 256);
                }
            }
        }
    }
}
