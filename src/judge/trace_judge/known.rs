//! A trace followed through a judged metric as far as answers exist already, without asking anybody.

use super::AskingRules;
use crate::judge::attempts::{Attempts, Outcome};
use crate::judge::call::Call;
use crate::judge::evidence::Evidence;
use crate::judge::judged_metric::{JudgedMetric, Question, Step};
use crate::judge::prompt::PromptError;
use crate::judge::reply_shape::StageReply;

/// What is known of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its answer.
    Answer(String),
    /// That its endpoint does not take the reply format, and its message.
    FormatRefused(String),
    /// Nothing: it would have to be asked.
    Nothing,
}

/// How far known answers bring a metric of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Calls that have an answer.
    pub answered: u64,
    /// Tokens of the first question, estimated; none if the metric asks nothing.
    pub first_prompt_tokens: Option<u64>,
    /// Whether nothing is left to ask: the metric has its score, or all its tries are used up.
    pub ended: bool,
}

enum Stage {
    Replied(StageReply),
    Failed,
    Unknown,
}

impl AskingRules {
    /// Follows a metric of a trace, where `known` says what is known of a call.
    ///
    /// # Errors
    /// Those of `known`, and [`PromptError`] as one of them.
    pub fn follow<E: From<PromptError>>(
        &self,
        metric: &dyn JudgedMetric,
        evidence: &Evidence,
        mut known: impl FnMut(&Call) -> Result<Known, E>,
    ) -> Result<Followed, E> {
        let mut followed = Followed::default();
        let mut replies = Vec::new();
        loop {
            // The threshold decides about success alone, and that is not looked at.
            let question = match metric.next(evidence, 0.5, &replies)? {
                Step::Done(_) => break,
                Step::Ask(question) => question,
            };
            let (first, answered) = (&mut followed.first_prompt_tokens, &mut followed.answered);
            let mut known = |call: &Call| {
                first.get_or_insert_with(|| call.usual_prompt_tokens());
                known(call)
            };
            match self.stage(metric.name(), &question, answered, &mut known)? {
                Stage::Replied(reply) => replies.push(reply),
                Stage::Failed => break,
                Stage::Unknown => return Ok(followed),
            }
        }
        followed.ended = true;
        Ok(followed)
    }

    fn stage<E: From<PromptError>>(
        &self,
        metric: &str,
        question: &Question,
        answered: &mut u64,
        known: &mut impl FnMut(&Call) -> Result<Known, E>,
    ) -> Result<Stage, E> {
        for round in 0..self.rounds.max(1) {
            let mut attempts = Attempts::new(self.policy, question.shape);
            while let Some(form) = attempts.next_call() {
                let repair = form.repair.as_ref().map(|invalid| invalid.message());
                let repair = repair.transpose()?;
                let put = (round, attempts.calls());
                let call = self.call(metric, question, form.structured, put, repair.as_deref());
                attempts.record(match known(&call)? {
                    Known::Nothing => return Ok(Stage::Unknown),
                    Known::FormatRefused(message) => Outcome::FormatRefused(message),
                    Known::Answer(text) => {
                        *answered += 1;
                        Outcome::Answer(text)
                    }
                });
            }
            if let Ok(reply) = attempts.into_reply() {
                return Ok(Stage::Replied(reply));
            }
        }
        Ok(Stage::Failed)
    }
}
