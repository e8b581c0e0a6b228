//! A result as readers are shown it.

use std::path::Path;

use serde_json::{Value, json};

use super::aggregate::status_of_all;
use super::evaluation::ScoredMetric;
use super::flakiness::flakiness;
use super::json_file::{FileError, Loaded, text_of};
use super::model::{Invocation, Message};
use super::result::{CaseResult, EvalSetResult, EvalStatus, MetricResult, TurnResult};
use crate::suite::outcome::{
    CaseOutcome, CheckOutcome, FlakinessOutcome, MetricOutcome, PartOutcome, SuiteOutcome, Verdict,
};

/// Most characters of what the user said that a case shows.
const MOST_INPUT: usize = 200;

impl From<EvalStatus> for Verdict {
    fn from(status: EvalStatus) -> Self {
        match status {
            EvalStatus::Passed => Self::Passed,
            EvalStatus::Failed => Self::Failed,
            _ => Self::NotEvaluated,
        }
    }
}

/// The result in a file.
///
/// # Errors
/// [`FileError`] if it can't be read, or is no result.
pub fn read_result(path: &Path) -> Result<Loaded<EvalSetResult>, FileError> {
    let text = text_of(path)?;
    EvalSetResult::from_text(&text, &path.display().to_string())
}

/// A result that was read from a file: it does not say which metrics asked a judge.
pub fn shown_result(result: &EvalSetResult) -> SuiteOutcome {
    outcome("", result, &[])
}

/// The result with figures of its stability in its summary, as a member that only nightmill reads.
pub(crate) fn with_flakiness(
    mut result: EvalSetResult,
    found: Option<&FlakinessOutcome>,
) -> EvalSetResult {
    // Plain data always becomes JSON.
    let found = found.and_then(|found| serde_json::to_value(found).ok());
    if let (Some(summary), Some(found)) = (&mut result.summary, found) {
        summary.rest.insert("flakiness".to_owned(), found);
    }
    result
}

/// What an evaluation came to. `metrics` are those that were evaluated; without them, nothing is said of who judged.
pub(crate) fn outcome(app: &str, result: &EvalSetResult, metrics: &[ScoredMetric]) -> SuiteOutcome {
    let summary = result.summary.as_ref();
    // The first files have no summary; their cases say how they ended.
    let of_cases = || {
        let statuses = result.cases.iter().map(|case| case.status);
        status_of_all("a case", statuses).unwrap_or_default()
    };
    let status = summary.map_or_else(of_cases, |summary| summary.status);
    SuiteOutcome {
        kind: "evalset",
        name: result.set_id.clone(),
        of: app.to_owned(),
        verdict: status.into(),
        runs: summary.map_or(1, |s| u32::try_from(s.runs_asked).unwrap_or(u32::MAX)),
        metrics: metric_outcomes(result, metrics),
        flakiness: flakiness(result, None),
        cases: result
            .cases
            .iter()
            .map(|case| case_outcome(case, metrics))
            .collect(),
        ..SuiteOutcome::default()
    }
}

/// Metric by metric over all cases and runs, in the order in which they first occur.
fn metric_outcomes(result: &EvalSetResult, metrics: &[ScoredMetric]) -> Vec<MetricOutcome> {
    let mut outcomes: Vec<(MetricOutcome, f64)> = Vec::new();
    for found in result.cases.iter().flat_map(|case| &case.metrics) {
        let at = outcomes
            .iter()
            .position(|(known, _)| known.name == found.name);
        let at = at.unwrap_or_else(|| {
            let outcome = MetricOutcome {
                name: found.name.clone(),
                threshold: Some(found.threshold),
                judged: is_judged(metrics, &found.name),
                ..MetricOutcome::default()
            };
            outcomes.push((outcome, 0.0));
            outcomes.len() - 1
        });
        let Some((outcome, sum)) = outcomes.get_mut(at) else {
            continue;
        };
        match found.status {
            EvalStatus::Passed => outcome.passed += 1,
            EvalStatus::Failed => outcome.failed += 1,
            _ => {
                outcome.not_evaluated += 1;
                continue;
            }
        }
        *sum += found.score;
    }
    let with_mean = |(mut outcome, sum): (MetricOutcome, f64)| {
        let evaluated = outcome.passed + outcome.failed;
        outcome.mean = (evaluated > 0).then(|| sum / evaluated as f64);
        outcome
    };
    outcomes.into_iter().map(with_mean).collect()
}

