//! From f32 to fewer bits: rows as words of two bf16 or of four bytes, in runs.
//!
//! Run `k` of a row goes to `out[k * step * RUN..]`, so that rows can lie in each other's gaps. What is left of the
//! last run is filled up with the words of zeros.
//!
//! Compilers turn such loops into poor vector code, so that AVX-512 has its own.

use super::level::Level;
use super::tile::RUN;
use super::words::Quantised;
#[cfg(target_arch = "x86_64")]
use crate::Precision;

/// Panics unless the last run of a row is within `out`: unsafe code relies on it.
fn check_runs(elements: usize, per_run: usize, step: usize, out: &[u32]) {
    let runs = elements.div_ceil(per_run);
    assert!(
        runs == 0 || out.len() >= ((runs - 1) * step + 1) * RUN,
        "a row does not fit"
    );
}

/// The nearest bf16 of an element, ties to even; NaN stays NaN.
fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    match x.is_nan() {
        // Rounding must not carry a NaN over into something else.
        true => 0x7fc0,
        false => (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16,
    }
}

/// A row as runs of two bf16 a word, the earlier element in the lower half.
pub(super) fn bf16_runs(level: Level, row: &[f32], out: &mut [u32], step: usize) {
    check_runs(row.len(), 2 * RUN, step, out);
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 && level.has_dot(Precision::Bf16) {
        // SAFETY: the instructions were detected, and the runs are within `out`.
        unsafe { x86::bf16_runs(row, out, step) };
        return;
    }
    let _ = level;
    for (elements, run) in row.chunks(2 * RUN).zip(out.chunks_mut(step * RUN)) {
        let mut pairs = elements.chunks(2);
        for word in &mut run[..RUN] {
            *word = pairs.next().map_or(0, |pair| {
                let high = pair.get(1).map_or(0, |x| to_bf16(*x));
                u32::from(to_bf16(pair[0])) | u32::from(high) << 16
            });
        }
    }
}

/// The elements of two rows side by side, as words of two bf16; without `high` its place is 0. `out` is as long as the
/// rows.
pub(super) fn bf16_pairs(level: Level, low: &[f32], high: Option<&[f32]>, out: &mut [u32]) {
    assert!(
        low.len() == out.len() && high.is_none_or(|high| high.len() == out.len()),
        "rows of different lengths"
    );
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 && level.has_dot(Precision::Bf16) {
        // SAFETY: the instructions were detected, and the slices are equally long.
        unsafe { x86::bf16_pairs(low, high, out) };
        return;
    }
    let _ = level;
    for (at, (word, low)) in out.iter_mut().zip(low).enumerate() {
        let high = high.map_or(0, |high| to_bf16(high[at]));
        *word = u32::from(to_bf16(*low)) | u32::from(high) << 16;
    }
}

/// Adding it leaves the nearest whole number in the lowest bits: 1.5 * 2^23.
const ROUND: f32 = 12_582_912.0;

/// A row as runs of four bytes a word, from its least to its largest element, with 0 exact; elements that are not finite
/// make the step NaN.
pub(super) fn byte_runs(level: Level, row: &[f32], out: &mut [u32], step: usize) -> Quantised {
    check_runs(row.len(), 4 * RUN, step, out);
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 {
        // SAFETY: the instructions were detected, and the runs are within `out`.
        return unsafe { x86::byte_runs(row, out, step) };
    }
    let _ = level;
    let least = row.iter().fold(0.0f32, |a, x| a.min(*x));
    let most = row.iter().fold(0.0f32, |a, x| a.max(*x));
    let poison: f32 = row.iter().map(|x| x * 0.0).sum();
    let steps = Steps::of(least, most, poison);
    let byte = |x: &f32| {
        let whole = x * steps.inverse + steps.shift;
        // The two ends may both have been rounded up; the lower one never falls below 0.
        (whole.min(ROUND + 255.0).to_bits() & 0xff) as u8
    };
    for (elements, run) in row.chunks(4 * RUN).zip(out.chunks_mut(step * RUN)) {
        let mut fours = elements.chunks(4);
        for word in &mut run[..RUN] {
            let mut bytes = [byte(&0.0); 4];
            for (place, x) in bytes.iter_mut().zip(fours.next().unwrap_or_default()) {
                *place = byte(x);
            }
            *word = u32::from_le_bytes(bytes);
        }
    }
    steps.quantised
}

