//! Hard caps on calls, tokens and money.
//!
//! A call is paid for before it starts, with the most that it can cost; what it did cost replaces that when it is answered.
//! So no order of events lets the sums pass a cap. The most is a token for each byte of the question until the model has
//! counted one; from then on half as much again as the question's characters suggest, by the largest count that was seen. A call for which there is no room only because of what others have set aside
//! waits until they have put it back; it is refused once what is spent for good leaves no room.
//!
//! The law: no call is refused, at any concurrency, where each cap is at least what all calls really use and, for the call
//! with the largest difference, what it could use more than it does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

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

impl Caps {
    /// The first cap that so much would pass.
    fn passed_by(&self, spent: Spent) -> Option<CapReached> {
        let over = |cap: Option<u64>, spent: u64| cap.is_some_and(|cap| spent > cap);
        let passed = [
            ("--max-calls", over(self.calls, spent.calls)),
            ("--max-tokens", over(self.tokens, spent.tokens)),
            ("--max-cost", self.cost.is_some_and(|cap| spent.cost > cap)),
        ];
        let first = passed.into_iter().find(|(_, over)| *over);
        first.map(|(cap, _)| CapReached { cap })
    }
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

impl Spent {
    fn and(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            tokens: self.tokens + other.tokens,
            cost: self.cost + other.cost,
        }
    }
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
    account: Arc<Account>,
}

/// How far a question may pass the largest count that was seen for its like.
const CAUTION: f64 = 1.5;

#[derive(Debug, Default)]
struct Account {
    sums: Mutex<Sums>,
    /// The largest share of counted by likely tokens, by model.
    counted: Mutex<HashMap<String, f64>>,
    /// Something was put back, or spent for good.
    changed: Notify,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// For good.
    settled: Spent,
    /// For calls under way, whose number is its `calls`.
    aside: Spent,
}

impl Account {
    /// Learns from a question that the provider counted.
    fn learn(&self, model: &str, likely: f64, counted: u64) {
        let share = counted as f64 / likely.max(1.0);
        let mut shares = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        match shares.get_mut(model) {
            Some(largest) => *largest = largest.max(share),
            None => drop(shares.insert(model.to_owned(), share)),
        }
    }

    /// The most tokens that a question can have, as far as is known.
    fn most_prompt_tokens(&self, call: &Call) -> u64 {
        let most = call.most_prompt_tokens();
        let shares = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        match shares.get(&call.model) {
            None => most,
            Some(share) => most.min((call.likely_prompt_tokens() * share * CAUTION).ceil() as u64),
        }
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what was set aside for a call; `used` is spent in its place.
    fn end(&self, most: Spent, used: Spent) {
        let mut sums = self.sums();
        sums.settled = sums.settled.and(used);
        let calls = sums.aside.calls - most.calls;
        sums.aside = match calls {
            // Differences of sums of dollars are not exact: nobody may wait for what rounding left.
            0 => Spent::default(),
            calls => Spent {
                calls,
                tokens: sums.aside.tokens - most.tokens,
                cost: (sums.aside.cost - most.cost).max(0.0),
            },
        };
        drop(sums);
        self.changed.notify_waiters();
    }
}

/// Room that was set aside for one call. To be settled or given back; a dropped one is spent.
#[derive(Debug)]
#[must_use]
pub struct SetAside {
    account: Arc<Account>,
    most: Spent,
    /// What takes its place in the end.
    used: Spent,
    model: String,
    likely_tokens: f64,
}

impl Drop for SetAside {
    fn drop(&mut self) {
        self.account.end(self.most, self.used);
    }
}

/// What came of looking for room.
enum Room {
    Found(SetAside),
    /// There may be some when calls under way have ended; until then they reach this cap.
    Later(CapReached),
    Never(CapReached),
}

impl Budget {
    /// A budget of which nothing is spent.
    pub fn new(caps: Caps) -> Self {
        Self {
            caps,
            account: Arc::default(),
        }
    }

