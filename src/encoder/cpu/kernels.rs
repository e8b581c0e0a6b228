//! Functions of rows and tiles, from one body in plain Rust that is compiled once per instruction level.
#![allow(
    clippy::too_many_arguments,
    reason = "a tile is where it is, what it holds and where it goes"
)]

use super::level::Level;
use super::narrow::bf16_runs;
use super::scalar_math::{exp, exp2_short, gelu, gelu_short, gelu_tanh, multiply_add};
use super::tile::RUN;
use super::words::Quantised;
use crate::encoder::{Activation, Precision};

/// Lanes of reductions over a row; fixed for all levels, so that only fused rounding differs.
const LANES: usize = 16;

/// What the whole numbers of a tile stand for.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    /// How the rows were quantised.
    pub rows: &'a [Quantised],
    /// The step of each column.
    pub scales: &'a [f32],
    /// The sum of the bytes of each column.
    pub sums: &'a [i32],
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

at_every_level! {
    /// Adds `residual` to each row of `x` and normalises the rows to mean 0 and variance 1, then
    /// scales by `gain` and shifts by `bias`. Rows have `gain.len()` elements.
    layer_norm(x: &mut [f32], residual: Option<&[f32]>, gain: &[f32], bias: &[f32], epsilon: f32) = layer_norm_body
}
/// Finishes a tile: see [`finish_rows_of_tile`]. Compilers make poor vector code of the case of bytes, so that AVX-512 has its
/// own.
pub(super) fn finish_tile(
    level: Level,
    tile: &[f32],
    width: usize,
    bytes: Option<Bytes<'_>>,
    bias: &[f32],
    (activation, precision): (Activation, Precision),
    out: &mut [f32],
    stride: usize,
) {
    #[cfg(target_arch = "x86_64")]
    if let (Level::Avx512, Some(bytes)) = (level, bytes)
        && width == x86::WIDTH
        && bias.len() == width
        && matches!(activation, Activation::None | Activation::Gelu)
    {
        let rows = bytes.rows.len();
        assert!(tile.len() >= rows * width && bytes.scales.len() == width);
        assert!(bytes.sums.len() == width && out.len() >= (rows - 1) * stride + width);
        // SAFETY: the level is only constructed where the instructions were detected, and the lengths were checked.
        unsafe {
            match activation {
                Activation::Gelu => x86::finish_bytes::<true>(tile, bytes, bias, out, stride),
                _ => x86::finish_bytes::<false>(tile, bytes, bias, out, stride),
            }
        }
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if (level, activation, precision) == (Level::Avx512, Activation::Gelu, Precision::F32)
        && width == x86::WIDTH
        && bias.len() == width
    {
        let rows = tile.len() / width;
        assert!(rows > 0 && out.len() >= (rows - 1) * stride + width);
        // SAFETY: the level is only constructed where the instructions were detected, and the lengths were checked.
        unsafe { x86::finish_gelu(tile, bias, out, stride) };
        return;
    }
    let after = (activation, precision);
    finish_rows_of_tile(level, tile, width, bytes, bias, after, out, stride);
}

at_every_level! {
    /// Turns the rows of a tile (`width` apart, `bias.len()` used) into results: of bytes what their whole numbers stand
    /// for, adds `bias`, applies the activation as exactly as the precision deserves, and writes them to rows of
    /// `out` that are `stride` apart.
    finish_rows_of_tile(tile: &[f32], width: usize, bytes: Option<Bytes<'_>>, bias: &[f32], after: (Activation, Precision), out: &mut [f32], stride: usize) = finish_body
}
at_every_level! {
    /// e^(`scale` * (x - max)) over the first `used` elements of each row of `stride` elements, and the
    /// sum of each row: softmax but for the division. As exactly as the precision deserves.
    softmax_weights(precision: Precision, x: &mut [f32], stride: usize, used: usize, scale: f32, sums: &mut [f32]) = softmax_body
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
    for (at, row) in x.chunks_exact_mut(size).enumerate() {
        if let Some(residual) = residual {
            let residual = &residual[at * size..][..size];
            row.iter_mut().zip(residual).for_each(|(x, r)| *x += r);
        }
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
    bytes: Option<Bytes<'_>>,
    bias: &[f32],
    (activation, precision): (Activation, Precision),
    out: &mut [f32],
    stride: usize,
) {
    // One loop for each case, so that each becomes straight vector code.
    macro_rules! rows {
        ($f:expr) => {
            match bytes {
                None => finish_rows(tile, width, bias, out, stride, $f),
                Some(bytes) => finish_byte_rows::<FMA>(tile, width, bytes, bias, out, stride, $f),
            }
        };
    }
    match (activation, precision) {
        (Activation::None, _) => rows!(|x| x),
        (Activation::Gelu, Precision::F32) => rows!(gelu::<FMA>),
        (Activation::Gelu, _) => rows!(gelu_short::<FMA>),
        (Activation::GeluTanh, _) => rows!(gelu_tanh::<FMA>),
        (Activation::Relu, _) => rows!(|x: f32| x.max(0.0)),
        (Activation::Tanh, _) => rows!(f32::tanh),
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
fn finish_byte_rows<const FMA: bool>(
    tile: &[f32],
    width: usize,
    bytes: Bytes<'_>,
    bias: &[f32],
    out: &mut [f32],
    stride: usize,
    f: impl Fn(f32) -> f32,
) {
    for (at, (places, row)) in tile.chunks_exact(width).zip(bytes.rows).enumerate() {
        let out = &mut out[at * stride..][..bias.len()];
        let columns = bytes.scales.iter().zip(bytes.sums).zip(bias);
        // Not in chunks of lanes: that does not become vector code.
        for ((out, place), ((scale, sum), bias)) in out.iter_mut().zip(places).zip(columns) {
            let whole = (place.to_bits() as i32).wrapping_sub(row.zero.wrapping_mul(*sum));
            *out = f(multiply_add::<FMA>(whole as f32, row.scale * scale, *bias));
        }
    }
}

#[inline(always)]
fn softmax_body<const FMA: bool>(
    precision: Precision,
    x: &mut [f32],
    stride: usize,
    used: usize,
    scale: f32,
    sums: &mut [f32],
) {
    match precision {
        Precision::F32 => softmax_rows(x, stride, used, sums, |x| exp::<FMA>(x * scale)),
        _ => {
            let scale = scale * std::f32::consts::LOG2_E;
            softmax_rows(x, stride, used, sums, |x| exp2_short::<FMA>(x * scale));
        }
    }
}

#[inline(always)]
fn softmax_rows(
    x: &mut [f32],
    stride: usize,
    used: usize,
    sums: &mut [f32],
    weight: impl Fn(f32) -> f32,
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
                *x = weight(*x - max);
                *sum += *x;
            }
        }
        for (x, sum) in rest.iter_mut().zip(&mut sums) {
            *x = weight(*x - max);
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

/// Softmax weights of rows as [`softmax_weights`] computes them, as runs of bf16 instead of f32: run `k` of row `r` goes
/// to `out[(k * rows + r) * RUN..]`. `sums` has one element a row; `scores` is used up.
pub(super) fn softmax_bf16_runs(
    level: Level,
    scores: &mut [f32],
    stride: usize,
    used: usize,
    scale: f32,
    sums: &mut [f32],
    out: &mut [u32],
) {
    let rows = sums.len();
    let runs = used.div_ceil(2 * RUN);
    assert!(rows > 0 && used > 0 && used <= stride && out.len() >= runs * rows * RUN);
    assert!(scores.len() >= (rows - 1) * stride + used);
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 && level.has_dot(Precision::Bf16) {
        // SAFETY: the instructions were detected, and the lengths were checked.
        unsafe { x86::softmax_bf16_runs(scores, stride, used, scale, sums, out) };
        return;
    }
    softmax_weights(level, Precision::Bf16, scores, stride, used, scale, sums);
    for (r, row) in scores.chunks(stride).take(rows).enumerate() {
        bf16_runs(level, &row[..used], &mut out[r * RUN..], rows);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::super::scalar_math::{
        ERF_ABOVE, ERF_BELOW, ERF_END, EXP2_SHORT, GELU_SHORT, GELU_SHORT_END,
    };
    use super::super::tile::RUN;
    use super::Bytes;

    /// # Safety
    /// The machine has the instructions. `scores` has `sums.len()` rows of `used` elements that are `stride` apart, and
    /// `out` has as many runs as they need.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(super) unsafe fn softmax_bf16_runs(
        scores: &[f32],
        stride: usize,
        used: usize,
        scale: f32,
        sums: &mut [f32],
        out: &mut [u32],
    ) {
        let lowest = _mm512_set1_ps(f32::NEG_INFINITY);
        let rows = sums.len();
        let scale = _mm512_set1_ps(scale * std::f32::consts::LOG2_E);
        for (r, sum) in sums.iter_mut().enumerate() {
            let row = scores.as_ptr().wrapping_add(r * stride);
            // What is beyond the row counts for nothing.
            let load = |at: usize| {
                let mask = match used.saturating_sub(at) {
                    whole if whole >= LANES => !0,
                    rest => (1 << rest) - 1,
                };
                // SAFETY: the mask keeps the load within the row; the address is not used where it is empty.
                unsafe { _mm512_mask_loadu_ps(lowest, mask, row.wrapping_add(at)) }
            };
            let mut most = lowest;
            for at in (0..used).step_by(LANES) {
                most = _mm512_max_ps(load(at), most);
            }
            let most = _mm512_set1_ps(_mm512_reduce_max_ps(most));
            let mut total = _mm512_setzero_ps();
            let mut weights = |at: usize| {
                let x = _mm512_mul_ps(_mm512_sub_ps(load(at), most), scale);
                let weight = exp2_short(x);
                total = _mm512_add_ps(total, weight);
                weight
            };
            for (run, at) in (0..used).step_by(2 * LANES).enumerate() {
                let low = weights(at);
                let high = weights(at + LANES);
                // SAFETY: the caller says that the run is there; a vector of bf16 is 64 bytes without invalid values.
                unsafe {
                    let pairs: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
                    let place = out.as_mut_ptr().add((run * rows + r) * RUN);
                    _mm512_storeu_si512(place as *mut _, pairs);
                }
            }
            *sum = _mm512_reduce_add_ps(total);
        }
    }

    /// As [`super::exp2_short`] but for the last bit; 0 for -infinity.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn exp2_short(x: __m512) -> __m512 {
        let x = _mm512_max_ps(x, _mm512_set1_ps(-200.0));
        let whole = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
        let r = _mm512_sub_ps(x, whole);
        let mut p = _mm512_set1_ps(EXP2_SHORT[0]);
        for c in &EXP2_SHORT[1..] {
            p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(*c));
        }
        _mm512_scalef_ps(p, whole)
    }

    const LANES: usize = 16;
    pub(super) const WIDTH: usize = 2 * LANES;

    /// # Safety
    /// The machine has the instructions. Tile and `out` (with its stride) have as many rows as `bytes`; `bytes` and `bias`
    /// have `WIDTH` columns.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn finish_bytes<const GELU: bool>(
        tile: &[f32],
        bytes: Bytes<'_>,
        bias: &[f32],
        out: &mut [f32],
        stride: usize,
    ) {
        for half in [0, LANES] {
            // SAFETY: columns `half..half + LANES` are below `WIDTH`, and the caller promised the rows.
            unsafe {
                let scales = _mm512_loadu_ps(bytes.scales.as_ptr().add(half));
                let sums = _mm512_loadu_si512(bytes.sums.as_ptr().add(half) as *const _);
                let biases = _mm512_loadu_ps(bias.as_ptr().add(half));
                for (at, row) in bytes.rows.iter().enumerate() {
                    let place = tile.as_ptr().add(at * WIDTH + half);
                    let shift = _mm512_mullo_epi32(sums, _mm512_set1_epi32(row.zero));
                    let whole = _mm512_sub_epi32(_mm512_loadu_si512(place as *const _), shift);
                    let step = _mm512_mul_ps(_mm512_set1_ps(row.scale), scales);
                    let mut value = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), step, biases);
                    if GELU {
                        value = gelu_short(value);
                    }
                    _mm512_storeu_ps(out.as_mut_ptr().add(at * stride + half), value);
                }
            }
        }
    }

    /// # Safety
    /// The machine has the instructions. `out` (with its stride) has as many rows as the tile; `bias` has `WIDTH` columns.
    #[target_feature(enable = "avx512f,avx512dq")]
    pub(super) unsafe fn finish_gelu(tile: &[f32], bias: &[f32], out: &mut [f32], stride: usize) {
        for half in [0, LANES] {
            // SAFETY: columns `half..half + LANES` are below `WIDTH`, and the caller promised the rows.
            unsafe {
                let biases = _mm512_loadu_ps(bias.as_ptr().add(half));
                for at in 0..tile.len() / WIDTH {
                    let sums = _mm512_loadu_ps(tile.as_ptr().add(at * WIDTH + half));
                    let value = gelu(_mm512_add_ps(sums, biases));
                    _mm512_storeu_ps(out.as_mut_ptr().add(at * stride + half), value);
                }
            }
        }
    }

    /// As [`super::gelu`] but for the last bits: by the reciprocal, which is quicker than dividing.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq")]
    fn gelu(x: __m512) -> __m512 {
        let polynomial = |coefficients: &[f32], square| {
            let mut p = _mm512_set1_ps(coefficients[0]);
            for c in &coefficients[1..] {
                p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(*c));
            }
            p
        };
        let scaled = _mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::FRAC_1_SQRT_2));
        // The order of operands keeps a NaN.
        let clamped = _mm512_max_ps(_mm512_set1_ps(-ERF_END), scaled);
        let clamped = _mm512_min_ps(_mm512_set1_ps(ERF_END), clamped);
        let square = _mm512_mul_ps(clamped, clamped);
        let q = polynomial(&ERF_BELOW, square);
        let rough = _mm512_rcp14_ps(q);
        // One step of Newton's brings 14 bits to 28.
        let rest = _mm512_fnmadd_ps(q, rough, _mm512_set1_ps(1.0));
        let reciprocal = _mm512_fmadd_ps(rough, rest, rough);
        let p = _mm512_mul_ps(clamped, polynomial(&ERF_ABOVE, square));
        let half = _mm512_mul_ps(x, _mm512_set1_ps(0.5));
        _mm512_fmadd_ps(half, _mm512_mul_ps(p, reciprocal), half)
    }

    /// As [`super::gelu_short`], to the bit.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn gelu_short(x: __m512) -> __m512 {
        let end = GELU_SHORT_END;
        // The order of operands keeps a NaN.
        let clamped = _mm512_max_ps(_mm512_set1_ps(-end), x);
        let clamped = _mm512_min_ps(_mm512_set1_ps(end), clamped);
        let square = _mm512_mul_ps(clamped, clamped);
        let mut p = _mm512_set1_ps(GELU_SHORT[0]);
        for c in &GELU_SHORT[1..] {
            p = _mm512_fmadd_ps(p, square, _mm512_set1_ps(*c));
        }
        _mm512_mul_ps(x, _mm512_fmadd_ps(p, clamped, _mm512_set1_ps(0.5)))
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
                for precision in [Precision::F32, Precision::Bf16] {
                    let after = (activation, precision);
                    finish_tile(level, &x, 37, None, &bias[..33], after, &mut out, 40);
                    x = out.chunks(40).flat_map(|row| &row[..37]).copied().collect();
                }
            }
            let whole: Vec<f32> = (0..37 * 5).map(|i| f32::from_bits(i * 31)).collect();
            let rows = [Quantised {
                scale: 0.01,
                zero: 7,
            }; 5];
            let sums: Vec<i32> = (0..33).collect();
            let bytes = Bytes {
                rows: &rows,
                scales: &gain[..33],
                sums: &sums,
            };
            let after = (Activation::Gelu, Precision::Int8);
            finish_tile(
                level,
                &whole,
                37,
                Some(bytes),
                &bias[..33],
                after,
                &mut out,
                40,
            );
            x.iter_mut().zip(&out).for_each(|(x, y)| *x += 0.01 * y);
            let mut sums = [0.0; 5];
            softmax_weights(level, Precision::F32, &mut x, 37, 33, 0.7, &mut sums);
            softmax_weights(level, Precision::Bf16, &mut x, 37, 33, 0.7, &mut sums);
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
    fn tiles_of_bytes_agree_between_levels() {
        let (scales, bias) = (noise(8, 32), noise(9, 32));
        let tile: Vec<f32> = (0..12 * 32)
            .map(|i: i32| f32::from_bits((i * 7919 % 40_000 - 20_000) as u32))
            .collect();
        let rows: Vec<Quantised> = (0..12)
            .map(|zero| Quantised { scale: 0.001, zero })
            .collect();
        let sums: Vec<i32> = (0..32).map(|i| i * 13 - 200).collect();
        for activation in [Activation::None, Activation::Gelu, Activation::Relu] {
            for count in [1, 5, 12] {
                let finish = |level| {
                    let bytes = Bytes {
                        rows: &rows[..count],
                        scales: &scales,
                        sums: &sums,
                    };
                    let mut out = vec![9.0; 12 * 40];
                    let after = (activation, Precision::Int8);
                    finish_tile(
                        level,
                        &tile[..count * 32],
                        32,
                        Some(bytes),
                        &bias,
                        after,
                        &mut out,
                        40,
                    );
                    out
                };
                let expected = finish(Level::Portable);
                assert!(
                    expected[32..40].iter().all(|x| *x == 9.0),
                    "written past the tile"
                );
                for level in Level::available() {
                    for (got, expected) in finish(level).iter().zip(&expected) {
                        assert!(
                            (got - expected).abs() < 2e-5,
                            "{level:?}: {got} is not {expected}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn packed_softmax_agrees_between_levels() {
        for used in [1usize, 15, 16, 17, 31, 32, 33, 64, 100, 256] {
            let stride = used.next_multiple_of(32);
            let softmax = |level| {
                let mut scores = noise(5, 3 * stride);
                scores.iter_mut().for_each(|x| *x *= 20.0);
                let mut sums = [0.0; 3];
                let mut out = vec![0; used.div_ceil(32) * 3 * RUN];
                softmax_bf16_runs(level, &mut scores, stride, used, 0.4, &mut sums, &mut out);
                let halves = out.iter().flat_map(|w| [w << 16, w & 0xffff_0000]);
                (sums, halves.map(f32::from_bits).collect::<Vec<_>>())
            };
            let (expected_sums, expected) = softmax(Level::Portable);
            for level in Level::available() {
                let (sums, weights) = softmax(level);
                for (got, expected) in sums.iter().zip(expected_sums) {
                    assert!((got / expected - 1.0).abs() < 1e-5, "{level:?} {used}");
                }
                for (got, expected) in weights.iter().zip(&expected) {
                    assert!(
                        (got - expected).abs() <= expected * 0.008,
                        "{level:?} {used}: {got} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn softmax_sums_are_of_its_weights_even_with_extreme_scores() {
        for level in Level::available() {
            for (precision, error) in [(Precision::F32, 0.0), (Precision::Bf16, 1e-4)] {
                let mut x = vec![1e30, -1e30, 0.0, 1e30, 5.0, f32::MIN];
                let mut sums = [0.0];
                softmax_weights(level, precision, &mut x, 6, 6, 0.176, &mut sums);
                assert!(
                    (x[0] - 1.0).abs() <= error && x[3] == x[0],
                    "{level:?}: {x:?}"
                );
                assert!((sums[0] - 2.0).abs() <= 2.0 * error, "{level:?}: {x:?}");
            }
        }
    }
}
