//! How far a run is, for whoever shows it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::embed::{EmbeddingCounts, EmbeddingService};
use crate::trace::TraceSource;

/// What a run has done so far; read by whoever shows it, from any thread.
#[derive(Debug, Default)]
pub struct Progress {
    pub(super) source: OnceLock<Arc<TraceSource>>,
    pub(super) service: OnceLock<Arc<EmbeddingService>>,
    /// What other processes have embedded for it.
    elsewhere: Mutex<EmbeddingCounts>,
    stage: Mutex<&'static str>,
    /// Cases done, and cases in all, where that is what takes time.
    cases: (AtomicU64, AtomicU64),
}

impl Progress {
    /// Rows read and rows expected, once the files are open.
    pub fn rows(&self) -> Option<(u64, Option<u64>)> {
        self.source
            .get()
            .map(|source| (source.rows_read(), source.rows_expected()))
    }

    /// Texts and tokens embedded, once the model is loaded.
    pub fn embedding(&self) -> Option<EmbeddingCounts> {
        let elsewhere = *self
            .elsewhere
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.service
            .get()
            .map(|service| service.counts().and(&elsewhere))
    }

    /// So much was embedded by other processes so far.
    pub(crate) fn embedded_elsewhere(&self, counts: EmbeddingCounts) {
        *self
            .elsewhere
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// What is being done now.
    pub fn stage(&self) -> &'static str {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cases done and cases in all, while a suite is run.
    pub fn cases(&self) -> Option<(u64, u64)> {
        let (done, all) = &self.cases;
        let all = all.load(Relaxed);
        (all > 0).then(|| (done.load(Relaxed), all))
    }

    /// So many cases of so many are done.
    pub(crate) fn part(&self, done: u64, all: u64) {
        self.cases.0.store(done, Relaxed);
        self.cases.1.store(all, Relaxed);
    }

    /// One more case is done.
    pub(crate) fn advance(&self) {
        self.cases.0.fetch_add(1, Relaxed);
    }

    pub(crate) fn enter(&self, stage: &'static str) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
        tracing::info!(stage, "stage");
    }
}
