//! Rows of the table `scores`: one score of a trace or a session.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, DictionaryArray, Float64Builder, Int32Array, Int64Builder,
    RecordBatch, StringArray, StringBuilder,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef};

use super::label_column::LabelColumn;
use crate::metric::{Rules, push_rounded, round4};
use crate::model::Model;

/// What identifies the model behind a score.
#[derive(Clone, Debug)]
pub(crate) struct ModelLabel {
    pub model: String,
    pub precision: String,
}

impl ModelLabel {
    /// That of a model.
    pub fn of(model: &Model) -> Self {
        Self {
            model: model.name.clone(),
            precision: model.encoder.precision().into(),
        }
    }
}

/// The type of columns with few distinct texts.
pub(crate) fn label() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

pub(crate) fn scores_schema() -> SchemaRef {
    let text = |name, null| Field::new(name, DataType::Utf8, null);
    Arc::new(Schema::new(vec![
        Field::new("target_type", label(), false),
        text("target_id", false),
        text("session_id", true),
        text("project_id", true),
        Field::new("metric", label(), false),
        Field::new("status", label(), false),
        Field::new("score", DataType::Float64, true),
        Field::new("score_raw", DataType::Float64, true),
        text("value", true),
        Field::new("threshold", DataType::Float64, true),
        Field::new("passed", DataType::Boolean, true),
        text("reason", false),
        text("metadata", false),
        Field::new("evaluated_traces", DataType::Int64, true),
        Field::new("data_type", label(), false),
        Field::new("source", label(), false),
        text("environment", true),
        Field::new("model", label(), true),
        Field::new("precision", label(), true),
        Field::new("text_mode", label(), true),
    ]))
}

/// The status of a score that would rest on nothing, as that of a session without evaluable trace, or of a trace
/// without an expected text: there is nothing to score, and nothing failed.
pub(crate) const NO_EVIDENCE: &str = "NO_EVIDENCE";
/// Of scores that the program made.
pub(crate) const AUTOMATED: &str = "AUTOMATED";
/// Of scores that a person gave.
pub(crate) const ANNOTATION: &str = "ANNOTATION";

/// One row of the scores table.
pub(crate) struct ScoreRow<'a> {
    pub target_type: &'a str,
    pub target_id: &'a str,
    pub session_id: Option<&'a str>,
    pub project_id: Option<&'a str>,
    pub metric: &'a str,
    /// Unrounded score; `None` if the metric failed or the score was withheld.
    pub score_raw: Option<f64>,
    /// `SUCCESS`, `FAILED`, `PENDING` or `NO_EVIDENCE`.
    pub status: &'a str,
    pub threshold: Option<f64>,
    pub passed: Option<bool>,
    pub reason: &'a str,
    pub metadata: &'a str,
    pub evaluated_traces: Option<i64>,
    pub environment: Option<&'a str>,
    /// Who made the score: `AUTOMATED` or `ANNOTATION`.
    pub source: &'a str,
    /// What stands behind it.
    pub made_by: MadeBy<'a>,
}

/// What stands behind a score.
#[derive(Clone, Copy)]
pub(crate) enum MadeBy<'a> {
    /// The embedding model of the run.
    LocalModel,
    /// A judge model.
    Judge(&'a str),
    /// No model.
    Nothing,
}

/// Builds batches of the scores table.
pub(crate) struct ScoreRows {
    labels: Option<ModelLabel>,
    text_mode: Option<&'static str>,
    target_type: LabelColumn,
    target_id: StringBuilder,
    session_id: StringBuilder,
    project_id: StringBuilder,
    metric: LabelColumn,
    status: LabelColumn,
    score: Float64Builder,
    score_raw: Float64Builder,
    value: StringBuilder,
    value_text: String,
    threshold: Float64Builder,
    passed: BooleanBuilder,
    reason: StringBuilder,
    metadata: StringBuilder,
    evaluated_traces: Int64Builder,
    source: LabelColumn,
    environment: StringBuilder,
    model: LabelColumn,
    precision: LabelColumn,
    text_modes: LabelColumn,
    rows: usize,
}

