//! Where calls wait for the next batch: the submitter gathers them, submits them, and fetches what came of earlier ones.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::client::{BatchClient, BatchClientError};
use super::collection::{Collected, collect, give_up};
use super::{BatchLimits, RequestFileError, RequestFiles};
use crate::judge::budget::{Budget, SetAside};
use crate::judge::call::{Call, CallHash};
use crate::judge::ledger::{BatchRequest, CallLabel, InBatch, Ledger, LedgerError};
use crate::judge::price::{Price, PriceTable};
use crate::judge::protocol::chat_completion;
use crate::judge::provider::name_at_endpoint;

/// How long to wait for another process that submits or collects.
const PATIENCE: Duration = Duration::from_secs(600);

/// What stops batches.
#[derive(Debug, thiserror::Error)]
pub enum BatchSubmitterError {
    /// The endpoint. What was submitted is in the ledger.
    #[error("{0}; what was submitted is in the ledger, run again to go on")]
    Endpoint(#[from] BatchClientError),
    /// A batch can't be looked at or fetched. The others were.
    #[error(
        "batch {batch}: {error}; run again later, or give it up with `nightmill judge --forget {batch}`: its questions are asked again then"
    )]
    Uncollected {
        /// The provider's id of it.
        batch: String,
        /// What went wrong.
        error: BatchClientError,
    },
    /// The files of results are not whole.
    #[error(
        "batch {batch}: its files hold {came} results of {asked}, and {bad} lines can't be read; run again later, or give it up with `nightmill judge --forget {batch}`: its questions are asked again then"
    )]
    Incomplete {
        /// The provider's id of it.
        batch: String,
        /// Results that were read.
        came: usize,
        /// Calls in it.
        asked: usize,
        /// Lines that can't be read.
        bad: u64,
    },
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Questions that no batch file has room for. All others were submitted.
    #[error(
        "a batch file may have {limit} bytes, and the longest question of this run, of the metric `{metric}`, takes {bytes}; give at \
         least --batch-bytes {bytes}, leave --batch out, or cut long traces with --judge-max-trace and --judge-long-traces. Questions \
         left out of the batches: {questions}; what could be submitted is in the ledger"
    )]
    TooLong {
        /// The metric of the longest.
        metric: String,
        /// What it takes as a line, in bytes.
        bytes: u64,
        /// What a file may have, in bytes.
        limit: u64,
        /// How many there are.
        questions: u64,
    },
    /// A request can't be written.
    #[error(transparent)]
    Request(#[from] RequestFileError),
    /// Requests or results can't be kept aside.
    #[error("a file beside the ledger can't be used: {0}; free its disk")]
    Io(#[from] io::Error),
    /// Another process does not come to an end.
    #[error("another process has been submitting or collecting batches of this ledger for {} s; wait for it, or end it", PATIENCE.as_secs())]
    Busy,
}

/// What batches came to in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BatchCounts {
    /// Batches submitted.
    pub submitted: u64,
    /// Calls in them.
    pub requests: u64,
    /// What came back.
    #[serde(flatten)]
    pub collected: Collected,
    /// Calls that still wait, in batches of any run.
    pub waiting: u64,
}

/// A call that waits for the next batch.
#[derive(Deserialize, Serialize)]
struct Line {
    request: BatchRequest,
    body: Value,
}

struct Queue {
    lines: BufWriter<File>,
    count: u64,
    /// What was set aside for calls of this run, until their results are there.
    asides: HashMap<CallHash, (SetAside, Option<Price>)>,
    counts: BatchCounts,
}

/// Gathers calls and brings them to the endpoint in batches.
pub struct BatchSubmitter {
    client: BatchClient,
    ledger: Arc<Ledger>,
    prices: PriceTable,
    limits: BatchLimits,
    queue: Mutex<Queue>,
}

