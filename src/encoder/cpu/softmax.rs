//! Softmax of attention scores, as f32 or straight as the packed bf16 that the next product reads.
#![allow(
    clippy::too_many_arguments,
    reason = "a tile is where it is, what it holds and where it goes"
)]

use super::kernels::{LANES, at_every_level, halve};
use super::level::Level;
use super::scalar_math::{exp, exp2_short};
use super::tile::RUN;
use super::words::{per_word, runs_of};
use crate::Precision;

at_every_level! {
    /// e^(`scale` * (x - max)) over the first `used` elements of each row of `stride` elements, and the
    /// sum of each row: softmax but for the division. As exactly as the precision deserves.
    softmax_weights(precision: Precision, x: &mut [f32], stride: usize, used: usize, scale: f32, sums: &mut [f32]) = softmax_body
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

/// Softmax weights of rows as [`softmax_weights`] computes them, as runs of words of this precision (not bytes): run `k` of
/// row `r` goes to `out[(k * rows + r) * RUN..]`. `sums` has one element a row; `scores` is used up.
pub(super) fn softmax_runs(
    level: Level,
    precision: Precision,
    scores: &mut [f32],
    stride: usize,
    used: usize,
    scale: f32,
    sums: &mut [f32],
    out: &mut [u32],
) {
    let rows = sums.len();
    let runs = used.div_ceil(per_word(precision) * RUN);
    assert!(rows > 0 && used > 0 && used <= stride && out.len() >= runs * rows * RUN);
    assert!(scores.len() >= (rows - 1) * stride + used);
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 {
        // SAFETY: the instructions were detected, and the lengths were checked.
        unsafe {
            match precision {
                Precision::F32 => {
                    return x86::softmax_f32_runs(scores, stride, used, scale, sums, out);
                }
                _ if level.has_dot(Precision::Bf16) => {
                    return x86::softmax_bf16_runs(scores, stride, used, scale, sums, out);
                }
                _ => {}
            }
        }
    }
    softmax_weights(level, precision, scores, stride, used, scale, sums);
    for (r, row) in scores.chunks(stride).take(rows).enumerate() {
        runs_of(level, precision, &row[..used], &mut out[r * RUN..], rows);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::super::scalar_math::{EXP, EXP2_SHORT, LN2_HIGH, LN2_LOW};
    use super::super::tile::RUN;

    const LANES: usize = 16;

    /// The vector at `at` of a row of `used` elements; -infinity, which counts for nothing, behind its end.
    ///
    /// # Safety
    /// The machine has the instructions, and `row` has `used` elements.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load(row: *const f32, at: usize, used: usize) -> __m512 {
        let mask = match used.saturating_sub(at) {
            whole if whole >= LANES => !0,
            rest => (1 << rest) - 1,
        };
        let lowest = _mm512_set1_ps(f32::NEG_INFINITY);
        // SAFETY: the mask keeps the load within the row; the address is not used where it is empty.
        unsafe { _mm512_mask_loadu_ps(lowest, mask, row.wrapping_add(at)) }
    }

    /// The largest element of a row, in every lane.
    ///
    /// # Safety
    /// As [`load`].
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn largest(row: *const f32, used: usize) -> __m512 {
        let mut most = _mm512_set1_ps(f32::NEG_INFINITY);
        for at in (0..used).step_by(LANES) {
            // SAFETY: the caller promises it.
            most = _mm512_max_ps(unsafe { load(row, at, used) }, most);
        }
        _mm512_set1_ps(_mm512_reduce_max_ps(most))
    }

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
        let rows = sums.len();
        let scale = _mm512_set1_ps(scale * std::f32::consts::LOG2_E);
        for (r, sum) in sums.iter_mut().enumerate() {
            let row = scores.as_ptr().wrapping_add(r * stride);
            // SAFETY: the caller says that the row is there.
            let most = unsafe { largest(row, used) };
            let mut total = _mm512_setzero_ps();
            let mut weights = |at: usize| {
                // SAFETY: as above.
                let x = unsafe { load(row, at, used) };
                let weight = exp2_short(_mm512_mul_ps(_mm512_sub_ps(x, most), scale));
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

    /// # Safety
    /// As [`softmax_bf16_runs`].
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn softmax_f32_runs(
        scores: &[f32],
        stride: usize,
        used: usize,
        scale: f32,
        sums: &mut [f32],
        out: &mut [u32],
    ) {
        let rows = sums.len();
        let scale = _mm512_set1_ps(scale);
        for (r, sum) in sums.iter_mut().enumerate() {
            let row = scores.as_ptr().wrapping_add(r * stride);
            // SAFETY: the caller says that the row is there.
            let most = unsafe { largest(row, used) };
            let mut total = _mm512_setzero_ps();
            for (run, at) in (0..used).step_by(LANES).enumerate() {
                // SAFETY: as above, and so is the run.
                unsafe {
                    let x = _mm512_sub_ps(load(row, at, used), most);
                    let weight = exp(_mm512_mul_ps(x, scale));
                    total = _mm512_add_ps(total, weight);
                    let place = out.as_mut_ptr().add((run * rows + r) * RUN);
                    _mm512_storeu_ps(place as *mut f32, weight);
                }
            }
            *sum = _mm512_reduce_add_ps(total);
        }
    }

    /// As [`super::exp`] but for the last bits, and down to the least number.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn exp(x: __m512) -> __m512 {
        let x = _mm512_max_ps(x, _mm512_set1_ps(-150.0));
        let scaled = _mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E));
        let n = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(scaled);
        let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_HIGH), x);
        let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(LN2_LOW), r);
        let mut p = _mm512_set1_ps(EXP[0]);
        for c in &EXP[1..] {
            p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(*c));
        }
        let one = _mm512_set1_ps(1.0);
        let y = _mm512_add_ps(_mm512_fmadd_ps(_mm512_mul_ps(p, r), r, r), one);
        _mm512_scalef_ps(y, n)
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
}

