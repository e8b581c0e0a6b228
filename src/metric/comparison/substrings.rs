//! Words of four bytes or more somewhere in a short text, by the places where their first four bytes are.

/// Bytes that places are found by.
const WINDOW: usize = 4;
const BUCKETS: usize = 1024;

/// Where each four bytes of a text are.
#[derive(Debug, Default)]
pub(in crate::metric) struct Substrings {
    /// For each bucket the last place in it, plus 1; 0 for none.
    last: Vec<u32>,
    /// For each place the one before it in its bucket, in the same way.
    before: Vec<u32>,
}

impl Substrings {
    /// Reads a text. Of a text of four gigabytes and more, only that much.
    pub(in crate::metric) fn index(&mut self, text: &[u8]) {
        self.last.clear();
        self.last.resize(BUCKETS, 0);
        self.before.clear();
        let windows = text.windows(WINDOW).zip(1_u32..);
        let Self { last, before } = self;
        before.extend(windows.map(|(window, place)| {
            let last = last.get_mut(bucket(window));
            last.map_or(0, |last| std::mem::replace(last, place))
        }));
    }

    /// Whether the text that was read, `text`, contains the word, which has four bytes or more.
    pub(in crate::metric) fn contains(&self, text: &[u8], word: &[u8]) -> bool {
        let first = word.get(..WINDOW).unwrap_or_default();
        let mut place = self.last.get(bucket(first)).copied().unwrap_or(0);
        while let Some(at) = place.checked_sub(1).and_then(|at| usize::try_from(at).ok()) {
            if text.get(at..).is_some_and(|here| here.starts_with(word)) {
                return true;
            }
            place = self.before.get(at).copied().unwrap_or(0);
        }
        false
    }
}

fn bucket(window: &[u8]) -> usize {
    let bytes = <[u8; WINDOW]>::try_from(window).unwrap_or_default();
    let spread = u32::from_le_bytes(bytes).wrapping_mul(0x9e37_79b1);
    usize::try_from(spread >> 22).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_are_found_where_they_are(text in "[ab]{0,20}", word in "[ab]{4,6}") {
            let mut substrings = Substrings::default();
            substrings.index(b"another text");
            substrings.index(text.as_bytes());
            prop_assert_eq!(substrings.contains(text.as_bytes(), word.as_bytes()), text.contains(&word));
        }
    }
}
