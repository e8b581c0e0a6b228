//! From aggregated sessions of the plan to the tables `sessions` and `scores`.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Builder, Int64Builder, ListBuilder, RecordBatch, StringArray,
    StringBuilder, StructArray, UInt32Builder, new_null_array,
};
use arrow::datatypes::{
    DataType, Field, Float64Type, Int64Type, Schema, SchemaRef, TimeUnit, UInt64Type,
};
use arrow::error::ArrowError;
use serde_json::Value;

use super::bucket::{SessionBatches, SessionCounts};
use super::night::SessionsSoFar;
use super::tag_lists::{tag_lists, tags};
use super::trace_rows::{column, estimated};
use crate::metric::session_signal::{
    ATTENTION, SESSION_SIGNALS, SIGNAL_COUNT, SessionFacts, SessionSignal,
};
use crate::metric::{RISKS, Rules, SIGNALS, SPAN_SIGNALS, SignalWeights, round4};
use crate::output::score_rows::{AUTOMATED, MadeBy, ModelLabel, NO_EVIDENCE, ScoreRow, ScoreRows};
use crate::output::{RunError, Status, WorstSession, WorstStep};
use crate::trace::RowAt;

/// Which columns the table of sessions has beside those of every run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SessionColumns {
    /// Labels of the session's traces.
    pub labels: bool,
    /// Signals of sessions.
    pub signals: bool,
    /// Since when there is one, in a run that continues another one.
    pub of_night: bool,
}

/// The columns of sessions.
pub(super) fn sessions_schema(columns: SessionColumns) -> SchemaRef {
    let time = |name| {
        Field::new(
            name,
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            false,
        )
    };
    let count = |name, null| Field::new(name, DataType::Int64, null);
    let mut fields = vec![
        Field::new("session_id", DataType::Utf8, false),
        Field::new("project_id", DataType::Utf8, true),
        count("traces", false),
        count("missing_signals", false),
        time("first_started_at"),
        time("last_started_at"),
        Field::new("agent_reliability", DataType::Float64, true),
        count("agent_reliability_evaluated_traces", true),
        Field::new("agent_consistency", DataType::Float64, true),
        count("agent_consistency_evaluated_traces", true),
        count("flagged", true),
        Field::new(
            "flagged_traces",
            DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))),
            true,
        ),
    ];
    if columns.labels {
        let text = |name| Field::new(name, DataType::Utf8, true);
        fields.extend(LABELS.map(text));
        fields.push(Field::new("tags", tags(), true));
    }
    if columns.signals {
        let number = |signal: &SessionSignal| Field::new(signal.name, DataType::Float64, true);
        fields.extend(SESSION_SIGNALS.iter().map(number));
    }
    if columns.of_night {
        fields.push(Field::new("first_run", DataType::Utf8, false));
        fields.push(Field::new("revision", DataType::UInt32, false));
    }
    Arc::new(Schema::new(fields))
}

/// Labels of a session: those of its first trace that has one.
const LABELS: [&str; 4] = ["name", "environment", "release", "model"];

/// Makes rows of `sessions` and `scores` of folded sessions, in their order.
pub(super) struct SessionRows<'j> {
    rules: &'j Rules,
    labels: Option<&'j ModelLabel>,
    so_far: Option<&'j SessionsSoFar>,
    /// The files that are read, by number; none where sessions have no labels.
    files: Option<&'j [String]>,
    /// Whether scores of traces may be a quick model's estimates.
    estimated: bool,
    pub counts: SessionCounts,
}

impl<'j> SessionRows<'j> {
    pub fn of(
        rules: &'j Rules,
        labels: Option<&'j ModelLabel>,
        so_far: Option<&'j SessionsSoFar>,
    ) -> Self {
        Self {
            rules,
            labels,
            so_far,
            files: None,
            estimated: false,
            counts: SessionCounts::default(),
        }
    }

