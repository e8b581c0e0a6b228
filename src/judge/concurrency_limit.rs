//! Where the calls to one endpoint pass one after the other: all stop while the endpoint asks for a wait, and come back few by few.
//!
//! A provider that limits its rate says when to come again. Whoever leaves before that is turned away once more, and if all come at that
//! moment, so are most of them. So nobody leaves during the wait. After it, one call goes; each answer lets one more go at the
//! same time. Calls pass in the order in which they were first put: one that was turned away is the first to go again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The limit of one endpoint.
#[derive(Debug, Default)]
pub struct ConcurrencyLimit {
    tickets: AtomicU64,
    state: Mutex<State>,
    /// Somebody may pass who could not before.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Nobody passes before.
    until: Option<Instant>,
    /// Pauses so far.
    pauses: u64,
    /// Calls under way at once since the last pause, at most; as many as want before the first one.
    width: Option<usize>,
    /// Calls under way that left since the last pause.
    under_way: usize,
    waiting: BTreeSet<u64>,
}

/// The place of a call in the order of those that wait.
#[derive(Clone, Copy, Debug)]
pub struct Ticket(u64);

/// The run ends before the limit would let a call through.
#[derive(Debug, PartialEq)]
pub struct TooLate;

/// A call that has passed and is under way.
#[derive(Debug)]
pub struct Passage<'t> {
    limit: &'t ConcurrencyLimit,
    /// Pauses before it left.
    pauses: u64,
}

/// A call that waits; it leaves the row however it ends.
struct InRow<'t> {
    limit: &'t ConcurrencyLimit,
    ticket: u64,
}

impl Drop for InRow<'_> {
    fn drop(&mut self) {
        self.limit.state().waiting.remove(&self.ticket);
        self.limit.changed.notify_waiters();
    }
}

/// What a call in the row does next.
enum Turn {
    Pass(u64),
    Sleep(Instant),
    Wait,
}

impl ConcurrencyLimit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next place in the order.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Relaxed))
    }

    /// Waits until the call may leave. With a `deadline`, no wait begins that is known to end after it.
    ///
    /// # Errors
    /// [`TooLate`].
    pub async fn pass(
        &self,
        Ticket(ticket): Ticket,
        deadline: Option<Instant>,
    ) -> Result<Passage<'_>, TooLate> {
        self.state().waiting.insert(ticket);
        let _in_row = InRow {
            limit: self,
            ticket,
        };
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            let turn = self.turn(ticket);
            match turn {
                Turn::Pass(pauses) => {
                    return Ok(Passage {
                        limit: self,
                        pauses,
                    });
                }
                Turn::Sleep(until) if deadline.is_some_and(|deadline| until > deadline) => {
                    return Err(TooLate);
                }
                Turn::Sleep(until) => tokio::time::sleep_until(until).await,
                Turn::Wait => match deadline {
                    None => changed.await,
                    Some(deadline) => {
                        let waited = tokio::time::timeout_at(deadline, changed).await;
                        waited.map_err(|_| TooLate)?;
                    }
                },
            }
        }
    }

    fn turn(&self, ticket: u64) -> Turn {
        let mut state = self.state();
        match state.until {
            Some(until) if until > Instant::now() => return Turn::Sleep(until),
            _ => state.until = None,
        }
        let full = state.width.is_some_and(|width| state.under_way >= width);
        if full || state.waiting.first() != Some(&ticket) {
            return Turn::Wait;
        }
        state.under_way += 1;
        Turn::Pass(state.pauses)
    }
}

impl Passage<'_> {
    /// Whether no pause began since the call was let through.
    pub fn is_open(&self) -> bool {
        self.limit.state().pauses == self.pauses
    }

    /// The endpoint answered: there is room for one more beside it.
    pub fn answered(self) {
        let mut state = self.limit.state();
        if state.pauses == self.pauses
            && let Some(width) = &mut state.width
        {
            *width = width.saturating_add(1);
        }
    }

    /// The endpoint asks for this wait. Nobody leaves before it is over. True if this call is the first to be told so since
    /// the last pause; others had left before they could know.
    pub fn paused(self, wait: Duration) -> bool {
        let mut state = self.limit.state();
        let until = Instant::now() + wait;
        state.until = state.until.max(Some(until));
        let first = state.pauses == self.pauses;
        if first {
            state.pauses += 1;
            state.width = Some(1);
            state.under_way = 0;
        }
        first
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.limit.state();
            if state.pauses == self.pauses {
                state.under_way -= 1;
            }
        }
        self.limit.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on(future: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(future);
    }

    const WAIT: Duration = Duration::from_millis(60);
    const MOMENT: Duration = Duration::from_millis(10);

    #[test]
    fn a_pause_holds_all_back_and_few_come_after_it() {
        block_on(async {
            let limit = ConcurrencyLimit::default();
            let pass = async || limit.pass(limit.ticket(), None).await.unwrap();
            // Before the first pause all pass at once.
            let (first, second, third) = (pass().await, pass().await, pass().await);
            assert!(first.is_open());
            let began = Instant::now();
            assert!(first.paused(WAIT));
            assert!(!second.is_open());
            // It left before the pause, and says only that it is not over.
            assert!(!second.paused(MOMENT));
            let one = pass().await;
            assert!(began.elapsed() >= WAIT, "{:?}", began.elapsed());
            // An answer to a call of before says nothing of now.
            third.answered();
            let next = tokio::time::timeout(MOMENT, pass()).await;
            assert!(next.is_err(), "two calls at once after a pause");
            one.answered();
            let (a, b) = (pass().await, pass().await);
            assert!(tokio::time::timeout(MOMENT, pass()).await.is_err());
            drop(a);
            pass().await.answered();
            let (c, d) = (pass().await, pass().await);
            drop((b, c, d));
        });
    }

    #[test]
    fn who_came_first_goes_first() {
        block_on(async {
            let limit = ConcurrencyLimit::default();
            let tickets: Vec<Ticket> = (0..5).map(|_| limit.ticket()).collect();
            let opener = limit.pass(limit.ticket(), None).await.unwrap();
            opener.paused(MOMENT);
            let order = Mutex::new(Vec::new());
            let calls = tickets.iter().rev().map(|ticket| async {
                let passage = limit.pass(*ticket, None).await.unwrap();
                order.lock().unwrap().push(ticket.0);
                passage.answered();
            });
            futures::future::join_all(calls).await;
            assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
        });
    }

    #[test]
    fn no_wait_begins_that_ends_after_the_deadline() {
        block_on(async {
            let limit = ConcurrencyLimit::default();
            let pass = |deadline| limit.pass(limit.ticket(), Some(deadline));
            let soon = Instant::now() + Duration::from_secs(600);
            pass(soon).await.unwrap().paused(Duration::from_secs(3600));
            let asked = Instant::now();
            assert_eq!(pass(soon).await.unwrap_err(), TooLate);
            assert!(asked.elapsed() < Duration::from_secs(60));
        });
    }
}
