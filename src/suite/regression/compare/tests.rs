use super::super::sum::count;
use super::*;

fn side(cases: &[(&str, &[(&str, f64)])], recorded: &[(&str, f64)]) -> Side {
    let cases = cases.iter().map(|(id, metrics)| SideCase {
        id: (*id).to_owned(),
        score: metrics.iter().map(|(_, score)| score).sum::<f64>() / count(metrics.len()),
        weight: 1.0,
        metrics: metrics.iter().copied().collect(),
    });
    Side {
        version: "1".to_owned(),
        suite_score: 0.5,
        metric_scores: recorded.iter().copied().collect(),
        cases: cases.collect(),
    }
}

/// As the tool: every case is said to be left out, none is; the last case stands for the mean.
#[test]
fn as_the_tool_nothing_is_left_out() {
    let then = side(&[("a", &[("tone", 0.8)])], &[("tone", 0.8)]);
    let now = side(
        &[("a", &[("tone", 0.8)]), ("b", &[("tone", 0.4)])],
        &[("tone", 0.6)],
    );
    let config = RegressionConfig::default();
    let tool = compare(Some(&then), &now, &config, Compat::Tool);
    assert_eq!(tool.test_cases_excluded, ["a", "b"]);
    assert_eq!(tool.metric_deltas.get("tone"), Some(&-0.5));
    assert_eq!(tool.case_deltas, []);
    let ours = compare(Some(&then), &now, &config, Compat::Document);
    assert_eq!(ours.test_cases_excluded, ["b"]);
    assert_eq!(ours.metric_deltas.get("tone"), Some(&0.0));
    assert_eq!(
        compare(None, &now, &config, Compat::Tool).status,
        RegressionStatus::Clean
    );
}

#[test]
fn a_metric_that_only_left_out_cases_have_has_no_change() {
    let then = side(&[("a", &[("tone", 0.8)])], &[("tone", 0.8)]);
    let now = side(
        &[("a", &[("tone", 0.8)]), ("b", &[("format", 0.0)])],
        &[("tone", 0.8), ("format", 0.0)],
    );
    let config = RegressionConfig {
        metric_tolerances: [("format", 0.0)].into_iter().collect(),
        ..RegressionConfig::default()
    };
    let got = compare(Some(&then), &now, &config, Compat::Document);
    assert_eq!(got.metric_deltas.get("format"), Some(&0.0));
    assert_eq!(got.status, RegressionStatus::Clean);
    assert_eq!(got.metric_tolerances_applied.get("tone"), Some(&0.05));
}

#[test]
fn differences_are_of_metrics_that_both_runs_have() {
    let then = side(&[("a", &[("tone", 0.5), ("old", 1.0)])], &[]);
    let now = side(&[("a", &[("tone", 0.75), ("new", 1.0)])], &[]);
    let got = compare(
        Some(&then),
        &now,
        &RegressionConfig::default(),
        Compat::Document,
    );
    let metrics: Vec<_> = got.case_deltas[0].metrics.iter().collect();
    assert_eq!(metrics, [("tone", &0.25)]);
}
