//! From scored rows of the plan to the table `traces`, and their scores.

mod plan_columns;
mod recent_ids;
mod scored;
mod span_rows;
mod table;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use plan_columns::PlanColumns;
pub(super) use plan_columns::column;
use recent_ids::RecentIds;
use scored::{Labels, Scored, push_compared, push_member, push_reused};
use span_rows::SpanMetrics;
use table::{TraceColumns, comparing, traces_schema};

use crate::engine::{unpack_comparison_record, unpack_loop_record};
use crate::history::CARRIED;
use crate::metric::Rules;
use crate::metric::agent_reliability::step_risk;
use crate::metric::coherence::Coherence;
use crate::metric::compared::{Compared, Comparing};
use crate::metric::{Metadata, round4};
use crate::output::Status;
use crate::output::score_rows::{
    ANNOTATION, AUTOMATED, MadeBy, ModelLabel, ScoreRow, ScoreRows, scores_schema,
};
use crate::output::table_writer::{TableThread, TableWriter};
use crate::output::{Distributions, FailureSummary, RunDirectory, RunError};
use crate::run::carried;
use crate::run::judging::judgements::{Judgement, Judgements};

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
    /// Traces without an expected text, where outputs are compared with one.
    pub without_expected: u64,
    /// Traces without spans, where metrics look at them.
    pub without_spans: u64,
    pub distributions: Distributions,
    /// How often a metric failed with a code, and the reason of the first time.
    failures: BTreeMap<(String, String), (u64, String)>,
}

impl TraceCounts {
    /// Most codes of failures that are told apart.
    const MOST_CODES: usize = 100;

    fn fail(&mut self, metric: &str, reason: &str) {
        // Reasons of judges begin with a code: `timeout: …`.
        let code = reason.split(':').next().unwrap_or_default();
        let key = (metric.to_owned(), code.to_owned());
        if let Some((count, _)) = self.failures.get_mut(&key) {
            *count += 1;
        } else if self.failures.len() < Self::MOST_CODES {
            self.failures.insert(key, (1, reason.to_owned()));
        }
    }

    /// Why scores failed, the most frequent reasons first.
    pub fn failures(&self) -> Vec<FailureSummary> {
        let mut failures: Vec<FailureSummary> = self
            .failures
            .iter()
            .map(|((metric, _), (count, reason))| FailureSummary {
                metric: metric.clone(),
                count: *count,
                reason: reason.clone(),
            })
            .collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
        failures
    }
}

