//! One file of the cache: records one after the other, then an index of them.
//!
//! ```text
//! header   magic (16 bytes), fingerprint of the key (16), bytes of a vector (8)
//! records  text id (16), vector, check (8)
//! index    for each sound record: first 8 bytes of its id (8), row (4)
//! footer   entries (8), check of the index (8), magic (8)
//! ```
//!
//! While it is written a file has no index; if its writer dies, [`Segment::recover`] makes it from the
//! records. Checks are BLAKE3, cut to 8 bytes. Numbers are little-endian.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::text::TextId;

/// Identifies what made the vectors: never mix those of two models, precisions or devices.
pub(super) type Fingerprint = [u8; 16];

const MAGIC: &[u8; 16] = b"nightmill-vec-01";
const END: &[u8; 8] = b"nm-index";
const HEADER: usize = 40;
const FOOTER: usize = 24;
const ENTRY: usize = 12;
const ID: usize = 16;
const CHECK: usize = 8;

/// Where a text's record is, by the first 8 bytes of its id.
pub(super) type Entry = (u64, u32);

/// Sizes and identity that all segments of one folder share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub fingerprint: Fingerprint,
    /// Bytes of a vector.
    pub vector: usize,
}

fn cut<const N: usize>(hash: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&hash[..N]);
    out
}

fn check_of(parts: &[&[u8]]) -> [u8; CHECK] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    cut(hasher.finalize().as_bytes())
}

/// The part of an id that indexes hold.
pub(super) fn prefix(id: TextId) -> u64 {
    u64::from_le_bytes(cut(&id.bytes()))
}

impl Layout {
    pub fn record(&self) -> usize {
        ID + self.vector + CHECK
    }

    fn header(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..16].copy_from_slice(MAGIC);
        header[16..32].copy_from_slice(&self.fingerprint);
        header[32..].copy_from_slice(&(self.vector as u64).to_le_bytes());
        header
    }

    fn check(&self, id_and_vector: &[u8]) -> [u8; CHECK] {
        check_of(&[&self.fingerprint, id_and_vector])
    }

    fn is_sound(&self, record: &[u8]) -> bool {
        let (content, check) = record.split_at(record.len() - CHECK);
        self.check(content) == check
    }
}

/// A segment that is complete.
#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    path: PathBuf,
    layout: Layout,
}

impl Segment {
    /// Opens a segment and reads its index. `None` if the file is not a segment of this layout; one without
    /// a sound index is mended first.
    pub fn open(path: &Path, layout: Layout) -> io::Result<Option<(Self, Vec<Entry>)>> {
        let file = File::open(path)?;
        if !has_header(&file, layout)? {
            return Ok(None);
        }
        let segment = |file| Self {
            file,
            path: path.to_owned(),
            layout,
        };
        match read_index(&file, layout)? {
            Some(entries) => Ok(Some((segment(file), entries))),
            None => {
                let file = OpenOptions::new().read(true).write(true).open(path)?;
                let entries = Self::recover(&file, layout)?;
                Ok(Some((segment(file), entries)))
            }
        }
    }

    /// Gives a file whose header is sound an index of its sound records.
    pub fn recover(file: &File, layout: Layout) -> io::Result<Vec<Entry>> {
        let size = layout.record();
        let mut reader = BufReader::with_capacity(1 << 20, file);
        reader.seek(SeekFrom::Start(HEADER as u64))?;
        let mut entries = Vec::new();
        let mut record = vec![0; size];
        let mut rows = 0u32;
        while reader.read_exact(&mut record).is_ok() {
            if layout.is_sound(&record) {
                entries.push((u64::from_le_bytes(cut(&record[..8])), rows));
            }
            rows += 1;
        }
        let end = HEADER as u64 + u64::from(rows) * size as u64;
        file.set_len(end)?;
        write_index(file, layout, &entries, end)?;
        Ok(entries)
    }

    /// Reads the vector of a text from a row.
    pub fn read(&self, row: u32, id: TextId, buffer: &mut Vec<u8>, vector: &mut Vec<f32>) -> Found {
        if !self.record(row, buffer) {
            return Found::Damaged;
        }
        if buffer[..ID] != id.bytes() {
            return Found::OtherText;
        }
        let (numbers, _) = buffer[ID..buffer.len() - CHECK].as_chunks::<4>();
        vector.clear();
        vector.extend(numbers.iter().map(|b| f32::from_le_bytes(*b)));
        Found::Vector
    }

