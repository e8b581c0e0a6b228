//! Two runs side by side (as in Connexity).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::conversation::figures::aggregate::{CaseResult, RunBars, RunSummary, summarise};
use crate::conversation::figures::repetitions::{Answer, Cases, ComparedCase, Reduced, reduce};
use crate::conversation::question::verdict::rounded;

/// A change of the overall score has to be larger than this to count.
const SCORE_NOISE: f64 = 5.0;

/// How much worse a run may be before it counts as a regression.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// Allowed drop of the pass rate, 0 to 1.
    pub max_pass_rate_drop: f64,
    /// Allowed drop of the mean overall score, in points.
    pub max_avg_score_drop: f64,
    /// Allowed relative rise of the mean latency; 0.2 is a fifth.
    pub max_latency_increase_pct: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            max_pass_rate_drop: 0.0,
            max_avg_score_drop: 5.0,
            max_latency_increase_pct: 0.2,
        }
    }
}

/// How a case or a metric moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeStatus {
    /// Worse.
    Regression,
    /// Better.
    Improvement,
    /// Neither.
    Unchanged,
    /// One side has an error.
    Error,
}

impl ChangeStatus {
    /// The name in tables, such as `regression`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Regression => "regression",
            Self::Improvement => "improvement",
            Self::Unchanged => "unchanged",
            Self::Error => "error",
        }
    }

    fn of_flip(baseline: bool, candidate: bool) -> Self {
        match (baseline, candidate) {
            (true, false) => Self::Regression,
            (false, true) => Self::Improvement,
            _ => Self::Unchanged,
        }
    }

    fn of_delta(delta: f64, noise: f64) -> Self {
        if delta < -noise {
            Self::Regression
        } else if delta > noise {
            Self::Improvement
        } else {
            Self::Unchanged
        }
    }
}

/// One metric of one case. Without a side, or with two different scales, it is unchanged and has no delta.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricDelta {
    /// The metric's id.
    pub metric: String,
    /// Whether it is a pass or fail metric; null if it is one in one run and a scored one in the other.
    pub is_binary: Option<bool>,
    /// Candidate minus baseline, -5 to 5; null for binary metrics.
    pub delta: Option<f64>,
    /// How it moved.
    pub status: ChangeStatus,
}

/// One case that is in both runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseComparison {
    /// The test case.
    pub test_case: String,
    /// How it moved.
    pub status: ChangeStatus,
    /// Candidate minus baseline, in points, two decimals.
    pub score_delta: Option<f64>,
    /// Candidate minus baseline, total latency in milliseconds.
    pub latency_delta_ms: Option<f64>,
    /// The union of both sides' metrics, sorted by id.
    pub metric_deltas: Vec<MetricDelta>,
}

/// One metric over the cases that are in both runs; four decimals. Binary metrics are shares of passes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricAverages {
    /// The metric's id.
    pub metric: String,
    /// Null, like the figures, if it is binary in one place and scored in another.
    pub is_binary: Option<bool>,
    /// Mean in the baseline.
    pub baseline_avg: Option<f64>,
    /// Mean in the candidate.
    pub candidate_avg: Option<f64>,
    /// The difference of the rounded means.
    pub delta: Option<f64>,
}

/// The runs as wholes: candidate minus baseline, four decimals; null if a side is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AggregateComparison {
    /// Difference of pass rates, -1 to 1.
    pub pass_rate_delta: f64,
    /// Difference of mean overall scores.
    pub avg_score_delta: Option<f64>,
    /// Difference of mean latencies, in milliseconds.
    pub latency_avg_delta_ms: Option<f64>,
    /// Difference of 95th percentiles, in milliseconds.
    pub latency_p95_delta_ms: Option<f64>,
    /// Difference of known costs, in US dollars.
    pub cost_delta_usd: Option<f64>,
    /// Cases that are worse.
    pub regressions: usize,
    /// Cases that are better.
    pub improvements: usize,
    /// Cases that are neither.
    pub unchanged: usize,
    /// Cases with an error on a side.
    pub errors: usize,
    /// Every metric of the matched cases, sorted by id.
    pub per_metric: Vec<MetricAverages>,
}

/// Why the candidate counts as a regression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegressionReason {
    /// The pass rate fell too far.
    PassRate,
    /// The mean overall score fell too far.
    AvgScore,
    /// The mean latency rose too far.
    AvgLatency,
}

impl RegressionReason {
    /// The name in tables, such as `pass_rate`.
    pub fn name(self) -> &'static str {
        match self {
            Self::PassRate => "pass_rate",
            Self::AvgScore => "avg_score",
            Self::AvgLatency => "avg_latency",
        }
    }
}

