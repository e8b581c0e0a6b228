//! `nightmill models verify`.

use clap::Args;
use serde::Serialize;

use super::named;
use crate::cli::{AnyError, Outcome, listing};
use crate::model::{Library, ModelFault, ModelFolder, Provenance};
use crate::report::{counted, plain};

/// Flags of `models verify`.
#[derive(Args, Debug)]
pub(super) struct VerifyArgs {
    /// Model folders, and ids of the folder of models [default: all of that folder]
    #[arg(value_name = "MODEL")]
    names: Vec<String>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A model that was looked at.
#[derive(Serialize)]
struct Verified {
    model: String,
    /// Whether there is a list of sums to hold it against.
    known: bool,
    files: usize,
    faults: Vec<ModelFault>,
}

impl Verified {
    fn of(model: String, folder: &ModelFolder) -> Result<Self, AnyError> {
        let Some(known) = Provenance::read(folder)? else {
            return Ok(Self {
                model,
                known: false,
                files: 0,
                faults: Vec::new(),
            });
        };
        Ok(Self {
            model,
            known: true,
            files: known.files.len(),
            faults: known.faults(folder)?,
        })
    }
}

pub(super) fn run(args: &VerifyArgs, library: &Library) -> Result<Outcome, AnyError> {
    let models: Vec<(String, ModelFolder)> = match args.names.as_slice() {
        [] => library.models()?,
        names => names
            .iter()
            .map(|name| Ok((name.clone(), named(name, library)?)))
            .collect::<Result<_, AnyError>>()?,
    };
    let verified = models
        .into_iter()
        .map(|(id, folder)| Verified::of(id, &folder));
    let verified: Vec<Verified> = verified.collect::<Result<_, _>>()?;
    let unknown = verified.iter().find(|model| !model.known);
    if let (Some(unknown), false) = (unknown, args.names.is_empty()) {
        return Err(format!(
            "`{}` was not pulled or imported: there is no list of sums to hold it against; `nightmill models info` prints its sum",
            unknown.model
        )
        .into());
    }
    listing::print(args.json, &verified, || verified.iter().map(told).collect())?;
    Ok(match verified.iter().all(|model| model.faults.is_empty()) {
        true => Outcome::Done,
        false => Outcome::GateFailed,
    })
}

fn told(model: &Verified) -> String {
    let name = plain(&model.model);
    if !model.known {
        return format!("{name}: put there by hand, no list of sums to hold it against\n");
    }
    if model.faults.is_empty() {
        let files = counted(model.files as u64, "file", "files");
        return format!("{name}: {files}, as they came\n");
    }
    let mut text = format!("{name}:\n");
    for fault in &model.faults {
        text.push_str(&format!("  {:<8} {}\n", fault.fault, plain(&fault.file)));
    }
    text
}
