//! From samples to turns, from turns to metrics, from metrics to cases, runs and sets: the rules of trpc-agent-go.

use std::collections::BTreeMap;

use super::result::{
    CaseResult, CaseRun, CaseSummary, EvalStatus, MetricResult, MetricSummary, ResultSummary,
    RunSummary, StatusCounts,
};

/// Why results can't be put together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AggregateError {
    /// A turn without any sample.
    #[error("a turn has no sample to vote on; ask for at least one")]
    NoSample,
    /// A status that no evaluation produces.
    #[error("{what} has no status that counts (`{status}`); passed, failed and not_evaluated do")]
    Unknown {
        /// Whose status.
        what: String,
        /// The status.
        status: &'static str,
    },
    /// A number of runs that is none.
    #[error("{0} runs were asked for; ask for at least one")]
    NoRuns(i64),
    /// A result that belongs to no run.
    #[error("the result of case `{case}` is of run {run}, but the runs are 1 to {runs}")]
    Run {
        /// `evalId`
        case: String,
        /// `runId`
        run: i64,
        /// Runs that were asked for.
        runs: i64,
    },
    /// A result that belongs to no case.
    #[error("a result of run {run} has no `evalId`")]
    NoCase {
        /// `runId`
        run: i64,
    },
    /// Figures of pass@k and pass^k that don't fit.
    #[error("{passed} of {runs} runs passed, k is {k}; {rule}")]
    Pass {
        /// n: all runs.
        runs: u32,
        /// c: runs that passed.
        passed: u32,
        /// k.
        k: u32,
        /// What must hold.
        rule: &'static str,
    },
}

/// Which sample stands for its turn, by its place: of those that were evaluated, the first one on the side of the
/// majority, where a sample is for passing if its score reaches the threshold. A tie fails. If none was evaluated it is
/// the first.
///
/// # Errors
/// [`AggregateError::NoSample`].
pub fn majority(threshold: f64, samples: &[(f64, EvalStatus)]) -> Result<usize, AggregateError> {
    let evaluated = || {
        let samples = samples.iter().enumerate();
        samples
            .filter(|(_, (_, status))| *status != EvalStatus::NotEvaluated)
            .map(|(at, (score, _))| (at, *score >= threshold))
    };
    let passing = evaluated().filter(|(_, passes)| *passes).count();
    let failing = evaluated().count() - passing;
    let mut side = evaluated().filter(|(_, passes)| *passes == (passing > failing));
    match (side.next(), samples.is_empty()) {
        (Some((at, _)), _) => Ok(at),
        (None, false) => Ok(0),
        (None, true) => Err(AggregateError::NoSample),
    }
}

/// The score of a metric over turns, and its status: the mean of those that were evaluated, held against the threshold;
/// 0 and `not_evaluated` if none was.
pub fn mean_over_turns(
    threshold: f64,
    turns: impl IntoIterator<Item = (f64, EvalStatus)>,
) -> (f64, EvalStatus) {
    let (mut sum, mut count) = (0.0, 0_u64);
    for (score, status) in turns {
        if status != EvalStatus::NotEvaluated {
            sum += score;
            count += 1;
        }
    }
    match count {
        0 => (0.0, EvalStatus::NotEvaluated),
        count => {
            let mean = sum / count as f64;
            (mean, EvalStatus::of(mean, threshold))
        }
    }
}

/// The status of a whole: failed if any part failed, else passed if any passed, else not evaluated.
///
/// # Errors
/// [`AggregateError::Unknown`], which calls the whole `what`.
pub fn status_of_all(
    what: &str,
    parts: impl IntoIterator<Item = EvalStatus>,
) -> Result<EvalStatus, AggregateError> {
    let mut whole = EvalStatus::NotEvaluated;
    for part in parts {
        whole = match (part, whole) {
            (EvalStatus::Unset | EvalStatus::Unknown, _) => return Err(unknown(what, part)),
            (EvalStatus::Failed, _) | (_, EvalStatus::Failed) => EvalStatus::Failed,
            (EvalStatus::Passed, _) => EvalStatus::Passed,
            (EvalStatus::NotEvaluated, whole) => whole,
        };
    }
    Ok(whole)
}

fn unknown(what: &str, status: EvalStatus) -> AggregateError {
    AggregateError::Unknown {
        what: what.to_owned(),
        status: status.name(),
    }
}

