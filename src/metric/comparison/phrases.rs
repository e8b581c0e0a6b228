//! Phrases in texts: ASCII letters in either case, a word boundary of ASCII at both ends, and every space a single one.

use aho_corasick::AhoCorasick;

/// Whether a byte is part of a word of ASCII: a letter, a digit or `_`. Letters beyond ASCII are not.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a word begins or ends at this byte of the text.
pub(in crate::metric) fn is_edge(text: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| text.get(before));
    let after = text.get(at);
    before.is_some_and(|byte| is_word(*byte)) != after.is_some_and(|byte| is_word(*byte))
}

/// A list of phrases of a case, which may be any texts.
#[derive(Debug)]
pub(in crate::metric) struct Phrases {
    automaton: Option<AhoCorasick>,
    phrases: Vec<String>,
}

impl Phrases {
    /// The list of a case's own phrases. `kept` is that of the case before, as cases of a suite often have the same.
    pub(in crate::metric) fn kept<'k>(kept: &'k mut Option<Self>, phrases: &[String]) -> &'k Self {
        let same = kept.take().filter(|kept| kept.phrases == phrases);
        kept.insert(same.unwrap_or_else(|| Self::new(phrases.to_vec())))
    }

    /// A list of phrases.
    pub(in crate::metric) fn new(phrases: Vec<String>) -> Self {
        let mut builder = AhoCorasick::builder();
        builder.ascii_case_insensitive(true);
        Self {
            automaton: builder.build(&phrases).ok(),
            phrases,
        }
    }

    /// For each phrase whether it occurs.
    pub(in crate::metric) fn are_in(&self, text: &str) -> Vec<bool> {
        let mut there = vec![false; self.phrases.len()];
        self.each_in(text, |at| {
            if let Some(there) = there.get_mut(at) {
                *there = true;
            }
        });
        there
    }

    /// Calls `found` with the place in the list of each phrase that occurs, once for each of its occurrences. Empty
    /// phrases are nowhere.
    pub(in crate::metric) fn each_in(&self, text: &str, mut found: impl FnMut(usize)) {
        let bytes = text.as_bytes();
        let Some(automaton) = &self.automaton else {
            // More states than an automaton can have: slow, and the same.
            let phrases = self.phrases.iter().enumerate();
            phrases.for_each(|(at, phrase)| (0..count(bytes, phrase)).for_each(|_| found(at)));
            return;
        };
        for hit in automaton.find_overlapping_iter(bytes) {
            if !hit.is_empty() && is_edge(bytes, hit.start()) && is_edge(bytes, hit.end()) {
                found(hit.pattern().as_usize());
            }
        }
    }
}

/// How often a phrase is in a text.
fn count(text: &[u8], phrase: &str) -> usize {
    let phrase = phrase.as_bytes();
    let is_hit = |(at, window): &(usize, &[u8])| {
        window.eq_ignore_ascii_case(phrase)
            && is_edge(text, *at)
            && is_edge(text, at + phrase.len())
    };
    match phrase.is_empty() {
        true => 0,
        false => text
            .windows(phrase.len())
            .enumerate()
            .filter(is_hit)
            .count(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(phrases: &[&str], text: &str) -> Vec<usize> {
        let mut counts = vec![0; phrases.len()];
        let phrases: Vec<String> = phrases.iter().map(|phrase| (*phrase).to_owned()).collect();
        Phrases::new(phrases).each_in(text, |at| counts[at] += 1);
        counts
    }

    #[test]
    fn phrases_are_whole_words_in_any_case() {
        let phrases = ["I think", "I", "a b a", "!"];
        for (text, expected) in [
            ("i THINK I thinker", [1, 2, 0, 0]),
            ("I  think I\nthink", [0, 2, 0, 0]),
            ("_I think_ I_", [0, 0, 0, 0]),
            ("éI thinké", [1, 1, 0, 0]),
            ("a b a b a", [0, 0, 2, 0]),
            ("x! !y", [0, 0, 0, 0]),
            ("x! x!y", [0, 0, 0, 1]),
        ] {
            assert_eq!(counts(&phrases, text), expected, "{text}");
        }
        assert_eq!(counts(&[""], "a"), [0]);
    }

    proptest! {
        #[test]
        fn both_ways_of_searching_agree(text in "[aAbé _]{0,12}", phrase in "[ab é]{1,4}") {
            prop_assert_eq!(counts(&[&phrase, "a"], &text), [count(text.as_bytes(), &phrase), count(text.as_bytes(), "a")]);
        }
    }
}
