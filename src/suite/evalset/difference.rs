//! Two results of a set side by side: what newly passes, what newly fails, and how scores moved.

use std::collections::BTreeMap;

use serde::Serialize;

use super::result::{EvalSetResult, EvalStatus, MetricSummary};

/// A smaller move of a score is none.
const LEAST_MOVE: f64 = 1e-9;

/// What changed from one result to another, case by case and metric by metric, by id and name.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ResultDifference {
    /// The set of the earlier result, and of the later one.
    pub sets: (String, String),
    /// Cases and metrics whose end or score is another, and those that are only on one side.
    pub changes: Vec<ResultChange>,
    /// Cases and metrics that are on both sides and are the same.
    pub unchanged: usize,
}

/// What changed in a case, or in one of its metrics.
#[derive(Clone, Debug, Serialize)]
pub struct ResultChange {
    /// The case.
    pub case: String,
    /// The metric; none where it is about the case as a whole.
    pub metric: Option<String>,
    /// `newly_passed`, `newly_failed`, `moved`, `changed`, `added` or `removed`.
    pub kind: &'static str,
    /// How it ended before and after; empty where it is not there.
    pub status: (&'static str, &'static str),
    /// The score before and after, where it is a metric's.
    pub score: (Option<f64>, Option<f64>),
    /// What broke down in the later result.
    pub error: String,
}

impl ResultDifference {
    /// Whether there is nothing on both sides, so that nothing was compared.
    pub fn is_of_strangers(&self) -> bool {
        let one_sided = |change: &ResultChange| ["added", "removed"].contains(&change.kind);
        self.unchanged == 0 && self.changes.iter().all(one_sided)
    }

    /// Whether nobody can say of something that passed before whether it does now.
    pub fn lost(&self) -> bool {
        let passed = EvalStatus::Passed.name();
        let mut changes = self.changes.iter();
        changes.any(|change| {
            change.status.0 == passed && ["removed", "changed"].contains(&change.kind)
        })
    }

    /// Whether anything that passed before fails now.
    pub fn newly_failed(&self) -> bool {
        self.changes
            .iter()
            .any(|change| change.kind == "newly_failed")
    }

    /// The difference for a reader.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.changes.iter().map(ResultChange::line).collect();
        lines.push(format!("{} unchanged", self.unchanged));
        if self.sets.0 != self.sets.1 {
            let (before, after) = &self.sets;
            lines.push(format!("the results are of two sets, {before} and {after}"));
        }
        lines
    }
}

impl ResultChange {
    fn line(&self) -> String {
        let metric = self
            .metric
            .as_ref()
            .map_or(String::new(), |name| format!(" {name}"));
        let scores = match self.score {
            (Some(before), Some(after)) => {
                format!(", score {before:.4} to {after:.4} ({:+.4})", after - before)
            }
            _ => String::new(),
        };
        let status = match self.status {
            ("", after) => after.to_owned(),
            (before, "") => before.to_owned(),
            (before, after) if before == after => before.to_owned(),
            (before, after) => format!("{before} to {after}"),
        };
        let error = match self.error.is_empty() {
            true => String::new(),
            false => format!(": {}", self.error),
        };
        format!(
            "{} {}{metric}: {status}{scores}{error}",
            self.kind.replace('_', " "),
            self.case
        )
    }
}

/// An end and, of a metric, its score.
type Found = (EvalStatus, Option<f64>, String);

/// What changed from `before` to `after`. A result without a summary is compared by its cases alone.
pub fn compare_results(before: &EvalSetResult, after: &EvalSetResult) -> ResultDifference {
    let (old, new) = (found(before), found(after));
    let mut difference = ResultDifference {
        sets: (before.set_id.clone(), after.set_id.clone()),
        ..ResultDifference::default()
    };
    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for key in keys {
        let (was, is) = (old.get(key), new.get(key));
        let Some(kind) = kind(was, is) else {
            difference.unchanged += 1;
            continue;
        };
        let status = |found: Option<&Found>| found.map_or("", |(status, ..)| status.name());
        let score = |found: Option<&Found>| found.and_then(|(_, score, _)| *score);
        difference.changes.push(ResultChange {
            case: key.0.clone(),
            metric: key.1.clone(),
            kind,
            status: (status(was), status(is)),
            score: (score(was), score(is)),
            error: is.map(|(.., error)| error.clone()).unwrap_or_default(),
        });
    }
    difference
}

