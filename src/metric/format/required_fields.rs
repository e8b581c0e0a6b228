//! `required_fields`: whether the words of the expected text are in the output.

use aho_corasick::automaton::Automaton as _;
use aho_corasick::nfa::noncontiguous::NFA;
use aho_corasick::{Anchored, Input};

use crate::metric::comparison::{
    Phrases, Vocabulary, Word, Words, Workspace, is_space, letters_for_search, strip_fences,
};

/// Words are long enough from here on.
const FEWEST_LETTERS: usize = 4;
/// Comparisons of a word with a place of the output, above which all words are searched at once.
const MOST_COMPARISONS: usize = 1 << 22;
/// Most terms that are named.
const MOST_NAMED: usize = 5;

/// The terms that an output must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Required {
    /// How many there are.
    pub(super) count: usize,
    /// How many of them are in the output.
    pub(super) found: usize,
    /// The first of the others.
    pub(super) missing: Vec<String>,
}

impl Required {
    /// The share of terms that are there; 1 without terms.
    pub(super) fn score(&self) -> f64 {
        match self.count {
            0 => 1.0,
            count => self.found as f64 / count as f64,
        }
    }
}

/// Looks the words of four letters and digits or more of the expected text up in the output, anywhere, without a code
/// fence around it. The words are those of the lower-cased text after everything but ASCII letters, digits and white
/// space is deleted from it. At most `most` of those that are missing are named.
pub(super) fn of_expected(
    actual: &str,
    expected: &str,
    most: usize,
    workspace: &mut Workspace,
) -> Required {
    let most = most.min(MOST_NAMED);
    let Workspace {
        actual_letters,
        expected_words,
        vocabulary,
        substrings,
        ..
    } = workspace;
    expected_words.read(expected);
    collect_words(expected_words, vocabulary);
    letters_for_search(strip_fences(actual), actual_letters);
    let mut required = Required {
        count: vocabulary.len(),
        ..Required::default()
    };
    let is_there = match vocabulary.len().saturating_mul(actual_letters.len()) > MOST_COMPARISONS {
        true => all_at_once(vocabulary, actual_letters),
        false => None,
    };
    if is_there.is_none() {
        substrings.index(actual_letters);
    }
    let mut at = 0;
    vocabulary.each(|word| {
        let there = match &is_there {
            Some(is_there) => is_there.get(at).is_some_and(|there| *there),
            None => substrings.contains(actual_letters, word),
        };
        at += 1;
        required.found += usize::from(there);
        if !there && required.missing.len() < most {
            required
                .missing
                .push(String::from_utf8_lossy(word).into_owned());
        }
    });
    required
}

/// Looks terms up in the output as phrases: in any case, with word boundaries, without a code fence around it.
pub(super) fn of_case(actual: &str, terms: &[String], kept: &mut Option<Phrases>) -> Required {
    let terms: Vec<String> = terms.iter().map(|term| term.to_lowercase()).collect();
    let actual = strip_fences(actual).to_lowercase();
    let phrases = Phrases::kept(kept, &terms);
    let there = phrases.are_in(&actual);
    let missing = terms.iter().zip(&there).filter(|(_, there)| !**there);
    Required {
        count: terms.len(),
        found: there.iter().filter(|there| **there).count(),
        missing: missing
            .map(|(term, _)| term.clone())
            .take(MOST_NAMED)
            .collect(),
    }
}

/// Fills the vocabulary with the words of a text that are long enough, once all other characters but white space are
/// gone from it: `don't` is one word.
fn collect_words(words: &Words, vocabulary: &mut Vocabulary) {
    vocabulary.clear();
    let (text, list) = (words.text(), words.list());
    let letters = |word: &Word| text.get(word.from..word.to).unwrap_or_default();
    // What the word at hand is joined with, as nothing that stays is between.
    let mut joined: Vec<u8> = Vec::new();
    for (at, word) in list.iter().enumerate() {
        let next = list.get(at + 1);
        let between = next.map(|next| text.get(word.to..next.from).unwrap_or_default());
        if between.is_some_and(|between| !has_space(between)) {
            joined.extend_from_slice(letters(word));
        } else if joined.is_empty() {
            if word.len() >= FEWEST_LETTERS {
                vocabulary.number(word, text);
            }
        } else {
            joined.extend_from_slice(letters(word));
            if joined.len() >= FEWEST_LETTERS {
                vocabulary.number(&Word::of(&joined), &joined);
            }
            joined.clear();
        }
    }
}

