//! Rows of f32 as the words that kernels read.

use super::kernels::{quantise_row, to_bf16_row};
use super::level::Level;
use super::tile::height;
use crate::encoder::Precision;

/// How many elements of a sum one word of 32 bits holds.
pub(super) const fn per_word(precision: Precision) -> usize {
    match precision {
        Precision::F32 => 1,
        Precision::Bf16 => 2,
        Precision::Int8 => 4,
    }
}

/// Words of `depth` elements; the last one is filled up with zeros.
pub(super) const fn words_of(precision: Precision, depth: usize) -> usize {
    depth.div_ceil(per_word(precision))
}

/// Rows of a matrix that are `stride` elements apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub data: &'a [f32],
    pub stride: usize,
    pub count: usize,
}

/// How a row of f32 became bytes: `x = scale * (byte - zero)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Quantised {
    /// The step between two bytes.
    pub scale: f32,
    /// The byte that stands for 0.
    pub zero: i32,
}

/// Rows packed for the kernels: groups of `height(level)` rows, and in a group of `n` rows word `w` of
/// row `r` at `w * n + r`.
#[derive(Debug, Default)]
pub(super) struct PackedRows {
    data: Vec<u32>,
    /// One a row, for bytes only.
    pub quantised: Vec<Quantised>,
    pub words: usize,
    pub count: usize,
    row: Words,
}

/// One row on its way, in buffers that are used again.
#[derive(Debug, Default)]
pub(super) struct Words {
    halves: Vec<u16>,
    bytes: Vec<u8>,
}

impl Words {
    /// Calls `put` with each word of a row; says how bytes stand for it.
    #[inline]
    pub fn of(
        &mut self,
        level: Level,
        precision: Precision,
        row: &[f32],
        mut put: impl FnMut(usize, u32),
    ) -> Quantised {
        match precision {
            Precision::F32 => {
                for (word, x) in row.iter().enumerate() {
                    put(word, x.to_bits());
                }
            }
            Precision::Bf16 => {
                self.halves.resize(row.len().next_multiple_of(2), 0);
                to_bf16_row(level, row, &mut self.halves);
                self.halves[row.len()..].fill(0);
                for (word, [low, high]) in self.halves.as_chunks::<2>().0.iter().enumerate() {
                    put(word, u32::from(*low) | u32::from(*high) << 16);
                }
            }
            Precision::Int8 => {
                self.bytes.resize(row.len().next_multiple_of(4), 0);
                let mut quantised = Quantised::default();
                quantise_row(level, row, &mut self.bytes, &mut quantised);
                self.bytes[row.len()..].fill(0);
                for (word, bytes) in self.bytes.as_chunks::<4>().0.iter().enumerate() {
                    put(word, u32::from_le_bytes(*bytes));
                }
                return quantised;
            }
        }
        Quantised::default()
    }
}

impl PackedRows {
    /// Packs the first `depth` elements of each row.
    pub fn pack(&mut self, level: Level, precision: Precision, rows: Rows<'_>, depth: usize) {
        let height = height(level);
        self.words = words_of(precision, depth);
        self.count = rows.count;
        self.data.resize(rows.count * self.words, 0);
        self.quantised.clear();
        let groups = self.data.chunks_mut((height * self.words).max(1));
        for (group, target) in groups.enumerate() {
            let count = target.len() / self.words;
            for r in 0..count {
                let row = &rows.data[(group * height + r) * rows.stride..][..depth];
                let quantised = self.row.of(level, precision, row, |word, bits| {
                    target[word * count + r] = bits;
                });
                if precision == Precision::Int8 {
                    self.quantised.push(quantised);
                }
            }
        }
    }

    /// `words` words from word `from` on of the group that begins at `row` and has `count` rows.
    pub fn group(&self, row: usize, count: usize, from: usize, words: usize) -> &[u32] {
        &self.data[row * self.words + from * count..][..words * count]
    }
}
