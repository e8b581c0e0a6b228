//! One trace through one judged metric: its questions become calls, the replies its score.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::answers::Answers;
use super::asker::{Asker, End, LookUp, Question, Seen, Source, Tries};
use super::attempts::{Attempts, JudgeFailed, Outcome, Policy};
use super::call::{Call, CallErrorKind, PromptLabel, Reply, ReplyFormat};
use super::ledger::CallLabel;
use super::service::{JudgeService, Unanswered};
use super::temperature::Temperature;
use crate::metric::{Judged, JudgedMetric, SYSTEM_MESSAGE, Stage, Step};
use crate::question::{Evidence, PromptError, StageReply};

/// How judged trace metrics ask.
#[derive(Clone, Debug)]
pub struct AskingRules {
    /// The model, as in `openai/gpt-4o`.
    pub model: String,
    /// Other models, by metric.
    pub models: BTreeMap<String, String>,
    /// Randomness.
    pub temperature: Temperature,
    /// Most tokens of a reply.
    pub max_output_tokens: u32,
    /// How often and in which form a question is put.
    pub policy: Policy,
    /// Whether metrics share the answers to stages that they have in common.
    pub share_stages: bool,
    /// How often a question is put anew, with all attempts, when its replies can't be used; at least 1. Replies stay in the ledger:
    /// with one round more, a later run asks again where an earlier one got no usable reply.
    pub rounds: u32,
    /// A person asks anew for what could not be used: rounds whose replies are all the ledger's do not count, and one more is put, up
    /// to [`MOST_ROUNDS`](super::MOST_ROUNDS) in all.
    pub anew: bool,
}

impl AskingRules {
    /// The model of a metric.
    pub fn model_of(&self, metric: &str) -> &str {
        self.models.get(metric).unwrap_or(&self.model)
    }

    /// The call that puts a question.
    fn call(
        &self,
        metric: &str,
        stage: &Stage,
        structured: bool,
        (round, put): (u32, u32),
        repair: Option<&str>,
    ) -> Call {
        let mut apart = Vec::new();
        if round > 0 {
            apart.push(format!("round {round}"));
        }
        if put > 0 {
            apart.push(put.to_string());
        }
        if !self.share_stages {
            apart.push(metric.to_owned());
        }
        let user = match repair {
            None => stage.prompt.clone(),
            Some(repair) => format!("{}\n\n{repair}", stage.prompt),
        };
        Call {
            model: self.model_of(metric).to_owned(),
            system: SYSTEM_MESSAGE.into(),
            user,
            format: structured.then(|| ReplyFormat {
                name: stage.prompt_name,
                schema: Arc::new(stage.shape.schema()),
            }),
            temperature: self.temperature.of(self.model_of(metric)),
            max_output_tokens: self.max_output_tokens,
            prompt: PromptLabel {
                name: stage.prompt_name,
                version: stage.prompt_version,
            },
            apart: apart.join(" "),
            body: None,
        }
    }
}

/// Why a trace has no score.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Unjudged {
    /// A code for tables: `judge_failed`, `context_overflow`, …
    pub code: String,
    /// What happened.
    pub message: String,
    /// Nothing was tried: a later run can still judge it.
    pub pending: bool,
    /// The run must stop: its ledger can't be written.
    pub fatal: bool,
}

impl From<PromptError> for Unjudged {
    fn from(broken: PromptError) -> Self {
        Self {
            code: Self::PROMPT.into(),
            message: broken.to_string(),
            pending: false,
            fatal: false,
        }
    }
}

impl Unjudged {
    /// The code of a prompt that can't be filled in.
    const PROMPT: &str = "prompt";

    fn of(unanswered: &Unanswered) -> Self {
        let code = match unanswered {
            Unanswered::Capped(_) => "cap_reached",
            Unanswered::NotInLedger => "not_in_ledger",
            Unanswered::InBatch => "in_batch",
            Unanswered::DeadlinePassed => "deadline_passed",
            Unanswered::AskedElsewhere => "asked_elsewhere",
            Unanswered::Stopped(_) => "judge_stopped",
            Unanswered::Ledger(_) => "ledger",
            Unanswered::Failed { code, .. } => code,
        };
        Self {
            code: code.to_owned(),
            message: match unanswered {
                Unanswered::Failed { message, .. } => message.clone(),
                other => other.to_string(),
            },
            pending: unanswered.pending(),
            fatal: matches!(unanswered, Unanswered::Ledger(_)),
        }
    }
}

/// Scores one trace by one metric.
///
/// # Errors
/// [`Unjudged`]; never a score that is made up.
pub async fn judge_trace(
    service: &JudgeService,
    rules: &AskingRules,
    metric: &JudgedMetric,
    evidence: &Evidence,
    threshold: f64,
) -> Result<Judged, Unjudged> {
    let source = match rules.policy {
        Policy::Production => Source::Service(service),
        // Every failed call counts as a call of the stage.
        Policy::Compat => Source::OneByOne(service),
    };
    judge_from(source, rules, metric, evidence, threshold).await
}