/// Writes scored traces as they come out of the plan.
pub(super) struct TraceRows {
    traces: TableThread,
    scores: TableThread,
    /// Where each trace's texts are, row for row beside `traces`; for the report, then thrown away.
    places: TableWriter,
    rules: Rules,
    labels: Option<ModelLabel>,
    /// Trace ids with given signals.
    given: HashSet<String>,
    judgements: Option<Judgements>,
    /// For the night after this one, row for row beside `traces`.
    carried: TableWriter,
    /// The number of the file whose rows stand for what can't be read again.
    standing_in: Option<usize>,
    /// Traces that keep the scores of an earlier run, by canonical id, and that run.
    kept: BTreeMap<String, String>,
    /// Metrics that compare outputs with expected texts.
    comparing: Vec<Comparing>,
    of_spans: SpanMetrics,
    session: RecentIds,
    counts: TraceCounts,
    /// The metadata of one score, in a buffer that is used again.
    metadata: String,
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
        let traces = TableWriter::create(run.path(), "traces", traces_schema(rules))?;
        let scores = TableWriter::create(run.path(), "scores", scores_schema())?;
        Ok(Self {
            traces: TableThread::start(traces, "traces")?,
            scores: TableThread::start(scores, "scores")?,
            places: TableWriter::create_in_work(&run.work(), PLACES, places)?,
            rules: rules.clone(),
            labels,
            given,
            judgements,
            carried: TableWriter::create(run.path(), CARRIED, carried::schema())?,
            standing_in: None,
            kept: BTreeMap::new(),
            comparing: comparing(rules).collect(),
            of_spans: SpanMetrics::of(rules),
            session: RecentIds::new(rules.window),
            counts: TraceCounts::default(),
            metadata: String::new(),
        })
    }

    /// The same of a run that continues others: the number of the file whose rows stand for what can't be read again, and
    /// the traces that keep their scores.
    pub fn going_on(mut self, standing_in: Option<usize>, kept: BTreeMap<String, String>) -> Self {
        (self.standing_in, self.kept) = (standing_in, kept);
        self
    }

    /// Makes rows on a thread of its own, beside those that write the two tables, so that none of it holds up the plan. At
    /// most a few batches wait.
    pub fn on_own_thread(mut self) -> Result<Writing, RunError> {
        let (sender, receiver) = std::sync::mpsc::sync_channel::<RecordBatch>(4);
        let thread = std::thread::Builder::new()
            .name("trace-rows".into())
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
        self.carried.finish()?;
        Ok((self.scores.finish()?, self.counts))
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), RunError> {
        let rows = self
            .convert(batch)
            .map_err(|e| RunError::Plan(format!("a result batch could not be built: {e}")))?;
        let (traces, scores) = rows;
        self.traces.write(traces)?;
        self.scores.write(scores)?;
        let places = batch.project(&[
            batch.schema().index_of("input_position").unwrap_or(0),
            batch.schema().index_of("output_position").unwrap_or(0),
        ]);
        self.places
            .write(&places.map_err(|e| RunError::Plan(e.to_string()))?)?;
        let carried = carried::rows_of(batch, self.standing_in);
        self.carried
            .write(&carried.map_err(|e| RunError::Plan(e.to_string()))?)
    }

    fn convert(&mut self, batch: &RecordBatch) -> Result<(RecordBatch, RecordBatch), ArrowError> {
        let plan = PlanColumns::of(batch)?;
        let mut scores = ScoreRows::new(self.labels.clone(), &self.rules);
        let mut traces = TraceColumns::new(&self.rules);
        let mut details = String::new();
        for row in 0..batch.num_rows() {
            let trace = plan.labels(row);
            let canonical_id = plan.canonical_id(row);
            self.counts.traces += 1;
            self.counts.with_given_signals += u64::from(self.given.contains(canonical_id));
            self.counts.without_session += u64::from(trace.session_id.is_none());
            self.session.enter(trace.session_id, trace.project_id);
            details.clear();
            details.push('{');
            let coherence = self.push_coherence(&plan, row, trace, &mut scores, &mut details);
            let loops = self.push_loops(&plan, row, trace, &mut scores, &mut details)?;
            self.session.push(trace.trace_id);
            let compared = match self.comparing.is_empty() {
                true => Vec::new(),
                false => self.push_comparisons(&plan, row, trace, &mut scores, &mut details)?,
            };
            if self.rules.reads_spans() {
                self.counts.without_spans += u64::from(plan.span_digest(row).is_none());
            }
            let of_spans = self.of_spans.push(
                (&plan, row),
                trace,
                &self.rules,
                &mut self.counts.distributions,
                &mut scores,
                &mut details,
            )?;
            let judgements = match (&self.judgements, plan.judged_at(row)) {
                (Some(store), Some(place)) => store
                    .at(place)
                    .map_err(|e| ArrowError::ExternalError(e.into()))?,
                _ => Vec::new(),
            };
            for judgement in &judgements {
                push_member(&mut details, &judgement.metric, &judgement.metadata);
                self.push_judgement(&mut scores, judgement, trace);
            }
            details.push('}');
            let judged = judgements.iter().map(|judgement| judgement.status);
            let ends: Vec<Status> = [coherence, loops].into_iter().chain(judged).collect();
            let count = |status| ends.iter().filter(|end| **end == status).count() as u64;
            let (failed, pending) = (count(Status::Failed), count(Status::Pending));
            self.counts.failed_signals += failed;
            self.counts.pending_signals += pending;
            // A failure outweighs what is pending.
            let ended = match (failed, pending) {
                (0, 0) => Status::Success,
                (0, _) => Status::Pending,
                _ => Status::Failed,
            };
            let risk = step_risk(&plan.signals(row), &self.rules.weights);
            traces.push(&judgements, (&compared, &of_spans), risk, ended, &details);
        }
        Ok((traces.finish(batch, &self.rules)?, scores.finish()?))
    }

    fn push_coherence(
        &mut self,
        plan: &PlanColumns<'_>,
        row: usize,
        trace: Labels<'_>,
        scores: &mut ScoreRows,
        details: &mut String,
    ) -> Status {
        const NAME: &str = "coherence";
        if !self.rules.computes(NAME) {
            return Status::Success;
        }
        if plan.coherence_given.value(row) {
            let value = plan.signals(row).coherence;
            self.push_given(
                (NAME, value),
                plan.canonical_id(row),
                trace,
                scores,
                details,
            );
            return Status::Success;
        }
        let threshold = self.rules.threshold(NAME);
        let mut metadata = std::mem::take(&mut self.metadata);
        metadata.clear();
        let scored = match &Coherence::new(plan.gap(row), threshold) {
            Ok(coherence) => {
                coherence.push_metadata(&mut metadata);
                let distribution = self.counts.distributions.of(NAME);
                distribution.add(coherence.score(), threshold);
                let (raw, passed) = (coherence.score_raw(), coherence.success());
                Scored::success(raw, passed, threshold, coherence.reason())
            }
            Err(e) => {
                self.counts.distributions.of(NAME).add_failure();
                self.counts.fail(NAME, &e.to_string());
                Scored::failure(e, &mut metadata)
            }
        };
        push_member(details, NAME, &metadata);
        scored.push(scores, NAME, trace, &metadata);
        self.metadata = metadata;
        scored.status()
    }

    /// What is not computed: a signal that was given has no score of this run, and one of an earlier night keeps its own.
    fn push_given(
        &mut self,
        (metric, value): (&str, Option<f64>),
        canonical_id: &str,
        trace: Labels<'_>,
        scores: &mut ScoreRows,
        details: &mut String,
    ) {
        let (Some(value), Some(run)) = (value, self.kept.get(canonical_id)) else {
            return push_reused(details, metric);
        };
        let threshold = self.rules.threshold(metric);
        let reason = format!("Kept from the run {run}: the rows that it read are gone.");
        let mut metadata = String::new();
        let mut object = Metadata::object(&mut metadata);
        object.text("note", "given");
        object.text("kept_from", run);
        object.end();
        self.counts.distributions.of(metric).add(value, threshold);
        push_member(details, metric, &metadata);
        let scored = Scored::success(value, Some(value >= threshold), threshold, reason);
        scored.push(scores, metric, trace, &metadata);
    }

    fn push_loops(
        &mut self,
        plan: &PlanColumns<'_>,
        row: usize,
        trace: Labels<'_>,
        scores: &mut ScoreRows,
        details: &mut String,
    ) -> Result<Status, ArrowError> {
        const NAME: &str = "loop_detection";
        if !self.rules.computes(NAME) {
            return Ok(Status::Success);
        }
        if plan.loop_detection_given.value(row) {
            let value = plan.signals(row).loop_detection;
            self.push_given(
                (NAME, value),
                plan.canonical_id(row),
                trace,
                scores,
                details,
            );
            return Ok(Status::Success);
        }
        let record = plan.loop_record(row).filter(|_| trace.session_id.is_some());
        let Some(record) = record else {
            return Ok(Status::Success);
        };
        let threshold = self.rules.threshold(NAME);
        let detection = unpack_loop_record(record, threshold)
            .ok_or_else(|| ArrowError::ParseError("unreadable loop record".into()))?;
        let mut metadata = std::mem::take(&mut self.metadata);
        metadata.clear();
        let scored = match detection {
            Ok(detection) => {
                detection.push_metadata(&mut metadata, |back| self.session.id_back(back));
                let distribution = self.counts.distributions.of(NAME);
                distribution.add(detection.score(), threshold);
                let (raw, passed) = (detection.score_raw(), detection.success());
                Scored::success(raw, passed, threshold, detection.reason())
            }
            Err(e) => {
                self.counts.distributions.of(NAME).add_failure();
                self.counts.fail(NAME, &e.to_string());
                Scored::failure(&e, &mut metadata)
            }
        };
        push_member(details, NAME, &metadata);
        scored.push(scores, NAME, trace, &metadata);
        self.metadata = metadata;
        Ok(scored.status())
    }

    /// What outputs were compared with expected texts for; empty without an expected text.
    fn push_comparisons(
        &mut self,
        plan: &PlanColumns<'_>,
        row: usize,
        trace: Labels<'_>,
        scores: &mut ScoreRows,
        details: &mut String,
    ) -> Result<Vec<Compared>, ArrowError> {
        let compared = match plan.comparison_record(row) {
            None => Vec::new(),
            Some(record) => unpack_comparison_record(record)
                .ok_or_else(|| ArrowError::ParseError("unreadable comparison record".into()))?,
        };
        self.counts.without_expected += u64::from(compared.is_empty());
        let mut metadata = String::new();
        for metric in &self.comparing {
            let name = metric.name();
            let threshold = self.rules.threshold(name);
            let compared = compared.iter().find(|one| one.metric() == *metric);
            metadata.clear();
            let distribution = self.counts.distributions.of(name);
            match compared {
                Some(compared) => {
                    distribution.add(round4(compared.score()), threshold);
                    compared.push_metadata(threshold, &mut metadata);
                }
                None => metadata.push_str(r#"{"note":"no_expected_text"}"#),
            }
            push_member(details, name, &metadata);
            push_compared(scores, name, compared, threshold, trace, &metadata);
        }
        Ok(compared)
    }

    fn push_judgement(&mut self, scores: &mut ScoreRows, judgement: &Judgement, trace: Labels<'_>) {
        if judgement.score.is_none() && judgement.status == Status::Failed {
            self.counts.fail(&judgement.metric, &judgement.reason);
        }
        let threshold = self.rules.threshold(&judgement.metric);
        let distribution = self.counts.distributions.of(&judgement.metric);
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
            source: match judgement.by_person {
                true => ANNOTATION,
                false => AUTOMATED,
            },
            made_by: MadeBy::Judge(&judgement.model),
        });
    }
}
