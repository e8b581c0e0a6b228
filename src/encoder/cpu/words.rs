//! Rows of f32 as the words that kernels read.

use super::level::Level;
use super::narrow::{quantise_row, to_bf16_row};
use super::tile::{RUN, height};
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

/// Rows packed for the kernels, see [`super::tile::Tile`]: groups of `height(level)` rows, and in a
/// group runs of words of each row in turn, the last run filled up.
#[derive(Debug, Default)]
pub(super) struct PackedRows {
    data: Vec<u32>,
    /// One a row, for bytes only.
    pub quantised: Vec<Quantised>,
    /// Words of a row, filled up to whole runs.
    padded: usize,
    pub count: usize,
    row: Words,
}

/// One row on its way, in buffers that are used again.
#[derive(Debug, Default)]
pub(super) struct Words {
    words: Vec<u32>,
    halves: [Vec<u16>; 2],
    bytes: Vec<u8>,
}

impl Words {
    /// The words of a row, and how bytes stand for it.
    pub fn of(&mut self, level: Level, precision: Precision, row: &[f32]) -> (&[u32], Quantised) {
        let mut quantised = Quantised::default();
        self.words.clear();
        match precision {
            Precision::F32 => self.words.extend(row.iter().map(|x| x.to_bits())),
            Precision::Bf16 => {
                let halves = &mut self.halves[0];
                halves.resize(row.len().next_multiple_of(2), 0);
                to_bf16_row(level, row, halves);
                halves[row.len()..].fill(0);
                let pairs = halves.as_chunks::<2>().0.iter();
                self.words
                    .extend(pairs.map(|[low, high]| u32::from(*low) | u32::from(*high) << 16));
            }
            Precision::Int8 => {
                self.bytes.resize(row.len().next_multiple_of(4), 0);
                quantised = quantise_row(level, row, &mut self.bytes);
                self.bytes[row.len()..].fill(0);
                let bytes = self.bytes.as_chunks::<4>().0.iter();
                self.words.extend(bytes.map(|b| u32::from_le_bytes(*b)));
            }
        }
        (&self.words, quantised)
    }

    /// The words of two neighbours of a sum, element by element: for matrices that are stored along their
    /// columns. Without `second` its place is 0. For f32 there is no second.
    pub fn of_pair(
        &mut self,
        level: Level,
        precision: Precision,
        first: &[f32],
        second: Option<&[f32]>,
        out: &mut [u32],
    ) {
        if precision == Precision::F32 {
            out.iter_mut()
                .zip(first)
                .for_each(|(word, x)| *word = x.to_bits());
            return;
        }
        let [low, high] = &mut self.halves;
        low.resize(first.len(), 0);
        to_bf16_row(level, first, low);
        high.clear();
        high.resize(first.len(), 0);
        if let Some(second) = second {
            to_bf16_row(level, second, high);
        }
        for ((word, low), high) in out.iter_mut().zip(low).zip(high) {
            *word = u32::from(*low) | u32::from(*high) << 16;
        }
    }
}

impl PackedRows {
    /// Packs the first `depth` elements of each row.
    pub fn pack(&mut self, level: Level, precision: Precision, rows: Rows<'_>, depth: usize) {
        let height = height(level);
        let words = words_of(precision, depth);
        self.padded = words.next_multiple_of(RUN);
        self.count = rows.count;
        self.data.resize(rows.count * self.padded, 0);
        self.quantised.clear();
        let groups = self.data.chunks_mut((height * self.padded).max(1));
        for (group, target) in groups.enumerate() {
            let count = target.len() / self.padded;
            for r in 0..count {
                let row = &rows.data[(group * height + r) * rows.stride..][..depth];
                let (words, quantised) = self.row.of(level, precision, row);
                let runs = target.as_chunks_mut::<RUN>().0;
                let runs = runs[r..].iter_mut().step_by(count);
                let (whole, rest) = words.as_chunks::<RUN>();
                for (at, run) in runs.enumerate() {
                    match whole.get(at) {
                        Some(words) => *run = *words,
                        None => run[..rest.len()].copy_from_slice(rest),
                    }
                }
                if precision == Precision::Int8 {
                    self.quantised.push(quantised);
                }
            }
        }
    }

    /// The group that begins at `row` and has `count` rows, from word `from` (of a run's beginning) on.
    pub fn group(&self, row: usize, count: usize, from: usize) -> &[u32] {
        let group = &self.data[row * self.padded..(row + count) * self.padded];
        &group[from * count..]
    }
}
