//! Tone without a judge, from words and lengths.

use std::sync::LazyLock;

use super::dimension::Dimension;
use super::reading::{Reading, read};
use super::word_lists::{ASSERTIVE, FORMAL, HEDGE, INFORMAL, NEGATIVE, POSITIVE, PRONOUNS};
use crate::metric::comparison::{Compat, Hit, Lexicon, Words, Workspace, units};

/// What a dimension needs to know of the two texts.
pub(super) struct Traits {
    actual: TextTraits,
    expected: TextTraits,
    compat: Compat,
}

#[derive(Clone, Copy, Default)]
struct TextTraits {
    formal: u32,
    informal: u32,
    /// Positive words less negative ones.
    sentiment: i64,
    /// Entries of the lists that are there, once each.
    hedges: u32,
    assertive: u32,
    /// All occurrences.
    pronouns: usize,
    reading: Reading,
    units: usize,
}

impl Traits {
    /// Reads both texts.
    pub(super) fn of(
        actual: &str,
        expected: &str,
        compat: Compat,
        workspace: &mut Workspace,
    ) -> Self {
        Self {
            actual: TextTraits::of(actual, &mut workspace.actual_words),
            expected: TextTraits::of(expected, &mut workspace.expected_words),
            compat,
        }
    }

    /// The value of a dimension, 0 to 1.
    pub(super) fn value(&self, dimension: Dimension) -> f64 {
        match dimension {
            Dimension::Formality => formality(&self.actual),
            Dimension::Sentiment => sentiment(self.actual.sentiment, self.expected.sentiment),
            Dimension::Assertiveness => {
                let TextTraits {
                    hedges, assertive, ..
                } = self.actual;
                match hedges + assertive {
                    0 => 0.5,
                    all => f64::from(assertive) / f64::from(all),
                }
            }
            Dimension::PersonaConsistency => match (self.actual.pronouns, self.expected.pronouns) {
                (_, 0) => 1.0,
                (0, _) => 0.5,
                (actual, expected) => (float(actual) / float(expected)).min(1.0),
            },
            Dimension::Verbosity => self.verbosity(),
        }
    }

    fn verbosity(&self) -> f64 {
        let (actual, expected) = (&self.actual, &self.expected);
        match self.compat {
            Compat::Document => {
                let words = closeness(float(actual.reading.words), float(expected.reading.words));
                let lengths = closeness(
                    actual.reading.words_per_sentence(),
                    expected.reading.words_per_sentence(),
                );
                (words + lengths) / 2.0
            }
            Compat::Tool => closeness(float(actual.units), float(expected.units)),
        }
    }
}

impl TextTraits {
    fn of(text: &str, words: &mut Words) -> Self {
        words.read(text);
        let mut traits = Self {
            reading: read(text),
            units: units(text),
            ..Self::default()
        };
        let mut there = 0_u64;
        LEXICON.each_in(text, words, |hit| match hit {
            Hit::Word(lists) => traits.count_word(lists),
            Hit::Phrase(at) if at < HEDGE.len() + ASSERTIVE.len() => there |= 1 << at,
            Hit::Phrase(_) => traits.pronouns += 1,
        });
        traits.hedges = (there & ((1 << HEDGE.len()) - 1)).count_ones();
        traits.assertive = (there >> HEDGE.len()).count_ones();
        traits
    }

    fn count_word(&mut self, lists: u8) {
        let [formal, informal, positive, negative] = [0, 1, 2, 3].map(|list| lists >> list & 1);
        self.formal += u32::from(formal);
        self.informal += u32::from(informal);
        self.sentiment += i64::from(positive) - i64::from(negative);
    }
}

/// The lists of words, and as phrases the hedges, then what settles things, then the pronouns.
static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| {
    let lists = [&FORMAL[..], &INFORMAL, &POSITIVE, &NEGATIVE];
    Lexicon::new(&lists, &[&HEDGE[..], &ASSERTIVE, &PRONOUNS].concat())
});

/// Formal words against casual ones, both as shares of a twentieth of the text's pieces.
fn formality(traits: &TextTraits) -> f64 {
    let many = (0.05 * float(traits.reading.pieces)).max(1.0);
    let share = |count: u32| (f64::from(count) / many).min(1.0);
    (share(traits.formal) - 0.5 * share(traits.informal)).clamp(0.0, 1.0)
}

/// How much of the expected sentiment there is: sums of positive words less negative ones.
fn sentiment(actual: i64, expected: i64) -> f64 {
    match expected {
        0 => 1.0,
        _ if actual.signum() == expected.signum() => {
            let magnitude = |sum: i64| u32::try_from(sum.unsigned_abs()).unwrap_or(u32::MAX);
            (f64::from(magnitude(actual)) / f64::from(magnitude(expected))).min(1.0)
        }
        _ => 0.0,
    }
}

