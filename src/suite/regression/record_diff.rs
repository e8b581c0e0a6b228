//! Two runs side by side: what a later run has gained and lost.

use std::collections::HashMap;

use super::compare::{CaseStatus, relative_change};
use super::named::Named;
use super::record::{CaseRecord, RunRecord};

/// A figure of both runs; none where a run lacks it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThenNow {
    /// In the earlier run.
    pub then: Option<f64>,
    /// In the later run.
    pub now: Option<f64>,
}

impl ThenNow {
    /// Now less then, where both are there.
    pub fn difference(self) -> Option<f64> {
        Some(self.now? - self.then?)
    }

    /// The change as a share of the earlier figure, where both are there; from 0 it is 1 if there is any score now.
    pub fn relative_change(self) -> Option<f64> {
        Some(relative_change(self.now?, self.then?))
    }
}

/// A case of either run.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseDiff {
    /// The case.
    pub id: String,
    /// What became of it.
    pub status: CaseStatus,
    /// Its scores.
    pub score: ThenNow,
    /// Whether it passed in the earlier run.
    pub passed_then: Option<bool>,
    /// Whether it passed in the later run.
    pub passed_now: Option<bool>,
    /// The scores of its metrics: those of the later run, then those that only the earlier one has.
    pub metrics: Named<ThenNow>,
}

impl CaseDiff {
    /// Whether it passed in one run and not in the other.
    pub fn is_flipped(&self) -> bool {
        matches!((self.passed_then, self.passed_now), (Some(then), Some(now)) if then != now)
    }
}

/// Two runs side by side.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDiff {
    /// The ids of the earlier and the later run.
    pub runs: [String; 2],
    /// Whether both are runs of the same suite.
    pub same_suite: bool,
    /// Whether the suite's version changed.
    pub version_changed: bool,
    /// The suite's scores.
    pub suite: ThenNow,
    /// The means of metrics: those of the later run, then those that only the earlier one has.
    pub metrics: Named<ThenNow>,
    /// In the order of the later run, removed ones last.
    pub cases: Vec<CaseDiff>,
}

/// What changed from the run `then` to the run `now`.
pub fn diff_records(then: &RunRecord, now: &RunRecord) -> RunDiff {
    let index = |record: &RunRecord| -> HashMap<String, usize> {
        let cases = record.cases.iter().enumerate();
        cases.map(|(at, of)| (of.case.id.clone(), at)).collect()
    };
    let (old, new) = (index(then), index(now));
    let found = |of: &CaseRecord| then.cases.get(*old.get(&of.case.id)?);
    let current = now.cases.iter().map(|of| case_diff(found(of), Some(of)));
    let removed = then.cases.iter();
    let removed = removed.filter(|of| !new.contains_key(&of.case.id));
    let removed = removed.map(|of| case_diff(Some(of), None));
    let means = |record: &RunRecord| record.side().metric_scores;
    RunDiff {
        runs: [then.head.run_id.clone(), now.head.run_id.clone()],
        same_suite: then.head.golden_set_name == now.head.golden_set_name,
        version_changed: then.head.golden_set_version != now.head.golden_set_version,
        suite: ThenNow {
            then: Some(then.head.suite_score),
            now: Some(now.head.suite_score),
        },
        metrics: side_by_side(&means(then), &means(now)),
        cases: current.chain(removed).flatten().collect(),
    }
}

fn case_diff(then: Option<&CaseRecord>, now: Option<&CaseRecord>) -> Option<CaseDiff> {
    let score = ThenNow {
        then: then.map(|of| of.figures.score),
        now: now.map(|of| of.figures.score),
    };
    let scores = |of: Option<&CaseRecord>| {
        let side = of.map(|of| of.case.side(of.figures.score));
        side.map(|side| side.metrics).unwrap_or_default()
    };
    Some(CaseDiff {
        id: now.or(then)?.case.id.clone(),
        status: match (score.difference(), now) {
            (Some(difference), _) => CaseStatus::of_difference(difference),
            (None, Some(_)) => CaseStatus::New,
            (None, None) => CaseStatus::Removed,
        },
        score,
        passed_then: then.map(|of| of.figures.passed),
        passed_now: now.map(|of| of.figures.passed),
        metrics: side_by_side(&scores(then), &scores(now)),
    })
}

fn side_by_side(then: &Named<f64>, now: &Named<f64>) -> Named<ThenNow> {
    let pair = |name: &str| ThenNow {
        then: then.get(name).copied(),
        now: now.get(name).copied(),
    };
    let names = now.names().chain(then.names());
    names.map(|name| (name, pair(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn suites_metrics_and_cases_are_held_side_by_side() {
        let mut then = record(
            "run_20260601_aaaaaa",
            &[("a", 0.9), ("b", 0.2), ("gone", 0.5)],
        );
        then.head.golden_set_version = "0.9".to_owned();
        let now = record(
            "run_20260602_bbbbbb",
            &[("b", 0.8), ("a", 0.9), ("fresh", 1.0)],
        );
        let diff = diff_records(&then, &now);
        assert!(diff.same_suite && diff.version_changed);
        let told: Vec<_> = diff
            .cases
            .iter()
            .map(|of| (of.id.as_str(), of.status.name(), of.is_flipped()))
            .collect();
        let expected = [
            ("b", "improved", true),
            ("a", "unchanged", false),
            ("fresh", "new", false),
            ("gone", "removed", false),
        ];
        assert_eq!(told, expected);
        let metric = diff.metrics.get("format").unwrap();
        assert!((metric.difference().unwrap() - (2.7 - 1.6) / 3.0).abs() < 1e-12);
        let change = diff.suite.relative_change().unwrap();
        assert!((change - 1.1 / 1.6).abs() < 1e-12);
    }
}
