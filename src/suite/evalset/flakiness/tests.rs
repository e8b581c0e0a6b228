//! Figures by hand, and how often the intervals hold what they are intervals of.

use super::*;
use crate::suite::evalset::aggregate::summarise;
use EvalStatus::{Failed, NotEvaluated, Passed};

fn case(id: &str, run_id: i64, status: EvalStatus) -> CaseResult {
    CaseResult {
        id: id.to_owned(),
        run_id,
        status,
        ..CaseResult::default()
    }
}

fn result(runs: i64, cases: Vec<CaseResult>) -> EvalSetResult {
    EvalSetResult {
        summary: Some(summarise(runs, &cases).unwrap()),
        cases,
        ..EvalSetResult::default()
    }
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9, "{a} is not {b}");
}

#[test]
fn wilson_by_hand() {
    // 2 of 3: (2/3 + z²/6) / (1 + z²/3) ± z·sqrt(2/27 + z²/36) / (1 + z²/3).
    let (low, high) = wilson(2.0, 3.0);
    close((low * 1e4).round(), 2077.0);
    close((high * 1e4).round(), 9385.0);
    assert_eq!(wilson(0.0, 5.0).0, 0.0);
    assert_eq!(wilson(5.0, 5.0).1, 1.0);
    assert_eq!(wilson(0.0, 0.0), (0.0, 1.0));
    // One trial more on each side is the mirror image.
    let (a, b) = (wilson(1.0, 7.0), wilson(6.0, 7.0));
    close(a.0, 1.0 - b.1);
    close(a.1, 1.0 - b.0);
}

#[test]
fn a_case_that_passed_in_two_of_three_runs_is_flaky() {
    let cases = [
        case("steady", 1, Passed),
        case("flaky", 1, Passed),
        case("steady", 2, Passed),
        // It broke down: that is no pass.
        CaseResult {
            error_message: "boom".into(),
            ..case("flaky", 2, Failed)
        },
        case("steady", 3, Passed),
        case("flaky", 3, Passed),
    ];
    let found = flakiness(&result(3, cases.to_vec()), None).unwrap();
    assert_eq!(
        (found.runs, found.k, found.flaky, found.left_out),
        (3, 3, 1, 0)
    );
    let [steady, flaky] = &found.cases[..] else {
        panic!("{found:?}")
    };
    assert_eq!((steady.id.as_str(), steady.flaky), ("steady", false));
    assert_eq!(steady.figures.pass_hat_k.value, 1.0);
    assert_eq!((flaky.figures.passed, flaky.flaky), (2, true));
    close(flaky.figures.pass_hat_k.value, 8.0 / 27.0);
    close(flaky.figures.pass_at_k.value, 1.0);
    let (low, high) = wilson(2.0, 3.0);
    close(flaky.figures.pass_hat_k.low, low.powi(3));
    close(flaky.figures.pass_hat_k.high, high.powi(3));
    let mean = found.mean.unwrap();
    close(mean.pass_hat_k.value, (1.0 + 8.0 / 27.0) / 2.0);
    assert_eq!((mean.of, mean.passed), (2, 1));
    // With k = 1 both figures are the share of runs that passed.
    let once = flakiness(&result(3, cases.to_vec()), Some(1)).unwrap();
    close(once.cases[1].figures.pass_at_k.value, 2.0 / 3.0);
    close(once.cases[1].figures.pass_hat_k.value, 2.0 / 3.0);
}

#[test]
fn what_nobody_evaluated_is_left_out_and_counted() {
    let cases = vec![
        case("a", 1, Passed),
        case("b", 1, NotEvaluated),
        case("a", 2, Failed),
        case("b", 2, Passed),
        case("c", 2, Passed),
    ];
    let found = flakiness(&result(2, cases), None).unwrap();
    let ids: Vec<_> = found.cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!((ids, found.left_out), (vec!["a"], 2));
    assert_eq!(found.whole_runs, None);
    // One run says nothing of stability unless somebody asks, and k is at most the number of runs.
    let one = result(1, vec![case("a", 1, Passed)]);
    assert_eq!(flakiness(&one, None), None);
    assert!(flakiness(&one, Some(1)).is_some());
    assert_eq!(flakiness(&one, Some(2)), None);
    let nothing = result(2, Vec::new());
    assert_eq!(flakiness(&nothing, None).unwrap().mean, None);
}

