//! Rows of f32 as the words that kernels read.

use super::level::Level;
use super::narrow::{bf16_pairs, bf16_runs, byte_runs};
use super::tile::{RUN, height};
use crate::Precision;

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

/// The first `size` elements of a buffer that only grows: every element is written before it is read, so that clearing
/// would be work for nothing.
pub(super) fn first<T: Copy + Default>(buffer: &mut Vec<T>, size: usize) -> &mut [T] {
    if buffer.len() < size {
        buffer.resize(size, T::default());
    }
    &mut buffer[..size]
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

/// A row as runs of words: run `k` goes to `out[k * step * RUN..]`, the last one filled up. Says how bytes stand for
/// the row.
pub(super) fn runs_of(
    level: Level,
    precision: Precision,
    row: &[f32],
    out: &mut [u32],
    step: usize,
) -> Quantised {
    match precision {
        Precision::F32 => {
            let (whole, rest) = row.as_chunks::<RUN>();
            let mut runs = out.as_chunks_mut::<RUN>().0.iter_mut().step_by(step);
            for (elements, run) in whole.iter().zip(&mut runs) {
                *run = elements.map(f32::to_bits);
            }
            if let (false, Some(run)) = (rest.is_empty(), runs.next()) {
                *run = [0; RUN];
                let words = run.iter_mut().zip(rest);
                words.for_each(|(word, x)| *word = x.to_bits());
            }
        }
        Precision::Bf16 => bf16_runs(level, row, out, step),
        Precision::Int8 => return byte_runs(level, row, out, step),
    }
    Quantised::default()
}

/// The words of two neighbours of a sum, element by element: for matrices that are stored along their
/// columns. Without `second` its place is 0. For f32 there is no second.
pub(super) fn words_of_pair(
    level: Level,
    precision: Precision,
    first: &[f32],
    second: Option<&[f32]>,
    out: &mut [u32],
) {
    match precision {
        Precision::F32 => out
            .iter_mut()
            .zip(first)
            .for_each(|(word, x)| *word = x.to_bits()),
        _ => bf16_pairs(level, first, second, &mut out[..first.len()]),
    }
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
}

impl PackedRows {
    /// Packs the first `depth` elements of each row.
    pub fn pack(&mut self, level: Level, precision: Precision, rows: Rows<'_>, depth: usize) {
        let height = height(level);
        self.padded = words_of(precision, depth).next_multiple_of(RUN);
        self.count = rows.count;
        self.quantised.clear();
        let groups = first(&mut self.data, rows.count * self.padded);
        let groups = groups.chunks_mut((height * self.padded).max(1));
        for (group, target) in groups.enumerate() {
            let count = target.len() / self.padded;
            for r in 0..count {
                let row = &rows.data[(group * height + r) * rows.stride..][..depth];
                let quantised = runs_of(level, precision, row, &mut target[r * RUN..], count);
                if precision == Precision::Int8 {
                    self.quantised.push(quantised);
                }
            }
        }
    }

    /// Room for one group of `count` rows of so many words, to be filled run by run.
    pub fn group_of(&mut self, count: usize, words: usize) -> &mut [u32] {
        self.padded = words.next_multiple_of(RUN);
        self.count = count;
        first(&mut self.data, count * self.padded)
    }

    /// The group that begins at `row` and has `count` rows, from word `from` (of a run's beginning) on.
    pub fn group(&self, row: usize, count: usize, from: usize) -> &[u32] {
        let group = &self.data[row * self.padded..(row + count) * self.padded];
        &group[from * count..]
    }
}
