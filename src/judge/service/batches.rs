//! The part of the service that goes on with batches between the rounds of a run.

use std::time::{Duration, Instant};

use super::JudgeService;
use crate::judge::batch::{BatchCounts, BatchSubmitter, BatchSubmitterError};
use crate::judge::ledger::LedgerError;

impl JudgeService {
    /// What comes back from batches of earlier runs, before this one asks.
    ///
    /// # Errors
    /// [`BatchSubmitterError`].
    pub async fn collect_batches(&self) -> Result<(), BatchSubmitterError> {
        if let Some(submitter) = &self.parts.batches {
            submitter.collect(Some(&self.parts.budget)).await?;
        }
        Ok(())
    }

    /// Submits the calls that wait for a batch, and waits for results until that moment, looking every `pause`. True if
    /// something came, so that asking again brings further.
    ///
    /// # Errors
    /// [`BatchSubmitterError`].
    pub async fn go_on_with_batches(
        &self,
        until: Instant,
        pause: Duration,
    ) -> Result<bool, BatchSubmitterError> {
        let Some(submitter) = &self.parts.batches else {
            return Ok(false);
        };
        let until = match self.deadline {
            None => until,
            Some(deadline) => until.min(deadline.into_std()),
        };
        let left_out = submitter.submit(&self.parts.budget).await?;
        if until <= Instant::now() {
            return Ok(false);
        }
        let collected = submitter
            .wait(until, pause, Some(&self.parts.budget))
            .await?;
        let mut further = collected.answered + collected.failed + collected.again > 0;
        let elsewhere = left_out + self.counters.counts().asked_elsewhere;
        let left = until.saturating_duration_since(Instant::now());
        if !further && elsewhere > 0 && !left.is_zero() {
            // Other runs will have answered some of it.
            tokio::time::sleep(pause.min(left)).await;
            further = true;
        }
        if further {
            self.counters.ask_anew();
        }
        Ok(further)
    }

    /// What batches came to so far; none if this service submits none.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn batches(&self) -> Result<Option<BatchCounts>, LedgerError> {
        self.parts
            .batches
            .as_ref()
            .map(BatchSubmitter::counts)
            .transpose()
    }
}