    /// A whole record as it is in the file, if it is sound.
    pub fn record(&self, row: u32, buffer: &mut Vec<u8>) -> bool {
        let size = self.layout.record();
        buffer.resize(size, 0);
        let offset = HEADER as u64 + u64::from(row) * size as u64;
        self.file.read_exact_at(buffer, offset).is_ok() && self.layout.is_sound(buffer)
    }

    /// When it was last of use.
    pub fn used(&self) -> Option<SystemTime> {
        self.file.metadata().and_then(|m| m.modified()).ok()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says that it was of use today: the least recently used segments are evicted first.
    pub fn touch(&self) {
        // A cache that can't be written to is still a cache.
        let _ = self.file.set_modified(SystemTime::now());
    }
}

/// What was at a place that an index named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Vector,
    OtherText,
    Damaged,
}

/// Whether a file begins as a segment of this layout does. One that is too short does not; one that can't be read is an
/// error.
fn has_header(file: &File, layout: Layout) -> io::Result<bool> {
    let mut header = [0; HEADER];
    match file.read_exact_at(&mut header, 0) {
        Ok(()) => Ok(header == layout.header()),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

/// The layout of a segment, as its header says; none for what is no segment.
pub(super) fn layout_of(path: &Path) -> io::Result<Option<Layout>> {
    let mut header = [0; HEADER];
    match File::open(path)?.read_exact_at(&mut header, 0) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let vector = usize::try_from(u64::from_le_bytes(cut(&header[32..]))).ok();
    // No model has vectors of a megabyte: a damaged length must not be believed.
    let vector = vector.filter(|bytes| (1..1 << 20).contains(bytes));
    Ok(vector
        .filter(|_| &header[..16] == MAGIC)
        .map(|vector| Layout {
            fingerprint: cut(&header[16..32]),
            vector,
        }))
}

/// Whether a file is a segment of any layout: nothing else may be removed.
pub(super) fn is_segment(path: &Path) -> bool {
    let mut magic = [0; 16];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut magic, 0));
    read.is_ok() && &magic == MAGIC
}

fn read_index(file: &File, layout: Layout) -> io::Result<Option<Vec<Entry>>> {
    let length = file.metadata()?.len();
    let Some(footer_at) = length.checked_sub(FOOTER as u64) else {
        return Ok(None);
    };
    let mut footer = [0; FOOTER];
    file.read_exact_at(&mut footer, footer_at)?;
    let count = u64::from_le_bytes(cut(&footer[..8]));
    let index_at = count
        .checked_mul(ENTRY as u64)
        .and_then(|bytes| footer_at.checked_sub(bytes));
    // Each entry is of a record; a damaged count must not make us read gigabytes.
    let sound = |index_at: u64| {
        let records = index_at.checked_sub(HEADER as u64)?;
        let size = layout.record() as u64;
        (records.is_multiple_of(size) && count <= records / size && &footer[16..] == END)
            .then_some(index_at)
    };
    let Some(index_at) = index_at.and_then(sound) else {
        return Ok(None);
    };
    let mut bytes = vec![0; (footer_at - index_at) as usize];
    file.read_exact_at(&mut bytes, index_at)?;
    if check_of(&[&layout.fingerprint, &bytes]) != footer[8..16] {
        return Ok(None);
    }
    let entries = bytes.as_chunks::<ENTRY>().0.iter();
    Ok(Some(
        entries
            .map(|e| {
                let row: [u8; 4] = cut(&e[8..]);
                (u64::from_le_bytes(cut(&e[..8])), u32::from_le_bytes(row))
            })
            .collect(),
    ))
}

fn write_index(file: &File, layout: Layout, entries: &[Entry], at: u64) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(entries.len() * ENTRY + FOOTER);
    for (prefix, row) in entries {
        bytes.extend(prefix.to_le_bytes());
        bytes.extend(row.to_le_bytes());
    }
    let check = check_of(&[&layout.fingerprint, &bytes]);
    bytes.extend((entries.len() as u64).to_le_bytes());
    bytes.extend(check);
    bytes.extend(END);
    file.write_all_at(&bytes, at)
}

/// A segment under construction. Its file is locked for as long as its writer lives.
#[derive(Debug)]
pub(super) struct OpenSegment {
    file: io::BufWriter<File>,
    path: PathBuf,
    layout: Layout,
    entries: Vec<Entry>,
}

