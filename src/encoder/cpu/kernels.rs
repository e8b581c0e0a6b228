//! Functions of rows, from one body in plain Rust that is compiled once per instruction level.

use super::level::Level;
use super::scalar_math::{gelu, gelu_short, gelu_tanh, multiply_add, silu};
use crate::{Activation, Precision};

/// Lanes of reductions over a row; fixed for all levels, so that only fused rounding differs.
pub(super) const LANES: usize = 16;

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
                    Level::Portable | Level::Neon => $body::<false>($($arg),*),
                    // SAFETY: the level is only constructed where the instructions were detected.
                    Level::Avx2 => unsafe { avx2($($arg),*) },
                    // SAFETY: as above.
                    Level::Avx512 => unsafe { avx512($($arg),*) },
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            {
                // Fused multiply-add is there on every aarch64.
                match level {
                    Level::Neon => $body::<true>($($arg),*),
                    _ => $body::<false>($($arg),*),
                }
            }
        }
    };
}
pub(super) use at_every_level;

at_every_level! {
    /// Adds `residual` to each row of `x` and normalises the rows to mean 0 and variance 1, then
    /// scales by `gain` and shifts by `bias`. Rows have `gain.len()` elements.
    layer_norm(x: &mut [f32], residual: Option<&[f32]>, gain: &[f32], bias: &[f32], epsilon: f32) = layer_norm_body
}
at_every_level! {
    /// Brings the mean square of each row of `x` to 1 and scales by `gain`. Rows have `gain.len()` elements.
    root_mean_square_norm(x: &mut [f32], gain: &[f32], epsilon: f32) = root_mean_square_body
}
at_every_level! {
    /// Rows of `wide` have two halves: the first one, activated as exactly as the precision deserves, times the second.
    /// Rows of `out` have `half` elements.
    gate(precision: Precision, activation: Activation, wide: &[f32], half: usize, out: &mut [f32]) = gate_body
}
at_every_level! {
    /// Turns both halves of a head by angles with these cosines and sines.
    turn(head: &mut [f32], cosines: &[f32], sines: &[f32]) = turn_body
}
at_every_level! {
    /// Adds a row to a row.
    add(x: &mut [f32], more: &[f32]) = add_body
}
at_every_level! {
    /// Divides the rows of a tile (`width` apart, `used` of it) by `divisors` and writes them to rows of
    /// `out` that are `stride` apart.
    scale_rows(tile: &[f32], width: usize, used: usize, divisors: &[f32], out: &mut [f32], stride: usize) = scale_body
}

/// Changes each element of a row by `f` of it and its partner in `other`, in one pass; the sum of the second results.
#[inline(always)]
fn change_and_sum(row: &mut [f32], other: &[f32], f: impl Fn(f32, f32) -> (f32, f32)) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    let (others, others_rest) = other.as_chunks::<LANES>();
    for ((x, other), lane) in rest.iter_mut().zip(others_rest).zip(&mut lanes) {
        let (changed, summand) = f(*x, *other);
        *x = changed;
        *lane += summand;
    }
    for (chunk, other) in chunks.iter_mut().zip(others) {
        // Results in arrays of their own: only so does this become vector code.
        let results: [(f32, f32); LANES] = std::array::from_fn(|lane| f(chunk[lane], other[lane]));
        *chunk = results.map(|(changed, _)| changed);
        for (lane, (_, summand)) in lanes.iter_mut().zip(results) {
            *lane += summand;
        }
    }
    halve(lanes)
}

/// The sum of lanes, half to half.
#[inline(always)]
pub(super) fn halve(mut lanes: [f32; LANES]) -> f32 {
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
    for (at, row) in x.chunks_exact_mut(size).enumerate() {
        let sum = match residual {
            None => change_and_sum(row, gain, |x, _| (x, x)),
            Some(residual) => {
                change_and_sum(row, &residual[at * size..][..size], |x, r| (x + r, x + r))
            }
        };
        let mean = sum / size as f32;
        let squares = change_and_sum(row, gain, |x, _| (x - mean, (x - mean) * (x - mean)));
        let variance = squares / size as f32;
        let inverse = 1.0 / (variance + epsilon).sqrt();
        for ((x, gain), bias) in row.iter_mut().zip(gain).zip(bias) {
            *x = multiply_add::<FMA>(*x * inverse, *gain, *bias);
        }
    }
}

