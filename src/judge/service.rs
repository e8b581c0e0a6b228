//! The judge service: answers calls from the ledger first, else from the endpoint, inside budget and limits.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OnceCell, Semaphore};

use super::batch::{BatchSubmitter, PutError};
use super::breaker::BreakerRules;
use super::budget::{Budget, Spent};
use super::call::{Call, CallError, CallErrorKind, CallHash, Judge, Reply, Usage};
use super::concurrency_limit::{Ticket, TooLate};
use super::ledger::{Attempt, CallLabel, InBatch, Ledger, LedgerError};
use super::price::{Price, PriceTable};
use super::rate::RateGate;
use super::retries::Retries;
use super::secret::Secrets;

mod batches;
mod counts;
mod refusals;
mod unanswered;
mod waits;

pub use counts::CallCounts;
use counts::Counters;
use refusals::Refusals;
pub use unanswered::Unanswered;
use waits::Endpoint;

/// Times that a call may find no connection before that counts as a failure of its own: the endpoint comes and goes.
const MOST_UNCONNECTED: u32 = 20;

/// What a service is made of.
pub struct ServiceParts {
    /// Answers calls; `None` answers from the ledger alone.
    pub judge: Option<Arc<dyn Judge>>,
    /// Gathers calls for batches, instead of a judge that answers.
    pub batches: Option<BatchSubmitter>,
    /// Where the model is asked; decides hashes when there is no judge.
    pub endpoint: Arc<dyn Fn(&str) -> String + Send + Sync>,
    /// Keeps every call.
    pub ledger: Arc<Ledger>,
    /// Caps; several services of a run share them.
    pub budget: Arc<Budget>,
    /// Limits by the minute, shared too.
    pub gate: Arc<RateGate>,
    /// Prices.
    pub prices: PriceTable,
    /// Retries.
    pub retries: Retries,
    /// The breaker's rules, for each endpoint.
    pub breaker: BreakerRules,
    /// Calls under way at once.
    pub concurrency: usize,
    /// Longest wait for one answer.
    pub timeout: Duration,
    /// After so long, from the making of the service on, no call is begun and no wait that would end later.
    pub deadline: Option<Duration>,
    /// What an endpoint's address may hold and the ledger must not.
    pub secrets: Secrets,
}

/// A call on its way.
#[derive(Clone, Copy)]
struct Asking<'a> {
    call: &'a Call,
    endpoint: &'a str,
    hash: &'a CallHash,
    label: CallLabel<'a>,
    price: Option<Price>,
    /// The state of the endpoint and the call's place there; none for calls that are never held back.
    through: Option<(&'a Endpoint, Ticket)>,
    /// What the endpoint refused; none for calls that no refusal ends.
    refusals: Option<&'a Refusals>,
}

impl Asking<'_> {
    /// Whether the model may still be asked.
    fn check(&self) -> Result<(), Unanswered> {
        let over = self.refusals.and_then(|r| r.over(&self.call.model));
        over.map_or(Ok(()), |over| Err(Unanswered::Stopped(over)))
    }
}

/// What came of sending a call.
enum Sent {
    Answered(Reply),
    Failed(CallError),
    /// It was not sent, since another run is just asking the same.
    TakenElsewhere,
}

fn in_ledger(error: LedgerError) -> Unanswered {
    Unanswered::Ledger(error.to_string())
}

type Slot = Arc<OnceCell<Result<Reply, Unanswered>>>;

/// Answers calls; shared by all rows of a run.
pub struct JudgeService {
    parts: ServiceParts,
    permits: Semaphore,
    deadline: Option<tokio::time::Instant>,
    endpoints: Mutex<HashMap<String, Arc<Endpoint>>>,
    under_way: Mutex<HashMap<CallHash, Slot>>,
    counters: Counters,
}

impl std::fmt::Debug for JudgeService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JudgeService")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

impl JudgeService {
    /// A service of these parts.
    pub fn new(parts: ServiceParts) -> Self {
        Self {
            permits: Semaphore::new(parts.concurrency.max(1)),
            deadline: parts
                .deadline
                .and_then(|after| tokio::time::Instant::now().checked_add(after)),
            parts,
            endpoints: Mutex::default(),
            under_way: Mutex::default(),
            counters: Counters::default(),
        }
    }

