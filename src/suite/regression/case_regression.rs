//! The comparison with the baseline as a metric of a single case (as in Regtrace).

use std::collections::HashMap;

use super::cascade::{EvaluatedCase, case_score};
use super::compare::{RegressionStatus, Side, SideCase, relative_change, status_of};
use super::config::RegressionConfig;
use super::named::Named;
use super::suite_metric::SuiteMetric;
use crate::metric::checked::Checked;
use crate::metric::comparison::Compat;

/// What the comparison is worth as a score: 1, 0.5 or 0. It passes at 1, whatever the threshold.
pub fn regression_score(status: RegressionStatus) -> f64 {
    match status {
        RegressionStatus::New | RegressionStatus::Clean => 1.0,
        RegressionStatus::Warning => 0.5,
        RegressionStatus::Critical => 0.0,
    }
}

/// The status of a score against that of the baseline; none where there is none to compare.
pub fn regression_of_scores(
    then: Option<f64>,
    now: Option<f64>,
    config: &RegressionConfig,
    compat: Compat,
) -> RegressionStatus {
    match (then, now) {
        (Some(then), Some(now)) => {
            let delta = relative_change(now, then);
            status_of(delta, config.tolerance, config.critical_threshold)
        }
        _ => RegressionStatus::without_baseline(compat),
    }
}

/// What a case is compared with.
#[derive(Clone, Copy, Debug)]
pub struct CaseBaseline<'a> {
    /// The same case in the baseline run; none where that run lacks it.
    pub case: Option<&'a SideCase>,
    /// The score of the baseline run's suite, 0 to 1.
    pub suite_score: f64,
}

/// The metric of a case, from the results of its other metrics: their weighted mean now against that of the baseline
/// run, both with the weights of now. Without other metrics the case is new.
///
/// The tool compares a constant 0 with the baseline's suite score, so that there any baseline makes a case fail.
pub fn regression_of_case(
    baseline: Option<CaseBaseline<'_>>,
    results: &Named<Checked>,
    weight_of: impl Fn(&str) -> f64,
    config: &RegressionConfig,
    threshold: f64,
    compat: Compat,
) -> Checked {
    let is_other = |name: &str| name != SuiteMetric::Regression.name();
    let score = |scores: Vec<(&str, f64)>| {
        (!scores.is_empty()).then(|| case_score(scores.into_iter(), &weight_of, compat))
    };
    let (then, now) = match compat {
        Compat::Tool => (baseline.map(|of| of.suite_score), Some(0.0)),
        Compat::Document => {
            let then = baseline.and_then(|of| of.case).map(|case| {
                let scores = case.metrics.iter().map(|(name, score)| (name, *score));
                scores.filter(|(name, _)| is_other(name)).collect()
            });
            let now = results.iter().map(|(name, of)| (name, of.score));
            let now = now.filter(|(name, _)| is_other(name)).collect();
            (then.and_then(score), score(now))
        }
    };
    let status = regression_of_scores(then, now, config, compat);
    let score = regression_score(status);
    Checked {
        score,
        threshold,
        passed: score == 1.0,
        confidence: 1.0,
        explanation: explanation(status, then, now),
        judged: false,
        token_cost: Some(0.0),
        details: Vec::new(),
    }
}

/// Adds the metric to the cases that list it, after their other metrics: those with a threshold by `threshold_of`,
/// which is asked with the place of the case. `weight_of` is the weight of a metric.
pub fn add_regression(
    cases: &mut [EvaluatedCase],
    threshold_of: impl Fn(usize) -> Option<f64>,
    baseline: Option<&Side>,
    weight_of: impl Fn(&str) -> f64,
    config: &RegressionConfig,
    compat: Compat,
) {
    let old: HashMap<&str, &SideCase> = baseline.map(Side::by_id).unwrap_or_default();
    for (at, case) in cases.iter_mut().enumerate() {
        let Some(threshold) = threshold_of(at) else {
            continue;
        };
        let of = baseline.map(|baseline| CaseBaseline {
            case: old.get(case.id.as_str()).copied(),
            suite_score: baseline.suite_score,
        });
        let result = regression_of_case(of, &case.results, &weight_of, config, threshold, compat);
        let name = SuiteMetric::Regression.name();
        case.results.insert(name, result);
    }
}