/// The comparison of a candidate with a baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunComparison {
    /// The cases of both runs, sorted by test case.
    pub cases: Vec<CaseComparison>,
    /// Test cases of the baseline alone, sorted.
    pub baseline_only: Vec<String>,
    /// Test cases of the candidate alone, sorted.
    pub candidate_only: Vec<String>,
    /// The runs as wholes.
    pub aggregate: AggregateComparison,
    /// Whether any reason applies.
    pub regression_detected: bool,
    /// The reasons, in the order pass rate, score, latency.
    pub reasons: Vec<RegressionReason>,
}

impl RunComparison {
    /// Whether anything moved: a case, the pass rate, or the mean score by more than a point. Judged explanations are
    /// only worth a call if it did.
    pub fn anything_moved(&self) -> bool {
        let aggregate = &self.aggregate;
        aggregate.regressions > 0
            || aggregate.improvements > 0
            || aggregate.pass_rate_delta != 0.0
            || aggregate
                .avg_score_delta
                .is_some_and(|delta| delta.abs() > 1.0)
    }

    /// The regressed cases that lost most, at most `limit`; ties by test case, unknown losses last.
    pub fn worst_regressions(&self, limit: usize) -> Vec<&CaseComparison> {
        let regressed = self
            .cases
            .iter()
            .filter(|case| case.status == ChangeStatus::Regression);
        let mut regressed: Vec<&CaseComparison> = regressed.collect();
        let loss = |case: &CaseComparison| case.score_delta.unwrap_or(f64::INFINITY);
        regressed.sort_by(|a, b| loss(a).total_cmp(&loss(b)));
        regressed.truncate(limit);
        regressed
    }

    /// Whether the two runs have different case lists, which a report should warn of.
    pub fn case_lists_differ(&self) -> bool {
        !self.baseline_only.is_empty() || !self.candidate_only.is_empty()
    }
}

/// Compares a candidate with a baseline.
pub fn compare(
    baseline: &[ComparedCase],
    candidate: &[ComparedCase],
    thresholds: &Thresholds,
) -> RunComparison {
    let (before, after) = (reduce(baseline), reduce(candidate));
    let matched: Vec<(&str, &Reduced<'_>, &Reduced<'_>)> = before
        .iter()
        .filter_map(|(name, old)| Some((*name, old, after.get(name)?)))
        .collect();
    let only = |one: &Cases<'_>, other: &Cases<'_>| {
        one.keys()
            .filter(|name| !other.contains_key(*name))
            .map(|name| (*name).to_owned())
            .collect()
    };
    let cases: Vec<CaseComparison> = matched
        .iter()
        .map(|(name, old, new)| compare_case(name, old, new))
        .collect();
    let (old, new) = (figures(baseline), figures(candidate));
    let count = |status| cases.iter().filter(|case| case.status == status).count();
    let difference = |of: fn(&RunSummary) -> Option<f64>| Some(rounded::<4>(of(&new)? - of(&old)?));
    let aggregate = AggregateComparison {
        pass_rate_delta: rounded::<4>(new.pass_rate - old.pass_rate),
        avg_score_delta: difference(|run| run.avg_overall_score),
        latency_avg_delta_ms: difference(|run| run.latency_avg_ms),
        latency_p95_delta_ms: difference(|run| run.latency_p95_ms),
        cost_delta_usd: difference(|run| run.total_estimated_cost_usd),
        regressions: count(ChangeStatus::Regression),
        improvements: count(ChangeStatus::Improvement),
        unchanged: count(ChangeStatus::Unchanged),
        errors: count(ChangeStatus::Error),
        per_metric: averages(&matched),
    };
    let slower = match (old.latency_avg_ms, new.latency_avg_ms) {
        (Some(old), Some(new)) if old > 0.0 => {
            (new - old) / old > thresholds.max_latency_increase_pct
        }
        _ => false,
    };
    let score_drop = aggregate
        .avg_score_delta
        .filter(|delta| *delta < 0.0)
        .map(|delta| -delta);
    let applies = [
        (
            RegressionReason::PassRate,
            -aggregate.pass_rate_delta > thresholds.max_pass_rate_drop,
        ),
        (
            RegressionReason::AvgScore,
            score_drop.is_some_and(|drop| drop > thresholds.max_avg_score_drop),
        ),
        (RegressionReason::AvgLatency, slower),
    ];
    let reasons: Vec<RegressionReason> = applies
        .into_iter()
        .filter(|(_, applies)| *applies)
        .map(|(reason, _)| reason)
        .collect();
    RunComparison {
        cases,
        baseline_only: only(&before, &after),
        candidate_only: only(&after, &before),
        aggregate,
        regression_detected: !reasons.is_empty(),
        reasons,
    }
}

