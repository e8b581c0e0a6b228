//! `nightmill models import`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::{AnyError, Outcome, outcome};
use crate::model::{Library, import_bundle};
use crate::report::{counted, plain};

/// Flags of `models import`.
#[derive(Args, Debug)]
pub(super) struct ImportArgs {
    /// A file of `models export`
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// Replace a model of the same id
    #[arg(long)]
    overwrite: bool,
}

pub(super) fn run(args: &ImportArgs, library: &Library) -> Result<Outcome, AnyError> {
    let head = import_bundle(&args.bundle, library, args.overwrite)?;
    let id = plain(&head.id);
    outcome::print(&format!(
        "{id}: {}, as they were exported\nuse it: nightmill score TRACES --model {} --out RUN\n",
        counted(head.files.len() as u64, "file", "files"),
        library.place(&head.id)?.display()
    ))?;
    Ok(Outcome::Done)
}