    /// The same with labels, of a plan that tells them.
    pub fn with_files(self, files: &'j [String]) -> Self {
        let files = Some(files);
        Self { files, ..self }
    }

    /// The same of a run with a quick model.
    pub fn of_triage(self, estimated: bool) -> Self {
        Self { estimated, ..self }
    }

    /// Rows of tables for a batch of the plan.
    ///
    /// # Errors
    /// [`RunError::Plan`], if the plan's rows are not what they should be.
    pub fn make(&mut self, batch: &RecordBatch) -> Result<SessionBatches, RunError> {
        self.convert(batch)
            .map_err(|e| RunError::Plan(format!("a result batch could not be built: {e}")))
    }

    fn convert(&mut self, batch: &RecordBatch) -> Result<SessionBatches, ArrowError> {
        let column = |name| column(batch, name);
        let ids = column("session_id")?.as_string::<i32>();
        let projects = column("project_id")?.as_string::<i32>();
        let traces = column("traces")?.as_primitive::<Int64Type>();
        let metrics = [
            ("agent_reliability", column("agent_reliability")?),
            ("agent_consistency", column("agent_consistency")?),
        ]
        .map(|(name, column)| (name, SessionMetric::new(column)));
        let mut rows = ScoreRows::new(self.labels.cloned(), self.rules);
        let mut scores = [Float64Builder::new(), Float64Builder::new()];
        let mut evaluated = [Int64Builder::new(), Int64Builder::new()];
        let mut flagged_count = Int64Builder::new();
        let mut flagged_ids = ListBuilder::new(StringBuilder::new());
        for row in 0..batch.num_rows() {
            let session_id = ids.value(row);
            let project_id = projects.is_valid(row).then(|| projects.value(row));
            let mut shown = [None; 2];
            for (at, (name, metric)) in metrics.iter().enumerate() {
                let Some(scored) = metric.as_ref().and_then(|m| m.row(row)) else {
                    scores[at].append_null();
                    evaluated[at].append_null();
                    continue;
                };
                let threshold = self.rules.threshold(name);
                let nothing = scored.evaluated == 0;
                let withheld = nothing && self.rules.null_without_evidence;
                if nothing {
                    *self
                        .counts
                        .without_evidence
                        .entry((*name).into())
                        .or_default() += 1;
                }
                if !withheld {
                    let distribution = self.counts.distributions.of(name);
                    distribution.add(scored.score, threshold);
                    shown[at] = Some(scored.score);
                }
                scores[at].append_option((!withheld).then_some(scored.score));
                evaluated[at].append_value(scored.evaluated);
                let (mut reason, mut details) =
                    (Cow::from(scored.reason), Cow::from(scored.details));
                if self.estimated {
                    reason = estimated(details.to_mut(), &reason).into();
                }
                rows.push(&ScoreRow {
                    target_type: "session",
                    target_id: session_id,
                    session_id: Some(session_id),
                    project_id,
                    metric: name,
                    score_raw: (!withheld).then_some(scored.score_raw),
                    status: match withheld {
                        true => NO_EVIDENCE,
                        false => Status::Success.name(),
                    },
                    threshold: Some(threshold),
                    passed: (!withheld).then_some(scored.score >= threshold),
                    reason: &reason,
                    metadata: &details,
                    evaluated_traces: Some(scored.evaluated),
                    environment: None,
                    source: AUTOMATED,
                    made_by: MadeBy::LocalModel,
                });
            }
            let flagged = metrics[0].1.as_ref().and_then(|m| m.flagged(row));
            flagged_count.append_option(flagged.as_ref().map(|f| f.len() as i64));
            for id in flagged.iter().flatten() {
                flagged_ids.values().append_value(id);
            }
            flagged_ids.append(flagged.is_some());
            let session = WorstSession {
                session_id: session_id.to_owned(),
                project_id: project_id.map(str::to_owned),
                agent_reliability: shown[0],
                agent_consistency: shown[1],
                traces: traces.value(row).unsigned_abs(),
                flagged_traces: flagged.unwrap_or_default(),
                worst_step: None,
            };
            let weights = &self.rules.weights;
            self.counts.count(session, || {
                worst_step(metrics[0].1.as_ref()?.row(row)?.details, weights)
            });
        }
        let [mut reliability, mut consistency] = scores;
        let [mut reliability_evaluated, mut consistency_evaluated] = evaluated;
        let mut columns: Vec<ArrayRef> = vec![
            Arc::clone(column("session_id")?),
            Arc::clone(column("project_id")?),
            Arc::clone(column("traces")?),
            Arc::clone(column("missing_signals")?),
            Arc::clone(column("first_started_at")?),
            Arc::clone(column("last_started_at")?),
            Arc::new(reliability.finish()),
            Arc::new(reliability_evaluated.finish()),
            Arc::new(consistency.finish()),
            Arc::new(consistency_evaluated.finish()),
            Arc::new(flagged_count.finish()),
            Arc::new(flagged_ids.finish()),
        ];
        let mut first_files = None;
        if let Some(files) = self.files {
            for name in LABELS {
                columns.push(Arc::clone(column(name)?));
            }
            columns.push(tag_lists(column("tags")?)?);
            let places = column("first_position")?.as_primitive::<UInt64Type>();
            let file = |place| files.get(RowAt::from_position(place).parts().0);
            let names = places.iter().map(|place| place.and_then(file));
            first_files = Some(names.collect::<StringArray>());
        }
        let signals = self.rules.wants(ATTENTION);
        let facts = column("session_facts")?;
        if signals {
            columns.extend(signal_columns(facts)?);
        }
        if let Some(so_far) = &self.so_far {
            let (mut first_runs, mut revisions) = (StringBuilder::new(), UInt32Builder::new());
            for row in 0..batch.num_rows() {
                let project = projects.is_valid(row).then(|| projects.value(row));
                let (first, revision) = so_far.of(ids.value(row), project);
                first_runs.append_value(first);
                revisions.append_value(revision);
            }
            columns.push(Arc::new(first_runs.finish()));
            columns.push(Arc::new(revisions.finish()));
        }
        let schema = sessions_schema(SessionColumns {
            labels: self.files.is_some(),
            signals,
            of_night: self.so_far.is_some(),
        });
        let facts = first_files.map(|files| {
            let facts = match signals {
                true => Arc::clone(facts),
                false => new_null_array(&DataType::Binary, batch.num_rows()),
            };
            RecordBatch::try_new(facts_schema(), vec![facts, Arc::new(files)])
        });
        Ok(SessionBatches {
            sessions: RecordBatch::try_new(schema, columns)?,
            scores: rows.finish()?,
            facts: facts.transpose()?,
        })
    }
}

