//! The service itself: hash, look up, reserve a place, hand over to the workers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

use super::cache::{CacheCounts, EmbeddingCache};
use super::queue::{Job, Queue, Role, Tools};
use super::store::VectorStore;
use super::{EmbedError, TextRecord, TextRef};
use crate::model::Model;
use crate::text::{TextId, WordSet};

/// Bytes that one remembered text takes in the index, with the hash table's slack.
const BYTES_PER_REMEMBERED_TEXT: usize = 64;

/// Memory of the service, in bytes, beside the model; and what it keeps on disk.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingMemory {
    /// For remembering which texts were seen.
    pub index: usize,
    /// For texts that wait to be encoded. Not counted: vectors on their way from a device, up to two batches a lane.
    pub queue: usize,
    /// Whether texts are kept on disk beside their vectors, to be read again.
    pub keep_texts: bool,
}

/// Counts of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EmbeddingCounts {
    /// Non-empty texts asked for.
    pub texts: u64,
    /// The distinct ones of them: each was encoded, or found in the cache.
    pub distinct_texts: u64,
    /// Texts encoded.
    pub encoded_texts: u64,
    /// Of these, texts that the encoder's precision could not hold, encoded at f32 instead.
    pub made_again: u64,
    /// Tokens encoded, special tokens included.
    pub tokens: u64,
    /// About how many tokens all distinct texts so far have.
    pub likely_tokens: u64,
    /// Of these, those of texts that have their vector.
    pub likely_tokens_done: u64,
    /// How often the index of known texts was full and forgot them; texts seen before may then be
    /// encoded again.
    pub forgotten: u64,
    /// Seconds in which any text was on its way to its vector.
    pub embed_seconds: f64,
    /// Of these, seconds of an average worker: encoding, tokenising (and looking up), keeping. Where an encoder has threads
    /// of its own, encoding is of an average one of those, and goes on beside the rest.
    pub encoding_seconds: f64,
    /// See `encoding_seconds`.
    pub tokenising_seconds: f64,
    /// See `encoding_seconds`.
    pub keeping_seconds: f64,
    /// What the cache did; zeros without one.
    pub cache: CacheCounts,
}

impl EmbeddingCounts {
    /// What was counted since earlier counts of the same service.
    pub fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, u64::saturating_sub, |now, then| now - then)
    }

    /// These and those of another service.
    pub fn and(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add, |one, another| one + another)
    }

    fn with(&self, other: &Self, of: fn(u64, u64) -> u64, seconds: fn(f64, f64) -> f64) -> Self {
        Self {
            texts: of(self.texts, other.texts),
            distinct_texts: of(self.distinct_texts, other.distinct_texts),
            encoded_texts: of(self.encoded_texts, other.encoded_texts),
            made_again: of(self.made_again, other.made_again),
            tokens: of(self.tokens, other.tokens),
            likely_tokens: of(self.likely_tokens, other.likely_tokens),
            likely_tokens_done: of(self.likely_tokens_done, other.likely_tokens_done),
            forgotten: of(self.forgotten, other.forgotten),
            embed_seconds: seconds(self.embed_seconds, other.embed_seconds),
            encoding_seconds: seconds(self.encoding_seconds, other.encoding_seconds),
            tokenising_seconds: seconds(self.tokenising_seconds, other.tokenising_seconds),
            keeping_seconds: seconds(self.keeping_seconds, other.keeping_seconds),
            cache: CacheCounts {
                found: of(self.cache.found, other.cache.found),
                damaged: of(self.cache.damaged, other.cache.damaged),
                kept: of(self.cache.kept, other.cache.kept),
            },
        }
    }
}

struct Shared {
    model: Arc<Model>,
    store: VectorStore,
    cache: Option<EmbeddingCache>,
    queue: Queue,
}

/// Many threads ask it at once; encoding runs on its own threads, so that the number of callers never oversubscribes the
/// machine. A model may serve several.
pub struct EmbeddingService {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// How many of them are workers; the others wait for a device.
    workers: usize,
    known: Mutex<HashMap<TextId, TextRef>>,
    most_known: usize,
    /// Tokens that count of a text at most, see [`EmbeddingCounts::likely_tokens`].
    most_tokens: usize,
    texts: AtomicU64,
    distinct: AtomicU64,
    likely_tokens: AtomicU64,
    forgotten: AtomicU64,
}

impl std::fmt::Debug for EmbeddingService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddingService")
            .field("model", &self.shared.model)
            .finish_non_exhaustive()
    }
}

