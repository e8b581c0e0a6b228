//! From scored rows of the plan to the table `traces`, and their scores.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Float64Builder, RecordBatch, StringArray,
    StringBuilder, StringDictionaryBuilder,
};
use arrow::datatypes::{DataType, Field, Float64Type, Int32Type, Schema, SchemaRef, TimeUnit};

use super::score_rows::{ModelLabel, ScoreRow, ScoreRows, label, scores_schema};
use super::table_writer::TableWriter;
use super::{Distribution, Rules, RunDirectory, RunError};
use crate::engine::unpack_loop_record;
use crate::metric::agent_reliability::step_risk;
use crate::metric::coherence::Coherence;
use crate::metric::{Metadata, NonFinite, Signals, round4};
use crate::run::judging::judgements::{Judgement, Judgements, Status};

pub(super) fn traces_schema() -> SchemaRef {
    let number = |name| Field::new(name, DataType::Float64, true);
    Arc::new(Schema::new(vec![
        Field::new("trace_id", DataType::Utf8, false),
        Field::new("session_id", DataType::Utf8, true),
        Field::new("project_id", DataType::Utf8, true),
        Field::new(
            "started_at",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            false,
        ),
        Field::new("name", DataType::Utf8, true),
        Field::new("environment", DataType::Utf8, true),
        number("coherence"),
        number("loop_detection"),
        number("confidence"),
        number("tool_correctness"),
        number("task_completion"),
        number("argument_correctness"),
        number("step_efficiency"),
        number("plan_adherence"),
        number("plan_quality"),
        number("step_risk"),
        Field::new("flagged", DataType::Boolean, true),
        Field::new("status", label(), false),
        Field::new("details", DataType::Utf8, false),
    ]))
}

/// Counts that the summary needs.
#[derive(Debug, Default)]
pub(super) struct TraceCounts {
    pub traces: u64,
    pub without_session: u64,
    pub failed_signals: u64,
    pub with_given_signals: u64,
    /// Whether the plan merges rows of one trace id; it must not lose any otherwise.
    pub merged: bool,
    pub pending_signals: u64,
    pub coherence: Distribution,
    pub loop_detection: Distribution,
    /// Of judged metrics, by name.
    pub judged: BTreeMap<String, Distribution>,
}

/// Writes scored traces as they come out of the plan.
pub(super) struct TraceRows {
    traces: TableWriter,
    scores: TableWriter,
    /// Where each trace's texts are, row for row beside `traces`; for the report, then thrown away.
    places: TableWriter,
    rules: Rules,
    labels: Option<ModelLabel>,
    /// Trace ids with given signals.
    given: HashSet<String>,
    judgements: Option<Judgements>,
    session: RecentIds,
    counts: TraceCounts,
}

/// The ids of the last traces of the session that is being written: loops name them.
#[derive(Debug)]
struct RecentIds {
    session: (Option<String>, Option<String>),
    /// Oldest first.
    trace_ids: VecDeque<String>,
    window: usize,
}

impl RecentIds {
    fn new(window: usize) -> Self {
        Self {
            session: (None, None),
            trace_ids: VecDeque::with_capacity(window),
            window,
        }
    }

    /// Forgets the ids of another session.
    fn enter(&mut self, session_id: Option<&str>, project_id: Option<&str>) {
        let (session, project) = &self.session;
        if session.as_deref() != session_id || project.as_deref() != project_id {
            self.session = (session_id.map(str::to_owned), project_id.map(str::to_owned));
            self.trace_ids.clear();
        }
    }

    fn push(&mut self, trace_id: &str) {
        let mut id = match self.trace_ids.len() < self.window {
            true => String::new(),
            false => self.trace_ids.pop_front().unwrap_or_default(),
        };
        id.clear();
        id.push_str(trace_id);
        self.trace_ids.push_back(id);
    }

    /// The id of the trace `back` places before the one that is being written.
    fn id_back(&self, back: usize) -> Option<&str> {
        let at = self.trace_ids.len().checked_sub(back)?;
        self.trace_ids.get(at).map(String::as_str)
    }
}

/// A writer at work: batches go in at the sender, and what it counted comes out at the end.
type Writing = (
    SyncSender<RecordBatch>,
    JoinHandle<Result<(u64, TraceCounts), RunError>>,
);

pub(super) const PLACES: &str = "places";

