//! The verdict on one case (as in Connexity).

use serde::{Deserialize, Serialize};

use crate::conversation::question::reply::{JudgeError, MetricScore, OutcomeResult, read_reply};
use crate::conversation::question::weights::{JudgeConfig, Selection};

const TOP_SCORE: f64 = 5.0;
/// Scores below this can be the weakest.
const WEAK_BELOW: u8 = 3;
/// Scores from this on can be the strongest.
const STRONG_FROM: u8 = 4;

/// The name of a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// Score 0.
    CriticalFail,
    /// Score 1, or a binary metric that failed.
    Fail,
    /// Score 2.
    Poor,
    /// Score 3.
    Acceptable,
    /// Score 4.
    Good,
    /// Score 5.
    Excellent,
    /// A binary metric that passed.
    Pass,
}

impl Label {
    /// The label of a score from 0 to 5.
    pub fn of_score(score: u8) -> Self {
        match score {
            0 => Self::CriticalFail,
            1 => Self::Fail,
            2 => Self::Poor,
            3 => Self::Acceptable,
            4 => Self::Good,
            _ => Self::Excellent,
        }
    }

    /// The label of a binary metric.
    pub fn of_binary(passed: bool) -> Self {
        if passed { Self::Pass } else { Self::Fail }
    }

    /// The name in tables, such as `critical_fail`.
    pub fn name(self) -> &'static str {
        match self {
            Self::CriticalFail => "critical_fail",
            Self::Fail => "fail",
            Self::Poor => "poor",
            Self::Acceptable => "acceptable",
            Self::Good => "good",
            Self::Excellent => "excellent",
            Self::Pass => "pass",
        }
    }
}

/// A metric that stands out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Highlight {
    /// The metric's id.
    pub metric: String,
    /// Its score, 0 to 5.
    pub score: u8,
}

/// What a report names first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Highlights {
    /// The scored metric with the lowest score, if that is below 3.
    pub weakest: Option<Highlight>,
    /// The scored metric with the highest score, if that is 4 or more and it is not the weakest.
    pub strongest: Option<Highlight>,
    /// Every binary metric that failed.
    pub failed_binary: Vec<String>,
}

impl Highlights {
    /// The highlights of scores; ties go to the first in order.
    pub fn of(scores: &[MetricScore]) -> Self {
        let scored = || scores.iter().enumerate().filter(|(_, s)| !s.is_binary);
        let lowest = scored().min_by_key(|(_, s)| s.score);
        // `max_by_key` takes the last of a tie.
        let highest = scored().rev().max_by_key(|(_, s)| s.score);
        let same = lowest.map(|(at, _)| at) == highest.map(|(at, _)| at);
        let named = |(_, s): (usize, &MetricScore)| Highlight {
            metric: s.metric.clone(),
            score: s.score,
        };
        let failed = scores.iter().filter(|s| s.is_binary && s.score == 0);
        Self {
            weakest: lowest.filter(|(_, s)| s.score < WEAK_BELOW).map(named),
            strongest: highest
                .filter(|(_, s)| s.score >= STRONG_FROM && !same)
                .map(named),
            failed_binary: failed.map(|s| s.metric.clone()).collect(),
        }
    }
}

/// The verdict on one case that was, or should have been, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Set if there are no scores.
    pub judge_error: Option<JudgeError>,
    /// Whether the overall score reaches the threshold.
    pub passed: bool,
    /// 0 to 100, two decimals.
    pub overall_score: f64,
    /// The bar this verdict was held against, 0 to 100.
    pub pass_threshold: f64,
    /// One entry per metric of the selection, in order; empty with a judge error.
    pub metric_scores: Vec<MetricScore>,
    /// Null without expected outcomes, or if the reply has no list of them.
    pub expected_outcome_results: Option<Vec<OutcomeResult>>,
    /// What stands out.
    pub highlights: Highlights,
    /// Metrics that were not asked for because the transcript has no tools.
    pub dropped_metrics: Vec<String>,
    /// The reply as it came; null if there was none.
    pub raw_reply: Option<String>,
}

impl Verdict {
    /// The verdict that follows from a reply. `outcomes` are the statements that the case expects.
    pub fn from_reply(
        raw: &str,
        selection: &Selection,
        outcomes: &[String],
        config: &JudgeConfig,
    ) -> Self {
        let mut verdict = match read_reply(raw, selection, outcomes, config) {
            Ok(reply) => Self {
                expected_outcome_results: reply.outcome_results,
                ..Self::from_scores(reply.metric_scores, config.pass_threshold)
            },
            Err(fault) => Self::failed(fault, config.pass_threshold),
        };
        verdict
            .dropped_metrics
            .clone_from(&selection.dropped_metrics);
        verdict.raw_reply = Some(raw.to_owned());
        verdict
    }

    /// The verdict that follows from scores.
    pub fn from_scores(metric_scores: Vec<MetricScore>, pass_threshold: f64) -> Self {
        let overall_score = overall_score(&metric_scores);
        Self {
            judge_error: None,
            passed: overall_score >= pass_threshold,
            overall_score,
            pass_threshold,
            highlights: Highlights::of(&metric_scores),
            metric_scores,
            expected_outcome_results: None,
            dropped_metrics: Vec::new(),
            raw_reply: None,
        }
    }

