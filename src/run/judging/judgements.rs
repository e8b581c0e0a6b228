//! What judges said of the traces of a run: aside on disk until the traces are written.
//!
//! The plan joins traces with the places of what was said of them, and with the signals among it. The texts stay in the
//! file, and are read once, when a trace is written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Builder, RecordBatch, StringBuilder, UInt64Builder};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::engine::{JUDGED_AT, JUDGED_SIGNALS};
use crate::output::{RunError, Status};
use crate::trace::KeptDocuments;

/// One judged metric of one trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Judgement {
    pub metric: String,
    pub status: Status,
    /// Unrounded; there exactly if the status is success.
    pub score: Option<f64>,
    pub reason: String,
    /// A JSON object.
    pub metadata: String,
    pub model: String,
    /// A person gave the score, in place of the judge.
    pub by_person: bool,
}

/// Ends of a metric over all traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    pub judged: u64,
    pub failed: u64,
    pub pending: u64,
}

/// What is known of a trace in memory.
#[derive(Debug, Default)]
struct OfTrace {
    /// Where what was said last is.
    last: u64,
    signals: [Option<f64>; JUDGED_SIGNALS.len()],
}

/// Judgements by trace.
#[derive(Debug)]
pub(crate) struct Judgements {
    /// Judgements by metric, each time with the place of those that were put before them for the same trace.
    kept: KeptDocuments,
    traces: HashMap<String, OfTrace>,
    /// The distinct reasons of what was not tried.
    pub pending_reasons: BTreeSet<String>,
    /// By metric.
    pub ends: BTreeMap<String, Ends>,
}

/// No place.
const NOWHERE: u64 = u64::MAX;

impl Judgements {
    /// Without any, in a folder.
    pub fn create(folder: &Path) -> Result<Self, RunError> {
        Ok(Self {
            kept: KeptDocuments::create(folder)?,
            traces: HashMap::new(),
            pending_reasons: BTreeSet::new(),
            ends: BTreeMap::new(),
        })
    }

    /// Keeps what was said of a trace. A later judgement of a metric takes the place of an earlier one.
    pub fn put(&mut self, trace_id: &str, judgements: &[Judgement]) -> Result<(), RunError> {
        if judgements.is_empty() {
            return Ok(());
        }
        let known = self.traces.get(trace_id);
        let before = known.map_or(NOWHERE, |known| known.last);
        let mut members = Map::new();
        for judgement in judgements {
            let value = serde_json::to_value(judgement);
            let value = value.map_err(|e| RunError::Plan(e.to_string()))?;
            members.insert(judgement.metric.clone(), value);
        }
        let at = self.kept.push(before, &members)?;
        let of_trace = self.traces.entry(trace_id.to_owned()).or_default();
        of_trace.last = at;
        for j in judgements {
            let signals = JUDGED_SIGNALS.iter().zip(&mut of_trace.signals);
            for (_, signal) in signals.filter(|(name, _)| **name == j.metric) {
                *signal = j.score;
            }
            let ends = self.ends.entry(j.metric.clone()).or_default();
            match j.status {
                Status::Success => ends.judged += 1,
                Status::Failed => ends.failed += 1,
                Status::Pending => {
                    ends.pending += 1;
                    self.pending_reasons.insert(j.reason.clone());
                }
            }
        }
        Ok(())
    }

    /// Writes what waits. Only then can all of it be read.
    pub fn flush(&mut self) -> Result<(), RunError> {
        Ok(self.kept.flush()?)
    }

    /// What was said of a trace, by the place of what was said last; metrics in the order of their names.
    pub fn at(&self, place: u64) -> Result<Vec<Judgement>, RunError> {
        let mut found: BTreeMap<String, Value> = BTreeMap::new();
        let mut next = place;
        while next != NOWHERE {
            let (before, members) = self.kept.read(next)?;
            for (metric, judgement) in members {
                found.entry(metric).or_insert(judgement);
            }
            next = before;
        }
        let judgements = found.into_values().map(serde_json::from_value);
        let judgements: Result<_, serde_json::Error> = judgements.collect();
        judgements.map_err(|e| RunError::Plan(e.to_string()))
    }

