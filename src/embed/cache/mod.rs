//! The embedding cache: vectors that stay on disk from run to run.
//!
//! A folder of segments ([`segment`]) for each key: the model, the precision and the instructions that made the
//! vectors. A run reads the segments that were complete when it began, and writes the vectors it had to encode into a
//! segment of its own, so that any number of runs can share a cache. What a record says is believed only if its check
//! is right; otherwise the text is encoded again. `benches/stores.rs` compares this with embedded key-value stores.

mod forget;
mod segment;

pub use forget::{ForgottenVectors, forget_vectors};

use std::collections::HashSet;
use std::fs::{self, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use self::segment::{
    Entry, FINISHED, Fingerprint, Found, Layout, OpenSegment, Segment, UNFINISHED, adopt,
    is_segment, prefix,
};
use crate::text::TextId;

/// Most entries of a segment: small enough that evicting one is no great loss.
const MOST_ENTRIES: usize = 1 << 17;
/// A segment with fewer entries is small; so many small ones are merged.
const SMALL: usize = MOST_ENTRIES / 2;
const MANY_SMALL: usize = 32;
/// Most segments that a run reads: each is an open file.
const MOST_SEGMENTS: usize = 192;
/// Bytes of memory for each entry that can be looked up, while they are sorted.
const BYTES_PER_ENTRY: usize = 32;
/// How long a run waits for another one that adopts files; that one may be stopped.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A file without a name of its own that is older than this belongs to nobody.
const ABANDONED: Duration = Duration::from_secs(3600);

/// What decides the bits of a vector, beside the text.
#[derive(Clone, Debug)]
pub struct CacheKey {
    /// SHA-256 of the model's files.
    pub model_sha256: String,
    /// What the encoder computes in.
    pub precision: String,
    /// Where it computes, and by which instructions.
    pub device: String,
    /// The encoder's revision.
    pub revision: u32,
}

impl CacheKey {
    fn fingerprint(&self) -> Fingerprint {
        let text = format!(
            "{}\n{}\n{}\n{}",
            self.revision, self.model_sha256, self.precision, self.device
        );
        let mut out = Fingerprint::default();
        out.copy_from_slice(&blake3::hash(text.as_bytes()).as_bytes()[..16]);
        out
    }
}

/// Why a cache can't be used.
#[derive(Debug, thiserror::Error)]
#[error("cache folder `{folder}`: {problem}")]
pub struct CacheError {
    /// The folder.
    pub folder: String,
    /// What the system says.
    pub problem: String,
}

/// Counts of one run's use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CacheCounts {
    /// Texts whose vector was there.
    pub found: u64,
    /// How often a damaged record or file was met; none is used.
    pub damaged: u64,
    /// Vectors written.
    pub kept: u64,
}

/// The cache of one model at one precision on one device. Any number of threads may use it.
#[derive(Debug)]
pub struct EmbeddingCache {
    root: PathBuf,
    folder: PathBuf,
    layout: Layout,
    most_bytes: u64,
    segments: Vec<(Segment, AtomicBool)>,
    /// Sorted: first bytes of ids, and for each of them segment (upper half) and row (lower half).
    index: Vec<(u64, u64)>,
    writer: Mutex<Writer>,
    found: AtomicU64,
    damaged: AtomicU64,
    kept: AtomicU64,
}

#[derive(Debug, Default)]
struct Writer {
    segment: Option<OpenSegment>,
    /// After the first error nothing more is written: a full disk must not fail a run.
    failed: bool,
}

impl EmbeddingCache {
    /// Opens the cache in `root` for vectors of `dim` components. The cache is kept below `most_bytes`; at most about
    /// `index_bytes` of memory are spent on looking up, and the oldest entries are left out where that is too little.
    ///
    /// # Errors
    /// [`CacheError`] if the folder can't be made or read. Single files that can't be read are left out.
    pub fn open(
        root: &Path,
        key: &CacheKey,
        dim: usize,
        most_bytes: u64,
        index_bytes: usize,
    ) -> Result<Self, CacheError> {
        let fingerprint = key.fingerprint();
        let name: String = fingerprint.iter().map(|b| format!("{b:02x}")).collect();
        let folder = root.join(name);
        let failed = |e: io::Error| CacheError {
            folder: folder.display().to_string(),
            problem: e.to_string(),
        };
        create_private(&folder).map_err(failed)?;
        let mut cache = Self {
            root: root.to_owned(),
            folder: folder.clone(),
            layout: Layout {
                fingerprint,
                vector: dim * 4,
            },
            most_bytes,
            segments: Vec::new(),
            index: Vec::new(),
            writer: Mutex::default(),
            found: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            kept: AtomicU64::new(0),
        };
        let indexes = cache.load(index_bytes / BYTES_PER_ENTRY).map_err(failed)?;
        if let Err(problem) = cache.merge_small(&indexes) {
            tracing::debug!(%problem, "small segments of the cache were not merged");
        }
        cache.index(indexes);
        Ok(cache)
    }

