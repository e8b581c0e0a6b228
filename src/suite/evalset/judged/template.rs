//! `llm_judge_template`: the metrics file itself words the question, and says in which form the judge replies.
//!
//! Placeholders are `{{name}}`. Each must be bound, unless it is `{{name?}}`: that one is empty where nothing is. What
//! stands between braces and is no name stays as it is, and a value is never looked through for placeholders.

mod path;
mod source;

use std::collections::BTreeMap;

use super::reply::{self, Category, Read, Unreadable};
use super::{AskedTurn, JudgedEvaluator, Reading, Wording};
use crate::suite::evalset::model::JudgeTemplate;

pub(super) static EVALUATOR: JudgedEvaluator = JudgedEvaluator {
    name: "llm_judge_template",
    description: "what a judge answers to a prompt of the metrics file",
    wording: Wording::Template,
    read,
    of_rubrics: false,
};

/// Forms of replies: `responseScorerName`.
const SCORERS: [&str; 4] = ["single_score", "rubric_scores", "boolean", "categorical"];
/// The one rule from samples to turns, and the one from turns to cases.
const SAMPLES: &str = "majority_vote";
const TURNS: &str = "average";

/// What the judge is asked about a turn.
///
/// # Errors
/// A text for users: the template can't be used, or the turn does not hold what a placeholder stands for.
pub(super) fn question(
    turn: &AskedTurn<'_>,
    template: Option<&JudgeTemplate>,
) -> Result<String, String> {
    let template = template.ok_or(
        "the metrics file gives it no `criterion.llmJudge.template`; add one with `prompt` and `responseScorerName`",
    )?;
    check(template)?;
    let mut values = BTreeMap::new();
    for binding in &template.bindings {
        let binding = binding
            .as_ref()
            .ok_or("`variableBindings` has a null entry")?;
        let name = binding.variable.trim();
        if name.is_empty() {
            return Err("an entry of `variableBindings` has no `templateVariable`".to_owned());
        }
        let source = binding.source.as_ref();
        let source = source.ok_or_else(|| format!("the variable `{name}` has no `source`"))?;
        let value = source::value(turn, source);
        let value = value.map_err(|e| format!("the variable `{name}`: {e}"))?;
        if values.insert(name, value).is_some() {
            return Err(format!(
                "the variable `{name}` is bound twice; bind it once"
            ));
        }
    }
    filled(&template.prompt, &values)
}

/// What must be right before anything is asked.
fn check(template: &JudgeTemplate) -> Result<(), String> {
    if template.prompt.trim().is_empty() {
        return Err("its template has no `prompt`".to_owned());
    }
    let scorer = template.scorer.as_str();
    if !SCORERS.contains(&scorer) {
        return Err(format!(
            "`responseScorerName` is `{scorer}`; choose one of {}",
            SCORERS.join(", ")
        ));
    }
    let output = template.structured_output.as_str();
    if !output.is_empty() && !SCORERS.contains(&output) {
        return Err(format!(
            "`structuredOutputName` is `{output}`, which only a program could register; leave it out"
        ));
    }
    for (member, said, known) in [
        ("sampleAggregatorName", &template.sample_aggregator, SAMPLES),
        (
            "invocationAggregatorName",
            &template.invocation_aggregator,
            TURNS,
        ),
    ] {
        if !said.is_empty() && said != known {
            return Err(format!("`{member}` is `{said}`; only `{known}` is known"));
        }
    }
    match scorer {
        "categorical" => categories(template).map(drop),
        _ => Ok(()),
    }
}

/// The labels that a categorical reply may have.
fn categories(template: &JudgeTemplate) -> Result<Vec<Category>, String> {
    let mut known: Vec<Category> = Vec::new();
    for category in &template.categories {
        let (label, score) = category.clone().ok_or("a category is null")?;
        if label.is_empty() {
            return Err("a category has no `label`".to_owned());
        }
        if !(0.0..=1.0).contains(&score) {
            return Err(format!(
                "the category `{label}` is worth {score}; a score is from 0 to 1"
            ));
        }
        if known.iter().any(|earlier| earlier.label == label) {
            return Err(format!("the category `{label}` is there twice"));
        }
        known.push(Category { label, score });
    }
    match known.is_empty() {
        true => Err(
            "a categorical reply needs `responseScorerOptions.categories`; list labels and scores"
                .to_owned(),
        ),
        false => Ok(known),
    }
}

/// The prompt with its values.
fn filled(prompt: &str, values: &BTreeMap<&str, String>) -> Result<String, String> {
    let mut text = String::with_capacity(prompt.len());
    let mut unbound: Vec<&str> = Vec::new();
    let mut rest = prompt;
    while let Some((before, behind)) = rest.split_once("{{") {
        let Some((inside, after)) = behind.split_once("}}") else {
            break;
        };
        text.push_str(before);
        rest = after;
        let Some((name, may_lack)) = name_of(inside) else {
            text.extend(["{{", inside, "}}"]);
            continue;
        };
        match values.get(name) {
            Some(value) => text.push_str(value),
            None if may_lack => {}
            None => unbound.push(name),
        }
    }
    text.push_str(rest);
    unbound.sort_unstable();
    unbound.dedup();
    match unbound.is_empty() {
        true => Ok(text),
        false => Err(format!(
            "the prompt has placeholders that nothing is bound to: {}; add them to `variableBindings`",
            unbound.join(", ")
        )),
    }
}

/// The name in a placeholder, and whether it may lack a value; none where it is no name.
fn name_of(inside: &str) -> Option<(&str, bool)> {
    let inside = inside.trim();
    let (name, may_lack) = match inside.strip_suffix('?') {
        Some(name) => (name.trim(), true),
        None => (inside, false),
    };
    let no_name = |c: char| c.is_whitespace() || "{}'\"`?".contains(c);
    (!name.is_empty() && !name.contains(no_name)).then_some((name, may_lack))
}

/// Reads a reply in the form that the template names. Rubrics are checked where the metric or the case has any.
fn read(reply: &str, reading: &Reading<'_>) -> Result<Read, Unreadable> {
    let template = reading.template.cloned().unwrap_or_default();
    match template.scorer.as_str() {
        "rubric_scores" => reply::rubric_scores(reply, reading.rubrics),
        "boolean" => reply::boolean(reply),
        "categorical" => reply::categorical(reply, &categories(&template).unwrap_or_default()),
        _ => reply::single_score(reply),
    }
}

#[cfg(test)]
mod tests;
