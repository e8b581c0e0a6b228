//! `nightmill keys`.

use std::path::PathBuf;

use clap::Args;

use super::{AnyError, Outcome, outcome};
use crate::cluster::make_keys;
use crate::report::plain;

/// Flags of `keys`.
#[derive(Args, Debug)]
pub(super) struct KeysArgs {
    /// The folder to make
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(super) fn run(args: &KeysArgs) -> Result<Outcome, AnyError> {
    make_keys(&args.folder)?;
    outcome::print(&format!(
        "{}: bring this folder to all machines of the cluster, and to nobody else\n",
        plain(&args.folder.display().to_string())
    ))?;
    Ok(Outcome::Done)
}
