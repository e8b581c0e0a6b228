//! The judged part of a run: which traces are judged, and judging them.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use futures::StreamExt;
use serde_json::{Map, Value};

use crate::judge::{JudgeService, Unjudged, judge_trace};
use crate::metric::{JudgedMetric, Rules, judged_metric};
use crate::output::{RunError, Status};
use crate::run::judging::judgements::{Judgement, Judgements};
use crate::run::judging::request::JudgeRequest;
use crate::run::judging::trace_evidence::trace_evidence;
use crate::run::signals_file::GivenSignals;
use crate::selection::Ranking;
use crate::trace::{DocumentSource, RowAt, TraceDocument, merge_documents};

/// The judged metrics of traces that rules ask for.
pub(crate) fn judged_metrics(rules: &Rules) -> Vec<&'static JudgedMetric> {
    let names = rules.metrics.iter();
    names.filter_map(|name| judged_metric(name)).collect()
}

/// A trace that is judged: its id and its rows.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    trace_id: String,
    rows: usize,
}

/// The traces to judge and where they are, in the order of files.
#[derive(Debug)]
pub(crate) struct Selection {
    /// Rows with a trace id that were looked at.
    pub rows_seen: u64,
    places: Vec<(RowAt, u32)>,
    traces: Vec<Chosen>,
}

impl Selection {
    /// Traces to judge.
    pub fn count(&self) -> usize {
        self.traces.len()
    }
}

/// Whether a trace may be judged: it is one of `passing`, if those are named, and passes the filters.
pub(crate) fn passes(
    request: &JudgeRequest,
    passing: Option<&HashSet<String>>,
    trace_id: &str,
    members: &Map<String, Value>,
) -> bool {
    passing.is_none_or(|passing| passing.contains(trace_id))
        && request.filters.matches_document(trace_id, members)
}

/// Chooses the traces to judge. `passing` are those that pass the condition on signals, if there is one.
pub(crate) fn select(
    request: &JudgeRequest,
    documents: &DocumentSource,
    passing: Option<&HashSet<String>>,
) -> Result<Selection, RunError> {
    let mut rows_seen = 0;
    let mut found: Vec<(String, Vec<RowAt>)> = Vec::new();
    documents.read_facts(|trace_id, members, rows| {
        rows_seen += rows.len() as u64;
        if passes(request, passing, trace_id, members) {
            found.push((trace_id.to_owned(), rows.to_vec()));
        }
    })?;
    let ids: Vec<&str> = found.iter().map(|(id, _)| id.as_str()).collect();
    let kept: HashSet<&str> = Ranking::new(request.seed)
        .sample(ids, request.sample)
        .into_iter()
        .collect();
    let kept: Vec<bool> = found
        .iter()
        .map(|(id, _)| kept.contains(id.as_str()))
        .collect();
    let mut selection = Selection {
        rows_seen,
        places: Vec::new(),
        traces: Vec::new(),
    };
    for ((trace_id, rows), kept) in found.into_iter().zip(kept) {
        if kept {
            let at = selection.traces.len() as u32;
            selection
                .places
                .extend(rows.iter().map(|place| (*place, at)));
            selection.traces.push(Chosen {
                trace_id,
                rows: rows.len(),
            });
        }
    }
    selection.places.sort_unstable_by_key(|(place, _)| *place);
    Ok(selection)
}

/// Judges the chosen traces by all judged metrics of the rules. Signals that were given are not asked for again.
pub(crate) async fn judge_all(
    request: &JudgeRequest,
    rules: &Rules,
    service: &JudgeService,
    documents: Arc<DocumentSource>,
    selection: Selection,
    given: &GivenSignals,
    mut store: Judgements,
) -> Result<Judgements, RunError> {
    let metrics = judged_metrics(rules);
    if let Some(retry) = &request.retry {
        retry.carry(rules, &mut store)?;
    }
    let (sender, mut receiver) =
        tokio::sync::mpsc::channel::<TraceDocument>(2 * request.concurrency.max(1));
    // Files are read by blocking calls, on a thread of their own; at most a few documents wait.
    let reader = tokio::task::spawn_blocking(move || read_chosen(&documents, &selection, sender));
    let arriving = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    let mut judged = arriving
        .map(|document| judge_document(request, rules, service, &metrics, given, document))
        .buffer_unordered(request.concurrency.max(1));
    while let Some(one) = judged.next().await {
        let (trace_id, judgements) = one?;
        store.put(&trace_id, &judgements)?;
    }
    drop(judged);
    let read = reader
        .await
        .map_err(|e| RunError::Plan(format!("reading traces failed: {e}")))?;
    read?;
    Ok(store)
}