fn compare_case(name: &str, old: &Reduced<'_>, new: &Reduced<'_>) -> CaseComparison {
    let delta = |old: Option<f64>, new: Option<f64>| Some(new? - old?);
    let score_delta = delta(old.overall_score, new.overall_score);
    let flip = match (old.passed, new.passed) {
        (Some(old), Some(new)) => ChangeStatus::of_flip(old, new),
        _ => ChangeStatus::Unchanged,
    };
    let status = if old.error || new.error {
        ChangeStatus::Error
    } else if flip != ChangeStatus::Unchanged {
        flip
    } else {
        score_delta.map_or(ChangeStatus::Unchanged, |delta| {
            ChangeStatus::of_delta(delta, SCORE_NOISE)
        })
    };
    let ids: BTreeSet<&str> = old
        .metrics
        .keys()
        .chain(new.metrics.keys())
        .copied()
        .collect();
    let answer = |side: &Reduced<'_>, id: &str| side.metrics.get(id).copied();
    CaseComparison {
        test_case: name.to_owned(),
        status,
        score_delta: score_delta.map(rounded::<2>),
        latency_delta_ms: delta(old.total_latency_ms, new.total_latency_ms),
        metric_deltas: ids
            .into_iter()
            .map(|id| metric_delta(id, answer(old, id), answer(new, id)))
            .collect(),
    }
}

fn metric_delta(metric: &str, old: Option<Answer>, new: Option<Answer>) -> MetricDelta {
    let (is_binary, delta, status) = match (old, new) {
        // Repetitions pass together, as their case does.
        (Some(Answer::Binary(old)), Some(Answer::Binary(new))) => (
            Some(true),
            None,
            ChangeStatus::of_flip(old >= 1.0, new >= 1.0),
        ),
        (Some(Answer::Scored(old)), Some(Answer::Scored(new))) => (
            Some(false),
            Some(new - old),
            ChangeStatus::of_delta(new - old, 0.0),
        ),
        (Some(one), None) | (None, Some(one)) => (one.is_binary(), None, ChangeStatus::Unchanged),
        _ => (None, None, ChangeStatus::Unchanged),
    };
    MetricDelta {
        metric: metric.to_owned(),
        is_binary,
        delta,
        status,
    }
}

fn averages(matched: &[(&str, &Reduced<'_>, &Reduced<'_>)]) -> Vec<MetricAverages> {
    let mut sides: BTreeMap<&str, [Vec<Answer>; 2]> = BTreeMap::new();
    for (_, old, new) in matched {
        for (id, answer) in &old.metrics {
            sides.entry(id).or_default()[0].push(*answer);
        }
        for (id, answer) in &new.metrics {
            sides.entry(id).or_default()[1].push(*answer);
        }
    }
    let rows = sides.into_iter().map(|(metric, [old, new])| {
        let is_binary = Answer::mean(&[old.as_slice(), &new].concat()).and_then(Answer::is_binary);
        let average = |answers: &[Answer]| {
            let mean = Answer::mean(answers).and_then(Answer::number);
            mean.filter(|_| is_binary.is_some()).map(rounded::<4>)
        };
        let (baseline_avg, candidate_avg) = (average(&old), average(&new));
        let delta = baseline_avg
            .zip(candidate_avg)
            .map(|(old, new)| rounded::<4>(new - old));
        MetricAverages {
            metric: metric.to_owned(),
            is_binary,
            baseline_avg,
            candidate_avg,
            delta,
        }
    });
    rows.collect()
}

