//! Which trace ids occur more than once? Asked before the main pass, of one column, so that runs
//! without repeated ids (nearly all) never pay for merging.

use arrow::array::AsArray;

use super::TraceError;
use super::source::TraceSource;

/// Whether any trace id occurs more than once in a source that reads ids only.
///
/// Ids are compared by 64-bit hashes, about `most` hashes in memory at a time: larger inputs are read
/// several times, each time for one slice of the hashes. Two different ids with one hash only cost
/// time: merging compares the ids themselves.
///
/// # Errors
/// [`TraceError`] if a file can't be read.
pub fn repeated_trace_ids(
    open: impl Fn() -> Result<TraceSource, TraceError>,
    most: usize,
) -> Result<bool, TraceError> {
    let mut slices = match open()?.rows_expected() {
        Some(rows) => rows.div_ceil(most.max(1) as u64).max(1),
        None => 1,
    };
    let mut slice = 0;
    while slice < slices {
        let mut hashes: Vec<u64> = Vec::new();
        open()?.read_shared(|batch| {
            let Some(ids) = batch
                .column_by_name("trace_id")
                .map(|c| c.as_string::<i32>())
            else {
                return false;
            };
            hashes.extend(
                ids.iter()
                    .flatten()
                    .map(hash)
                    .filter(|hash| hash % slices == slice),
            );
            hashes.len() <= most.saturating_mul(2)
        })?;
        if hashes.len() > most.saturating_mul(2) {
            // A JSON Lines file did not say how long it is: start over in thinner slices.
            slices *= 2;
            slice = 0;
            continue;
        }
        hashes.sort_unstable();
        if hashes.windows(2).any(|pair| pair[0] == pair[1]) {
            return Ok(true);
        }
        slice += 1;
    }
    Ok(false)
}

fn hash(id: &str) -> u64 {
    let mut first = [0u8; 8];
    first.copy_from_slice(&blake3::hash(id.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}
