//! Two runs side by side by the scores that they computed: each session and trace that both have is held against itself.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use crate::history::chance::{Difference, STEPS, Sums, difference, mean_interval};
use crate::history::changes::{CONFIDENCE, Verdict};
use crate::history::figures::Target;
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{cell, number, numbers, text, whole_number, whole_numbers};
use crate::history::views::{
    Asked, MetricKey, Views, each_batch, each_sum, metric_key, models_of, sums_of,
};
use crate::history::{StoredRun, read_told};
use crate::metric::round4;

/// Two runs side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComputedComparison {
    /// The run that the other is held against.
    pub baseline: String,
    /// The other one.
    pub candidate: String,
    /// Rules of scoring that differ: window, weights and so on.
    pub rules_that_differ: Vec<String>,
    /// Metrics that both have.
    pub metrics: Vec<ComparedMetric>,
    /// Metrics that only one of them has.
    pub metrics_of_one: Vec<String>,
    /// The sessions that lost most, by metric; where no metric is of sessions, the traces.
    pub rows: Vec<ComparedScore>,
}

/// A metric of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedMetric {
    /// The metric.
    pub metric: String,
    /// What it is about.
    pub target: Target,
    /// Traces or sessions with a score in both runs.
    pub in_both: u64,
    /// With one in the baseline alone.
    pub baseline_only: u64,
    /// With one in the candidate alone.
    pub candidate_only: u64,
    /// Whether the means are over those in both; else, with too few in both, over all.
    pub paired: bool,
    /// The mean of the baseline.
    pub baseline: Option<f64>,
    /// The mean of the candidate.
    pub candidate: Option<f64>,
    /// The candidate's less the baseline's.
    pub difference: Option<f64>,
    /// The interval of the difference, at 99 %.
    pub interval: Option<[f64; 2]>,
    /// Which way it went.
    pub verdict: Verdict,
    /// Of those in both: with a higher score in the candidate.
    pub better: u64,
    /// With a lower one.
    pub worse: u64,
    /// That reached the threshold in the baseline, and don't in the candidate.
    pub newly_bad: u64,
    /// The other way round.
    pub recovered: u64,
}

/// A score of both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedScore {
    /// The metric.
    pub metric: String,
    /// Its project.
    pub project_id: Option<String>,
    /// The session or trace.
    pub target_id: String,
    /// In the baseline.
    pub baseline: Option<f64>,
    /// In the candidate.
    pub candidate: Option<f64>,
}

impl ComputedComparison {
    /// Whether a metric fell by more than chance.
    pub fn is_worse(&self) -> bool {
        self.metrics.iter().any(|of| of.verdict == Verdict::Fell)
    }
}

/// Compares the scores of two runs, of one project if it is named; `limit` scores are shown.
///
/// # Errors
/// [`HistoryError`] if the runs have no metric in common, if scores of one were made by another model, precision or text
/// mode, or if a run can't be read.
pub fn compare_computed(
    baseline: &StoredRun,
    candidate: &StoredRun,
    project: Option<&str>,
    limit: usize,
) -> Result<ComputedComparison, HistoryError> {
    if baseline.path == candidate.path {
        return Err(HistoryError::Refused(format!(
            "`{}` is named twice; name two runs",
            baseline.path.display()
        )));
    }
    let views = Views::of(vec![baseline.clone(), candidate.clone()], true)?;
    if views.runs().len() < 2 {
        return Err(HistoryError::Refused(format!(
            "`{}` and `{}` are a run and its retry, which holds all of its scores; name two others",
            baseline.name, candidate.name
        )));
    }
    let views = views.opening(&[0, 1]);
    let asked = Asked::of(&views, &["scores"])?;
    let of_project = match project {
        None => "TRUE".to_owned(),
        Some(id) => format!("project_id = '{}'", id.replace('\'', "''")),
    };
    asked.view(
        "_numbers",
        &format!(
            "SELECT run_no, target_type, metric, project_id, target_id, _unit, passed, status, model, precision, text_mode, \
             CAST(round(score * {STEPS}) AS BIGINT) AS steps, \
             CASE WHEN target_type = 'session' THEN _unit ELSE _canonical(target_id) END AS _target \
             FROM _united_scores WHERE status = 'SUCCESS' AND data_type = 'NUMERIC' AND score IS NOT NULL AND {of_project}"
        ),
    )?;
    asked.view(
        "_pairs",
        "SELECT a.target_type, a.metric, a._unit, b.project_id, b.target_id, a.steps AS baseline, b.steps AS candidate, \
         a.passed AS passed_before, b.passed AS passed_after \
         FROM (SELECT * FROM _numbers WHERE run_no = 0) a JOIN (SELECT * FROM _numbers WHERE run_no = 1) b \
         ON a.target_type = b.target_type AND a.metric = b.metric AND a._target = b._target",
    )?;
    let (sides, of_one) = sides(&asked, [baseline, candidate])?;
    refuse_models(&asked, &sides, [baseline, candidate])?;
    let mut metrics = pairs(&asked, &sides)?;
    metrics.sort_by(|a, b| (a.target, &a.metric).cmp(&(b.target, &b.metric)));
    Ok(ComputedComparison {
        baseline: baseline.name.clone(),
        candidate: candidate.name.clone(),
        rules_that_differ: rules_that_differ(baseline, candidate)?,
        rows: rows(&asked, &metrics, limit)?,
        metrics,
        metrics_of_one: of_one,
    })
}

