//! The judged part of a run: which traces are judged, and judging them.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::conversations::{ConversationRequest, ConversationSummary};
use super::judgements::{Judgement, Judgements, Status};
use super::retry::Retry;
use super::signals_file::GivenSignals;
use super::{CapUse, Rules, RunError, cap_use};
use crate::judge::batch::{BatchClient, BatchCounts, BatchDesk, BatchDeskError, BatchLimits};
use crate::judge::{
    AskingRules, BreakerRules, Budget, CallCounts, Caps, Evidence, HttpJudge, Judge, JudgeService,
    JudgedMetric, Ledger, PriceTable, ProviderSettings, RateGate, RateLimits, Retries,
    ServiceParts, Spend, Unjudged, WhenTooLong, endpoint_of, judge_trace, judged_metric,
};
use crate::metric::Method;
use crate::selection::{Ranking, SamplingRate, TraceFilters};
use crate::trace::{DocumentSource, Members, TextAt, TraceDocument, merge_documents};

/// What a run asks judges, and within which bounds.
#[derive(Clone, Debug)]
pub struct JudgeRequest {
    /// Models and how they are asked.
    pub asking: AskingRules,
    /// Where they are asked.
    pub provider: ProviderSettings,
    /// Send nothing; the ledger alone answers.
    pub replay: bool,
    /// How calls go into batches, if they do.
    pub batches: Option<BatchRules>,
    /// The ledger's file.
    pub ledger: PathBuf,
    /// Most that the run may spend.
    pub caps: Caps,
    /// Most in any minute.
    pub limits: RateLimits,
    /// Prices.
    pub prices: PriceTable,
    /// Repeating failed calls.
    pub retries: Retries,
    /// Calls under way at once.
    pub concurrency: usize,
    /// Longest wait for an answer.
    pub timeout: Duration,
    /// Which traces are judged.
    pub filters: TraceFilters,
    /// Which of those, by a condition on their signals.
    pub condition: Option<String>,
    /// How many of those.
    pub sample: SamplingRate,
    /// The seed of the sample.
    pub seed: u64,
    /// Characters of a trace that a prompt takes.
    pub most_chars: usize,
    /// What happens to a longer trace.
    pub when_too_long: WhenTooLong,
    /// How sessions are judged as conversations, if they are.
    pub conversation: Option<ConversationRequest>,
    /// The run whose failures are asked again, if any are.
    pub retry: Option<Arc<Retry>>,
}

/// How calls go into batches.
#[derive(Clone, Copy, Debug)]
pub struct BatchRules {
    /// How long the run waits for results.
    pub wait: Duration,
    /// How often it looks.
    pub poll: Duration,
    /// What a batch file may hold.
    pub limits: BatchLimits,
}

