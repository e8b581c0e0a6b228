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
        let numbers = types
            .iter()
            .take(4)
            .all(|t| t.is_numeric() || *t == DataType::Null);
        if !(4..=5).contains(&types.len()) || !numbers {
            return plan_err!(
                "{} takes four numbers (confidence, loop_detection, tool_correctness, coherence; NULL for one that is not there) and, if you like, the trace id",
                self.name()
            );
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
            Arc::new(Field::new(
                name,
                DataType::List(Arc::new(Field::new("item", item, true))),
                true,
            ))
        };
        Ok(vec![
            list("signals", DataType::Float64),
            list("trace_ids", DataType::Utf8),
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

/// The traces of one session, in the order in which they came.
#[derive(Debug, Default)]
struct Session {
    signals: Vec<[Option<f64>; 4]>,
    /// All trace ids, one after the other; a trace without a given id is named by its number.
    ids: String,
    /// Where each id ends; as long as `signals`.
    id_ends: Vec<usize>,
}

impl Session {
    fn push(&mut self, signals: [Option<f64>; 4], trace_id: Option<&str>) {
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
            .map(
                |[confidence, loop_detection, tool_correctness, coherence]| Signals {
                    confidence: *confidence,
                    loop_detection: *loop_detection,
                    tool_correctness: *tool_correctness,
                    coherence: *coherence,
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
    mut push: impl FnMut(usize, [Option<f64>; 4], Option<&str>),
) {
    let columns: Vec<&Float64Array> = values
        .iter()
        .take(4)
        .map(|v| v.as_primitive::<Float64Type>())
        .collect();
    let ids: Option<&StringArray> = values.get(4).map(|ids| ids.as_string());
    for row in 0..values.first().map_or(0, |v| v.len()) {
        let signals = std::array::from_fn(|i| number(columns[i], row));
        let id = ids
            .filter(|ids| ids.is_valid(row))
            .map(|ids| ids.value(row));
        push(row, signals, id);
    }
}

fn number(array: &Float64Array, row: usize) -> Option<f64> {
    array.is_valid(row).then(|| array.value(row))
}

/// Partial states of sessions as two list columns, so that partitions can be merged.
fn states(sessions: &[Session]) -> Vec<ArrayRef> {
    let mut signals = ListBuilder::new(Float64Builder::new());
    let mut ids = ListBuilder::new(StringBuilder::new());
    for session in sessions {
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
    vec![Arc::new(signals.finish()), Arc::new(ids.finish())]
}

fn for_each_state(states: &[ArrayRef], mut push: impl FnMut(usize, [Option<f64>; 4], &str)) {
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
            push(
                row,
                std::array::from_fn(|i| number(values, at * 4 + i)),
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
        for_each_trace(values, |_, signals, id| self.session.push(signals, id));
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
        for_each_state(states, |_, signals, id| {
            self.session.push(signals, Some(id))
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

    fn push(&mut self, group: usize, signals: [Option<f64>; 4], id: Option<&str>) {
        self.sessions[group].push(signals, id);
        self.bytes += size_of_val(&signals) + id.map_or(20, str::len) + size_of::<usize>();
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
        for_each_trace(values, |row, signals, id| {
            if filter.is_none_or(|f| f.is_valid(row) && f.value(row)) {
                self.push(groups[row], signals, id);
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
        for_each_state(values, |row, signals, id| {
            self.push(groups[row], signals, Some(id))
        });
        Ok(())
    }
    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let mut rows: Vec<Session> = Vec::new();
        for_each_trace(values, |row, signals, id| {
            let mut session = Session::default();
            if filter.is_none_or(|f| f.is_valid(row) && f.value(row)) {
                session.push(signals, id);
            }
            rows.push(session);
        });
        Ok(states(&rows))
    }
    fn size(&self) -> usize {
        size_of_val(self) + self.sessions.capacity() * size_of::<Session>() + self.bytes
    }
}
