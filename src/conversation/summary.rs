//! What all judged conversations of a run came to.

use serde::Serialize;

use crate::conversation::agent::{Agent, Agreement};
use crate::conversation::from_tables::TableCounts;
use crate::conversation::judged::JudgedConversation;
use crate::conversation::request::ConversationRequest;
use crate::conversation::{
    Breakdown, CaseResult, MetricScore, RunBars, RunSummary, by_metric, by_tier, summarise,
};
use crate::metric::round4;
use crate::output::{Distribution, Status};

/// What judging conversations came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ConversationSummary {
    /// The model asked.
    pub model: String,
    /// Sessions chosen.
    pub conversations: u64,
    /// Sessions with scores.
    pub judged: u64,
    /// Sessions for which the judge failed, or that have no text.
    pub failed: u64,
    /// Sessions for which the judge was not asked.
    pub pending: u64,
    /// Why conversations have no score: reasons with how many have them, the commonest first; at most five.
    pub without_score: Vec<(String, u64)>,
    /// Sessions that passed.
    pub passed: u64,
    /// Mean overall score of those with scores, 0 to 100.
    pub average: Option<f64>,
    /// All figures, as in the table `run_summary`. Its `avg_overall_score` counts failures of the judge as 0.
    pub run: RunSummary,
    /// By metric.
    pub metrics: Vec<Breakdown>,
    /// By tier.
    pub tiers: Vec<Breakdown>,
    /// The agent, as far as the conversations agree.
    pub agent: Agent,
    /// What the tables held, where conversations come from a table of turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tables: Option<TableCounts>,
}

impl ConversationSummary {
    /// Whether every chosen session has scores.
    pub fn complete(&self) -> bool {
        self.failed == 0 && self.pending == 0
    }
}

/// The five commonest reasons, the commonest first.
fn commonest(reasons: std::collections::BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let mut reasons: Vec<(String, u64)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    reasons.truncate(5);
    reasons
}

/// Counts over all conversations of a run.
#[derive(Default)]
pub(crate) struct Tally {
    /// Why there is no score, and how often.
    reasons: std::collections::BTreeMap<String, u64>,
    judged: u64,
    failed: u64,
    pending: u64,
    distribution: Distribution,
    results: Vec<CaseResult>,
    scores: Vec<MetricScore>,
    agent: Agreement,
}

impl Tally {
    pub fn add(&mut self, one: &JudgedConversation, threshold: f64) {
        match (one.score(), one.status) {
            (Some(score), _) => {
                self.judged += 1;
                self.distribution.add(round4(score), threshold);
            }
            (None, Status::Pending) => self.pending += 1,
            (None, _) => {
                self.failed += 1;
                self.distribution.add_failure();
            }
        }
        if one.score().is_none() {
            *self.reasons.entry(one.reason.clone()).or_default() += 1;
        }
        self.agent.add(&one.recorded);
        let verdict = one.verdict.as_ref();
        self.results.push(CaseResult {
            test_case: one.test_case.clone(),
            case_passed: one.case_passed(),
            overall_score: verdict.map(|v| v.overall_score),
            judge_error: verdict.and_then(|v| v.judge_error),
            agent_latency_p50_ms: one.latency.agent_latency_p50_ms,
            error: one.recorded.error.clone(),
            agent_token_usage: one.recorded.agent_token_usage.clone(),
            platform_token_usage: one.recorded.platform_token_usage.clone(),
            agent_cost_usd: one.recorded.agent_cost_usd,
            platform_cost_usd: one.recorded.platform_cost_usd,
            estimated_cost_usd: one.recorded.cost_usd(),
        });
        let scores = verdict.into_iter().flat_map(|v| &v.metric_scores);
        self.scores.extend(scores.map(|score| MetricScore {
            // The longest parts, and of no use to figures.
            justification: String::new(),
            turns: Vec::new(),
            metric: score.metric.clone(),
            failure_code: score.failure_code.clone(),
            ..*score
        }));
    }

    pub fn finish(self, request: &ConversationRequest) -> (ConversationSummary, Distribution) {
        let bars = RunBars {
            pass_threshold: request.judge.config().pass_threshold,
            ..request.bars
        };
        let run = summarise(&self.results, &bars);
        let summary = ConversationSummary {
            model: request.model.clone(),
            conversations: self.results.len() as u64,
            judged: self.judged,
            without_score: commonest(self.reasons),
            failed: self.failed,
            pending: self.pending,
            passed: run.passed_count as u64,
            average: run.avg_judged_score,
            metrics: by_metric(&self.scores),
            tiers: by_tier(&self.scores),
            agent: self.agent.found(),
            tables: None,
            run,
        };
        (summary, self.distribution)
    }
}
