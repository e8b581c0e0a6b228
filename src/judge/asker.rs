//! The one way to put a question, whatever it is about and wherever its answers come from: try by try, and round by round, until an
//! answer can be used.

use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use super::answers::Answers;
use super::call::{Call, Reply};
use super::ledger::CallLabel;
use super::service::{JudgeService, Unanswered};

/// Most rounds of a question that are ever looked at.
pub const MOST_ROUNDS: u32 = 100;

/// A question, in every form in which it may be put.
pub(crate) trait Question {
    /// What comes of it, be it an answer or none.
    type Output;

    /// What the ledger writes beside its calls.
    fn label(&self) -> CallLabel<'_>;

    /// The calls of a round, which counts from 0.
    fn tries(&self, round: u32) -> impl Tries<Output = Self::Output>;
}

/// The calls of one round, one after the other.
pub(crate) trait Tries {
    /// See [`Question::Output`].
    type Output;

    /// The next call. None once an answer can be used, or nothing is left to try.
    fn next_call(&mut self) -> ControlFlow<Self::Output, Option<Call>>;

    /// Takes what came of that call.
    fn take(&mut self, call: Call, answer: Result<Reply, Unanswered>) -> ControlFlow<Self::Output>;

    /// What came of it all.
    fn end(self) -> End<Self::Output>;
}

/// How a round ended.
pub(crate) enum End<T> {
    /// Nothing more is to be asked.
    Final(T),
    /// The judge answered, and nothing that can be used: another round may.
    Unusable(T),
}

/// Where answers come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'s> {
    /// Whoever is asked, and the ledger before.
    Service(&'s JudgeService),
    /// The same, where whoever asks counts failed calls itself and none is repeated.
    OneByOne(&'s JudgeService),
    /// The ledger alone.
    Ledger(&'s LookUp<'s>),
}

/// Puts questions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'s> {
    pub source: Source<'s>,
    /// How often a question is put anew, with all tries, when its answers can't be used; at least 1.
    pub rounds: u32,
    /// Rounds whose answers are all the ledger's do not count, and one more is put, up to [`MOST_ROUNDS`] in all.
    pub anew: bool,
}

impl Asker<'_> {
    /// Puts a question.
    pub async fn put<Q: Question>(&self, question: &Q) -> Q::Output {
        let mut round = 0;
        let mut asked = false;
        loop {
            let mut tries = question.tries(round);
            let end = loop {
                let call = match tries.next_call() {
                    ControlFlow::Break(output) => return output,
                    ControlFlow::Continue(None) => break tries.end(),
                    ControlFlow::Continue(Some(call)) => call,
                };
                let mut answer = self.source.answer(&call, question.label()).await;
                let refused = matches!(&answer, Err(unanswered) if unanswered.is_of_format());
                if self.anew && !asked && !refused {
                    match self.source.asked_here(&call) {
                        Ok(sent) => asked = sent,
                        Err(problem) => answer = Err(problem),
                    }
                }
                if let ControlFlow::Break(output) = tries.take(call, answer) {
                    return output;
                }
            };
            let more = round + 1 < self.rounds || (self.anew && !asked && round + 1 < MOST_ROUNDS);
            match end {
                End::Unusable(_) if more => round += 1,
                End::Unusable(output) | End::Final(output) => return output,
            }
        }
    }
}

impl Source<'_> {
    async fn answer(&self, call: &Call, label: CallLabel<'_>) -> Result<Reply, Unanswered> {
        match self {
            Self::Service(service) => service.answer(call, label).await,
            Self::OneByOne(service) => service.answer_to_one_call(call, label).await,
            Self::Ledger(look_up) => look_up.answer(call),
        }
    }

    /// Whether a call was sent in this run, and not only answered by the ledger.
    fn asked_here(&self, call: &Call) -> Result<bool, Unanswered> {
        match self {
            Self::Service(service) | Self::OneByOne(service) => service.asked_here(call),
            Self::Ledger(_) => Ok(false),
        }
    }
}

/// Questions followed as far as answers exist already, without asking anybody.
#[derive(Debug)]
pub(crate) struct LookUp<'a> {
    answers: &'a Answers<'a>,
    seen: Mutex<Seen>,
}

/// How far known answers brought what was put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Calls that have an answer.
    pub answered: u64,
    /// Tokens of the first question, estimated; none if there was none.
    pub first_prompt_tokens: Option<u64>,
}

impl<'a> LookUp<'a> {
    pub fn new(answers: &'a Answers<'a>) -> Self {
        Self {
            answers,
            seen: Mutex::default(),
        }
    }

    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, call: &Call) -> Result<Reply, Unanswered> {
        let answer = self.answers.answer(call);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.first_prompt_tokens
            .get_or_insert_with(|| call.usual_prompt_tokens());
        seen.answered += u64::from(answer.is_ok());
        answer
    }
}