fn is_judged(metrics: &[ScoredMetric], name: &str) -> bool {
    let mut metrics = metrics.iter();
    metrics.any(|m| m.metric.name == name && m.judged().is_some())
}

/// What readers are shown of a case.
pub(super) fn case_outcome(case: &CaseResult, metrics: &[ScoredMetric]) -> CaseOutcome {
    let first = case.turns.first().and_then(|turn| turn.actual.as_ref());
    let asked = first.and_then(|turn| turn.user_content.as_ref());
    let input = asked.map_or("", |message| message.content.as_str());
    CaseOutcome {
        id: case.id.clone(),
        run: u32::try_from(case.run_id).unwrap_or_default(),
        verdict: case.status.into(),
        error: (!case.error_message.is_empty()).then(|| case.error_message.clone()),
        input: input.chars().take(MOST_INPUT).collect(),
        checks: case
            .turns
            .iter()
            .flat_map(|turn| {
                turn.metrics
                    .iter()
                    .map(|metric| check(turn, metric, metrics))
            })
            .collect(),
        ..CaseOutcome::default()
    }
}

/// What a metric says of a turn. What was expected and found is shown where they are held against each other.
fn check(turn: &TurnResult, metric: &MetricResult, metrics: &[ScoredMetric]) -> CheckOutcome {
    let details = metric.details.clone().unwrap_or_default();
    let evaluator = metrics.iter().find(|m| m.metric.name == metric.name);
    let evaluator = evaluator.map_or(metric.name.as_str(), |m| m.metric.evaluator());
    let of_tools = evaluator.starts_with("tool_trajectory_");
    let side = |turn: Option<&Invocation>| match of_tools {
        true => turn.map(calls),
        false => turn.and_then(|turn| said(turn.final_response.as_ref())),
    };
    let invocation = turn.actual.as_ref().or(turn.expected.as_ref());
    CheckOutcome {
        invocation: invocation.map(|turn| turn.id.clone()).unwrap_or_default(),
        metric: metric.name.clone(),
        criterion: criterion_name(evaluator).to_owned(),
        verdict: metric.status.into(),
        score: metric.score,
        threshold: metric.threshold,
        reason: details.reason,
        expected: side(turn.expected.as_ref()),
        actual: side(turn.actual.as_ref()),
        judged: is_judged(metrics, &metric.name),
        parts: details
            .rubric_scores
            .into_iter()
            .map(|rubric| PartOutcome {
                name: rubric.id,
                passed: rubric.score >= metric.threshold.clamp(f64::MIN_POSITIVE, 1.0),
                reason: rubric.reason,
                ..PartOutcome::default()
            })
            .collect(),
    }
}

/// What an evaluator looks at, in words.
fn criterion_name(evaluator: &str) -> &str {
    match evaluator {
        "tool_trajectory_avg_score" => "tool trajectory",
        "tool_trajectory_partial_score" => "share of the tool trajectory",
        "final_response_semantic_avg_score" => "meaning of the final response",
        "final_response_avg_score" | "llm_final_response" => "final response",
        "llm_rubric_knowledge_recall" => "rubrics of the retrieved knowledge",
        "llm_rubric_response" | "llm_rubric_critic" | "llm_rubric_reference_critic" => "rubrics",
        "llm_hallucinations" => "sentences of the final response",
        "llm_judge_template" => "the prompt of the metrics file",
        other => other,
    }
}

fn said(message: Option<&Message>) -> Option<String> {
    message.map(|message| message.content.clone())
}

/// The calls of a turn, without their ids, which are never compared.
fn calls(turn: &Invocation) -> String {
    let calls = turn.tools.iter().map(|call| match call {
        None => Value::Null,
        Some(call) => {
            json!({"name": call.name, "arguments": call.arguments, "result": call.result})
        }
    });
    Value::Array(calls.collect()).to_string()
}
