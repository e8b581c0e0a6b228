//! The table `traces`: its columns, and those of them that the plan does not give.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Float64Builder, RecordBatch, StringBuilder, StringDictionaryBuilder,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

use super::plan_columns::column;
use crate::metric::agent_reliability::FLAG_ABOVE;
use crate::metric::round4;
use crate::output::Status;
use crate::output::score_rows::label;
use crate::run::judging::judgements::Judgement;

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

/// Judged metrics with a column of their own that are no signals of sessions, in the order of their columns.
const JUDGED_COLUMNS: [&str; 5] = [
    "task_completion",
    "argument_correctness",
    "step_efficiency",
    "plan_adherence",
    "plan_quality",
];

/// Columns that the plan has ready; the first is `trace_id` here.
const OF_THE_PLAN: [&str; 10] = [
    "shown_id",
    "session_id",
    "project_id",
    "started_at",
    "name",
    "environment",
    "coherence",
    "loop_detection",
    "confidence",
    "tool_correctness",
];

/// The other columns of `traces`.
pub(super) struct TraceColumns {
    judged: [Float64Builder; JUDGED_COLUMNS.len()],
    step_risk: Float64Builder,
    flagged: BooleanBuilder,
    status: StringDictionaryBuilder<Int32Type>,
    details: StringBuilder,
}

impl TraceColumns {
    pub fn new() -> Self {
        Self {
            judged: JUDGED_COLUMNS.map(|_| Float64Builder::new()),
            step_risk: Float64Builder::new(),
            flagged: BooleanBuilder::new(),
            status: StringDictionaryBuilder::new(),
            details: StringBuilder::new(),
        }
    }

    /// Adds a row. The risk is as it was computed, unrounded.
    pub fn push(
        &mut self,
        judgements: &[Judgement],
        risk: Option<f64>,
        status: Status,
        details: &str,
    ) {
        for (builder, metric) in self.judged.iter_mut().zip(JUDGED_COLUMNS) {
            let judgement = judgements.iter().find(|j| j.metric == metric);
            builder.append_option(judgement.and_then(|j| j.score));
        }
        self.step_risk.append_option(risk.map(round4));
        self.flagged.append_option(risk.map(|r| r > FLAG_ABOVE));
        self.status.append_value(status.name());
        self.details.append_value(details);
    }

    /// Rows of the table, for as many rows of the plan.
    pub fn finish(mut self, plan: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let mut columns = Vec::with_capacity(plan.num_columns());
        for name in OF_THE_PLAN {
            columns.push(Arc::clone(column(plan, name)?));
        }
        columns.extend(self.judged.map(|mut c| Arc::new(c.finish()) as ArrayRef));
        columns.push(Arc::new(self.step_risk.finish()));
        columns.push(Arc::new(self.flagged.finish()));
        columns.push(Arc::new(self.status.finish()));
        columns.push(Arc::new(self.details.finish()));
        RecordBatch::try_new(traces_schema(), columns)
    }
}
