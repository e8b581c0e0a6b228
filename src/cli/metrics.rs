//! `nightmill metrics`.

use std::path::PathBuf;

use clap::Args;

use super::judge_file::JudgeFile;
use super::{AnyError, Outcome, outcome};
use crate::judge::conversation::Catalogue;
use crate::metric::ALL;

/// Flags of `metrics`.
#[derive(Args, Debug)]
pub(super) struct MetricsArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// List what the judge of conversations scores instead
    #[arg(long)]
    judge: bool,
    /// With the metrics of this file, as `score --judge-config` takes it
    #[arg(long, value_name = "FILE", requires = "judge")]
    judge_config: Option<PathBuf>,
}

pub(super) fn run(args: &MetricsArgs) -> Result<Outcome, AnyError> {
    let text = if args.judge {
        let file = match &args.judge_config {
            None => JudgeFile::default(),
            Some(path) => JudgeFile::read(path)?,
        };
        of_conversations(&file.catalogue, args.json)?
    } else {
        registered(args.json)?
    };
    outcome::print(&text)?;
    Ok(Outcome::Done)
}

fn registered(json: bool) -> Result<String, AnyError> {
    if json {
        let list: Vec<_> = ALL
            .iter()
            .map(|m| {
                serde_json::json!({
                    "name": m.name,
                    "level": m.level.name(),
                    "method": m.method.name(),
                    "default_threshold": m.default_threshold,
                    "inputs": m.inputs,
                    "meaning": m.meaning,
                })
            })
            .collect();
        return Ok(format!("{}\n", serde_json::to_string_pretty(&list)?));
    }
    let mut text = String::new();
    for m in ALL {
        text.push_str(&format!(
            "{}\n  level {}, method {}, default threshold {}\n  from {}\n  {}\n",
            m.name,
            m.level.name(),
            m.method.name(),
            m.default_threshold,
            m.inputs.join(", "),
            m.meaning
        ));
    }
    Ok(text)
}

/// The scales of the metric `conversation` (specification of conversations, section 13).
fn of_conversations(catalogue: &Catalogue, json: bool) -> Result<String, AnyError> {
    if json {
        let listing = serde_json::to_string_pretty(&catalogue.listing())?;
        return Ok(format!("{listing}\n"));
    }
    let mut text = String::new();
    for m in catalogue.listed() {
        text.push_str(&format!(
            "{} ({})\n  tier {}, {}, default weight {}{}\n  {}\n",
            m.name,
            m.display_name,
            m.tier.name(),
            m.score_type.name(),
            m.default_weight,
            match catalogue.defaults().any(|default| default.name == m.name) {
                true => "",
                false => ", only where it is selected",
            },
            m.description
        ));
    }
    Ok(text)
}
