//! Hard caps on calls, tokens and money.
//!
//! A call is paid for before it starts, with the most that it can cost; what it did cost replaces that when it is answered.
//! So no order of events lets the sums pass a cap.

use std::sync::{Mutex, PoisonError};

use super::call::{Call, Usage};
use super::price::Price;

/// Most that a run may spend; `None` is no cap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Caps {
    /// Attempts at calls.
    pub calls: Option<u64>,
    /// Tokens of questions and replies.
    pub tokens: Option<u64>,
    /// US dollars.
    pub cost: Option<f64>,
}

/// What a run has spent and set aside.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Attempts at calls.
    pub calls: u64,
    /// Tokens.
    pub tokens: u64,
    /// US dollars.
    pub cost: f64,
}

/// A call that would pass a cap.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("the next call could pass the cap {cap}")]
pub struct CapReached {
    /// The flag of the cap.
    pub cap: &'static str,
}

/// The caps of a run and what is left of them.
#[derive(Debug)]
pub struct Budget {
    caps: Caps,
    spent: Mutex<Spent>,
}

/// Room that was set aside for one call. Must be settled; a dropped one stays spent.
#[derive(Debug)]
#[must_use]
pub struct SetAside {
    tokens: u64,
    cost: f64,
}

impl Budget {
    /// A budget of which nothing is spent.
    pub fn new(caps: Caps) -> Self {
        Self {
            caps,
            spent: Mutex::default(),
        }
    }

    /// Sets the most aside that a call can cost. A model without a price can't be held below a cap on money.
    ///
    /// # Errors
    /// [`CapReached`].
    pub fn set_aside(&self, call: &Call, price: Option<Price>) -> Result<SetAside, CapReached> {
        let most = Usage {
            prompt: call.most_prompt_tokens(),
            completion: u64::from(call.max_output_tokens),
            cached: 0,
        };
        let cost = match (price, self.caps.cost) {
            (Some(price), _) => price.of(most),
            (None, None) => 0.0,
            (None, Some(_)) => return Err(CapReached { cap: "--max-cost" }),
        };
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if self.caps.calls.is_some_and(|cap| spent.calls + 1 > cap) {
            return Err(CapReached { cap: "--max-calls" });
        }
        if self
            .caps
            .tokens
            .is_some_and(|cap| spent.tokens + most.total() > cap)
        {
            return Err(CapReached {
                cap: "--max-tokens",
            });
        }
        if self.caps.cost.is_some_and(|cap| spent.cost + cost > cap) {
            return Err(CapReached { cap: "--max-cost" });
        }
        spent.calls += 1;
        spent.tokens += most.total();
        spent.cost += cost;
        Ok(SetAside {
            tokens: most.total(),
            cost,
        })
    }

    /// Replaces what was set aside by what the call used. Without a count by the provider the most stays spent: it may have been
    /// billed.
    pub fn settle(&self, aside: SetAside, usage: Option<Usage>, price: Option<Price>) {
        let Some(usage) = usage else { return };
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.tokens = spent.tokens - aside.tokens + usage.total();
        spent.cost = spent.cost - aside.cost + price.map_or(0.0, |price| price.of(usage));
    }

    /// Takes back what was set aside for a call that was never sent.
    pub fn give_back(&self, aside: SetAside) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.calls -= 1;
        spent.tokens -= aside.tokens;
        spent.cost -= aside.cost;
    }

    /// What is spent or set aside.
    pub fn spent(&self) -> Spent {
        *self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::call::tests::call;
    use super::*;

    const PRICE: Price = Price {
        input: 3.0,
        output: 12.0,
        cached_input: None,
    };

    proptest! {
        /// Whatever starts and ends in whatever order: caps hold at every moment, and at the end what is spent is what was used.
        #[test]
        fn caps_hold_under_any_interleaving(
            events in proptest::collection::vec((0usize..400, 0u64..100, any::<bool>(), any::<prop::sample::Index>()), 1..200),
            calls in 1u64..60,
            tokens in 1u64..20_000,
            cost in 0.0f64..0.2,
        ) {
            let caps = Caps { calls: Some(calls), tokens: Some(tokens), cost: Some(cost) };
            let budget = Budget::new(caps);
            let mut open = Vec::new();
            let (mut used_calls, mut used_tokens, mut used_cost) = (0, 0, 0.0);
            let mut settle = |(aside, usage): (SetAside, Option<Usage>)| {
                budget.settle(aside, usage, Some(PRICE));
                used_tokens += usage.map_or(0, Usage::total);
                used_cost += usage.map_or(0.0, |u| PRICE.of(u));
            };
            for (length, completion, counted, which) in events {
                let call = call(&"x".repeat(length));
                if let Ok(aside) = budget.set_aside(&call, Some(PRICE)) {
                    if length % 7 == 0 {
                        // It is not sent after all.
                        budget.give_back(aside);
                        continue;
                    }
                    used_calls += 1;
                    let usage = Usage { prompt: call.usual_prompt_tokens(), completion, cached: 0 };
                    open.push((aside, counted.then_some(usage)));
                }
                if open.len() > 5 {
                    let at = which.index(open.len());
                    settle(open.swap_remove(at));
                }
                let spent = budget.spent();
                prop_assert!(spent.calls <= calls && spent.tokens <= tokens && spent.cost <= cost + 1e-12);
            }
            open.into_iter().for_each(&mut settle);
            let spent = budget.spent();
            prop_assert_eq!(spent.calls, used_calls);
            // Calls that were not counted stay at their most.
            prop_assert!(spent.tokens >= used_tokens && spent.cost >= used_cost - 1e-9);
        }
    }

    #[test]
    fn a_model_without_price_is_refused_under_a_cap_on_money_only() {
        let capped = Budget::new(Caps {
            cost: Some(100.0),
            ..Caps::default()
        });
        assert_eq!(
            capped.set_aside(&call("a"), None).unwrap_err().cap,
            "--max-cost"
        );
        let free = Budget::new(Caps {
            calls: Some(1),
            ..Caps::default()
        });
        let aside = free.set_aside(&call("a"), None).unwrap();
        free.settle(
            aside,
            Some(Usage {
                prompt: 3,
                completion: 2,
                cached: 0,
            }),
            None,
        );
        assert_eq!(
            free.spent(),
            Spent {
                calls: 1,
                tokens: 5,
                cost: 0.0
            }
        );
        assert_eq!(
            free.set_aside(&call("a"), None).unwrap_err().cap,
            "--max-calls"
        );
    }
}
