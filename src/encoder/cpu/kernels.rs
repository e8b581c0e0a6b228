//! The kernels, once in plain Rust and once per instruction level.
//!
//! This file holds the program's only `unsafe`: calls into functions compiled for instructions that
//! were found on this machine, and the loads and stores of the matrix kernels.

use super::level::Level;
use super::scalar_math::{exp, gelu, gelu_tanh, multiply_add};

/// Lanes of reductions over a row; fixed for all levels, so that only fused rounding differs.
const LANES: usize = 16;

/// One block of a matrix product: `rows` rows of `a` times one panel of packed columns.
///
/// `a` is packed: `depth` groups of `rows` elements, so that a kernel reads it front to back (rows
/// that are far apart in memory would fight for the same cache lines); `panel` has `depth` rows of
/// `width(level)` columns; the sums go to `out`, `rows` rows of one panel's width, `out_stride`
/// apart.
pub(super) struct Block<'a> {
    pub a: &'a [f32],
    pub rows: usize,
    pub depth: usize,
    pub panel: &'a [f32],
    pub out: &'a mut [f32],
    pub out_stride: usize,
}

/// Columns of a packed panel at this level.
pub(super) fn width(level: Level) -> usize {
    match level {
        Level::Portable | Level::Avx2 => 16,
        Level::Avx512 => 32,
    }
}

/// Rows of `a` that one kernel call takes at most at this level.
pub(super) fn height(level: Level) -> usize {
    match level {
        Level::Portable => 4,
        Level::Avx2 => 6,
        Level::Avx512 => 12,
    }
}

/// Computes a block. Each output is `sum over p of a[p] * panel[p]` in ascending `p`.
pub(super) fn multiply(level: Level, block: Block<'_>) {
    let columns = width(level);
    assert!(
        block.rows >= 1 && block.rows <= height(level),
        "block of {} rows",
        block.rows
    );
    assert!(
        block.a.len() >= block.rows * block.depth,
        "block reads past its rows"
    );
    assert!(
        block.panel.len() >= block.depth * columns,
        "block reads past its panel"
    );
    assert!(
        block.out.len() >= (block.rows - 1) * block.out_stride + columns,
        "block writes past its output"
    );
    match level {
        Level::Portable => portable::multiply(block),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the level is only constructed where the instructions were detected
        // (`Level::available`), and the bounds were checked above.
        Level::Avx2 => unsafe { x86::multiply_avx2(block) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx512 => unsafe { x86::multiply_avx512(block) },
        #[cfg(not(target_arch = "x86_64"))]
        _ => portable::multiply(block),
    }
}

/// Defines a row function at every level from one `inline(always)` body.
macro_rules! at_every_level {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) = $body:ident) => {
        $(#[$doc])*
        pub(super) fn $name(level: Level, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) { $body::<true>($($arg),*) }
                #[target_feature(enable = "avx512f,avx2,fma")]
                fn avx512($($arg: $type),*) { $body::<true>($($arg),*) }
                match level {
                    Level::Portable => $body::<false>($($arg),*),
                    // SAFETY: the level is only constructed where the instructions were detected.
                    Level::Avx2 => unsafe { avx2($($arg),*) },
                    // SAFETY: as above.
                    Level::Avx512 => unsafe { avx512($($arg),*) },
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            {
                let _ = level;
                $body::<false>($($arg),*)
            }
        }
    };
}

at_every_level! {
    /// Adds `residual` to each row of `x` and normalises the rows to mean 0 and variance 1, then
    /// scales by `gain` and shifts by `bias`. Rows have `gain.len()` elements.
    layer_norm(x: &mut [f32], residual: Option<&[f32]>, gain: &[f32], bias: &[f32], epsilon: f32) = layer_norm_body
}
at_every_level! {
    /// GELU (error function) of every element.
    apply_gelu(x: &mut [f32]) = gelu_body
}
at_every_level! {
    /// GELU (hyperbolic tangent) of every element.
    apply_gelu_tanh(x: &mut [f32]) = gelu_tanh_body
}
at_every_level! {
    /// Softmax of `scale * x` over the first `used` elements of each row of `stride` elements.
    softmax_rows(x: &mut [f32], stride: usize, used: usize, scale: f32) = softmax_body
}

#[inline(always)]
fn lane_sum(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let chunks = values.chunks_exact(LANES);
    for (lane, x) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane += f(*x);
    }
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] += f(chunk[lane]);
        }
    }
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
    }
    lanes[0]
}

