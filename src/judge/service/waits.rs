//! How long calls wait: between tries, for their endpoint, and never beyond the deadline of the run.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::refusals::Refusals;
use super::{Asking, JudgeService, Unanswered};
use crate::judge::breaker::{Breaker, BreakerRules};
use crate::judge::call::{CallError, CallHash, Reply};
use crate::judge::concurrency_limit::ConcurrencyLimit;
use crate::judge::retries::Retries;

/// What is known of an endpoint's state, for all calls to it.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub breaker: Breaker,
    pub limit: ConcurrencyLimit,
    pub refusals: Refusals,
}

impl Endpoint {
    pub fn new(rules: BreakerRules, retries: &Retries) -> Arc<Self> {
        Arc::new(Self {
            breaker: Breaker::new(rules),
            limit: ConcurrencyLimit::default(),
            refusals: Refusals::new(retries.away),
        })
    }
}

impl JudgeService {
    /// What comes in time; the run's deadline ends the wait for it.
    pub(super) async fn in_time<T>(
        &self,
        awaited: impl Future<Output = T>,
    ) -> Result<T, Unanswered> {
        match self.deadline {
            None => Ok(awaited.await),
            Some(deadline) => {
                let came = tokio::time::timeout_at(deadline, awaited).await;
                came.map_err(|_| Unanswered::DeadlinePassed)
            }
        }
    }

    /// The same, unless asking the call's model is over before.
    pub(super) async fn in_time_for<T>(
        &self,
        asking: &Asking<'_>,
        awaited: impl Future<Output = T>,
    ) -> Result<T, Unanswered> {
        let Some(refusals) = asking.refusals else {
            return self.in_time(awaited).await;
        };
        let awaited = refusals.unless_over(&asking.call.model, awaited);
        self.in_time(awaited).await?.map_err(Unanswered::Stopped)
    }

    /// Waits while another run asks the same; the answer, if that brought one.
    pub(super) async fn wait_for_other(
        &self,
        hash: &CallHash,
    ) -> Result<Option<Reply>, Unanswered> {
        let patience = self.parts.retries.others.max(self.parts.timeout * 2);
        let started = Instant::now();
        let mut pause = Duration::from_millis(20);
        loop {
            if let Some(reply) = self.known(hash)? {
                return Ok(Some(reply));
            }
            if !self.asked_elsewhere(hash)? {
                return Ok(None);
            }
            if started.elapsed() > patience {
                return Err(Unanswered::AskedElsewhere);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Whether a call may still be begun.
    pub(super) fn check_deadline(&self) -> Result<(), Unanswered> {
        match self.deadline {
            Some(deadline) if deadline <= Instant::now() => Err(Unanswered::DeadlinePassed),
            _ => Ok(()),
        }
    }

    /// Sleeps, unless that would end after the deadline.
    pub(super) async fn rest(&self, wait: Duration) -> Result<(), Unanswered> {
        let until = Instant::now() + wait;
        if self.deadline.is_some_and(|deadline| until > deadline) {
            return Err(Unanswered::DeadlinePassed);
        }
        tokio::time::sleep_until(until).await;
        Ok(())
    }

    /// The pause of the endpoint after a failed try; see [`Retries::asked_pause`].
    pub(super) fn pause(
        &self,
        error: &CallError,
        hash: &CallHash,
        attempt: u32,
    ) -> Option<Duration> {
        let asked = error.retry_after.filter(|_| error.kind.passes());
        self.parts.retries.asked_pause(asked, hash, attempt)
    }

    /// How long a call rests that found no connection. Before the endpoint has ever said anything, that is a moment: it tells a
    /// place where nobody is from one that was busy.
    pub(super) fn wait_for_connection(&self, asking: &Asking<'_>, unconnected: u32) -> Duration {
        const MOMENT: Duration = Duration::from_millis(250);
        let wait = self.parts.retries.backoff(asking.hash, unconnected);
        match asking.refusals.is_some_and(Refusals::answered) {
            true => wait,
            false => wait.min(MOMENT),
        }
    }

    /// How long a call rests by itself before its next try. Where its endpoint pauses for longer than a first wait, that is all.
    pub(super) fn wait_after(&self, error: &CallError, hash: &CallHash, attempt: u32) -> Duration {
        match self.pause(error, hash, attempt) {
            None => self.parts.retries.backoff(hash, attempt),
            Some(pause) => {
                let first = self.parts.retries.backoff(hash, 1);
                match pause < first {
                    true => first,
                    false => Duration::ZERO,
                }
            }
        }
    }
}
