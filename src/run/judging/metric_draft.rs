//! A metric of conversations drafted by a judge from a description (as in Connexity). It is
//! shown, never saved.

use crate::conversation::{
    Catalogue, CustomMetric, draft_prompt, draft_prompt_version, read_draft,
};
use crate::judge::{PromptLabel, Reply};
use crate::output::RunError;
use crate::run::judging::questions::{Questions, Said};
use crate::run::judging::request::JudgeRequest;

/// Replies that are read before the judge is given up on.
const ROUNDS: u32 = 3;

/// Asks the judge for a metric; a reply that is none is asked for again, three times in all.
///
/// # Errors
/// [`RunError`] if the judge can't be set up, does not answer, or drafts no metric.
pub fn draft_metric(
    request: &JudgeRequest,
    wish: &str,
    catalogue: &Catalogue,
) -> Result<CustomMetric, RunError> {
    let questions = Questions::new(request)?;
    let prompt = PromptLabel {
        name: "conversation_metric_draft",
        version: draft_prompt_version(),
    };
    let user = draft_prompt(wish, catalogue).map_err(|e| RunError::Plan(e.to_string()))?;
    let read = |reply: &Reply| match read_draft(&reply.text) {
        Ok(draft) if catalogue.find(&draft.name).is_none() => Ok(draft),
        Ok(draft) => Err(format!(
            "the judge named it `{}`, which is taken",
            draft.name
        )),
        Err(_) if reply.cut_off => {
            Err("the judge's reply ends at its largest size, raise --judge-max-output".into())
        }
        Err(e) => Err(e.to_string()),
    };
    let problem = match questions.ask((prompt, user), ROUNDS, read)? {
        Said::Read(draft) => return Ok(draft),
        Said::Unusable(problem) => format!(" in {ROUNDS} replies: {problem}"),
        Said::Unanswered(why) => format!(": {why}"),
    };
    Err(RunError::Plan(format!("no metric was drafted{problem}")))
}
