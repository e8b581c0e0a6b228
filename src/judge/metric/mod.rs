//! The judged metrics, one file each, and what they share: filling in prompts and finishing a score.
//! They ask and count as PandaProbe does.

mod argument_correctness;
mod confidence;
mod plan_adherence;
mod plan_quality;
mod shared_stages;
mod step_efficiency;
mod task_completion;
#[cfg(test)]
mod tests;
mod tool_correctness;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use minijinja::value::{Enumerator, Object, ObjectRepr};
use serde_json::{Map, Value};

use crate::judge::evidence::Evidence;
use crate::judge::judged_metric::{Judged, Stage, Step};
use crate::judge::prompt::{PromptError, Prompts, prompt};
use crate::judge::reply_shape::{Field, Kind, ReplyShape};

pub use argument_correctness::ArgumentCorrectness;
pub use confidence::Confidence;
pub use plan_adherence::PlanAdherence;
pub use plan_quality::PlanQuality;
pub use step_efficiency::StepEfficiency;
pub use task_completion::TaskCompletion;
pub use tool_correctness::ToolCorrectness;

static PROMPTS: LazyLock<Prompts> = LazyLock::new(|| {
    Prompts::new(&[
        prompt!("argument_correctness_extract"),
        prompt!("argument_correctness_reason"),
        prompt!("argument_correctness_verdicts"),
        prompt!("confidence_score"),
        prompt!("extract_plan"),
        prompt!("extract_task"),
        prompt!("plan_adherence_score"),
        prompt!("plan_quality_score"),
        prompt!("step_efficiency_score"),
        prompt!("task_completion_extract"),
        prompt!("task_completion_score"),
        prompt!("tool_correctness_extract"),
        prompt!("tool_correctness_score"),
    ])
});

/// The reply of the stages that give a score and must say why.
static SCORE_WITH_REASON: ReplyShape = ReplyShape::new(&[
    Field {
        key: "score",
        kind: Kind::Share,
        about: "the score by the guide above.",
    },
    Field {
        key: "reason",
        kind: Kind::Text,
        about: "why, in one or two sentences that name what decided the score.",
    },
]);

/// The question of a stage: its prompt with these values.
fn ask(
    stage: &'static str,
    prompt_name: &'static str,
    shape: &'static ReplyShape,
    values: impl IntoIterator<Item = (&'static str, minijinja::Value)>,
) -> Result<Step, PromptError> {
    let mut values: BTreeMap<&'static str, minijinja::Value> = values.into_iter().collect();
    values.insert("answer", shape.instructions().into());
    Ok(Step::Ask(Stage {
        name: stage,
        prompt: PROMPTS.fill(prompt_name, values)?,
        shape,
        prompt_name,
        prompt_version: PROMPTS.version(prompt_name),
    }))
}

/// A score with its metadata: `details` first, then threshold and success.
fn done(
    (score, reason): (f64, Option<&str>),
    details: impl IntoIterator<Item = (&'static str, Value)>,
    (threshold, success): (f64, bool),
    evidence: &Evidence,
) -> Step {
    let mut metadata: Map<String, Value> = details
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    metadata.insert("threshold".to_owned(), threshold.into());
    metadata.insert("success".to_owned(), success.into());
    if evidence.truncated() {
        metadata.insert("truncated".to_owned(), true.into());
    }
    Step::Done(Judged {
        score: score + 0.0, // no negative zero
        reason: reason.map(str::to_owned),
        metadata,
    })
}

/// A score that succeeds from the threshold on; the comparison is with the unrounded score.
fn scored(
    score: f64,
    reason: Option<&str>,
    details: impl IntoIterator<Item = (&'static str, Value)>,
    threshold: f64,
    evidence: &Evidence,
) -> Step {
    done(
        (score, reason),
        details,
        (threshold, score >= threshold),
        evidence,
    )
}

/// A score of 1.0 for a trace that has nothing to judge; it succeeds whatever the threshold is.
fn nothing_to_judge(
    reason: &str,
    details: impl IntoIterator<Item = (&'static str, Value)>,
    threshold: f64,
    evidence: &Evidence,
) -> Step {
    done((1.0, Some(reason)), details, (threshold, true), evidence)
}

/// A JSON value for a prompt. Objects keep their order there; the template engine's own maps would sort the keys, and a judge
/// would read the end of a span before its name.
pub(super) fn in_stored_order(value: &Value) -> minijinja::Value {
    match value {
        Value::Array(items) => items.iter().map(in_stored_order).collect(),
        Value::Object(entries) => minijinja::Value::from_object(StoredOrder {
            keys: entries.keys().map(minijinja::Value::from).collect(),
            values: entries
                .iter()
                .map(|(key, value)| (key.clone(), in_stored_order(value)))
                .collect(),
        }),
        scalar => minijinja::Value::from_serialize(scalar),
    }
}

#[derive(Debug)]
struct StoredOrder {
    keys: Vec<minijinja::Value>,
    values: HashMap<String, minijinja::Value>,
}

impl Object for StoredOrder {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &minijinja::Value) -> Option<minijinja::Value> {
        self.values.get(key.as_str()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.keys.clone())
    }
}