impl TraceRows {
    pub fn create(
        run: &RunDirectory,
        rules: &Rules,
        labels: Option<ModelLabel>,
        given: HashSet<String>,
        judgements: Option<Judgements>,
    ) -> Result<Self, RunError> {
        let place = |name| Field::new(name, DataType::UInt64, true);
        let places = Arc::new(Schema::new(vec![
            place("input_position"),
            place("output_position"),
        ]));
        Ok(Self {
            traces: TableWriter::create(run.path(), "traces", traces_schema())?,
            scores: TableWriter::create(run.path(), "scores", scores_schema())?,
            places: TableWriter::create(&run.work(), PLACES, places)?,
            rules: rules.clone(),
            labels,
            given,
            judgements,
            session: RecentIds::new(rules.window),
            counts: TraceCounts::default(),
        })
    }

    /// Writes on a thread of its own, so that encoding files does not hold up the plan. At most a
    /// few batches wait.
    pub fn on_own_thread(mut self) -> Result<Writing, RunError> {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<RecordBatch>(4);
        let thread = std::thread::Builder::new()
            .name("write-traces".into())
            .spawn(move || {
                while let Ok(batch) = receiver.recv() {
                    self.write(&batch)?;
                }
                self.finish()
            });
        let thread = thread
            .map_err(|e| RunError::Plan(format!("a writing thread could not be started: {e}")))?;
        Ok((sender, thread))
    }

    /// Closes the tables; returns the number of the last part of `scores`, and the counts.
    fn finish(self) -> Result<(u64, TraceCounts), RunError> {
        self.traces.finish()?;
        self.places.finish()?;
        Ok((self.scores.finish()?, self.counts))
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), RunError> {
        let rows = self
            .convert(batch)
            .map_err(|e| RunError::Plan(format!("a result batch could not be built: {e}")))?;
        let (traces, scores) = rows;
        self.traces.write(&traces)?;
        self.scores.write(&scores)?;
        let places = batch.project(&[
            batch.schema().index_of("input_position").unwrap_or(0),
            batch.schema().index_of("output_position").unwrap_or(0),
        ]);
        self.places
            .write(&places.map_err(|e| RunError::Plan(e.to_string()))?)
    }