/// How many of `parts` ended how; none if there are none.
fn counts(
    what: &str,
    parts: impl IntoIterator<Item = EvalStatus>,
) -> Result<Option<StatusCounts>, AggregateError> {
    let mut counts = StatusCounts::default();
    for part in parts {
        match part {
            EvalStatus::Passed => counts.passed += 1,
            EvalStatus::Failed => counts.failed += 1,
            EvalStatus::NotEvaluated => counts.not_evaluated += 1,
            EvalStatus::Unset | EvalStatus::Unknown => return Err(unknown(what, part)),
        }
    }
    Ok((counts != StatusCounts::default()).then_some(counts))
}

/// The summary of `runs` passes over a set.
///
/// Cases are ordered by id, metrics by name, runs by number. A case passes if the averages of its metrics over all runs
/// do: a run that broke down has no score, and so does not lower them (see [`hidden_errors`]).
///
/// # Errors
/// [`AggregateError`] if a result belongs to no run or no case, or has no status.
pub fn summarise(runs: i64, results: &[CaseResult]) -> Result<ResultSummary, AggregateError> {
    if runs < 1 {
        return Err(AggregateError::NoRuns(runs));
    }
    let mut by_run: BTreeMap<i64, Vec<&CaseResult>> = BTreeMap::new();
    let mut by_case: BTreeMap<&str, Vec<&CaseResult>> = BTreeMap::new();
    for result in results {
        let run = result.run_id;
        if result.id.is_empty() {
            return Err(AggregateError::NoCase { run });
        }
        if !(1..=runs).contains(&run) {
            let case = result.id.clone();
            return Err(AggregateError::Run { case, run, runs });
        }
        by_run.entry(run).or_default().push(result);
        by_case.entry(&result.id).or_default().push(result);
    }
    let of_run = |run| summary_of_run(run, by_run.get(&run).map_or(&[][..], Vec::as_slice));
    let run_summaries = (1..=runs).map(of_run).collect::<Result<Vec<_>, _>>()?;
    let cases = by_case.into_iter();
    let cases = cases
        .map(|(id, results)| summary_of_case(id, results))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(ResultSummary {
        status: status_of_all("a case", cases.iter().map(|case| case.status))?,
        runs_asked: runs,
        run_counts: counts("a run", run_summaries.iter().map(|run| run.status))?,
        runs: run_summaries,
        cases,
        ..ResultSummary::default()
    })
}

fn summary_of_run(run: i64, results: &[&CaseResult]) -> Result<RunSummary, AggregateError> {
    let what = format!("a case of run {run}");
    let statuses = || results.iter().map(|result| result.status);
    Ok(RunSummary {
        run_id: run,
        status: status_of_all(&what, statuses())?,
        case_counts: counts(&what, statuses())?,
        metrics: metric_summaries(results)?,
        ..RunSummary::default()
    })
}

fn summary_of_case(id: &str, mut results: Vec<&CaseResult>) -> Result<CaseSummary, AggregateError> {
    results.sort_by_key(|result| result.run_id);
    let what = format!("case `{id}`");
    let metrics = metric_summaries(&results)?;
    let broke_down = results
        .iter()
        .any(|result| !result.error_message.is_empty());
    let status = match status_of_all(&what, metrics.iter().map(|metric| metric.status))? {
        EvalStatus::NotEvaluated if broke_down => EvalStatus::Failed,
        status => status,
    };
    Ok(CaseSummary {
        id: id.to_owned(),
        status,
        run_counts: counts(&what, results.iter().map(|result| result.status))?,
        metrics,
        runs: results.into_iter().map(case_run).collect(),
        ..CaseSummary::default()
    })
}

fn case_run(result: &CaseResult) -> CaseRun {
    let brief = |metric: &MetricResult| MetricResult {
        name: metric.name.clone(),
        score: metric.score,
        status: metric.status,
        threshold: metric.threshold,
        ..MetricResult::default()
    };
    let mut metrics: Vec<_> = result.metrics.iter().map(brief).collect();
    metrics.sort_by(|a, b| a.name.cmp(&b.name));
    CaseRun {
        run_id: result.run_id,
        status: result.status,
        error_message: result.error_message.clone(),
        metrics,
        ..CaseRun::default()
    }
}

