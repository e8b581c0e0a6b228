//! What the texts of a trace come to: cells of a few numbers, made where the texts are read, so that no text goes further.

use std::sync::LazyLock;

use super::{disengagement, exhaustion, misalignment, satisfaction};
use crate::metric::comparison::Phrases;
use crate::text::{SKETCH, WordSketch, each_word_hash, text_hash};

const CORRECTS: u8 = 1;
const GIVES_UP: u8 = 2;
const THANKS: u8 = 4;
const LIMIT: u8 = 8;
const SAYS: u8 = 16;

/// What an input comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputFacts {
    /// A hash of the text; none where it says nothing.
    pub text: Option<u64>,
    /// Its words.
    pub words: WordSketch,
    /// Whether it has a phrase of `misalignment`.
    pub corrects: bool,
    /// Whether it has one of `disengagement`.
    pub gives_up: bool,
    /// Whether it has one of `satisfaction`.
    pub thanks: bool,
}

/// What an output comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputFacts {
    /// Whether it says anything.
    pub says: bool,
    /// How many words it has.
    pub words: u32,
    /// Hashes of the distinct ones, sorted.
    pub distinct: Vec<u32>,
    /// Its last number, as the bits of a float.
    pub last_number: Option<u64>,
    /// Whether it has a phrase of `exhaustion`.
    pub speaks_of_limit: bool,
}

/// Phrases, and what they say.
struct Lists {
    phrases: Phrases,
    flags: Vec<u8>,
}

impl Lists {
    fn of(lists: &[(u8, &[&str])]) -> Self {
        let all = lists
            .iter()
            .flat_map(|(flag, list)| list.iter().map(move |phrase| (*flag, (*phrase).to_owned())));
        let (flags, phrases) = all.unzip();
        Self {
            phrases: Phrases::new(phrases),
            flags,
        }
    }

    fn flags_in(&self, text: &str) -> u8 {
        // Writing programs make a typographic one of a straight apostrophe.
        let straight = text
            .contains('\u{2019}')
            .then(|| text.replace('\u{2019}', "'"));
        let mut found = 0;
        self.phrases
            .each_in(straight.as_deref().unwrap_or(text), |at| {
                found |= self.flags.get(at).copied().unwrap_or_default();
            });
        found
    }
}

static OF_INPUTS: LazyLock<Lists> = LazyLock::new(|| {
    Lists::of(&[
        (CORRECTS, &misalignment::PHRASES),
        (GIVES_UP, &disengagement::PHRASES),
        (THANKS, &satisfaction::PHRASES),
    ])
});
static OF_OUTPUTS: LazyLock<Lists> = LazyLock::new(|| Lists::of(&[(LIMIT, &exhaustion::PHRASES)]));

/// Hashes of the words of a text, sorted and distinct, and how many there are with repetitions.
fn words_of(text: &str) -> (Vec<u32>, u32) {
    let (mut hashes, mut count) = (Vec::new(), 0u32);
    each_word_hash(text, |hash| {
        hashes.push(hash);
        count = count.saturating_add(1);
    });
    hashes.sort_unstable();
    hashes.dedup();
    (hashes, count)
}

/// The last number of a text: digits with thousands separators and a decimal part.
fn last_number(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let end = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
    let mut start = end - 1;
    // A separator counts between two digits.
    while let Some(before) = start.checked_sub(1) {
        let within = matches!(bytes.get(before), Some(b',' | b'.'))
            && before.checked_sub(1).is_some_and(digit);
        if !digit(before) && !within {
            break;
        }
        start = before;
    }
    let number: String = text
        .get(start..end)?
        .chars()
        .filter(|c| *c != ',')
        .collect();
    // `1.2.3` is no number: what counts is that it is the same.
    Some(
        number
            .parse::<f64>()
            .map_or_else(|_| text_hash(&number), f64::to_bits),
    )
}

impl InputFacts {
    /// Those of a text.
    pub fn of(text: &str) -> Self {
        let text = text.trim();
        if text.is_empty() {
            return Self::default();
        }
        let flags = OF_INPUTS.flags_in(text);
        Self {
            text: Some(text_hash(text)),
            words: WordSketch::from_hashes(words_of(text).0),
            corrects: flags & CORRECTS != 0,
            gives_up: flags & GIVES_UP != 0,
            thanks: flags & THANKS != 0,
        }
    }

