//! One question about one turn: a sample, of which several are voted into one.

use std::ops::ControlFlow;

use super::reply::{Read, Unreadable};
use super::{JudgeRoute, JudgedEvaluator, Reading};
use crate::judge::asker::{End, Question, Tries};
use crate::judge::{Call, CallLabel, Reply, Unanswered};

/// A question about a turn.
pub(super) struct Sample<'q> {
    pub evaluator: &'static JudgedEvaluator,
    pub route: &'q JudgeRoute,
    pub prompt: &'q str,
    /// What the reply is read by.
    pub reading: Reading<'q>,
    /// Which pass over the set, and which sample of the turn: each is asked on its own.
    pub run: u32,
    pub sample: u32,
}

/// Why there is no verdict.
#[derive(Clone, Debug)]
pub(super) enum NoVerdict {
    /// The judge failed, or its reply is none: the case fails.
    Failed(String),
    /// The question was not put: another run may.
    Pending(String),
    /// The ledger can't be used: the run stops.
    Ledger(String),
}

impl Question for Sample<'_> {
    type Output = Result<Read, NoVerdict>;

    fn label(&self) -> CallLabel<'_> {
        CallLabel {
            metric: self.evaluator.name,
            stage: "sample",
        }
    }

    fn tries(&self, round: u32) -> impl Tries<Output = Self::Output> {
        let mut apart = Vec::new();
        for (word, number) in [("run", self.run), ("sample", self.sample), ("round", round)] {
            // The first of each is what it was before there were several.
            if number > u32::from(word == "run") {
                apart.push(format!("{word} {number}"));
            }
        }
        OneTry {
            question: self,
            call: Some(Call {
                model: self.route.model.clone(),
                system: "".into(),
                user: self.prompt.to_owned(),
                format: None,
                temperature: None,
                max_output_tokens: self.route.max_output_tokens,
                prompt: self.evaluator.prompt_label(),
                apart: apart.join(" "),
                body: Some(std::sync::Arc::clone(&self.route.body)),
            }),
            read: None,
        }
    }
}

struct OneTry<'q> {
    question: &'q Sample<'q>,
    call: Option<Call>,
    read: Option<Result<Read, Unreadable>>,
}

impl Tries for OneTry<'_> {
    type Output = Result<Read, NoVerdict>;

    fn next_call(&mut self) -> ControlFlow<Self::Output, Option<Call>> {
        ControlFlow::Continue(self.call.take())
    }

    fn take(&mut self, _: Call, answer: Result<Reply, Unanswered>) -> ControlFlow<Self::Output> {
        match answer {
            Ok(reply) => {
                let read = (self.question.evaluator.read)(&reply.text, &self.question.reading);
                self.read = Some(read);
                ControlFlow::Continue(())
            }
            Err(Unanswered::Ledger(problem)) => ControlFlow::Break(Err(NoVerdict::Ledger(problem))),
            Err(unanswered) if unanswered.pending() => {
                ControlFlow::Break(Err(NoVerdict::Pending(unanswered.to_string())))
            }
            Err(unanswered) => ControlFlow::Break(Err(NoVerdict::Failed(unanswered.to_string()))),
        }
    }

    fn end(self) -> End<Self::Output> {
        match self.read {
            Some(Ok(read)) => End::Final(Ok(read)),
            Some(Err(unreadable)) => End::Unusable(Err(NoVerdict::Failed(unreadable.to_string()))),
            None => End::Final(Err(NoVerdict::Failed("the judge was not asked".to_owned()))),
        }
    }
}