/// How a row becomes bytes: `x * inverse + shift`, and its lowest bits.
struct Steps {
    inverse: f32,
    shift: f32,
    quantised: Quantised,
}

impl Steps {
    /// `poison` is 0 for finite rows, NaN for others.
    fn of(least: f32, most: f32, poison: f32) -> Self {
        let range = most - least;
        // A step below the least normal number has no inverse; such a row is as good as 0.
        let step = range / 255.0;
        let scale = if step >= f32::MIN_POSITIVE { step } else { 1.0 };
        let inverse = 1.0 / scale;
        let zero = (-least * inverse + ROUND) - ROUND;
        Self {
            inverse,
            shift: ROUND + zero,
            quantised: Quantised {
                scale: scale + poison,
                zero: zero as i32,
            },
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Quantised, ROUND, RUN, Steps};

    const LANES: usize = 16;

    /// The lanes of the vector at `at` that a row of `length` elements has.
    fn lanes(at: usize, length: usize) -> __mmask16 {
        match length.saturating_sub(at) {
            whole if whole >= LANES => !0,
            rest => (1 << rest) - 1,
        }
    }

    /// The vector at `at` of a row, zeros behind its end.
    ///
    /// # Safety
    /// The machine has the instructions.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn load(row: &[f32], at: usize) -> __m512 {
        // SAFETY: the mask keeps the load within the slice; the address is not used where the mask is empty.
        unsafe { _mm512_maskz_loadu_ps(lanes(at, row.len()), row.as_ptr().wrapping_add(at)) }
    }

