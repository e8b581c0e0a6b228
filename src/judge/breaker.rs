//! A circuit breaker: an endpoint that is down is left alone for a while instead of being hammered by every row.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct BreakerRules {
    /// Failures in a row that open it.
    pub failures: u32,
    /// The first rest; it doubles each time a probe fails.
    pub rest: Duration,
    /// The longest rest.
    pub longest_rest: Duration,
    /// Rests in a row after which the endpoint is given up for the rest of the run.
    pub rests: u32,
}

impl Default for BreakerRules {
    fn default() -> Self {
        Self {
            failures: 10,
            rest: Duration::from_secs(5),
            longest_rest: Duration::from_secs(120),
            rests: 6,
        }
    }
}

/// The breaker of one endpoint.
#[derive(Debug)]
pub struct Breaker {
    rules: BreakerRules,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What the last failure said.
    last: String,
    failures: u32,
    rests: u32,
    /// Open until then; afterwards one probe may go.
    open_until: Option<Instant>,
    probing: bool,
}

/// The endpoint was given up.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error(
    "the endpoint did not recover; nothing more is sent to it in this run; it last said: {last}"
)]
pub struct GivenUp {
    /// What the last failure said.
    pub last: String,
}

/// Leave to send one call; says how the call went when it has gone.
#[derive(Debug)]
pub struct Leave<'b> {
    breaker: &'b Breaker,
    probe: bool,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(rules: BreakerRules) -> Self {
        Self {
            rules,
            state: Mutex::default(),
        }
    }

    /// Waits while the breaker is open.
    ///
    /// # Errors
    /// [`GivenUp`] once the endpoint has failed for good.
    pub async fn leave(&self) -> Result<Leave<'_>, GivenUp> {
        loop {
            let wait = {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                if state.rests > self.rules.rests {
                    return Err(GivenUp {
                        last: state.last.clone(),
                    });
                }
                let now = Instant::now();
                match state.open_until {
                    None => {
                        return Ok(Leave {
                            breaker: self,
                            probe: false,
                        });
                    }
                    Some(until) if now >= until && !state.probing => {
                        state.probing = true;
                        return Ok(Leave {
                            breaker: self,
                            probe: true,
                        });
                    }
                    // Somebody probes: look again soon.
                    Some(until) => until
                        .saturating_duration_since(now)
                        .max(Duration::from_millis(20)),
                }
            };
            tokio::time::sleep(wait).await;
        }
    }
}

impl Leave<'_> {
    /// The endpoint answered, be it with a refusal.
    pub fn answered(self) {
        let mut state = self
            .breaker
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *state = State::default();
        drop(state);
        std::mem::forget(self);
    }

    /// The endpoint could not answer.
    pub fn failed(self, message: &str) {
        let rules = self.breaker.rules;
        let mut state = self
            .breaker
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        state.failures += 1;
        message.clone_into(&mut state.last);
        let opens = state.open_until.is_none() && state.failures >= rules.failures;
        if self.probe || opens {
            let rest = rules
                .rest
                .saturating_mul(1 << state.rests.min(16))
                .min(rules.longest_rest);
            state.rests += 1;
            state.open_until = Some(Instant::now() + rest);
            state.probing = false;
            tracing::warn!(
                seconds = rest.as_secs_f64(),
                message,
                "the judge's endpoint fails; waiting"
            );
        }
        drop(state);
        std::mem::forget(self);
    }
}

impl Drop for Leave<'_> {
    /// A call that was given up before its end: another one may probe.
    fn drop(&mut self) {
        if self.probe {
            let mut state = self
                .breaker
                .state
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            state.probing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_probes_closes_and_gives_up() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let rest = Duration::from_millis(30);
            let rules = BreakerRules {
                failures: 3,
                rest,
                longest_rest: rest,
                rests: 2,
            };
            let breaker = Breaker::new(rules);
            for _ in 0..3 {
                breaker.leave().await.unwrap().failed("down");
            }
            let opened = Instant::now();
            let probe = breaker.leave().await.unwrap();
            assert!(
                opened.elapsed() >= Duration::from_millis(25),
                "it did not rest"
            );
            let second = tokio::time::timeout(Duration::from_millis(50), breaker.leave());
            assert!(second.await.is_err(), "two calls probe at once");
            drop(probe);
            breaker.leave().await.unwrap().answered();
            // Closed again: calls go through at once, side by side.
            let (a, b) = (
                breaker.leave().await.unwrap(),
                breaker.leave().await.unwrap(),
            );
            a.answered();
            b.failed("down");
            for _ in 0..2 {
                breaker.leave().await.unwrap().failed("down");
            }
            breaker.leave().await.unwrap().failed("down");
            breaker.leave().await.unwrap().failed("down");
            let given_up = breaker.leave().await.unwrap_err();
            assert_eq!(given_up.last, "down");
        });
    }
}
