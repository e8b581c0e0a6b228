//! The way of a text from a caller to the store: a bounded queue, and workers that look it up in the cache, tokenise,
//! encode and keep it.
//!
//! Callers leave texts and go on; they wait only while the queue is full. A worker takes whatever there is to do:
//! while the window has room it tokenises, else it encodes. So the window from which batches are packed is as
//! large as the callers are ahead, and a worker waits only when there is nothing to do at all.
//!
//! An encoder may have threads of its own: they hand it one full batch after the other and do nothing else, while workers
//! tokenise and keep. So neither a device nor a core waits for the other.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cache::EmbeddingCache;
use super::pack::Window;
use super::store::VectorStore;
use super::{EmbedError, TextRef};
use crate::encoder::Packed;
use crate::model::Model;
use crate::text::{TextId, WordSet};

/// Most texts that wait for being tokenised, and most that wait for being encoded.
const MOST_WAITING: usize = 1 << 15;
/// Texts that a worker tokenises at a time.
const AT_A_TIME: usize = 64;

/// A text on its way.
#[derive(Debug)]
pub(super) struct Job {
    pub id: TextId,
    pub place: TextRef,
    pub words: WordSet,
    pub text: Box<str>,
}

impl Job {
    /// About how many tokens its text has, where no text has more than `most`.
    pub fn likely_tokens(&self, most: usize) -> u64 {
        (self.text.len() / 4 + 2).min(most) as u64
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.text.len() + self.words.hashes().len() * 8
    }
}

/// What a thread of the queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Everything that a core does.
    Worker,
    /// To wait for a device.
    Device,
}

/// A job whose text has become token ids.
#[derive(Debug)]
struct Tokenised {
    id: TextId,
    place: TextRef,
    words: WordSet,
    tokens: Vec<u32>,
    likely_tokens: u64,
    /// What it counts for in the queue, as it did when it was a text.
    bytes: usize,
}

/// A batch that has its vectors.
#[derive(Debug)]
struct Encoded {
    batch: Vec<Tokenised>,
    /// One after the other, of those that have tokens.
    vectors: Vec<f32>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    window: Window<Tokenised>,
    /// From a device, to be kept.
    encoded: VecDeque<Encoded>,
    /// Workers that tokenise.
    tokenising: usize,
    /// Texts whose vector is not in the store yet.
    pending: HashSet<TextRef>,
    bytes: usize,
    encoding: usize,
    failed: Option<EmbedError>,
    closed: bool,
    busy: Busy,
}

/// The time in which anything was pending.
#[derive(Debug, Default)]
struct Busy {
    since: Option<Instant>,
    total: Duration,
}

/// What the workers have done so far.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub encoded: AtomicU64,
    /// Of these, those that the encoder made again at f32.
    pub made_again: AtomicU64,
    /// Of the texts that have their vector, encoded or kept: about how many tokens they have.
    pub likely_tokens: AtomicU64,
    pub tokens: AtomicU64,
    /// Nanoseconds, of all workers together.
    pub tokenising: AtomicU64,
    pub encoding: AtomicU64,
    pub keeping: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Signals workers, callers with texts, and readers of vectors.
    work: Condvar,
    room: Condvar,
    done: Condvar,
    /// As long as `pending` in the state; read without the lock.
    pending: AtomicUsize,
    most_bytes: usize,
    pub done_so_far: Work,
}

enum Step {
    Tokenise(Vec<Job>),
    Encode(Vec<Tokenised>),
    Keep(Encoded),
    Stop,
}

/// What workers work with.
pub(super) struct Tools<'a> {
    pub model: &'a Model,
    pub store: &'a VectorStore,
    pub cache: Option<&'a EmbeddingCache>,
}

fn timed<T>(nanos: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    nanos.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
    result
}

