//! Result files as JSON: read in the shapes of all versions, and written in today's.

use std::sync::Arc;

use serde_json::{Value, json};

use super::json_file::{FileError, Loaded, file_text, value_of};
use super::legacy;
use super::model::Invocation;
use super::object::{Members, object_of, or_null};
use super::place::Place;
use super::result::{
    CaseResult, CaseRun, CaseSummary, DetailValue, EvalSetResult, EvalStatus, MetricDetails,
    MetricResult, MetricSummary, ResultSummary, RubricScore, RunSummary, StatusCounts, TurnResult,
};
use super::set_json::{read_turn, write_moment, write_turn};
use super::shape::{
    CASE_RESULT, Kind, METRIC_RESULT, RESULT, ShapeFault, arranged, checked, number_of,
};

impl EvalSetResult {
    /// Reads the text of a file that errors call `file`. The first versions wrote the text as one JSON string, statuses
    /// as numbers, and neither `summary` nor `runId`.
    ///
    /// # Errors
    /// [`FileError`] for what is no JSON, and for values of wrong kinds.
    pub fn from_text(text: &str, file: &str) -> Result<Loaded<Self>, FileError> {
        let mut value = value_of(text, file)?;
        if let Value::String(text) = value {
            value = value_of(&text, file)?;
        }
        let mut warnings = Vec::new();
        if legacy::convert_result(&mut value) {
            warnings.push(format!(
                "{file}: turns or criteria in an older shape were converted"
            ));
        }
        let value = checked(value, &Kind::Object(&RESULT), &Place::Document);
        let value = value.map_err(|fault| FileError::shape(file, fault))?;
        Ok(Loaded {
            value: read_result(Members::of(value)),
            warnings,
        })
    }

    /// The text of a file: members in order, empty ones left out, two spaces a level.
    pub fn to_text(&self) -> String {
        file_text(&self.to_json())
    }

    /// The result as files hold it.
    pub fn to_json(&self) -> Value {
        arranged(write_result(self), &Kind::Object(&RESULT))
    }
}

impl CaseResult {
    /// Reads `evalCaseResults[]`.
    ///
    /// # Errors
    /// [`ShapeFault`] for a value of a wrong kind.
    pub fn from_json(value: Value) -> Result<Self, ShapeFault> {
        let value = checked(value, &Kind::Object(&CASE_RESULT), &Place::Document)?;
        Ok(read_case(Members::of(value)))
    }

    /// The case's result as files hold it.
    pub fn to_json(&self) -> Value {
        arranged(write_case(self), &Kind::Object(&CASE_RESULT))
    }
}

impl MetricResult {
    /// Reads `overallEvalMetricResults[]`.
    ///
    /// # Errors
    /// [`ShapeFault`] for a value of a wrong kind.
    pub fn from_json(value: Value) -> Result<Self, ShapeFault> {
        let value = checked(value, &Kind::Object(&METRIC_RESULT), &Place::Document)?;
        Ok(read_metric(Members::of(value)))
    }

    /// The metric's result as files hold it.
    pub fn to_json(&self) -> Value {
        arranged(write_metric(self), &Kind::Object(&METRIC_RESULT))
    }
}

impl ResultSummary {
    /// The summary as files hold it.
    pub fn to_json(&self) -> Value {
        let result = EvalSetResult {
            summary: Some(self.clone()),
            ..EvalSetResult::default()
        };
        let mut members = Members::of(result.to_json());
        members.free("summary")
    }
}

fn read_status(members: &mut Members, name: &str) -> EvalStatus {
    EvalStatus::named(&members.text(name)).unwrap_or_default()
}

fn read_result(mut result: Members) -> EvalSetResult {
    EvalSetResult {
        id: result.text("evalSetResultId"),
        name: result.text("evalSetResultName"),
        set_id: result.text("evalSetId"),
        cases: result.present("evalCaseResults", read_case),
        summary: result.object("summary", read_summary),
        created: result.moment("creationTimestamp"),
        rest: result.rest(),
    }
}

fn read_case(mut case: Members) -> CaseResult {
    CaseResult {
        set_id: case.text("evalSetId"),
        id: case.text("evalId"),
        run_id: case.integer("runId"),
        status: read_status(&mut case, "finalEvalStatus"),
        score: case.number_if_set("score"),
        error_message: case.text("errorMessage"),
        metrics: case.present("overallEvalMetricResults", read_metric),
        turns: case.present("evalMetricResultPerInvocation", |mut turn| TurnResult {
            actual: turn.object("actualInvocation", read_turn),
            expected: turn.object("expectedInvocation", read_turn),
            metrics: turn.present("evalMetricResults", read_metric),
            rest: turn.rest(),
        }),
        session_id: case.text("sessionId"),
        user_id: case.text("userId"),
        rest: case.rest(),
    }
}