    fn convert(
        &mut self,
        batch: &RecordBatch,
    ) -> Result<(RecordBatch, RecordBatch), arrow::error::ArrowError> {
        let column = |name: &str| {
            batch
                .column_by_name(name)
                .ok_or_else(|| arrow::error::ArrowError::SchemaError(format!("no column {name}")))
        };
        let number = |name: &str| {
            Ok::<_, arrow::error::ArrowError>(column(name)?.as_primitive::<Float64Type>())
        };
        let text = |name: &str| Ok::<_, arrow::error::ArrowError>(column(name)?.as_string::<i32>());
        let (trace_ids, session_ids, environments) =
            (text("trace_id")?, text("session_id")?, text("environment")?);
        let project_ids = text("project_id")?;
        let (confidence, tools) = (number("confidence")?, number("tool_correctness")?);
        let (coherence, looped) = (number("coherence")?, number("loop_detection")?);
        let (gaps, records) = (
            number("coherence_gap")?,
            column("loop_record")?.as_binary::<i32>(),
        );
        let (coherence_given, loop_given) = (
            column("coherence_given")?.as_boolean(),
            column("loop_detection_given")?.as_boolean(),
        );

        let mut scores = ScoreRows::new(self.labels.clone(), &self.rules);
        let mut judged_columns = JUDGED_COLUMNS.map(|_| Float64Builder::new());
        let (mut step_risks, mut flagged) = (Float64Builder::new(), BooleanBuilder::new());
        let mut status = StringDictionaryBuilder::<Int32Type>::new();
        let mut details = StringBuilder::new();
        let (computes_coherence, computes_loops) = (
            self.rules.computes("coherence"),
            self.rules.computes("loop_detection"),
        );
        let (coherence_threshold, loop_threshold) = (
            self.rules.threshold("coherence"),
            self.rules.threshold("loop_detection"),
        );
        let value = |array: &arrow::array::Float64Array, row: usize| {
            array.is_valid(row).then(|| array.value(row))
        };
        let mut buffer = String::new();
        let mut metadata = String::new();
        for row in 0..batch.num_rows() {
            let trace_id = trace_ids.value(row);
            let session_id = optional(session_ids, row);
            let project_id = optional(project_ids, row);
            let labels = Labels {
                trace_id,
                session_id,
                project_id,
                environment: optional(environments, row),
            };
            self.counts.traces += 1;
            self.counts.with_given_signals += u64::from(self.given.contains(trace_id));
            self.counts.without_session += u64::from(session_id.is_none());
            let mut failed_here = false;
            self.session.enter(session_id, project_id);
            buffer.clear();
            buffer.push('{');

            if computes_coherence && coherence_given.value(row) {
                push_reused(&mut buffer, "coherence");
            } else if computes_coherence {
                metadata.clear();
                let outcome = Coherence::new(value(gaps, row), coherence_threshold);
                let row = match &outcome {
                    Ok(coherence) => {
                        coherence.push_metadata(&mut metadata);
                        self.counts
                            .coherence
                            .add(coherence.score(), coherence_threshold);
                        Scored::success(
                            coherence.score_raw(),
                            coherence.success(),
                            coherence_threshold,
                            coherence.reason(),
                        )
                    }
                    Err(e) => {
                        self.counts.coherence.add_failure();
                        Scored::failure(e, &mut metadata)
                    }
                };
                failed_here |= row.raw.is_none();
                push_member(&mut buffer, "coherence", &metadata);
                row.push(&mut scores, "coherence", labels, &metadata);
            }

            if computes_loops && loop_given.value(row) {
                push_reused(&mut buffer, "loop_detection");
            } else if computes_loops && session_id.is_some() && records.is_valid(row) {
                metadata.clear();
                let detection =
                    unpack_loop_record(records.value(row), loop_threshold).ok_or_else(|| {
                        arrow::error::ArrowError::ParseError("unreadable loop record".into())
                    })?;
                let scored = match detection {
                    Ok(detection) => {
                        detection.push_metadata(&mut metadata, |back| self.session.id_back(back));
                        self.counts
                            .loop_detection
                            .add(detection.score(), loop_threshold);
                        Scored::success(
                            detection.score_raw(),
                            detection.success(),
                            loop_threshold,
                            detection.reason(),
                        )
                    }
                    Err(e) => {
                        self.counts.loop_detection.add_failure();
                        Scored::failure(&e, &mut metadata)
                    }
                };
                failed_here |= scored.raw.is_none();
                push_member(&mut buffer, "loop_detection", &metadata);
                scored.push(&mut scores, "loop_detection", labels, &metadata);
            }
            self.session.push(trace_id);
            let mut pending_here = false;
            let judgements = match &self.judgements {
                None => Vec::new(),
                Some(store) => store
                    .of(trace_id)
                    .map_err(|e| arrow::error::ArrowError::ExternalError(e.into()))?,
            };
            for judgement in &judgements {
                failed_here |= judgement.status == Status::Failed;
                pending_here |= judgement.status == Status::Pending;
                push_member(&mut buffer, &judgement.metric, &judgement.metadata);
                self.push_judgement(&mut scores, judgement, labels);
            }
            for (builder, metric) in judged_columns.iter_mut().zip(JUDGED_COLUMNS) {
                let judgement = judgements.iter().find(|j| j.metric == metric);
                builder.append_option(judgement.and_then(|j| j.score));
            }
            buffer.push('}');
            details.append_value(&buffer);

            let signals = Signals {
                confidence: value(confidence, row),
                loop_detection: value(looped, row),
                tool_correctness: value(tools, row),
                coherence: value(coherence, row),
            };
            let risk = step_risk(&signals, &self.rules.weights);
            step_risks.append_option(risk.map(round4));
            flagged.append_option(risk.map(|r| r > crate::metric::agent_reliability::FLAG_ABOVE));
            self.counts.failed_signals += u64::from(failed_here);
            self.counts.pending_signals += u64::from(pending_here);
            let ended = match (failed_here, pending_here) {
                (true, _) => Status::Failed,
                (false, true) => Status::Pending,
                (false, false) => Status::Success,
            };
            status.append_value(ended.name());
        }
        let mut columns: Vec<ArrayRef> = vec![
            Arc::clone(column("trace_id")?),
            Arc::clone(column("session_id")?),
            Arc::clone(column("project_id")?),
            Arc::clone(column("started_at")?),
            Arc::clone(column("name")?),
            Arc::clone(column("environment")?),
            Arc::clone(column("coherence")?),
            Arc::clone(column("loop_detection")?),
            Arc::clone(column("confidence")?),
            Arc::clone(column("tool_correctness")?),
        ];
        columns.extend(judged_columns.map(|mut c| Arc::new(c.finish()) as ArrayRef));
        columns.push(Arc::new(step_risks.finish()));
        columns.push(Arc::new(flagged.finish()));
        columns.push(Arc::new(status.finish()));
        columns.push(Arc::new(details.finish()));
        Ok((
            RecordBatch::try_new(traces_schema(), columns)?,
            scores.finish()?,
        ))
    }

