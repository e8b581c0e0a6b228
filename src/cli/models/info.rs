//! `nightmill models info`.

use clap::Args;

use super::{named, size};
use crate::cli::{AnyError, Outcome, listing};
use crate::model::{Library, ModelFacts, Provenance};
use crate::report::plain;

/// Flags of `models info`.
#[derive(Args, Debug)]
pub(super) struct InfoArgs {
    /// A model folder, an id of the folder of models, or shipped
    #[arg(value_name = "MODEL")]
    model: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &InfoArgs, library: &Library) -> Result<Outcome, AnyError> {
    let folder = named(&args.model, library)?;
    let facts = ModelFacts::of(&folder)?;
    let origin = Provenance::read(&folder)?;
    listing::print(args.json, &facts, || text(&facts, origin.as_ref()))?;
    Ok(Outcome::Done)
}

fn text(facts: &ModelFacts, origin: Option<&Provenance>) -> String {
    let mut lines: Vec<(&str, String)> = vec![
        ("model", facts.name.clone()),
        ("folder", facts.origin.clone()),
        ("family", facts.family.clone()),
    ];
    if let Some(layers) = facts.layers {
        lines.push(("layers", layers.to_string()));
    }
    let normalised = match facts.normalised {
        true => "of length 1",
        false => "of any length",
    };
    let most = facts.max_tokens;
    lines.extend([
        ("vectors", format!("{} components, {normalised}", facts.dim)),
        ("pooling", facts.pooling.to_owned()),
        ("vocabulary", facts.vocabulary.to_string()),
        (
            "tokens",
            most.map_or_else(|| "any number".into(), |most| format!("{most} at most")),
        ),
        ("stored as", facts.stored_precision.clone()),
        ("size", size(facts.bytes)),
        (
            "licence",
            facts
                .licence
                .clone()
                .unwrap_or_else(|| "not named in its files".into()),
        ),
    ]);
    if !facts.prompts.is_empty() {
        lines.push(("prompts", facts.prompts.join(", ")));
    }
    if !facts.default_prompt.is_empty() {
        lines.push((
            "prompt",
            format!("{:?} before every text", facts.default_prompt),
        ));
    }
    if let Some(origin) = origin {
        lines.push(("id", origin.id.clone()));
        if let Some(source) = &origin.source {
            lines.push(("from", source.clone()));
        }
        if let Some(revision) = &origin.revision {
            lines.push(("revision", revision.clone()));
        }
    }
    lines.push(("sha256", facts.sha256.clone()));
    let line = |(name, value): (&str, String)| format!("{name:<11}{}\n", plain(&value));
    lines.into_iter().map(line).collect()
}