#[test]
fn cases_of_one_id_are_kept_apart() {
    let cases = [1, 2].map(|run| [case("a", run, Passed), case("a", run, Failed)]);
    let found = flakiness(&result(2, cases.concat()), None).unwrap();
    let passed: Vec<_> = found.cases.iter().map(|c| c.figures.passed).collect();
    assert_eq!((passed, found.flaky, found.left_out), (vec![2, 0], 0, 0));
}

/// The chance of so many passes in n runs.
fn binomial(n: u32, c: u32, p: f64) -> f64 {
    let ways: f64 = (0..c)
        .map(|i| f64::from(n - i) / f64::from(i + 1))
        .product();
    ways * p.powf(f64::from(c)) * (1.0 - p).powf(f64::from(n - c))
}

#[test]
fn the_interval_of_a_case_holds_its_chance_as_often_as_it_says() {
    for n in [3, 5, 10, 20] {
        for k in [1, 2, n] {
            let (mut sum, mut least) = (0.0, 1.0_f64);
            let grid = 999;
            for step in 1..=grid {
                let p = f64::from(step) / f64::from(grid + 1);
                // Exactly, over all that n runs can come to.
                let covered = |of: &dyn Fn(&PassFigures) -> Chance, truth: f64| -> f64 {
                    let outcomes = (0..=n).filter(|c| {
                        let chance = of(&figures(n, *c, k).unwrap());
                        chance.low <= truth && truth <= chance.high
                    });
                    outcomes.map(|c| binomial(n, c, p)).sum()
                };
                let all = covered(&|f| f.pass_hat_k, p.powf(f64::from(k)));
                let one = covered(&|f| f.pass_at_k, 1.0 - (1.0 - p).powf(f64::from(k)));
                sum += all;
                least = least.min(all).min(one);
            }
            let mean = sum / f64::from(grid);
            // Wilson's interval holds at 95 % on average; for some chances near 0 and 1 it is known to hold less often.
            assert!(mean > 0.945, "n {n}, k {k}: {mean}");
            assert!(least > 0.81, "n {n}, k {k}: {least}");
        }
    }
}

#[test]
fn the_interval_over_cases_holds_the_mean_as_often_as_it_says() {
    const ROUNDS: u32 = 2000;
    // SplitMix64: the same numbers wherever the test runs, from 0 to below 1.
    let mut state = 13_u64;
    let mut random = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    for (count, n, k) in [(10, 3, 3), (30, 4, 2), (100, 5, 5), (30, 8, 1)] {
        // Cases of three kinds: nearly always, sometimes, hardly ever.
        let kinds = [0.95, 0.6, 0.1];
        let mean = |of: &dyn Fn(f64) -> f64| kinds.iter().map(|p| of(*p)).sum::<f64>() / 3.0;
        let power = |p: f64| p.powf(f64::from(k));
        let (all, one) = (mean(&power), mean(&|p| 1.0 - power(1.0 - p)));
        let (mut held_all, mut held_one) = (0, 0);
        for _ in 0..ROUNDS {
            let passed: Vec<u32> = (0..count)
                .map(|_| {
                    let p = kinds[(random() * 3.0) as usize];
                    (0..n).map(|_| u32::from(random() < p)).sum()
                })
                .collect();
            let found = over_cases(n, k, &passed).unwrap();
            let holds = |chance: Chance, truth: f64| {
                assert!(chance.low <= chance.value && chance.value <= chance.high);
                u32::from(chance.low <= truth && truth <= chance.high)
            };
            held_all += holds(found.pass_hat_k, all);
            held_one += holds(found.pass_at_k, one);
        }
        for held in [held_all, held_one] {
            let share = f64::from(held) / f64::from(ROUNDS);
            assert!(share > 0.935, "{count} cases, n {n}, k {k}: {share}");
        }
    }
}
