//! What the instructions allow: dot products on registers alone, without a load. A bench compares the
//! encoder with it.

use std::time::Instant;

use super::level::Level;
use crate::Precision;

/// Multiplications and additions a second of one thread that does nothing else, for about `seconds`; none
/// where the level has no instruction for the precision, or where this program has no loop for it.
pub fn ceiling(level: Level, precision: Precision, seconds: f64) -> Option<f64> {
    const ROUNDS: u64 = 20_000;
    let run = kernel(level, precision)?;
    let started = Instant::now();
    let mut rounds = 0;
    while started.elapsed().as_secs_f64() < seconds {
        std::hint::black_box(run(ROUNDS));
        rounds += ROUNDS;
    }
    let lanes = match level {
        Level::Portable | Level::Neon => return None,
        Level::Avx2 => 8,
        Level::Avx512 => 16,
    };
    let per_lane = match precision {
        Precision::F32 => 2,
        Precision::Bf16 => 4,
        Precision::Int8 => 8,
    };
    let operations = (rounds * SUMS as u64 * lanes * per_lane) as f64;
    Some(operations / started.elapsed().as_secs_f64())
}

/// Independent sums: enough to hide the latency of one instruction behind the others.
const SUMS: usize = 12;

#[cfg(not(target_arch = "x86_64"))]
fn kernel(_: Level, _: Precision) -> Option<fn(u64) -> f32> {
    None
}

#[cfg(target_arch = "x86_64")]
fn kernel(level: Level, precision: Precision) -> Option<fn(u64) -> f32> {
    use std::arch::x86_64::*;

    /// A loop of `SUMS` instructions on registers.
    macro_rules! registers {
        ($features:literal, $zero:ident, $one:expr, |$sum:ident, $x:ident| $add:expr, $first:expr) => {{
            #[target_feature(enable = $features)]
            fn run(rounds: u64) -> f32 {
                let $x = std::hint::black_box($one);
                let mut sums = [$zero(); SUMS];
                for _ in 0..rounds {
                    for $sum in &mut sums {
                        *$sum = $add;
                    }
                    // Keeps the compiler from doing the rounds in its head.
                    std::hint::black_box(&$x);
                }
                let mut all = 0.0;
                for sum in sums {
                    all += $first(sum);
                }
                all
            }
            // SAFETY: `has_dot` and `Level::available` say that the instructions are there.
            Some(|rounds| unsafe { run(rounds) })
        }};
    }
    if !level.has_dot(precision) || !Level::available().contains(&level) {
        return None;
    }
    match (level, precision) {
        (Level::Avx512, Precision::F32) => registers!(
            "avx512f",
            _mm512_setzero_ps,
            _mm512_set1_ps(1e-3),
            |sum, x| _mm512_fmadd_ps(x, x, *sum),
            |sum| _mm512_cvtss_f32(sum)
        ),
        (Level::Avx512, Precision::Bf16) => registers!(
            "avx512f,avx512bf16",
            _mm512_setzero_ps,
            _mm512_set1_ps(1e-3),
            |sum, x| {
                // SAFETY: both are 64 bytes without invalid values.
                let x: __m512bh = unsafe { std::mem::transmute(x) };
                _mm512_dpbf16_ps(*sum, x, x)
            },
            |sum| _mm512_cvtss_f32(sum)
        ),
        (Level::Avx512, Precision::Int8) => registers!(
            "avx512f,avx512vnni",
            _mm512_setzero_si512,
            _mm512_set1_epi8(1),
            |sum, x| _mm512_dpbusd_epi32(*sum, x, x),
            |sum| _mm512_cvtsi512_si32(sum) as f32
        ),
        (Level::Avx2, Precision::F32) => registers!(
            "avx2,fma",
            _mm256_setzero_ps,
            _mm256_set1_ps(1e-3),
            |sum, x| _mm256_fmadd_ps(x, x, *sum),
            |sum| _mm256_cvtss_f32(sum)
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_an_instruction_has_a_ceiling() {
        for level in Level::available() {
            let f32 = ceiling(level, Precision::F32, 0.001);
            let has_loop = !matches!(level, Level::Portable | Level::Neon);
            assert_eq!(f32.is_some(), has_loop, "{level:?}");
            assert!(f32.is_none_or(|f| f.is_finite() && f > 1e6), "{f32:?}");
        }
    }
}