#[inline(always)]
fn layer_norm_body<const FMA: bool>(
    x: &mut [f32],
    residual: Option<&[f32]>,
    gain: &[f32],
    bias: &[f32],
    epsilon: f32,
) {
    let size = gain.len();
    if let Some(residual) = residual {
        x.iter_mut().zip(residual).for_each(|(x, r)| *x += r);
    }
    for row in x.chunks_exact_mut(size) {
        let mean = lane_sum(row, |x| x) / size as f32;
        row.iter_mut().for_each(|x| *x -= mean);
        let variance = lane_sum(row, |x| x * x) / size as f32;
        let inverse = 1.0 / (variance + epsilon).sqrt();
        for ((x, gain), bias) in row.iter_mut().zip(gain).zip(bias) {
            *x = multiply_add::<FMA>(*x * inverse, *gain, *bias);
        }
    }
}

#[inline(always)]
fn gelu_body<const FMA: bool>(x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = gelu::<FMA>(*x));
}

#[inline(always)]
fn gelu_tanh_body<const FMA: bool>(x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = gelu_tanh::<FMA>(*x));
}

#[inline(always)]
fn softmax_body<const FMA: bool>(x: &mut [f32], stride: usize, used: usize, scale: f32) {
    for row in x.chunks_exact_mut(stride) {
        let row = &mut row[..used];
        let mut maxima = [f32::NEG_INFINITY; LANES];
        let chunks = row.chunks_exact(LANES);
        for (m, x) in maxima.iter_mut().zip(chunks.remainder()) {
            *m = if *x > *m { *x } else { *m };
        }
        for chunk in chunks {
            for lane in 0..LANES {
                maxima[lane] = if chunk[lane] > maxima[lane] {
                    chunk[lane]
                } else {
                    maxima[lane]
                };
            }
        }
        let max = maxima
            .iter()
            .fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a });
        row.iter_mut()
            .for_each(|x| *x = exp::<FMA>((*x - max) * scale));
        let inverse = 1.0 / lane_sum(row, |x| x);
        row.iter_mut().for_each(|x| *x *= inverse);
    }
}

mod portable {
    use super::Block;

    const WIDTH: usize = 16;

