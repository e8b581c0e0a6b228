//! The service itself: hash, look up, claim, encode, keep.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::pack::{TOKENS_PER_BATCH, batches, packed};
use super::store::VectorStore;
use super::{EmbedError, TextRecord, TextRef};
use crate::model::Model;
use crate::text::{TextId, WordSet};

/// Bytes that one remembered text takes in the index, with the hash table's slack.
const BYTES_PER_REMEMBERED_TEXT: usize = 64;

/// Counts of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EmbeddingCounts {
    /// Non-empty texts asked for.
    pub texts: u64,
    /// Texts encoded: the distinct ones.
    pub distinct_texts: u64,
    /// Tokens encoded, special tokens included.
    pub tokens: u64,
    /// How often the index of known texts was full and forgot them; texts seen before may then be
    /// encoded again.
    pub forgotten: u64,
    /// Seconds in which anything was being encoded.
    pub encode_seconds: f64,
}

#[derive(Default)]
struct Counters {
    texts: AtomicU64,
    distinct: AtomicU64,
    tokens: AtomicU64,
    forgotten: AtomicU64,
    busy: Mutex<Busy>,
}

/// The time in which at least one caller is encoding.
#[derive(Default)]
struct Busy {
    callers: usize,
    since: Option<Instant>,
    total: Duration,
}

