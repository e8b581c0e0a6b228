//! A matrix packed for the kernels, and the layer that multiplies by it.

use super::finish::{Bytes, finish_tile};
use super::level::Level;
use super::tile::{RUN, Tile, bring_nearer, height, multiply, width};
use super::words::{PackedRows, Rows, first, per_word, runs_of, words_of};
use crate::{Activation, Precision};

/// Words of a panel that are multiplied at a time, by its columns: 16 KiB, so that they stay in the
/// first cache while all rows pass by.
const PANEL_WORDS: usize = 4096;

/// A matrix of `depth` rows and `columns` columns, packed into panels of as many columns as a tile
/// has; the last panel is filled up with zeros.
#[derive(Debug)]
pub(super) struct Panels {
    precision: Precision,
    data: Vec<u32>,
    words: usize,
    /// For bytes: the step of each column, and the sum of its bytes.
    scales: Vec<f32>,
    sums: Vec<i32>,
}

impl Panels {
    /// Packs a matrix that is given as its columns, one after the other.
    fn new(level: Level, precision: Precision, matrix: &[f32], columns: usize) -> Self {
        let depth = matrix.len() / columns.max(1);
        let (width, words) = (width(level), words_of(precision, depth));
        let mut panels = Self {
            precision,
            data: vec![0; columns.div_ceil(width) * width * words],
            words,
            scales: Vec::new(),
            sums: Vec::new(),
        };
        let mut runs = vec![0; words.next_multiple_of(RUN)];
        let mut signed = vec![0u8; words * per_word(precision)];
        for (column, values) in matrix.chunks_exact(depth.max(1)).enumerate() {
            let panel = &mut panels.data[column / width * width * words..][..width * words];
            let mut put = |word: usize, bits| panel[word * width + column % width] = bits;
            if precision != Precision::Int8 {
                runs_of(level, precision, values, &mut runs, 1);
                runs[..words]
                    .iter()
                    .enumerate()
                    .for_each(|(word, bits)| put(word, *bits));
                continue;
            }
            // Weights are signed and even around 0; a step for each column.
            let most = values.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let scale = if most > 0.0 { most / 127.0 } else { 1.0 };
            let mut sum = 0;
            for (byte, x) in signed.iter_mut().zip(values) {
                let whole = (x / scale).round_ties_even() as i8;
                sum += i32::from(whole);
                *byte = whole as u8;
            }
            for (word, bytes) in signed.as_chunks::<4>().0.iter().enumerate() {
                put(word, u32::from_le_bytes(*bytes));
            }
            panels.scales.push(scale);
            panels.sums.push(sum);
        }
        panels
    }

    /// Multiplies packed rows by the matrix. `each` gets every tile of the product: its first row, its
    /// first column, its rows of `width(level)` sums (whole numbers for bytes); columns beyond the matrix are zeros.
    fn multiply(
        &self,
        level: Level,
        a: &PackedRows,
        tiles: &mut Vec<f32>,
        mut each: impl FnMut(usize, usize, &[f32]),
    ) {
        let (width, height) = (width(level), height(level));
        let at_once = PANEL_WORDS / width;
        let groups = a.count.div_ceil(height);
        // Sums of a panel wait for the next piece of it, all rows' of them.
        let tiles = first(tiles, groups * height * width);
        let of_panel = (width * self.words).max(1);
        for panel in 0..self.data.len() / of_panel {
            let mut from = 0;
            while from < self.words {
                let words = at_once.min(self.words - from);
                let (piece, after) =
                    self.data[panel * of_panel + from * width..].split_at(words * width);
                // The piece after this one comes nearer while rows pass by, a share for each tile.
                let share = piece.len().div_ceil(groups.max(1)).next_multiple_of(RUN);
                let mut nearer = after[..piece.len().min(after.len())].chunks(share);
                for (group, sums) in tiles.chunks_exact_mut(height * width).enumerate() {
                    bring_nearer(nearer.next().unwrap_or(&[]));
                    let row = group * height;
                    let rows = height.min(a.count - row);
                    multiply(
                        level,
                        self.precision,
                        Tile {
                            a: a.group(row, rows, from),
                            rows,
                            words,
                            panel: piece,
                            sums,
                            stride: width,
                            first: from == 0,
                        },
                    );
                    if from + words == self.words {
                        each(row, panel * width, &sums[..rows * width]);
                    }
                }
                from += words;
            }
        }
    }
}

/// Buffers of a product, used again for the next one.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    rows: PackedRows,
    tiles: Vec<f32>,
}

/// A linear layer `y = f(x W^T + b)`, packed at load.
#[derive(Debug)]
pub struct Linear {
    panels: Panels,
    bias: Vec<f32>,
    inputs: usize,
}

impl Linear {
    /// Packs a weight of shape (outputs, inputs) and a bias of `outputs` elements.
    pub fn new(level: Level, precision: Precision, weight: &[f32], bias: Vec<f32>) -> Self {
        level.assert_available();
        Self {
            panels: Panels::new(level, precision, weight, bias.len()),
            inputs: weight.len() / bias.len().max(1),
            bias,
        }
    }

    /// Outputs of the layer.
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Applies the layer and then `activation` to rows of contiguous inputs; `out` has `outputs()`
    /// elements a row.
    pub(super) fn apply(
        &self,
        level: Level,
        x: &[f32],
        activation: Activation,
        out: &mut [f32],
        scratch: &mut Scratch,
    ) {
        let rows = Rows {
            data: x,
            stride: self.inputs,
            count: x.len() / self.inputs.max(1),
        };
        let Scratch {
            rows: packed,
            tiles,
        } = scratch;
        packed.pack(level, self.panels.precision, rows, self.inputs);
        let outputs = self.outputs();
        self.panels
            .multiply(level, packed, tiles, |row, first, sums| {
                let out = &mut out[row * outputs + first..];
                self.finish(level, packed, row, first, sums, activation, out);
            });
    }

    /// Turns a tile of sums into results, rows of `out` that are `outputs()` apart.
    #[allow(
        clippy::too_many_arguments,
        reason = "a tile is where it is, what it holds and where it goes"
    )]
    fn finish(
        &self,
        level: Level,
        rows: &PackedRows,
        row: usize,
        first: usize,
        sums: &[f32],
        activation: Activation,
        out: &mut [f32],
    ) {
        let width = width(level);
        let used = width.min(self.outputs() - first);
        let precision = self.panels.precision;
        let bytes = (precision == Precision::Int8).then(|| Bytes {
            rows: &rows.quantised[row..][..sums.len() / width],
            scales: &self.panels.scales[first..][..used],
            sums: &self.panels.sums[first..][..used],
        });
        let bias = &self.bias[first..][..used];
        let after = (activation, precision);
        let stride = self.outputs();
        finish_tile(level, sums, width, bytes, bias, after, out, stride);
    }
}

const _: () = assert!(
    (PANEL_WORDS / 32).is_multiple_of(RUN),
    "pieces of panels are whole runs of rows"
);
