//! What judging a run came to.

use serde::Serialize;

use crate::conversation::ConversationSummary;
use crate::judge::batch::BatchCounts;
use crate::judge::{CallCounts, Spend};

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

/// A cap of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CapUse {
    /// The flag: `--max-calls`, `--max-tokens` or `--max-cost`.
    pub flag: &'static str,
    /// The cap: calls, tokens or US dollars.
    pub most: f64,
    /// What is spent of it. Calls whose answers were lost count at their most: they may have been billed.
    pub used: f64,
    /// Whether a call was not sent because it could have passed this cap.
    pub reached: bool,
}
