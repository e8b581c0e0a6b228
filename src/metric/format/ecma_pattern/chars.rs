//! Sets of characters.

use std::sync::LazyLock;

use crate::metric::comparison::is_space;

/// A set of characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chars {
    /// A bit for each character of ASCII.
    ascii: u128,
    /// First and last of runs of the others, ascending and apart.
    others: Vec<(u32, u32)>,
}

const LAST_ASCII: u32 = 127;
const LAST: u32 = 0x10_ffff;

impl Chars {
    /// The characters from `first` to `last` of each range.
    pub(super) fn of_ranges(ranges: &[(u32, u32)]) -> Self {
        let mut chars = Self::default();
        for (first, last) in ranges {
            for ascii in *first..=(*last).min(LAST_ASCII) {
                chars.ascii |= 1 << ascii;
            }
            if *last > LAST_ASCII {
                chars.others.push(((*first).max(LAST_ASCII + 1), *last));
            }
        }
        chars.settle();
        chars
    }

    /// `[0-9]`
    pub(super) fn digits() -> Self {
        Self::of_ranges(&[(0x30, 0x39)])
    }

    /// `[A-Za-z0-9_]`
    pub(super) fn word() -> Self {
        Self::of_ranges(&[(0x30, 0x39), (0x41, 0x5a), (0x5f, 0x5f), (0x61, 0x7a)])
    }

    /// White space.
    pub(super) fn spaces() -> Self {
        static SPACES: LazyLock<Chars> = LazyLock::new(|| {
            let spaces = ('\0'..=char::MAX).filter(|c| is_space(*c));
            let spaces = spaces.map(|c| (u32::from(c), u32::from(c)));
            Chars::of_ranges(&spaces.collect::<Vec<_>>())
        });
        SPACES.clone()
    }

    /// Line feed, carriage return, and the separators of lines and paragraphs.
    pub(super) fn line_ends() -> Self {
        Self::of_ranges(&[(0xa, 0xa), (0xd, 0xd), (0x2028, 0x2029)])
    }

    /// All other characters.
    pub(super) fn inverted(&self) -> Self {
        let mut others = Vec::with_capacity(self.others.len() + 1);
        let mut from = LAST_ASCII + 1;
        for (first, last) in &self.others {
            if from < *first {
                others.push((from, first - 1));
            }
            from = last + 1;
        }
        if from <= LAST {
            others.push((from, LAST));
        }
        Self {
            ascii: !self.ascii,
            others,
        }
    }

    /// Adds all characters of another set.
    pub(super) fn add(&mut self, other: &Self) {
        self.ascii |= other.ascii;
        self.others.extend_from_slice(&other.others);
        self.settle();
    }

    pub(super) fn contains(&self, character: char) -> bool {
        let code = u32::from(character);
        if code <= LAST_ASCII {
            return self.ascii >> code & 1 == 1;
        }
        let at = self.others.partition_point(|(_, last)| *last < code);
        self.others.get(at).is_some_and(|(first, _)| *first <= code)
    }

    /// Joins runs that touch.
    fn settle(&mut self) {
        self.others.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(self.others.len());
        for (first, last) in self.others.drain(..) {
            match joined.last_mut() {
                Some(run) if first <= run.1 + 1 => run.1 = run.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        self.others = joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_know_their_characters() {
        let mut chars =
            Chars::of_ranges(&[(0x61, 0x63), (0x7e, 0x82), (0x100, 0x10f), (0x110, 0x110)]);
        chars.add(&Chars::digits());
        for (character, inside) in [
            ('a', true),
            ('d', false),
            ('5', true),
            ('\u{7f}', true),
            ('\u{80}', true),
            ('\u{83}', false),
            ('\u{110}', true),
            ('\u{111}', false),
            ('\u{10ffff}', false),
        ] {
            assert_eq!(chars.contains(character), inside, "{character:?}");
            assert_eq!(
                chars.inverted().contains(character),
                !inside,
                "{character:?}"
            );
        }
        assert_eq!(chars.inverted().inverted(), chars);
        assert!(Chars::default().inverted().contains(char::MAX));
        for character in ['\t', '\u{a0}', '\u{feff}', '\u{2028}'] {
            assert!(Chars::spaces().contains(character));
        }
        assert!(!Chars::spaces().contains('\u{85}'));
    }
}
