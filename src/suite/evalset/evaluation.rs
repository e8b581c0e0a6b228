//! One case on its way from what was done in it to its result (as in trpc-agent-go): the two sides, what is computed
//! of them, what judges say of them.

use std::sync::Arc;

use super::aggregate::status_of_all;
use super::evaluator::{EvaluateResult, EvaluationError, Evaluator, Registry};
use super::inference::{Inference, TRACE};
use super::judged::{self, JudgedEvaluator, Judges, NotJudged};
use super::model::{EvalCase, EvalMetric, Invocation, Rubric};
use super::result::{CaseResult, EvalStatus, MetricDetails, MetricResult, TurnResult};
use crate::output::RunError;

/// What scores a metric.
#[derive(Clone)]
pub(crate) enum Scorer {
    /// It is computed.
    Computed(Arc<dyn Evaluator>),
    /// A judge is asked.
    Judged(&'static JudgedEvaluator),
}

/// A metric with what scores it.
#[derive(Clone)]
pub(crate) struct ScoredMetric {
    pub metric: EvalMetric,
    pub scorer: Scorer,
}

impl ScoredMetric {
    /// The metrics of a file that have an evaluator, in their order, and the names of the others.
    pub fn of(metrics: Vec<EvalMetric>, registry: &Registry) -> (Vec<Self>, Vec<String>) {
        let mut scored: Vec<Self> = Vec::new();
        let mut unknown = Vec::new();
        for metric in metrics {
            // Metrics are looked up by name: of two of one name the first is used each time.
            let namesake = scored.iter().find(|known| known.metric.name == metric.name);
            if let Some(namesake) = namesake.cloned() {
                scored.push(namesake);
                continue;
            }
            let name = metric.evaluator();
            let scorer = match (registry.get(name), judged::find(name)) {
                (Some(computed), _) => Scorer::Computed(Arc::clone(computed)),
                (None, Some(judged)) => Scorer::Judged(judged),
                (None, None) => {
                    unknown.push(metric.name.clone());
                    continue;
                }
            };
            scored.push(Self { metric, scorer });
        }
        (scored, unknown)
    }

    /// Whether an embedding model is needed.
    pub fn reads_cosines(&self) -> bool {
        matches!(&self.scorer, Scorer::Computed(evaluator) if evaluator.reads_cosines())
    }

    /// The evaluator that asks a judge, if one does.
    pub fn judged(&self) -> Option<(&EvalMetric, &'static JudgedEvaluator)> {
        match &self.scorer {
            Scorer::Judged(evaluator) => Some((&self.metric, evaluator)),
            Scorer::Computed(_) => None,
        }
    }
}

/// The two sides of a case.
pub(super) struct Sides {
    pub actual: Vec<Invocation>,
    pub expected: Vec<Invocation>,
    /// The rubrics of each metric, those of the case among them.
    pub rubrics: Vec<Vec<Rubric>>,
}

/// A case of a run on its way to its result.
pub(super) struct CaseWork<'c> {
    pub case: &'c EvalCase,
    pub inference: &'c Inference,
    sides: Result<Sides, String>,
    /// By metric; none for those that are still to be judged.
    results: Vec<Option<EvaluateResult>>,
}

/// What judges say of a case: metrics by their place, or why the case fails.
pub(super) type CaseJudged = Result<Vec<(usize, EvaluateResult)>, String>;

/// How judged metrics are treated.
pub(crate) enum Judging<'j> {
    /// They are asked, so many calls at once.
    Asked(&'j Judges, usize),
    /// They are not evaluated.
    Off,
}

/// The computed metrics of a case.
pub(super) fn compute<'c>(
    case: &'c EvalCase,
    inference: &'c Inference,
    metrics: &[ScoredMetric],
) -> CaseWork<'c> {
    let mut work = CaseWork {
        case,
        inference,
        sides: sides(case, inference, metrics),
        results: vec![None; metrics.len()],
    };
    let mut failed = None;
    if let Ok(sides) = &work.sides {
        for (metric, result) in metrics.iter().zip(&mut work.results) {
            let Scorer::Computed(evaluator) = &metric.scorer else {
                continue;
            };
            let evaluated = evaluator.evaluate(&sides.actual, &sides.expected, &metric.metric);
            match evaluated.and_then(|found| checked(found, sides, &metric.metric)) {
                Ok(found) => *result = Some(found),
                Err(problem) => {
                    failed = Some(problem.to_string());
                    break;
                }
            }
        }
    }
    if let Some(problem) = failed {
        work.sides = Err(problem);
    }
    work
}