impl JudgeRequest {
    /// The models that these metrics and conversations ask, each once.
    fn models(&self, metrics: &[&'static dyn JudgedMetric]) -> Vec<String> {
        let mut models: Vec<String> = metrics
            .iter()
            .map(|m| self.asking.model_of(m.name()).to_owned())
            .chain(self.conversation.as_ref().map(|c| c.model.clone()))
            .collect();
        models.sort();
        models.dedup();
        models
    }

    /// Everything that decides what judges say and whom they are asked about, for the manifest; no secrets.
    pub(super) fn described(&self) -> Value {
        let conversation = self.conversation.as_ref().map(|c| {
            json!({
                "model": c.model,
                "temperature": c.temperature.of(&c.model),
                "max_output_tokens": c.max_output_tokens,
                "config": c.judge.config(),
            })
        });
        let url = self.provider.url.as_deref();
        let filters = match &self.retry {
            Some(retry) => json!({ "retry_of": retry.id() }),
            None => json!(self.filters),
        };
        json!({
            "model": self.asking.model,
            "models": self.asking.models,
            "url": url.map(|url| self.provider.secrets().scrub(url)),
            "temperature": self.asking.temperature.of(&self.asking.model),
            "max_output_tokens": self.asking.max_output_tokens,
            "policy": self.asking.policy.name(),
            "rounds": self.asking.rounds,
            "shared_stages": self.asking.share_stages,
            "filters": filters,
            "condition": self.condition,
            "sample": self.sample,
            "seed": self.seed,
            "longest_trace": self.most_chars,
            "long_traces": match self.when_too_long {
                WhenTooLong::Fail => "fail",
                WhenTooLong::Cut => "cut",
            },
            "replay": self.replay,
            "batch": self.batches.is_some(),
            "conversation": conversation,
        })
    }

    /// What `once` makes of the answers that there are. Where calls go into batches, again whenever something came back, as long
    /// as the rules let the run wait.
    ///
    /// # Errors
    /// Those of `once`, and [`RunError::Plan`] if batches can't be submitted or collected.
    pub(super) async fn in_rounds<T>(
        &self,
        service: &JudgeService,
        once: impl AsyncFn() -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let Some(batches) = self.batches else {
            return once().await;
        };
        let stopped = |e: BatchDeskError| RunError::Plan(e.to_string());
        let until = Instant::now() + batches.wait;
        service.collect_batches().await.map_err(stopped)?;
        loop {
            let made = once().await?;
            let further = service.go_on_with_batches(until, batches.poll).await;
            // What came back lets later stages be asked.
            if !further.map_err(stopped)? {
                return Ok(made);
            }
        }
    }

    /// The service that answers the calls of a run: of these metrics, and of conversations if they are judged. Checks
    /// providers, keys and prices before anything is sent.
    ///
    /// # Errors
    /// [`RunError::Request`].
    pub(super) fn service(
        &self,
        metrics: &[&'static dyn JudgedMetric],
    ) -> Result<JudgeService, RunError> {
        let models = &self.models(metrics);
        let request = |e: &dyn std::fmt::Display| RunError::Request(e.to_string());
        let client = match self.batches {
            None => None,
            Some(_) => {
                let client = BatchClient::new(self.provider.clone(), models, self.retries);
                Some(client.map_err(|e| request(&e))?)
            }
        };
        let judge: Option<Arc<dyn Judge>> = match self.replay || client.is_some() {
            true => None,
            false => {
                let judge =
                    HttpJudge::new(self.provider.clone(), models).map_err(|e| request(&e))?;
                Some(Arc::new(judge))
            }
        };
        if self.caps.cost.is_some()
            && let Some(model) = models.iter().find(|m| self.prices.of(m).is_none())
        {
            return Err(RunError::Request(format!(
                "--max-cost: no price is known for `{model}`; give one with --price {model}=INPUT:OUTPUT"
            )));
        }
        let ledger = Arc::new(Ledger::open(&self.ledger).map_err(|e| request(&e))?);
        let batches = match client.zip(self.batches) {
            None => None,
            Some((client, rules)) => {
                let (ledger, prices) = (Arc::clone(&ledger), self.prices.clone());
                let desk = BatchDesk::new(client, ledger, prices, rules.limits);
                Some(desk.map_err(|e| request(&e))?)
            }
        };
        let url = self.provider.url.clone();
        Ok(JudgeService::new(ServiceParts {
            judge,
            endpoint: Arc::new(move |model| endpoint_of(model, url.as_deref())),
            ledger,
            batches,
            budget: Budget::new(self.caps),
            gate: RateGate::new(self.limits),
            prices: self.prices.clone(),
            retries: self.retries,
            breaker: BreakerRules::default(),
            concurrency: self.concurrency,
            timeout: self.timeout,
            secrets: self.provider.secrets(),
        }))
    }
}

/// The judged metrics of traces that rules ask for.
pub(super) fn judged_metrics(rules: &Rules) -> Vec<&'static dyn JudgedMetric> {
    let judged = |name: &&String| {
        crate::metric::find(name).is_some_and(|metric| metric.method == Method::Judge)
    };
    rules
        .metrics
        .iter()
        .filter(judged)
        .filter_map(|name| judged_metric(name))
        .collect()
}

/// A trace that is judged: its id and its rows.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    trace_id: String,
    rows: usize,
}

/// The traces to judge and where they are, in the order of files.
#[derive(Debug)]
pub(super) struct Selection {
    /// Rows with a trace id that were looked at.
    pub rows_seen: u64,
    places: Vec<(TextAt, u32)>,
    traces: Vec<Chosen>,
}

impl Selection {
    /// Traces to judge.
    pub fn count(&self) -> usize {
        self.traces.len()
    }

