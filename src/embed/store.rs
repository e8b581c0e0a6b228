//! Vectors and word sets of a run's distinct texts, on disk.
//!
//! Rows carry a [`TextRef`] instead of text or vector, so that sorting and shuffling moves 8 bytes.
//! The file is anonymous: it vanishes with the process, also after a kill.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::EmbedError;
use crate::metric::{NonFinite, distance};
use crate::text::WordSet;

/// Where a text's vector and words are. The empty text has no vector and is [`TextRef::EMPTY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextRef(u64);

impl TextRef {
    /// The empty text.
    pub const EMPTY: Self = Self(0);

    /// As it travels in a column.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// From a column of this process. A number of another one is an error only where it points behind the vectors or at a
    /// record of another length: it must not get here.
    pub fn from_u64(value: u64) -> Self {
        Self(value)
    }

    /// Whether this is the empty text.
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }
}

/// One text's vector and words, in buffers that are reused from record to record.
#[derive(Clone, Debug, Default)]
pub struct TextRecord {
    /// The embedding.
    pub vector: Vec<f32>,
    /// Its squared length.
    pub norm_squared: f64,
    /// Sorted hashes of the text's words.
    pub words: Vec<u64>,
    /// Where it was read.
    pub place: Option<TextRef>,
    pub(super) bytes: Vec<u8>,
}

impl TextRecord {
    /// The cosine distance to another text of the same model, see [`distance`].
    ///
    /// # Errors
    /// [`NonFinite`] if an embedding is not finite.
    pub fn distance(&self, other: &Self) -> Result<f64, NonFinite> {
        let norms = (self.norm_squared, other.norm_squared);
        distance(&self.vector, &other.vector, norms)
    }

    /// The same, to be kept: without the buffer that it was read into.
    pub(super) fn without_bytes(&self) -> Self {
        Self {
            vector: self.vector.clone(),
            norm_squared: self.norm_squared,
            words: self.words.clone(),
            place: self.place,
            bytes: Vec::new(),
        }
    }

    /// About how many bytes a kept record takes, with its entry in a table.
    pub(super) fn memory(&self) -> usize {
        2 * size_of::<Self>() + size_of_val(&*self.vector) + size_of_val(&*self.words)
    }
}

/// A record is: squared length (f64), number of words (u64), vector, words; padded to 16 bytes. Where texts are kept, the
/// text comes after the words, and its length (u32) in the last bytes.
const HEAD: usize = 16;
const UNIT: usize = 16;
const TEXT_LENGTH: usize = 4;
const LENGTH_BITS: u32 = 24;

#[derive(Debug)]
pub(super) struct VectorStore {
    file: File,
    folder: String,
    dim: usize,
    /// Whether texts are kept beside their vectors.
    texts: bool,
    /// Units given out so far. The first one is never used: it would read as the empty text.
    end: AtomicU64,
}

impl VectorStore {
    /// A store of vectors of this length, and of the texts themselves if they are wanted.
    pub(super) fn create(folder: &Path, dim: usize, texts: bool) -> Result<Self, EmbedError> {
        let name = folder.display().to_string();
        let file = tempfile::tempfile_in(folder).map_err(|e| EmbedError::Store {
            folder: name.clone(),
            problem: e.to_string(),
        })?;
        Ok(Self {
            file,
            folder: name,
            dim,
            texts,
            end: AtomicU64::new(1),
        })
    }

    fn failed(&self, problem: impl ToString) -> EmbedError {
        EmbedError::Store {
            folder: self.folder.clone(),
            problem: problem.to_string(),
        }
    }

    pub(super) fn dim(&self) -> usize {
        self.dim
    }

    /// Bytes of a record before its text.
    fn bytes(&self, words: &WordSet) -> usize {
        HEAD + self.dim * 4 + words.hashes().len() * 8
    }

    /// A place for a text's vector and words. The text is there at once, where texts are kept.
    pub(super) fn reserve(&self, words: &WordSet, text: &str) -> Result<TextRef, EmbedError> {
        let kept = match self.texts {
            true => text.len() + TEXT_LENGTH,
            false => 0,
        };
        let start = self.bytes(words);
        let units = (start + kept).div_ceil(UNIT) as u64;
        let unit = self.end.fetch_add(units, Ordering::Relaxed);
        if units >= 1 << LENGTH_BITS || unit >= 1 << (64 - LENGTH_BITS) {
            return Err(self.failed("a text has too many words, or the file is full"));
        }
        if self.texts {
            let length = u32::try_from(text.len()).map_err(|e| self.failed(e))?;
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(units as usize * UNIT - start - TEXT_LENGTH, 0);
            bytes.extend(length.to_le_bytes());
            self.file
                .write_all_at(&bytes, unit * UNIT as u64 + start as u64)
                .map_err(|e| self.failed(e))?;
        }
        Ok(TextRef(unit << LENGTH_BITS | units))
    }

