//! What happens to a tile of sums on its way out: what bytes stand for, the bias, the activation.
#![allow(
    clippy::too_many_arguments,
    reason = "a tile is where it is, what it holds and where it goes"
)]

use super::kernels::{LANES, at_every_level};
use super::level::Level;
use super::scalar_math::{gelu, gelu_short, gelu_tanh, multiply_add, silu};
use super::words::Quantised;
use crate::{Activation, Precision};

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
        (Activation::Silu, _) => rows!(silu::<FMA>),
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

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::super::scalar_math::{ERF_ABOVE, ERF_BELOW, ERF_END, GELU_SHORT, GELU_SHORT_END};
    use super::Bytes;

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

#[cfg(test)]
mod tests {
    use super::super::kernels::noise;
    use super::*;

    const ALL: [Activation; 6] = [
        Activation::None,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Relu,
        Activation::Silu,
        Activation::Tanh,
    ];

    /// Tiles of whole width (AVX-512 has its own code for them) and of parts: width, and how much of it is used.
    const SHAPES: [(usize, usize); 2] = [(32, 32), (37, 33)];

    /// Compares what `finish` writes at every level with what it writes in plain Rust.
    #[track_caller]
    fn assert_agree(used: usize, tolerance: f32, finish: impl Fn(Level, &mut [f32])) {
        let run = |level| {
            let mut out = vec![9.0; 12 * 40];
            finish(level, &mut out);
            out
        };
        let expected = run(Level::Portable);
        assert!(
            expected[used..40].iter().all(|x| *x == 9.0),
            "written past the tile"
        );
        for level in Level::available() {
            for (got, expected) in run(level).iter().zip(&expected) {
                assert!(
                    (got - expected).abs() < tolerance,
                    "{level:?}: {got} is not {expected}"
                );
            }
        }
    }

    #[test]
    fn tiles_of_floats_agree_between_levels() {
        for (width, used) in SHAPES {
            let bias = noise(4, used);
            for activation in ALL {
                for precision in [Precision::F32, Precision::Bf16] {
                    let after = (activation, precision);
                    let tile = noise(5, 5 * width);
                    assert_agree(used, 2e-6, |level, out| {
                        finish_tile(level, &tile, width, None, &bias, after, out, 40);
                    });
                }
            }
        }
    }

    #[test]
    fn tiles_of_bytes_agree_between_levels() {
        let rows: Vec<Quantised> = (0..12)
            .map(|zero| Quantised { scale: 0.001, zero })
            .collect();
        for (width, used) in SHAPES {
            let (scales, bias) = (noise(8, used), noise(9, used));
            let tile: Vec<f32> = (0..12 * width as i32)
                .map(|i| f32::from_bits((i * 7919 % 40_000 - 20_000) as u32))
                .collect();
            let sums: Vec<i32> = (0..used as i32).map(|i| i * 13 - 200).collect();
            for activation in ALL {
                for count in [1, 5, 12] {
                    let bytes = Bytes {
                        rows: &rows[..count],
                        scales: &scales,
                        sums: &sums,
                    };
                    let (tile, after) = (&tile[..count * width], (activation, Precision::Int8));
                    assert_agree(used, 2e-5, |level, out| {
                        finish_tile(level, tile, width, Some(bytes), &bias, after, out, 40);
                    });
                }
            }
        }
    }
}