fn read_metric(mut metric: Members) -> MetricResult {
    MetricResult {
        name: metric.text("metricName"),
        score: metric.number("score"),
        status: read_status(&mut metric, "evalStatus"),
        threshold: metric.number("threshold"),
        criterion: match metric.free("criterion") {
            Value::Null => None,
            criterion => Some(Arc::new(criterion)),
        },
        details: metric.object("details", |mut details| MetricDetails {
            reason: details.text("reason"),
            score: details.number("score"),
            value: match details.free("value") {
                Value::Null => None,
                value => Some(read_value(value)),
            },
            rubric_scores: details.present("rubricScores", |mut rubric| RubricScore {
                id: rubric.text("id"),
                reason: rubric.text("reason"),
                score: rubric.number("score"),
                rest: rubric.rest(),
            }),
            rest: details.rest(),
        }),
        rest: metric.rest(),
    }
}

fn read_value(value: Value) -> DetailValue {
    let kind = value.get("kind").and_then(Value::as_str);
    let said = kind.and_then(|kind| Some((kind, value.get(kind)?)));
    match (said, value.as_object().map_or(0, |members| members.len())) {
        (Some(("numeric", Value::Number(number))), 2) => number
            .as_f64()
            .map_or_else(|| DetailValue::Other(value.clone()), DetailValue::Numeric),
        (Some(("boolean", Value::Bool(said))), 2) => DetailValue::Boolean(*said),
        (Some(("categorical", Value::String(label))), 2) => DetailValue::Categorical(label.clone()),
        _ => DetailValue::Other(value),
    }
}

fn read_summary(mut summary: Members) -> ResultSummary {
    ResultSummary {
        status: read_status(&mut summary, "overallStatus"),
        runs_asked: summary.integer("numRuns"),
        run_counts: summary.object("runStatusCounts", read_counts),
        runs: summary.present("runSummaries", |mut run| RunSummary {
            run_id: run.integer("runId"),
            status: read_status(&mut run, "overallStatus"),
            case_counts: run.object("caseStatusCounts", read_counts),
            metrics: run.present("metricSummaries", read_metric_summary),
            rest: run.rest(),
        }),
        cases: summary.present("evalCaseSummaries", |mut case| CaseSummary {
            id: case.text("evalId"),
            status: read_status(&mut case, "overallStatus"),
            run_counts: case.object("runStatusCounts", read_counts),
            metrics: case.present("metricSummaries", read_metric_summary),
            runs: case.present("runSummaries", |mut run| CaseRun {
                run_id: run.integer("runId"),
                status: read_status(&mut run, "finalEvalStatus"),
                error_message: run.text("errorMessage"),
                metrics: run.present("metricResults", read_metric),
                rest: run.rest(),
            }),
            rest: case.rest(),
        }),
        rest: summary.rest(),
    }
}

fn read_metric_summary(mut metric: Members) -> MetricSummary {
    MetricSummary {
        name: metric.text("metricName"),
        average_score: metric.number("averageScore"),
        status: read_status(&mut metric, "evalStatus"),
        threshold: metric.number("threshold"),
        counts: metric.object("statusCounts", read_counts),
        rest: metric.rest(),
    }
}

fn read_counts(mut counts: Members) -> StatusCounts {
    StatusCounts {
        passed: counts.integer("passed"),
        failed: counts.integer("failed"),
        not_evaluated: counts.integer("notEvaluated"),
        rest: counts.rest(),
    }
}

fn write_all<T>(items: &[T], write: impl Fn(&T) -> Value) -> Value {
    items.iter().map(write).collect()
}

fn write_result(result: &EvalSetResult) -> Value {
    let known = [
        ("evalSetResultId", result.id.as_str().into()),
        ("evalSetResultName", result.name.as_str().into()),
        ("evalSetId", result.set_id.as_str().into()),
        ("evalCaseResults", write_all(&result.cases, write_case)),
        ("summary", or_null(result.summary.as_ref(), write_summary)),
        ("creationTimestamp", write_moment(result.created)),
    ];
    object_of(known, &result.rest)
}

fn write_case(case: &CaseResult) -> Value {
    let known = [
        ("evalSetId", case.set_id.as_str().into()),
        ("evalId", case.id.as_str().into()),
        ("runId", case.run_id.into()),
        ("finalEvalStatus", case.status.name().into()),
        ("score", case.score.map_or(Value::Null, number_of)),
        ("errorMessage", case.error_message.as_str().into()),
        (
            "overallEvalMetricResults",
            write_all(&case.metrics, write_metric),
        ),
        (
            "evalMetricResultPerInvocation",
            write_all(&case.turns, write_turn_result),
        ),
        ("sessionId", case.session_id.as_str().into()),
        ("userId", case.user_id.as_str().into()),
    ];
    object_of(known, &case.rest)
}

