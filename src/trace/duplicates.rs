//! Which trace ids occur more than once? Asked before the main pass, of one column, so that runs
//! without repeated ids (nearly all) never pay for merging.

use std::collections::HashSet;

use arrow::array::AsArray;

use super::TraceError;
use super::source::TraceSource;

/// Trace ids that occur more than once.
#[derive(Debug, Default)]
pub struct RepeatedIds(HashSet<u64>);

impl RepeatedIds {
    /// Whether no id repeats.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an id occurs more than once. In very rare cases true of one that does not: two ids with one hash.
    pub fn hold(&self, trace_id: &str) -> bool {
        !self.0.is_empty() && self.0.contains(&hash(trace_id))
    }
}

/// The trace ids that occur more than once in a source that reads ids only.
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
) -> Result<RepeatedIds, TraceError> {
    let mut slices = match open()?.rows_expected() {
        Some(rows) => rows.div_ceil(most.max(1) as u64).max(1),
        None => 1,
    };
    let mut slice = 0;
    let mut repeated = HashSet::new();
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
            repeated.clear();
            continue;
        }
        hashes.sort_unstable();
        let pairs = hashes.iter().zip(hashes.iter().skip(1));
        repeated.extend(pairs.filter(|(a, b)| a == b).map(|(a, _)| *a));
        slice += 1;
    }
    Ok(RepeatedIds(repeated))
}

fn hash(id: &str) -> u64 {
    let mut first = [0u8; 8];
    first.copy_from_slice(&blake3::hash(id.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}
