//! What edits of scores do to the table `traces`: the column of the metric, the risk of the step, and how the trace ended.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Float64Array, RecordBatch, StringDictionaryBuilder,
};
use arrow::datatypes::{DataType, Int32Type};
use serde_json::Value;

use crate::history::stored_table::{cell, number, numbers_if_there, text, trace_id};
use crate::metric::agent_reliability::{FLAG_ABOVE, step_risk};
use crate::metric::{SPAN_SIGNALS, SignalWeights, Signals, round4};

/// What is known of an edited trace.
#[derive(Debug, Default)]
struct EditedTrace {
    /// New numbers, by metric; none where the score has none any more.
    values: Vec<(String, Option<f64>)>,
    failed: u64,
    pending: u64,
}

/// The edited traces of a run, by canonical id.
#[derive(Debug)]
pub(in crate::history) struct TraceEdits {
    by_trace: HashMap<String, EditedTrace>,
    weights: SignalWeights,
}

impl TraceEdits {
    /// Of the traces with these canonical ids; the manifest of their run says what signals weigh.
    pub fn of(ids: impl Iterator<Item = String>, manifest: &Value) -> Result<Self, String> {
        let weights = manifest["rules"]["weights"].as_object();
        let weights = weights.into_iter().flatten();
        let weights: Vec<(String, f64)> = weights
            .filter_map(|(name, weight)| Some((name.clone(), weight.as_f64()?)))
            .collect();
        Ok(Self {
            by_trace: ids.map(|id| (id, EditedTrace::default())).collect(),
            weights: SignalWeights::with(&weights).map_err(|e| e.to_string())?,
        })
    }

    /// Takes a score of a trace as it stands after the edits; `edited` is the number that an edit left it, if one has.
    pub fn see(&mut self, id: &str, metric: &str, status: &str, edited: Option<Option<f64>>) {
        let Some(trace) = self.by_trace.get_mut(id) else {
            return;
        };
        match status {
            "FAILED" => trace.failed += 1,
            "PENDING" => trace.pending += 1,
            _ => {}
        }
        if let Some(value) = edited {
            trace.values.push((metric.to_owned(), value));
        }
    }

    /// Rows of `traces` with what the edits of their scores change.
    pub fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        let ids = text(batch, "trace_id")?;
        let edited: Vec<Option<&EditedTrace>> = (0..batch.num_rows())
            .map(|row| self.by_trace.get(&trace_id(&ids, row)?))
            .collect();
        if edited.iter().all(Option::is_none) {
            return Ok(batch.clone());
        }
        let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
        let schema = batch.schema();
        for (field, column) in schema.fields().iter().zip(&mut columns) {
            let found = |trace: &EditedTrace| {
                let mut values = trace.values.iter();
                values
                    .find(|(metric, _)| metric == field.name())
                    .map(|(_, value)| *value)
            };
            if *field.data_type() == DataType::Float64
                && edited.iter().flatten().any(|t| found(t).is_some())
            {
                let old = numbers_if_there(batch, field.name())?;
                let values =
                    edited
                        .iter()
                        .enumerate()
                        .map(|(row, trace)| match trace.and_then(found) {
                            Some(value) => value,
                            None => number(&old, row),
                        });
                *column = Arc::new(values.collect::<Float64Array>());
            }
        }
        let renewed = RecordBatch::try_new(schema, columns).map_err(|e| e.to_string())?;
        self.judge_steps(&renewed, &edited)
    }

    /// Step risk, flag and status of edited rows, by the signals that they have now.
    fn judge_steps(
        &self,
        batch: &RecordBatch,
        edited: &[Option<&EditedTrace>],
    ) -> Result<RecordBatch, String> {
        let signal = |name| numbers_if_there(batch, name);
        let (confidence, loops) = (signal("confidence")?, signal("loop_detection")?);
        let (tools, coherence) = (signal("tool_correctness")?, signal("coherence")?);
        let mut of_spans = Vec::with_capacity(SPAN_SIGNALS.len());
        for name in SPAN_SIGNALS {
            of_spans.push(signal(name)?);
        }
        let old_risks = signal("step_risk")?;
        let old_statuses = text(batch, "status")?;
        let old_flags = crate::history::stored_table::flags(batch, "flagged")?;
        let mut risks = Vec::with_capacity(batch.num_rows());
        let mut flags = Vec::with_capacity(batch.num_rows());
        let mut statuses = StringDictionaryBuilder::<Int32Type>::new();
        for (row, trace) in edited.iter().enumerate() {
            let Some(trace) = trace else {
                risks.push(number(&old_risks, row));
                flags.push(old_flags.is_valid(row).then(|| old_flags.value(row)));
                statuses.append_option(cell(&old_statuses, row));
                continue;
            };
            let signals = Signals {
                confidence: number(&confidence, row),
                loop_detection: number(&loops, row),
                tool_correctness: number(&tools, row),
                coherence: number(&coherence, row),
                of_spans: std::array::from_fn(|at| number(&of_spans[at], row)),
            };
            let risk = step_risk(&signals, &self.weights);
            risks.push(risk.map(round4));
            flags.push(risk.map(|risk| risk > FLAG_ABOVE));
            statuses.append_value(match (trace.failed, trace.pending) {
                (0, 0) => "SUCCESS",
                (0, _) => "PENDING",
                _ => "FAILED",
            });
        }
        let (risks, flags) = (Float64Array::from(risks), BooleanArray::from(flags));
        let statuses: ArrayRef = Arc::new(statuses.finish());
        let (risks, flags): (ArrayRef, ArrayRef) = (Arc::new(risks), Arc::new(flags));
        let schema = batch.schema();
        let columns = schema.fields().iter().zip(batch.columns());
        let columns = columns.map(|(field, old)| match field.name().as_str() {
            "step_risk" => Arc::clone(&risks),
            "flagged" => Arc::clone(&flags),
            "status" => Arc::clone(&statuses),
            _ => Arc::clone(old),
        });
        RecordBatch::try_new(Arc::clone(&schema), columns.collect()).map_err(|e| e.to_string())
    }
}