    /// All of them, trace by trace.
    pub fn all(&self) -> Result<Vec<(String, Vec<Judgement>)>, RunError> {
        let of_trace = |(trace_id, of_trace): (&String, &OfTrace)| {
            Ok((trace_id.clone(), self.at(of_trace.last)?))
        };
        self.traces.iter().map(of_trace).collect()
    }

    /// Whether any trace has a score of a signal.
    pub fn has_signal(&self, name: &str) -> bool {
        let at = JUDGED_SIGNALS.iter().position(|signal| *signal == name);
        at.is_some_and(|at| {
            self.traces
                .values()
                .any(|trace| trace.signals[at].is_some())
        })
    }

    /// The traces, each once: with their signals, and where what was said of them is.
    pub fn table(&self) -> Result<Arc<dyn TableProvider>, RunError> {
        let (mut ids, mut places) = (StringBuilder::new(), UInt64Builder::new());
        let mut signals = JUDGED_SIGNALS.map(|_| Float64Builder::new());
        for (trace_id, trace) in &self.traces {
            ids.append_value(trace_id);
            places.append_value(trace.last);
            for (column, signal) in signals.iter_mut().zip(trace.signals) {
                column.append_option(signal);
            }
        }
        let mut fields = vec![
            Field::new("trace_id", DataType::Utf8, false),
            Field::new(JUDGED_AT, DataType::UInt64, false),
        ];
        fields.extend(JUDGED_SIGNALS.map(|name| Field::new(name, DataType::Float64, true)));
        let mut columns: Vec<ArrayRef> = vec![Arc::new(ids.finish()), Arc::new(places.finish())];
        columns.extend(signals.map(|mut signal| Arc::new(signal.finish()) as ArrayRef));
        let schema = Arc::new(Schema::new(fields));
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(|e| {
            RunError::Plan(format!("the table of judgements could not be built: {e}"))
        })?;
        Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judgements_come_back_as_they_were_put() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Judgements::create(folder.path()).unwrap();
        let judgement = |metric: &str, status, score| Judgement {
            metric: metric.into(),
            status,
            score,
            reason: "r".into(),
            metadata: "{}".into(),
            model: "m".into(),
            by_person: score.is_none(),
        };
        let all = [
            judgement("confidence", Status::Success, Some(0.1 + 0.2)),
            judgement("plan_quality", Status::Failed, None),
            judgement("step_efficiency", Status::Pending, None),
        ];
        let earlier = [
            judgement("task_completion", Status::Success, Some(1.0)),
            judgement("plan_quality", Status::Success, Some(0.5)),
        ];
        store.put("a", &earlier).unwrap();
        store
            .put("b", &[judgement("tool_correctness", Status::Failed, None)])
            .unwrap();
        store.put("a", &all).unwrap();
        store.put("c", &[]).unwrap();
        store.flush().unwrap();
        assert_eq!(store.traces.len(), 2);
        let of = |trace: &str| store.at(store.traces[trace].last).unwrap();
        let expected = [&all[..], &earlier[..1]].concat();
        assert_eq!(of("a"), expected);
        assert_eq!(of("b").len(), 1);
        assert_eq!(store.traces["a"].signals, [Some(0.1 + 0.2), None]);
        assert!(store.has_signal("confidence") && !store.has_signal("tool_correctness"));
        assert_eq!(store.table().unwrap().schema().fields().len(), 4);
        assert!(store.pending_reasons.contains("r"));
        let ends = Ends {
            judged: 1,
            failed: 1,
            pending: 0,
        };
        assert_eq!(store.ends["plan_quality"], ends);
    }
}