    /// # Safety
    /// The machine has the instructions, and run `k` is within `out` for every run of the row.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn bf16_runs(row: &[f32], out: &mut [u32], step: usize) {
        for (run, at) in (0..row.len()).step_by(2 * RUN).enumerate() {
            // SAFETY: the caller says that the run is there; a vector of bf16 is 64 bytes without invalid
            // values.
            unsafe {
                let (low, high) = (load(row, at), load(row, at + LANES));
                let pairs: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
                _mm512_storeu_si512(out.as_mut_ptr().add(run * step * RUN) as *mut _, pairs);
            }
        }
    }

    /// # Safety
    /// The machine has the instructions, and the slices are equally long.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn bf16_pairs(low: &[f32], high: Option<&[f32]>, out: &mut [u32]) {
        for at in (0..low.len()).step_by(LANES) {
            // SAFETY: the mask keeps loads and stores within the slices; a vector of bf16 is 32 bytes without
            // invalid values.
            unsafe {
                let widened = |row: &[f32]| {
                    let halves: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(load(row, at)));
                    _mm512_cvtepu16_epi32(halves)
                };
                let mut words = widened(low);
                if let Some(high) = high {
                    words = _mm512_or_si512(words, _mm512_slli_epi32::<16>(widened(high)));
                }
                let mask = lanes(at, low.len());
                _mm512_mask_storeu_epi32(out.as_mut_ptr().add(at) as *mut i32, mask, words);
            }
        }
    }

    /// # Safety
    /// The machine has the instructions, and run `k` is within `out` for every run of the row.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(super) unsafe fn byte_runs(row: &[f32], out: &mut [u32], step: usize) -> Quantised {
        let none = _mm512_setzero_ps();
        let (mut least, mut most, mut poison) = (none, none, none);
        for at in (0..row.len()).step_by(LANES) {
            // SAFETY: the instructions are there.
            let x = unsafe { load(row, at) };
            least = _mm512_min_ps(x, least);
            most = _mm512_max_ps(x, most);
            poison = _mm512_fmadd_ps(x, none, poison);
        }
        let steps = Steps::of(
            _mm512_reduce_min_ps(least),
            _mm512_reduce_max_ps(most),
            _mm512_reduce_add_ps(poison),
        );
        let (inverse, shift) = (_mm512_set1_ps(steps.inverse), _mm512_set1_ps(steps.shift));
        let last = _mm512_set1_ps(ROUND + 255.0);
        for (run, from) in (0..row.len()).step_by(4 * RUN).enumerate() {
            for part in 0..4 {
                // SAFETY: the caller says that the run is there: 64 bytes, in four parts.
                unsafe {
                    let x = load(row, from + part * LANES);
                    let whole = _mm512_add_ps(_mm512_mul_ps(x, inverse), shift);
                    let whole = _mm512_min_ps(whole, last);
                    let bytes = _mm512_cvtepi32_epi8(_mm512_castps_si512(whole));
                    let place = out.as_mut_ptr().add(run * step * RUN + part * 4);
                    _mm_storeu_si128(place as *mut __m128i, bytes);
                }
            }
        }
        steps.quantised
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernels::noise;
    use super::*;

    fn halves(words: &[u32]) -> Vec<f32> {
        let both = words.iter().flat_map(|w| [w << 16, w & 0xffff_0000]);
        both.map(f32::from_bits).collect()
    }

    #[test]
    fn bf16_is_the_nearest_one() {
        for level in Level::available() {
            let row = [
                1.0,
                -2.5,
                1.003_906_3,
                1.011_718_8,
                0.0,
                f32::NAN,
                f32::INFINITY,
            ];
            let mut out = [7; RUN];
            bf16_runs(level, &row, &mut out, 1);
            let back = halves(&out);
            // 1.00390625 and 1.01171875 are ties; the even neighbour wins.
            assert_eq!(&back[..5], &[1.0, -2.5, 1.0, 1.015_625, 0.0], "{level:?}");
            assert!(back[5].is_nan() && back[6] == f32::INFINITY, "{level:?}");
            assert!(back[7..].iter().all(|x| *x == 0.0), "{level:?}");
            let mut pairs = [7; 7];
            bf16_pairs(level, &row, Some(&[1.0; 7]), &mut pairs);
            assert_eq!(halves(&pairs)[..4], [1.0, 1.0, -2.5, 1.0], "{level:?}");
            bf16_pairs(level, &row, None, &mut pairs);
            assert_eq!(halves(&pairs)[..4], [1.0, 0.0, -2.5, 0.0], "{level:?}");
        }
    }

    #[test]
    fn runs_leave_gaps_alone_at_every_length() {
        for level in Level::available() {
            for length in [1, 2, 31, 32, 33, 64, 65, 100, 129, 384] {
                let row = noise(3, length);
                let runs = length.div_ceil(2 * RUN);
                let mut out = vec![7; ((runs - 1) * 3 + 1) * RUN];
                let mut plain = out.clone();
                bf16_runs(level, &row, &mut out, 3);
                bf16_runs(Level::Portable, &row, &mut plain, 3);
                assert_eq!(out, plain, "{level:?} {length}");
                assert!(
                    out.get(RUN..3 * RUN)
                        .is_none_or(|gap| gap.iter().all(|w| *w == 7))
                );
                let first = halves(&out[..RUN]);
                assert!(first.iter().zip(&row).all(|(a, b)| (a - b).abs() < 0.01));
            }
        }
    }

    #[test]
    fn bytes_keep_zero_and_stay_within_half_a_step() {
        for level in Level::available() {
            for shift in [-0.9, -0.3, 0.0, 0.5, 3.0f32] {
                let row: Vec<f32> = noise(7, 101).iter().map(|x| x + shift).collect();
                let mut words = vec![0; 2 * RUN];
                let quantised = byte_runs(level, &row, &mut words, 1);
                let mut plain = vec![0; 2 * RUN];
                assert_eq!(quantised, byte_runs(Level::Portable, &row, &mut plain, 1));
                assert_eq!(words, plain, "{level:?} differs from plain Rust");
                let bytes = words.iter().flat_map(|w| w.to_le_bytes());
                for (x, byte) in row.iter().zip(bytes) {
                    let back = quantised.scale * (i32::from(byte) - quantised.zero) as f32;
                    assert!(
                        (back - x).abs() <= quantised.scale * 1.01,
                        "{level:?}: {x} became {back}"
                    );
                }
            }
            let mut words = vec![0; RUN];
            let quantised = byte_runs(level, &[0.0; 4], &mut words, 1);
            assert_eq!((words[0], quantised.zero), (0, 0), "{level:?}");
            let quantised = byte_runs(level, &[1.0, f32::NAN, 0.0, 2.0], &mut words, 1);
            assert!(quantised.scale.is_nan(), "{level:?}: a NaN was lost");
        }
    }
}