    /// Fills the place that was reserved for these words.
    pub(super) fn write(
        &self,
        place: TextRef,
        vector: &[f32],
        words: &WordSet,
    ) -> Result<(), EmbedError> {
        let mut bytes = Vec::with_capacity(self.bytes(words) + UNIT);
        bytes.extend(crate::metric::norm_squared(vector).to_le_bytes());
        bytes.extend((words.hashes().len() as u64).to_le_bytes());
        vector.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
        words
            .hashes()
            .iter()
            .for_each(|word| bytes.extend(word.to_le_bytes()));
        if !self.texts {
            bytes.resize(bytes.len().next_multiple_of(UNIT), 0);
        }
        self.file
            .write_all_at(&bytes, (place.0 >> LENGTH_BITS) * UNIT as u64)
            .map_err(|e| self.failed(e))
    }

    /// Reads the bytes of a record.
    fn load(&self, text: TextRef, bytes: &mut Vec<u8>) -> Result<(), EmbedError> {
        let offset = (text.0 >> LENGTH_BITS) * UNIT as u64;
        bytes.resize((text.0 & ((1 << LENGTH_BITS) - 1)) as usize * UNIT, 0);
        self.file
            .read_exact_at(bytes, offset)
            .map_err(|e| self.failed(e))
    }

    /// Reads a text's record into `record`. The empty text is not in the store.
    pub(super) fn read(&self, text: TextRef, record: &mut TextRecord) -> Result<(), EmbedError> {
        record.place = Some(text);
        self.load(text, &mut record.bytes)?;
        let malformed = || self.failed("a reference does not belong to this run");
        let (head, rest) = record.bytes.split_at_checked(HEAD).ok_or_else(malformed)?;
        let (vector, words) = rest.split_at_checked(self.dim * 4).ok_or_else(malformed)?;
        let (head, _) = head.as_chunks::<8>();
        record.norm_squared = f64::from_le_bytes(head[0]);
        let count = u64::from_le_bytes(head[1]) as usize;
        record.vector.clear();
        record.vector.extend(
            vector
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b)),
        );
        let (words, _) = words.as_chunks::<8>();
        record.words.clear();
        record.words.extend(
            words
                .get(..count)
                .ok_or_else(malformed)?
                .iter()
                .map(|b| u64::from_le_bytes(*b)),
        );
        Ok(())
    }

    /// A text that was kept.
    pub(super) fn text(&self, text: TextRef) -> Result<String, EmbedError> {
        let mut bytes = Vec::new();
        self.load(text, &mut bytes)?;
        let malformed = || self.failed("a reference does not belong to this run");
        let (_, words) = bytes[..HEAD.min(bytes.len())]
            .split_last_chunk::<8>()
            .ok_or_else(malformed)?;
        let (rest, length) = bytes
            .split_last_chunk::<TEXT_LENGTH>()
            .ok_or_else(malformed)?;
        let start = HEAD + self.dim * 4 + u64::from_le_bytes(*words) as usize * 8;
        let end = start.saturating_add(u32::from_le_bytes(*length) as usize);
        let text = rest.get(start..end).ok_or_else(malformed)?;
        String::from_utf8(text.to_vec()).map_err(|_| malformed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_went_in_and_foreign_references_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let store = VectorStore::create(folder.path(), 3, false).unwrap();
        let words = [WordSet::of("red green blue"), WordSet::of("")];
        let places = words.each_ref().map(|w| store.reserve(w, "").unwrap());
        // In any order.
        store.write(places[1], &[0.0, 0.5, 0.0], &words[1]).unwrap();
        store.write(places[0], &[1.0, 2.0, 2.0], &words[0]).unwrap();
        let mut record = TextRecord::default();
        store.read(places[0], &mut record).unwrap();
        assert_eq!(
            (record.vector.as_slice(), record.norm_squared),
            ([1.0, 2.0, 2.0].as_slice(), 9.0)
        );
        assert_eq!(record.words, words[0].hashes());
        store.read(places[1], &mut record).unwrap();
        assert_eq!(
            (record.vector.as_slice(), record.words.len()),
            ([0.0, 0.5, 0.0].as_slice(), 0)
        );
        let keeping = VectorStore::create(folder.path(), 3, true).unwrap();
        let texts = ["red green blue", "", "grün\0"];
        let words = texts.map(WordSet::of);
        let places: Vec<TextRef> = words
            .iter()
            .zip(texts)
            .map(|(words, text)| keeping.reserve(words, text).unwrap())
            .collect();
        for (place, words) in places.iter().zip(&words) {
            keeping.write(*place, &[1.0, 2.0, 2.0], words).unwrap();
        }
        for (at, text) in texts.into_iter().enumerate() {
            assert_eq!(keeping.text(places[at]).unwrap(), text);
            keeping.read(places[at], &mut record).unwrap();
            assert_eq!(record.words, words[at].hashes());
            assert_eq!(record.vector, [1.0, 2.0, 2.0]);
        }
        assert!(store.text(TextRef(u64::MAX)).is_err());
        for wrong in [1, 1 << 24 | 1, u64::MAX] {
            assert!(
                store.read(TextRef(wrong), &mut record).is_err(),
                "{wrong} was read"
            );
        }
    }
}
