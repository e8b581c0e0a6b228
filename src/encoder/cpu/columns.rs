//! Rows of words as columns of a panel.

use super::level::Level;
use super::tile::RUN;

/// Rows that become columns at a time.
pub(super) const COLUMNS: usize = 16;

/// Writes up to [`COLUMNS`] runs of words as columns: word `w` of run `c` goes to `panel[w * width + c]`, for every `w` below
/// [`RUN`] whose place is there.
pub(super) fn columns_of_runs(level: Level, runs: &[[u32; RUN]], panel: &mut [u32], width: usize) {
    assert!(
        runs.len() <= width.min(COLUMNS),
        "runs do not fit side by side"
    );
    #[cfg(target_arch = "x86_64")]
    if let (Level::Avx512, Ok(runs)) = (level, runs.try_into()) {
        // SAFETY: the level is only constructed where the instructions were detected.
        let columns = unsafe { x86::transposed(runs) };
        for (row, column) in panel.chunks_mut(width).zip(&columns) {
            // The last row may end right behind its columns.
            row[..COLUMNS].copy_from_slice(column);
        }
        return;
    }
    let _ = level;
    for (word, row) in panel.chunks_mut(width).enumerate().take(RUN) {
        for (place, run) in row.iter_mut().zip(runs) {
            *place = run[word];
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{COLUMNS, RUN};

    /// Rows and columns exchanged: pairs, then fours, then lanes of four are interleaved.
    ///
    /// # Safety
    /// The machine has the instructions.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn transposed(runs: &[[u32; RUN]; COLUMNS]) -> [[u32; COLUMNS]; RUN] {
        // SAFETY: a run is 64 bytes.
        let rows = runs.map(|run| unsafe { _mm512_loadu_si512(run.as_ptr() as *const _) });
        let mut fours = [_mm512_setzero_si512(); COLUMNS];
        for (four, rows) in fours.chunks_exact_mut(4).zip(rows.chunks_exact(4)) {
            let low = _mm512_unpacklo_epi32(rows[0], rows[1]);
            let high = _mm512_unpackhi_epi32(rows[0], rows[1]);
            let next_low = _mm512_unpacklo_epi32(rows[2], rows[3]);
            let next_high = _mm512_unpackhi_epi32(rows[2], rows[3]);
            four[0] = _mm512_unpacklo_epi64(low, next_low);
            four[1] = _mm512_unpackhi_epi64(low, next_low);
            four[2] = _mm512_unpacklo_epi64(high, next_high);
            four[3] = _mm512_unpackhi_epi64(high, next_high);
        }
        let mut columns = [[0; COLUMNS]; RUN];
        for word in 0..4 {
            let [a, b, c, d] = [0, 4, 8, 12].map(|rows| fours[rows + word]);
            let (even, next_even) = (
                _mm512_shuffle_i32x4::<0x88>(a, b),
                _mm512_shuffle_i32x4::<0x88>(c, d),
            );
            let (odd, next_odd) = (
                _mm512_shuffle_i32x4::<0xdd>(a, b),
                _mm512_shuffle_i32x4::<0xdd>(c, d),
            );
            let of_lane = [
                _mm512_shuffle_i32x4::<0x88>(even, next_even),
                _mm512_shuffle_i32x4::<0x88>(odd, next_odd),
                _mm512_shuffle_i32x4::<0xdd>(even, next_even),
                _mm512_shuffle_i32x4::<0xdd>(odd, next_odd),
            ];
            for (lane, column) in of_lane.into_iter().enumerate() {
                let place = columns[4 * lane + word].as_mut_ptr();
                // SAFETY: a column is 64 bytes.
                unsafe { _mm512_storeu_si512(place as *mut _, column) };
            }
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_exchanges_rows_and_columns_and_leaves_the_rest_alone() {
        let runs: [[u32; RUN]; COLUMNS] =
            std::array::from_fn(|c| std::array::from_fn(|w| (100 * c + w) as u32));
        for level in Level::available() {
            for (words, width) in [(16, 32), (16, 16), (7, 32), (1, 16)] {
                // The last row may be cut off behind its columns.
                let mut panel = vec![9999; (words - 1) * width + COLUMNS];
                columns_of_runs(level, &runs, &mut panel, width);
                for (at, got) in panel.iter().enumerate() {
                    let (word, column) = (at / width, at % width);
                    let expected = if column < COLUMNS {
                        (100 * column + word) as u32
                    } else {
                        9999
                    };
                    assert_eq!(*got, expected, "{level:?} {words} {width}");
                }
            }
        }
    }
}