/// Whether there is white space in a part of a text, which begins and ends with whole characters.
fn has_space(between: &[u8]) -> bool {
    match between.is_ascii() {
        true => between.iter().any(|byte| is_space(char::from(*byte))),
        false => String::from_utf8_lossy(between).contains(is_space),
    }
}

/// For each word whether it is somewhere in the letters, in one pass. None where there are more words than an automaton
/// can have.
fn all_at_once(vocabulary: &Vocabulary, letters: &[u8]) -> Option<Vec<bool>> {
    let mut words = Vec::with_capacity(vocabulary.len());
    vocabulary.each(|word| words.push(word.to_vec()));
    let automaton = NFA::new(&words).ok()?;
    let mut is_there = vec![false; vocabulary.len()];
    let mut missing = is_there.len();
    let mut seen = Vec::new();
    let input = Input::new(letters).anchored(Anchored::No);
    let mut state = automaton.start_state(input.get_anchored()).ok()?;
    for byte in letters {
        state = automaton.next_state(Anchored::No, state, *byte);
        // Each state tells the same words each time: once is enough, or words within words would cost a square of time.
        if !automaton.is_match(state) || is_seen(&mut seen, state.as_usize()) {
            continue;
        }
        for index in 0..automaton.match_len(state) {
            let word = automaton.match_pattern(state, index);
            if let Some(there) = is_there.get_mut(word.as_usize()) {
                missing -= usize::from(!std::mem::replace(there, true));
            }
        }
        if missing == 0 {
            break;
        }
    }
    Some(is_there)
}

/// Whether this was called with `at` before.
fn is_seen(seen: &mut Vec<bool>, at: usize) -> bool {
    if at >= seen.len() {
        seen.resize(at + 1, false);
    }
    let before = seen.get_mut(at).map(|seen| std::mem::replace(seen, true));
    before == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(actual: &str, expected: &str) -> (usize, usize) {
        let required = of_expected(actual, expected, usize::MAX, &mut Workspace::default());
        assert_eq!(
            required.missing.len(),
            (required.count - required.found).min(MOST_NAMED)
        );
        (required.found, required.count)
    }

    #[test]
    fn words_of_the_expected_text_are_looked_up_anywhere() {
        for (actual, expected, found) in [
            ("The refunds", "Refund! the REFUND, now", (1, 1)),
            ("dont", "don't", (1, 1)),
            ("don't", "don't", (0, 1)),
            ("caf\u{e9}s", "caf\u{e9}s", (0, 1)),
            ("\u{212a}elvin", "kelvin \u{212a}ELVIN", (1, 1)),
            ("d\u{130}sk d\u{130}ssk", "d\u{130}sk dissk", (0, 2)),
            ("abcd\u{a0}efgh", "abcd\u{a0}efgh abc\u{200b}d", (2, 2)),
            ("abcdxbcde", "abcde bcde abcd", (2, 3)),
            ("anything", "a an the", (0, 0)),
            ("", "word", (0, 1)),
            ("```word\nx```", "word", (0, 1)),
        ] {
            assert_eq!(counts(actual, expected), found, "{actual:?} {expected:?}");
        }
    }

    #[test]
    fn many_words_are_found_in_one_pass() {
        let words: Vec<String> = (0..20_000).map(|i| format!("w{i:05}")).collect();
        let (expected, half) = (words.join(" "), words[..10_000].join("-"));
        assert_eq!(counts(&half, &expected), (10_000, 20_000));
        // Words within words within words, and one that is missing.
        let words: Vec<String> = (4..1000).map(|length| "a".repeat(length)).collect();
        let expected = format!("{} {}b", words.join(" "), "a".repeat(50));
        assert_eq!(counts(&"a".repeat(500_000), &expected), (996, 997));
    }

    #[test]
    fn terms_of_a_case_are_phrases() {
        let terms = ["Order Id", "AÉa", "refund"].map(str::to_owned);
        let required = of_case("order id: 5. refunds aéa", &terms, &mut None);
        assert_eq!((required.found, required.count), (2, 3));
        assert_eq!(required.missing, ["refund"]);
        assert_eq!(of_case("", &[], &mut None).score(), 1.0);
    }
}