impl ScoreRows {
    pub fn new(labels: Option<ModelLabel>, rules: &Rules) -> Self {
        let text_mode = labels.as_ref().map(|_| rules.text_mode.name());
        Self {
            labels,
            text_mode,
            target_type: LabelColumn::default(),
            target_id: StringBuilder::new(),
            session_id: StringBuilder::new(),
            project_id: StringBuilder::new(),
            metric: LabelColumn::default(),
            status: LabelColumn::default(),
            score: Float64Builder::new(),
            score_raw: Float64Builder::new(),
            value: StringBuilder::new(),
            value_text: String::new(),
            threshold: Float64Builder::new(),
            passed: BooleanBuilder::new(),
            reason: StringBuilder::new(),
            metadata: StringBuilder::new(),
            evaluated_traces: Int64Builder::new(),
            source: LabelColumn::default(),
            environment: StringBuilder::new(),
            model: LabelColumn::default(),
            precision: LabelColumn::default(),
            text_modes: LabelColumn::default(),
            rows: 0,
        }
    }

    pub fn push(&mut self, row: &ScoreRow<'_>) {
        self.rows += 1;
        self.target_type.append_value(row.target_type);
        self.target_id.append_value(row.target_id);
        self.session_id.append_option(row.session_id);
        self.project_id.append_option(row.project_id);
        self.metric.append_value(row.metric);
        self.status.append_value(row.status);
        self.score.append_option(row.score_raw.map(round4));
        self.score_raw.append_option(row.score_raw);
        self.value_text.clear();
        let value = row.score_raw.map(|score| {
            push_rounded(&mut self.value_text, score);
            self.value_text.as_str()
        });
        self.value.append_option(value);
        self.threshold.append_option(row.threshold);
        self.passed.append_option(row.passed);
        self.reason.append_value(row.reason);
        self.metadata.append_value(row.metadata);
        self.evaluated_traces.append_option(row.evaluated_traces);
        self.source.append_value(row.source);
        self.environment.append_option(row.environment);
        let is_local = matches!(row.made_by, MadeBy::LocalModel);
        let labels = self.labels.as_ref().filter(|_| is_local);
        self.model.append(match row.made_by {
            MadeBy::Judge(model) => Some(model),
            _ => labels.map(|l| l.model.as_str()),
        });
        self.precision.append(labels.map(|l| l.precision.as_str()));
        self.text_modes.append(self.text_mode.filter(|_| is_local));
    }

    pub fn finish(mut self) -> Result<RecordBatch, arrow::error::ArrowError> {
        let numeric = DictionaryArray::<Int32Type>::try_new(
            Int32Array::from(vec![0; self.rows]),
            Arc::new(StringArray::from(vec!["NUMERIC"])),
        )?;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.target_type.finish()?),
            Arc::new(self.target_id.finish()),
            Arc::new(self.session_id.finish()),
            Arc::new(self.project_id.finish()),
            Arc::new(self.metric.finish()?),
            Arc::new(self.status.finish()?),
            Arc::new(self.score.finish()),
            Arc::new(self.score_raw.finish()),
            Arc::new(self.value.finish()),
            Arc::new(self.threshold.finish()),
            Arc::new(self.passed.finish()),
            Arc::new(self.reason.finish()),
            Arc::new(self.metadata.finish()),
            Arc::new(self.evaluated_traces.finish()),
            Arc::new(numeric),
            Arc::new(self.source.finish()?),
            Arc::new(self.environment.finish()),
            Arc::new(self.model.finish()?),
            Arc::new(self.precision.finish()?),
            Arc::new(self.text_modes.finish()?),
        ];
        RecordBatch::try_new(scores_schema(), columns)
    }
}