impl BatchSubmitter {
    /// A submitter without calls. They are kept in a file beside the ledger until they are submitted.
    ///
    /// # Errors
    /// [`BatchSubmitterError::Io`].
    pub fn new(
        client: BatchClient,
        ledger: Arc<Ledger>,
        prices: PriceTable,
        limits: BatchLimits,
    ) -> Result<Self, BatchSubmitterError> {
        let lines = BufWriter::new(tempfile::tempfile_in(ledger.folder())?);
        Ok(Self {
            client,
            ledger,
            prices,
            limits,
            queue: Mutex::new(Queue {
                lines,
                count: 0,
                asides: HashMap::new(),
                counts: BatchCounts::default(),
            }),
        })
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a call, if the budget has room for it.
    ///
    /// # Errors
    /// What `set_aside` says, or that the call can't be kept.
    pub(in crate::judge) fn put(
        &self,
        call: &Call,
        hash: &CallHash,
        label: CallLabel<'_>,
        budget: &Budget,
    ) -> Result<(), PutError> {
        let mut queue = self.queue();
        if queue.asides.contains_key(hash) {
            return Ok(());
        }
        let price = self.prices.of_batch(&call.model);
        let aside = budget
            .set_aside_at_once(call, price)
            .map_err(PutError::Capped)?;
        let line = Line {
            request: BatchRequest {
                hash: hash.as_str().to_owned(),
                metric: label.metric.to_owned(),
                stage: label.stage.to_owned(),
                prompt: call.prompt.name.to_owned(),
                prompt_version: call.prompt.version,
                model: call.model.clone(),
            },
            body: chat_completion(call, &name_at_endpoint(&call.model, self.client.settings())),
        };
        let written = serde_json::to_writer(&mut queue.lines, &line)
            .map_err(io::Error::from)
            .and_then(|()| queue.lines.write_all(b"\n"));
        written.map_err(PutError::Io)?;
        queue.count += 1;
        queue.asides.insert(hash.clone(), (aside, price));
        Ok(())
    }

    /// Submits what was taken. Returns how many calls were left out because another run answered, or is asking, them.
    ///
    /// # Errors
    /// [`BatchSubmitterError`]; batches that were submitted before it are in the ledger.
    pub async fn submit(&self, budget: &Budget) -> Result<u64, BatchSubmitterError> {
        let lines = {
            let mut queue = self.queue();
            if queue.count == 0 {
                return Ok(0);
            }
            let fresh = BufWriter::new(tempfile::tempfile_in(self.ledger.folder())?);
            let lines = std::mem::replace(&mut queue.lines, fresh);
            queue.count = 0;
            let mut lines = lines.into_inner().map_err(|e| e.into_error())?;
            lines.rewind()?;
            lines
        };
        let _lock = lock(&self.ledger).await?;
        let submitted = self.submit_lines(lines, budget).await;
        self.ledger.release_claims()?;
        submitted
    }

    async fn submit_lines(&self, lines: File, budget: &Budget) -> Result<u64, BatchSubmitterError> {
        let mut left_out = LeftOut::default();
        let files = self.request_files(lines, &mut left_out)?;
        {
            let mut queue = self.queue();
            for hash in &left_out.hashes {
                if let Some((aside, _)) = queue.asides.remove(hash) {
                    budget.give_back(aside);
                }
            }
        }
        for (model, files) in files {
            for (file, bytes, requests) in files {
                self.submit_file(&model, file, bytes, &requests).await?;
            }
        }
        left_out.too_long.map_or(Ok(left_out.elsewhere), Err)
    }

    /// Files of requests by model: a batch has one. Each call is claimed until it is written down that it waits in a batch.
    /// Calls that another process asked meanwhile, or is asking, are left out, and so are those that are longer than a file
    /// may be; `left_out` tells of them.
    #[allow(
        clippy::type_complexity,
        reason = "what a model's files are, used once"
    )]
    fn request_files(
        &self,
        lines: File,
        left_out: &mut LeftOut,
    ) -> Result<Vec<(String, Vec<(File, u64, Vec<BatchRequest>)>)>, BatchSubmitterError> {
        let folder = self.ledger.folder().to_owned();
        let mut models = HashMap::new();
        for line in BufReader::new(lines).lines() {
            let line: Line = serde_json::from_str(&line?).map_err(io::Error::from)?;
            let hash = CallHash::of_text(&line.request.hash);
            let Some(claim) = self.ledger.claim(&hash)? else {
                left_out.elsewhere += 1;
                left_out.hashes.push(hash);
                continue;
            };
            let asked = self.ledger.answer(&hash)?.is_some()
                || self.ledger.in_batch(&hash)? == Some(InBatch::Waiting);
            if asked {
                left_out.elsewhere += 1;
                drop(claim);
                left_out.hashes.push(hash);
                continue;
            }
            claim.leave();
            let model = line.request.model.clone();
            let (files, requests) = match models.entry(model) {
                std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::hash_map::Entry::Vacant(entry) => {
                    let folder = folder.clone();
                    let open = move |_| tempfile::tempfile_in(&folder).map(BufWriter::new);
                    let files = RequestFiles::new(self.limits, open)?;
                    entry.insert((files, Vec::<Vec<BatchRequest>>::new()))
                }
            };
            let file = match files.push(&line.request.hash, &line.body) {
                Err(RequestFileError::LineTooLarge { bytes, limit, .. }) => {
                    let earlier = left_out.too_long.take();
                    left_out.too_long = Some(longer(earlier, line.request.metric, bytes, limit));
                    left_out.hashes.push(hash);
                    continue;
                }
                file => file?,
            };
            if requests.len() <= file {
                requests.resize_with(file + 1, Vec::new);
            }
            if let Some(requests) = requests.get_mut(file) {
                requests.push(line.request);
            }
        }
        let mut all = Vec::new();
        for (model, (files, requests)) in models {
            let mut of_model = Vec::new();
            for (file, requests) in files.finish()?.into_iter().zip(requests) {
                let handle = file.writer.into_inner().map_err(|e| e.into_error())?;
                of_model.push((handle, file.bytes, requests));
            }
            all.push((model, of_model));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    async fn submit_file(
        &self,
        model: &str,
        file: File,
        bytes: u64,
        requests: &[BatchRequest],
    ) -> Result<(), BatchSubmitterError> {
        let file_id = self.client.upload(&file, bytes).await?;
        let key = key(requests);
        let endpoint = self.client.shown_endpoint();
        self.ledger.begin_batch(&key, &endpoint, model, requests)?;
        let created = self.client.create(&file_id, &key).await;
        let batch = match created {
            Ok(batch) => batch,
            Err(e) => {
                // Whether the batch exists is found out when it is collected.
                return Err(e.into());
            }
        };
        self.ledger
            .batch_stands(&key, &batch.id, batch.status.as_str())?;
        let mut queue = self.queue();
        queue.counts.submitted += 1;
        queue.counts.requests += requests.len() as u64;
        tracing::info!(batch = %batch.id, requests = requests.len(), model, "batch submitted");
        Ok(())
    }

    /// Looks at every open batch of this endpoint and takes what is there.
    ///
    /// # Errors
    /// [`BatchSubmitterError`]; batches that were collected before it are in the ledger.
    pub async fn collect(&self, budget: Option<&Budget>) -> Result<Collected, BatchSubmitterError> {
        let collected = {
            let _lock = lock(&self.ledger).await?;
            collect(&self.client, &self.ledger, &self.prices).await?
        };
        let mut queue = self.queue();
        queue.counts.collected.open = 0;
        queue.counts.collected.add(&collected);
        let Some(budget) = budget else {
            return Ok(collected);
        };
        let hashes: Vec<CallHash> = queue.asides.keys().cloned().collect();
        for hash in hashes {
            if self.ledger.in_batch(&hash)? == Some(InBatch::Waiting) {
                continue;
            }
            let usage = match self.ledger.answer(&hash)? {
                Some(reply) => reply.usage,
                None => self.ledger.used_by_failure(&hash)?,
            };
            if let Some((aside, price)) = queue.asides.remove(&hash) {
                budget.settle(aside, usage, price);
            }
        }
        Ok(collected)
    }

    /// Collects again and again until nothing of this endpoint is open or the time is over. Returns what came.
    ///
    /// # Errors
    /// [`BatchSubmitterError`].
    pub async fn wait(
        &self,
        until: Instant,
        pause: Duration,
        budget: Option<&Budget>,
    ) -> Result<Collected, BatchSubmitterError> {
        let mut all = Collected::default();
        loop {
            let collected = self.collect(budget).await?;
            all.open = 0;
            all.add(&collected);
            let left = until.saturating_duration_since(Instant::now());
            if collected.open == 0 || left.is_zero() {
                return Ok(all);
            }
            tracing::info!(open = collected.open, "waiting for batches");
            tokio::time::sleep(pause.min(left)).await;
        }
    }

    /// Gives up a batch, by the provider's id of it or ours: its calls are free again. Returns how many; none if no such batch is
    /// open.
    ///
    /// # Errors
    /// [`BatchSubmitterError`].
    pub async fn forget(ledger: &Ledger, id: &str) -> Result<Option<u64>, BatchSubmitterError> {
        let _lock = lock(ledger).await?;
        let open = ledger.open_batches()?;
        match open.iter().find(|batch| batch.name() == id) {
            None => Ok(None),
            Some(batch) => give_up(ledger, u32::MAX, batch).map(Some),
        }
    }

    /// What batches came to so far.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn counts(&self) -> Result<BatchCounts, LedgerError> {
        let counts = self.queue().counts;
        Ok(BatchCounts {
            waiting: self.ledger.waiting()?,
            ..counts
        })
    }
}