#[inline(always)]
fn root_mean_square_body<const FMA: bool>(x: &mut [f32], gain: &[f32], epsilon: f32) {
    let size = gain.len();
    for row in x.chunks_exact_mut(size) {
        let squares = change_and_sum(row, gain, |x, _| (x, x * x));
        let inverse = 1.0 / (squares / size as f32 + epsilon).sqrt();
        for (x, gain) in row.iter_mut().zip(gain) {
            *x = *x * inverse * gain;
        }
    }
}

#[inline(always)]
fn gate_body<const FMA: bool>(
    precision: Precision,
    activation: Activation,
    wide: &[f32],
    half: usize,
    out: &mut [f32],
) {
    // One loop for each case, so that each becomes straight vector code.
    match (activation, precision) {
        (Activation::None, _) => gate_rows(wide, half, out, |x| x),
        (Activation::Gelu, Precision::F32) => gate_rows(wide, half, out, gelu::<FMA>),
        (Activation::Gelu, _) => gate_rows(wide, half, out, gelu_short::<FMA>),
        (Activation::GeluTanh, _) => gate_rows(wide, half, out, gelu_tanh::<FMA>),
        (Activation::Relu, _) => gate_rows(wide, half, out, |x: f32| x.max(0.0)),
        (Activation::Silu, _) => gate_rows(wide, half, out, silu::<FMA>),
        (Activation::Tanh, _) => gate_rows(wide, half, out, f32::tanh),
    }
}

#[inline(always)]
fn gate_rows(wide: &[f32], half: usize, out: &mut [f32], f: impl Fn(f32) -> f32) {
    for (row, out) in wide.chunks_exact(2 * half).zip(out.chunks_exact_mut(half)) {
        let (activated, factors) = row.split_at(half);
        for ((out, x), factor) in out.iter_mut().zip(activated).zip(factors) {
            *out = f(*x) * factor;
        }
    }
}

#[inline(always)]
fn turn_body<const FMA: bool>(head: &mut [f32], cosines: &[f32], sines: &[f32]) {
    let (low, high) = head.split_at_mut(cosines.len());
    for (((low, high), cosine), sine) in low.iter_mut().zip(high).zip(cosines).zip(sines) {
        let (x, y) = (*low, *high);
        *low = multiply_add::<FMA>(x, *cosine, -(y * sine));
        *high = multiply_add::<FMA>(y, *cosine, x * sine);
    }
}

#[inline(always)]
fn add_body<const FMA: bool>(x: &mut [f32], more: &[f32]) {
    x.iter_mut().zip(more).for_each(|(x, more)| *x += more);
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
        let (gain, bias) = (noise(3, 37), noise(4, 37));
        let all = |level| {
            let mut x = noise(5, 37 * 5);
            let residual = noise(6, 37 * 5);
            layer_norm(level, &mut x, Some(&residual), &gain, &bias, 1e-12);
            let mut out = vec![0.0; 5 * 40];
            scale_rows(level, &x, 37, 33, &[0.3, 1.0, 2.0, 7.0, 11.0], &mut out, 40);
            x.extend(out);
            let mut normed = noise(7, 37 * 2);
            root_mean_square_norm(level, &mut normed, &gain, 1e-6);
            turn(level, &mut normed[..36], &gain[..18], &bias[..18]);
            add(level, &mut normed, &residual[..37 * 2]);
            x.extend(normed);
            for activation in [
                Activation::None,
                Activation::Gelu,
                Activation::GeluTanh,
                Activation::Relu,
                Activation::Silu,
                Activation::Tanh,
            ] {
                for precision in [Precision::F32, Precision::Bf16] {
                    let mut out = vec![0.0; 2 * 37];
                    gate(
                        level,
                        precision,
                        activation,
                        &residual[..4 * 37],
                        37,
                        &mut out,
                    );
                    x.extend(out);
                }
            }
            x
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
}