fn explanation(status: RegressionStatus, then: Option<f64>, now: Option<f64>) -> String {
    match (then, now) {
        (Some(then), Some(now)) => {
            let delta = relative_change(now, then) * 100.0;
            let status = status.name();
            format!("{status}: {now:.3} after {then:.3} in the baseline run ({delta:+.1} %)")
        }
        (None, Some(_)) => "there is no earlier score of this case to compare with".to_owned(),
        _ => "the case has no other metric to compare by".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(score: f64) -> Checked {
        Checked {
            score,
            threshold: 0.7,
            passed: true,
            confidence: 1.0,
            explanation: String::new(),
            judged: false,
            token_cost: Some(0.0),
            details: Vec::new(),
        }
    }

    fn metric(then: Option<&[(&str, f64)]>, now: &[(&str, f64)], compat: Compat) -> Checked {
        let case = then.map(|scores| SideCase {
            metrics: scores.iter().copied().collect(),
            ..SideCase::default()
        });
        let baseline = Some(CaseBaseline {
            case: case.as_ref(),
            suite_score: 0.9,
        });
        let results = now.iter().map(|(name, score)| (*name, result(*score)));
        let weight_of = |name: &str| if name == "tone" { 3.0 } else { 1.0 };
        let config = RegressionConfig::default();
        regression_of_case(
            baseline,
            &results.collect(),
            weight_of,
            &config,
            0.2,
            compat,
        )
    }

    #[test]
    fn the_weighted_means_of_the_other_metrics_are_compared() {
        let then: &[(&str, f64)] = &[("tone", 0.8), ("format", 0.4), ("regression", 0.0)];
        // 0.7 then; 0.65 now.
        let warned = metric(
            Some(then),
            &[("tone", 0.7), ("format", 0.5)],
            Compat::Document,
        );
        assert_eq!((warned.score, warned.passed), (0.5, false));
        let clean = metric(
            Some(then),
            &[("tone", 0.8), ("format", 0.3)],
            Compat::Document,
        );
        assert_eq!((clean.score, clean.passed), (1.0, true));
        let lost = metric(
            Some(then),
            &[("tone", 0.5), ("format", 0.4)],
            Compat::Document,
        );
        assert_eq!((lost.score, lost.passed, lost.threshold), (0.0, false, 0.2));
    }

    #[test]
    fn a_case_without_anything_to_compare_is_new() {
        let now: &[(&str, f64)] = &[("tone", 0.0)];
        assert_eq!(metric(None, now, Compat::Document).score, 1.0);
        assert_eq!(metric(Some(now), &[], Compat::Document).score, 1.0);
        let only: &[(&str, f64)] = &[("regression", 1.0)];
        assert_eq!(metric(Some(only), now, Compat::Document).score, 1.0);
    }

    #[test]
    fn it_is_added_to_the_cases_that_list_it() {
        use super::super::record::tests::{evaluated, record};
        let baseline = record("run_20260601_aaaaaa", &[("a", 0.9), ("b", 0.9)]).side();
        let mut cases =
            [("b", 0.1), ("a", 0.1), ("c", 0.1)].map(|(id, score)| evaluated(id, score));
        let listed = |at: usize| (at != 1).then_some(0.7);
        let (config, weight_of) = (RegressionConfig::default(), |_: &str| 1.0);
        let document = Compat::Document;
        add_regression(
            &mut cases,
            listed,
            Some(&baseline),
            weight_of,
            &config,
            document,
        );
        let scores = cases.map(|of| of.results.get("regression").map(|of| of.score));
        assert_eq!(scores, [Some(0.0), None, Some(1.0)]);
    }

    #[test]
    fn as_the_tool_any_baseline_fails() {
        let same: &[(&str, f64)] = &[("tone", 0.9)];
        assert_eq!(metric(Some(same), same, Compat::Tool).score, 0.0);
    }
}