    fn push_judgement(&mut self, scores: &mut ScoreRows, judgement: &Judgement, trace: Labels<'_>) {
        let threshold = self.rules.threshold(&judgement.metric);
        let distribution = self
            .counts
            .judged
            .entry(judgement.metric.clone())
            .or_default();
        match (judgement.score, judgement.status) {
            (Some(score), _) => distribution.add(round4(score), threshold),
            (None, Status::Failed) => distribution.add_failure(),
            (None, _) => {}
        }
        scores.push(&ScoreRow {
            target_type: "trace",
            target_id: trace.trace_id,
            session_id: trace.session_id,
            project_id: trace.project_id,
            metric: &judgement.metric,
            score_raw: judgement.score,
            status: judgement.status.name(),
            threshold: judgement.score.map(|_| threshold),
            // The unrounded score decides, as in the metadata.
            passed: judgement.score.map(|score| score >= threshold),
            reason: &judgement.reason,
            metadata: &judgement.metadata,
            evaluated_traces: None,
            environment: trace.environment,
            judge: Some(&judgement.model),
        });
    }
}

/// Judged metrics with a column of their own that are no signals of sessions, in the order of their columns.
const JUDGED_COLUMNS: [&str; 5] = [
    "task_completion",
    "argument_correctness",
    "step_efficiency",
    "plan_adherence",
    "plan_quality",
];

fn optional(array: &StringArray, row: usize) -> Option<&str> {
    array.is_valid(row).then(|| array.value(row))
}

/// What names a trace in its scores.
#[derive(Clone, Copy)]
struct Labels<'a> {
    trace_id: &'a str,
    session_id: Option<&'a str>,
    project_id: Option<&'a str>,
    environment: Option<&'a str>,
}

struct Scored {
    raw: Option<f64>,
    passed: Option<bool>,
    threshold: Option<f64>,
    reason: String,
}

impl Scored {
    /// A metric that compared something, or found nothing to compare: then nothing was passed.
    fn success(raw: f64, passed: Option<bool>, threshold: f64, reason: String) -> Self {
        Self {
            raw: Some(raw),
            passed,
            threshold: passed.map(|_| threshold),
            reason,
        }
    }

    fn failure(error: &NonFinite, metadata: &mut String) -> Self {
        let reason = error.to_string();
        push_failure(metadata, &reason);
        Self {
            raw: None,
            passed: None,
            threshold: None,
            reason,
        }
    }

    fn push(&self, scores: &mut ScoreRows, metric: &str, trace: Labels<'_>, metadata: &str) {
        scores.push(&ScoreRow {
            target_type: "trace",
            target_id: trace.trace_id,
            session_id: trace.session_id,
            project_id: trace.project_id,
            metric,
            score_raw: self.raw,
            status: match self.raw {
                Some(_) => Status::Success.name(),
                None => Status::Failed.name(),
            },
            threshold: self.threshold,
            passed: self.passed,
            reason: &self.reason,
            metadata: if self.raw.is_some() { metadata } else { "{}" },
            evaluated_traces: None,
            environment: trace.environment,
            judge: None,
        });
    }
}

fn push_member(object: &mut String, key: &str, value: &str) {
    if object.len() > 1 {
        object.push(',');
    }
    crate::text::push_json_string(object, key);
    object.push(':');
    object.push_str(value);
}

fn push_reused(object: &mut String, key: &str) {
    push_member(object, key, r#"{"note":"given"}"#);
}

fn push_failure(metadata: &mut String, reason: &str) {
    let mut object = Metadata::object(metadata);
    object.text("error", reason);
    object.end();
}
