//! A matrix packed for the kernels, and products with it.

use super::kernels::{Block, height, multiply, width};
use super::level::Level;

/// Rows of a matrix that are `stride` elements apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub data: &'a [f32],
    pub stride: usize,
    pub count: usize,
}

/// A matrix of `depth` rows and `columns` columns, packed into panels of as many columns as the
/// level's kernel takes at once; the last panel is filled up with zeros.
#[derive(Debug, Default)]
pub(super) struct Panels {
    data: Vec<f32>,
    depth: usize,
    columns: usize,
}

impl Panels {
    /// Packs the matrix whose element (p, column) is `element(p, column)`, reusing the memory.
    pub(super) fn pack(
        &mut self,
        level: Level,
        depth: usize,
        columns: usize,
        element: impl Fn(usize, usize) -> f32,
    ) {
        let width = width(level);
        self.depth = depth;
        self.columns = columns;
        self.data.clear();
        self.data
            .resize(depth * columns.div_ceil(width) * width, 0.0);
        for (panel, data) in self.data.chunks_exact_mut(depth * width).enumerate() {
            let first = panel * width;
            let used = width.min(columns - first);
            for (p, row) in data.chunks_exact_mut(width).enumerate() {
                for (offset, slot) in row[..used].iter_mut().enumerate() {
                    *slot = element(p, first + offset);
                }
            }
        }
    }

    /// `out = a * self`: `out` has as many rows as `a`, `out_stride` apart. Elements of `out` beyond the matrix's columns are left alone. `packed` is scratch.
    pub(super) fn multiply(
        &self,
        level: Level,
        a: Rows<'_>,
        out: &mut [f32],
        out_stride: usize,
        packed: &mut Vec<f32>,
    ) {
        const EDGE: usize = 12 * 32;
        let (width, height) = (width(level), height(level));
        let mut edge = [0.0f32; EDGE];
        let rows = a.count;
        pack_rows(a, self.depth, height, packed);
        for (panel, data) in self.data.chunks_exact(self.depth * width).enumerate() {
            let first = panel * width;
            let used = width.min(self.columns - first);
            let mut row = 0;
            while row < rows {
                let count = height.min(rows - row);
                let a = &packed[row * self.depth..];
                let target = &mut out[row * out_stride + first..];
                let block = |out, out_stride| Block {
                    a,
                    rows: count,
                    depth: self.depth,
                    panel: data,
                    out,
                    out_stride,
                };
                if used == width {
                    multiply(level, block(target, out_stride));
                } else {
                    multiply(level, block(&mut edge, width));
                    for r in 0..count {
                        target[r * out_stride..][..used]
                            .copy_from_slice(&edge[r * width..][..used]);
                    }
                }
                row += count;
            }
        }
    }
}

/// Packs rows into groups of `height`: element `p` of row `r` of a group of `n` rows is at
/// `p * n + r` of the group's place.
fn pack_rows(a: Rows<'_>, depth: usize, height: usize, packed: &mut Vec<f32>) {
    packed.resize(a.count * depth, 0.0);
    for (group, target) in packed.chunks_mut(height * depth).enumerate() {
        let count = target.len() / depth;
        for r in 0..count {
            let row = &a.data[(group * height + r) * a.stride..][..depth];
            for (slot, x) in target[r..].iter_mut().step_by(count).zip(row) {
                *slot = *x;
            }
        }
    }
}

/// A linear layer `y = x W^T + b`, packed at load.
#[derive(Debug)]
pub struct Linear {
    panels: Panels,
    bias: Vec<f32>,
}

impl Linear {
    /// Packs a weight of shape (outputs, inputs) and a bias of `outputs` elements.
    pub fn new(level: Level, weight: &[f32], bias: Vec<f32>) -> Self {
        let outputs = bias.len();
        let inputs = weight.len() / outputs.max(1);
        let mut panels = Panels::default();
        panels.pack(level, inputs, outputs, |p, column| {
            weight[column * inputs + p]
        });
        Self { panels, bias }
    }

    /// Outputs of the layer.
    pub fn outputs(&self) -> usize {
        self.bias.len()
    }

    /// Applies the layer to rows of contiguous inputs; `out` has `outputs()` elements a row; `packed` is
    /// scratch.
    pub fn apply(&self, level: Level, x: &[f32], out: &mut [f32], packed: &mut Vec<f32>) {
        let rows = out.len() / self.outputs();
        self.panels.multiply(
            level,
            Rows {
                data: x,
                stride: self.panels.depth,
                count: rows,
            },
            out,
            self.outputs(),
            packed,
        );
        for row in out.chunks_exact_mut(self.outputs()) {
            row.iter_mut().zip(&self.bias).for_each(|(x, b)| *x += b);
        }
    }
}