    /// Makes segments of the files that dead runs left behind. One run at a time does so while the others wait: else they
    /// would list the folder between the lock on a file and its new name, and encode again what is there.
    fn adopt_left_behind(&self) -> io::Result<()> {
        if files_with(&self.folder, UNFINISHED)?.is_empty() {
            return Ok(());
        }
        let turn = self.lock_file("adopt.lock").inspect(|turn| {
            let waiting = Instant::now();
            while let Err(TryLockError::WouldBlock) = turn.try_lock() {
                if waiting.elapsed() > LONGEST_WAIT {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        // A cache that can't be written to is still a cache.
        if let Err(problem) = &turn {
            tracing::debug!(%problem, "files of the cache are adopted without a lock");
        }
        for path in files_with(&self.folder, UNFINISHED)? {
            match adopt(&path, self.layout) {
                // Its writer has just given it its name.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(problem) => {
                    tracing::warn!(file = %path.display(), %problem, "a file of the cache was left as it is");
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// A file to be locked. What is in it stays: the folder may be somebody's own.
    fn lock_file(&self, name: &str) -> io::Result<fs::File> {
        fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.root.join(name))
    }

    /// Opens the folder's segments, newest first, until they have `most_entries`.
    fn load(&mut self, most_entries: usize) -> io::Result<Vec<Vec<Entry>>> {
        self.adopt_left_behind()?;
        let mut finished: Vec<(SystemTime, PathBuf)> = files_with(&self.folder, FINISHED)?
            .into_iter()
            .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
            .collect();
        finished.sort();
        let (mut indexes, mut entries) = (Vec::new(), 0);
        for (_, path) in finished.into_iter().rev() {
            match Segment::open(&path, self.layout) {
                Ok(Some((segment, index))) => {
                    entries += index.len();
                    if entries > most_entries || self.segments.len() >= MOST_SEGMENTS {
                        tracing::warn!(
                            "the cache has more than fits the memory limit, or too many files; the oldest part is not used"
                        );
                        break;
                    }
                    self.segments.push((segment, AtomicBool::new(false)));
                    indexes.push(index);
                }
                Ok(None) => {
                    self.damaged.fetch_add(1, Relaxed);
                    tracing::warn!(file = %path.display(), "a damaged file of the cache was removed");
                    let _ = fs::remove_file(&path);
                }
                // Somebody evicted it in the meantime, or may not read it.
                Err(problem) => {
                    tracing::debug!(file = %path.display(), %problem, "a file of the cache was left out");
                }
            }
        }
        Ok(indexes)
    }

    fn index(&mut self, indexes: Vec<Vec<Entry>>) {
        let mut all: Vec<(u64, u64)> = Vec::with_capacity(indexes.iter().map(Vec::len).sum());
        for (segment, entries) in indexes.into_iter().enumerate() {
            let place = |row: u32| (segment as u64) << 32 | u64::from(row);
            all.extend(entries.iter().map(|&(prefix, row)| (prefix, place(row))));
        }
        all.sort_unstable();
        self.index = all;
    }

    /// Copies the records of many small segments into larger ones, and then removes them. This run goes on reading the
    /// small ones: open files live on.
    fn merge_small(&self, indexes: &[Vec<Entry>]) -> io::Result<()> {
        let lock = self.lock_file("merge.lock")?;
        if lock.try_lock().is_err() {
            return Ok(());
        }
        // Another run may have merged them since the folder was listed.
        let small: Vec<usize> = (0..indexes.len())
            .filter(|&at| indexes[at].len() < SMALL && self.segments[at].0.path().exists())
            .collect();
        if small.len() < MANY_SMALL {
            return Ok(());
        }
        let used = small
            .iter()
            .filter_map(|&at| self.segments[at].0.used())
            .max();
        let mut seen: HashSet<[u8; 16]> = HashSet::new();
        let mut record = Vec::new();
        let mut merged = OpenSegment::create(&self.folder, self.layout)?;
        for &at in &small {
            for &(_, row) in &indexes[at] {
                let sound = self.segments[at].0.record(row, &mut record);
                let id = record.first_chunk::<16>().copied().unwrap_or_default();
                if sound && seen.insert(id) {
                    if merged.entries() >= MOST_ENTRIES {
                        merged.finish(used)?;
                        merged = OpenSegment::create(&self.folder, self.layout)?;
                    }
                    merged.put_record(&record)?;
                }
            }
        }
        merged.finish(used)?;
        for at in small {
            fs::remove_file(self.segments[at].0.path())?;
        }
        Ok(())
    }

    fn writer(&self) -> std::sync::MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the vector of a text; false if there is none to trust.
    pub fn get(&self, id: TextId, vector: &mut Vec<f32>) -> bool {
        let wanted = prefix(id);
        let first = self.index.partition_point(|(p, _)| *p < wanted);
        let mut buffer = Vec::new();
        for &(found, place) in &self.index[first..] {
            if found != wanted {
                break;
            }
            let Some((segment, used)) = self.segments.get((place >> 32) as usize) else {
                continue;
            };
            match segment.read(place as u32, id, &mut buffer, vector) {
                Found::Vector => {
                    used.store(true, Relaxed);
                    self.found.fetch_add(1, Relaxed);
                    return true;
                }
                Found::OtherText => {}
                Found::Damaged => {
                    self.damaged.fetch_add(1, Relaxed);
                }
            }
        }
        false
    }

    /// Keeps the vector of a text. A failure is reported once, and ends nothing but the keeping.
    pub fn put(&self, id: TextId, vector: &[f32]) {
        let mut writer = self.writer();
        if writer.failed {
            return;
        }
        match self.write(&mut writer, id, vector) {
            Ok(()) => {
                self.kept.fetch_add(1, Relaxed);
            }
            Err(problem) => self.give_up(&mut writer, &problem),
        }
    }

    fn write(&self, writer: &mut Writer, id: TextId, vector: &[f32]) -> io::Result<()> {
        let most = (self.most_bytes / 8 / self.layout.record() as u64).max(1);
        let full = |segment: &mut OpenSegment| {
            segment.entries() >= MOST_ENTRIES || segment.entries() as u64 >= most
        };
        if let Some(segment) = writer.segment.take_if(full) {
            segment.finish(None)?;
            self.evict();
        }
        if writer.segment.is_none() {
            // Another run may have evicted everything, and the folder with it, just now too.
            let create = || {
                create_private(&self.folder)?;
                OpenSegment::create(&self.folder, self.layout)
            };
            writer.segment = Some(create().or_else(|_| create())?);
        }
        match &mut writer.segment {
            Some(segment) => segment.put(id, vector),
            None => Ok(()),
        }
    }

    fn give_up(&self, writer: &mut Writer, problem: &io::Error) {
        tracing::warn!(folder = %self.folder.display(), %problem, "vectors are no longer kept for later runs");
        writer.failed = true;
        if let Some(segment) = writer.segment.take() {
            segment.rescue();
        }
    }

    /// Completes this run's segment, so that later runs find it, and evicts what is over the size cap. More can be
    /// put afterwards.
    pub fn finish(&self) {
        let mut writer = self.writer();
        if let Some(segment) = writer.segment.take()
            && let Err(problem) = segment.finish(None)
        {
            self.give_up(&mut writer, &problem);
        }
        drop(writer);
        for (segment, used) in &self.segments {
            if used.swap(false, Relaxed) {
                segment.touch();
            }
        }
        self.evict();
    }

    /// Removes the segments that were not used for longest, of all keys, until the rest fits the cap. Nothing but the
    /// files of caches is counted or removed: the folder may be somebody's own.
    fn evict(&self) {
        let mut segments = Vec::new();
        let mut bytes = 0;
        for folder in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            if !is_key(&folder.file_name().to_string_lossy()) {
                continue;
            }
            for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                let (Ok(meta), path) = (file.metadata(), file.path()) else {
                    continue;
                };
                let used = meta.modified().ok();
                let age = used.and_then(|used| used.elapsed().ok());
                let nameless = file.file_name().to_string_lossy().starts_with(".new-");
                if nameless && age.is_some_and(|age| age > ABANDONED) {
                    let _ = fs::remove_file(path);
                    continue;
                }
                let ours = |e: &std::ffi::OsStr| e == FINISHED || e == UNFINISHED;
                if path.extension().is_some_and(ours) {
                    bytes += meta.len();
                    segments.push((used, meta.len(), path));
                }
            }
        }
        segments.sort();
        for (_, length, path) in segments {
            if bytes <= self.most_bytes {
                break;
            }
            // One that is being written stays; one that a killed run left behind goes like the others.
            let lock = fs::File::open(&path);
            let free = path.extension().is_some_and(|e| e == FINISHED)
                || lock.as_ref().is_ok_and(|file| file.try_lock().is_ok());
            if free && is_segment(&path) && fs::remove_file(&path).is_ok() {
                tracing::debug!(file = %path.display(), "evicted from the cache");
                bytes -= length;
                // Only an empty folder goes.
                let _ = path.parent().map(fs::remove_dir);
            }
        }
    }

    /// Counts so far.
    pub fn counts(&self) -> CacheCounts {
        CacheCounts {
            found: self.found.load(Relaxed),
            damaged: self.damaged.load(Relaxed),
            kept: self.kept.load(Relaxed),
        }
    }
}

impl Drop for EmbeddingCache {
    /// What a failed run has encoded is kept too.
    fn drop(&mut self) {
        self.finish();
    }
}

/// Whether a name is that of a key's folder.
fn is_key(name: &str) -> bool {
    name.len() == 32
        && name
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A folder that only its owner can look into: vectors tell something about texts.
fn create_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

fn files_with(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // Another run has just evicted all that was in it.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(paths),
        Err(e) => return Err(e),
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == extension) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests;
