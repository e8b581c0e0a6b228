//! Limits on requests and tokens within any window of a minute.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// Requests and tokens that may start within any window; `None` is no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateLimits {
    /// Requests in any minute.
    pub requests: Option<u64>,
    /// Tokens in any minute: the question as it is usually counted, and the largest reply.
    pub tokens: Option<u64>,
}

/// Lets calls through so that no window of time ever holds more than the limits allow. First come, first served.
#[derive(Debug)]
pub struct RateGate {
    limits: RateLimits,
    window: Duration,
    started: Mutex<Started>,
}

#[derive(Debug, Default)]
struct Started {
    calls: VecDeque<(Instant, u64)>,
    tokens: u64,
}

/// A call that is larger than a whole window's tokens.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("the call needs {needed} tokens, more than --tokens-per-minute {limit} ever lets through")]
pub struct TooLargeForLimit {
    needed: u64,
    limit: u64,
}

/// A minute, and a little more for the way to the endpoint: what is spaced here must be spaced there.
const WINDOW: Duration = Duration::from_millis(60_500);

impl RateGate {
    /// A gate for windows of a minute.
    pub fn new(limits: RateLimits) -> Self {
        Self::with_window(limits, WINDOW)
    }

    pub(super) fn with_window(limits: RateLimits, window: Duration) -> Self {
        Self {
            limits,
            window,
            started: Mutex::default(),
        }
    }

    /// Waits until a call of so many tokens may start, and counts it.
    ///
    /// # Errors
    /// If no wait would be long enough.
    pub async fn pass(&self, tokens: u64) -> Result<(), TooLargeForLimit> {
        if self.limits.requests.is_none() && self.limits.tokens.is_none() {
            return Ok(());
        }
        if let Some(limit) = self.limits.tokens.filter(|limit| tokens > *limit) {
            return Err(TooLargeForLimit {
                needed: tokens,
                limit,
            });
        }
        // The lock is fair and is held while waiting: nobody overtakes.
        let mut started = self.started.lock().await;
        loop {
            let now = Instant::now();
            while let Some((at, spent)) = started.calls.front().copied() {
                if now.duration_since(at) < self.window {
                    break;
                }
                started.calls.pop_front();
                started.tokens -= spent;
            }
            let full = self
                .limits
                .requests
                .is_some_and(|limit| started.calls.len() as u64 >= limit)
                || self
                    .limits
                    .tokens
                    .is_some_and(|limit| started.tokens + tokens > limit);
            match started.calls.front() {
                Some((oldest, _)) if full => tokio::time::sleep_until(*oldest + self.window).await,
                _ => break,
            }
        }
        started.calls.push_back((Instant::now(), tokens));
        started.tokens += tokens;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn no_window_ever_holds_more_than_the_limits() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let window = Duration::from_millis(80);
            let limits = RateLimits {
                requests: Some(5),
                tokens: Some(40),
            };
            let gate = Arc::new(RateGate::with_window(limits, window));
            let passed = Arc::new(std::sync::Mutex::new(Vec::new()));
            let tasks: Vec<_> = (0..24u64)
                .map(|i| {
                    let (gate, passed) = (Arc::clone(&gate), Arc::clone(&passed));
                    tokio::spawn(async move {
                        let tokens = 1 + i * 7 % 20;
                        gate.pass(tokens).await.unwrap();
                        passed
                            .lock()
                            .unwrap()
                            .push((std::time::Instant::now(), tokens));
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(
                gate.pass(41).await,
                Err(TooLargeForLimit {
                    needed: 41,
                    limit: 40
                })
            );
            let mut passed = passed.lock().unwrap().clone();
            passed.sort();
            // A task may be seen a moment after it was let through.
            let within = window - Duration::from_millis(15);
            for (first, _) in &passed {
                let inside = passed
                    .iter()
                    .filter(|(at, _)| at >= first && *at - *first < within);
                let (count, tokens) = inside.fold((0, 0), |(n, sum), (_, t)| (n + 1, sum + t));
                assert!(
                    count <= 5 && tokens <= 40,
                    "{count} calls, {tokens} tokens in a window"
                );
            }
        });
    }
}