    /// Whether a row belongs to a trace to judge.
    pub fn holds(&self, row: TextAt) -> bool {
        let found = self.places.binary_search_by_key(&row, |(place, _)| *place);
        found.is_ok()
    }
}

/// Chooses the traces to judge. `passing` are those that pass the condition on signals, if there is one; `repeated` says that
/// several rows may make one trace.
pub(super) fn select(
    request: &JudgeRequest,
    documents: &DocumentSource,
    passing: Option<&HashSet<String>>,
    repeated: bool,
) -> Result<Selection, RunError> {
    let mut rows_seen = 0;
    let mut found: Vec<(String, Vec<TextAt>)> = Vec::new();
    // Rows of one trace are looked at together: a later row may change what a filter looks at.
    let mut merging: HashMap<String, (usize, Map<String, Value>)> = HashMap::new();
    documents.read(Members::Facts, None, |document| {
        rows_seen += 1;
        if passing.is_some_and(|passing| !passing.contains(&document.trace_id)) {
            return ControlFlow::Continue(());
        }
        if !repeated {
            let filters = &request.filters;
            if filters.matches_document(&document.trace_id, &document.members) {
                found.push((document.trace_id, vec![document.at]));
            }
            return ControlFlow::Continue(());
        }
        match merging.get_mut(&document.trace_id) {
            Some((at, members)) => {
                found[*at].1.push(document.at);
                merge_documents(members, document.members);
            }
            None => {
                merging.insert(document.trace_id.clone(), (found.len(), document.members));
                found.push((document.trace_id, vec![document.at]));
            }
        }
        ControlFlow::Continue(())
    })?;
    if repeated {
        found.retain(|(id, _)| {
            merging
                .get(id)
                .is_some_and(|(_, members)| request.filters.matches_document(id, members))
        });
    }
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

/// What judging a run came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JudgeSummary {
    /// Traces chosen.
    pub traces: u64,
    /// Ends by metric of traces.
    pub metrics: Vec<JudgedMetricSummary>,
    /// What judging conversations came to, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversations: Option<ConversationSummary>,
    /// Where answers came from.
    pub calls: CallCounts,
    /// What became of batches, if calls go into batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchCounts>,
    /// The caps that were given.
    pub caps: Vec<CapUse>,
    /// What this run sent, by metric; a stage that metrics share is under the one that asked first.
    pub spend: Vec<Spend>,
    /// The day of the shipped prices.
    pub prices_as_of: String,
    /// The ledger's file.
    pub ledger: String,
}

/// Ends of one judged metric.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JudgedMetricSummary {
    /// The metric.
    pub name: String,
    /// The model asked.
    pub model: String,
    /// Traces with a score.
    pub judged: u64,
    /// Traces for which it failed.
    pub failed: u64,
    /// Traces for which it was not tried.
    pub pending: u64,
}