/// The columns of the table of facts: what the order of sessions needs to know, null where none is made, and the file of
/// the session's first trace with a text, which is no column of `sessions`: tables are the same however rows are split
/// into files.
pub(super) fn facts_schema() -> SchemaRef {
    let fields = vec![
        Field::new("session_facts", DataType::Binary, true),
        Field::new("file", DataType::Utf8, true),
    ];
    Arc::new(Schema::new(fields))
}

/// The signals of sessions, by their facts.
fn signal_columns(facts: &ArrayRef) -> Result<Vec<ArrayRef>, ArrowError> {
    let unreadable = || ArrowError::ParseError("unreadable facts of a session".into());
    let cells = facts.as_binary_opt::<i32>().ok_or_else(unreadable)?;
    let mut builders: [Float64Builder; SIGNAL_COUNT] =
        std::array::from_fn(|_| Float64Builder::new());
    for cell in cells {
        let values = match cell {
            Some(bytes) => {
                SessionFacts::from_bytes(bytes)
                    .ok_or_else(unreadable)?
                    .values
            }
            None => [None; SIGNAL_COUNT],
        };
        for (builder, value) in builders.iter_mut().zip(values) {
            builder.append_option(value);
        }
    }
    let columns = builders
        .iter_mut()
        .map(|b| Arc::new(b.finish()) as ArrayRef);
    Ok(columns.collect())
}

