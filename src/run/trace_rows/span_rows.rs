//! What metrics of spans found for a trace.

use arrow::error::ArrowError;

use super::plan_columns::PlanColumns;
use super::scored::{Labels, push_member, push_reused};
use crate::engine::span_facts;
use crate::metric::spans::{Found, Measure, OfSpans, SpanFacts};
use crate::metric::{Metadata, Rules, round4};
use crate::output::score_rows::{AUTOMATED, MadeBy, NO_EVIDENCE, ScoreRow, ScoreRows};
use crate::output::{Distributions, Status};

/// Metrics of spans that a run computes.
pub(super) struct SpanMetrics {
    pub scores: Vec<OfSpans>,
    pub measures: Vec<Measure>,
}

/// The values of a trace in their columns, in the order of the metrics; none where there is nothing to score.
#[derive(Default)]
pub(super) struct SpanValues {
    pub scores: Vec<Option<f64>>,
    pub measures: Vec<Option<f64>>,
}

/// What the plan knows of the spans of a row.
fn facts(plan: &PlanColumns<'_>, row: usize) -> Result<SpanFacts, ArrowError> {
    let record = plan.stuck_record(row);
    let facts = span_facts(plan.span_digest(row), plan.output_digest(row), record);
    facts.ok_or_else(|| ArrowError::ParseError("unreadable digest of spans".into()))
}

impl SpanMetrics {
    pub fn of(rules: &Rules) -> Self {
        Self {
            scores: rules.of_spans().collect(),
            measures: rules.measures().collect(),
        }
    }

    /// Scores a row; adds rows of scores, and members of its details.
    pub fn push(
        &self,
        (plan, row): (&PlanColumns<'_>, usize),
        trace: Labels<'_>,
        rules: &Rules,
        distributions: &mut Distributions,
        scores: &mut ScoreRows,
        details: &mut String,
    ) -> Result<SpanValues, ArrowError> {
        let mut values = SpanValues::default();
        if self.scores.is_empty() && self.measures.is_empty() {
            return Ok(values);
        }
        let facts = facts(plan, row)?;
        let mut metadata = String::new();
        for metric in &self.scores {
            if let Some(given) = plan.given_of_spans(*metric, row) {
                push_reused(details, metric.name());
                values.scores.push(Some(given));
                continue;
            }
            let (name, threshold) = (metric.name(), rules.threshold(metric.name()));
            let found = metric.score(&facts);
            metadata.clear();
            let distribution = distributions.of(name);
            match &found {
                Ok(found) => {
                    distribution.add(round4(found.score), threshold);
                    found.push_metadata(threshold, &mut metadata);
                }
                Err(_) => metadata.push_str(r#"{"note":"no_evidence"}"#),
            }
            push_member(details, name, &metadata);
            push_score(scores, name, &found, threshold, trace, &metadata);
            let score = found.ok().map(|found| round4(found.score));
            values.scores.push(score);
        }
        for measure in &self.measures {
            let value = measure.of(&facts);
            metadata.clear();
            let mut object = Metadata::object(&mut metadata);
            match value {
                Some(value) => object.number("value", value),
                None => object.text("note", "no_evidence"),
            };
            object.end();
            push_member(details, measure.name(), &metadata);
            values.measures.push(value);
        }
        Ok(values)
    }
}

fn push_score(
    scores: &mut ScoreRows,
    metric: &str,
    found: &Result<Found, &'static str>,
    threshold: f64,
    trace: Labels<'_>,
    metadata: &str,
) {
    let score = found.as_ref().ok().map(|found| found.score);
    scores.push(&ScoreRow {
        target_type: "trace",
        target_id: trace.trace_id,
        session_id: trace.session_id,
        project_id: trace.project_id,
        metric,
        score_raw: score,
        status: match score {
            Some(_) => Status::Success.name(),
            None => NO_EVIDENCE,
        },
        threshold: score.map(|_| threshold),
        passed: score.map(|score| score >= threshold),
        reason: match found {
            Ok(found) => &found.reason,
            Err(why) => why,
        },
        metadata,
        evaluated_traces: None,
        environment: trace.environment,
        source: AUTOMATED,
        made_by: MadeBy::Nothing,
    });
}
