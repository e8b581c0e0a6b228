//! The table `traces`: its columns, and those of them that the plan does not give.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanBuilder, Float64Builder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

use super::plan_columns::column;
use super::span_rows::{SpanMetrics, SpanValues};
use crate::metric::agent_reliability::FLAG_ABOVE;
use crate::metric::compared::{Compared, Comparing};
use crate::metric::{ALL, Level, Method, Rules, SIGNALS, round4};
use crate::output::Status;
use crate::output::label_column::LabelColumn;
use crate::output::score_rows::label;
use crate::run::judging::judgements::Judgement;
use crate::run::tag_lists::{tag_lists, tags};

/// Metrics of a run that compare outputs with expected texts.
pub(super) fn comparing(rules: &Rules) -> impl Iterator<Item = Comparing> {
    let all = Comparing::ALL.into_iter();
    all.filter(|metric| rules.wants(metric.name()))
}

/// The columns of a run by these rules. Only runs that compare outputs, or look at spans, have columns for that.
pub(in crate::run) fn traces_schema(rules: &Rules) -> SchemaRef {
    let number = |name| Field::new(name, DataType::Float64, true);
    let mut fields = vec![
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
        Field::new("release", DataType::Utf8, true),
        Field::new("model", DataType::Utf8, true),
        Field::new("tags", tags(), true),
        number("coherence"),
        number("loop_detection"),
        number("confidence"),
        number("tool_correctness"),
    ];
    fields.extend(judged_columns().map(number));
    fields.extend(comparing(rules).map(|metric| number(metric.name())));
    let of_spans = SpanMetrics::of(rules);
    fields.extend(of_spans.scores.iter().map(|metric| number(metric.name())));
    fields.extend(of_spans.measures.iter().map(|m| number(m.name())));
    fields.extend([
        number("step_risk"),
        Field::new("flagged", DataType::Boolean, true),
        Field::new("status", label(), false),
        Field::new("details", DataType::Utf8, false),
    ]);
    Arc::new(Schema::new(fields))
}

/// Judged metrics with a column of their own that are no signals of sessions, in the order of their columns.
fn judged_columns() -> impl Iterator<Item = &'static str> {
    let of_traces = ALL
        .iter()
        .filter(|metric| metric.level == Level::Trace && metric.method == Method::Judge);
    let names = of_traces.map(|metric| metric.name);
    names.filter(|name| !SIGNALS.iter().any(|(signal, _)| signal == name))
}

/// Columns that the plan has ready; the first is `trace_id` here.
const OF_THE_PLAN: [&str; 13] = [
    "shown_id",
    "session_id",
    "project_id",
    "started_at",
    "name",
    "environment",
    "release",
    "model",
    "tags",
    "coherence",
    "loop_detection",
    "confidence",
    "tool_correctness",
];

/// The other columns of `traces`.
pub(super) struct TraceColumns {
    judged: Vec<(&'static str, Float64Builder)>,
    compared: Vec<(Comparing, Float64Builder)>,
    /// Scores of spans, then plain numbers.
    of_spans: Vec<Float64Builder>,
    step_risk: Float64Builder,
    flagged: BooleanBuilder,
    status: LabelColumn,
    details: StringBuilder,
}

impl TraceColumns {
    pub fn new(rules: &Rules) -> Self {
        Self {
            judged: judged_columns()
                .map(|name| (name, Float64Builder::new()))
                .collect(),
            compared: comparing(rules)
                .map(|metric| (metric, Float64Builder::new()))
                .collect(),
            of_spans: {
                let metrics = SpanMetrics::of(rules);
                let columns = metrics.scores.len() + metrics.measures.len();
                (0..columns).map(|_| Float64Builder::new()).collect()
            },
            step_risk: Float64Builder::new(),
            flagged: BooleanBuilder::new(),
            status: LabelColumn::default(),
            details: StringBuilder::new(),
        }
    }

    /// Adds a row. The risk is as it was computed, unrounded.
    pub fn push(
        &mut self,
        judgements: &[Judgement],
        (compared, of_spans): (&[Compared], &SpanValues),
        risk: Option<f64>,
        status: Status,
        details: &str,
    ) {
        for (metric, builder) in &mut self.judged {
            let judgement = judgements.iter().find(|j| j.metric == *metric);
            builder.append_option(judgement.and_then(|j| j.score));
        }
        for (metric, builder) in &mut self.compared {
            let compared = compared.iter().find(|one| one.metric() == *metric);
            builder.append_option(compared.map(|one| round4(one.score())));
        }
        let values = of_spans.scores.iter().chain(&of_spans.measures);
        for (builder, value) in self.of_spans.iter_mut().zip(values) {
            builder.append_option(*value);
        }
        self.step_risk.append_option(risk.map(round4));
        self.flagged.append_option(risk.map(|r| r > FLAG_ABOVE));
        self.status.append_value(status.name());
        self.details.append_value(details);
    }

    /// Rows of the table, for as many rows of the plan.
    pub fn finish(mut self, plan: &RecordBatch, rules: &Rules) -> Result<RecordBatch, ArrowError> {
        let mut columns = Vec::with_capacity(plan.num_columns());
        for name in OF_THE_PLAN {
            let column = column(plan, name)?;
            columns.push(match name {
                "tags" => tag_lists(column)?,
                _ => Arc::clone(column),
            });
        }
        let judged = self.judged.iter_mut();
        columns.extend(judged.map(|(_, column)| Arc::new(column.finish()) as ArrayRef));
        let compared = self.compared.iter_mut();
        columns.extend(compared.map(|(_, column)| Arc::new(column.finish()) as ArrayRef));
        let of_spans = self.of_spans.iter_mut();
        columns.extend(of_spans.map(|column| Arc::new(column.finish()) as ArrayRef));
        columns.push(Arc::new(self.step_risk.finish()));
        columns.push(Arc::new(self.flagged.finish()));
        columns.push(Arc::new(self.status.finish()?));
        columns.push(Arc::new(self.details.finish()));
        RecordBatch::try_new(traces_schema(rules), columns)
    }
}