/// Each metric over a group of results, by name.
fn metric_summaries(results: &[&CaseResult]) -> Result<Vec<MetricSummary>, AggregateError> {
    let groups = by_metric(results).into_iter();
    let summaries = groups.map(|(name, metrics)| {
        let what = format!("metric `{name}`");
        let averaged = average(name, &metrics);
        Ok(MetricSummary {
            name: averaged.name,
            average_score: averaged.score,
            status: averaged.status,
            threshold: averaged.threshold,
            counts: counts(&what, metrics.iter().map(|metric| metric.status))?,
            ..MetricSummary::default()
        })
    });
    summaries.collect()
}

fn by_metric<'a>(results: &[&'a CaseResult]) -> BTreeMap<&'a str, Vec<&'a MetricResult>> {
    let mut groups: BTreeMap<&str, Vec<&MetricResult>> = BTreeMap::new();
    for metric in results.iter().flat_map(|result| &result.metrics) {
        groups.entry(&metric.name).or_default().push(metric);
    }
    groups
}

/// A metric over a group: the mean of what was evaluated, held against the first threshold.
fn average(name: &str, metrics: &[&MetricResult]) -> MetricResult {
    let first = metrics.first();
    let threshold = first.map_or(0.0, |metric| metric.threshold);
    let scores = metrics.iter().map(|metric| (metric.score, metric.status));
    let (score, status) = mean_over_turns(threshold, scores);
    MetricResult {
        name: name.to_owned(),
        score,
        status,
        threshold,
        criterion: first.and_then(|metric| metric.criterion.clone()),
        ..MetricResult::default()
    }
}

/// The metrics of a case averaged over its runs, by name, with the criterion of the first run.
pub fn averaged_over_runs(results: &[&CaseResult]) -> Vec<MetricResult> {
    let groups = by_metric(results).into_iter();
    groups
        .map(|(name, metrics)| average(name, &metrics))
        .collect()
}

/// A run that broke down, in a case that passes all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenError {
    /// `evalId`
    pub case: String,
    /// `runId`
    pub run: i64,
    /// `errorMessage`
    pub message: String,
}

/// The runs that broke down in cases which pass by the averages of their other runs.
pub fn hidden_errors(summary: &ResultSummary) -> Vec<HiddenError> {
    let cases = summary.cases.iter();
    let passed = cases.filter(|case| case.status == EvalStatus::Passed);
    let errors = passed.flat_map(|case| {
        let runs = case.runs.iter().filter(|run| !run.error_message.is_empty());
        runs.map(|run| HiddenError {
            case: case.id.clone(),
            run: run.run_id,
            message: run.error_message.clone(),
        })
    });
    errors.collect()
}

/// pass@k: how likely it is that at least one of `k` runs passed, drawn from `runs` of which `passed` did:
/// 1 − C(n−c, k) / C(n, k).
///
/// # Errors
/// [`AggregateError::Pass`] unless 1 ≤ k ≤ n and c ≤ n.
pub fn pass_at_k(runs: u32, passed: u32, k: u32) -> Result<f64, AggregateError> {
    if k < 1 || k > runs || passed > runs {
        return Err(AggregateError::Pass {
            runs,
            passed,
            k,
            rule: "k must be 1 to the number of runs, and no more runs can have passed",
        });
    }
    let failed = runs - passed;
    if passed == 0 {
        return Ok(0.0);
    }
    if failed < k {
        return Ok(1.0);
    }
    // The quotient of the binomials, factor by factor: the numbers themselves are too large.
    let factors = (0..k).map(|i| f64::from(failed - i) / f64::from(runs - i));
    Ok(1.0 - factors.product::<f64>())
}

/// pass^k: how likely it is that `k` runs pass, one after the other: (c / n)^k.
///
/// # Errors
/// [`AggregateError::Pass`] unless n ≥ 1, k ≥ 1 and c ≤ n.
pub fn pass_hat_k(runs: u32, passed: u32, k: u32) -> Result<f64, AggregateError> {
    if runs < 1 || k < 1 || passed > runs {
        return Err(AggregateError::Pass {
            runs,
            passed,
            k,
            rule: "runs and k must be at least 1, and no more runs can have passed",
        });
    }
    Ok((f64::from(passed) / f64::from(runs)).powf(f64::from(k)))
}

#[cfg(test)]
mod tests;