impl EmbeddingService {
    /// A service that works on `threads` threads, beside those that an encoder wants for itself, and keeps the run's vectors in a file in `folder`.
    ///
    /// # Errors
    /// [`EmbedError`] if the file or the threads can't be made.
    pub fn new(
        model: impl Into<Arc<Model>>,
        cache: Option<EmbeddingCache>,
        threads: usize,
        folder: &Path,
        memory: EmbeddingMemory,
    ) -> Result<Self, EmbedError> {
        let model = model.into();
        let store = VectorStore::create(folder, model.encoder.dim(), memory.keep_texts)?;
        let most_tokens = model.tokenizer.max_tokens().unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            model,
            store,
            cache,
            queue: Queue::new(memory.queue),
        });
        let mut service = Self {
            shared,
            threads: Vec::new(),
            workers: threads.max(1),
            known: Mutex::default(),
            most_tokens,
            most_known: (memory.index / BYTES_PER_REMEMBERED_TEXT).max(1024),
            texts: AtomicU64::new(0),
            distinct: AtomicU64::new(0),
            likely_tokens: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
        };
        let encoder = &service.shared.model.encoder;
        let of_device = match encoder.has_threads_of_its_own() {
            true => encoder.batches_at_once(),
            false => 0,
        };
        let workers = (0..service.workers).map(|i| (Role::Worker, format!("encode-{i}")));
        let of_device = (0..of_device).map(|i| (Role::Device, format!("device-{i}")));
        for (role, name) in workers.chain(of_device) {
            let shared = Arc::clone(&service.shared);
            let thread = std::thread::Builder::new()
                .name(name)
                .spawn(move || {
                    let tools = Tools {
                        model: &shared.model,
                        store: &shared.store,
                        cache: shared.cache.as_ref(),
                    };
                    shared.queue.work(&tools, role);
                })
                .map_err(|e| EmbedError::Threads(e.to_string()))?;
            service.threads.push(thread);
        }
        Ok(service)
    }

    /// The model in use.
    pub fn model(&self) -> &Model {
        &self.shared.model
    }

    /// Components of a vector.
    pub fn dim(&self) -> usize {
        self.shared.store.dim()
    }

    /// From now on, of texts as many tokens count as this other service would take of them.
    pub(crate) fn count_as(&mut self, other: &Self) {
        self.most_tokens = other.most_tokens;
    }

    /// Counts so far.
    pub fn counts(&self) -> EmbeddingCounts {
        let work = &self.shared.queue.done_so_far;
        let encoder = &self.shared.model.encoder;
        let lanes = match encoder.has_threads_of_its_own() {
            true => encoder.batches_at_once(),
            false => self.workers.min(encoder.batches_at_once()),
        };
        let seconds =
            |nanos: &AtomicU64, of: usize| nanos.load(Relaxed) as f64 / 1e9 / of.max(1) as f64;
        EmbeddingCounts {
            texts: self.texts.load(Relaxed),
            distinct_texts: self.distinct.load(Relaxed),
            encoded_texts: work.encoded.load(Relaxed),
            made_again: work.made_again.load(Relaxed),
            tokens: work.tokens.load(Relaxed),
            likely_tokens: self.likely_tokens.load(Relaxed),
            likely_tokens_done: work.likely_tokens.load(Relaxed),
            forgotten: self.forgotten.load(Relaxed),
            embed_seconds: self.shared.queue.busy_seconds(),
            encoding_seconds: seconds(&work.encoding, lanes),
            tokenising_seconds: seconds(&work.tokenising, self.workers),
            keeping_seconds: seconds(&work.keeping, self.workers),
            cache: self
                .shared
                .cache
                .as_ref()
                .map(EmbeddingCache::counts)
                .unwrap_or_default(),
        }
    }

    /// Sees to it that the texts get embedded, and returns where each will be, in the order given. It returns before
    /// they are encoded; [`EmbeddingService::read`] waits for them.
    ///
    /// # Errors
    /// [`EmbedError`] if tokenising, encoding or keeping has failed, for these texts or others.
    pub fn embed(&self, texts: &[&str]) -> Result<Vec<TextRef>, EmbedError> {
        let ids: Vec<Option<TextId>> = texts
            .iter()
            .map(|text| (!text.is_empty()).then(|| TextId::of(text)))
            .collect();
        let asked = ids.iter().flatten().count() as u64;
        self.texts.fetch_add(asked, Relaxed);
        let mut places = vec![TextRef::EMPTY; texts.len()];
        // Texts without a place, and the rows that wait for it.
        let mut unknown: HashMap<TextId, &str> = HashMap::new();
        let mut waiting: Vec<(usize, TextId)> = Vec::new();
        {
            let known = self.known();
            for (row, (id, text)) in ids.iter().zip(texts).enumerate() {
                let Some(id) = *id else { continue };
                match known.get(&id) {
                    Some(place) => places[row] = *place,
                    None => {
                        unknown.insert(id, text);
                        waiting.push((row, id));
                    }
                }
            }
        }
        let mut found: HashMap<TextId, TextRef> = HashMap::with_capacity(unknown.len());
        let prepared: Vec<(TextId, &str, WordSet)> = unknown
            .into_iter()
            .map(|(id, text)| (id, text, WordSet::of(text)))
            .collect();
        let mut jobs: Vec<Job> = Vec::with_capacity(prepared.len());
        if !prepared.is_empty() {
            let mut known = self.known();
            if known.len() >= self.most_known {
                known.clear();
                self.forgotten.fetch_add(1, Relaxed);
            }
            for (id, text, words) in prepared {
                // Another caller may have been quicker.
                let place = match known.get(&id) {
                    Some(place) => *place,
                    None => {
                        let place = match self.shared.store.reserve(&words, text) {
                            Ok(place) => place,
                            Err(error) => {
                                // Nobody may be told of places that no worker will fill.
                                for job in &jobs {
                                    known.remove(&job.id);
                                }
                                return Err(error);
                            }
                        };
                        known.insert(id, place);
                        jobs.push(Job {
                            id,
                            place,
                            words,
                            text: text.into(),
                        });
                        place
                    }
                };
                found.insert(id, place);
            }
            // Before anybody else can learn of these places: whoever reads them waits.
            self.shared.queue.expect(&jobs);
        }
        self.distinct.fetch_add(jobs.len() as u64, Relaxed);
        let likely = jobs.iter().map(|job| job.likely_tokens(self.most_tokens));
        let likely = likely.sum();
        self.likely_tokens.fetch_add(likely, Relaxed);
        self.shared.queue.submit(jobs)?;
        for (row, id) in waiting {
            places[row] = found.get(&id).copied().unwrap_or(TextRef::EMPTY);
        }
        Ok(places)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<TextId, TextRef>> {
        // A panic elsewhere while holding the lock leaves a map that is still a map.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a text's vector and words, as soon as it has a vector. The empty text has none: the caller asks first.
    ///
    /// # Errors
    /// [`EmbedError`] if embedding failed; [`EmbedError::Store`] if the file can't be read or the reference is not of
    /// this service.
    pub fn read(&self, text: TextRef, record: &mut TextRecord) -> Result<(), EmbedError> {
        self.shared.queue.wait_for(text)?;
        self.shared.store.read(text, record)
    }

    /// A text again, of a service that keeps them.
    ///
    /// # Errors
    /// [`EmbedError::Store`] if the file can't be read or the reference is not of this service.
    pub fn text(&self, text: TextRef) -> Result<String, EmbedError> {
        self.shared.store.text(text)
    }

    /// Says how busy the encoder was, and completes this run's part of the cache.
    pub fn finish(&self) {
        let counts = self.counts();
        if counts.embed_seconds > 0.0 {
            let share = |seconds: f64| format!("{:.1} %", 100.0 * seconds / counts.embed_seconds);
            let encoding = match self.shared.model.encoder.has_threads_of_its_own() {
                true => 0.0,
                false => counts.encoding_seconds,
            };
            let busy = encoding + counts.tokenising_seconds + counts.keeping_seconds;
            tracing::info!(
                seconds = (counts.embed_seconds * 10.0).round() / 10.0,
                threads = self.workers,
                busy = share(busy),
                encoding = share(counts.encoding_seconds),
                tokenising = share(counts.tokenising_seconds),
                keeping = share(counts.keeping_seconds),
                "encoder"
            );
        }
        if let Some(cache) = &self.shared.cache {
            cache.finish();
            let CacheCounts {
                found,
                damaged,
                kept,
            } = cache.counts();
            tracing::info!(found, damaged, kept, "cache");
        }
    }
}

impl Drop for EmbeddingService {
    fn drop(&mut self) {
        self.shared.queue.close();
        for worker in self.threads.drain(..) {
            // A worker that panicked has said so to everybody who waited for it.
            let _ = worker.join();
        }
    }
}
