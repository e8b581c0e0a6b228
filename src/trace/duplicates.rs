//! Which trace ids occur more than once? Asked before the main pass, of one column, so that runs
//! without repeated ids (nearly all) never pay for merging.

use std::collections::HashSet;

use arrow::array::{Array, AsArray};

use super::TraceError;
use super::source::TraceSource;

/// Whether any trace id occurs more than once in a source that reads ids only.
///
/// Ids are compared by 64-bit hashes, `most` hashes in memory at a time: larger inputs are read
/// several times, each time for one slice of the hash range. Two different ids with one hash only
/// cost time: merging compares the ids themselves.
///
/// # Errors
/// [`TraceError`] if a file can't be read.
pub fn repeated_trace_ids(
    open: impl Fn() -> Result<TraceSource, TraceError>,
    most: usize,
) -> Result<bool, TraceError> {
    let mut slices = 1u64;
    let mut slice = 0;
    while slice < slices {
        let mut seen: HashSet<u64> = HashSet::new();
        let (mut repeated, mut overflow) = (false, false);
        open()?.read_shared(|batch| {
            let Some(ids) = batch.column_by_name("trace_id").map(|c| c.as_string::<i32>()) else { return false };
            for row in 0..ids.len() {
                let hash = hash(ids.value(row));
                if hash % slices == slice && !seen.insert(hash) {
                    repeated = true;
                }
            }
            overflow = seen.len() > most;
            !repeated && !overflow
        })?;
        if repeated {
            return Ok(true);
        }
        if overflow {
            // Start over in thinner slices; what was seen so far is not conclusive.
            slices *= 2;
            slice = 0;
        } else {
            slice += 1;
        }
    }
    Ok(false)
}

fn hash(id: &str) -> u64 {
    let mut first = [0u8; 8];
    first.copy_from_slice(&blake3::hash(id.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}