/// How far known answers bring a metric of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    pub seen: Seen,
    /// Whether nothing is left to ask: the metric has its score, or all its tries are used up.
    pub ended: bool,
}

/// Follows a metric of a trace as far as answers are known, without asking anybody.
///
/// # Errors
/// If the ledger can't be read.
pub(crate) fn follow(
    answers: &Answers<'_>,
    rules: &AskingRules,
    metric: &JudgedMetric,
    evidence: &Evidence,
) -> Result<Followed, Unjudged> {
    let look_up = LookUp::new(answers);
    // The threshold decides about success alone, and that is not looked at.
    let judged = judge_from(Source::Ledger(&look_up), rules, metric, evidence, 0.5);
    let ended = match futures::executor::block_on(judged) {
        // A prompt that can't be filled in is a defect, and no answer.
        Err(e) if e.fatal || e.code == Unjudged::PROMPT => return Err(e),
        Err(e) => !e.pending,
        Ok(_) => true,
    };
    let seen = look_up.seen();
    Ok(Followed { seen, ended })
}

async fn judge_from(
    source: Source<'_>,
    rules: &AskingRules,
    metric: &JudgedMetric,
    evidence: &Evidence,
    threshold: f64,
) -> Result<Judged, Unjudged> {
    let asker = Asker {
        source,
        rounds: rules.rounds,
        anew: rules.anew,
    };
    let mut replies: Vec<StageReply> = Vec::new();
    loop {
        match metric.next(evidence, threshold, &replies)? {
            Step::Done(judged) => return Ok(judged),
            Step::Ask(stage) => {
                let question = StageQuestion {
                    rules,
                    metric: metric.name,
                    stage: &stage,
                };
                replies.push(asker.put(&question).await?);
            }
        }
    }
}

/// A stage of a metric as a question.
struct StageQuestion<'q> {
    rules: &'q AskingRules,
    metric: &'static str,
    stage: &'q Stage,
}

impl Question for StageQuestion<'_> {
    type Output = Result<StageReply, Unjudged>;

    fn label(&self) -> CallLabel<'_> {
        CallLabel {
            metric: self.metric,
            stage: self.stage.name,
        }
    }

    fn tries(&self, round: u32) -> impl Tries<Output = Self::Output> {
        StageTries {
            question: self,
            round,
            attempts: Attempts::new(self.rules.policy, self.stage.shape),
            cause: None,
            cut_off: false,
        }
    }
}

struct StageTries<'q> {
    question: &'q StageQuestion<'q>,
    round: u32,
    attempts: Attempts,
    /// The cause of a failed call is more to the point than that there was no usable reply.
    cause: Option<Unjudged>,
    cut_off: bool,
}

impl Tries for StageTries<'_> {
    type Output = Result<StageReply, Unjudged>;

    fn next_call(&mut self) -> ControlFlow<Self::Output, Option<Call>> {
        let Some(form) = self.attempts.next_call() else {
            return ControlFlow::Continue(None);
        };
        let repair = form.repair.as_ref().map(|invalid| invalid.message());
        let repair = match repair.transpose() {
            Ok(repair) => repair,
            Err(e) => return ControlFlow::Break(Err(e.into())),
        };
        let put = (self.round, self.attempts.calls());
        let StageQuestion {
            rules,
            metric,
            stage,
        } = self.question;
        let call = rules.call(metric, stage, form.structured, put, repair.as_deref());
        ControlFlow::Continue(Some(call))
    }

    fn take(&mut self, _: Call, answer: Result<Reply, Unanswered>) -> ControlFlow<Self::Output> {
        let outcome = match answer {
            Ok(reply) => {
                self.cause = None;
                self.cut_off = reply.cut_off;
                Outcome::Answer(reply.text)
            }
            Err(Unanswered::Failed { code, message }) => {
                let failed = Unanswered::Failed {
                    code,
                    message: message.clone(),
                };
                self.cause = Some(Unjudged::of(&failed));
                match code == CallErrorKind::FormatRejected.code() {
                    true => Outcome::FormatRefused(message),
                    false => Outcome::Failed(message),
                }
            }
            Err(unanswered) => return ControlFlow::Break(Err(Unjudged::of(&unanswered))),
        };
        self.attempts.record(outcome);
        ControlFlow::Continue(())
    }

    fn end(self) -> End<Self::Output> {
        let failed = match self.attempts.into_reply() {
            Ok(reply) => return End::Final(Ok(reply)),
            Err(failed) => failed,
        };
        match (self.cause, self.question.rules.policy) {
            // PandaProbe knows one code for all of them.
            (Some(cause), Policy::Production) => End::Final(Err(cause)),
            _ => {
                let hint = match self.cut_off {
                    true => "; it reached the largest size of a reply: raise --judge-max-output",
                    false => "",
                };
                End::Unusable(Err(Unjudged {
                    code: JudgeFailed::CODE.into(),
                    message: format!("{failed}{hint}"),
                    pending: false,
                    fatal: false,
                }))
            }
        }
    }
}
