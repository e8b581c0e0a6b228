//! `nightmill suite pin`.

use std::path::PathBuf;

use clap::Args;

use super::records::record_at;
use crate::cli::{AnyError, Outcome, outcome};
use crate::report::plain;

/// Flags of `suite pin`.
#[derive(Args, Debug)]
pub(in crate::cli) struct PinArgs {
    /// The record of a run: RUN_ID.json
    #[arg(value_name = "RECORD")]
    record: PathBuf,
}

pub(super) fn run(args: &PinArgs) -> Result<Outcome, AnyError> {
    let (records, id) = record_at(&args.record)?;
    let suite = records.pin(&id)?;
    outcome::print(&format!(
        "{id} is the baseline of {} until it is unpinned\n",
        plain(&suite)
    ))?;
    Ok(Outcome::Done)
}