fn figures(rows: &[ComparedCase]) -> RunSummary {
    let result = |row: &ComparedCase| CaseResult {
        test_case: row.test_case.clone(),
        case_passed: row.passed,
        error: row.error.clone(),
        overall_score: row.overall_score,
        agent_latency_p50_ms: row.agent_latency_p50_ms,
        estimated_cost_usd: row.estimated_cost_usd,
        ..Default::default()
    };
    let results: Vec<CaseResult> = rows.iter().map(result).collect();
    summarise(&results, &RunBars::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(json: serde_json::Value) -> Vec<ComparedCase> {
        serde_json::from_value(json).unwrap()
    }

    fn case(passed: bool, score: f64) -> serde_json::Value {
        serde_json::json!({"test_case": "a", "passed": passed, "overall_score": score})
    }

    #[test]
    fn repetitions_become_one_row() {
        let old = rows(serde_json::json!([
            {"test_case": "a", "passed": true, "overall_score": 90, "total_latency_ms": 10, "metrics": {"m": 4, "b": true}},
            {"test_case": "a", "passed": true, "overall_score": 80, "total_latency_ms": 20, "metrics": {"m": 3, "b": true}},
        ]));
        let new = rows(serde_json::json!([
            {"test_case": "a", "passed": true, "overall_score": 90, "metrics": {"m": 4, "b": true}},
            {"test_case": "a", "passed": false, "overall_score": null, "metrics": {"m": 5, "b": false}},
            {"test_case": "a", "passed": false, "overall_score": 90, "metrics": {"m": 5, "b": false}},
        ]));
        let result = compare(&old, &new, &Thresholds::default());
        let found = &result.cases[0];
        assert_eq!(
            (found.status, found.score_delta, found.latency_delta_ms),
            (ChangeStatus::Regression, Some(5.0), None)
        );
        let metrics: Vec<_> = found
            .metric_deltas
            .iter()
            .map(|m| (m.delta, m.status))
            .collect();
        assert_eq!(
            metrics,
            [
                (None, ChangeStatus::Regression),
                (Some(1.0), ChangeStatus::Improvement)
            ]
        );
        let averages: Vec<_> = result
            .aggregate
            .per_metric
            .iter()
            .map(|m| (m.baseline_avg, m.candidate_avg))
            .collect();
        assert_eq!(averages, [(Some(1.0), Some(0.5)), (Some(3.5), Some(4.5))]);
        let mut failing = new.clone();
        failing[0].error = Some("x".into());
        assert_eq!(
            compare(&old, &failing, &Thresholds::default()).cases[0].status,
            ChangeStatus::Error
        );
    }

    #[test]
    fn five_points_are_noise_and_more_are_not() {
        let status = |old: f64, new: f64| {
            let (old, new) = (
                rows(serde_json::json!([case(true, old)])),
                rows(serde_json::json!([case(true, new)])),
            );
            compare(&old, &new, &Thresholds::default()).cases[0].status
        };
        assert_eq!(status(90.0, 85.0), ChangeStatus::Unchanged);
        assert_eq!(status(90.0, 84.999), ChangeStatus::Regression);
        assert_eq!(status(85.0, 90.0), ChangeStatus::Unchanged);
        assert_eq!(status(85.0, 90.001), ChangeStatus::Improvement);
    }

    #[test]
    fn answers_without_a_verdict_do_not_count() {
        let row = |score: serde_json::Value| {
            rows(
                serde_json::json!([{"test_case": "a", "overall_score": score, "metrics": {"m": 4}}]),
            )
        };
        let (judged, not) = (row(80.into()), row(serde_json::Value::Null));
        let result = compare(&judged, &not, &Thresholds::default());
        let found = &result.cases[0].metric_deltas[0];
        assert_eq!((found.delta, found.status), (None, ChangeStatus::Unchanged));
        let averages = &result.aggregate.per_metric[0];
        assert_eq!(
            (averages.baseline_avg, averages.candidate_avg),
            (Some(4.0), None)
        );
        assert!(
            compare(&not, &not, &Thresholds::default())
                .aggregate
                .per_metric
                .is_empty()
        );
    }

    #[test]
    fn a_metric_of_two_scales_has_nulls() {
        let old = rows(
            serde_json::json!([{"test_case": "a", "overall_score": 80, "metrics": {"m": 4, "n": 1}}]),
        );
        let new = rows(
            serde_json::json!([{"test_case": "a", "overall_score": 80, "metrics": {"m": true}}]),
        );
        let result = compare(&old, &new, &Thresholds::default());
        let found = &result.cases[0].metric_deltas;
        assert_eq!(
            (found[0].is_binary, found[0].delta, found[0].status),
            (None, None, ChangeStatus::Unchanged)
        );
        assert_eq!((found[1].is_binary, found[1].delta), (Some(false), None));
        let averages = &result.aggregate.per_metric;
        assert_eq!(
            (
                averages[0].is_binary,
                averages[0].baseline_avg,
                averages[0].candidate_avg
            ),
            (None, None, None)
        );
        assert_eq!(
            (
                averages[1].baseline_avg,
                averages[1].candidate_avg,
                averages[1].delta
            ),
            (Some(1.0), None, None)
        );
    }

    #[test]
    fn something_moves_with_a_case_the_pass_rate_or_the_score() {
        let moved = |old: serde_json::Value, new: serde_json::Value| {
            compare(
                &rows(serde_json::json!([old])),
                &rows(serde_json::json!([new])),
                &Thresholds::default(),
            )
        };
        assert!(!moved(case(true, 90.0), case(true, 89.0)).anything_moved());
        assert!(moved(case(true, 90.0), case(true, 88.9)).anything_moved());
        let worse = moved(case(true, 90.0), case(false, 90.0));
        assert!(worse.anything_moved() && worse.worst_regressions(10).len() == 1);
        assert!(worse.worst_regressions(0).is_empty() && !worse.case_lists_differ());
    }
}
