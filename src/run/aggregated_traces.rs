//! The table `traces` of an aggregation: the signals that its session scores are made of, and the risk of each step.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

use super::trace_rows::column;
use crate::metric::agent_reliability::{FLAG_ABOVE, step_risk};
use crate::metric::{SPAN_SIGNALS, SignalWeights, Signals, round4};
use crate::output::table_writer::TableWriter;
use crate::output::{RunDirectory, RunError};

/// Columns that the plan has ready, by their names there and in the table; signals of spans follow.
const OF_THE_PLAN: [(&str, &str); 8] = [
    ("shown_id", "trace_id"),
    ("session_id", "session_id"),
    ("project_id", "project_id"),
    ("started_at", "started_at"),
    ("coherence", "coherence"),
    ("loop_detection", "loop_detection"),
    ("confidence", "confidence"),
    ("tool_correctness", "tool_correctness"),
];

/// Writes the table as its rows come out of the plan.
pub(super) struct AggregatedTraces {
    table: TableWriter,
    weights: SignalWeights,
}

fn schema(weights: &SignalWeights) -> SchemaRef {
    let field = |name: &str| match name {
        "trace_id" => Field::new(name, DataType::Utf8, false),
        "session_id" | "project_id" => Field::new(name, DataType::Utf8, true),
        "started_at" => {
            let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
            Field::new(name, utc, false)
        }
        "flagged" => Field::new(name, DataType::Boolean, true),
        _ => Field::new(name, DataType::Float64, true),
    };
    let names = OF_THE_PLAN.iter().map(|(_, name)| *name);
    Arc::new(Schema::new(
        names
            .chain(weights.of_spans())
            .chain(["step_risk", "flagged"])
            .map(field)
            .collect::<Vec<_>>(),
    ))
}

impl AggregatedTraces {
    pub fn create(run: &RunDirectory, weights: &SignalWeights) -> Result<Self, RunError> {
        Ok(Self {
            table: TableWriter::create(run.path(), "traces", schema(weights))?,
            weights: weights.clone(),
        })
    }

    /// Writes rows of the plan.
    pub fn write(&mut self, plan: &RecordBatch) -> Result<(), RunError> {
        let rows = self.rows(plan);
        let rows =
            rows.map_err(|e| RunError::Plan(format!("a result batch could not be built: {e}")));
        self.table.write(&rows?)
    }

    fn rows(&self, plan: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let signal = |name| column(plan, name).map(|c| c.as_primitive::<Float64Type>());
        let (confidence, loops) = (signal("confidence")?, signal("loop_detection")?);
        let (tools, coherence) = (signal("tool_correctness")?, signal("coherence")?);
        let of_spans = SPAN_SIGNALS.map(|name| {
            let column = plan.column_by_name(name)?;
            column.as_primitive_opt::<Float64Type>()
        });
        let value = |array: &Float64Array, row| array.is_valid(row).then(|| array.value(row));
        let risks: Vec<Option<f64>> = (0..plan.num_rows())
            .map(|row| {
                let signals = Signals {
                    confidence: value(confidence, row),
                    loop_detection: value(loops, row),
                    tool_correctness: value(tools, row),
                    coherence: value(coherence, row),
                    of_spans: of_spans.map(|array| value(array?, row)),
                };
                step_risk(&signals, &self.weights)
            })
            .collect();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(plan.num_columns() + 2);
        let signals = self.weights.of_spans();
        for name in OF_THE_PLAN.map(|(name, _)| name).into_iter().chain(signals) {
            columns.push(Arc::clone(column(plan, name)?));
        }
        let rounded = risks.iter().map(|risk| risk.map(round4));
        columns.push(Arc::new(rounded.collect::<Float64Array>()));
        let flagged = risks.iter().map(|risk| risk.map(|risk| risk > FLAG_ABOVE));
        columns.push(Arc::new(flagged.collect::<BooleanArray>()));
        RecordBatch::try_new(schema(&self.weights), columns)
    }

    pub fn finish(self) -> Result<(), RunError> {
        self.table.finish().map(drop)
    }
}