/// A result with exactly one entry a turn; an evaluator of somebody else may give another number.
fn checked(
    found: EvaluateResult,
    sides: &Sides,
    metric: &EvalMetric,
) -> Result<EvaluateResult, EvaluationError> {
    match found.per_invocation.len() == sides.actual.len() {
        true => Ok(found),
        false => Err(EvaluationError {
            metric: metric.name.clone(),
            problem: format!(
                "its evaluator gave {} results for {} turns",
                found.per_invocation.len(),
                sides.actual.len()
            ),
        }),
    }
}

/// The judged metrics of a case. One that failed already is not asked about.
///
/// # Errors
/// [`RunError`] if the run must stop: the ledger can't be used.
pub(super) async fn judge(
    work: &CaseWork<'_>,
    metrics: &[ScoredMetric],
    judging: &Judging<'_>,
) -> Result<CaseJudged, RunError> {
    let Ok(sides) = &work.sides else {
        return Ok(Ok(Vec::new()));
    };
    let mut judged = Vec::new();
    for (place, (metric, rubrics)) in metrics.iter().zip(&sides.rubrics).enumerate() {
        let Scorer::Judged(evaluator) = metric.scorer else {
            continue;
        };
        let turns = (sides.actual.as_slice(), sides.expected.as_slice());
        let found = match judging {
            Judging::Off => Ok(judged::not_evaluated(turns.0.len(), "judge disabled")),
            Judging::Asked(judges, _) => {
                let asked = (evaluator, &metric.metric);
                judged::evaluate(judges, asked, turns, rubrics, work.inference.run).await
            }
        };
        match found {
            Ok(found) => judged.push((place, found)),
            Err(NotJudged::Stopped(problem)) => return Err(problem),
            Err(NotJudged::Failed(problem)) => return Ok(Err(problem.to_string())),
        }
    }
    Ok(Ok(judged))
}

/// What was done and what was expected, of one length, with the context of the case at each turn that has none.
pub(super) fn sides(
    case: &EvalCase,
    inference: &Inference,
    metrics: &[ScoredMetric],
) -> Result<Sides, String> {
    let mut actual = inference.turns.clone()?;
    let mut expected = expected_turns(case, &actual)?;
    if actual.len() != expected.len() {
        return Err(format!(
            "there are {} turns, expected {}; both conversations must have the same number",
            actual.len(),
            expected.len()
        ));
    }
    for turn in actual.iter_mut().chain(&mut expected) {
        if turn.context_messages.is_empty() {
            turn.context_messages.clone_from(&case.context_messages);
        }
    }
    let rubrics = metrics
        .iter()
        .map(|metric| rubrics_of(case, &metric.metric))
        .collect::<Result<_, _>>()?;
    for extra in &case.rubrics {
        if !metrics.iter().any(|m| m.metric.name == extra.metric_name) {
            return Err(format!(
                "`rubrics`: there is no metric `{}`; name one of the metrics file",
                extra.metric_name
            ));
        }
    }
    Ok(Sides {
        actual,
        expected,
        rubrics,
    })
}

/// What is expected of each turn. Where the conversation of a case in trace mode is what was done, only the ids and the
/// user's messages are expected.
fn expected_turns(case: &EvalCase, actual: &[Invocation]) -> Result<Vec<Invocation>, String> {
    if let Some(turns) = told_turns(case) {
        let turns = turns.iter().enumerate();
        return turns
            .map(|(place, turn)| {
                turn.clone()
                    .ok_or_else(|| format!("turn {} of `conversation` is null", place + 1))
            })
            .collect();
    }
    let asked = actual.iter().map(|turn| Invocation {
        id: turn.id.clone(),
        user_content: turn.user_content.clone(),
        ..Invocation::default()
    });
    Ok(asked.collect())
}

/// The turns that a case expects, where it tells more than what the user says.
pub(super) fn told_turns(case: &EvalCase) -> Option<&[Option<Invocation>]> {
    let told = case.mode != TRACE || !case.actual_conversation.is_empty();
    (told && !case.conversation.is_empty()).then_some(case.conversation.as_slice())
}

/// Whether some turn of a case has no expected final response, or an empty one.
pub(crate) fn lacks_reference(case: &EvalCase, inference: &Inference) -> bool {
    let actual = inference.turns.as_deref().unwrap_or_default();
    let expected = expected_turns(case, actual).unwrap_or_default();
    let said = |turn: &Invocation| {
        turn.final_response
            .as_ref()
            .map(|message| message.content.is_empty())
    };
    expected.iter().any(|turn| said(turn).unwrap_or(true))
}

