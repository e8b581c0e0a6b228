//! Where some lines of a file begin, so that a line is found again without reading all before it.

use std::sync::{Mutex, PoisonError};

/// Bytes between two marks: about a thousandth of the file's size is held in memory.
const APART: u64 = 16 << 10;

/// Where a line begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LineAt {
    /// Its number, from 0.
    pub number: u64,
    /// Bytes of the file before it.
    pub byte: u64,
}

/// Marks at lines, ascending, as far as the file was read.
#[derive(Debug, Default)]
pub(super) struct LineIndex(Mutex<Vec<LineAt>>);

impl LineIndex {
    /// Takes note of a line, and says from which byte on the next one is worth it.
    pub fn note(&self, at: LineAt) -> u64 {
        let mut marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = marks.last().map_or(0, |last| last.byte) + APART;
        if at.byte < next {
            return next;
        }
        marks.push(at);
        at.byte + APART
    }

    /// The last mark that is not behind a line.
    pub fn before(&self, number: u64) -> LineAt {
        let marks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let after = marks.partition_point(|mark| mark.number <= number);
        let before = after.checked_sub(1).and_then(|at| marks.get(at));
        before.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mark_before_a_line_is_found() {
        let index = LineIndex::default();
        assert_eq!(index.before(5), LineAt::default());
        let at = |number, byte| LineAt { number, byte };
        assert_eq!(index.note(at(1, 100)), APART);
        assert_eq!(index.note(at(7, APART + 5)), 2 * APART + 5);
        assert_eq!(index.note(at(8, APART + 50)), 2 * APART + 5);
        index.note(at(9, 3 * APART));
        assert_eq!(index.before(6), LineAt::default());
        assert_eq!(index.before(7), at(7, APART + 5));
        assert_eq!(index.before(8), at(7, APART + 5));
        assert_eq!(index.before(100), at(9, 3 * APART));
    }
}