impl Queue {
    /// A queue that holds at most about `most_bytes` of texts.
    pub fn new(most_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
            done: Condvar::new(),
            pending: AtomicUsize::new(0),
            most_bytes,
            done_so_far: Work::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes readers of these texts wait for them. They must be submitted next.
    pub fn expect(&self, jobs: &[Job]) {
        if jobs.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.busy.since.get_or_insert_with(Instant::now);
        state.pending.extend(jobs.iter().map(|job| job.place));
        self.pending.store(state.pending.len(), Ordering::Release);
    }

    /// Leaves expected texts to the workers; waits while the queue is full.
    ///
    /// # Errors
    /// If a worker has failed, now or earlier.
    pub fn submit(&self, jobs: Vec<Job>) -> Result<(), EmbedError> {
        let mut state = self.lock();
        for job in jobs {
            let bytes = job.bytes();
            // One text is always taken, however long it is.
            while state.failed.is_none()
                && state.bytes > 0
                && (state.bytes + bytes > self.most_bytes || state.waiting.len() >= MOST_WAITING)
            {
                self.work.notify_all();
                state = self
                    .room
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            state.bytes += bytes;
            state.waiting.push_back(job);
        }
        drop(state);
        self.work.notify_all();
        Ok(())
    }

    /// Waits until the vector of a text is in the store.
    ///
    /// # Errors
    /// If a worker has failed.
    pub fn wait_for(&self, place: TextRef) -> Result<(), EmbedError> {
        if self.pending.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let mut state = self.lock();
        while state.pending.contains(&place) {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            state = self
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Seconds in which anything was pending.
    pub fn busy_seconds(&self) -> f64 {
        let state = self.lock();
        let running = state.busy.since.map_or(Duration::ZERO, |s| s.elapsed());
        (state.busy.total + running).as_secs_f64()
    }

    /// Tells the workers to stop. What is pending is dropped.
    pub fn close(&self) {
        self.lock().closed = true;
        self.work.notify_all();
    }

    fn fail(&self, error: EmbedError) {
        self.lock().failed.get_or_insert(error);
        self.work.notify_all();
        self.room.notify_all();
        self.done.notify_all();
    }

    /// What one thread does until the queue is closed or one has failed.
    pub fn work(&self, tools: &Tools<'_>, role: Role) {
        /// Whoever waits must hear of a worker that panicked.
        struct OnPanic<'a>(&'a Queue);
        impl Drop for OnPanic<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.fail(EmbedError::Worker);
                }
            }
        }
        let _on_panic = OnPanic(self);
        loop {
            let result = match self.next(tools.model, role) {
                Step::Tokenise(jobs) => self.tokenise(tools, jobs),
                Step::Encode(batch) => self.encode(tools, batch).and_then(|encoded| match role {
                    Role::Worker => self.keep(tools, encoded),
                    Role::Device => {
                        self.lock().encoded.push_back(encoded);
                        self.work.notify_all();
                        Ok(())
                    }
                }),
                Step::Keep(encoded) => self.keep(tools, encoded),
                Step::Stop => return,
            };
            if let Err(error) = result {
                self.fail(error);
                return;
            }
        }
    }

