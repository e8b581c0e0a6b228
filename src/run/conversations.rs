//! Conversations judged: one call each, from the transcript to the verdict. They come from sessions of traces or from a
//! table of turns.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use futures::StreamExt;
use serde::Serialize;

use super::conversation_rows::{ConversationScores, ConversationTables};
use super::conversation_sessions::{ChosenSession, Conversation, SessionKey, read_conversations};
use super::judgements::Status;
use super::tabled_sessions::TableCounts;
use super::{Distribution, Rules, RunDirectory, RunError};
use crate::judge::Temperature;
use crate::judge::conversation::{
    Breakdown, Case, CaseLatency, CaseResult, ConversationJudge, JudgeError, MetricScore,
    NotJudged, Request, RequestError, Role, RunBars, RunSummary, SCHEMA_NAME, SchemaPlace,
    TokenUsage, Turn, Verdict, by_metric, by_tier, case_passed, not_judged, prompt_versions,
    summarise,
};
use crate::judge::{
    Call, CallErrorKind, CallHash, CallLabel, JudgeService, PromptLabel, Reply, ReplyFormat, Taken,
    Unanswered, Usage,
};
use crate::metric::{CONVERSATION, round4};
use crate::trace::DocumentSource;

/// Results are written in the order of sessions. So that one slow answer does not hold up all others, this many times
/// the calls that may be under way can wait for their turn.
const WAITING_PER_CALL: usize = 4;

const LABEL: CallLabel<'static> = CallLabel {
    metric: CONVERSATION,
    stage: "score",
};

/// How conversations are judged.
#[derive(Clone, Debug)]
pub struct ConversationRequest {
    /// Metrics with their weights, and the prompts.
    pub judge: ConversationJudge,
    /// The bars of the run.
    pub bars: RunBars,
    /// The model, as in `openai/gpt-4o`.
    pub model: String,
    /// Randomness.
    pub temperature: Temperature,
    /// Most tokens of a reply.
    pub max_output_tokens: u32,
    /// How often a judge whose reply can't be used is asked, at least 1; see [`crate::judge::AskingRules::rounds`].
    pub rounds: u32,
}

impl ConversationRequest {
    /// The call that asks for a verdict.
    pub(super) fn call(&self, request: Request, place: SchemaPlace, round: u32) -> Call {
        let Request {
            system,
            user,
            schema,
            ..
        } = request;
        Call {
            model: self.model.clone(),
            system: system.into(),
            user,
            format: match place {
                SchemaPlace::ResponseFormat => Some(ReplyFormat {
                    name: SCHEMA_NAME,
                    schema: Arc::new(schema),
                }),
                SchemaPlace::Prompt => None,
            },
            temperature: self.temperature.of(&self.model),
            max_output_tokens: self.max_output_tokens,
            prompt: PromptLabel {
                name: CONVERSATION,
                // Counts up when either of the two texts changes.
                version: prompt_versions().iter().sum(),
            },
            apart: match round {
                0 => String::new(),
                round => format!("round {round}"),
            },
        }
    }
}

/// What the judge said of one session, or why it said nothing.
#[derive(Debug)]
pub(super) struct JudgedConversation {
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
    /// Where the judge answered.
    pub answer: Option<Answer>,
}

/// What a case says of the conversation itself.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub error: Option<String>,
    pub agent_token_usage: Option<TokenUsage>,
    pub platform_token_usage: Option<TokenUsage>,
    /// In US dollars.
    pub agent_cost_usd: Option<f64>,
    /// In US dollars.
    pub platform_cost_usd: Option<f64>,
}

impl Recorded {
    fn take(case: &mut Case) -> Self {
        Self {
            error: case.error.take(),
            agent_token_usage: case.agent_token_usage.take(),
            platform_token_usage: case.platform_token_usage.take(),
            agent_cost_usd: case.agent_cost_usd,
            platform_cost_usd: case.platform_cost_usd,
        }
    }

    /// The known costs together.
    fn cost_usd(&self) -> Option<f64> {
        match (self.agent_cost_usd, self.platform_cost_usd) {
            (Some(agent), Some(platform)) => Some(agent + platform),
            (agent, platform) => agent.or(platform),
        }
    }
}

/// Facts of the judge's answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// The model that the provider names.
    pub model: String,
    pub usage: Option<Usage>,
    pub taken: Taken,
    /// Of the call that was answered.
    pub hash: CallHash,
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

/// Judged conversations, whose tables are written.
#[derive(Debug)]
pub(super) struct Conversations {
    pub summary: ConversationSummary,
    pub distribution: Distribution,
    /// Still to be put behind the scores of traces and sessions.
    pub scores: ConversationScores,
}

