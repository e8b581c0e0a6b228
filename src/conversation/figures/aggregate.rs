//! The figures of a run (as in Connexity).

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::conversation::figures::numbers::{exact_sum, maximum, mean, median, p95};
use crate::conversation::question::reply::JudgeError;
use crate::conversation::question::token_usage::TokenUsage;
use crate::conversation::question::transcript::{Role, Turn, is_error};

/// What a run's figures need of one case result.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaseResult {
    /// The test case; repetitions share it.
    pub test_case: String,
    /// Whether the case passed; null if that is undecided.
    pub case_passed: Option<bool>,
    /// The conversation itself failed. A blank text counts as no error.
    pub error: Option<String>,
    /// The overall score of the verdict, 0 to 100; null without a verdict.
    pub overall_score: Option<f64>,
    /// The judge error of the verdict.
    pub judge_error: Option<JudgeError>,
    /// See [`CaseLatency::agent_latency_p50_ms`].
    pub agent_latency_p50_ms: Option<i64>,
    /// Tokens of the agent.
    pub agent_token_usage: Option<TokenUsage>,
    /// Tokens of the test platform.
    pub platform_token_usage: Option<TokenUsage>,
    /// Cost of the agent, in US dollars.
    pub agent_cost_usd: Option<f64>,
    /// Cost of the test platform, in US dollars.
    pub platform_cost_usd: Option<f64>,
    /// Cost of both, in US dollars.
    pub estimated_cost_usd: Option<f64>,
}

/// The bars of a run, in percent. They are written beside its figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunBars {
    /// The bar of a verdict.
    pub pass_threshold: f64,
    /// The bar of the mean overall score; null: none.
    pub metrics_pass_threshold: Option<f64>,
    /// The bar of the share of passed cases; null: none.
    pub cases_pass_threshold: Option<f64>,
}

impl Default for RunBars {
    fn default() -> Self {
        Self {
            pass_threshold: 75.0,
            metrics_pass_threshold: Some(80.0),
            cases_pass_threshold: Some(100.0),
        }
    }
}

/// The figures of a run. Costs are in US dollars, latencies in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Distinct test cases.
    pub unique_test_case_count: usize,
    /// Case results.
    pub total_executions: usize,
    /// Cases that passed.
    pub passed_count: usize,
    /// Cases that did not pass, without an error.
    pub failed_count: usize,
    /// Cases with an error.
    pub error_count: usize,
    /// Verdicts with a judge error.
    pub judge_error_count: usize,
    /// Passed by all, 0 to 1; 0 of nothing.
    pub pass_rate: f64,
    /// Median over cases of their median latency.
    pub latency_p50_ms: Option<f64>,
    /// 95th percentile of the same; null below 20 cases.
    pub latency_p95_ms: Option<f64>,
    /// Maximum of the same.
    pub latency_max_ms: Option<f64>,
    /// Mean of the same.
    pub latency_avg_ms: Option<f64>,
    /// Tokens of the agent.
    pub total_agent_token_usage: Option<TokenUsage>,
    /// Tokens of the test platform.
    pub total_platform_token_usage: Option<TokenUsage>,
    /// Known costs of the agent.
    pub total_agent_cost_usd: Option<f64>,
    /// Known costs of the test platform.
    pub total_platform_cost_usd: Option<f64>,
    /// Known costs of both.
    pub total_estimated_cost_usd: Option<f64>,
    /// Mean overall score of all verdicts, 0 to 100; a judge error counts as 0.
    pub avg_overall_score: Option<f64>,
    /// The same, under the name that the bar refers to.
    pub weighted_metrics_score_pct: Option<f64>,
    /// Mean overall score of the verdicts without a judge error.
    pub avg_judged_score: Option<f64>,
    /// The bar of a verdict.
    pub pass_threshold: f64,
    /// The bar of the mean overall score.
    pub metrics_pass_threshold: Option<f64>,
    /// Whether the mean overall score reaches its bar; null if either is missing.
    pub metrics_passed: Option<bool>,
    /// `pass_rate` in percent; null without case results.
    pub cases_pass_rate_pct: Option<f64>,
    /// The bar of the share of passed cases.
    pub cases_pass_threshold: Option<f64>,
    /// Whether the share of passed cases reaches its bar; null if either is missing.
    pub cases_passed: Option<bool>,
}