/// All scores of a metric, of the baseline and of the candidate.
type Sides = BTreeMap<MetricKey, [Sums; 2]>;

/// All scores of both runs by metric, and the metrics of one alone.
fn sides(asked: &Asked, runs: [&StoredRun; 2]) -> Result<(Sides, Vec<String>), HistoryError> {
    let mut all = Sides::new();
    let sums = asked.rows(&sums_of("run_no, target_type, metric", "steps", "_numbers"))?;
    each_sum(
        &sums,
        ["target_type", "metric"],
        |[target, metric], alike| {
            let of_metric = all.entry(metric_key(target, metric)).or_default();
            if let Some(side) = of_metric.get_mut(alike.run) {
                side.add_sessions(alike.sessions, alike.count, alike.sum);
            }
        },
    )?;
    let named = |sides: &[Sums; 2]| match (sides[0].count, sides[1].count) {
        (0, _) => Some(&runs[1].name),
        (_, 0) => Some(&runs[0].name),
        _ => None,
    };
    let of_one: Vec<String> = all
        .iter()
        .filter_map(|((_, metric), sides)| Some(format!("{metric} ({})", named(sides)?)))
        .collect();
    all.retain(|_, sides| named(sides).is_none());
    if all.is_empty() {
        let told = match of_one.is_empty() {
            true => "they have no scores".to_owned(),
            false => format!("they have {}", of_one.join(", ")),
        };
        return Err(HistoryError::Refused(format!(
            "`{}` and `{}` have no metric in common, so that there is nothing to compare; {told}",
            runs[0].name, runs[1].name
        )));
    }
    Ok((all, of_one))
}

/// Refuses scores of several models: their numbers have several scales.
fn refuse_models(asked: &Asked, sides: &Sides, named: [&StoredRun; 2]) -> Result<(), HistoryError> {
    let labels = models_of(asked, "_numbers")?;
    let compared = |metric: &String| sides.keys().any(|(_, known)| known == metric);
    let mut mixed = labels
        .iter()
        .filter(|(metric, models)| compared(metric) && models.len() > 1);
    let Some((metric, models)) = mixed.next() else {
        return Ok(());
    };
    let models: Vec<String> = models
        .iter()
        .map(|(model, runs)| {
            let known = named.iter().enumerate();
            let known = known.filter(|(at, _)| runs.contains(at));
            let names: Vec<String> = known.map(|(_, run)| format!("`{}`", run.name)).collect();
            format!("{model} (in {})", names.join(" and "))
        })
        .collect();
    Err(HistoryError::Refused(format!(
        "the scores of {metric} are of {} models, precisions or text modes, whose numbers can't be compared: {}; score one of the \
         runs again with what the other has (--model, --precision, --text-mode, --judge)",
        models.len(),
        models.join(", ")
    )))
}

