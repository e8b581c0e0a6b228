//! What judging a run came to.

use serde::Serialize;

use crate::judge::batch::BatchCounts;
use crate::judge::{CallCounts, JudgeService, Spend};
use crate::run::conversations::ConversationSummary;
use crate::run::judging::cap_use;
use crate::run::judging::judgements::Judgements;
use crate::run::judging::request::JudgeRequest;
use crate::run::judging::traces::judged_metrics;
use crate::run::{CapUse, Rules, RunError};

/// What judging a run came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JudgeSummary {
    /// Traces chosen.
    pub traces: u64,
    /// The flags that no trace passed, if that is why none was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed_by_none: Option<String>,
    /// Why endpoints or models were not asked any more, in one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<String>,
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

/// What became of batches, if calls go into batches.
pub(in crate::run) fn batch_counts(
    service: &JudgeService,
) -> Result<Option<BatchCounts>, RunError> {
    let counts = service.batches();
    counts.map_err(|e| RunError::Plan(e.to_string()))
}

/// The summary of a judged run. `store` holds what was said of traces, if any metric of traces was asked for.
pub(in crate::run) fn summarise(
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
        passed_by_none: None,
        stopped: service.stops(),
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