/// Reads the chosen traces and hands them on, rows of one trace as one.
pub(crate) fn read_chosen(
    documents: &DocumentSource,
    selection: &Selection,
    sender: tokio::sync::mpsc::Sender<TraceDocument>,
) -> Result<(), RunError> {
    let places: Vec<RowAt> = selection.places.iter().map(|(place, _)| *place).collect();
    let mut open: HashMap<u32, (usize, TraceDocument)> = HashMap::new();
    documents.read(&places, |document| {
        let at = selection
            .places
            .binary_search_by_key(&document.at, |(place, _)| *place);
        let Some(trace) = at
            .ok()
            .and_then(|at| selection.places.get(at))
            .map(|(_, trace)| *trace)
        else {
            return Ok(ControlFlow::Continue(()));
        };
        let Some(chosen) = selection.traces.get(trace as usize) else {
            return Ok(ControlFlow::Continue(()));
        };
        debug_assert_eq!(chosen.trace_id, document.trace_id);
        let whole = match open.remove(&trace) {
            None if chosen.rows == 1 => document,
            None => {
                open.insert(trace, (1, document));
                return Ok(ControlFlow::Continue(()));
            }
            Some((rows, mut earlier)) => {
                merge_documents(&mut earlier.members, document.members);
                if rows + 1 < chosen.rows {
                    open.insert(trace, (rows + 1, earlier));
                    return Ok(ControlFlow::Continue(()));
                }
                earlier
            }
        };
        // Whoever judges has stopped listening: its own error is the one to report.
        match sender.blocking_send(whole) {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(_) => Ok(ControlFlow::Break(())),
        }
    })?;
    Ok(())
}

async fn judge_document(
    request: &JudgeRequest,
    rules: &Rules,
    service: &JudgeService,
    metrics: &[&'static JudgedMetric],
    given: &GivenSignals,
    document: TraceDocument,
) -> Result<(String, Vec<Judgement>), RunError> {
    let TraceDocument {
        trace_id, members, ..
    } = document;
    let asked: Vec<&'static JudgedMetric> = metrics
        .iter()
        .copied()
        .filter(|m| !given.has(&trace_id, m.name))
        .filter(|m| {
            let retry = request.retry.as_ref();
            retry.is_none_or(|retry| retry.asks(&trace_id, m.name))
        })
        .collect();
    if asked.is_empty() {
        return Ok((trace_id, Vec::new()));
    }
    let (most_chars, when_too_long) = (request.most_chars, request.when_too_long);
    // Cutting a very long trace takes a while; calls that are under way must not wait for it.
    let evidence =
        tokio::task::spawn_blocking(move || trace_evidence(members, most_chars, when_too_long));
    let evidence = evidence
        .await
        .map_err(|e| RunError::Plan(format!("a trace could not be prepared: {e}")))?;
    let evidence = evidence.map_err(|e| Unjudged {
        code: crate::question::ContextOverflow::CODE.into(),
        message: e.to_string(),
        pending: false,
        fatal: false,
    });
    let one = |metric: &'static JudgedMetric| {
        let evidence = &evidence;
        async move {
            let outcome = match evidence {
                Ok(evidence) => {
                    let threshold = rules.threshold(metric.name);
                    judge_trace(service, &request.asking, metric, evidence, threshold).await
                }
                Err(e) => Err(e.clone()),
            };
            (metric, outcome)
        }
    };
    let outcomes = futures::future::join_all(asked.into_iter().map(one)).await;
    let mut judgements = Vec::with_capacity(outcomes.len());
    for (metric, outcome) in outcomes {
        let model = request.asking.model_of(metric.name).to_owned();
        judgements.push(match outcome {
            Err(e) if e.fatal => return Err(RunError::Plan(e.message)),
            Ok(judged) => Judgement {
                metric: metric.name.into(),
                status: Status::Success,
                score: Some(judged.score),
                reason: judged.reason.unwrap_or_default(),
                metadata: Value::Object(judged.metadata).to_string(),
                model,
                by_person: false,
            },
            Err(e) => Judgement {
                metric: metric.name.into(),
                status: if e.pending {
                    Status::Pending
                } else {
                    Status::Failed
                },
                score: None,
                reason: e.to_string(),
                metadata: "{}".into(),
                model,
                by_person: false,
            },
        });
    }
    Ok((trace_id, judgements))
}