/// The metrics of both, over what both have.
fn pairs(asked: &Asked, sides: &Sides) -> Result<Vec<ComparedMetric>, HistoryError> {
    let mut differences: BTreeMap<MetricKey, Sums> = BTreeMap::new();
    // A difference is from -1 to 1; one more makes a number of each.
    let gained = format!("candidate - baseline + {STEPS}");
    let sums = asked.rows(&sums_of("target_type, metric", &gained, "_pairs"))?;
    each_sum(
        &sums,
        ["target_type", "metric"],
        |[target, metric], alike| {
            let of_metric = differences.entry(metric_key(target, metric)).or_default();
            of_metric.add_sessions(alike.sessions, alike.count, alike.sum);
        },
    )?;
    let counts = asked.rows(
        "SELECT target_type, metric, sum(baseline) AS baseline, sum(candidate) AS candidate, \
         sum(CASE WHEN candidate > baseline THEN 1 ELSE 0 END) AS better, \
         sum(CASE WHEN candidate < baseline THEN 1 ELSE 0 END) AS worse, \
         sum(CASE WHEN passed_before AND NOT passed_after THEN 1 ELSE 0 END) AS newly_bad, \
         sum(CASE WHEN NOT passed_before AND passed_after THEN 1 ELSE 0 END) AS recovered \
         FROM _pairs GROUP BY target_type, metric",
    )?;
    let mut counted: BTreeMap<MetricKey, [u64; 6]> = BTreeMap::new();
    each_batch(&counts, |batch| {
        let (targets, metrics) = (text(batch, "target_type")?, text(batch, "metric")?);
        let names = [
            "baseline",
            "candidate",
            "better",
            "worse",
            "newly_bad",
            "recovered",
        ];
        let columns = names.map(|name| whole_numbers(batch, name));
        for row in 0..batch.num_rows() {
            let mut found = [0; 6];
            for (into, column) in found.iter_mut().zip(&columns) {
                let column = column.as_ref().map_err(String::clone)?;
                *into = whole_number(column, row).unwrap_or_default().unsigned_abs();
            }
            counted.insert(metric_key(cell(&targets, row), cell(&metrics, row)), found);
        }
        Ok(())
    })?;
    let metrics = sides.iter().map(|(key, [before, after])| {
        let both = differences.get(key).copied().unwrap_or_default();
        let [sum_before, sum_after, better, worse, newly_bad, recovered] =
            counted.get(key).copied().unwrap_or_default();
        let of_pairs = mean_interval(&both, CONFIDENCE).map(|found| Difference {
            difference: found.difference - 1.0,
            low: found.low - 1.0,
            high: found.high - 1.0,
            ..found
        });
        let paired =
            of_pairs.is_some() || both.count > 0 && both.count == before.count.min(after.count);
        let found = match paired {
            true => of_pairs,
            false => difference(after, &[*before], CONFIDENCE),
        };
        let mean = |sum: u64| {
            (both.count > 0).then(|| round4(sum as f64 / both.count as f64 / STEPS as f64))
        };
        let means = match paired {
            true => [mean(sum_before), mean(sum_after)],
            false => [before, after].map(|side| side.mean().map(round4)),
        };
        ComparedMetric {
            metric: key.1.clone(),
            target: key.0,
            in_both: both.count,
            baseline_only: before.count - both.count.min(before.count),
            candidate_only: after.count - both.count.min(after.count),
            paired,
            baseline: means[0],
            candidate: means[1],
            difference: match (found, means) {
                (Some(found), _) => Some(round4(found.difference)),
                (None, [Some(before), Some(after)]) => Some(round4(after - before)),
                _ => None,
            },
            interval: found.map(|found| [round4(found.low), round4(found.high)]),
            verdict: match found {
                None => Verdict::TooFew,
                Some(found) if found.high < -TINY => Verdict::Fell,
                Some(found) if found.low > TINY => Verdict::Rose,
                Some(_) => Verdict::NoChange,
            },
            better,
            worse,
            newly_bad,
            recovered,
        }
    });
    Ok(metrics.collect())
}

/// Less than any two scores differ by: what is left of a difference of equal means.
const TINY: f64 = 1e-9;

/// What lost most.
fn rows(
    asked: &Asked,
    metrics: &[ComparedMetric],
    limit: usize,
) -> Result<Vec<ComparedScore>, HistoryError> {
    let of_sessions = metrics
        .iter()
        .any(|of| of.target == Target::Session && of.in_both > 0);
    let shown = match of_sessions {
        true => Target::Session,
        false => Target::Trace,
    };
    let rows = asked.rows(&format!(
        "SELECT metric, project_id, target_id, CAST(baseline AS DOUBLE) / {STEPS} AS before, \
         CAST(candidate AS DOUBLE) / {STEPS} AS after \
         FROM (SELECT *, candidate - baseline AS gained FROM _pairs WHERE target_type = '{}' AND candidate <> baseline) \
         ORDER BY gained, metric, target_id, project_id LIMIT {limit}",
        shown.name()
    ))?;
    let mut found = Vec::new();
    each_batch(&rows, |batch| {
        let of = |name| text(batch, name);
        let (metrics, projects, ids) = (of("metric")?, of("project_id")?, of("target_id")?);
        let (before, after) = (numbers(batch, "before")?, numbers(batch, "after")?);
        for row in 0..batch.num_rows() {
            let owned = |of| cell(of, row).map(str::to_owned);
            found.push(ComparedScore {
                metric: owned(&metrics).unwrap_or_default(),
                project_id: owned(&projects),
                target_id: owned(&ids).unwrap_or_default(),
                baseline: number(&before, row),
                candidate: number(&after, row),
            });
        }
        Ok(())
    })?;
    Ok(found)
}

/// Rules of scoring that two runs don't share.
fn rules_that_differ(a: &StoredRun, b: &StoredRun) -> Result<Vec<String>, HistoryError> {
    let (a, b) = (read_told(&a.path)?.0, read_told(&b.path)?.0);
    let rules = |of: &Value| of["rules"].as_object().cloned().unwrap_or_default();
    let (a, b) = (rules(&a), rules(&b));
    let mut names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    // Which metrics a run has is told apart from how they are made.
    names.retain(|name| *name != "metrics" && a.get(*name) != b.get(*name));
    let shown = |of: Option<&Value>| of.map_or("none".to_owned(), Value::to_string);
    let told = names.iter().map(|name| {
        format!(
            "{name}: {} and {}",
            shown(a.get(*name)),
            shown(b.get(*name))
        )
    });
    Ok(told.collect())
}
