//! `nightmill models list`.

use clap::Args;
use serde::Serialize;

use super::size;
use crate::cli::{AnyError, Outcome, listing};
use crate::model::{Library, ModelFacts, ModelFolder};

/// Flags of `models list`.
#[derive(Args, Debug)]
pub(super) struct ListArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A model, or why it can't be used.
#[derive(Serialize)]
struct Listed {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<ModelFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl Listed {
    fn of(id: String, folder: &ModelFolder) -> Self {
        let (facts, problem) = match ModelFacts::of(folder) {
            Ok(facts) => (Some(facts), None),
            Err(problem) => (None, Some(problem.to_string())),
        };
        Self { id, facts, problem }
    }
}

pub(super) fn run(args: &ListArgs, library: &Library) -> Result<Outcome, AnyError> {
    let shipped = ModelFolder::shipped().map(|folder| Listed::of("shipped".into(), &folder));
    let models = library.models()?;
    let models = models
        .into_iter()
        .map(|(id, folder)| Listed::of(id, &folder));
    let all: Vec<Listed> = shipped.into_iter().chain(models).collect();
    listing::print(args.json, &all, || {
        let rows = all.iter().map(|listed| match &listed.facts {
            Some(facts) => [
                listed.id.clone(),
                facts.family.clone(),
                facts.dim.to_string(),
                facts
                    .max_tokens
                    .map_or_else(|| "any".into(), |most| most.to_string()),
                size(facts.bytes),
                facts.licence.clone().unwrap_or_else(|| "not named".into()),
            ],
            None => [
                listed.id.clone(),
                listed.problem.clone().unwrap_or_default(),
                "–".into(),
                "–".into(),
                "–".into(),
                "–".into(),
            ],
        });
        let header = ["model", "family", "dim", "tokens", "size", "licence"];
        let mut text = listing::table(header, rows.collect());
        text.push_str(&format!("folder: {}\n", library.root().display()));
        text
    })?;
    Ok(Outcome::Done)
}
