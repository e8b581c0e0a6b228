//! Evaluators that ask a judge (as trpc-agent-go's `llm_*`): what each shows it of a turn, and how its reply is read.
//!
//! An evaluator is data: a prompt, what fills it, and a reader of replies. Asking, voting and averaging are the same for
//! all of them.

mod final_response;
mod hallucinations;
mod knowledge_recall;
mod look_up;
mod model;
mod pipeline;
pub mod reply;
mod rubric_critic;
mod rubric_response;
mod sample;
mod template;

use serde_json::Value;

use super::model::{EvalMetric, Invocation, JudgeTemplate, Message, Rubric};
use crate::judge::PromptLabel;
use crate::question::Prompt;

pub(crate) use look_up::look_up;
pub(crate) use model::{JudgeRoute, RouteRules};
pub(crate) use pipeline::{Judges, NotJudged, evaluate, not_evaluated};

/// An evaluator that asks a judge.
pub struct JudgedEvaluator {
    /// What metrics name it by.
    pub name: &'static str,
    /// One line for readers.
    pub description: &'static str,
    wording: Wording,
    read: fn(&str, &Reading<'_>) -> Result<reply::Read, reply::Unreadable>,
    /// Whether it asks about rubrics; without any there is nothing to ask.
    of_rubrics: bool,
}

/// Who words the question.
#[derive(Clone, Copy)]
enum Wording {
    /// nightmill does.
    Own {
        prompt: Prompt,
        /// What fills the prompt; a text for users where the turn does not hold it.
        fill: fn(&AskedTurn<'_>) -> Result<Value, String>,
    },
    /// The metrics file does.
    Template,
}

/// What a reply is read by.
#[derive(Clone, Copy)]
pub(super) struct Reading<'q> {
    /// The ids of the rubrics that are asked about.
    pub rubrics: &'q [String],
    /// What the metrics file says of replies.
    pub template: Option<&'q JudgeTemplate>,
}

impl JudgedEvaluator {
    /// What the metrics file says of question and reply, where it words them.
    fn template_of<'m>(&self, metric: &'m EvalMetric) -> Option<&'m JudgeTemplate> {
        match self.wording {
            Wording::Own { .. } => None,
            Wording::Template => metric.rules.judge.as_ref()?.template.as_ref(),
        }
    }

    /// What a judge is asked about a turn.
    ///
    /// # Errors
    /// A text for users, if the turn does not hold what is shown of it, or the metrics file's wording can't be used.
    fn question(
        &self,
        turn: &AskedTurn<'_>,
        template: Option<&JudgeTemplate>,
    ) -> Result<String, String> {
        match self.wording {
            Wording::Own { prompt, fill } => prompt.fill(fill(turn)?).map_err(|e| e.to_string()),
            Wording::Template => template::question(turn, template),
        }
    }

    /// The prompt's name and version in the ledger. A template has none: the question itself is there.
    fn prompt_label(&self) -> PromptLabel {
        match self.wording {
            Wording::Own { prompt, .. } => PromptLabel {
                name: prompt.name,
                version: prompt.version(),
            },
            Wording::Template => PromptLabel {
                name: self.name,
                version: 1,
            },
        }
    }
}

/// All of them.
pub static ALL: &[&JudgedEvaluator] = &[
    &final_response::EVALUATOR,
    &rubric_response::EVALUATOR,
    &knowledge_recall::EVALUATOR,
    &rubric_critic::CRITIC,
    &rubric_critic::REFERENCE_CRITIC,
    &hallucinations::EVALUATOR,
    &template::EVALUATOR,
];

/// The judged evaluator of this name.
pub fn find(name: &str) -> Option<&'static JudgedEvaluator> {
    ALL.iter().copied().find(|evaluator| evaluator.name == name)
}

/// A turn that a judge is asked about.
#[derive(Clone, Copy)]
pub(super) struct AskedTurn<'t> {
    pub actual: &'t Invocation,
    pub expected: &'t Invocation,
    pub rubrics: &'t [Rubric],
}

impl AskedTurn<'_> {
    fn user(&self) -> &str {
        content(self.actual.user_content.as_ref())
    }

    fn answer(&self) -> &str {
        content(self.actual.final_response.as_ref())
    }

    fn reference(&self) -> &str {
        content(self.expected.final_response.as_ref())
    }

    /// The rubrics that have a text, each as `id: text`.
    fn rubric_lines(&self) -> Vec<String> {
        let asked = self.rubrics.iter();
        let lines = asked.filter_map(|r| Some(format!("{}: {}", r.id, r.text.as_ref()?)));
        lines.collect()
    }

    fn rubric_ids(&self) -> Vec<String> {
        let asked = self.rubrics.iter().filter(|rubric| rubric.text.is_some());
        asked.map(|rubric| rubric.id.clone()).collect()
    }
}

/// What a message says; nothing where there is none.
fn content(message: Option<&Message>) -> &str {
    message.map_or("", |message| message.content.as_str())
}
