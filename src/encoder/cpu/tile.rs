//! The matrix kernels: one tile of a product, once in plain Rust and once per instruction level.
//!
//! Operands are words of 32 bits: one f32, two bf16 or four bytes, neighbours along the sum. A tile's
//! sums are f32, or whole numbers of 32 bits in the place of f32 for bytes.

use super::level::Level;
use crate::Precision;

/// One tile: up to `height(level)` rows of `a` times one panel of `width(level)` columns.
///
/// `a` is packed: runs of [`RUN`] words of each row in turn, so that a kernel reads it front to back at
/// constant distances (rows that are far apart in memory would fight for the same cache lines). `panel` has
/// `words` rows of `width(level)` words. Row `r` of the sums is at `r * stride`; unless `first`, what
/// is there is added to, so that a long sum can be taken in pieces that fit the cache.
pub(super) struct Tile<'a> {
    pub a: &'a [u32],
    pub rows: usize,
    pub words: usize,
    pub panel: &'a [u32],
    pub sums: &'a mut [f32],
    pub stride: usize,
    pub first: bool,
}

/// Words of one row that lie side by side in packed rows: a cache line.
pub(super) const RUN: usize = 16;

/// Columns of a packed panel at this level.
pub(super) const fn width(level: Level) -> usize {
    match level {
        Level::Neon => 8,
        Level::Portable | Level::Avx2 => 16,
        Level::Avx512 => 32,
    }
}

/// Rows of a tile at this level, at most.
pub(super) const fn height(level: Level) -> usize {
    match level {
        Level::Portable => 4,
        Level::Avx2 => 6,
        Level::Neon | Level::Avx512 => 12,
    }
}

/// Rows and sums of the largest tile of any level.
pub(super) const MOST_ROWS: usize = height(Level::Avx512);
pub(super) const MOST_SUMS: usize = MOST_ROWS * width(Level::Avx512);

