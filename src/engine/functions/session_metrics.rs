//! `agent_reliability(...)` and `agent_consistency(...)` as aggregates over a session's traces.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Float64Builder, Int64Builder,
    ListBuilder, StringArray, StringBuilder, StructArray,
};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Float64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use rayon::prelude::*;

use super::FunctionDoc;
use crate::metric::agent_consistency::agent_consistency;
use crate::metric::agent_reliability::agent_reliability;
use crate::metric::{SPAN_SIGNALS, SessionSignals, SignalWeights, Signals};

pub(super) const RELIABILITY_DOC: FunctionDoc = FunctionDoc {
    call: "agent_reliability(confidence, loop_detection, tool_correctness, coherence [, trace_id [, tool_error_rate, repeated_tool_calls, empty_output, output_truncated, stuck]])",
    returns: "struct: score, score_raw, evaluated_traces, flagged_traces, reason, details (JSON)",
    meaning: "Aggregate over a session: how bad its worst steps are. A null signal is missing; those of spans count with a weight.",
};

pub(super) const CONSISTENCY_DOC: FunctionDoc = FunctionDoc {
    call: "agent_consistency(confidence, loop_detection, tool_correctness, coherence [, trace_id [, tool_error_rate, repeated_tool_calls, empty_output, output_truncated, stuck]])",
    returns: "struct: score, score_raw, evaluated_traces, flagged_traces (empty), reason, details (JSON)",
    meaning: "Aggregate over a session: how steady the agent is. Only traces with confidence count; signals of spans count with a weight.",
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
    parallel: bool,
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
    pub fn new(metric: Metric, weights: SignalWeights, parallel: bool) -> Self {
        Self {
            parallel,
            signature: Signature::user_defined(Volatility::Immutable),
            metric,
            weights,
        }
    }
}

fn result_fields() -> Fields {
    Fields::from(vec![
        Field::new("score", DataType::Float64, false),
        Field::new("score_raw", DataType::Float64, false),
        Field::new("evaluated_traces", DataType::Int64, false),
        Field::new(
            "flagged_traces",
            DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))),
            false,
        ),
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
        let mut signals = types.iter().take(4).chain(types.iter().skip(5));
        let numbers = signals.all(|t| t.is_numeric() || *t == DataType::Null);
        if ![4, 5, WITH_SPANS].contains(&types.len()) || !numbers {
            return plan_err!(
                "{} takes four numbers (confidence, loop_detection, tool_correctness, coherence; NULL for one that is not there) and, if \
                 you like, the trace id, and after it five more numbers ({})",
                self.name(),
                SPAN_SIGNALS.join(", ")
            );
        }
        if let Some(signal) = self.weights.of_spans().next()
            && types.len() != WITH_SPANS
        {
            return plan_err!(
                "{signal} has a weight, and this call of {} has no such signal: give the trace id and then {} (NULL for one that is not \
                 there), or leave out the weight",
                self.name(),
                SPAN_SIGNALS.join(", ")
            );
        }
        let mut coerced = vec![DataType::Float64; types.len()];
        if let Some(id) = coerced.get_mut(4) {
            *id = DataType::Utf8;
        }
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
            Arc::new(Field::new(
                name,
                DataType::List(Arc::new(Field::new("item", item, true))),
                true,
            ))
        };
        Ok(vec![
            list("signals", DataType::Float64),
            list("trace_ids", DataType::Utf8),
            list("span_signals", DataType::Float64),
        ])
    }
    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(OneSession {
            scorer: self.scorer(),
            session: Session::default(),
        }))
    }
    fn groups_accumulator_supported(&self, _: AccumulatorArgs) -> bool {
        true
    }
    fn create_groups_accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(ManySessions {
            scorer: self.scorer(),
            sessions: Vec::new(),
            bytes: 0,
        }))
    }
}

impl SessionMetric {
    fn scorer(&self) -> Scorer {
        Scorer {
            metric: self.metric,
            parallel: self.parallel,
            weights: self.weights.clone(),
        }
    }
}

/// Arguments of a call with signals of spans.
const WITH_SPANS: usize = 5 + SPAN_SIGNALS.len();

/// Signals of spans of a trace.
type OfSpans = [Option<f64>; SPAN_SIGNALS.len()];

/// The traces of one session, in the order in which they came.
#[derive(Debug, Default)]
struct Session {
    signals: Vec<[Option<f64>; 4]>,
    /// As long as `signals`, or empty where the call has none.
    of_spans: Vec<OfSpans>,
    /// All trace ids, one after the other; a trace without a given id is named by its number.
    ids: String,
    /// Where each id ends; as long as `signals`.
    id_ends: Vec<usize>,
}

impl Session {
    fn push(
        &mut self,
        signals: [Option<f64>; 4],
        of_spans: Option<OfSpans>,
        trace_id: Option<&str>,
    ) {
        self.of_spans.extend(of_spans);
        match trace_id {
            Some(id) => self.ids.push_str(id),
            None => self.ids.push_str(&(self.signals.len() + 1).to_string()),
        }
        self.id_ends.push(self.ids.len());
        self.signals.push(signals);
    }

