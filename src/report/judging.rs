//! What the report says of judges.

use serde_json::{Value, json};

use crate::conversation::{Breakdown, ConversationSummary};
use crate::judge::Spend;
use crate::metric::CONVERSATION;
use crate::summary::Summary;

/// What judges did in a run, as the template shows it; null without judges.
pub(super) fn judging(summary: &Summary) -> Value {
    let Some(judge) = &summary.judge else {
        return Value::Null;
    };
    let of_traces = judge
        .metrics
        .iter()
        .map(|m| (&m.name, &m.model, m.judged, m.failed, m.pending));
    let conversation = CONVERSATION.to_owned();
    let of_sessions = judge
        .conversations
        .iter()
        .map(|c| (&conversation, &c.model, c.judged, c.failed, c.pending));
    let metrics: Vec<Value> = of_traces
        .chain(of_sessions)
        .map(|(name, model, judged, failed, pending)| {
            let spread = summary.metrics.iter().find(|m| m.name == *name);
            let spend = judge.spend.iter().find(|spend| spend.metric == *name);
            let spend = spend.cloned().unwrap_or_default();
            json!({
                "name": name,
                "model": model,
                "judged": judged,
                "failed": failed,
                "pending": pending,
                "mean": spread.and_then(|m| m.mean),
                "p10": spread.and_then(|m| m.p10),
                "median": spread.and_then(|m| m.median),
                "p90": spread.and_then(|m| m.p90),
                "sent": spend.attempts,
                "tokens": tokens(&spend),
                "cost": spend.cost,
                "unpriced": spend.unpriced,
            })
        })
        .collect();
    json!({
        "traces": judge.traces,
        "passed_by_none": judge.passed_by_none,
        "stopped": judge.stopped,
        "calls": judge.calls,
        "tokens": judge.spend.iter().map(tokens).sum::<u64>(),
        // The sum of nothing is a negative zero.
        "cost": judge.spend.iter().map(|spend| spend.cost).sum::<f64>() + 0.0,
        "unpriced": judge.spend.iter().map(|spend| spend.unpriced).sum::<u64>(),
        "prices_as_of": judge.prices_as_of,
        "ledger": judge.ledger,
        "metrics": metrics,
        "caps": judge.caps,
        "batches": judge.batches,
        "conversations": judge.conversations.as_ref().map(conversations),
    })
}

fn tokens(spend: &Spend) -> u64 {
    spend.prompt_tokens + spend.completion_tokens
}

fn conversations(c: &ConversationSummary) -> Value {
    let mut metrics: Vec<&Breakdown> = c.metrics.iter().collect();
    metrics.sort_by(|a, b| a.average_score.total_cmp(&b.average_score));
    let metrics = metrics.into_iter().map(|m| {
        json!({
            "name": m.metric.as_deref().unwrap_or_default(),
            "tier": m.tier.name(),
            "average": m.average_score,
            "passed": m.passed_count,
            "failed": m.failed_count,
            "codes": m.failure_codes,
        })
    });
    json!({
        "count": c.conversations,
        "judged": c.judged,
        "failed": c.failed,
        "pending": c.pending,
        "passed": c.passed,
        "average": c.average,
        "bar": c.run.pass_threshold,
        "pass_rate": c.run.cases_pass_rate_pct,
        "metrics": metrics.collect::<Vec<_>>(),
    })
}
