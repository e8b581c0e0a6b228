//! `stuck`: does the agent go round in circles? Without a judge and without a model.
//!
//! A session is a row of steps: the tool calls of each trace, in the order in which they began, and then its output. Two
//! steps are as like as their words are (size of the intersection by size of the union of the sets of words, 1 for equal
//! texts), so that a small change of text is a small change of the score. For a call it is the mean of how like name and
//! arguments are, and how like the results are; a call and an output are never alike, and what has no words and is not equal is not alike.
//!
//! A repetition of period `p` explains each step by the one `p` steps before it, as far as the two are alike. What the best
//! period explains, as a share of the steps so far, is how stuck the agent is: the score is 1 minus that share. So `A B C A B C A
//! B C` is explained for two thirds by period 3, two equal outputs for half by period 1, and steps that are all
//! different for nothing.
//!
//! The last 64 steps are looked at: periods up to 63 are seen, the work for a step does not grow with the session, and
//! an agent that got on again is let go.

use std::collections::VecDeque;

use super::clamp01;
use crate::text::WordSketch;
use crate::trace::{CallDigest, OutputDigest};

/// What lists say of it.
pub(super) static INFO: super::MetricInfo = super::MetricInfo::of_spans(
    "stuck",
    &["spans", "output"],
    "Whether the agent repeats its tool calls and outputs of the session so far, with any period (1 = always something new, 0 = all is repetition).",
);

/// How many steps are looked at.
pub const STEPS: usize = 64;

/// A tool call or an output.
#[derive(Clone, Debug)]
enum Step {
    Call(CallDigest),
    Output(OutputDigest),
}

impl Step {
    /// How like two steps are, in [0, 1].
    fn likeness(&self, other: &Self) -> f64 {
        match (self, other) {
            (Self::Output(a), Self::Output(b)) => alike(a.text, &a.words, b.text, &b.words),
            (Self::Call(a), Self::Call(b)) => {
                let said = alike(Some(a.call), &a.words, Some(b.call), &b.words);
                match (a.result, b.result) {
                    (None, None) => said,
                    (one, another) => {
                        let results = alike(one, &a.result_words, another, &b.result_words);
                        (said + results) / 2.0
                    }
                }
            }
            _ => 0.0,
        }
    }
}

fn alike(a: Option<u64>, words_a: &WordSketch, b: Option<u64>, words_b: &WordSketch) -> f64 {
    match (a, b) {
        (Some(a), Some(b)) if a == b => 1.0,
        (Some(_), Some(_)) => words_a.jaccard(words_b),
        _ => 0.0,
    }
}

/// The steps of a session so far, as far as they are looked at.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Each step, and how like it is to the first, second, … step before it.
    steps: VecDeque<(Step, Vec<f64>)>,
}

/// How stuck a session is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stuck {
    /// Unrounded score in [0, 1]; 1 is free of repetition.
    pub score: f64,
    /// The period that explains most; the shortest of equal ones.
    pub period: usize,
    /// How many steps were looked at.
    pub steps: usize,
}

impl Steps {
    /// The steps of the next trace. An output that says nothing is no step.
    pub fn push(
        &mut self,
        calls: impl IntoIterator<Item = CallDigest>,
        output: Option<OutputDigest>,
    ) {
        for call in calls {
            self.push_step(Step::Call(call));
        }
        if let Some(output) = output.filter(|output| !output.is_empty()) {
            self.push_step(Step::Output(output));
        }
    }

    fn push_step(&mut self, step: Step) {
        if self.steps.len() >= STEPS {
            self.steps.pop_front();
        }
        let back = self.steps.iter().rev();
        let likeness = back.map(|(earlier, _)| step.likeness(earlier)).collect();
        self.steps.push_back((step, likeness));
    }