    fn trace_ids(&self) -> Vec<&str> {
        let starts = std::iter::once(0).chain(self.id_ends.iter().copied());
        starts
            .zip(&self.id_ends)
            .map(|(start, end)| &self.ids[start..*end])
            .collect()
    }

    fn bytes(&self) -> usize {
        size_of_val(self)
            + self.signals.capacity() * size_of::<[Option<f64>; 4]>()
            + self.of_spans.capacity() * size_of::<OfSpans>()
            + self.ids.capacity()
            + self.id_ends.capacity() * size_of::<usize>()
    }
}

#[derive(Debug)]
struct Scorer {
    metric: Metric,
    parallel: bool,
    weights: SignalWeights,
}

impl Scorer {
    /// The result column of some sessions.
    fn score(&self, sessions: &[Session]) -> Result<StructArray> {
        let (mut scores, mut raws) = (Float64Builder::new(), Float64Builder::new());
        let mut evaluated = Int64Builder::new();
        let mut flagged = ListBuilder::new(StringBuilder::new());
        let (mut reasons, mut details) = (StringBuilder::new(), StringBuilder::new());
        // Sessions come hundreds at a time and each takes microseconds: worth sharing, in order.
        let scored: Vec<Scored> = if self.parallel {
            sessions
                .par_iter()
                .with_min_len(16)
                .map(|session| self.score_one(session))
                .collect()
        } else {
            sessions
                .iter()
                .map(|session| self.score_one(session))
                .collect()
        };
        for session in scored {
            session
                .flagged
                .iter()
                .for_each(|id| flagged.values().append_value(id));
            scores.append_value(session.score);
            raws.append_value(session.score_raw);
            evaluated.append_value(session.evaluated as i64);
            flagged.append(true);
            reasons.append_value(session.reason);
            details.append_value(session.metadata);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(scores.finish()),
            Arc::new(raws.finish()),
            Arc::new(evaluated.finish()),
            Arc::new(flagged.finish()),
            Arc::new(reasons.finish()),
            Arc::new(details.finish()),
        ];
        Ok(StructArray::try_new(result_fields(), columns, None)?)
    }
}

/// One session's result.
struct Scored {
    score: f64,
    score_raw: f64,
    evaluated: usize,
    flagged: Vec<String>,
    reason: String,
    metadata: String,
}

impl Scorer {
    fn score_one(&self, session: &Session) -> Scored {
        let signals: Vec<Signals> = session
            .signals
            .iter()
            .enumerate()
            .map(
                |(at, [confidence, loop_detection, tool_correctness, coherence])| Signals {
                    confidence: *confidence,
                    loop_detection: *loop_detection,
                    tool_correctness: *tool_correctness,
                    coherence: *coherence,
                    of_spans: session.of_spans.get(at).copied().unwrap_or_default(),
                },
            )
            .collect();
        let trace_ids = session.trace_ids();
        let traces = SessionSignals {
            trace_ids: &trace_ids,
            signals: &signals,
            any_source: true,
        };
        match self.metric {
            Metric::Reliability => {
                let r = agent_reliability(traces, &self.weights);
                Scored {
                    score: r.score,
                    score_raw: r.score_raw,
                    evaluated: r.evaluated_traces,
                    flagged: r
                        .flagged
                        .iter()
                        .map(|&at| trace_ids[at].to_owned())
                        .collect(),
                    reason: r.reason,
                    metadata: r.metadata,
                }
            }
            Metric::Consistency => {
                let c = agent_consistency(traces, &self.weights);
                Scored {
                    score: c.score,
                    score_raw: c.score_raw,
                    evaluated: c.evaluated_traces,
                    flagged: Vec::new(),
                    reason: c.reason,
                    metadata: c.metadata,
                }
            }
        }
    }
}

/// Calls `push` with the session each row belongs to, its signals and its trace id.
fn for_each_trace(
    values: &[ArrayRef],
    mut push: impl FnMut(usize, [Option<f64>; 4], Option<OfSpans>, Option<&str>),
) {
    let columns: Vec<&Float64Array> = values
        .iter()
        .take(4)
        .map(|v| v.as_primitive::<Float64Type>())
        .collect();
    let ids: Option<&StringArray> = values.get(4).map(|ids| ids.as_string());
    let spans = values.get(5..WITH_SPANS);
    let spans: Option<Vec<&Float64Array>> =
        spans.map(|columns| columns.iter().map(|v| v.as_primitive()).collect());
    for row in 0..values.first().map_or(0, |v| v.len()) {
        let signals = std::array::from_fn(|i| number(columns[i], row));
        let id = ids
            .filter(|ids| ids.is_valid(row))
            .map(|ids| ids.value(row));
        let spans = spans.as_ref();
        let spans = spans.map(|columns| std::array::from_fn(|i| number(columns[i], row)));
        push(row, signals, spans, id);
    }
}

fn number(array: &Float64Array, row: usize) -> Option<f64> {
    array.is_valid(row).then(|| array.value(row))
}

