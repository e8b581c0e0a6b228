//! `nightmill models export`.

use std::path::PathBuf;

use clap::Args;

use super::{named, size};
use crate::cli::{AnyError, Outcome, local_out, outcome};
use crate::model::{Library, export_bundle};
use crate::report::{counted, plain};

/// Flags of `models export`.
#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    /// A model folder, an id of the folder of models, or shipped
    #[arg(value_name = "MODEL")]
    model: String,
    /// The file to write: NAME.tar.zst
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// The id that it has where it is imported [default: its own, or the name of its folder]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
}

pub(super) fn run(args: &ExportArgs, library: &Library) -> Result<Outcome, AnyError> {
    local_out(&args.bundle, "a bundle is written here; copy it afterwards")?;
    let folder = named(&args.model, library)?;
    let known = crate::model::Provenance::read(&folder)?.map(|known| known.id);
    let id = args
        .id
        .clone()
        .or(known)
        .unwrap_or_else(|| folder.name().to_owned());
    let head = export_bundle(&folder, &id, &args.bundle, args.overwrite)?;
    let bytes: u64 = head.files.values().map(|sum| sum.bytes).sum();
    outcome::print(&format!(
        "{}: {}, {}, licence {}\nbundle: {}\n",
        plain(&head.id),
        counted(head.files.len() as u64, "file", "files"),
        size(bytes),
        plain(head.licence.as_deref().unwrap_or("not named in its files")),
        args.bundle.display()
    ))?;
    Ok(Outcome::Done)
}