/// Judges sessions of traces, each as one conversation, and writes their tables in the order of the sessions.
pub(super) async fn judge_all(
    request: &ConversationRequest,
    concurrency: usize,
    rules: &Rules,
    service: &JudgeService,
    documents: Arc<DocumentSource>,
    sessions: Vec<ChosenSession>,
    run: &RunDirectory,
) -> Result<Conversations, RunError> {
    tracing::info!(conversations = sessions.len(), "judging conversations");
    let read = move |each: &mut Listener<'_>| read_conversations(&documents, &sessions, each);
    judge_each(request, concurrency, rules, service, read, run).await
}

/// Takes a conversation and says whether to go on.
pub(super) type Listener<'l> = dyn FnMut(Conversation) -> ControlFlow<()> + 'l;

/// Judges the conversations that `read` hands out, and writes their tables in that order. A few of them are in memory at
/// once: reading waits for judging.
pub(super) async fn judge_each(
    request: &ConversationRequest,
    concurrency: usize,
    rules: &Rules,
    service: &JudgeService,
    read: impl FnOnce(&mut Listener<'_>) -> Result<(), RunError> + Send + 'static,
    run: &RunDirectory,
) -> Result<Conversations, RunError> {
    let mut tables = ConversationTables::create(run, rules, request)?;
    let mut tally = Tally::default();
    let waiting = WAITING_PER_CALL * concurrency.max(1);
    let (sender, mut receiver) = tokio::sync::mpsc::channel::<Conversation>(waiting);
    // Files are read by blocking calls, on a thread of their own.
    let reader = tokio::task::spawn_blocking(move || {
        read(&mut |conversation| {
            // Whoever judges has stopped listening: its own error is the one to report.
            match sender.blocking_send(conversation) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        })
    });
    let format_refused = AtomicBool::new(false);
    let arriving = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    // The service bounds the calls that are under way.
    let mut judged = arriving
        .map(|conversation| judge_one(request, service, &format_refused, conversation))
        .buffered(waiting);
    while let Some(one) = judged.next().await {
        let one = one?;
        tally.add(&one, rules.threshold(CONVERSATION));
        tables.push(one)?;
    }
    drop(judged);
    let read = reader
        .await
        .map_err(|e| RunError::Plan(format!("reading sessions failed: {e}")))?;
    read?;
    let (summary, distribution) = tally.finish(request);
    let scores = tables.finish(run, &summary.run)?;
    Ok(Conversations {
        summary,
        distribution,
        scores,
    })
}

async fn judge_one(
    request: &ConversationRequest,
    service: &JudgeService,
    format_refused: &AtomicBool,
    conversation: Conversation,
) -> Result<JudgedConversation, RunError> {
    let Conversation {
        key,
        traces,
        mut case,
        turns,
        set_aside,
    } = conversation;
    let asked = match (not_judged(&case, &turns), set_aside) {
        (Some(NotJudged::Failed), _) => {
            let error = case.error.as_deref().unwrap_or_default();
            Asked::Nothing(format!("the session itself failed: {error}"))
        }
        (_, Some(why)) => Asked::Nothing(why),
        (Some(NotJudged::NoTurns), None) => {
            Asked::Nothing("the session has no text to judge".to_owned())
        }
        (None, None) => {
            let mut round = 0;
            loop {
                let asked = ask(request, service, format_refused, &case, &turns, round).await?;
                let unusable = |reply: &Reply| {
                    let verdict = request.judge.verdict(&case, &turns, Ok(&reply.text));
                    verdict.judge_error.is_some()
                };
                match &asked {
                    Asked::Answered(reply, _) if round + 1 < request.rounds && unusable(reply) => {
                        round += 1;
                    }
                    _ => break asked,
                }
            }
        }
    };
    let verdict_on = |reply: Result<&str, JudgeError>| request.judge.verdict(&case, &turns, reply);
    let (status, verdict, reason, answer) = match asked {
        Asked::Nothing(why) => (Status::Failed, None, why, None),
        Asked::Pending(why) => (Status::Pending, None, why, None),
        Asked::Failed(fault, why) => (Status::Failed, Some(verdict_on(Err(fault))), why, None),
        Asked::Answered(reply, hash) => {
            let verdict = verdict_on(Ok(reply.text.as_str()));
            let (status, reason) = match verdict.judge_error {
                None => (Status::Success, reason_of(&verdict)),
                Some(fault) if reply.cut_off => (
                    Status::Failed,
                    format!("{fault}; it ends at its largest size, raise --judge-max-output"),
                ),
                Some(fault) => (Status::Failed, fault.to_string()),
            };
            let taken = service.ledger().taken(&hash);
            let taken = taken.map_err(|e| RunError::Plan(e.to_string()))?;
            let answer = Answer {
                model: reply.model,
                usage: reply.usage,
                taken: taken.unwrap_or_default(),
                hash,
            };
            (status, Some(verdict), reason, Some(answer))
        }
    };
    Ok(JudgedConversation {
        recorded: Recorded::take(&mut case),
        test_case: case.test_case().to_owned(),
        repetition_index: case.repetition_index,
        key,
        traces,
        turns: turns.len(),
        latency: CaseLatency::of_turns(&turns),
        total_latency_ms: total_latency(&turns),
        status,
        verdict,
        reason,
        answer,
    })
}

fn total_latency(turns: &[Turn]) -> Option<i64> {
    let spoken = turns.iter().filter(|turn| turn.role == Role::Assistant);
    let known = spoken.filter_map(|turn| turn.latency_ms);
    known.reduce(i64::saturating_add)
}

/// What came of asking.
enum Asked {
    /// There is nothing to ask about, and why.
    Nothing(String),
    Answered(Reply, CallHash),
    /// The judge failed for good, and what happened.
    Failed(JudgeError, String),
    /// The judge was not asked, and why.
    Pending(String),
}

/// Asks for the verdict. A provider that does not take the reply's schema as a format gets it in the prompt, now and for
/// the rest of the run.
async fn ask(
    request: &ConversationRequest,
    service: &JudgeService,
    format_refused: &AtomicBool,
    case: &Case,
    turns: &[Turn],
    round: u32,
) -> Result<Asked, RunError> {
    let mut place = match format_refused.load(Relaxed) {
        true => SchemaPlace::Prompt,
        false => SchemaPlace::ResponseFormat,
    };
    loop {
        let built = match request.judge.request(case, turns, place) {
            Ok(built) => built,
            Err(e @ RequestError::TooLong { .. }) => {
                return Ok(Asked::Failed(JudgeError::TranscriptTooLong, e.to_string()));
            }
            Err(e @ RequestError::Prompt(_)) => return Err(RunError::Plan(e.to_string())),
        };
        let call = request.call(built, place, round);
        let unanswered = match service.answer(&call, LABEL).await {
            Ok(reply) => return Ok(Asked::Answered(reply, service.hash(&call))),
            Err(unanswered) => unanswered,
        };
        let in_format = place == SchemaPlace::ResponseFormat;
        match &unanswered {
            Unanswered::Ledger(problem) => return Err(RunError::Plan(problem.clone())),
            Unanswered::Failed { code, .. }
                if in_format && *code == CallErrorKind::FormatRejected.code() =>
            {
                format_refused.store(true, Relaxed);
            }
            // Without a judge to ask, nothing says in which form an earlier run was answered.
            Unanswered::NotInLedger if in_format => {}
            Unanswered::Failed { .. } => {
                return Ok(Asked::Failed(
                    JudgeError::LlmCallFailed,
                    unanswered.to_string(),
                ));
            }
            Unanswered::Capped(_) | Unanswered::NotInLedger | Unanswered::InBatch => {
                return Ok(Asked::Pending(unanswered.to_string()));
            }
        }
        place = SchemaPlace::Prompt;
    }
}

/// The highlights of a verdict in words.
fn reason_of(verdict: &Verdict) -> String {
    let highlights = &verdict.highlights;
    let named = |what: &str, at: &crate::judge::conversation::Highlight| {
        format!("{what} {} ({} of 5)", at.metric, at.score)
    };
    let weakest = highlights.weakest.iter().map(|at| named("weakest", at));
    let strongest = highlights.strongest.iter().map(|at| named("strongest", at));
    let failed = highlights.failed_binary.iter();
    let failed = failed.map(|metric| format!("failed {metric}"));
    let parts: Vec<String> = weakest.chain(failed).chain(strongest).collect();
    match parts.is_empty() {
        true => "no metric stands out".to_owned(),
        false => parts.join(", "),
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
struct Tally {
    /// Why there is no score, and how often.
    reasons: std::collections::BTreeMap<String, u64>,
    judged: u64,
    failed: u64,
    pending: u64,
    distribution: Distribution,
    results: Vec<CaseResult>,
    scores: Vec<MetricScore>,
}

impl Tally {
    fn add(&mut self, one: &JudgedConversation, threshold: f64) {
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

    fn finish(self, request: &ConversationRequest) -> (ConversationSummary, Distribution) {
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
            tables: None,
            run,
        };
        (summary, self.distribution)
    }
}

#[cfg(test)]
mod tests;
