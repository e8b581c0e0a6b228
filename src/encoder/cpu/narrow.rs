//! From f32 to fewer bits: rows of bf16, rows of bytes.
//!
//! Compilers turn such loops into poor vector code, so that AVX-512 has its own.

use super::level::Level;
use super::words::Quantised;
#[cfg(target_arch = "x86_64")]
use crate::encoder::Precision;

/// The nearest bf16 of each element, ties to even; NaN stays NaN. `out` is as long as `row` or longer.
pub(super) fn to_bf16_row(level: Level, row: &[f32], out: &mut [u16]) {
    let out = &mut out[..row.len()];
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 && level.has_dot(Precision::Bf16) {
        // SAFETY: the instructions were detected; the two slices are equally long.
        unsafe { x86::to_bf16_row(row, out) };
        return;
    }
    let _ = level;
    for (out, x) in out.iter_mut().zip(row) {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        *out = match x.is_nan() {
            // Rounding must not carry a NaN over into something else.
            true => 0x7fc0,
            false => rounded as u16,
        };
    }
}

/// Adding it leaves the nearest whole number in the lowest bits: 1.5 * 2^23.
const ROUND: f32 = 12_582_912.0;

/// Bytes for a row, from its least to its largest element, with 0 exact; elements that are not finite
/// make the step NaN. `out` is as long as `row` or longer.
pub(super) fn quantise_row(level: Level, row: &[f32], out: &mut [u8]) -> Quantised {
    let out = &mut out[..row.len()];
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 {
        // SAFETY: the instructions were detected; the two slices are equally long.
        return unsafe { x86::quantise_row(row, out) };
    }
    let _ = level;
    let least = row.iter().fold(0.0f32, |a, x| a.min(*x));
    let most = row.iter().fold(0.0f32, |a, x| a.max(*x));
    let poison: f32 = row.iter().map(|x| x * 0.0).sum();
    let steps = Steps::of(least, most, poison);
    for (byte, x) in out.iter_mut().zip(row) {
        let whole = x * steps.inverse + steps.shift;
        // The two ends may both have been rounded up.
        *byte = (whole.clamp(ROUND, ROUND + 255.0).to_bits() & 0xff) as u8;
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
        let scale = if range > 0.0 { range / 255.0 } else { 1.0 };
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

    use super::{Quantised, ROUND, Steps};

    const LANES: usize = 16;

    /// The lanes of the vector at `at` that a row of `length` elements has.
    fn lanes(at: usize, length: usize) -> __mmask16 {
        match length - at {
            whole if whole >= LANES => !0,
            rest => (1 << rest) - 1,
        }
    }

    /// # Safety
    /// The machine has the instructions, and `out` is as long as `row`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    pub(super) unsafe fn to_bf16_row(row: &[f32], out: &mut [u16]) {
        let (length, row, out) = (row.len(), row.as_ptr(), out.as_mut_ptr());
        for at in (0..length).step_by(LANES) {
            // SAFETY: the mask keeps loads and stores within the slices; a vector of bf16 is 32 bytes
            // without invalid values.
            unsafe {
                let mask = lanes(at, length);
                let x = _mm512_maskz_loadu_ps(mask, row.add(at));
                let halves: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(x));
                _mm256_mask_storeu_epi16(out.add(at) as *mut i16, mask, halves);
            }
        }
    }

    /// # Safety
    /// The machine has the instructions, and `out` is as long as `row`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    pub(super) unsafe fn quantise_row(row: &[f32], out: &mut [u8]) -> Quantised {
        let (length, row, out) = (row.len(), row.as_ptr(), out.as_mut_ptr());
        let none = _mm512_setzero_ps();
        let (mut least, mut most, mut poison) = (none, none, none);
        for at in (0..length).step_by(LANES) {
            // SAFETY: the mask keeps loads within the slice.
            let x = unsafe { _mm512_maskz_loadu_ps(lanes(at, length), row.add(at)) };
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
        let (first, last) = (_mm512_set1_ps(ROUND), _mm512_set1_ps(ROUND + 255.0));
        for at in (0..length).step_by(LANES) {
            // SAFETY: the mask keeps loads and stores within the slices.
            unsafe {
                let mask = lanes(at, length);
                let x = _mm512_maskz_loadu_ps(mask, row.add(at));
                let whole = _mm512_add_ps(_mm512_mul_ps(x, inverse), shift);
                let whole = _mm512_min_ps(_mm512_max_ps(whole, first), last);
                _mm512_mask_cvtepi32_storeu_epi8(
                    out.add(at) as *mut i8,
                    mask,
                    _mm512_castps_si512(whole),
                );
            }
        }
        steps.quantised
    }
}

#[cfg(test)]
mod tests {
    use super::super::kernels::noise;
    use super::*;

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
            let mut out = [0; 7];
            to_bf16_row(level, &row, &mut out);
            let back = out.map(|bits| f32::from_bits(u32::from(bits) << 16));
            // 1.00390625 and 1.01171875 are ties; the even neighbour wins.
            assert_eq!(&back[..5], &[1.0, -2.5, 1.0, 1.015_625, 0.0], "{level:?}");
            assert!(back[5].is_nan() && back[6] == f32::INFINITY, "{level:?}");
        }
    }

    #[test]
    fn bytes_keep_zero_and_stay_within_half_a_step() {
        for level in Level::available() {
            for shift in [-0.9, -0.3, 0.0, 0.5, 3.0f32] {
                let row: Vec<f32> = noise(7, 101).iter().map(|x| x + shift).collect();
                let mut bytes = vec![0; 101];
                let quantised = quantise_row(level, &row, &mut bytes);
                let mut plain = vec![0; 101];
                assert_eq!(quantised, quantise_row(Level::Portable, &row, &mut plain));
                assert_eq!(bytes, plain, "{level:?} differs from plain Rust");
                for (x, byte) in row.iter().zip(&bytes) {
                    let back = quantised.scale * (i32::from(*byte) - quantised.zero) as f32;
                    assert!(
                        (back - x).abs() <= quantised.scale * 1.01,
                        "{level:?}: {x} became {back}"
                    );
                }
            }
            let mut bytes = vec![0; 4];
            let quantised = quantise_row(level, &[0.0; 4], &mut bytes);
            assert_eq!((bytes[0], quantised.zero), (0, 0), "{level:?}");
            let quantised = quantise_row(level, &[1.0, f32::NAN, 0.0, 2.0], &mut bytes);
            assert!(quantised.scale.is_nan(), "{level:?}: a NaN was lost");
        }
    }
}
