//! What a judge makes of a comparison: likely causes and suggestions (as in Connexity).

use serde::Serialize;

use crate::conversation::{
    CauseAnalysis, Suggestions, cause_prompt, cause_prompt_version, read_causes, read_suggestions,
    suggestions_prompt, suggestions_prompt_version,
};
use crate::history::JudgedComparison;
use crate::judge::{CallCounts, PromptLabel, Spend};
use crate::output::RunError;
use crate::run::judging::questions::{Questions, Said};
use crate::run::judging::request::JudgeRequest;

/// Likely causes and suggestions, as far as the judge answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// Null if the judge did not answer.
    pub causes: Option<CauseAnalysis>,
    /// Null if the judge did not answer.
    pub suggestions: Option<Suggestions>,
    /// Why it did not, by question.
    pub unanswered: Vec<String>,
    /// Where answers came from.
    pub calls: CallCounts,
    /// What was sent.
    pub spend: Vec<Spend>,
}

impl Explanation {
    /// Whether every question was answered.
    pub fn complete(&self) -> bool {
        self.unanswered.is_empty()
    }

    fn answered<T>(&mut self, question: &str, said: Said<T>) -> Option<T> {
        let why = match said {
            Said::Read(read) => return Some(read),
            Said::Unusable(why) => why,
            Said::Unanswered(why) => why.to_string(),
        };
        self.unanswered.push(format!("{question}: {why}"));
        None
    }
}

/// Asks the judge what moved the runs, by two calls; `None`, and no call, if nothing moved.
///
/// # Errors
/// [`RunError`] if the judge can't be set up or the ledger can't be used. A call that fails is no error.
pub fn explain(
    request: &JudgeRequest,
    compared: &JudgedComparison,
) -> Result<Option<Explanation>, RunError> {
    let questions = Questions::new(request)?;
    let JudgedComparison {
        comparison,
        differences,
        ..
    } = compared;
    if !comparison.anything_moved() {
        return Ok(None);
    }
    let not_filled = |e: crate::question::PromptError| RunError::Plan(e.to_string());
    let mut explanation = Explanation::default();
    let prompt = PromptLabel {
        name: "conversation_cause_analysis",
        version: cause_prompt_version(),
    };
    let user = cause_prompt(comparison, differences).map_err(not_filled)?;
    let causes = questions.ask((prompt, user), 1, |reply| Ok(read_causes(&reply.text)))?;
    explanation.causes = explanation.answered("causes", causes);
    let prompt = PromptLabel {
        name: "conversation_suggestions",
        version: suggestions_prompt_version(),
    };
    let causes = explanation.causes.as_ref();
    let user = suggestions_prompt(comparison, differences, causes).map_err(not_filled)?;
    let suggestions =
        questions.ask((prompt, user), 1, |reply| Ok(read_suggestions(&reply.text)))?;
    explanation.suggestions = explanation.answered("suggestions", suggestions);
    explanation.calls = questions.counts();
    explanation.spend = questions.spend()?;
    Ok(Some(explanation))
}
