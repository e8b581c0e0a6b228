//! One judged conversation.

use crate::conversation::{Case, CaseLatency, Difficulty, TokenUsage, Verdict, case_passed};
use crate::judge::{CallHash, Taken, Usage};
use crate::output::Status;
use crate::trace::SessionKey;

/// What the judge said of one session, or why it said nothing.
#[derive(Debug)]
pub(crate) struct JudgedConversation {
    pub key: SessionKey,
    pub test_case: String,
    pub repetition_index: i32,
    /// None where the session comes from a table of turns.
    pub traces: Option<usize>,
    pub turns: usize,
    /// What was recorded of the conversation earlier.
    pub recorded: Recorded,
    pub latency: CaseLatency,
    /// All known latencies of assistant turns together, in milliseconds; none if none is known.
    pub total_latency_ms: Option<i64>,
    /// Success exactly where the verdict has scores.
    pub status: Status,
    /// `None` where the session was not judged.
    pub verdict: Option<Verdict>,
    /// What stands out, or what went wrong.
    pub reason: String,
    /// Of the last call that was answered, failed or is still to be made; none where there is nothing to ask.
    pub request_hash: Option<CallHash>,
    /// Where the judge answered.
    pub answer: Option<Answer>,
}

/// What a case says of the conversation itself. Sessions of traces have nothing of it.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    /// The name for people.
    pub name: Option<String>,
    pub difficulty: Option<Difficulty>,
    /// Empty if none were given.
    pub tags: Vec<String>,
    /// Why the conversation failed; never blank.
    pub error: Option<String>,
    pub agent_token_usage: Option<TokenUsage>,
    pub platform_token_usage: Option<TokenUsage>,
    /// In US dollars.
    pub agent_cost_usd: Option<f64>,
    /// In US dollars.
    pub platform_cost_usd: Option<f64>,
    pub agent_system_prompt: Option<String>,
    /// JSON text.
    pub agent_tools: Option<String>,
}

impl Recorded {
    pub fn take(case: &mut Case) -> Self {
        Self {
            name: case.name.take(),
            difficulty: case.difficulty,
            tags: std::mem::take(&mut case.tags),
            error: case.error.take().filter(|error| !error.trim().is_empty()),
            agent_token_usage: case.agent_token_usage.take(),
            platform_token_usage: case.platform_token_usage.take(),
            agent_cost_usd: case.agent_cost_usd,
            platform_cost_usd: case.platform_cost_usd,
            agent_system_prompt: case.agent_system_prompt.take(),
            agent_tools: case.agent_tools.take(),
        }
    }

    /// The known costs together.
    pub fn cost_usd(&self) -> Option<f64> {
        known_cost(self.agent_cost_usd, self.platform_cost_usd)
    }
}

/// The known ones of two costs together; none if neither is known.
pub(crate) fn known_cost(agent: Option<f64>, platform: Option<f64>) -> Option<f64> {
    match (agent, platform) {
        (Some(agent), Some(platform)) => Some(agent + platform),
        (agent, platform) => agent.or(platform),
    }
}

/// Facts of the judge's answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The model that the provider names.
    pub model: String,
    pub usage: Option<Usage>,
    pub taken: Taken,
}

impl JudgedConversation {
    /// The overall score from 0 to 1; none without scores of metrics.
    pub fn score(&self) -> Option<f64> {
        let verdict = self.verdict.as_ref();
        let verdict = verdict.filter(|_| self.status == Status::Success)?;
        Some(verdict.overall_score / 100.0)
    }

    /// Whether the case passed; undecided while the judge was not asked.
    pub fn case_passed(&self) -> Option<bool> {
        (self.status != Status::Pending).then(|| case_passed(self.verdict.as_ref()))
    }
}