    pub(super) fn multiply(block: Block<'_>) {
        for row in 0..block.rows {
            let mut sums = [0.0f32; WIDTH];
            for (group, b) in block
                .a
                .chunks_exact(block.rows)
                .zip(block.panel.chunks_exact(WIDTH))
                .take(block.depth)
            {
                for column in 0..WIDTH {
                    sums[column] += group[row] * b[column];
                }
            }
            block.out[row * block.out_stride..][..WIDTH].copy_from_slice(&sums);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Block;

    /// Calls `$kernel::<ROWS>` with the block's number of rows as a constant, so that all sums stay
    /// in registers.
    macro_rules! with_rows {
        ($block:ident, $kernel:ident, $($rows:literal),*) => {
            match $block.rows {
                // SAFETY: the caller promised the instructions and checked the bounds.
                $($rows => unsafe { $kernel::<$rows>($block) },)*
                _ => unreachable!("the caller checked the number of rows"),
            }
        };
    }

    /// # Safety
    /// The machine has AVX2 and FMA, and the block's slices reach as far as its sizes say.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn multiply_avx2(block: Block<'_>) {
        with_rows!(block, avx2_rows, 1, 2, 3, 4, 5, 6)
    }

    /// # Safety
    /// The machine has AVX-512 F, and the block's slices reach as far as its sizes say.
    #[target_feature(enable = "avx512f,avx2,fma")]
    pub(super) unsafe fn multiply_avx512(block: Block<'_>) {
        with_rows!(block, avx512_rows, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
    }

    /// # Safety
    /// As [`multiply_avx2`]; `ROWS` is the block's number of rows.
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2_rows<const ROWS: usize>(block: Block<'_>) {
        let (a, panel) = (block.a.as_ptr(), block.panel.as_ptr());
        let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
        for p in 0..block.depth {
            // SAFETY: p < depth, rows < ROWS; `multiply` checked that a, panel and out reach there.
            unsafe {
                let b = [
                    _mm256_loadu_ps(panel.add(p * 16)),
                    _mm256_loadu_ps(panel.add(p * 16 + 8)),
                ];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = _mm256_set1_ps(*a.add(p * ROWS + row));
                    sums[0] = _mm256_fmadd_ps(x, b[0], sums[0]);
                    sums[1] = _mm256_fmadd_ps(x, b[1], sums[1]);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            // SAFETY: as above.
            unsafe {
                let out = block.out.as_mut_ptr().add(row * block.out_stride);
                _mm256_storeu_ps(out, sums[0]);
                _mm256_storeu_ps(out.add(8), sums[1]);
            }
        }
    }

    /// # Safety
    /// As [`multiply_avx512`]; `ROWS` is the block's number of rows.
    #[target_feature(enable = "avx512f,avx2,fma")]
    unsafe fn avx512_rows<const ROWS: usize>(block: Block<'_>) {
        let (a, panel) = (block.a.as_ptr(), block.panel.as_ptr());
        let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
        for p in 0..block.depth {
            // SAFETY: p < depth, rows < ROWS; `multiply` checked that a, panel and out reach there.
            unsafe {
                let b = [
                    _mm512_loadu_ps(panel.add(p * 32)),
                    _mm512_loadu_ps(panel.add(p * 32 + 16)),
                ];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = _mm512_set1_ps(*a.add(p * ROWS + row));
                    sums[0] = _mm512_fmadd_ps(x, b[0], sums[0]);
                    sums[1] = _mm512_fmadd_ps(x, b[1], sums[1]);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            // SAFETY: as above.
            unsafe {
                let out = block.out.as_mut_ptr().add(row * block.out_stride);
                _mm512_storeu_ps(out, sums[0]);
                _mm512_storeu_ps(out.add(16), sums[1]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, count: usize) -> Vec<f32> {
        let mut state = seed | 1;
        (0..count)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
            })
            .collect()
    }

    #[test]
    fn every_level_multiplies_like_f64_and_rows_do_not_depend_on_each_other() {
        for level in Level::available() {
            let columns = width(level);
            for depth in [1, 7, 32, 384] {
                let rows = height(level);
                // Packed: element p of row r is a[p * rows + r].
                let (a, panel) = (noise(1, rows * depth), noise(2, depth * columns));
                let run = |a: &[f32], rows, out: &mut [f32]| {
                    multiply(
                        level,
                        Block {
                            a,
                            rows,
                            depth,
                            panel: &panel,
                            out,
                            out_stride: columns,
                        },
                    );
                };
                let mut all = vec![f32::NAN; rows * columns];
                run(&a, rows, &mut all);
                for row in 0..rows {
                    let mut alone = vec![f32::NAN; columns];
                    let own: Vec<f32> = a.iter().skip(row).step_by(rows).copied().collect();
                    run(&own, 1, &mut alone);
                    assert_eq!(
                        alone,
                        all[row * columns..][..columns],
                        "{level:?}: a row depends on its neighbours"
                    );
                    for (column, got) in alone.iter().enumerate() {
                        let exact: f64 = (0..depth)
                            .map(|p| {
                                f64::from(a[p * rows + row])
                                    * f64::from(panel[p * columns + column])
                            })
                            .sum();
                        assert!(
                            (f64::from(*got) - exact).abs() < 1e-4,
                            "{level:?}: {got} is not {exact}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn row_functions_agree_between_levels() {
        let gain = noise(3, 37);
        let bias = noise(4, 37);
        let portable = |level| {
            let mut x = noise(5, 37 * 5);
            let residual = noise(6, 37 * 5);
            layer_norm(level, &mut x, Some(&residual), &gain, &bias, 1e-12);
            apply_gelu(level, &mut x);
            apply_gelu_tanh(level, &mut x);
            softmax_rows(level, &mut x, 37, 33, 0.7);
            x
        };
        let expected = portable(Level::Portable);
        for level in Level::available() {
            for (got, expected) in portable(level).iter().zip(&expected) {
                assert!(
                    (got - expected).abs() < 2e-6,
                    "{level:?}: {got} is not {expected}"
                );
            }
        }
    }

    #[test]
    fn softmax_rows_sum_to_one_even_with_extreme_scores() {
        for level in Level::available() {
            let mut x = vec![1e30, -1e30, 0.0, 1e30, 5.0, f32::MIN];
            softmax_rows(level, &mut x, 6, 6, 0.176);
            assert!(
                (x.iter().sum::<f32>() - 1.0).abs() < 1e-6,
                "{level:?}: {x:?}"
            );
        }
    }
}
