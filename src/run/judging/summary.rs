//! What judging a run came to.

use crate::conversation::ConversationSummary;
use crate::judge::JudgeService;
use crate::judge::batch::BatchCounts;
use crate::metric::Rules;
use crate::output::RunError;
use crate::run::judging::cap_use;
use crate::run::judging::judgements::Judgements;
use crate::run::judging::request::JudgeRequest;
use crate::run::judging::traces::judged_metrics;
use crate::summary::{JudgeSummary, JudgedMetricSummary};

/// What became of batches, if calls go into batches.
pub(crate) fn batch_counts(service: &JudgeService) -> Result<Option<BatchCounts>, RunError> {
    let counts = service.batches();
    counts.map_err(|e| RunError::Plan(e.to_string()))
}

/// The summary of a judged run. `store` holds what was said of traces, if any metric of traces was asked for.
pub(crate) fn summarise(
    request: &JudgeRequest,
    rules: &Rules,
    service: &JudgeService,
    traces: usize,
    store: Option<&Judgements>,
    conversations: Option<ConversationSummary>,
) -> Result<JudgeSummary, RunError> {
    let metrics = judged_metrics(rules).into_iter().map(|metric| {
        let ends = store.and_then(|store| store.ends.get(metric.name).copied());
        let ends = ends.unwrap_or_default();
        JudgedMetricSummary {
            name: metric.name.into(),
            model: request.asking.model_of(metric.name).into(),
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
        caps: cap_use::caps_of(request, service, store),
        spend,
        prices_as_of: request.prices.as_of.clone(),
        ledger: service.ledger().path().display().to_string(),
    })
}
