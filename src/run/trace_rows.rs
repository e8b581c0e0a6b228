//! From scored rows of the plan to the table `traces`, and their scores.

mod plan_columns;
mod recent_ids;
mod scored;
mod span_rows;
mod table;

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use plan_columns::PlanColumns;
pub(super) use plan_columns::column;
use recent_ids::RecentIds;
use scored::{Labels, Scored, push_compared, push_member, push_reused};
use span_rows::SpanMetrics;
pub(super) use table::traces_schema;
use table::{TraceColumns, comparing};

use super::bucket::{BucketJob, TraceCounts};
use crate::engine::{unpack_comparison_record, unpack_loop_record};
use crate::metric::agent_reliability::step_risk;
use crate::metric::coherence::Coherence;
use crate::metric::compared::{Compared, Comparing};
use crate::metric::{Metadata, round4};
use crate::output::score_rows::{ANNOTATION, AUTOMATED, MadeBy, ScoreRow, ScoreRows};
use crate::output::{RunError, Status};
use crate::run::carried;
use crate::run::judging::judgements::Judgement;

/// Where the table of places gets its columns.
const PLACE_COLUMNS: [&str; 2] = ["input_position", "output_position"];

/// The columns of the table of places.
pub(super) fn places_schema() -> SchemaRef {
    let place = |name| Field::new(name, DataType::UInt64, true);
    Arc::new(Schema::new(PLACE_COLUMNS.map(place).to_vec()))
}

/// Makes rows of `traces` and `scores` of scored traces, in the order of sessions.
pub(super) struct TraceRows<'j> {
    job: &'j BucketJob,
    /// Metrics that compare outputs with expected texts.
    comparing: Vec<Comparing>,
    of_spans: SpanMetrics,
    session: RecentIds,
    pub counts: TraceCounts,
    /// The metadata of one score, in a buffer that is used again.
    metadata: String,
}

/// What comes of a batch of scored traces, row for row but for `scores`.
pub(super) struct TraceBatches {
    /// Rows of `traces`.
    pub traces: RecordBatch,
    /// Rows of `scores`, any number a trace.
    pub scores: RecordBatch,
    /// Where each trace's texts are; for the report, then thrown away.
    pub places: RecordBatch,
    /// Rows of `carried`, for the night after this one.
    pub carried: RecordBatch,
}

/// Says in metadata, an object, and in the reason that a score is, or rests on, a quick model's estimates.
pub(super) fn estimated(metadata: &mut String, reason: &str) -> String {
    if metadata.pop().is_some() {
        if metadata.len() > 1 {
            metadata.push(',');
        }
        metadata.push_str(r#""estimated":true}"#);
    }
    format!("{reason} (estimated by the quick model)")
}

impl<'j> TraceRows<'j> {
    pub fn of(job: &'j BucketJob) -> Self {
        Self {
            comparing: comparing(&job.rules).collect(),
            of_spans: SpanMetrics::of(&job.rules),
            session: RecentIds::new(job.rules.window),
            counts: TraceCounts::default(),
            metadata: String::new(),
            job,
        }
    }

    /// What comes of a batch.
    ///
    /// # Errors
    /// [`RunError::Plan`], if the plan's rows are not what they should be.
    pub fn make(&mut self, batch: &RecordBatch) -> Result<TraceBatches, RunError> {
        let failed =
            |e: ArrowError| RunError::Plan(format!("a result batch could not be built: {e}"));
        let (traces, scores) = self.convert(batch).map_err(failed)?;
        let places = PLACE_COLUMNS.map(|name| batch.schema().index_of(name));
        let [input, output] = places;
        let places = batch.project(&[input.map_err(failed)?, output.map_err(failed)?]);
        Ok(TraceBatches {
            traces,
            scores,
            places: places.map_err(failed)?,
            carried: carried::rows_of(batch, self.job.standing_in, &self.job.nights)
                .map_err(failed)?,
        })
    }

    fn convert(&mut self, batch: &RecordBatch) -> Result<(RecordBatch, RecordBatch), ArrowError> {
        let plan = PlanColumns::of(batch)?;
        let mut scores = ScoreRows::new(self.job.labels.clone(), &self.job.rules);
        let mut traces = TraceColumns::new(&self.job.rules);
        let mut details = String::new();
        for row in 0..batch.num_rows() {
            let trace = plan.labels(row);
            let canonical_id = plan.canonical_id(row);
            self.counts.traces += 1;
            self.counts.with_given_signals += u64::from(self.job.given.contains(canonical_id));
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
            if self.job.rules.scores_spans() {
                self.counts.without_spans += u64::from(plan.span_digest(row).is_none());
            }
            let of_spans = self.of_spans.push(
                (&plan, row),
                trace,
                &self.job.rules,
                &mut self.counts.distributions,
                &mut scores,
                &mut details,
            )?;
            let judgements = match (&self.job.judgements, plan.judged_at(row)) {
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
            let risk = step_risk(&plan.signals(row), &self.job.rules.weights);
            traces.push(&judgements, (&compared, &of_spans), risk, ended, &details);
        }
        Ok((traces.finish(batch, &self.job.rules)?, scores.finish()?))
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
        if !self.job.rules.computes(NAME) {
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
        let threshold = self.job.rules.threshold(NAME);
        let mut metadata = std::mem::take(&mut self.metadata);
        metadata.clear();
        let scored = match &Coherence::new(plan.gap(row), threshold) {
            Ok(coherence) => {
                coherence.push_metadata(&mut metadata);
                let reason = match plan.estimated(row)[0] {
                    true => estimated(&mut metadata, &coherence.reason()),
                    false => coherence.reason(),
                };
                let distribution = self.counts.distributions.of(NAME);
                distribution.add(coherence.score(), threshold);
                let (raw, passed) = (coherence.score_raw(), coherence.success());
                Scored::success(raw, passed, threshold, reason)
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
        let (Some(value), Some(run)) = (value, self.job.kept.get(canonical_id)) else {
            return push_reused(details, metric);
        };
        let threshold = self.job.rules.threshold(metric);
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
        if !self.job.rules.computes(NAME) {
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
        let threshold = self.job.rules.threshold(NAME);
        let detection = unpack_loop_record(record, threshold)
            .ok_or_else(|| ArrowError::ParseError("unreadable loop record".into()))?;
        let mut metadata = std::mem::take(&mut self.metadata);
        metadata.clear();
        let scored = match detection {
            Ok(detection) => {
                detection.push_metadata(&mut metadata, |back| self.session.id_back(back));
                let reason = match plan.estimated(row)[1] {
                    true => estimated(&mut metadata, &detection.reason()),
                    false => detection.reason(),
                };
                let distribution = self.counts.distributions.of(NAME);
                distribution.add(detection.score(), threshold);
                let (raw, passed) = (detection.score_raw(), detection.success());
                Scored::success(raw, passed, threshold, reason)
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
            let threshold = self.job.rules.threshold(name);
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
        let threshold = self.job.rules.threshold(&judgement.metric);
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