/// Extensions of finished segments, and of those that somebody is writing or has left behind.
pub(super) const FINISHED: &str = "vectors";
pub(super) const UNFINISHED: &str = "writing";

impl OpenSegment {
    pub fn create(folder: &Path, layout: Layout) -> io::Result<Self> {
        // Locked under a name that nobody looks at, so that no one ever sees it without its lock.
        let hidden = tempfile::Builder::new()
            .prefix(".new-")
            .tempfile_in(folder)?;
        let name = hidden.path().file_name().unwrap_or_default();
        let name = name.to_string_lossy().replace(".new-", "");
        hidden.as_file().lock()?;
        hidden.as_file().write_all_at(&layout.header(), 0)?;
        let path = folder.join(format!("{name}.{UNFINISHED}"));
        let mut file = hidden.persist_noclobber(&path).map_err(|e| e.error)?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self {
            file: io::BufWriter::with_capacity(1 << 18, file),
            path,
            layout,
            entries: Vec::new(),
        })
    }

    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    pub fn put(&mut self, id: TextId, vector: &[f32]) -> io::Result<()> {
        let mut record = Vec::with_capacity(self.layout.record());
        record.extend(id.bytes());
        vector.iter().for_each(|x| record.extend(x.to_le_bytes()));
        record.extend(self.layout.check(&record));
        self.put_record(&record)
    }

    /// Adds a record as another segment holds it.
    pub fn put_record(&mut self, record: &[u8]) -> io::Result<()> {
        let row = self.entries.len() as u32;
        self.file.write_all(record)?;
        self.entries
            .push((u64::from_le_bytes(cut(&record[..8])), row));
        Ok(())
    }

    /// The file.
    #[cfg(test)]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Brings everything put so far to the file.
    #[cfg(test)]
    pub fn flush_for_test(&mut self) {
        self.file.flush().unwrap();
    }

    /// Adds the index and gives the file its final name, and a time of last use if it is not now. Where that fails, what is
    /// whole in the file is kept, or the file is removed: none stays that nobody can read.
    pub fn finish(mut self, used: Option<SystemTime>) -> io::Result<()> {
        let result = self.complete(used);
        if result.is_err() {
            self.rescue();
        }
        result
    }

    /// Makes a segment of what has reached the file, after a write has failed.
    pub fn rescue(self) {
        let (path, layout) = (self.path.clone(), self.layout);
        // What is still in the buffer goes with it.
        drop(self.file.into_parts());
        if keep_whole_records(&path, layout).is_err() {
            let _ = std::fs::remove_file(&path);
        }
    }

    fn complete(&mut self, used: Option<SystemTime>) -> io::Result<()> {
        if self.entries.is_empty() {
            return std::fs::remove_file(&self.path);
        }
        self.file.flush()?;
        let end = HEADER + self.entries.len() * self.layout.record();
        write_index(self.file.get_ref(), self.layout, &self.entries, end as u64)?;
        if let Some(used) = used {
            self.file.get_ref().set_modified(used)?;
        }
        std::fs::rename(&self.path, self.path.with_extension(FINISHED))
    }
}

/// Gives a file that can't grow any more an index, in the place of its last records.
fn keep_whole_records(path: &Path, layout: Layout) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    file.lock()?;
    let size = layout.record() as u64;
    let rows = file.metadata()?.len().saturating_sub(HEADER as u64) / size;
    let index = rows * ENTRY as u64 + FOOTER as u64;
    let kept = rows.saturating_sub(index.div_ceil(size) + 1);
    file.set_len(HEADER as u64 + kept * size)?;
    match Segment::recover(&file, layout)?.is_empty() {
        true => std::fs::remove_file(path),
        false => std::fs::rename(path, path.with_extension(FINISHED)),
    }
}

/// Makes a segment of a file whose writer has died. Nothing happens while its writer lives.
pub(super) fn adopt(path: &Path, layout: Layout) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if file.try_lock().is_err() {
        return Ok(());
    }
    // Its writer may have finished it between the listing of the folder and the lock.
    if !path.exists() {
        return Ok(());
    }
    if !has_header(&file, layout)? {
        return std::fs::remove_file(path);
    }
    match Segment::recover(&file, layout)?.is_empty() {
        true => std::fs::remove_file(path),
        false => std::fs::rename(path, path.with_extension(FINISHED)),
    }
}