/// The figures of all case results of a run; repetitions count separately.
pub fn summarise(results: &[CaseResult], bars: &RunBars) -> RunSummary {
    let count = |counts: fn(&CaseResult) -> bool| results.iter().filter(|r| counts(r)).count();
    let sum = |cost: fn(&CaseResult) -> Option<f64>| {
        let known: Vec<f64> = results.iter().filter_map(cost).collect();
        (!known.is_empty()).then(|| exact_sum(known))
    };
    let passed_count = count(|r| r.case_passed == Some(true));
    let pass_rate = if results.is_empty() {
        0.0
    } else {
        passed_count as f64 / results.len() as f64
    };
    let cases_pass_rate_pct = (!results.is_empty()).then_some(pass_rate * 100.0);
    let latencies: Vec<f64> = results
        .iter()
        .filter_map(|r| r.agent_latency_p50_ms)
        .map(|ms| ms as f64)
        .collect();
    let scores: Vec<f64> = results.iter().filter_map(|r| r.overall_score).collect();
    let judged = results.iter().filter(|r| r.judge_error.is_none());
    let judged: Vec<f64> = judged.filter_map(|r| r.overall_score).collect();
    let avg_overall_score = mean(&scores);
    let reaches = |value: Option<f64>, bar: Option<f64>| Some(value? >= bar?);
    RunSummary {
        unique_test_case_count: results
            .iter()
            .map(|r| &r.test_case)
            .collect::<HashSet<_>>()
            .len(),
        total_executions: results.len(),
        passed_count,
        failed_count: count(|r| r.case_passed == Some(false) && !is_error(r.error.as_deref())),
        error_count: count(|r| is_error(r.error.as_deref())),
        judge_error_count: count(|r| r.judge_error.is_some()),
        pass_rate,
        latency_p50_ms: median(&latencies),
        latency_p95_ms: p95(&latencies),
        latency_max_ms: maximum(&latencies),
        latency_avg_ms: mean(&latencies),
        total_agent_token_usage: TokenUsage::total(
            results.iter().map(|r| r.agent_token_usage.as_ref()),
        ),
        total_platform_token_usage: TokenUsage::total(
            results.iter().map(|r| r.platform_token_usage.as_ref()),
        ),
        total_agent_cost_usd: sum(|r| r.agent_cost_usd),
        total_platform_cost_usd: sum(|r| r.platform_cost_usd),
        total_estimated_cost_usd: sum(|r| r.estimated_cost_usd),
        avg_overall_score,
        weighted_metrics_score_pct: avg_overall_score,
        avg_judged_score: mean(&judged),
        pass_threshold: bars.pass_threshold,
        metrics_pass_threshold: bars.metrics_pass_threshold,
        metrics_passed: reaches(avg_overall_score, bars.metrics_pass_threshold),
        cases_pass_rate_pct,
        cases_pass_threshold: bars.cases_pass_threshold,
        cases_passed: reaches(cases_pass_rate_pct, bars.cases_pass_threshold),
    }
}

/// The latencies of one transcript, in whole milliseconds; null without a known latency of an assistant turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaseLatency {
    /// Median, cut to an integer.
    pub agent_latency_p50_ms: Option<i64>,
    /// 95th percentile, cut to an integer; the maximum below 20 turns.
    pub agent_latency_p95_ms: Option<i64>,
    /// Maximum.
    pub agent_latency_max_ms: Option<i64>,
}

impl CaseLatency {
    /// The latencies of the assistant turns of a transcript.
    pub fn of_turns(turns: &[Turn]) -> Self {
        let spoken = turns.iter().filter(|turn| turn.role == Role::Assistant);
        let known: Vec<i64> = spoken.filter_map(|turn| turn.latency_ms).collect();
        Self::of(&known)
    }

    /// The same from the latencies themselves, in milliseconds.
    pub fn of(latencies: &[i64]) -> Self {
        let values: Vec<f64> = latencies.iter().map(|ms| *ms as f64).collect();
        let whole = |value: Option<f64>| value.map(|ms| ms as i64);
        let agent_latency_max_ms = latencies.iter().copied().max();
        Self {
            agent_latency_p50_ms: whole(median(&values)),
            agent_latency_p95_ms: whole(p95(&values)).or(agent_latency_max_ms),
            agent_latency_max_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_does_not_hinge_on_the_order_of_addition() {
        let bars = RunBars {
            metrics_pass_threshold: Some(0.2),
            ..Default::default()
        };
        let passed = |scores: [f64; 3]| {
            let rows = scores.map(|s| CaseResult {
                overall_score: Some(s),
                ..Default::default()
            });
            summarise(&rows, &bars).metrics_passed
        };
        let (one, other) = ([0.1, 0.2, 0.3], [0.3, 0.2, 0.1]);
        let added = |scores: [f64; 3]| scores[0] + scores[1] + scores[2];
        assert_ne!(
            added(one) / 3.0 >= 0.2,
            added(other) / 3.0 >= 0.2,
            "these would do without exact sums"
        );
        assert_eq!(passed(one), passed(other));
    }

    #[test]
    fn judge_errors_count_as_zero_and_are_shown() {
        let judged = CaseResult {
            overall_score: Some(90.0),
            ..Default::default()
        };
        let broken = CaseResult {
            overall_score: Some(0.0),
            judge_error: Some(JudgeError::InvalidJson),
            ..Default::default()
        };
        let summary = summarise(&[judged, broken], &RunBars::default());
        assert_eq!(
            (summary.avg_overall_score, summary.avg_judged_score),
            (Some(45.0), Some(90.0))
        );
        assert_eq!(
            (summary.judge_error_count, summary.pass_threshold),
            (1, 75.0)
        );
    }

    #[test]
    fn only_known_latencies_of_assistant_turns_count() {
        let turn = |role: &str, latency: &str| -> Turn {
            serde_json::from_str(&format!(
                r#"{{"turn_index":0,"role":"{role}","latency_ms":{latency}}}"#
            ))
            .unwrap()
        };
        let turns = [
            turn("assistant", "10"),
            turn("user", "999"),
            turn("assistant", "null"),
            turn("assistant", "13"),
        ];
        let latency = CaseLatency::of_turns(&turns);
        assert_eq!(
            (latency.agent_latency_p50_ms, latency.agent_latency_p95_ms),
            (Some(11), Some(13))
        );
        assert_eq!(CaseLatency::of(&[]), CaseLatency::default());
    }
}