/// 1 from half of the expected measure to twice of it, and from there down to 0 at nothing and at four times.
fn closeness(actual: f64, expected: f64) -> f64 {
    if expected == 0.0 {
        return if actual == 0.0 { 1.0 } else { 0.0 };
    }
    match actual / expected {
        ratio if ratio < 0.5 => ratio / 0.5,
        ratio if ratio > 2.0 => ((4.0 - ratio) / 2.0).max(0.0),
        _ => 1.0,
    }
}

fn float(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(dimension: Dimension, actual: &str, expected: &str) -> f64 {
        Traits::of(
            actual,
            expected,
            Compat::Document,
            &mut Workspace::default(),
        )
        .value(dimension)
    }

    #[test]
    fn formality_is_of_the_output_only() {
        for (actual, expected) in [
            ("Therefore", 1.0),
            ("Therefore, hey", 0.5),
            ("Hey", 0.0),
            ("", 0.0),
            ("thus\u{212a} THUS", 1.0),
            (&format!("however{}", " x".repeat(39)), 0.5),
            (&format!("however hey{}", " x".repeat(38)), 0.25),
        ] {
            assert_eq!(
                value(Dimension::Formality, actual, "Hey"),
                expected,
                "{actual}"
            );
        }
    }

    #[test]
    fn every_word_is_in_its_lists() {
        let lists = [&FORMAL[..], &INFORMAL, &POSITIVE, &NEGATIVE];
        for word in lists.into_iter().flatten() {
            let is_in = |list: usize| u32::from(lists[list].contains(word));
            let traits = TextTraits::of(word, &mut Words::default());
            assert_eq!(
                (traits.formal, traits.informal),
                (is_in(0), is_in(1)),
                "{word}"
            );
            assert_eq!(
                traits.sentiment,
                i64::from(is_in(2)) - i64::from(is_in(3)),
                "{word}"
            );
        }
        for (list, hedges, assertive) in [(&HEDGE[..], 1, 0), (&ASSERTIVE, 0, 1)] {
            for phrase in list {
                let traits = TextTraits::of(phrase, &mut Words::default());
                let twice = u32::from(*phrase == "maybe");
                assert_eq!(
                    (traits.hedges, traits.assertive),
                    (hedges + twice, assertive),
                    "{phrase}"
                );
            }
        }
        for pronoun in PRONOUNS {
            let twice = format!("{pronoun} {pronoun}");
            assert_eq!(TextTraits::of(&twice, &mut Words::default()).pronouns, 2);
        }
    }

    #[test]
    fn sentiment_needs_the_same_sign() {
        for (actual, expected, found) in [
            ("bad", "fine", 1.0),
            ("good", "good great happy", 1.0 / 3.0),
            ("awful bad weak", "poor", 1.0),
            ("bad", "good", 0.0),
            ("fine", "good", 0.0),
        ] {
            assert_eq!(
                value(Dimension::Sentiment, actual, expected),
                found,
                "{actual}"
            );
        }
    }

    #[test]
    fn hedges_count_once_and_maybe_twice() {
        for (actual, found) in [
            ("Maybe, maybe. I will.", 1.0 / 3.0),
            ("in my opinion, kind  of", 0.0),
            ("without doubt certainly", 1.0),
            ("wills mighty _must_", 0.5),
            ("I think it MUST", 0.5),
        ] {
            assert_eq!(
                value(Dimension::Assertiveness, actual, ""),
                found,
                "{actual}"
            );
        }
    }

    #[test]
    fn pronouns_count_each_time() {
        for (actual, expected, found) in [
            ("I, you", "they it we I", 0.5),
            ("it's it", "it", 1.0),
            ("none", "it", 0.5),
            ("it", "none", 1.0),
        ] {
            assert_eq!(
                value(Dimension::PersonaConsistency, actual, expected),
                found,
                "{actual}"
            );
        }
    }

    #[test]
    fn lengths_are_close_from_half_to_twice() {
        for (ratio, found) in [
            (0.0, 0.0),
            (0.25, 0.5),
            (0.5, 1.0),
            (2.0, 1.0),
            (3.0, 0.5),
            (5.0, 0.0),
        ] {
            assert_eq!(closeness(ratio * 8.0, 8.0), found, "{ratio}");
        }
        assert_eq!((closeness(0.0, 0.0), closeness(1.0, 0.0)), (1.0, 0.0));
        assert_eq!(value(Dimension::Verbosity, "a b c. d", "a b"), 1.0);
        let tool = Traits::of("é", "", Compat::Tool, &mut Workspace::default());
        assert_eq!(tool.value(Dimension::Verbosity), 0.0);
    }
}
