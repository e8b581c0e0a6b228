//! A run held against its baseline: deltas, status, and what became of each case (as in Regtrace).

use std::collections::HashMap;

use super::config::RegressionConfig;
use super::named::Named;
use super::sum::{mean, weighted_mean};
use crate::metric::comparison::Compat;

/// Differences of case scores up to this are rounding noise.
const NOISE: f64 = 1e-9;

/// What a comparison says of a suite or of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RegressionStatus {
    /// There is nothing to compare with.
    New,
    /// No loss, or one within the tolerance.
    Clean,
    /// A loss beyond the tolerance.
    Warning,
    /// A loss beyond the critical threshold.
    Critical,
}

impl RegressionStatus {
    /// All of them, from good to bad.
    pub const ALL: [Self; 4] = [Self::New, Self::Clean, Self::Warning, Self::Critical];

    /// The name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Clean => "clean",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// What is said where there is no baseline; the tool calls that clean.
    pub(super) fn without_baseline(compat: Compat) -> Self {
        match compat {
            Compat::Document => Self::New,
            Compat::Tool => Self::Clean,
        }
    }
}

/// One of the two runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    /// The version of the suite.
    pub version: String,
    /// As it was recorded, 0 to 1.
    pub suite_score: f64,
    /// The recorded mean of each metric, 0 to 1.
    pub metric_scores: Named<f64>,
    /// In order.
    pub cases: Vec<SideCase>,
}

/// A case of one of the two runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SideCase {
    /// Unique in its suite.
    pub id: String,
    /// 0 to 1.
    pub score: f64,
    /// From 0.
    pub weight: f64,
    /// The score of each metric, 0 to 1.
    pub metrics: Named<f64>,
}

impl Side {
    /// Its cases by their ids.
    pub(super) fn by_id(&self) -> HashMap<&str, &SideCase> {
        let cases = self.cases.iter();
        cases.map(|case| (case.id.as_str(), case)).collect()
    }
}

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaseStatus {
    /// It scores more.
    Improved,
    /// It scores less.
    Regressed,
    /// It scores the same.
    Unchanged,
    /// The baseline does not have it.
    New,
    /// Only the baseline has it.
    Removed,
}

impl CaseStatus {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Improved,
        Self::Regressed,
        Self::Unchanged,
        Self::New,
        Self::Removed,
    ];

    /// The name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Improved => "improved",
            Self::Regressed => "regressed",
            Self::Unchanged => "unchanged",
            Self::New => "new",
            Self::Removed => "removed",
        }
    }

    /// What a difference of scores means.
    pub fn of_difference(difference: f64) -> Self {
        match difference {
            up if up > NOISE => Self::Improved,
            down if down < -NOISE => Self::Regressed,
            _ => Self::Unchanged,
        }
    }
}

/// What became of a case, with the difference of its scores: now less then.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseDelta {
    /// The case.
    pub id: String,
    /// What became of it.
    pub status: CaseStatus,
    /// None for `new` and `removed`.
    pub delta: Option<f64>,
    /// Differences of metrics that both runs have.
    pub metrics: Named<f64>,
}

/// What a comparison says.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Of the suite.
    pub status: RegressionStatus,
    /// Relative change of the suite's score; 0 where there is nothing to compare with.
    pub suite_delta: f64,
    /// Relative change of each metric that the current run has.
    pub metric_deltas: Named<f64>,
    /// Ids of cases that were left out because the baseline lacks them.
    pub test_cases_excluded: Vec<String>,
    /// Whether the suite's version changed.
    pub version_change_detected: bool,
    /// The tolerance that each metric was held to; empty where the suite's score decides.
    pub metric_tolerances_applied: Named<f64>,
    /// In the order of the current run, removed ones last.
    pub case_deltas: Vec<CaseDelta>,
}

/// The relative change from `then` to `now`; from 0 it is 1 if there is any score now.
pub fn relative_change(now: f64, then: f64) -> f64 {
    match then == 0.0 {
        true if now > 0.0 => 1.0,
        true => 0.0,
        false => (now - then) / then,
    }
}

/// What a relative change means.
pub fn status_of(delta: f64, tolerance: f64, critical_threshold: f64) -> RegressionStatus {
    if delta >= -tolerance {
        RegressionStatus::Clean
    } else if delta >= -critical_threshold {
        RegressionStatus::Warning
    } else {
        RegressionStatus::Critical
    }
}

/// Two values of one thing: then and now.
struct Pair {
    then: f64,
    now: f64,
}

/// What both sides are held to: the suite's scores, and each metric's with the baseline's where it has one.
struct Held {
    suite: Pair,
    metrics: Vec<(String, f64, Option<f64>)>,
}

/// Compares a run with its baseline, if it has one.
///
/// With [`RegressionConfig::exclude_new_test_cases`] only cases of both runs are compared: the suite's scores are
/// computed again over them, both with the current weights, and so are the means of metrics. Otherwise recorded scores
/// are compared.
pub fn compare(
    baseline: Option<&Side>,
    current: &Side,
    config: &RegressionConfig,
    compat: Compat,
) -> Comparison {
    let Some(baseline) = baseline else {
        return Comparison {
            status: RegressionStatus::without_baseline(compat),
            suite_delta: 0.0,
            metric_deltas: Named::default(),
            test_cases_excluded: Vec::new(),
            version_change_detected: false,
            metric_tolerances_applied: Named::default(),
            case_deltas: case_deltas(&Side::default(), current, compat),
        };
    };
    let old: HashMap<&str, &SideCase> = baseline.by_id();
    let exclude = config.exclude_new_test_cases;
    let held = match (compat, exclude) {
        (Compat::Document, true) => common(&old, current),
        (Compat::Document, false) => Some(recorded(baseline, current, |name| {
            current.metric_scores.get(name).copied()
        })),
        (Compat::Tool, _) => Some(recorded(baseline, current, |name| {
            last_score(current, name)
        })),
    };
    let is_excluded = |case: &&SideCase| match compat {
        Compat::Document => exclude && !old.contains_key(case.id.as_str()),
        // The tool lists all of them, and compares them all the same.
        Compat::Tool => exclude,
    };
    let excluded = current.cases.iter().filter(is_excluded);
    let mut comparison = Comparison {
        status: RegressionStatus::New,
        suite_delta: 0.0,
        metric_deltas: Named::default(),
        test_cases_excluded: excluded.map(|case| case.id.clone()).collect(),
        version_change_detected: baseline.version != current.version,
        metric_tolerances_applied: Named::default(),
        case_deltas: case_deltas(baseline, current, compat),
    };
    if let Some(held) = held {
        decide(&mut comparison, held, config);
    }
    comparison
}