    /// The facts as a cell.
    pub fn to_bytes(&self) -> Vec<u8> {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(self.corrects, CORRECTS)
            | flag(self.gives_up, GIVES_UP)
            | flag(self.thanks, THANKS)
            | flag(self.text.is_some(), SAYS);
        let mut bytes = vec![flags];
        bytes.extend(self.text.unwrap_or_default().to_le_bytes());
        for hash in self.words.hashes() {
            bytes.extend(hash.to_le_bytes());
        }
        bytes
    }

    /// Reads a cell; none if it holds no facts.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (flags, rest) = bytes.split_first()?;
        let (text, rest) = rest.split_first_chunk::<8>()?;
        Some(Self {
            text: (flags & SAYS != 0).then(|| u64::from_le_bytes(*text)),
            words: WordSketch::from_hashes(hashes(rest)?),
            corrects: flags & CORRECTS != 0,
            gives_up: flags & GIVES_UP != 0,
            thanks: flags & THANKS != 0,
        })
    }
}

impl OutputFacts {
    /// Those of a text.
    pub fn of(text: &str) -> Self {
        let text = text.trim();
        let (distinct, words) = words_of(text);
        Self {
            says: !text.is_empty(),
            words,
            distinct,
            last_number: last_number(text),
            speaks_of_limit: OF_OUTPUTS.flags_in(text) & LIMIT != 0,
        }
    }

    /// A sample of its words, to be compared with others.
    pub fn sketch(&self) -> WordSketch {
        WordSketch::from_hashes(self.distinct.iter().copied().take(SKETCH).collect())
    }

    /// The facts as a cell.
    pub fn to_bytes(&self) -> Vec<u8> {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let mut bytes = Vec::with_capacity(14 + 4 * self.distinct.len());
        bytes.push(
            flag(self.says, SAYS)
                | flag(self.speaks_of_limit, LIMIT)
                | flag(self.last_number.is_some(), THANKS),
        );
        bytes.extend(self.words.to_le_bytes());
        bytes.extend(self.last_number.unwrap_or_default().to_le_bytes());
        for hash in &self.distinct {
            bytes.extend(hash.to_le_bytes());
        }
        bytes
    }

    /// Reads a cell; none if it holds no facts.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (flags, rest) = bytes.split_first()?;
        let (words, rest) = rest.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        Some(Self {
            says: flags & SAYS != 0,
            words: u32::from_le_bytes(*words),
            distinct: hashes(rest)?,
            last_number: (flags & THANKS != 0).then(|| u64::from_le_bytes(*number)),
            speaks_of_limit: flags & LIMIT != 0,
        })
    }
}

fn hashes(bytes: &[u8]) -> Option<Vec<u32>> {
    let (hashes, after) = bytes.as_chunks::<4>();
    let hashes = hashes.iter().map(|hash| u32::from_le_bytes(*hash));
    after.is_empty().then(|| hashes.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_texts_come_back() {
        for text in [
            "",
            " \n",
            "Thanks, but that's not it",
            "It costs 1,200.50 in all.",
        ] {
            let (input, output) = (InputFacts::of(text), OutputFacts::of(text));
            assert_eq!(InputFacts::from_bytes(&input.to_bytes()), Some(input));
            assert_eq!(OutputFacts::from_bytes(&output.to_bytes()), Some(output));
        }
        assert_eq!(InputFacts::from_bytes(&[0, 1]), None);
        assert_eq!(OutputFacts::from_bytes(&[0; 14]), None);
    }

    #[test]
    fn phrases_are_found_as_whole_words_with_either_apostrophe() {
        for text in [
            "No, I want two",
            "That\u{2019}s NOT it",
            "please, I already paid",
        ] {
            assert!(InputFacts::of(text).corrects, "{text}");
        }
        for text in ["no idea", "piano, inside", "that is notable"] {
            assert!(!InputFacts::of(text).corrects, "{text}");
        }
        assert!(InputFacts::of("Forget it.").gives_up);
        assert!(InputFacts::of("many thanks").thanks);
        assert!(OutputFacts::of("The request timed out.").speaks_of_limit);
    }

    #[test]
    fn the_last_number_is_the_answer() {
        let same = |a: &str, b: &str| assert_eq!(last_number(a), last_number(b), "{a} {b}");
        same("so x = 20", "that makes 20.0!");
        same("1,200 in all", "$1200.");
        same("first 3, then 4.5.", "\\boxed{4.5}");
        same("version 1.2.3", "1.2.3 it is");
        assert_eq!(last_number("none at all"), None);
        assert_ne!(last_number("it is 7"), last_number("it is 70"));
        assert_eq!(last_number("it is 7"), Some(7f64.to_bits()));
    }
}
