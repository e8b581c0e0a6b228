//! Functions of rows and tiles, from one body in plain Rust that is compiled once per instruction level.

use super::bert::Activation;
use super::level::Level;
use super::scalar_math::{exp, gelu, gelu_tanh, multiply_add};
use super::words::Quantised;

/// Lanes of reductions over a row; fixed for all levels, so that only fused rounding differs.
const LANES: usize = 16;

/// Defines a row function at every level from one `inline(always)` body.
macro_rules! at_every_level {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) = $body:ident) => {
        $(#[$doc])*
        pub(super) fn $name(level: Level, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) { $body::<true>($($arg),*) }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
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
    /// Adds `bias` to the rows of a tile (`width` apart, `bias.len()` used), applies `activation`, and
    /// writes them to rows of `out` that are `stride` apart.
    finish_tile(tile: &[f32], width: usize, bias: &[f32], activation: Activation, out: &mut [f32], stride: usize) = finish_body
}
at_every_level! {
    /// Turns a tile of whole numbers, in place, into what they stand for: rows quantised as `rows` says,
    /// times columns with these steps, whose bytes have these sums.
    dequantise_tile(tile: &mut [f32], width: usize, rows: &[Quantised], scales: &[f32], sums: &[i32]) = dequantise_body
}
at_every_level! {
    /// e^(`scale` * (x - max)) over the first `used` elements of each row of `stride` elements, and the
    /// sum of each row: softmax but for the division.
    softmax_weights(x: &mut [f32], stride: usize, used: usize, scale: f32, sums: &mut [f32]) = softmax_body
}
at_every_level! {
    /// Divides the rows of a tile (`width` apart, `used` of it) by `divisors` and writes them to rows of
    /// `out` that are `stride` apart.
    scale_rows(tile: &[f32], width: usize, used: usize, divisors: &[f32], out: &mut [f32], stride: usize) = scale_body
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
    halve(lanes)
}

/// The sum of lanes, half to half.
#[inline(always)]
fn halve(mut lanes: [f32; LANES]) -> f32 {
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
fn finish_body<const FMA: bool>(
    tile: &[f32],
    width: usize,
    bias: &[f32],
    activation: Activation,
    out: &mut [f32],
    stride: usize,
) {
    match activation {
        Activation::None => finish_rows(tile, width, bias, out, stride, |x| x),
        Activation::Gelu => finish_rows(tile, width, bias, out, stride, gelu::<FMA>),
        Activation::GeluTanh => finish_rows(tile, width, bias, out, stride, gelu_tanh::<FMA>),
        Activation::Relu => finish_rows(tile, width, bias, out, stride, |x| x.max(0.0)),
        Activation::Tanh => finish_rows(tile, width, bias, out, stride, f32::tanh),
    }
}

#[inline(always)]
fn finish_rows(
    tile: &[f32],
    width: usize,
    bias: &[f32],
    out: &mut [f32],
    stride: usize,
    f: impl Fn(f32) -> f32,
) {
    for (row, sums) in tile.chunks_exact(width).enumerate() {
        let out = &mut out[row * stride..][..bias.len()];
        let (out, out_rest) = out.as_chunks_mut::<LANES>();
        let (sums, sums_rest) = sums[..bias.len()].as_chunks::<LANES>();
        let (bias, bias_rest) = bias.as_chunks::<LANES>();
        for ((out, sums), bias) in out.iter_mut().zip(sums).zip(bias) {
            for lane in 0..LANES {
                out[lane] = f(sums[lane] + bias[lane]);
            }
        }
        for ((out, sum), bias) in out_rest.iter_mut().zip(sums_rest).zip(bias_rest) {
            *out = f(sum + bias);
        }
    }
}

#[inline(always)]
fn dequantise_body<const FMA: bool>(
    tile: &mut [f32],
    width: usize,
    rows: &[Quantised],
    scales: &[f32],
    sums: &[i32],
) {
    for (values, row) in tile.chunks_exact_mut(width).zip(rows) {
        for ((value, scale), sum) in values.iter_mut().zip(scales).zip(sums) {
            let whole = (value.to_bits() as i32).wrapping_sub(row.zero.wrapping_mul(*sum));
            *value = whole as f32 * (row.scale * scale);
        }
    }
}

#[inline(always)]
fn softmax_body<const FMA: bool>(
    x: &mut [f32],
    stride: usize,
    used: usize,
    scale: f32,
    sums: &mut [f32],
) {
    for (row, sum) in x.chunks_exact_mut(stride).zip(sums) {
        // Whole vectors only, and what is beyond the row counts for nothing.
        let end = used.next_multiple_of(LANES).min(stride);
        row[used..end].fill(f32::NEG_INFINITY);
        let (chunks, rest) = row[..end].as_chunks_mut::<LANES>();
        let mut maxima = [f32::NEG_INFINITY; LANES];
        for (m, x) in maxima.iter_mut().zip(&*rest) {
            *m = if *x > *m { *x } else { *m };
        }
        for chunk in &*chunks {
            for (m, x) in maxima.iter_mut().zip(chunk) {
                *m = if *x > *m { *x } else { *m };
            }
        }
        let max = maxima
            .iter()
            .fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a });
        let mut sums = [0.0f32; LANES];
        for chunk in chunks {
            for (x, sum) in chunk.iter_mut().zip(&mut sums) {
                *x = exp::<FMA>((*x - max) * scale);
                *sum += *x;
            }
        }
        for (x, sum) in rest.iter_mut().zip(&mut sums) {
            *x = exp::<FMA>((*x - max) * scale);
            *sum += *x;
        }
        *sum = halve(sums);
    }
}

