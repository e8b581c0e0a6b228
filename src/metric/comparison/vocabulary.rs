//! Distinct words of texts as numbers, so that sets of words and of neighbours are sets of numbers. Words are compared
//! letter by letter, never by hash alone.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use super::words::Word;

/// Slots of an empty table; one that a long text made larger does not stay so.
const FEWEST_SLOTS: usize = 256;

/// A number without order in its bits.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Words in the order in which they came first.
#[derive(Debug)]
pub(in crate::metric) struct Vocabulary {
    /// The words' keys. That of a long word is [`LONG`] and its place among the long ones.
    keys: Vec<u128>,
    long: Vec<Range<usize>>,
    /// The letters of the long words in lower case.
    letters: Vec<u8>,
    /// Open addressing: the upper half of the hash, and the number of the word plus 1; 0 is free.
    slots: Vec<u64>,
    seed: u64,
}

/// No letter has this bit.
const LONG: u128 = 1 << 127;

impl Default for Vocabulary {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            long: Vec::new(),
            letters: Vec::new(),
            slots: vec![0; FEWEST_SLOTS],
            seed: random_seed(),
        }
    }
}

impl Vocabulary {
    /// Forgets everything.
    pub(in crate::metric) fn clear(&mut self) {
        self.keys.clear();
        self.long.clear();
        self.letters.clear();
        free(&mut self.slots);
    }

    /// How many distinct words there are.
    pub(in crate::metric) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Calls `each` with the words in their order, in lower case.
    pub(in crate::metric) fn each(&self, mut each: impl FnMut(&[u8])) {
        for key in &self.keys {
            let letters = key.to_le_bytes();
            let unused = usize::try_from(key.leading_zeros() / 8).unwrap_or(0);
            each(match self.long_letters(*key) {
                Some(letters) => letters,
                None => letters.get(..letters.len() - unused).unwrap_or_default(),
            });
        }
    }

    /// The number of a word of a text, from 0 on in the order in which they come.
    #[inline]
    pub(in crate::metric) fn number(&mut self, word: &Word, text: &[u8]) -> u32 {
        match word.key() {
            Some(key) => {
                let hash = self.hash_of_key(key);
                self.find_or_add(hash, |_, other| other == key, |_| key)
            }
            None => {
                let letters = text.get(word.from..word.to).unwrap_or_default();
                let letters = letters.to_ascii_lowercase();
                let hash = self.hash_of_long(&letters);
                let is_same = |this: &Self, other| this.long_letters(other) == Some(&letters);
                self.find_or_add(hash, is_same, |this| this.add_long(&letters))
            }
        }
    }

    #[inline]
    fn find_or_add(
        &mut self,
        hash: u64,
        is_same: impl Fn(&Self, u128) -> bool,
        add: impl FnOnce(&mut Self) -> u128,
    ) -> u32 {
        const HASH: u64 = !0 << 32;
        let mut at = spot(hash, self.slots.len());
        while let Some(&slot) = self.slots.get(at)
            && slot != 0
        {
            if (slot ^ hash) & HASH == 0
                && let Ok(number) = u32::try_from((slot & !HASH) - 1)
                && let Some(key) = usize::try_from(number)
                    .ok()
                    .and_then(|at| self.keys.get(at))
                && is_same(self, *key)
            {
                return number;
            }
            at = after(at, self.slots.len());
        }
        // A column cannot hold a text of four billion distinct words.
        let number = u32::try_from(self.keys.len()).unwrap_or(u32::MAX - 1);
        let key = add(self);
        self.keys.push(key);
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = (hash & HASH) | (u64::from(number) + 1);
        }
        if self.keys.len() * 2 > self.slots.len() {
            grow(&mut self.slots, |slot| slot);
        }
        number
    }

    fn add_long(&mut self, letters: &[u8]) -> u128 {
        let place = u128::try_from(self.long.len()).unwrap_or(LONG);
        let from = self.letters.len();
        self.letters.extend_from_slice(letters);
        self.long.push(from..self.letters.len());
        LONG | place
    }

    fn long_letters(&self, key: u128) -> Option<&[u8]> {
        if key & LONG == 0 {
            return None;
        }
        let range = self.long.get(usize::try_from(key & !LONG).ok()?)?;
        self.letters.get(range.clone())
    }

    fn hash_of_key(&self, key: u128) -> u64 {
        let (low, high) = (key ^ u128::from(self.seed), key >> 64 ^ u128::from(ODD));
        folded((low & u128::from(u64::MAX)) * high)
    }

    fn hash_of_long(&self, letters: &[u8]) -> u64 {
        let hash = |hash: u64, eight: &[u8]| {
            let eight = eight
                .iter()
                .fold(0, |eight, byte| eight << 8 | u64::from(*byte));
            mixed(hash ^ eight)
        };
        letters.chunks(8).fold(self.seed, hash)
    }
}

/// Pairs of word numbers, each with the texts in which it is.
#[derive(Debug)]
pub(in crate::metric) struct Pairs {
    count: usize,
    /// Open addressing: the pair, and in the lowest two bits in which texts it is; 0 is free.
    slots: Vec<u64>,
    seed: u64,
}