fn write_turn_result(turn: &TurnResult) -> Value {
    let side = |side: &Option<Invocation>| or_null(side.as_ref(), write_turn);
    let known = [
        ("actualInvocation", side(&turn.actual)),
        ("expectedInvocation", side(&turn.expected)),
        ("evalMetricResults", write_all(&turn.metrics, write_metric)),
    ];
    object_of(known, &turn.rest)
}

fn write_metric(metric: &MetricResult) -> Value {
    let criterion = metric.criterion.as_deref().cloned();
    let known = [
        ("metricName", metric.name.as_str().into()),
        ("score", number_of(metric.score)),
        ("evalStatus", metric.status.name().into()),
        ("threshold", number_of(metric.threshold)),
        ("criterion", criterion.map_or(Value::Null, without_key)),
        ("details", or_null(metric.details.as_ref(), write_details)),
    ];
    object_of(known, &metric.rest)
}

/// A criterion as results may hold it, whoever put it together.
fn without_key(mut criterion: Value) -> Value {
    let model = criterion.pointer_mut("/llmJudge/judgeModel");
    if let Some(Value::Object(model)) = model {
        model.shift_remove(super::environment::KEY);
    }
    criterion
}

fn write_details(details: &MetricDetails) -> Value {
    let known = [
        ("reason", details.reason.as_str().into()),
        ("score", number_of(details.score)),
        ("value", or_null(details.value.as_ref(), write_value)),
        (
            "rubricScores",
            write_all(&details.rubric_scores, write_rubric_score),
        ),
    ];
    object_of(known, &details.rest)
}

fn write_value(value: &DetailValue) -> Value {
    match value {
        DetailValue::Numeric(number) => json!({"kind": "numeric", "numeric": number_of(*number)}),
        DetailValue::Boolean(said) => json!({"kind": "boolean", "boolean": said}),
        DetailValue::Categorical(label) => json!({"kind": "categorical", "categorical": label}),
        DetailValue::Other(value) => value.clone(),
    }
}

fn write_rubric_score(rubric: &RubricScore) -> Value {
    let known = [
        ("id", rubric.id.as_str().into()),
        ("reason", rubric.reason.as_str().into()),
        ("score", number_of(rubric.score)),
    ];
    object_of(known, &rubric.rest)
}

fn write_summary(summary: &ResultSummary) -> Value {
    let known = [
        ("overallStatus", summary.status.name().into()),
        ("numRuns", summary.runs_asked.into()),
        ("runStatusCounts", write_counts(&summary.run_counts)),
        ("runSummaries", write_all(&summary.runs, write_run)),
        (
            "evalCaseSummaries",
            write_all(&summary.cases, write_case_summary),
        ),
    ];
    object_of(known, &summary.rest)
}

fn write_run(run: &RunSummary) -> Value {
    let known = [
        ("runId", run.run_id.into()),
        ("overallStatus", run.status.name().into()),
        ("caseStatusCounts", write_counts(&run.case_counts)),
        (
            "metricSummaries",
            write_all(&run.metrics, write_metric_summary),
        ),
    ];
    object_of(known, &run.rest)
}

fn write_case_summary(case: &CaseSummary) -> Value {
    let known = [
        ("evalId", case.id.as_str().into()),
        ("overallStatus", case.status.name().into()),
        ("runStatusCounts", write_counts(&case.run_counts)),
        (
            "metricSummaries",
            write_all(&case.metrics, write_metric_summary),
        ),
        ("runSummaries", write_all(&case.runs, write_case_run)),
    ];
    object_of(known, &case.rest)
}

fn write_case_run(run: &CaseRun) -> Value {
    let known = [
        ("runId", run.run_id.into()),
        ("finalEvalStatus", run.status.name().into()),
        ("errorMessage", run.error_message.as_str().into()),
        ("metricResults", write_all(&run.metrics, write_metric)),
    ];
    object_of(known, &run.rest)
}

fn write_metric_summary(metric: &MetricSummary) -> Value {
    let known = [
        ("metricName", metric.name.as_str().into()),
        ("averageScore", number_of(metric.average_score)),
        ("evalStatus", metric.status.name().into()),
        ("threshold", number_of(metric.threshold)),
        ("statusCounts", write_counts(&metric.counts)),
    ];
    object_of(known, &metric.rest)
}

fn write_counts(counts: &Option<StatusCounts>) -> Value {
    or_null(counts.as_ref(), |counts| {
        let known = [
            ("passed", counts.passed.into()),
            ("failed", counts.failed.into()),
            ("notEvaluated", counts.not_evaluated.into()),
        ];
        object_of(known, &counts.rest)
    })
}

#[cfg(test)]
mod tests;