impl Busy {
    fn enter(&mut self) {
        self.callers += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    fn leave(&mut self) {
        self.callers -= 1;
        if self.callers == 0 {
            self.total += self
                .since
                .take()
                .map_or(Duration::ZERO, |since| since.elapsed());
        }
    }

    fn seconds(&self) -> f64 {
        (self.total + self.since.map_or(Duration::ZERO, |since| since.elapsed())).as_secs_f64()
    }
}

#[derive(Clone, Copy)]
enum Place {
    /// Another call is encoding it.
    Claimed,
    Kept(TextRef),
}

#[derive(Default)]
struct Index {
    known: HashMap<TextId, Place>,
    /// A call that claimed texts failed: whoever waits for them must fail too.
    failed: bool,
}

/// One per process. Many threads ask it at once; encoding runs on its own pool of threads, so that
/// the number of callers never oversubscribes the machine.
pub struct EmbeddingService {
    model: Model,
    pool: rayon::ThreadPool,
    store: VectorStore,
    index: Mutex<Index>,
    settled: Condvar,
    most_known: usize,
    counters: Counters,
}

impl std::fmt::Debug for EmbeddingService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddingService")
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

impl EmbeddingService {
    /// A service that encodes on `threads` threads, keeps vectors in a file in `folder` and spends
    /// at most about `index_bytes` on remembering which texts it has seen.
    ///
    /// # Errors
    /// [`EmbedError`] if the file or the threads can't be made.
    pub fn new(
        model: Model,
        threads: usize,
        folder: &Path,
        index_bytes: usize,
    ) -> Result<Self, EmbedError> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("encode-{i}"))
            .build()
            .map_err(|e| EmbedError::Threads(e.to_string()))?;
        let store = VectorStore::create(folder, model.encoder.dim())?;
        Ok(Self {
            model,
            pool,
            store,
            index: Mutex::default(),
            settled: Condvar::new(),
            most_known: (index_bytes / BYTES_PER_REMEMBERED_TEXT).max(1024),
            counters: Counters::default(),
        })
    }

    /// The model in use.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Components of a vector.
    pub fn dim(&self) -> usize {
        self.store.dim()
    }

    /// Counts so far.
    pub fn counts(&self) -> EmbeddingCounts {
        EmbeddingCounts {
            texts: self.counters.texts.load(Relaxed),
            distinct_texts: self.counters.distinct.load(Relaxed),
            tokens: self.counters.tokens.load(Relaxed),
            forgotten: self.counters.forgotten.load(Relaxed),
            encode_seconds: self.busy().seconds(),
        }
    }

    /// Embeds the texts that are not known yet and returns where each is, in the order given.
    ///
    /// # Errors
    /// [`EmbedError`] if tokenising, encoding or keeping fails.
    pub fn embed(&self, texts: &[&str]) -> Result<Vec<TextRef>, EmbedError> {
        let ids: Vec<Option<TextId>> = texts
            .iter()
            .map(|text| (!text.is_empty()).then(|| TextId::of(text)))
            .collect();
        self.counters
            .texts
            .fetch_add(ids.iter().flatten().count() as u64, Relaxed);

        let mut places: Vec<Option<TextRef>> = ids
            .iter()
            .map(|id| id.is_none().then_some(TextRef::EMPTY))
            .collect();
        let claimed = self.claim(texts, &ids, &mut places);
        if !claimed.is_empty() {
            let mine: Vec<&str> = claimed.iter().map(|&(_, text)| text).collect();
            self.busy().enter();
            let encoded = self.encode(&mine);
            self.busy().leave();
            let mut index = self.lock();
            match &encoded {
                Ok(encoded) => {
                    for ((id, _), place) in claimed.iter().zip(encoded) {
                        index.known.insert(*id, Place::Kept(*place));
                    }
                }
                Err(_) => index.failed = true,
            }
            drop(index);
            self.settled.notify_all();
            let encoded = encoded?;
            let own: HashMap<TextId, TextRef> =
                claimed.iter().map(|(id, _)| *id).zip(encoded).collect();
            for (place, id) in places.iter_mut().zip(&ids) {
                if let (None, Some(id)) = (&place, id) {
                    *place = own.get(id).copied();
                }
            }
        }
        texts
            .iter()
            .zip(ids)
            .zip(places)
            .map(|((text, id), place)| match (place, id) {
                (Some(place), _) => Ok(place),
                (None, Some(id)) => self.wait_for(text, id),
                (None, None) => Ok(TextRef::EMPTY),
            })
            .collect()
    }

    fn busy(&self) -> MutexGuard<'_, Busy> {
        self.counters
            .busy
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        // A panic elsewhere while holding the lock leaves a map that is still a map.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills in the places of known texts and marks the ones that this call will encode. Two calls
    /// never encode the same text at the same time.
    fn claim<'t>(
        &self,
        texts: &[&'t str],
        ids: &[Option<TextId>],
        places: &mut [Option<TextRef>],
    ) -> Vec<(TextId, &'t str)> {
        let mut index = self.lock();
        if index.known.len() >= self.most_known {
            // Forget settled texts only: others wait for the claimed ones.
            index
                .known
                .retain(|_, place| matches!(place, Place::Claimed));
            self.counters.forgotten.fetch_add(1, Relaxed);
        }
        let mut claimed = Vec::new();
        for ((text, id), place) in texts.iter().zip(ids).zip(places) {
            let Some(id) = id else { continue };
            match index.known.get(id) {
                Some(Place::Kept(kept)) => *place = Some(*kept),
                Some(Place::Claimed) => {}
                None => {
                    index.known.insert(*id, Place::Claimed);
                    claimed.push((*id, *text));
                }
            }
        }
        claimed
    }

    /// Waits for a text that another call has claimed. Own claims are kept by now, so that two calls
    /// that wait for each other's claims can't wait for ever.
    fn wait_for(&self, text: &str, id: TextId) -> Result<TextRef, EmbedError> {
        let mut index = self.lock();
        loop {
            match index.known.get(&id) {
                Some(Place::Kept(place)) => return Ok(*place),
                _ if index.failed => return Err(EmbedError::OtherBatch),
                Some(Place::Claimed) => {
                    index = self
                        .settled
                        .wait(index)
                        .unwrap_or_else(PoisonError::into_inner)
                }
                // Kept and forgotten again while this call was not looking.
                None => {
                    drop(index);
                    let place = self.encode(&[text])?;
                    return place.first().copied().ok_or(EmbedError::OtherBatch);
                }
            }
        }
    }

    fn encode(&self, texts: &[&str]) -> Result<Vec<TextRef>, EmbedError> {
        self.pool.install(|| {
            let ids = texts
                .par_iter()
                .map(|text| self.model.tokenizer.ids(text).map_err(EmbedError::Tokenise))
                .collect::<Result<Vec<_>, _>>()?;
            let batches = batches(&ids, TOKENS_PER_BATCH);
            let kept = batches
                .par_iter()
                .with_max_len(1)
                .map(|batch| {
                    let mut vectors = Vec::with_capacity(batch.len() * self.dim());
                    self.model
                        .encoder
                        .encode(&packed(&ids, batch), &mut vectors)
                        .map_err(|e| EmbedError::Encode(e.to_string()))?;
                    let words: Vec<WordSet> =
                        batch.iter().map(|&at| WordSet::of(texts[at])).collect();
                    let tokens: usize = batch.iter().map(|&at| ids[at].len()).sum();
                    self.counters.tokens.fetch_add(tokens as u64, Relaxed);
                    self.counters
                        .distinct
                        .fetch_add(batch.len() as u64, Relaxed);
                    self.store.append(&vectors, &words)
                })
                .collect::<Result<Vec<_>, _>>()?;
            let mut places = vec![TextRef::EMPTY; texts.len()];
            for (batch, kept) in batches.iter().zip(kept) {
                for (&at, place) in batch.iter().zip(kept) {
                    places[at] = place;
                }
            }
            Ok(places)
        })
    }

    /// Reads a text's vector and words. The empty text has none: the caller asks first.
    ///
    /// # Errors
    /// [`EmbedError::Store`] if the file can't be read or the reference is not of this service.
    pub fn read(&self, text: TextRef, record: &mut TextRecord) -> Result<(), EmbedError> {
        self.store.read(text, record)
    }
}