    /// Sets the most aside that a call can cost. Waits while calls under way have set too much aside, and may put it back. A
    /// model without a price can't be held below a cap on money.
    ///
    /// # Errors
    /// [`CapReached`] if the call could pass a cap although nothing else were set aside.
    pub async fn set_aside(
        &self,
        call: &Call,
        price: Option<Price>,
    ) -> Result<SetAside, CapReached> {
        loop {
            let mut changed = std::pin::pin!(self.account.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            match self.room(call, price) {
                Room::Found(aside) => return Ok(aside),
                Room::Never(reached) => return Err(reached),
                Room::Later(_) => changed.await,
            }
        }
    }

    /// The same without waiting: what is set aside stays so for long.
    ///
    /// # Errors
    /// [`CapReached`].
    pub fn set_aside_at_once(
        &self,
        call: &Call,
        price: Option<Price>,
    ) -> Result<SetAside, CapReached> {
        match self.room(call, price) {
            Room::Found(aside) => Ok(aside),
            Room::Later(reached) | Room::Never(reached) => Err(reached),
        }
    }

    fn room(&self, call: &Call, price: Option<Price>) -> Room {
        let most = match self.most(call, price) {
            Ok(most) => most,
            Err(reached) => return Room::Never(reached),
        };
        let mut sums = self.account.sums();
        if let Some(reached) = self.caps.passed_by(sums.settled.and(most)) {
            return Room::Never(reached);
        }
        if let Some(reached) = self.caps.passed_by(sums.settled.and(sums.aside).and(most)) {
            return Room::Later(reached);
        }
        sums.aside = sums.aside.and(most);
        Room::Found(SetAside {
            account: Arc::clone(&self.account),
            most,
            used: most,
            model: call.model.clone(),
            likely_tokens: call.likely_prompt_tokens(),
        })
    }

    /// The most that a call can cost.
    fn most(&self, call: &Call, price: Option<Price>) -> Result<Spent, CapReached> {
        let most = Usage {
            prompt: self.account.most_prompt_tokens(call),
            completion: u64::from(call.max_output_tokens),
            cached: 0,
        };
        let cost = match (price, self.caps.cost) {
            (Some(price), _) => price.of(most),
            (None, None) => 0.0,
            (None, Some(_)) => return Err(CapReached { cap: "--max-cost" }),
        };
        Ok(Spent {
            calls: 1,
            tokens: most.total(),
            cost,
        })
    }

    /// Replaces what was set aside by what the call used. Without a count by the provider the most stays spent: it may have been
    /// billed.
    pub fn settle(&self, mut aside: SetAside, usage: Option<Usage>, price: Option<Price>) {
        if let Some(usage) = usage {
            if usage.prompt > 0 {
                let account = &aside.account;
                account.learn(&aside.model, aside.likely_tokens, usage.prompt);
            }
            aside.used.tokens = usage.total();
            aside.used.cost = price.map_or(0.0, |price| price.of(usage));
        }
    }

    /// Takes back what was set aside for a call that was never sent.
    pub fn give_back(&self, mut aside: SetAside) {
        aside.used = Spent::default();
    }

    /// What is spent or set aside.
    pub fn spent(&self) -> Spent {
        let sums = *self.account.sums();
        sums.settled.and(sums.aside)
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
                if let Ok(aside) = budget.set_aside_at_once(&call, Some(PRICE)) {
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

    /// Asks all calls with so many at once, each of which uses what is given; returns how many were refused.
    fn refused(caps: Caps, calls: &[(usize, u64)], concurrency: usize) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let budget = Budget::new(caps);
        let (budget, permits) = (&budget, &tokio::sync::Semaphore::new(concurrency));
        let ask = |&(length, completion): &(usize, u64)| async move {
            let _permit = permits.acquire().await.unwrap();
            let call = call(&"x".repeat(length));
            let Ok(aside) = budget.set_aside(&call, Some(PRICE)).await else {
                return 1;
            };
            // As long as the length says, others come first.
            for _ in 0..length % 5 {
                tokio::task::yield_now().await;
            }
            budget.settle(aside, Some(used(&call, completion)), Some(PRICE));
            0
        };
        let all = futures::future::join_all(calls.iter().map(ask));
        let counts = runtime.block_on(all);
        assert_eq!(budget.account.sums().aside, Spent::default());
        counts.into_iter().sum()
    }

    fn used(call: &Call, completion: u64) -> Usage {
        Usage {
            prompt: call.usual_prompt_tokens(),
            completion,
            cached: 0,
        }
    }

    proptest! {
        /// Caps that hold what is used, and once what a call could use beyond that, refuse nothing at any concurrency.
        #[test]
        fn room_that_comes_back_is_waited_for(
            calls in proptest::collection::vec((0usize..400, 0u64..100), 1..40),
            concurrency in 1usize..20,
        ) {
            let free = Budget::new(Caps::default());
            let (mut all, mut most) = (Spent::default(), Spent::default());
            for (length, completion) in &calls {
                let call = call(&"x".repeat(*length));
                let usage = used(&call, *completion);
                let could = free.most(&call, Some(PRICE)).unwrap();
                most.tokens = most.tokens.max(could.tokens - usage.total());
                most.cost = most.cost.max(could.cost - PRICE.of(usage));
                all.tokens += usage.total();
                all.cost += PRICE.of(usage);
            }
            let caps = Caps {
                calls: Some(calls.len() as u64),
                tokens: Some(all.tokens + most.tokens),
                cost: Some(all.cost + most.cost + 1e-9),
            };
            prop_assert_eq!(refused(caps, &calls, concurrency), 0);
            // A call less is refused once, and not waited for without end.
            let fewer = Caps { calls: Some(calls.len() as u64 - 1), ..caps };
            prop_assert_eq!(refused(fewer, &calls, concurrency), 1);
        }
    }

    #[test]
    fn what_was_counted_makes_room_for_more() {
        let text = "The order left the house on day 12, as {\"state\": \"sent\"} says. ".repeat(40);
        let other = "\u{8a02}\u{55ae}\u{5df2}\u{5bc4}\u{51fa} 12. ".repeat(200);
        let (first, second) = (call(&text), call(&other));
        // As large vocabularies count them.
        let counted = |call: &Call| (call.likely_prompt_tokens() * 0.9) as u64;
        let usage = |call: &Call| Usage {
            prompt: counted(call),
            completion: 50,
            cached: 0,
        };
        // Room for what both use, and half the second more: less than a token a byte for the second.
        let room = usage(&first).total() + usage(&second).total() * 17 / 10 + 100;
        let budget = Budget::new(Caps {
            tokens: Some(room),
            ..Caps::default()
        });
        let not_counted = budget.most(&second, None).unwrap().tokens;
        assert_eq!(not_counted, second.most_prompt_tokens() + 100);
        assert!(not_counted + usage(&first).total() > room);
        let aside = budget.set_aside_at_once(&first, None).unwrap();
        budget.settle(aside, Some(usage(&first)), None);
        let most = budget.most(&second, None).unwrap().tokens;
        assert!(
            usage(&second).total() < most && most < not_counted * 3 / 5,
            "{most}"
        );
        assert!(budget.set_aside_at_once(&second, None).is_ok());
        // Another model counts in its own way.
        let elsewhere = Call {
            model: "openai/other".into(),
            ..second.clone()
        };
        assert_eq!(budget.most(&elsewhere, None).unwrap().tokens, not_counted);
    }

    #[test]
    fn a_call_that_is_dropped_stays_spent_and_holds_up_nobody() {
        let caps = Caps {
            calls: Some(1),
            ..Caps::default()
        };
        let budget = Budget::new(caps);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (first, second) = (call("a"), call("b"));
            let aside = budget.set_aside(&first, None).await.unwrap();
            let (refused, ()) = tokio::join!(budget.set_aside(&second, None), async {
                tokio::task::yield_now().await;
                drop(aside);
            });
            assert_eq!(refused.unwrap_err().cap, "--max-calls");
            assert_eq!(budget.spent().calls, 1);
        });
    }

    #[test]
    fn a_model_without_price_is_refused_under_a_cap_on_money_only() {
        let capped = Budget::new(Caps {
            cost: Some(100.0),
            ..Caps::default()
        });
        assert_eq!(
            capped.set_aside_at_once(&call("a"), None).unwrap_err().cap,
            "--max-cost"
        );
        let free = Budget::new(Caps {
            calls: Some(1),
            ..Caps::default()
        });
        let aside = free.set_aside_at_once(&call("a"), None).unwrap();
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
            free.set_aside_at_once(&call("a"), None).unwrap_err().cap,
            "--max-calls"
        );
    }
}
