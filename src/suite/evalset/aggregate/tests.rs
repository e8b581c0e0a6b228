//! Votes, means and summaries, by the cases that are easily got wrong.

use super::*;
use EvalStatus::{Failed, NotEvaluated, Passed, Unknown, Unset};

fn case(id: &str, run_id: i64, metrics: &[(&str, f64, EvalStatus, f64)]) -> CaseResult {
    let metrics = metrics
        .iter()
        .map(|(name, score, status, threshold)| MetricResult {
            name: (*name).to_owned(),
            score: *score,
            status: *status,
            threshold: *threshold,
            ..MetricResult::default()
        });
    CaseResult {
        id: id.to_owned(),
        run_id,
        status: Passed,
        metrics: metrics.collect(),
        ..CaseResult::default()
    }
}

#[test]
fn a_status_that_is_none_stops_the_summary() {
    assert_eq!(status_of_all("x", [Passed, NotEvaluated]), Ok(Passed));
    assert_eq!(status_of_all("x", [Failed, Passed]), Ok(Failed));
    assert_eq!(status_of_all("x", []), Ok(NotEvaluated));
    for status in [Unknown, Unset] {
        assert!(status_of_all("x", [Failed, status]).is_err());
        assert!(status_of_all("x", [status, Passed]).is_err());
    }
    let unset = CaseResult {
        status: Unset,
        ..case("a", 1, &[])
    };
    assert!(summarise(1, &[unset]).is_err());
}

#[test]
fn results_belong_to_a_run_and_a_case() {
    for (runs, id, run) in [
        (1, "a", 0),
        (1, "a", 2),
        (1, "a", -1),
        (1, "", 1),
        (0, "a", 1),
    ] {
        assert!(
            summarise(runs, &[case(id, run, &[])]).is_err(),
            "{id} {run}"
        );
    }
    assert!(summarise(2, &[case("a", 2, &[])]).is_ok());
}

#[test]
fn a_run_that_broke_down_is_hidden_by_the_average_and_told() {
    let broken = CaseResult {
        status: Failed,
        error_message: "boom".into(),
        ..case("a", 2, &[])
    };
    let good = case("a", 1, &[("m", 1.0, Passed, 0.5)]);
    let summary = summarise(2, &[broken.clone(), good]).unwrap();
    assert_eq!(summary.status, Passed);
    assert_eq!(summary.cases[0].runs[1].error_message, "boom");
    let hidden = HiddenError {
        case: "a".into(),
        run: 2,
        message: "boom".into(),
    };
    assert_eq!(hidden_errors(&summary), [hidden]);
    let alone = summarise(2, &[broken]).unwrap();
    assert_eq!(alone.cases[0].status, Failed);
    assert_eq!(alone.runs[0].status, NotEvaluated);
    assert!(hidden_errors(&alone).is_empty());
}

#[test]
fn the_first_threshold_counts_and_what_was_not_evaluated_does_not() {
    let results = [
        case("a", 2, &[("m", 0.9, Passed, 0.1)]),
        case(
            "a",
            1,
            &[
                ("m", 0.0, NotEvaluated, 0.95),
                ("k", 0.0, NotEvaluated, 1.0),
            ],
        ),
    ];
    let summary = summarise(2, &results).unwrap();
    let metrics = &summary.cases[0].metrics;
    assert_eq!(
        (metrics[0].name.as_str(), metrics[0].status),
        ("k", NotEvaluated)
    );
    assert_eq!((metrics[1].average_score, metrics[1].status), (0.9, Failed));
    let counts = metrics[1].counts.as_ref().unwrap();
    assert_eq!((counts.passed, counts.not_evaluated), (1, 1));
}

#[test]
fn pass_at_k_is_the_chance_of_one_and_pass_hat_k_of_all() {
    let close = |a: Result<f64, AggregateError>, b: f64| assert!((a.unwrap() - b).abs() < 1e-12);
    close(pass_at_k(10, 3, 1), 0.3);
    close(pass_at_k(5, 2, 2), 0.7);
    close(pass_at_k(5, 4, 2), 1.0);
    close(pass_at_k(5, 0, 5), 0.0);
    close(pass_at_k(5, 5, 5), 1.0);
    close(pass_hat_k(4, 3, 2), 0.5625);
    close(pass_hat_k(4, 0, 3), 0.0);
    close(pass_hat_k(2, 1, 3), 0.125);
    for (n, c, k) in [(0, 0, 1), (3, 1, 0), (3, 1, 4), (3, 4, 1)] {
        assert!(pass_at_k(n, c, k).is_err(), "{n} {c} {k}");
    }
    for (n, c, k) in [(0, 0, 1), (3, 1, 0), (3, 4, 1)] {
        assert!(pass_hat_k(n, c, k).is_err(), "{n} {c} {k}");
    }
}