    /// The verdict of a case that could not be judged: failed, with a score of 0.
    pub fn failed(fault: JudgeError, pass_threshold: f64) -> Self {
        Self {
            judge_error: Some(fault),
            passed: false,
            ..Self::from_scores(Vec::new(), pass_threshold)
        }
    }

    /// Signals for session aggregators, each from 0 to 1: `judge.<metric>` and `judge.overall`. None with a judge
    /// error. Of a metric that was selected twice, the first.
    pub fn signals(&self) -> Vec<(String, f64)> {
        if self.judge_error.is_some() {
            return Vec::new();
        }
        let mut signals: Vec<(String, f64)> = Vec::new();
        for score in &self.metric_scores {
            let name = format!("judge.{}", score.metric);
            if !signals.iter().any(|(known, _)| *known == name) {
                signals.push((name, f64::from(score.score) / TOP_SCORE));
            }
        }
        signals.push(("judge.overall".into(), self.overall_score / 100.0));
        signals
    }
}

/// The weighted score in percent, 0 to 100: added in order, rounded to two decimals.
pub fn overall_score(scores: &[MetricScore]) -> f64 {
    let overall = scores.iter().fold(0.0, |sum, s| {
        sum + f64::from(s.score) / TOP_SCORE * s.weight
    });
    rounded::<2>(overall * 100.0)
}

/// Whether the case passed: all of its outcomes are met, where there are results for any; else the verdict passed.
/// False without a verdict.
pub fn case_passed(verdict: Option<&Verdict>) -> bool {
    verdict.is_some_and(
        |verdict| match verdict.expected_outcome_results.as_deref() {
            None | Some([]) => verdict.passed,
            Some(results) => results.iter().all(|result| result.passed),
        },
    )
}

/// Correctly rounded to this many decimals, ties to even on the exact binary value.
pub(in crate::conversation) fn rounded<const DECIMALS: usize>(value: f64) -> f64 {
    // Decimal formatting is exact, multiplying by a power of ten is not. Adding zero takes the sign off -0.
    format!("{value:.DECIMALS$}").parse().unwrap_or(value) + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::question::metric::Tier;

    fn score(metric: &str, score: u8, is_binary: bool) -> MetricScore {
        MetricScore {
            metric: metric.into(),
            tier: Tier::Process,
            is_binary,
            score,
            label: Label::of_score(score),
            weight: 0.5,
            justification: String::new(),
            failure_code: None,
            turns: Vec::new(),
        }
    }

    #[test]
    fn rounding_is_exact_with_ties_to_even() {
        for (value, expected) in [
            (3.125, 3.12),
            (3.375, 3.38),
            (10.9375, 10.94),
            (1.005, 1.0),
            (2.675, 2.67),
            (0.5, 0.5),
        ] {
            assert_eq!(rounded::<2>(value), expected, "{value}");
        }
        assert!(rounded::<2>(-0.001).is_sign_positive());
        assert_eq!(rounded::<4>(-0.00005), -0.0001);
    }

    #[test]
    fn highlights_take_the_first_of_a_tie_and_never_one_metric_twice() {
        let of = |list: &[(&str, u8, bool)]| {
            Highlights::of(
                &list
                    .iter()
                    .map(|(m, s, b)| score(m, *s, *b))
                    .collect::<Vec<_>>(),
            )
        };
        let found = of(&[
            ("a", 2, false),
            ("b", 5, false),
            ("c", 2, false),
            ("d", 5, false),
            ("e", 0, true),
        ]);
        assert_eq!(found.weakest.unwrap().metric, "a");
        assert_eq!(found.strongest.unwrap().metric, "b");
        assert_eq!(found.failed_binary, ["e"]);
        assert_eq!(of(&[("a", 5, false)]), Highlights::default());
        assert_eq!(of(&[("a", 5, true)]), Highlights::default());
        let twice = of(&[("a", 1, false), ("a", 5, false)]);
        assert_eq!(
            (twice.weakest.unwrap().score, twice.strongest.unwrap().score),
            (1, 5)
        );
    }

    #[test]
    fn outcomes_decide_the_case_where_there_are_any() {
        let mut verdict =
            Verdict::from_scores(vec![score("a", 5, false), score("b", 5, false)], 75.0);
        assert!(case_passed(Some(&verdict)) && !case_passed(None));
        let outcome = |passed| OutcomeResult {
            statement: "s".into(),
            passed,
            justification: String::new(),
        };
        verdict.expected_outcome_results = Some(vec![outcome(true), outcome(false)]);
        assert!(!case_passed(Some(&verdict)));
        verdict.expected_outcome_results = Some(Vec::new());
        assert!(case_passed(Some(&verdict)));
    }

    #[test]
    fn signals_are_absent_with_a_judge_error() {
        let verdict = Verdict::from_scores(vec![score("a", 4, false), score("a", 1, false)], 75.0);
        assert_eq!(
            verdict.signals(),
            [
                ("judge.a".to_owned(), 0.8),
                ("judge.overall".to_owned(), 0.5)
            ]
        );
        let failed = Verdict::failed(JudgeError::InvalidJson, 0.0);
        assert!(failed.signals().is_empty() && !failed.passed);
    }
}