    /// How stuck the session is by now; none before there are two steps.
    pub fn stuck(&self) -> Option<Stuck> {
        let steps = self.steps.len();
        if steps < 2 {
            return None;
        }
        // What each period explains; period 1 comes first.
        let mut explained = vec![0.0; steps - 1];
        for (at, (_, likeness)) in self.steps.iter().enumerate() {
            // A step may remember steps that are looked at no more.
            for (sum, like) in explained.iter_mut().zip(likeness.iter().take(at)) {
                *sum += like;
            }
        }
        let mut best = (0, 0.0);
        for (at, sum) in explained.iter().enumerate() {
            if *sum > best.1 {
                best = (at, *sum);
            }
        }
        Some(Stuck {
            score: clamp01(1.0 - best.1 / steps as f64),
            period: best.0 + 1,
            steps,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::text_hash;

    fn output(text: &str) -> Option<OutputDigest> {
        Some(OutputDigest::of(text))
    }

    fn call(said: &str, result: &str) -> CallDigest {
        CallDigest {
            call: text_hash(said),
            words: WordSketch::of_whole(said),
            result: (!result.is_empty()).then(|| text_hash(result)),
            result_words: WordSketch::of(result),
        }
    }

    fn of_outputs<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Option<Stuck> {
        let mut steps = Steps::default();
        for text in texts {
            steps.push([], output(text.as_ref()));
        }
        steps.stuck()
    }

    #[test]
    fn repetitions_of_any_period_are_found() {
        for period in 1..=21_usize {
            let texts = (0..3 * period).map(|i| format!("text{}", i % period));
            let stuck = of_outputs(texts).unwrap();
            assert_eq!((stuck.period, stuck.steps), (period, 3 * period));
            assert!((stuck.score - 1.0 / 3.0).abs() < 1e-12, "{stuck:?}");
        }
    }

    #[test]
    fn what_is_new_is_not_stuck() {
        let texts = (0..40).map(|i| format!("text{i}"));
        assert_eq!(of_outputs(texts).unwrap().score, 1.0);
        assert_eq!(of_outputs(["one"]), None);
        assert_eq!(of_outputs(["", " ", "{}"]), None);
        // One sentence of a script without spaces is one word.
        let both = ["\u{65e5}\u{672c}", "\u{4e2d}\u{56fd}"];
        assert_eq!(of_outputs(both).unwrap().score, 1.0);
    }

    #[test]
    fn a_small_change_of_text_is_a_small_change_of_the_score() {
        let texts = [
            "please search red cars again",
            "please search blue cars again",
        ];
        let stuck = of_outputs(texts).unwrap();
        // Four of six words.
        assert_eq!(stuck.score, 1.0 - 4.0 / 6.0 / 2.0);
    }

    #[test]
    fn calls_are_compared_by_arguments_and_results() {
        let mut steps = Steps::default();
        steps.push([call("search\nred cars", "nothing found")], None);
        steps.push([call("search\nred cars", "nothing found")], None);
        assert_eq!(steps.stuck().unwrap().score, 0.5);
        // Another page of results is half a repetition.
        let mut steps = Steps::default();
        steps.push([call("next", "red cars")], None);
        steps.push([call("next", "blue ships")], None);
        assert_eq!(steps.stuck().unwrap().score, 0.75);
        // A call and an output are never alike.
        let mut steps = Steps::default();
        steps.push([call("same", "")], output("same"));
        assert_eq!(steps.stuck().unwrap().score, 1.0);
    }

    #[test]
    fn an_agent_that_got_on_again_is_let_go() {
        let begin = std::iter::repeat_n("again".to_owned(), 200);
        let rest = (0..STEPS).map(|i| format!("text{i}"));
        let stuck = of_outputs(begin.chain(rest)).unwrap();
        assert_eq!((stuck.score, stuck.steps), (1.0, STEPS));
    }

    proptest! {
        #[test]
        fn more_of_the_same_never_raises_the_score(
            texts in prop::collection::vec("[a-c]{2}( [a-c]{2}){0,3}", 2..20), more in 1..4_usize,
        ) {
            let last = texts.last().unwrap().clone();
            let longer = texts.iter().cloned().chain(std::iter::repeat_n(last, STEPS * more));
            let (before, after) = (of_outputs(&texts).unwrap(), of_outputs(longer).unwrap());
            prop_assert!((0.0..=1.0).contains(&before.score));
            prop_assert!(after.score <= before.score + 1e-12);
            prop_assert!(after.score < 0.02, "{:?}", after);
        }

        #[test]
        fn the_score_depends_on_the_last_steps_alone(
            begin in prop::collection::vec("[a-c]{2}", 0..80), end in prop::collection::vec("[a-c]{2}( [a-c]{2})?", STEPS),
        ) {
            let all = begin.iter().chain(&end);
            prop_assert_eq!(of_outputs(all), of_outputs(&end));
        }
    }
}