/// What is said of questions that are too long, after one more of them.
fn longer(
    earlier: Option<BatchSubmitterError>,
    metric: String,
    bytes: u64,
    limit: u64,
) -> BatchSubmitterError {
    match earlier {
        Some(BatchSubmitterError::TooLong {
            metric: longest,
            bytes: most,
            questions,
            ..
        }) => BatchSubmitterError::TooLong {
            metric: if bytes > most { metric } else { longest },
            bytes: bytes.max(most),
            limit,
            questions: questions + 1,
        },
        _ => BatchSubmitterError::TooLong {
            metric,
            bytes,
            limit,
            questions: 1,
        },
    }
}

/// Calls that did not go into a batch after all.
#[derive(Default)]
struct LeftOut {
    hashes: Vec<CallHash>,
    /// Those of them that another run answered, or is asking.
    elsewhere: u64,
    /// What is said of those that are too long.
    too_long: Option<BatchSubmitterError>,
}

/// Why a call is not taken.
pub(in crate::judge) enum PutError {
    Capped(crate::judge::budget::CapReached),
    Io(io::Error),
}

/// A key that no other batch has: of its calls and the moment.
fn key(requests: &[BatchRequest]) -> String {
    let mut hasher = blake3::Hasher::new();
    for request in requests {
        hasher.update(request.hash.as_bytes());
    }
    let moment = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Nanos, true);
    hasher.update(moment.as_bytes());
    hasher.update(&std::process::id().to_le_bytes());
    hasher.finalize().to_hex()[..32].to_owned()
}

/// Holds every other process off the batches of a ledger, as long as the file lives.
async fn lock(ledger: &Ledger) -> Result<File, BatchSubmitterError> {
    let path = ledger.beside(".batches.lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(std::fs::TryLockError::Error(e)) => return Err(e.into()),
            Err(std::fs::TryLockError::WouldBlock) if started.elapsed() > PATIENCE => {
                return Err(BatchSubmitterError::Busy);
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