/// Judges the chosen traces by all judged metrics of the rules. Signals that were given are not asked for again.
pub(super) async fn judge_all(
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
pub(super) fn read_chosen(
    documents: &DocumentSource,
    selection: &Selection,
    sender: tokio::sync::mpsc::Sender<TraceDocument>,
) -> Result<(), RunError> {
    let places: Vec<TextAt> = selection.places.iter().map(|(place, _)| *place).collect();
    let mut open: HashMap<u32, (usize, TraceDocument)> = HashMap::new();
    documents.read(Members::All, Some(&places), |document| {
        let at = selection
            .places
            .binary_search_by_key(&document.at, |(place, _)| *place);
        let Some(trace) = at
            .ok()
            .and_then(|at| selection.places.get(at))
            .map(|(_, trace)| *trace)
        else {
            return ControlFlow::Continue(());
        };
        let Some(chosen) = selection.traces.get(trace as usize) else {
            return ControlFlow::Continue(());
        };
        debug_assert_eq!(chosen.trace_id, document.trace_id);
        let whole = match open.remove(&trace) {
            None if chosen.rows == 1 => document,
            None => {
                open.insert(trace, (1, document));
                return ControlFlow::Continue(());
            }
            Some((rows, mut earlier)) => {
                merge_documents(&mut earlier.members, document.members);
                if rows + 1 < chosen.rows {
                    open.insert(trace, (rows + 1, earlier));
                    return ControlFlow::Continue(());
                }
                earlier
            }
        };
        // Whoever judges has stopped listening: its own error is the one to report.
        match sender.blocking_send(whole) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    Ok(())
}

async fn judge_document(
    request: &JudgeRequest,
    rules: &Rules,
    service: &JudgeService,
    metrics: &[&'static dyn JudgedMetric],
    given: &GivenSignals,
    document: TraceDocument,
) -> Result<(String, Vec<Judgement>), RunError> {
    let TraceDocument {
        trace_id, members, ..
    } = document;
    let asked: Vec<&'static dyn JudgedMetric> = metrics
        .iter()
        .copied()
        .filter(|m| !given.has(&trace_id, m.name()))
        .filter(|m| {
            let retry = request.retry.as_ref();
            retry.is_none_or(|retry| retry.asks(&trace_id, m.name()))
        })
        .collect();
    if asked.is_empty() {
        return Ok((trace_id, Vec::new()));
    }
    let (most_chars, when_too_long) = (request.most_chars, request.when_too_long);
    // Cutting a very long trace takes a while; calls that are under way must not wait for it.
    let evidence = tokio::task::spawn_blocking(move || {
        Evidence::new(&Value::Object(members), most_chars, when_too_long)
    });
    let evidence = evidence
        .await
        .map_err(|e| RunError::Plan(format!("a trace could not be prepared: {e}")))?;
    let evidence = evidence.map_err(|e| Unjudged {
        code: crate::judge::ContextOverflow::CODE.into(),
        message: e.to_string(),
        pending: false,
        fatal: false,
    });
    let one = |metric: &'static dyn JudgedMetric| {
        let evidence = &evidence;
        async move {
            let outcome = match evidence {
                Ok(evidence) => {
                    let threshold = rules.threshold(metric.name());
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
        let model = request.asking.model_of(metric.name()).to_owned();
        judgements.push(match outcome {
            Err(e) if e.fatal => return Err(RunError::Plan(e.message)),
            Ok(judged) => Judgement {
                metric: metric.name().into(),
                status: Status::Success,
                score: Some(judged.score),
                reason: judged.reason.unwrap_or_default(),
                metadata: Value::Object(judged.metadata).to_string(),
                model,
            },
            Err(e) => Judgement {
                metric: metric.name().into(),
                status: if e.pending {
                    Status::Pending
                } else {
                    Status::Failed
                },
                score: None,
                reason: e.to_string(),
                metadata: "{}".into(),
                model,
            },
        });
    }
    Ok((trace_id, judgements))
}

/// What became of batches, if calls go into batches.
pub(super) fn batch_counts(service: &JudgeService) -> Result<Option<BatchCounts>, RunError> {
    let counts = service.batches();
    counts.map_err(|e| RunError::Plan(e.to_string()))
}

/// The summary of a judged run. `store` holds what was said of traces, if any metric of traces was asked for.
pub(super) fn summarise(
    request: &JudgeRequest,
    rules: &Rules,
    service: &JudgeService,
    traces: usize,
    store: Option<&Judgements>,
    conversations: Option<ConversationSummary>,
) -> Result<JudgeSummary, RunError> {
    let metrics = judged_metrics(rules).into_iter().map(|metric| {
        let ends = store.and_then(|store| store.ends.get(metric.name()).copied());
        let ends = ends.unwrap_or_default();
        JudgedMetricSummary {
            name: metric.name().into(),
            model: request.asking.model_of(metric.name()).into(),
            judged: ends.judged,
            failed: ends.failed,
            pending: ends.pending,
        }
    });
    let spend = service
        .ledger()
        .spend()
        .map_err(|e| RunError::Plan(e.to_string()))?;
    Ok(JudgeSummary {
        traces: request.retry.as_ref().map_or(traces, |r| r.chosen()) as u64,
        metrics: metrics.collect(),
        conversations,
        calls: service.counts(),
        batches: batch_counts(service)?,
        caps: cap_use::caps_of(request, service, store)?,
        spend,
        prices_as_of: request.prices.as_of.clone(),
        ledger: service.ledger().path().display().to_string(),
    })
}