/// Computes a tile. Each sum runs over its words in ascending order, whatever the tile's height.
pub(super) fn multiply(level: Level, precision: Precision, tile: Tile<'_>) {
    let columns = width(level);
    let Tile {
        rows,
        words,
        stride,
        ..
    } = tile;
    assert!((1..=height(level)).contains(&rows), "a tile of {rows} rows");
    assert!(
        tile.a.len() >= rows * words.next_multiple_of(RUN),
        "a tile reads past its rows"
    );
    assert!(
        tile.panel.len() >= words * columns,
        "a tile reads past its panel"
    );
    assert!(
        tile.sums.len() >= (rows - 1) * stride + columns && stride >= columns,
        "a tile writes past its sums"
    );
    match level {
        Level::Portable => portable::multiply::<16>(precision, tile),
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as below.
        Level::Neon if precision == Precision::F32 => unsafe { arm::f32_neon(tile) },
        Level::Neon => portable::multiply::<8>(precision, tile),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: levels and dot instructions are only named where they were detected
        // (`Level::available`, `Level::has_dot`), and the bounds were checked above.
        Level::Avx2 => unsafe {
            match precision {
                Precision::F32 => x86::f32_avx2(tile),
                Precision::Bf16 => x86::bf16_avx2(tile),
                Precision::Int8 if level.has_dot(Precision::Int8) => x86::int8_avx_vnni(tile),
                Precision::Int8 => x86::int8_avx2(tile),
            }
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx512 => unsafe {
            match precision {
                Precision::F32 => x86::f32_avx512(tile),
                Precision::Bf16 if level.has_dot(Precision::Bf16) => x86::bf16_avx512(tile),
                Precision::Bf16 => x86::bf16_as_f32_avx512(tile),
                Precision::Int8 if level.has_dot(Precision::Int8) => x86::int8_avx512(tile),
                Precision::Int8 => x86::int8_as_i16_avx512(tile),
            }
        },
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx2 => portable::multiply::<16>(precision, tile),
        #[cfg(not(target_arch = "x86_64"))]
        Level::Avx512 => portable::multiply::<32>(precision, tile),
    }
}

/// Asks the machine to bring words into the second cache, where it has an instruction for it. Changes nothing else.
#[inline]
pub(super) fn bring_nearer(words: &[u32]) {
    #[cfg(target_arch = "x86_64")]
    for line in words.chunks(RUN) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: every x86-64 machine has the instruction; it reads nothing, and the address is that of a slice.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = words;
}

/// The lower and the upper bf16 of a word, as f32.
#[inline(always)]
fn halves(word: u32) -> [f32; 2] {
    [
        f32::from_bits(word << 16),
        f32::from_bits(word & 0xffff_0000),
    ]
}

mod portable {
    use super::{Precision, RUN, Tile, halves};

    pub(super) fn multiply<const WIDTH: usize>(precision: Precision, tile: Tile<'_>) {
        match precision {
            Precision::F32 => each_sum::<WIDTH, _>(tile, 0.0f32, |sum, a, b| {
                sum + f32::from_bits(a) * f32::from_bits(b)
            }),
            Precision::Bf16 => each_sum::<WIDTH, _>(tile, 0.0f32, |sum, a, b| {
                let ([a0, a1], [b0, b1]) = (halves(a), halves(b));
                sum + a0 * b0 + a1 * b1
            }),
            Precision::Int8 => each_sum::<WIDTH, _>(tile, Whole(0), |sum, a, b| {
                let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
                let products = (0..4).map(|i| i32::from(a[i]) * i32::from(b[i] as i8));
                Whole(sum.0 + products.sum::<i32>())
            }),
        }
    }

    /// A whole number in the place of an f32.
    #[derive(Clone, Copy)]
    struct Whole(i32);

    trait Sum: Copy {
        fn load(place: f32) -> Self;
        fn store(self) -> f32;
    }
    impl Sum for f32 {
        fn load(place: f32) -> Self {
            place
        }
        fn store(self) -> f32 {
            self
        }
    }
    impl Sum for Whole {
        fn load(place: f32) -> Self {
            Self(place.to_bits() as i32)
        }
        fn store(self) -> f32 {
            f32::from_bits(self.0 as u32)
        }
    }

    fn each_sum<const WIDTH: usize, S: Sum>(
        tile: Tile<'_>,
        zero: S,
        add: impl Fn(S, u32, u32) -> S,
    ) {
        for row in 0..tile.rows {
            let out = &mut tile.sums[row * tile.stride..][..WIDTH];
            let mut sums = [zero; WIDTH];
            if !tile.first {
                sums.iter_mut()
                    .zip(&*out)
                    .for_each(|(sum, place)| *sum = S::load(*place));
            }
            let panel = tile.panel.chunks_exact(WIDTH).take(tile.words);
            for (word, b) in panel.enumerate() {
                let a = tile.a[(word / RUN * tile.rows + row) * RUN + word % RUN];
                for column in 0..WIDTH {
                    sums[column] = add(sums[column], a, b[column]);
                }
            }
            out.iter_mut()
                .zip(sums)
                .for_each(|(place, sum)| *place = sum.store());
        }
    }
}

/// Defines a kernel: a function of a tile at one set of instructions, with the number of rows as a
/// constant inside, so that all sums stay in registers. `$add` adds the products of one word.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! kernel {
    (
        $(#[$doc:meta])*
        $name:ident, $features:literal, [$($rows:literal),*], $lanes:literal,
        $vector:ty, $zero:ident, $load:ident, $store:ident, $place:ty,
        |$sum:ident, $x:ident, $b:ident| $add:expr, $broadcast:expr, $words:ident
    ) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The machine has the instructions, and the slices reach as far as the tile's sizes say.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(tile: Tile<'_>) {
            #[target_feature(enable = $features)]
            unsafe fn rows<const ROWS: usize>(tile: Tile<'_>) {
                let (a, panel) = (tile.a.as_ptr(), tile.panel.as_ptr());
                let sums_at = tile.sums.as_mut_ptr();
                let mut sums = [[$zero(); 2]; ROWS];
                // SAFETY: rows < ROWS and words < tile.words; `multiply` checked that a, panel and
                // sums reach there.
                unsafe {
                    if !tile.first {
                        for (row, sums) in sums.iter_mut().enumerate() {
                            let place = sums_at.add(row * tile.stride);
                            sums[0] = $load(place as *const $place);
                            sums[1] = $load(place.add($lanes) as *const $place);
                        }
                    }
                    let mut from = 0;
                    while from < tile.words {
                        let run = a.add(from * ROWS);
                        for word in 0..RUN.min(tile.words - from) {
                            let b = panel.add((from + word) * 2 * $lanes);
                            let b = [
                                $words(b as *const _),
                                $words(b.add($lanes) as *const _),
                            ];
                            for (row, sums) in sums.iter_mut().enumerate() {
                                let $x = $broadcast(*run.add(row * RUN + word));
                                for ($sum, $b) in sums.iter_mut().zip(b) {
                                    *$sum = $add;
                                }
                            }
                        }
                        from += RUN;
                    }
                    for (row, sums) in sums.iter().enumerate() {
                        let place = sums_at.add(row * tile.stride);
                        $store(place as *mut $place, sums[0]);
                        $store(place.add($lanes) as *mut $place, sums[1]);
                    }
                }
            }
            match tile.rows {
                // SAFETY: the caller promised the instructions and the bounds.
                $($rows => unsafe { rows::<$rows>(tile) },)*
                _ => unreachable!("the caller checked the number of rows"),
            }
        }
    };
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    use super::{RUN, Tile};

    kernel! {
        /// f32 products.
        f32_neon, "neon", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], 4,
        float32x4_t, zeros, vld1q_f32, vst1q_f32, f32,
        |sum, x, b| vfmaq_f32(*sum, x, b), |w: u32| vdupq_n_f32(f32::from_bits(w)), vld1q_f32
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn zeros() -> float32x4_t {
        vdupq_n_f32(0.0)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{RUN, Tile};

    kernel! {
        /// f32 products.
        f32_avx512, "avx512f", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], 16,
        __m512, _mm512_setzero_ps, _mm512_loadu_ps, _mm512_storeu_ps, f32,
        |sum, x, b| _mm512_fmadd_ps(x, b, *sum), |w: u32| _mm512_set1_ps(f32::from_bits(w)), _mm512_loadu_ps
    }
    kernel! {
        /// Pairs of bf16 by `vdpbf16ps`.
        bf16_avx512, "avx512f,avx512bf16", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], 16,
        __m512, _mm512_setzero_ps, _mm512_loadu_ps, _mm512_storeu_ps, f32,
        |sum, x, b| _mm512_dpbf16_ps(*sum, pairs(x), pairs(b)), |w: u32| _mm512_set1_epi32(w as i32), _mm512_loadu_si512
    }
    kernel! {
        /// Pairs of bf16, each taken apart into two f32.
        bf16_as_f32_avx512, "avx512f", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], 16,
        __m512, _mm512_setzero_ps, _mm512_loadu_ps, _mm512_storeu_ps, f32,
        |sum, x, b| {
            let low = _mm512_fmadd_ps(low_512(x), low_512(b), *sum);
            _mm512_fmadd_ps(high_512(x), high_512(b), low)
        }, |w: u32| _mm512_set1_epi32(w as i32), _mm512_loadu_si512
    }
    kernel! {
        /// Four bytes, unsigned times signed, by `vpdpbusd`.
        int8_avx512, "avx512f,avx512vnni", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], 16,
        __m512i, _mm512_setzero_si512, _mm512_loadu_si512, _mm512_storeu_si512, __m512i,
        |sum, x, b| _mm512_dpbusd_epi32(*sum, x, b), |w: u32| _mm512_set1_epi32(w as i32), _mm512_loadu_si512
    }
    kernel! {
        /// Four bytes, unsigned times signed, as two pairs of 16 bits.
        int8_as_i16_avx512, "avx512f,avx512bw", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], 16,
        __m512i, _mm512_setzero_si512, _mm512_loadu_si512, _mm512_storeu_si512, __m512i,
        |sum, x, b| {
            let even = _mm512_and_si512(x, _mm512_set1_epi16(0xff));
            let odd = _mm512_srli_epi16::<8>(x);
            let b_even = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(b));
            let evens = _mm512_madd_epi16(even, b_even);
            let odds = _mm512_madd_epi16(odd, _mm512_srai_epi16::<8>(b));
            _mm512_add_epi32(*sum, _mm512_add_epi32(evens, odds))
        }, |w: u32| _mm512_set1_epi32(w as i32), _mm512_loadu_si512
    }
    kernel! {
        /// f32 products.
        f32_avx2, "avx2,fma", [1, 2, 3, 4, 5, 6], 8,
        __m256, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_storeu_ps, f32,
        |sum, x, b| _mm256_fmadd_ps(x, b, *sum), |w: u32| _mm256_set1_ps(f32::from_bits(w)), _mm256_loadu_ps
    }
    kernel! {
        /// Pairs of bf16, each taken apart into two f32.
        bf16_avx2, "avx2,fma", [1, 2, 3, 4, 5, 6], 8,
        __m256, _mm256_setzero_ps, _mm256_loadu_ps, _mm256_storeu_ps, f32,
        |sum, x, b| {
            let low = _mm256_fmadd_ps(low_256(x), low_256(b), *sum);
            _mm256_fmadd_ps(high_256(x), high_256(b), low)
        }, |w: u32| _mm256_set1_epi32(w as i32), _mm256_loadu_si256
    }
    kernel! {
        /// Four bytes, unsigned times signed, by `vpdpbusd` in its AVX-VNNI form.
        int8_avx_vnni, "avx2,avxvnni", [1, 2, 3, 4, 5, 6], 8,
        __m256i, _mm256_setzero_si256, _mm256_loadu_si256, _mm256_storeu_si256, __m256i,
        |sum, x, b| _mm256_dpbusd_avx_epi32(*sum, x, b), |w: u32| _mm256_set1_epi32(w as i32), _mm256_loadu_si256
    }
    kernel! {
        /// Four bytes, unsigned times signed, as two pairs of 16 bits: the one instruction for bytes
        /// that AVX2 has would cut sums off at 16 bits.
        int8_avx2, "avx2", [1, 2, 3, 4, 5, 6], 8,
        __m256i, _mm256_setzero_si256, _mm256_loadu_si256, _mm256_storeu_si256, __m256i,
        |sum, x, b| {
            let even = _mm256_and_si256(x, _mm256_set1_epi16(0xff));
            let odd = _mm256_srli_epi16::<8>(x);
            let b_even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(b));
            let evens = _mm256_madd_epi16(even, b_even);
            let odds = _mm256_madd_epi16(odd, _mm256_srai_epi16::<8>(b));
            _mm256_add_epi32(*sum, _mm256_add_epi32(evens, odds))
        }, |w: u32| _mm256_set1_epi32(w as i32), _mm256_loadu_si256
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn pairs(words: __m512i) -> __m512bh {
        // SAFETY: both are 64 bytes without invalid values.
        unsafe { std::mem::transmute(words) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn low_512(words: __m512i) -> __m512 {
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn high_512(words: __m512i) -> __m512 {
        _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-65536)))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn low_256(words: __m256i) -> __m256 {
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn high_256(words: __m256i) -> __m256 {
        _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(-65536)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::words::{per_word, words_of};
    use super::*;

    const ALL: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::Int8];

    fn noise(seed: u64, count: usize) -> Vec<u32> {
        let mut state = seed | 1;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        (0..count).map(|_| next()).collect()
    }

    /// Words whose elements are in [-1, 1), or any bytes.
    fn words(precision: Precision, seed: u64, count: usize) -> Vec<u32> {
        let unit = |bits: u32| (bits >> 8) as f32 / (1u32 << 23) as f32 - 1.0;
        noise(seed, count)
            .into_iter()
            .map(|bits| match precision {
                Precision::F32 => unit(bits).to_bits(),
                // Two numbers of 8 significant bits each.
                Precision::Bf16 => {
                    let half = |bits: u32| unit(bits).to_bits() & 0xffff_0000;
                    half(bits) | half(bits.rotate_left(13)) >> 16
                }
                Precision::Int8 => bits,
            })
            .collect()
    }

    fn elements(precision: Precision, word: u32, signed: bool) -> Vec<f64> {
        match precision {
            Precision::F32 => vec![f64::from(f32::from_bits(word))],
            Precision::Bf16 => halves(word).map(f64::from).to_vec(),
            Precision::Int8 => word
                .to_le_bytes()
                .map(|b| {
                    if signed {
                        f64::from(b as i8)
                    } else {
                        f64::from(b)
                    }
                })
                .to_vec(),
        }
    }

    fn value(precision: Precision, sum: f32) -> f64 {
        match precision {
            Precision::Int8 => f64::from(sum.to_bits() as i32),
            _ => f64::from(sum),
        }
    }

    /// Every level against f64, each row alone against all rows, and in pieces against at once.
    #[test]
    fn every_level_multiplies_like_f64_and_rows_do_not_depend_on_each_other() {
        for (level, precision) in Level::available()
            .into_iter()
            .flat_map(|level| ALL.map(|precision| (level, precision)))
        {
            let (columns, rows) = (width(level), height(level));
            for depth in [1, 7, 32, 384] {
                let words_of_row = words_of(precision, depth);
                let a = words(precision, 1, rows * words_of_row.next_multiple_of(RUN));
                let row_of = |row: usize| -> Vec<u32> {
                    let runs = a.chunks(RUN).skip(row).step_by(rows);
                    runs.flatten().copied().collect()
                };
                let panel = words(precision, 2, words_of_row * columns);
                let run =
                    |a: &[u32], rows: usize, range: std::ops::Range<usize>, sums: &mut [f32]| {
                        let tile = Tile {
                            a: &a[range.start * rows..],
                            rows,
                            words: range.len(),
                            panel: &panel[range.start * columns..],
                            sums,
                            stride: columns,
                            first: range.start == 0,
                        };
                        multiply(level, precision, tile);
                    };
                let mut all = vec![f32::NAN; rows * columns];
                run(&a, rows, 0..words_of_row, &mut all);
                let mut pieces = vec![f32::NAN; rows * columns];
                if words_of_row > RUN {
                    run(&a, rows, 0..RUN, &mut pieces);
                    run(&a, rows, RUN..words_of_row, &mut pieces);
                    let bits = |sums: &[f32]| sums.iter().map(|s| s.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&pieces), bits(&all), "{level:?} {precision:?}: pieces");
                }
                for row in 0..rows {
                    let mut alone = vec![f32::NAN; columns];
                    let own = row_of(row);
                    run(&own, 1, 0..words_of_row, &mut alone);
                    for (column, got) in alone.iter().enumerate() {
                        assert_eq!(
                            got.to_bits(),
                            all[row * columns + column].to_bits(),
                            "{level:?} {precision:?}: a row depends on its neighbours"
                        );
                        let exact: f64 = (0..words_of_row)
                            .flat_map(|w| {
                                let x = elements(precision, own[w], false);
                                let y = elements(precision, panel[w * columns + column], true);
                                x.into_iter().zip(y).map(|(x, y)| x * y).collect::<Vec<_>>()
                            })
                            .sum();
                        assert!(
                            (value(precision, *got) - exact).abs() < 1e-4,
                            "{level:?} {precision:?}: {got} is not {exact}"
                        );
                    }
                }
            }
        }
        assert_eq!(ALL.map(per_word), [1, 2, 4]);
    }
}