/// The rubrics of a metric for a case: its own and those of the case, which are called `case_rubric_N` where they have
/// no id.
fn rubrics_of(case: &EvalCase, metric: &EvalMetric) -> Result<Vec<Rubric>, String> {
    let judge = metric.rules.judge.as_ref();
    let mut rubrics = judge.map(|judge| judge.rubrics.clone()).unwrap_or_default();
    let extra = case.rubrics.iter().enumerate();
    for (place, extra) in extra.filter(|(_, extra)| extra.metric_name == metric.name) {
        let place = place + 1;
        if judge.is_none() {
            return Err(format!(
                "rubric {place} of the case is for `{}`, which asks no judge",
                metric.name
            ));
        }
        let mut rubric = extra.rubric.clone();
        if rubric
            .text
            .as_ref()
            .is_none_or(|text| text.trim().is_empty())
        {
            return Err(format!("rubric {place} of the case has no text"));
        }
        if rubric.id.is_empty() {
            rubric.id = format!("case_rubric_{place}");
        }
        if rubrics.iter().any(|known| known.id == rubric.id) {
            return Err(format!(
                "there are two rubrics `{}`; give each an id of its own",
                rubric.id
            ));
        }
        rubrics.push(rubric);
    }
    Ok(rubrics)
}

/// The result of a case, as files hold it.
pub(super) fn result(
    set_id: &str,
    mut work: CaseWork<'_>,
    judged: CaseJudged,
    metrics: &[ScoredMetric],
) -> CaseResult {
    match judged {
        Ok(judged) => {
            for (place, found) in judged {
                if let Some(result) = work.results.get_mut(place) {
                    *result = Some(found);
                }
            }
        }
        Err(why) => work.sides = Err(why),
    }
    let base = CaseResult {
        set_id: set_id.to_owned(),
        id: work.case.id.clone(),
        run_id: i64::from(work.inference.run),
        session_id: work.inference.session_id.clone(),
        user_id: work.inference.user_id.clone(),
        ..CaseResult::default()
    };
    let broken = |why: String| CaseResult {
        status: EvalStatus::Failed,
        error_message: why,
        score: Some(0.0),
        ..base.clone()
    };
    let sides = match work.sides {
        Ok(sides) => sides,
        Err(why) => return broken(why),
    };
    let evaluated: Vec<(&EvalMetric, EvaluateResult)> = metrics
        .iter()
        .zip(work.results)
        .filter_map(|(metric, result)| Some((&metric.metric, result?)))
        .collect();
    let statuses = evaluated.iter().map(|(_, result)| result.status);
    let status = match status_of_all("a metric", statuses) {
        Ok(status) => status,
        Err(problem) => return broken(problem.to_string()),
    };
    let turns = sides.actual.into_iter().zip(sides.expected).enumerate();
    let turns = turns.map(|(place, (actual, expected))| TurnResult {
        actual: Some(actual),
        expected: Some(expected),
        metrics: evaluated
            .iter()
            .filter_map(|(metric, result)| {
                let turn = result.per_invocation.get(place)?;
                let details = MetricDetails {
                    reason: turn.reason.clone(),
                    score: turn.score,
                    value: turn.value.clone(),
                    rubric_scores: turn.rubric_scores.clone(),
                    ..MetricDetails::default()
                };
                let found = metric_result(metric, turn.score, turn.status, details);
                Some(match &turn.prompt {
                    Some(prompt) => found.with_prompt(prompt),
                    None => found,
                })
            })
            .collect(),
        ..TurnResult::default()
    });
    CaseResult {
        status,
        score: Some(if status == EvalStatus::Passed {
            1.0
        } else {
            0.0
        }),
        turns: turns.collect(),
        metrics: evaluated
            .iter()
            .map(|(metric, result)| over_turns(metric, result))
            .collect(),
        ..base
    }
}

/// A metric over all turns of a case. Reasons are joined with `;`, empty ones too.
fn over_turns(metric: &EvalMetric, result: &EvaluateResult) -> MetricResult {
    let turns = &result.per_invocation;
    let reasons: Vec<&str> = turns.iter().map(|turn| turn.reason.as_str()).collect();
    let rubrics = turns
        .iter()
        .flat_map(|turn| turn.rubric_scores.iter().cloned());
    let details = MetricDetails {
        reason: reasons.join(";"),
        score: result.score,
        rubric_scores: rubrics.collect(),
        ..MetricDetails::default()
    };
    metric_result(metric, result.score, result.status, details)
}

fn metric_result(
    metric: &EvalMetric,
    score: f64,
    status: EvalStatus,
    details: MetricDetails,
) -> MetricResult {
    MetricResult {
        name: metric.name.clone(),
        score,
        status,
        threshold: metric.threshold.unwrap_or_default(),
        criterion: metric.criterion.clone(),
        details: Some(details),
        ..MetricResult::default()
    }
}