fn kind(was: Option<&Found>, is: Option<&Found>) -> Option<&'static str> {
    use EvalStatus::{Failed, Passed};
    let ((was, old, _), (is, new, _)) = match (was, is) {
        // Something that fails and was not looked at before is no mere addition.
        (None, Some((Failed, ..))) => return Some("newly_failed"),
        (None, _) => return Some("added"),
        (_, None) => return Some("removed"),
        (Some(was), Some(is)) => (was, is),
    };
    let moved = match (old, new) {
        (Some(old), Some(new)) => (old - new).abs() > LEAST_MOVE,
        _ => false,
    };
    match (was, is) {
        (was, Failed) if *was != Failed => Some("newly_failed"),
        (was, Passed) if *was != Passed => Some("newly_passed"),
        (was, is) if was != is => Some("changed"),
        _ => moved.then_some("moved"),
    }
}

/// Case by case, and metric by metric in them. Of several runs of a case the worst end counts, and each error: an average
/// hides both.
fn found(result: &EvalSetResult) -> BTreeMap<(String, Option<String>), Found> {
    let mut found: BTreeMap<(String, Option<String>), Found> = BTreeMap::new();
    let mut put = |key: (String, Option<String>), one: Found| match found.entry(key) {
        std::collections::btree_map::Entry::Vacant(place) => {
            place.insert(one);
        }
        std::collections::btree_map::Entry::Occupied(mut place) => {
            let known = place.get_mut();
            if badness(one.0) > badness(known.0) {
                known.0 = one.0;
            }
            known.1 = known.1.or(one.1);
            if known.2.is_empty() {
                known.2 = one.2;
            }
        }
    };
    // The scores of summaries are over all runs.
    let of_metric =
        |metric: &MetricSummary| (metric.status, Some(metric.average_score), String::new());
    for case in result.summary.iter().flat_map(|summary| &summary.cases) {
        put((case.id.clone(), None), (case.status, None, String::new()));
        for metric in &case.metrics {
            put(
                (case.id.clone(), Some(metric.name.clone())),
                of_metric(metric),
            );
        }
    }
    for case in &result.cases {
        let whole = (case.status, None, case.error_message.clone());
        put((case.id.clone(), None), whole);
        for metric in &case.metrics {
            let key = (case.id.clone(), Some(metric.name.clone()));
            put(key, (metric.status, Some(metric.score), String::new()));
        }
    }
    found
}

/// What counts before what.
fn badness(status: EvalStatus) -> u8 {
    match status {
        EvalStatus::Failed => 3,
        EvalStatus::NotEvaluated => 2,
        EvalStatus::Unknown | EvalStatus::Unset => 1,
        EvalStatus::Passed => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::{CaseResult, MetricResult};
    use super::*;

    fn result(cases: &[(&str, EvalStatus, f64)]) -> EvalSetResult {
        let cases = cases.iter().map(|(id, status, score)| CaseResult {
            id: (*id).to_owned(),
            status: *status,
            metrics: vec![MetricResult {
                name: "m".to_owned(),
                score: *score,
                status: *status,
                ..MetricResult::default()
            }],
            ..CaseResult::default()
        });
        EvalSetResult {
            cases: cases.collect(),
            ..EvalSetResult::default()
        }
    }

    #[test]
    fn what_newly_fails_is_told_from_what_moved() {
        use EvalStatus::{Failed, Passed};
        let before = result(&[
            ("a", Passed, 1.0),
            ("b", Failed, 0.0),
            ("c", Passed, 0.9),
            ("d", Passed, 1.0),
        ]);
        let after = result(&[
            ("a", Failed, 0.2),
            ("b", Passed, 1.0),
            ("c", Passed, 0.8),
            ("e", Passed, 1.0),
        ]);
        let difference = compare_results(&before, &after);
        let kinds: Vec<(&str, bool, &str)> = difference
            .changes
            .iter()
            .map(|change| (change.case.as_str(), change.metric.is_some(), change.kind))
            .collect();
        assert_eq!(
            kinds,
            [
                ("a", false, "newly_failed"),
                ("a", true, "newly_failed"),
                ("b", false, "newly_passed"),
                ("b", true, "newly_passed"),
                ("c", true, "moved"),
                ("d", false, "removed"),
                ("d", true, "removed"),
                ("e", false, "added"),
                ("e", true, "added"),
            ]
        );
        assert_eq!(difference.unchanged, 1);
        assert!(difference.newly_failed());
        assert!(difference.lost() && !difference.is_of_strangers());
        let same = compare_results(&before, &before);
        assert!(!same.newly_failed() && !same.lost() && !same.is_of_strangers());
        let unsaid = result(&[("a", EvalStatus::NotEvaluated, 0.0)]);
        assert!(compare_results(&result(&[("a", Passed, 1.0)]), &unsaid).lost());
        assert!(compare_results(&before, &result(&[("z", Passed, 1.0)])).is_of_strangers());
    }
}
