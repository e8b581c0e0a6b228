//! `agent_reliability(...)` and `agent_consistency(...)` as aggregates over a session's traces.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Float64Builder, ListBuilder, StringArray, StringBuilder, StructArray,
};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Float64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};

use super::FunctionDoc;
use crate::metric::agent_consistency::agent_consistency;
use crate::metric::agent_reliability::agent_reliability;
use crate::metric::{SessionSignals, SignalWeights, Signals};

pub(super) const RELIABILITY_DOC: FunctionDoc = FunctionDoc {
    call: "agent_reliability(confidence, loop_detection, tool_correctness, coherence [, trace_id])",
    returns: "struct: score, score_raw, evaluated_traces, flagged_traces, reason, details (JSON)",
    meaning: "Aggregate over a session: how bad its worst steps are. A null signal is missing.",
};

pub(super) const CONSISTENCY_DOC: FunctionDoc = FunctionDoc {
    call: "agent_consistency(confidence, loop_detection, tool_correctness, coherence [, trace_id])",
    returns: "struct: score, score_raw, evaluated_traces, flagged_traces (empty), reason, details (JSON)",
    meaning: "Aggregate over a session: how steady the agent is. Only traces with confidence count.",
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Metric {
    Reliability,
    Consistency,
}

#[derive(Debug)]
pub(super) struct SessionMetric {
    signature: Signature,
    metric: Metric,
    weights: SignalWeights,
}

impl PartialEq for SessionMetric {
    fn eq(&self, other: &Self) -> bool {
        // Weights are fixed for a process.
        self.metric == other.metric
    }
}
impl Eq for SessionMetric {}
impl std::hash::Hash for SessionMetric {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.metric.hash(state);
    }
}

impl SessionMetric {
    pub fn new(metric: Metric, weights: SignalWeights) -> Self {
        Self { signature: Signature::user_defined(Volatility::Immutable), metric, weights }
    }
}

fn result_fields() -> Fields {
    Fields::from(vec![
        Field::new("score", DataType::Float64, false),
        Field::new("score_raw", DataType::Float64, false),
        Field::new("evaluated_traces", DataType::Int64, false),
        Field::new("flagged_traces", DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))), false),
        Field::new("reason", DataType::Utf8, false),
        Field::new("details", DataType::Utf8, false),
    ])
}

impl AggregateUDFImpl for SessionMetric {
    fn name(&self) -> &str {
        match self.metric {
            Metric::Reliability => "agent_reliability",
            Metric::Consistency => "agent_consistency",
        }
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let numbers = types.iter().take(4).all(|t| t.is_numeric() || *t == DataType::Null);
        if !(4..=5).contains(&types.len()) || !numbers {
            return plan_err!("{} takes four numbers (confidence, loop_detection, tool_correctness, coherence; NULL for one that is not there) and, if you like, the trace id", self.name());
        }
        let mut coerced = vec![DataType::Float64; 4];
        coerced.extend(types.get(4).map(|_| DataType::Utf8));
        Ok(coerced)
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Struct(result_fields()))
    }
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        // The score depends on the set of traces only; the details list them as they come.
        AggregateOrderSensitivity::Insensitive
    }
    fn state_fields(&self, _: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = |name: &str, item| {
            Arc::new(Field::new(name, DataType::List(Arc::new(Field::new("item", item, true))), true))
        };
        Ok(vec![list("signals", DataType::Float64), list("trace_ids", DataType::Utf8)])
    }
    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(SessionAccumulator {
            metric: self.metric,
            weights: self.weights.clone(),
            signals: Vec::new(),
            trace_ids: Vec::new(),
        }))
    }
}

#[derive(Debug)]
struct SessionAccumulator {
    metric: Metric,
    weights: SignalWeights,
    signals: Vec<[Option<f64>; 4]>,
    /// As long as `signals`; a trace without a given id is named by its number.
    trace_ids: Vec<String>,
}

impl SessionAccumulator {
    fn push(&mut self, signals: [Option<f64>; 4], trace_id: Option<&str>) {
        let id = trace_id.map_or_else(|| (self.signals.len() + 1).to_string(), str::to_owned);
        self.signals.push(signals);
        self.trace_ids.push(id);
    }
}

fn number(array: &Float64Array, row: usize) -> Option<f64> {
    array.is_valid(row).then(|| array.value(row))
}

impl Accumulator for SessionAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let columns: Vec<&Float64Array> = values.iter().take(4).map(|v| v.as_primitive::<Float64Type>()).collect();
        let ids: Option<&StringArray> = values.get(4).map(|ids| ids.as_string());
        for row in 0..values.first().map_or(0, |v| v.len()) {
            let signals = std::array::from_fn(|i| number(columns[i], row));
            let id = ids.filter(|ids| ids.is_valid(row)).map(|ids| ids.value(row));
            self.push(signals, id);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let signals: Vec<Signals> = self
            .signals
            .iter()
            .map(|[confidence, loop_detection, tool_correctness, coherence]| Signals {
                confidence: *confidence,
                loop_detection: *loop_detection,
                tool_correctness: *tool_correctness,
                coherence: *coherence,
            })
            .collect();
        let trace_ids: Vec<&str> = self.trace_ids.iter().map(String::as_str).collect();
        let session = SessionSignals { trace_ids: &trace_ids, signals: &signals, any_source: true };
        let (score, raw, evaluated, flagged, reason, details) = match self.metric {
            Metric::Reliability => {
                let r = agent_reliability(session, &self.weights);
                (r.score, r.score_raw, r.evaluated_traces, r.flagged, r.reason, r.metadata)
            }
            Metric::Consistency => {
                let c = agent_consistency(session, &self.weights);
                (c.score, c.score_raw, c.evaluated_traces, Vec::new(), c.reason, c.metadata)
            }
        };
        let mut flagged_ids = ListBuilder::new(StringBuilder::new());
        flagged.iter().for_each(|&at| flagged_ids.values().append_value(trace_ids[at]));
        flagged_ids.append(true);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Float64Array::from(vec![score])),
            Arc::new(Float64Array::from(vec![raw])),
            Arc::new(arrow::array::Int64Array::from(vec![evaluated as i64])),
            Arc::new(flagged_ids.finish()),
            Arc::new(StringArray::from(vec![reason])),
            Arc::new(StringArray::from(vec![details])),
        ];
        Ok(ScalarValue::Struct(Arc::new(StructArray::try_new(result_fields(), columns, None)?)))
    }

    fn size(&self) -> usize {
        size_of_val(self)
            + self.signals.capacity() * size_of::<[Option<f64>; 4]>()
            + self.trace_ids.iter().map(|id| id.capacity() + size_of::<String>()).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut signals = ListBuilder::new(Float64Builder::new());
        self.signals.iter().flatten().for_each(|s| signals.values().append_option(*s));
        signals.append(true);
        let mut ids = ListBuilder::new(StringBuilder::new());
        self.trace_ids.iter().for_each(|id| ids.values().append_value(id));
        ids.append(true);
        Ok(vec![ScalarValue::List(Arc::new(signals.finish())), ScalarValue::List(Arc::new(ids.finish()))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (signals, ids) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
        for row in 0..signals.len() {
            if signals.is_null(row) {
                continue;
            }
            let values = signals.value(row);
            let values = values.as_primitive::<Float64Type>();
            let names = ids.value(row);
            let names = names.as_string::<i32>();
            for at in 0..names.len() {
                self.push(std::array::from_fn(|i| number(values, at * 4 + i)), Some(names.value(at)));
            }
        }
        Ok(())
    }
}
