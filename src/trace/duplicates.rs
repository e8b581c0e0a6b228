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

/// What is asked of ids that repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// Whether there is any: the first one is enough.
    Any,
    /// Which they are: they are held in memory, about 16 bytes each.
    Each,
}

/// The trace ids that occur more than once in a source that reads ids only; where [`Repeats::Any`] is asked, one of them.
///
/// Ids are compared by 64-bit hashes, at most `most` different ones in memory at a time, and beside them those that
/// repeat: larger inputs are read several times, each time for one slice of the hashes. Equal ids count once, so that
/// slices can always be made thin enough. Two different ids with one hash only cost time: merging compares the ids
/// themselves.
///
/// # Errors
/// [`TraceError`] if a file can't be read.
pub fn repeated_trace_ids(
    open: impl Fn() -> Result<TraceSource, TraceError>,
    most: usize,
    asked: Repeats,
) -> Result<RepeatedIds, TraceError> {
    repeated_hashes(most, asked, |each| {
        open()?.read_shared(|batch| {
            let ids = batch.column_by_name("trace_id");
            let Some(ids) = ids.map(|c| c.as_string::<i32>()) else {
                return false;
            };
            ids.iter().flatten().all(|id| each(hash(id)))
        })
    })
    .map(RepeatedIds)
}

/// The hashes that come more than once. `read` shows all of them, as often as it is called, until it is told to stop.
fn repeated_hashes<E>(
    most: usize,
    asked: Repeats,
    read: impl Fn(&mut dyn FnMut(u64) -> bool) -> Result<(), E>,
) -> Result<HashSet<u64>, E> {
    let most = most.max(1);
    let (mut slices, mut slice) = (1u64, 0);
    let mut repeated = HashSet::new();
    let mut seen: HashSet<u64> = HashSet::new();
    while slice < slices {
        seen.clear();
        let mut full = false;
        read(&mut |hash| {
            if hash % slices == slice && !seen.insert(hash) {
                repeated.insert(hash);
            }
            full = seen.len() > most;
            !full && (asked == Repeats::Each || repeated.is_empty())
        })?;
        if asked == Repeats::Any && !repeated.is_empty() {
            break;
        }
        // What repeats stays known; the rest is looked at again in thinner slices.
        (slices, slice) = match full {
            true => (slices * 2, 0),
            false => (slices, slice + 1),
        };
    }
    Ok(repeated)
}

fn hash(id: &str) -> u64 {
    let mut first = [0u8; 8];
    first.copy_from_slice(&blake3::hash(id.as_bytes()).as_bytes()[..8]);
    u64::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn repeated(hashes: &[u64], most: usize) -> HashSet<u64> {
        let read = |each: &mut dyn FnMut(u64) -> bool| {
            let _ = hashes.iter().all(|hash| each(*hash));
            Ok::<(), ()>(())
        };
        repeated_hashes(most, Repeats::Each, read).unwrap()
    }

    #[test]
    fn any_number_of_rows_of_one_id_fits_into_one_place() {
        let passes = std::cell::Cell::new(0);
        let read = |each: &mut dyn FnMut(u64) -> bool| {
            passes.set(passes.get() + 1);
            let _ = (0..100_000).all(|_| each(7));
            Ok::<(), ()>(())
        };
        assert_eq!(
            repeated_hashes(1, Repeats::Each, read).unwrap(),
            HashSet::from([7])
        );
        assert_eq!(passes.get(), 1);
        // Where one is enough, the second row is the last that is looked at.
        let looked = std::cell::Cell::new(0);
        let read = |each: &mut dyn FnMut(u64) -> bool| {
            let _ = (0..100_000u64).all(|row| {
                looked.set(looked.get() + 1);
                each(row / 2)
            });
            Ok::<(), ()>(())
        };
        assert_eq!(repeated_hashes(10, Repeats::Any, read).unwrap().len(), 1);
        assert_eq!(looked.get(), 2);
    }

    proptest! {
        #[test]
        fn exactly_the_ids_that_repeat_are_found(
            hashes in prop::collection::vec(0u64..300, 0..400),
            most in 1usize..50,
        ) {
            let mut counts: HashMap<u64, usize> = HashMap::new();
            for hash in &hashes {
                *counts.entry(*hash).or_default() += 1;
            }
            let more = counts.into_iter().filter(|(_, count)| *count > 1);
            let expected: HashSet<u64> = more.map(|(hash, _)| hash).collect();
            prop_assert_eq!(repeated(&hashes, most), expected);
        }
    }
}
