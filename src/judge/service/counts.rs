//! How many calls came from where.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Unanswered;

/// How many calls came from where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CallCounts {
    /// Calls asked for; equal ones that are under way at once count once.
    pub asked: u64,
    /// Answered by the ledger: in earlier runs, or earlier in this one.
    pub from_ledger: u64,
    /// Sent to an endpoint, counting every attempt.
    pub sent: u64,
    /// Answered by an endpoint.
    pub answered: u64,
    /// Failed for good.
    pub failed: u64,
    /// Not sent, because a cap or the deadline was reached, nothing may be sent, they wait for a batch, or another run asks them.
    pub withheld: u64,
    /// Those of them that a cap held back.
    pub capped: u64,
    /// Those of them that another run was asking.
    pub asked_elsewhere: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    asked: AtomicU64,
    pub from_ledger: AtomicU64,
    pub sent: AtomicU64,
    pub answered: AtomicU64,
    failed: AtomicU64,
    withheld: AtomicU64,
    capped: AtomicU64,
    asked_elsewhere: AtomicU64,
}

impl Counters {
    /// Counts a call that was asked for, and its end; none if it has an answer. A form of it that the endpoint does not take
    /// is no call of its own: the same question follows in another form.
    pub fn end(&self, unanswered: Option<&Unanswered>) {
        if unanswered.is_some_and(Unanswered::is_of_format) {
            return;
        }
        self.asked.fetch_add(1, Relaxed);
        let Some(unanswered) = unanswered else {
            return;
        };
        let counter = match unanswered.pending() {
            true => &self.withheld,
            false => &self.failed,
        };
        counter.fetch_add(1, Relaxed);
        let reason = match unanswered {
            Unanswered::Capped(_) => &self.capped,
            Unanswered::AskedElsewhere => &self.asked_elsewhere,
            _ => return,
        };
        reason.fetch_add(1, Relaxed);
    }

    pub fn counts(&self) -> CallCounts {
        CallCounts {
            asked: self.asked.load(Relaxed),
            from_ledger: self.from_ledger.load(Relaxed),
            sent: self.sent.load(Relaxed),
            answered: self.answered.load(Relaxed),
            failed: self.failed.load(Relaxed),
            withheld: self.withheld.load(Relaxed),
            capped: self.capped.load(Relaxed),
            asked_elsewhere: self.asked_elsewhere.load(Relaxed),
        }
    }

    /// Before every question is asked anew: the last time is what counts.
    pub fn ask_anew(&self) {
        for counter in [
            &self.asked,
            &self.from_ledger,
            &self.failed,
            &self.withheld,
            &self.capped,
            &self.asked_elsewhere,
        ] {
            counter.store(0, Relaxed);
        }
    }
}
