//! How sure one can be of a pass: pass^k and pass@k over the runs of a set, each with an interval.
//!
//! A case that passed in c of n runs has pass^k = (c/n)^k and pass@k = 1 − C(n−c, k) / C(n, k). The interval of its
//! chance of passing is Wilson's of c in n, carried through p ↦ p^k and p ↦ 1 − (1 − p)^k, which only rise. Over cases
//! the figures are means; their intervals are Wilson's with the cases as trials, around means of estimates without
//! bias: C(c, k) / C(n, k), and pass@k itself. A value between 0 and 1 varies no more than a trial of the same mean
//! does, so that these are wide enough whatever the cases are, and never of no width.

use std::collections::BTreeMap;

use super::aggregate::{pass_at_k, pass_hat_k};
use super::result::{CaseResult, EvalSetResult, EvalStatus};
use crate::suite::outcome::{CaseFlakiness, Chance, FlakinessOutcome, PassFigures};

/// The quantile of the normal distribution for 95 %.
const Z: f64 = 1.959_963_984_540_054;

/// Wilson's interval for the chance behind `passed` of `trials`, 95 %. `passed` may lie between whole numbers.
fn wilson(passed: f64, trials: f64) -> (f64, f64) {
    if trials <= 0.0 {
        return (0.0, 1.0);
    }
    let share = passed / trials;
    let z2 = Z * Z;
    let middle = (share + z2 / (2.0 * trials)) / (1.0 + z2 / trials);
    let spread = share * (1.0 - share) / trials + z2 / (4.0 * trials * trials);
    let half = Z * spread.max(0.0).sqrt() / (1.0 + z2 / trials);
    // Where all or none passed, the end is exact.
    let low = if passed <= 0.0 { 0.0 } else { middle - half };
    let high = if passed >= trials { 1.0 } else { middle + half };
    (low.max(0.0), high.min(1.0))
}

/// A figure with its interval, which is widened to hold the figure where few runs put it outside.
fn chance(value: f64, (low, high): (f64, f64)) -> Chance {
    Chance {
        value,
        low: low.min(value),
        high: high.max(value),
    }
}

/// pass^k and pass@k of something that passed in some of so many runs; 1 ≤ k ≤ runs.
fn figures(runs: u32, passed: u32, k: u32) -> Option<PassFigures> {
    let power = |p: f64| p.powf(f64::from(k));
    let (low, high) = wilson(f64::from(passed), f64::from(runs));
    let all = (power(low), power(high));
    let one = (1.0 - power(1.0 - low), 1.0 - power(1.0 - high));
    Some(PassFigures {
        of: runs,
        passed,
        pass_hat_k: chance(pass_hat_k(runs, passed, k).ok()?, all),
        pass_at_k: chance(pass_at_k(runs, passed, k).ok()?, one),
    })
}

/// C(c, k) / C(n, k): how likely all of `k` runs are ones that passed, drawn from n of which c did.
fn all_of_k(runs: u32, passed: u32, k: u32) -> f64 {
    let left = |of: u32, i: u32| f64::from(of.saturating_sub(i));
    let factors = (0..k).map(|i| left(passed, i) / left(runs, i));
    factors.product()
}

/// The means over cases, each of so many runs.
fn over_cases(runs: u32, k: u32, passed: &[u32]) -> Option<PassFigures> {
    let count = passed.len() as f64;
    let mean = |of: &dyn Fn(u32) -> f64| passed.iter().map(|c| of(*c)).sum::<f64>() / count;
    let within = |mean: f64| wilson(mean * count, count);
    let all = mean(&|c| pass_hat_k(runs, c, k).unwrap_or_default());
    let one = mean(&|c| pass_at_k(runs, c, k).unwrap_or_default());
    (!passed.is_empty()).then(|| PassFigures {
        of: u32::try_from(passed.len()).unwrap_or(u32::MAX),
        passed: passed.iter().filter(|c| **c == runs).count() as u32,
        pass_hat_k: chance(all, within(mean(&|c| all_of_k(runs, c, k)))),
        pass_at_k: chance(one, within(one)),
    })
}

/// What several runs of a set say of its stability; none where it has no summary, or neither several runs nor a `k`
/// that was asked for. Without `k` it is the number of runs. `k` must be from 1 to that number.
///
/// A run in which a case broke down did not pass. A case of which something was not evaluated in some run, or that some
/// run lacks, is left out and counted.
pub(super) fn flakiness(result: &EvalSetResult, k: Option<u32>) -> Option<FlakinessOutcome> {
    let summary = result.summary.as_ref()?;
    let runs = u32::try_from(summary.runs_asked).ok()?;
    if runs < 2 && k.is_none() {
        return None;
    }
    let k = k.unwrap_or(runs);
    if !(1..=runs).contains(&k) {
        return None;
    }
    let (mut cases, mut left_out) = (Vec::new(), 0);
    for (id, results) in by_case(&result.cases) {
        // A case passes by the metrics that were evaluated; one that lacks some says nothing of the others.
        let is_whole = |case: &CaseResult| {
            let mut metrics = case.metrics.iter();
            metrics.all(|metric| metric.status != EvalStatus::NotEvaluated)
        };
        let said = |wanted| {
            let results = results.iter();
            let ended = results.filter(|case| case.status == wanted && is_whole(case));
            ended.count()
        };
        let (passed, failed) = (said(EvalStatus::Passed), said(EvalStatus::Failed));
        if passed + failed != runs as usize || results.len() != runs as usize {
            left_out += 1;
            continue;
        }
        let passed = passed as u32;
        cases.push(CaseFlakiness {
            id: id.to_owned(),
            flaky: passed > 0 && passed < runs,
            figures: figures(runs, passed, k)?,
        });
    }
    let passed: Vec<u32> = cases.iter().map(|case| case.figures.passed).collect();
    let ended = |wanted| summary.runs.iter().filter(|r| r.status == wanted).count() as u32;
    let (passes, fails) = (ended(EvalStatus::Passed), ended(EvalStatus::Failed));
    // A pass over all cases says nothing of those that were not evaluated.
    let whole = left_out == 0 && passes + fails == runs;
    Some(FlakinessOutcome {
        runs,
        k,
        mean: over_cases(runs, k, &passed),
        whole_runs: whole.then(|| figures(runs, passes, k)).flatten(),
        flaky: cases.iter().filter(|case| case.flaky).count(),
        left_out,
        cases,
    })
}

/// The results of each case, in the order in which they first occur. Of several cases of one id in a run, the first
/// ones belong together, and so on.
fn by_case(results: &[CaseResult]) -> Vec<(&str, Vec<&CaseResult>)> {
    let mut cases: Vec<(&str, Vec<&CaseResult>)> = Vec::new();
    let mut places: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    let mut in_run: BTreeMap<(i64, &str), usize> = BTreeMap::new();
    for result in results {
        let id = result.id.as_str();
        let nth = in_run.entry((result.run_id, id)).or_default();
        let place = *places.entry((id, *nth)).or_insert_with(|| {
            cases.push((id, Vec::new()));
            cases.len() - 1
        });
        *nth += 1;
        if let Some((_, results)) = cases.get_mut(place) {
            results.push(result);
        }
    }
    cases
}

#[cfg(test)]
mod tests;
