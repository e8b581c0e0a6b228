//! Which trace ids occur more than once? Known before the main pass, so that runs without repeated ids (nearly all)
//! never pay for merging.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::TraceError;

/// Trace ids that occur more than once.
#[derive(Debug, Default)]
pub(super) struct RepeatedIds(HashSet<u64>);

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

/// Finds ids that repeat, in whatever order they come.
///
/// Ids are compared by 64-bit hashes, at most `most` different ones in memory at a time, and beside them those that
/// repeat. Of more ids the hashes go to a file, which is then looked at in slices. Equal ids count once, so that slices
/// can always be made thin enough. Two different ids with one hash only cost time: merging compares the ids themselves.
#[derive(Debug)]
pub(super) struct Repeats {
    most: usize,
    folder: PathBuf,
    seen: HashSet<u64>,
    repeated: HashSet<u64>,
    /// All hashes since there were too many, and one of each before.
    beyond: Option<BufWriter<File>>,
}

impl Repeats {
    pub fn new(most: usize, folder: &Path) -> Self {
        Self {
            most: most.max(1),
            folder: folder.to_owned(),
            seen: HashSet::new(),
            repeated: HashSet::new(),
            beyond: None,
        }
    }

    /// Whether an id is known to repeat.
    pub fn any(&self) -> bool {
        !self.repeated.is_empty()
    }

    pub fn push(&mut self, trace_id: &str) -> Result<(), TraceError> {
        self.push_hash(hash(trace_id)).map_err(|e| self.failed(&e))
    }

    fn push_hash(&mut self, hash: u64) -> std::io::Result<()> {
        if let Some(file) = &mut self.beyond {
            return file.write_all(&hash.to_le_bytes());
        }
        if !self.seen.insert(hash) {
            self.repeated.insert(hash);
        }
        if self.seen.len() > self.most {
            let mut file = BufWriter::new(tempfile::tempfile_in(&self.folder)?);
            for hash in self.seen.drain() {
                file.write_all(&hash.to_le_bytes())?;
            }
            self.beyond = Some(file);
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<RepeatedIds, TraceError> {
        self.slices().map_err(|e| self.failed(&e))?;
        Ok(RepeatedIds(self.repeated))
    }

    fn slices(&mut self) -> std::io::Result<()> {
        let Some(file) = self.beyond.take() else {
            return Ok(());
        };
        let mut file = file
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)?;
        let (mut slices, mut slice) = (2u64, 0);
        while slice < slices {
            self.seen.clear();
            file.rewind()?;
            let mut hashes = BufReader::with_capacity(1 << 18, &file);
            let mut bytes = [0; 8];
            let full = loop {
                if self.seen.len() > self.most {
                    break true;
                }
                match hashes.read_exact(&mut bytes) {
                    Ok(()) => {}
                    Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => break false,
                    Err(e) => return Err(e),
                }
                let hash = u64::from_le_bytes(bytes);
                if hash % slices == slice && !self.seen.insert(hash) {
                    self.repeated.insert(hash);
                }
            };
            // What repeats stays known; the rest is looked at again in thinner slices.
            (slices, slice) = match full {
                true => (slices * 2, 0),
                false => (slices, slice + 1),
            };
        }
        Ok(())
    }

    fn failed(&self, error: &std::io::Error) -> TraceError {
        TraceError::Kept {
            folder: self.folder.clone(),
            problem: format!("trace ids can't be kept there: {error}"),
        }
    }
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
        let mut repeats = Repeats::new(most, &std::env::temp_dir());
        for hash in hashes {
            repeats.push_hash(*hash).unwrap();
        }
        repeats.finish().unwrap().0
    }

    #[test]
    fn any_number_of_rows_of_one_id_fits_into_one_place() {
        let mut repeats = Repeats::new(1, Path::new("/nowhere"));
        for _ in 0..100_000 {
            repeats.push("a").unwrap();
        }
        assert!(repeats.any());
        let repeated = repeats.finish().unwrap();
        assert!(repeated.hold("a") && !repeated.hold("b"));
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