/// Partial states of sessions as three list columns, so that partitions can be merged.
fn states(sessions: &[Session]) -> Vec<ArrayRef> {
    let mut signals = ListBuilder::new(Float64Builder::new());
    let mut ids = ListBuilder::new(StringBuilder::new());
    let mut of_spans = ListBuilder::new(Float64Builder::new());
    for session in sessions {
        session
            .of_spans
            .iter()
            .flatten()
            .for_each(|s| of_spans.values().append_option(*s));
        of_spans.append(true);
        session
            .signals
            .iter()
            .flatten()
            .for_each(|s| signals.values().append_option(*s));
        signals.append(true);
        session
            .trace_ids()
            .iter()
            .for_each(|id| ids.values().append_value(id));
        ids.append(true);
    }
    vec![
        Arc::new(signals.finish()),
        Arc::new(ids.finish()),
        Arc::new(of_spans.finish()),
    ]
}

fn for_each_state(
    states: &[ArrayRef],
    mut push: impl FnMut(usize, [Option<f64>; 4], Option<OfSpans>, &str),
) {
    let (signals, ids) = (states[0].as_list::<i32>(), states[1].as_list::<i32>());
    let of_spans = states[2].as_list::<i32>();
    for row in 0..signals.len() {
        if signals.is_null(row) {
            continue;
        }
        let values = signals.value(row);
        let values = values.as_primitive::<Float64Type>();
        let names = ids.value(row);
        let names = names.as_string::<i32>();
        let spans = of_spans.value(row);
        let spans = spans.as_primitive::<Float64Type>();
        for at in 0..names.len() {
            let of_trace = |i| number(spans, at * SPAN_SIGNALS.len() + i);
            push(
                row,
                std::array::from_fn(|i| number(values, at * 4 + i)),
                (!spans.is_empty()).then(|| std::array::from_fn(of_trace)),
                names.value(at),
            );
        }
    }
}

/// For a query without GROUP BY.
#[derive(Debug)]
struct OneSession {
    scorer: Scorer,
    session: Session,
}

impl Accumulator for OneSession {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for_each_trace(values, |_, signals, spans, id| {
            self.session.push(signals, spans, id)
        });
        Ok(())
    }
    fn evaluate(&mut self) -> Result<ScalarValue> {
        let scored = self.scorer.score(std::slice::from_ref(&self.session))?;
        Ok(ScalarValue::Struct(Arc::new(scored)))
    }
    fn size(&self) -> usize {
        size_of_val(self) + self.session.bytes()
    }
    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let columns = states(std::slice::from_ref(&self.session));
        columns
            .iter()
            .map(|column| ScalarValue::try_from_array(column, 0))
            .collect()
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for_each_state(states, |_, signals, spans, id| {
            self.session.push(signals, spans, Some(id))
        });
        Ok(())
    }
}

/// For GROUP BY: all sessions of a batch become result columns at once.
#[derive(Debug)]
struct ManySessions {
    scorer: Scorer,
    sessions: Vec<Session>,
    /// What the sessions hold, kept while they grow: counting it anew for every batch would be
    /// quadratic.
    bytes: usize,
}

impl ManySessions {
    fn grow(&mut self, groups: usize) {
        self.sessions
            .resize_with(self.sessions.len().max(groups), Session::default);
    }

    fn push(
        &mut self,
        group: usize,
        signals: [Option<f64>; 4],
        of_spans: Option<OfSpans>,
        id: Option<&str>,
    ) {
        self.sessions[group].push(signals, of_spans, id);
        let of_spans = of_spans.map_or(0, |spans| size_of_val(&spans));
        self.bytes +=
            size_of_val(&signals) + of_spans + id.map_or(20, str::len) + size_of::<usize>();
    }

    fn take(&mut self, emit: EmitTo) -> Vec<Session> {
        let taken = emit.take_needed(&mut self.sessions);
        let left: usize = self.sessions.iter().map(|s| s.signals.len()).sum();
        let gone: usize = taken.iter().map(|s| s.signals.len()).sum();
        self.bytes = self.bytes / (left + gone).max(1) * left;
        taken
    }
}

impl GroupsAccumulator for ManySessions {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        self.grow(total);
        for_each_trace(values, |row, signals, spans, id| {
            if filter.is_none_or(|f| f.is_valid(row) && f.value(row)) {
                self.push(groups[row], signals, spans, id);
            }
        });
        Ok(())
    }
    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let sessions = self.take(emit);
        Ok(Arc::new(self.scorer.score(&sessions)?))
    }
    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(states(&self.take(emit)))
    }
    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.grow(total);
        for_each_state(values, |row, signals, spans, id| {
            self.push(groups[row], signals, spans, Some(id))
        });
        Ok(())
    }
    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let mut rows: Vec<Session> = Vec::new();
        for_each_trace(values, |row, signals, spans, id| {
            let mut session = Session::default();
            if filter.is_none_or(|f| f.is_valid(row) && f.value(row)) {
                session.push(signals, spans, id);
            }
            rows.push(session);
        });
        Ok(states(&rows))
    }
    fn size(&self) -> usize {
        size_of_val(self) + self.sessions.capacity() * size_of::<Session>() + self.bytes
    }
}
