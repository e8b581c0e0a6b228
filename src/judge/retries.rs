//! Trying again: how often, and how long to rest before; for single calls and for requests about batches alike.

use std::fmt::Display;
use std::time::Duration;

/// How calls that fail for a time are repeated.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// Tries of one call, at most.
    pub attempts: u32,
    /// The first wait; it doubles.
    pub wait: Duration,
    /// The longest wait of our own; a longer one that the provider asks for is honoured.
    pub longest_wait: Duration,
    /// A wait asked for beyond this fails the call instead.
    pub patience: Duration,
    /// How long another run that is asking the same is waited for, and at least twice as long as one answer may take.
    pub others: Duration,
    /// Whether a clear refusal ends the asking: of a key, of a model, or of all connections. What was not asked is pending then.
    pub stop: bool,
    /// How long an endpoint that has answered in the run may be away before nothing more is asked there.
    pub away: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            attempts: 5,
            wait: Duration::from_secs(1),
            longest_wait: Duration::from_secs(60),
            patience: Duration::from_secs(600),
            others: Duration::from_secs(300),
            stop: true,
            away: Duration::from_secs(60),
        }
    }
}

impl Retries {
    /// The pause that a provider asks for, and up to a quarter more, so that programs that were turned away together do not
    /// come back together. None if it asks for no wait, or for one that nobody waits for. `seed` names what is tried.
    pub(super) fn asked_pause(
        &self,
        asked: Option<Duration>,
        seed: &dyn Display,
        attempt: u32,
    ) -> Option<Duration> {
        let asked = asked.filter(|asked| !asked.is_zero() && *asked <= self.patience)?;
        Some(asked.mul_f64(1.0 + share(seed, attempt) / 4.0))
    }

    /// Doubling waits, each between a half and the whole of its length: what failed together must not come back together.
    pub(super) fn backoff(&self, seed: &dyn Display, attempt: u32) -> Duration {
        let whole = self
            .wait
            .saturating_mul(1 << attempt.saturating_sub(1).min(16))
            .min(self.longest_wait);
        whole.mul_f64(0.5 + share(seed, attempt) / 2.0)
    }

    /// Whether a provider asks for a wait that nobody waits for.
    pub(super) fn is_too_long(&self, asked: Option<Duration>) -> bool {
        asked > Some(self.patience)
    }
}

/// From 0 to 1, by chance as it were, and the same each time.
fn share(seed: &dyn Display, attempt: u32) -> f64 {
    let digest = blake3::hash(format!("{seed} {attempt}").as_bytes());
    f64::from(digest.as_bytes()[0]) / 255.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_and_are_never_equal_for_all() {
        let retries = Retries::default();
        let waits = |attempt| -> Vec<Duration> {
            let seeds = 0..50;
            seeds.map(|seed| retries.backoff(&seed, attempt)).collect()
        };
        for attempt in 1..=10 {
            let whole = SECOND * (1 << (attempt - 1)).min(60);
            let waits = waits(attempt);
            assert!(
                waits
                    .iter()
                    .all(|wait| *wait >= whole / 2 && *wait <= whole)
            );
            assert!(waits.iter().any(|wait| *wait != waits[0]));
        }
    }

    #[test]
    fn a_provider_gets_the_wait_that_it_asks_for() {
        let retries = Retries::default();
        let pause = |asked| retries.asked_pause(asked, &"batch", 1);
        let ten = pause(Some(SECOND * 10)).unwrap();
        assert!(ten >= SECOND * 10 && ten <= SECOND * 10 * 5 / 4, "{ten:?}");
        for none in [None, Some(Duration::ZERO), Some(SECOND * 86_400)] {
            assert_eq!(pause(none), None);
        }
        assert!(retries.is_too_long(Some(SECOND * 86_400)));
        assert!(!retries.is_too_long(Some(SECOND)) && !retries.is_too_long(None));
    }
}