#[cfg(test)]
mod tests {
    use super::super::kernels::noise;
    use super::*;

    #[test]
    fn softmax_agrees_between_levels() {
        for precision in [Precision::F32, Precision::Bf16] {
            let all = |level| {
                let (mut x, mut sums) = (noise(5, 37 * 5), [0.0; 5]);
                softmax_weights(level, precision, &mut x, 37, 33, 0.7, &mut sums);
                x.extend(sums.map(|sum| sum / 33.0));
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

    #[test]
    fn packed_softmax_agrees_between_levels() {
        for (precision, error) in [(Precision::F32, 2e-6), (Precision::Bf16, 0.008)] {
            for used in [1usize, 15, 16, 17, 31, 32, 33, 64, 100, 256] {
                let stride = used.next_multiple_of(32);
                let softmax = |level| {
                    let mut scores = noise(5, 3 * stride);
                    scores.iter_mut().for_each(|x| *x *= 20.0);
                    let mut sums = [0.0; 3];
                    let runs = used.div_ceil(RUN * per_word(precision));
                    let mut out = vec![0; runs * 3 * RUN];
                    let scores = &mut scores;
                    softmax_runs(
                        level, precision, scores, stride, used, 0.4, &mut sums, &mut out,
                    );
                    let numbers = match precision {
                        Precision::F32 => out.iter().map(|w| f32::from_bits(*w)).collect(),
                        _ => {
                            let halves = out.iter().flat_map(|w| [w << 16, w & 0xffff_0000]);
                            halves.map(f32::from_bits).collect::<Vec<_>>()
                        }
                    };
                    (sums, numbers)
                };
                let (expected_sums, expected) = softmax(Level::Portable);
                for level in Level::available() {
                    let (sums, weights) = softmax(level);
                    for (got, expected) in sums.iter().zip(expected_sums) {
                        assert!((got / expected - 1.0).abs() < 1e-5, "{level:?} {used}");
                    }
                    for (got, expected) in weights.iter().zip(&expected) {
                        assert!(
                            (got - expected).abs() <= expected * error + 1e-37,
                            "{precision:?} {level:?} {used}: {got} {expected}"
                        );
                    }
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