fn decide(comparison: &mut Comparison, held: Held, config: &RegressionConfig) {
    comparison.suite_delta = relative_change(held.suite.now, held.suite.then);
    let critical = config.critical_threshold;
    comparison.status = match config.metric_tolerances.is_empty() {
        true => status_of(comparison.suite_delta, config.tolerance, critical),
        // The worst metric decides.
        false => RegressionStatus::Clean,
    };
    for (name, now, then) in held.metrics {
        let delta = then.map_or(0.0, |then| relative_change(now, then));
        if !config.metric_tolerances.is_empty() {
            let own = config.metric_tolerances.get(&name).copied();
            let tolerance = own.unwrap_or(config.tolerance);
            let status = status_of(delta, tolerance, critical);
            comparison.status = comparison.status.max(status);
            let applied = &mut comparison.metric_tolerances_applied;
            applied.insert(name.clone(), tolerance);
        }
        comparison.metric_deltas.insert(name, delta);
    }
}

/// The metrics that a side has: those of its cases, and recorded ones.
fn metrics_of(side: &Side) -> Named<()> {
    let of_cases = side.cases.iter().flat_map(|case| case.metrics.names());
    let names = side.metric_scores.names().chain(of_cases);
    names.map(|name| (name, ())).collect()
}

fn recorded(baseline: &Side, current: &Side, now: impl Fn(&str) -> Option<f64>) -> Held {
    let metrics = current.metric_scores.iter().map(|(name, recorded)| {
        let then = baseline.metric_scores.get(name).copied();
        (name.to_owned(), now(name).unwrap_or(*recorded), then)
    });
    Held {
        suite: Pair {
            then: baseline.suite_score,
            now: current.suite_score,
        },
        metrics: metrics.collect(),
    }
}

/// The score of the last case that has the metric, which is what the tool takes for its mean.
fn last_score(side: &Side, metric: &str) -> Option<f64> {
    let mut cases = side.cases.iter().rev();
    cases.find_map(|case| case.metrics.get(metric).copied())
}

/// Both sides over the cases that both have; none where they have none in common.
fn common(old: &HashMap<&str, &SideCase>, current: &Side) -> Option<Held> {
    let cases = current.cases.iter();
    let pairs: Vec<(&SideCase, &SideCase)> = cases
        .filter_map(|now| Some((*old.get(now.id.as_str())?, now)))
        .collect();
    if pairs.is_empty() {
        return None;
    }
    let compat = Compat::Document;
    let weighted = |score: fn(&SideCase, &SideCase) -> f64| {
        let scores = pairs
            .iter()
            .map(|(then, now)| (now.weight, score(then, now)));
        weighted_mean(scores, compat)
    };
    let all = metrics_of(current);
    let metrics = all.names().map(|name| {
        let of = |case: &SideCase| case.metrics.get(name).copied();
        let now = pairs.iter().filter_map(|(_, now)| of(now)).collect();
        let then = pairs.iter().filter_map(|(then, _)| of(then)).collect();
        let (now, then) = (mean(now, compat), mean(then, compat));
        // Only a case that is left out has it now: there is nothing to compare.
        let then = now.and(then);
        (name.to_owned(), now.unwrap_or(0.0), then)
    });
    Some(Held {
        suite: Pair {
            then: weighted(|then, _| then.score),
            now: weighted(|_, now| now.score),
        },
        metrics: metrics.collect(),
    })
}

fn case_deltas(baseline: &Side, current: &Side, compat: Compat) -> Vec<CaseDelta> {
    if compat == Compat::Tool {
        return Vec::new();
    }
    let (old, new) = (baseline.by_id(), current.by_id());
    let without = |case: &SideCase, status| CaseDelta {
        id: case.id.clone(),
        status,
        delta: None,
        metrics: Named::default(),
    };
    let now = current.cases.iter().map(|now| {
        let Some(then) = old.get(now.id.as_str()) else {
            return without(now, CaseStatus::New);
        };
        let delta = now.score - then.score;
        CaseDelta {
            id: now.id.clone(),
            status: CaseStatus::of_difference(delta),
            delta: Some(delta),
            metrics: differences(&then.metrics, &now.metrics),
        }
    });
    let removed = baseline.cases.iter();
    let removed = removed.filter(|case| !new.contains_key(case.id.as_str()));
    let removed = removed.map(|case| without(case, CaseStatus::Removed));
    now.chain(removed).collect()
}

/// Differences of the metrics that both have: now less then.
fn differences(then: &Named<f64>, now: &Named<f64>) -> Named<f64> {
    let pairs = now.iter();
    let pairs = pairs.filter_map(|(name, now)| Some((name, now - then.get(name)?)));
    pairs.collect()
}

#[cfg(test)]
mod tests;