#[inline(always)]
fn scale_body<const FMA: bool>(
    tile: &[f32],
    width: usize,
    used: usize,
    divisors: &[f32],
    out: &mut [f32],
    stride: usize,
) {
    for (row, (sums, divisor)) in tile.chunks_exact(width).zip(divisors).enumerate() {
        let inverse = 1.0 / divisor;
        let out = &mut out[row * stride..][..used];
        out.iter_mut()
            .zip(sums)
            .for_each(|(out, sum)| *out = sum * inverse);
    }
}

/// Numbers in [-1, 1) for tests.
#[cfg(test)]
pub(super) fn noise(seed: u64, count: usize) -> Vec<f32> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_functions_agree_between_levels() {
        let gain = noise(3, 37);
        let bias = noise(4, 37);
        let all = |level| {
            let mut x = noise(5, 37 * 5);
            let residual = noise(6, 37 * 5);
            layer_norm(level, &mut x, Some(&residual), &gain, &bias, 1e-12);
            let mut out = vec![0.0; 5 * 40];
            for activation in [
                Activation::Gelu,
                Activation::GeluTanh,
                Activation::Relu,
                Activation::None,
            ] {
                finish_tile(level, &x, 37, &bias[..33], activation, &mut out, 40);
                x = out.chunks(40).flat_map(|row| &row[..37]).copied().collect();
            }
            let mut sums = [0.0; 5];
            softmax_weights(level, &mut x, 37, 33, 0.7, &mut sums);
            scale_rows(level, &x, 37, 33, &sums, &mut out, 40);
            out
        };
        let expected = all(Level::Portable);
        for level in Level::available() {
            for (got, expected) in all(level).iter().zip(&expected) {
                assert!(
                    (got - expected).abs() < 2e-6,
                    "{level:?}: {got} is not {expected}"
                );
            }
        }
    }

    #[test]
    fn softmax_sums_are_of_its_weights_even_with_extreme_scores() {
        for level in Level::available() {
            let mut x = vec![1e30, -1e30, 0.0, 1e30, 5.0, f32::MIN];
            let mut sums = [0.0];
            softmax_weights(level, &mut x, 6, 6, 0.176, &mut sums);
            assert_eq!((x[0], x[3], sums[0]), (1.0, 1.0, 2.0), "{level:?}: {x:?}");
        }
    }
}