    /// The answer to a call. Equal calls that are under way at once are sent once.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn answer(&self, call: &Call, label: CallLabel<'_>) -> Result<Reply, Unanswered> {
        self.answer_within(call, label, Some(self.parts.retries.attempts))
            .await
    }

    /// The same, where whoever asks counts failed calls itself: none is repeated here, and an endpoint that fails, or asks for a
    /// wait, holds none back. What counts as a failed call was made.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn answer_to_one_call(
        &self,
        call: &Call,
        label: CallLabel<'_>,
    ) -> Result<Reply, Unanswered> {
        self.answer_within(call, label, None).await
    }

    async fn answer_within(
        &self,
        call: &Call,
        label: CallLabel<'_>,
        attempts: Option<u32>,
    ) -> Result<Reply, Unanswered> {
        let endpoint = (self.parts.endpoint)(&call.model);
        let hash = call.hash(&endpoint);
        let slot = {
            let mut under_way = self
                .under_way
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            Arc::clone(under_way.entry(hash.clone()).or_default())
        };
        let answer = slot
            .get_or_init(|| async {
                let answer = self
                    .find_or_send(call, &endpoint, &hash, label, attempts)
                    .await;
                self.counters.end(answer.as_ref().err());
                answer
            })
            .await
            .clone();
        // Later askers find an answer in the ledger. A failure is forgotten, so that it is no verdict on other rows.
        let mut under_way = self
            .under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if under_way
            .get(&hash)
            .is_some_and(|kept| Arc::ptr_eq(kept, &slot))
        {
            under_way.remove(&hash);
        }
        answer
    }

    async fn find_or_send(
        &self,
        call: &Call,
        endpoint: &str,
        hash: &CallHash,
        label: CallLabel<'_>,
        attempts: Option<u32>,
    ) -> Result<Reply, Unanswered> {
        if let Some(reply) = self.known(hash)? {
            return Ok(reply);
        }
        if let Some(submitter) = &self.parts.batches {
            if self.asked_elsewhere(hash)? {
                return Err(Unanswered::AskedElsewhere);
            }
            self.check_deadline()?;
            return Err(match submitter.put(call, hash, label, &self.parts.budget) {
                Ok(()) => Unanswered::InBatch,
                Err(PutError::Capped(e)) => Unanswered::Capped(e.to_string()),
                Err(PutError::Io(e)) => Unanswered::Ledger(format!(
                    "a question can't be kept beside the ledger: {e}; free its disk"
                )),
            });
        }
        let Some(judge) = &self.parts.judge else {
            return Err(Unanswered::NotInLedger);
        };
        let state = self.endpoint(endpoint);
        let check_format = || match attempts {
            Some(_) => self.check_format(call, hash, &state),
            None => Ok(()),
        };
        check_format()?;
        let asking = Asking {
            call,
            endpoint,
            hash,
            label,
            price: self.parts.prices.of(&call.model),
            through: attempts.map(|_| (state.as_ref(), state.limit.ticket())),
            refusals: attempts
                .filter(|_| self.parts.retries.stop)
                .map(|_| &state.refusals),
        };
        let mut attempt = 1;
        let mut unconnected = 0;
        let mut permit = None;
        loop {
            if self.asked_elsewhere(hash)? {
                // Whoever waits for another run takes nobody's place.
                permit = None;
                if let Some(reply) = self.in_time(self.wait_for_other(hash)).await?? {
                    return Ok(reply);
                }
            }
            if permit.is_none() {
                // The semaphore is never closed.
                permit = self.in_time(self.permits.acquire()).await?.ok();
                check_format()?;
            }
            let error = match self.send(&asking, judge.as_ref(), attempt).await? {
                Sent::Answered(reply) => return Ok(reply),
                Sent::TakenElsewhere => continue,
                Sent::Failed(error) => error,
            };
            if error.kind == CallErrorKind::FormatRejected {
                state.refusals.refuse_format(call, &error.message);
            }
            if let Some(refusals) = asking.refusals {
                refusals.failed(&call.model, &error, unconnected > 0);
                asking.check()?;
                if error.kind == CallErrorKind::NoConnection && unconnected < MOST_UNCONNECTED {
                    // The question never left: that is no try of it.
                    unconnected += 1;
                    let wait = self.wait_for_connection(&asking, unconnected);
                    self.in_time_for(&asking, self.rest(wait)).await??;
                    continue;
                }
            }
            let too_long = self.parts.retries.is_too_long(error.retry_after);
            if !error.kind.passes() || attempt >= attempts.unwrap_or(1) || too_long {
                return Err(Unanswered::Failed {
                    code: error.kind.code(),
                    message: error.message,
                });
            }
            let wait = self.wait_after(&error, hash, attempt);
            tracing::debug!(%hash, attempt, seconds = wait.as_secs_f64(), error = %error.message, "trying again");
            self.in_time_for(&asking, self.rest(wait)).await??;
            attempt += 1;
        }
    }

    fn endpoint(&self, address: &str) -> Arc<Endpoint> {
        let mut endpoints = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fresh = || Endpoint::new(self.parts.breaker, &self.parts.retries);
        Arc::clone(endpoints.entry(address.to_owned()).or_insert_with(fresh))
    }

    /// A reply format that the endpoint refused in this run is not sent there again: the ledger says so at once, as if it
    /// had been.
    fn check_format(
        &self,
        call: &Call,
        hash: &CallHash,
        endpoint: &Endpoint,
    ) -> Result<(), Unanswered> {
        let Some(message) = endpoint.refusals.format(call) else {
            return Ok(());
        };
        let ledger = &self.parts.ledger;
        ledger.refuse_format(hash, &message).map_err(in_ledger)?;
        Err(Unanswered::Failed {
            code: CallErrorKind::FormatRejected.code(),
            message,
        })
    }

    /// Sends a call once, when breaker, endpoint, budget, rates and other runs let it. The question is claimed only while it is
    /// under way: a run that waits for its turn holds up no other. Room in the budget is held only by calls that have all else
    /// that they wait for: it is put back without anybody's help.
    async fn send(
        &self,
        asking: &Asking<'_>,
        judge: &dyn Judge,
        attempt: u32,
    ) -> Result<Sent, Unanswered> {
        let Asking {
            call,
            hash,
            price,
            through,
            ..
        } = *asking;
        let budget = &self.parts.budget;
        self.check_deadline()?;
        asking.check()?;
        let leave = match through {
            None => None,
            Some((endpoint, _)) => {
                let leave = self.in_time_for(asking, endpoint.breaker.leave()).await?;
                Some(leave.map_err(|e| Unanswered::Failed {
                    code: "endpoint_down",
                    message: e.to_string(),
                })?)
            }
        };
        let tokens = call.usual_prompt_tokens() + u64::from(call.max_output_tokens);
        let (passage, aside) = loop {
            let passage = match through {
                None => None,
                Some((endpoint, ticket)) => {
                    let passed = endpoint.limit.pass(ticket, self.deadline);
                    let passed = self.in_time_for(asking, passed).await?;
                    Some(passed.map_err(|TooLate| Unanswered::DeadlinePassed)?)
                }
            };
            let aside = self
                .in_time_for(asking, budget.set_aside(call, price))
                .await?;
            let aside = aside.map_err(|e| Unanswered::Capped(e.to_string()))?;
            let passed = self.in_time_for(asking, self.parts.gate.pass(tokens)).await;
            let passed = passed.and_then(|passed| {
                passed.map_err(|e| Unanswered::Failed {
                    code: "rate_limit_too_small",
                    message: e.to_string(),
                })
            });
            if let Err(unanswered) = passed.and_then(|()| self.check_deadline()) {
                budget.give_back(aside);
                return Err(unanswered);
            }
            match &passage {
                // The endpoint asked for a wait meanwhile.
                Some(passage) if !passage.is_open() => budget.give_back(aside),
                _ => break (passage, aside),
            }
        };
        let claim = match self.parts.ledger.claim(hash).map_err(in_ledger) {
            Ok(Some(claim)) => claim,
            other => {
                budget.give_back(aside);
                return other.map(|_| Sent::TakenElsewhere);
            }
        };
        if let Err(over) = asking.check() {
            budget.give_back(aside);
            return Err(over);
        }
        // What came before the claim.
        match self.known(hash) {
            Ok(None) => {}
            known => {
                budget.give_back(aside);
                return known.map(|reply| reply.map_or(Sent::TakenElsewhere, Sent::Answered));
            }
        }
        self.counters.sent.fetch_add(1, Relaxed);
        let started = Instant::now();
        let asked = tokio::time::timeout(self.parts.timeout, judge.ask(call)).await;
        let outcome = asked.unwrap_or_else(|_| {
            Err(CallError {
                kind: CallErrorKind::Timeout,
                message: format!("no answer within {} s", self.parts.timeout.as_secs_f64()),
                retry_after: None,
                usage: None,
            })
        });
        let latency = started.elapsed();
        let usage = match &outcome {
            Ok(reply) => reply.usage,
            Err(e) => e.usage.or_else(|| billed_for_failure(e.kind)),
        };
        budget.settle(aside, usage, price);
        if let Some((leave, passage)) = leave.zip(passage) {
            match &outcome {
                Err(e) if e.kind.passes() => {
                    // Calls that left before the endpoint asked for a wait say nothing new of it.
                    let news = match self.pause(e, hash, attempt) {
                        Some(pause) => passage.paused(pause),
                        None => true,
                    };
                    // One that was never there needs no rest: asking it is over soon.
                    let gone = e.kind == CallErrorKind::NoConnection
                        && asking.refusals.is_some_and(|refusals| !refusals.answered());
                    if news && !gone {
                        leave.failed(&e.message);
                    }
                }
                _ => {
                    passage.answered();
                    leave.answered();
                }
            }
        }
        let record = Attempt {
            status: outcome
                .as_ref()
                .map_or_else(|e| e.kind.code(), |_| "answered"),
            message: outcome.as_ref().err().map(|e| e.message.as_str()),
            usage,
            cost: price.zip(usage).map(|(price, usage)| price.of(usage)),
            latency,
        };
        let shown = self.parts.secrets.scrub(asking.endpoint);
        let reply = outcome.as_ref().ok();
        let ledger = &self.parts.ledger;
        ledger
            .record(hash, call, &shown, asking.label, &record, reply)
            .map_err(in_ledger)?;
        Ok(match outcome {
            Ok(reply) => {
                claim.leave();
                self.counters.answered.fetch_add(1, Relaxed);
                if let Some((endpoint, _)) = asking.through {
                    endpoint.refusals.take_format(call);
                }
                asking
                    .refusals
                    .iter()
                    .for_each(|refusals| refusals.replied(&call.model));
                Sent::Answered(reply)
            }
            Err(error) => Sent::Failed(error),
        })
    }

    /// What the ledger knows of a call: its answer, an error if it must not be asked, `None` if it is free.
    fn known(&self, hash: &CallHash) -> Result<Option<Reply>, Unanswered> {
        if let Some(reply) = self.parts.ledger.answer(hash).map_err(in_ledger)? {
            self.counters.from_ledger.fetch_add(1, Relaxed);
            return Ok(Some(reply));
        }
        if let Some(message) = self.parts.ledger.refused_format(hash).map_err(in_ledger)? {
            return Err(Unanswered::Failed {
                code: CallErrorKind::FormatRejected.code(),
                message,
            });
        }
        match self.parts.ledger.in_batch(hash).map_err(in_ledger)? {
            None => Ok(None),
            // Whoever asks it now pays twice.
            Some(InBatch::Waiting) => Err(Unanswered::InBatch),
            Some(InBatch::Failed { kind, message }) => Err(Unanswered::Failed {
                code: kind.code(),
                message,
            }),
        }
    }

    fn asked_elsewhere(&self, hash: &CallHash) -> Result<bool, Unanswered> {
        let ledger = &self.parts.ledger;
        ledger.asked_elsewhere(hash).map_err(in_ledger)
    }

    /// The hash of a call where this service asks it.
    pub fn hash(&self, call: &Call) -> CallHash {
        call.hash(&(self.parts.endpoint)(&call.model))
    }

    /// Whether a call was sent in this run, and not only answered by the ledger.
    ///
    /// # Errors
    /// [`Unanswered::Ledger`].
    pub fn asked_here(&self, call: &Call) -> Result<bool, Unanswered> {
        let asked = self.parts.ledger.asked_here(&self.hash(call));
        asked.map_err(in_ledger)
    }

    /// What came from where so far.
    pub fn counts(&self) -> CallCounts {
        self.counters.counts()
    }

    /// Why endpoints or models were not asked any more, in one line each.
    pub fn stops(&self) -> Vec<String> {
        let endpoints = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let all = endpoints.values().flat_map(|e| e.refusals.all());
        let mut stops: Vec<String> = all.collect();
        stops.sort();
        stops
    }

    /// What is spent or set aside.
    pub fn spent(&self) -> Spent {
        self.parts.budget.spent()
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.parts.ledger
    }
}

/// Tokens billed for a failed call without a count: none if it never reached the endpoint or was refused there, unknown if its
/// answer was lost on the way, not read, or held back.
pub(crate) fn billed_for_failure(kind: CallErrorKind) -> Option<Usage> {
    use CallErrorKind::{Blocked, Connection, Garbled, Timeout, TooLarge};
    match kind {
        Timeout | Connection | Garbled | TooLarge | Blocked => None,
        _ => Some(Usage::default()),
    }
}

#[cfg(test)]
mod tests;
