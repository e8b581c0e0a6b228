//! One trace through one judged metric: its questions become calls, the replies its score.

mod known;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use known::{Followed, Known};

use super::attempts::{Attempts, JudgeFailed, Outcome, Policy};
use super::call::{Call, CallErrorKind, PromptLabel, ReplyFormat};
use super::evidence::Evidence;
use super::judged_metric::{Judged, JudgedMetric, Question, SYSTEM_MESSAGE, Step};
use super::ledger::CallLabel;
use super::prompt::PromptError;
use super::reply_shape::StageReply;
use super::service::{JudgeService, Unanswered};
use super::temperature::Temperature;

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
    /// to [`MOST_ROUNDS`] in all.
    pub anew: bool,
}

/// Most rounds of a question that are ever looked at.
pub const MOST_ROUNDS: u32 = 100;

impl AskingRules {
    /// The model of a metric.
    pub fn model_of(&self, metric: &str) -> &str {
        self.models.get(metric).unwrap_or(&self.model)
    }

    /// The call that puts a question.
    fn call(
        &self,
        metric: &str,
        question: &Question,
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
            None => question.prompt.clone(),
            Some(repair) => format!("{}\n\n{repair}", question.prompt),
        };
        Call {
            model: self.model_of(metric).to_owned(),
            system: SYSTEM_MESSAGE.into(),
            user,
            format: structured.then(|| ReplyFormat {
                name: question.prompt_name,
                schema: Arc::new(question.shape.schema()),
            }),
            temperature: self.temperature.of(self.model_of(metric)),
            max_output_tokens: self.max_output_tokens,
            prompt: PromptLabel {
                name: question.prompt_name,
                version: question.prompt_version,
            },
            apart: apart.join(" "),
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

impl Unjudged {
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
    metric: &dyn JudgedMetric,
    evidence: &Evidence,
    threshold: f64,
) -> Result<Judged, Unjudged> {
    let broken = |e: PromptError| Unjudged {
        code: "prompt".into(),
        message: e.to_string(),
        pending: false,
        fatal: false,
    };
    let mut replies: Vec<StageReply> = Vec::new();
    loop {
        match metric.next(evidence, threshold, &replies).map_err(broken)? {
            Step::Done(judged) => return Ok(judged),
            Step::Ask(question) => {
                let reply = put(service, rules, metric.name(), &question).await?;
                replies.push(reply);
            }
        }
    }
}

/// Puts a question in as many rounds as it takes and the rules allow.
async fn put(
    service: &JudgeService,
    rules: &AskingRules,
    metric: &str,
    question: &Question,
) -> Result<StageReply, Unjudged> {
    let mut round = 0;
    let mut asked = false;
    loop {
        let end = put_once(service, rules, metric, question, round, &mut asked).await;
        let more = round + 1 < rules.rounds || (rules.anew && !asked && round + 1 < MOST_ROUNDS);
        match end {
            Err(e) if e.code == JudgeFailed::CODE && more => round += 1,
            end => return end,
        }
    }
}

/// Puts one question until its reply has the shape that it must have, or all attempts are used up. Notes in `asked` whether a call
/// was sent in this run.
async fn put_once(
    service: &JudgeService,
    rules: &AskingRules,
    metric: &str,
    question: &Question,
    round: u32,
    asked: &mut bool,
) -> Result<StageReply, Unjudged> {
    let mut attempts = Attempts::new(rules.policy, question.shape);
    let label = CallLabel {
        metric,
        stage: question.stage,
    };
    // The cause of a failed call is more to the point than that there was no usable reply.
    let mut cause = None;
    let mut cut_off = false;
    while let Some(form) = attempts.next_call() {
        let repair = match &form.repair {
            None => None,
            Some(invalid) => Some(invalid.message().map_err(|e| Unjudged {
                code: "prompt".into(),
                message: e.to_string(),
                pending: false,
                fatal: false,
            })?),
        };
        let call = rules.call(
            metric,
            question,
            form.structured,
            (round, attempts.calls()),
            repair.as_deref(),
        );
        let answer = match rules.policy {
            Policy::Production => service.answer(&call, label).await,
            // Every failed call counts as a call of the stage.
            Policy::Compat => service.answer_to_one_call(&call, label).await,
        };
        if rules.anew && !*asked {
            let sent = service.asked_here(&call);
            *asked = sent.map_err(|e| Unjudged::of(&e))?;
        }
        let outcome = match answer {
            Ok(reply) => {
                cause = None;
                cut_off = reply.cut_off;
                Outcome::Answer(reply.text)
            }
            Err(Unanswered::Failed { code, message }) => {
                let failed = Unanswered::Failed {
                    code,
                    message: message.clone(),
                };
                cause = Some(Unjudged::of(&failed));
                match code == CallErrorKind::FormatRejected.code() {
                    true => Outcome::FormatRefused(message),
                    false => Outcome::Failed(message),
                }
            }
            Err(unanswered) => return Err(Unjudged::of(&unanswered)),
        };
        attempts.record(outcome);
    }
    attempts
        .into_reply()
        .map_err(|failed| match (cause, rules.policy) {
            // PandaProbe knows one code for all of them.
            (Some(cause), Policy::Production) => cause,
            _ => Unjudged {
                code: JudgeFailed::CODE.into(),
                message: match cut_off {
                    true => format!(
                        "{failed}; it reached the largest size of a reply: raise --judge-max-output"
                    ),
                    false => failed.to_string(),
                },
                pending: false,
                fatal: false,
            },
        })
}