impl Default for Pairs {
    fn default() -> Self {
        Self {
            count: 0,
            slots: vec![0; FEWEST_SLOTS],
            seed: random_seed(),
        }
    }
}

impl Pairs {
    /// Forgets everything.
    pub(in crate::metric) fn clear(&mut self) {
        self.count = 0;
        free(&mut self.slots);
    }

    /// Adds a pair of a text, 1 or 2. Returns the sum of the texts in which it was before: 0 to 3.
    pub(in crate::metric) fn add(&mut self, (left, right): (u32, u32), text: u64) -> u64 {
        // Numbers of words are below 2^31: a word takes two bytes of a text.
        let pair = u64::from(left) << 33 | u64::from(right) << 2;
        let mut at = spot(mixed(pair ^ self.seed), self.slots.len());
        while let Some(slot) = self.slots.get_mut(at) {
            let before = *slot & 3;
            if *slot != 0 && *slot & !3 != pair {
                at = after(at, self.slots.len());
                continue;
            }
            *slot = pair | before | text;
            self.count += usize::from(before == 0);
            if self.count * 2 > self.slots.len() {
                let seed = self.seed;
                grow(&mut self.slots, |slot| mixed((slot & !3) ^ seed));
            }
            return before;
        }
        0
    }
}

/// Unlike in each process, so that nobody can write texts whose words collide.
fn random_seed() -> u64 {
    RandomState::new().hash_one(0)
}

/// Frees all slots of a table.
fn free(slots: &mut Vec<u64>) {
    slots.truncate(FEWEST_SLOTS * 16);
    slots.shrink_to(FEWEST_SLOTS * 16);
    slots.fill(0);
}

/// Gives a table twice the slots; `hash` says the hash of what is in one, of which the upper half counts.
fn grow(slots: &mut Vec<u64>, hash: impl Fn(u64) -> u64) {
    let grown = vec![0; slots.len() * 2];
    let full = std::mem::replace(slots, grown);
    for entry in full.into_iter().filter(|slot| *slot != 0) {
        let mut at = spot(hash(entry), slots.len());
        while slots.get(at).is_some_and(|slot| *slot != 0) {
            at = after(at, slots.len());
        }
        if let Some(slot) = slots.get_mut(at) {
            *slot = entry;
        }
    }
}

/// Where in a table of so many slots, a power of two, an entry is looked for first.
fn spot(hash: u64, slots: usize) -> usize {
    usize::try_from(hash >> 32).unwrap_or(0) & (slots - 1)
}

/// Where it is looked for next.
fn after(at: usize, slots: usize) -> usize {
    (at + 1) & (slots - 1)
}

/// All bits of a number, spread over all bits.
fn mixed(number: u64) -> u64 {
    folded(u128::from(number) * u128::from(ODD))
}

/// The halves of a number, one laid over the other.
fn folded(number: u128) -> u64 {
    u64::try_from((number ^ number >> 64) & u128::from(u64::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn number_of(vocabulary: &mut Vocabulary, word: &str) -> u32 {
        vocabulary.number(&Word::of(word.as_bytes()), word.as_bytes())
    }

    fn words(vocabulary: &Vocabulary) -> Vec<String> {
        let mut words = Vec::new();
        vocabulary.each(|word| words.push(String::from_utf8(word.to_vec()).unwrap()));
        words
    }

    #[test]
    fn words_keep_the_number_of_their_first_time() {
        let mut vocabulary = Vocabulary::default();
        for round in 0..2 {
            let mut numbers = HashMap::new();
            for i in 0..5000 * (round + 1) {
                let word = format!("{}{}", "x".repeat(i % 19), i % 700);
                let next = u32::try_from(numbers.len()).unwrap();
                let number = *numbers.entry(word.clone()).or_insert(next);
                assert_eq!(number_of(&mut vocabulary, &word), number, "{word}");
            }
            assert_eq!(vocabulary.len(), numbers.len());
            assert_eq!(words(&vocabulary).first().unwrap(), "0");
            vocabulary.clear();
            assert_eq!(vocabulary.len(), 0);
        }
    }

    #[test]
    fn words_are_compared_in_lower_case_at_any_length() {
        let mut vocabulary = Vocabulary::default();
        for length in 1..40 {
            let word = "aZ9".repeat(length)[..length].to_owned();
            let number = number_of(&mut vocabulary, &word);
            assert_eq!(number, u32::try_from(length - 1).unwrap());
            let upper = word.to_ascii_uppercase();
            assert_eq!(number_of(&mut vocabulary, &upper), number);
            let words = words(&vocabulary);
            assert_eq!(words.last().unwrap(), &word.to_ascii_lowercase());
        }
    }

    #[test]
    fn pairs_know_their_texts() {
        let mut pairs = Pairs::default();
        for round in 0..2 {
            let mut texts = HashMap::new();
            for i in 0..20_000_u32 {
                let (pair, text) = ((i % 97, i % 89), 1 + u64::from(i % 7 == 0));
                let before = texts.entry(pair).or_insert(0);
                assert_eq!(pairs.add(pair, text), *before, "{pair:?} in round {round}");
                *before |= text;
            }
            pairs.clear();
        }
        assert_eq!(pairs.add((1, 2), 1), 0);
        assert_eq!(pairs.add((2, 1), 1), 0);
    }
}