/// The riskiest step in the details of a reliability, and the signal that weighs most in it; the first of equal ones.
fn worst_step(details: &str, weights: &SignalWeights) -> Option<WorstStep> {
    let details: Value = serde_json::from_str(details).ok()?;
    let steps = details["per_trace_signals"].as_object()?;
    let mut worst: Option<(f64, &String, &Value)> = None;
    for (id, step) in steps {
        let risk = step["step_risk"].as_f64()?;
        if worst.is_none_or(|(most, _, _)| risk > most) {
            worst = Some((risk, id, step));
        }
    }
    let (_, trace_id, step) = worst?;
    let weight = |signal: &str| {
        weights
            .iter()
            .find(|(name, _)| *name == signal)
            .map_or(1.0, |(_, w)| w)
    };
    let mut heaviest: Option<(f64, &str, f64)> = None;
    let signals = SIGNALS.iter().map(|(name, _)| name).chain(&SPAN_SIGNALS);
    for (signal, risk) in signals.copied().zip(RISKS) {
        let Some(risk) = step[risk].as_f64() else {
            continue;
        };
        let weighted = risk * weight(signal);
        if heaviest.is_none_or(|(most, _, _)| weighted > most) {
            heaviest = Some((weighted, signal, round4(1.0 - risk)));
        }
    }
    let (_, signal, value) = heaviest?;
    Some(WorstStep {
        trace_id: trace_id.clone(),
        signal: signal.to_owned(),
        value,
    })
}

/// A column of session metric structs.
struct SessionMetric<'a> {
    column: &'a StructArray,
}

struct SessionScore<'a> {
    score: f64,
    score_raw: f64,
    evaluated: i64,
    reason: &'a str,
    details: &'a str,
}

impl<'a> SessionMetric<'a> {
    /// `None` if the metric was not asked for.
    fn new(column: &'a ArrayRef) -> Option<Self> {
        column.as_struct_opt().map(|column| Self { column })
    }

    fn row(&self, row: usize) -> Option<SessionScore<'a>> {
        if self.column.is_null(row) {
            return None;
        }
        let field = |name: &str| self.column.column_by_name(name);
        Some(SessionScore {
            score: field("score")?.as_primitive::<Float64Type>().value(row),
            score_raw: field("score_raw")?.as_primitive::<Float64Type>().value(row),
            evaluated: field("evaluated_traces")?
                .as_primitive::<Int64Type>()
                .value(row),
            reason: field("reason")?.as_string::<i32>().value(row),
            details: field("details")?.as_string::<i32>().value(row),
        })
    }

    fn flagged(&self, row: usize) -> Option<Vec<String>> {
        let list = self
            .column
            .column_by_name("flagged_traces")?
            .as_list::<i32>();
        list.is_valid(row).then(|| {
            let ids = list.value(row);
            ids.as_string::<i32>()
                .iter()
                .flatten()
                .map(str::to_owned)
                .collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_step_is_the_riskiest_trace_by_its_heaviest_signal() {
        let details = r#"{"per_trace_signals": {
            "a": {"coherence_risk": 0.2, "step_risk": 0.2},
            "b": {"coherence_risk": 0.7, "tool_risk": 0.8, "step_risk": 0.7},
            "c": {"coherence_risk": 0.7, "step_risk": 0.7}}}"#;
        let weights = SignalWeights::with(&[]).unwrap();
        let step = worst_step(details, &weights).unwrap();
        // Tools weigh 0.8.
        assert_eq!(
            (step.trace_id.as_str(), step.signal.as_str()),
            ("b", "coherence")
        );
        assert_eq!(step.value, 0.3);
        assert_eq!(worst_step("{}", &weights), None);
        assert_eq!(worst_step("no json", &weights), None);
    }
}