    fn next(&self, model: &Model, role: Role) -> Step {
        let encoder = &model.encoder;
        let (tokens, lanes) = (encoder.tokens_per_batch(), encoder.batches_at_once());
        let mut state = self.lock();
        loop {
            if state.closed || state.failed.is_some() {
                return Step::Stop;
            }
            let texts = state.window.texts();
            let room = MOST_WAITING.saturating_sub(texts);
            let has_more = room > 0 && !state.waiting.is_empty();
            let step = match role {
                Role::Device => {
                    let is_full = state.window.tokens() >= tokens;
                    // What has no successor goes as it is.
                    let is_last = texts > 0 && !has_more && state.tokenising == 0;
                    let is_kept_up_with = state.encoded.len() < lanes;
                    ((is_full || is_last) && is_kept_up_with)
                        .then(|| Self::batch(&mut state, tokens))
                }
                Role::Worker => match state.encoded.pop_front() {
                    Some(encoded) => Some(Step::Keep(encoded)),
                    None if has_more => {
                        state.tokenising += 1;
                        let count = AT_A_TIME.min(room).min(state.waiting.len());
                        Some(Step::Tokenise(state.waiting.drain(..count).collect()))
                    }
                    None => {
                        let encodes = !encoder.has_threads_of_its_own() && state.encoding < lanes;
                        (texts > 0 && encodes).then(|| Self::batch(&mut state, tokens))
                    }
                },
            };
            if let Some(step) = step {
                return step;
            }
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn batch(state: &mut State, tokens: usize) -> Step {
        state.encoding += 1;
        Step::Encode(state.window.take(tokens))
    }

    /// Looks texts up in the cache, and tokenises the others.
    fn tokenise(&self, tools: &Tools<'_>, jobs: Vec<Job>) -> Result<(), EmbedError> {
        let (mut kept, mut tokenised) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        let most = tools.model.tokenizer.max_tokens().unwrap_or(usize::MAX);
        let mut vector = Vec::new();
        for job in jobs {
            let cached = timed(&self.done_so_far.tokenising, || {
                let cache = tools.cache;
                cache.is_some_and(|cache| cache.get(job.id, &mut vector))
            });
            if cached {
                timed(&self.done_so_far.keeping, || {
                    tools.store.write(job.place, &vector, &job.words)
                })?;
                bytes += job.bytes();
                let likely = job.likely_tokens(most);
                self.done_so_far
                    .likely_tokens
                    .fetch_add(likely, Ordering::Relaxed);
                kept.push(job.place);
                continue;
            }
            let tokens = timed(&self.done_so_far.tokenising, || {
                tools.model.tokenizer.ids(&job.text)
            });
            tokenised.push(Tokenised {
                bytes: job.bytes(),
                likely_tokens: job.likely_tokens(most),
                tokens: tokens.map_err(EmbedError::Tokenise)?,
                id: job.id,
                place: job.place,
                words: job.words,
            });
        }
        let mut state = self.lock();
        state.tokenising -= 1;
        for text in tokenised {
            state.window.insert(text.tokens.len(), text);
        }
        self.settle(&mut state, &kept, bytes);
        drop(state);
        self.work.notify_all();
        Ok(())
    }

    fn encode(&self, tools: &Tools<'_>, batch: Vec<Tokenised>) -> Result<Encoded, EmbedError> {
        let mut packed = Packed::default();
        for text in &batch {
            packed.push(&text.tokens);
        }
        let mut vectors = Vec::with_capacity(batch.len() * tools.store.dim());
        let encoded = timed(&self.done_so_far.encoding, || {
            tools.model.encoder.encode(&packed, &mut vectors)
        });
        // The next batch need not wait until this one is kept.
        self.lock().encoding -= 1;
        self.work.notify_one();
        let made_again = encoded.map_err(|e| EmbedError::Encode(e.to_string()))?;
        self.done_so_far
            .made_again
            .fetch_add(made_again as u64, Ordering::Relaxed);
        let (texts, numbers) = (packed.texts(), vectors.len());
        if numbers != texts * tools.store.dim() {
            let message = format!("{texts} texts were encoded as {numbers} numbers");
            return Err(EmbedError::Encode(message));
        }
        Ok(Encoded { batch, vectors })
    }

    /// Puts vectors into the store and the cache.
    fn keep(&self, tools: &Tools<'_>, encoded: Encoded) -> Result<(), EmbedError> {
        let Encoded { batch, vectors } = encoded;
        let dim = tools.store.dim();
        timed(&self.done_so_far.keeping, || {
            let mut rows = vectors.chunks_exact(dim);
            // A text of which the tokenizer leaves nothing is like no other text.
            let nothing = vec![0.0; dim];
            for text in &batch {
                if text.tokens.is_empty() {
                    tools.store.write(text.place, &nothing, &text.words)?;
                    continue;
                }
                let vector = rows.next().unwrap_or(&nothing);
                tools.store.write(text.place, vector, &text.words)?;
                // What went wrong today must not come back tomorrow.
                if let Some(cache) = tools.cache
                    && vector.iter().all(|x| x.is_finite())
                {
                    cache.put(text.id, vector);
                }
            }
            Ok::<_, EmbedError>(())
        })?;
        let work = &self.done_so_far;
        let tokens: usize = batch.iter().map(|text| text.tokens.len()).sum();
        work.tokens.fetch_add(tokens as u64, Ordering::Relaxed);
        let likely = batch.iter().map(|text| text.likely_tokens).sum();
        work.likely_tokens.fetch_add(likely, Ordering::Relaxed);
        work.encoded
            .fetch_add(batch.len() as u64, Ordering::Relaxed);
        let places: Vec<TextRef> = batch.iter().map(|text| text.place).collect();
        let bytes = batch.iter().map(|text| text.bytes).sum();
        let mut state = self.lock();
        self.settle(&mut state, &places, bytes);
        drop(state);
        self.work.notify_all();
        Ok(())
    }

    /// Takes texts that are in the store now off the pending ones.
    fn settle(&self, state: &mut State, places: &[TextRef], bytes: usize) {
        if places.is_empty() {
            return;
        }
        for place in places {
            state.pending.remove(place);
        }
        state.bytes = state.bytes.saturating_sub(bytes);
        self.pending.store(state.pending.len(), Ordering::Release);
        if state.pending.is_empty()
            && let Some(since) = state.busy.since.take()
        {
            state.busy.total += since.elapsed();
        }
        self.room.notify_all();
        self.done.notify_all();
    }
}
