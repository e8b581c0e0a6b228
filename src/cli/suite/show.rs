//! `nightmill suite show`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::ended;
use crate::cli::{AnyError, Outcome};
use crate::suite::evalset::{read_result, shown_result};
use crate::suite::regression::{RunRecord, record_outcome};
use crate::suite::{ResultKind, SuiteOutcome, result_kind};

/// Flags of `suite show`.
#[derive(Args, Debug)]
pub(in crate::cli) struct ShowArgs {
    /// A result (NAME.evalset_result.json) or a record (RUN_ID.json)
    #[arg(value_name = "RESULT")]
    result: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ShowArgs) -> Result<Outcome, AnyError> {
    let outcome = shown(&args.result)?;
    super::run::print(&outcome, args.json, false)?;
    Ok(ended(&outcome))
}

/// What a result file says.
pub(super) fn shown(path: &Path) -> Result<SuiteOutcome, AnyError> {
    if result_kind(path)? == ResultKind::Regression {
        return Ok(record_outcome(&RunRecord::read(path)?, None));
    }
    let loaded = read_result(path)?;
    let mut outcome = shown_result(&loaded.value);
    outcome.notes = loaded.warnings;
    Ok(outcome)
}
