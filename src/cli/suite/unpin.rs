//! `nightmill suite unpin`.

use std::path::PathBuf;

use clap::Args;

use super::records::records_of;
use crate::cli::{AnyError, Outcome, outcome};
use crate::report::plain;
use crate::text::nearest;

/// Flags of `suite unpin`.
#[derive(Args, Debug)]
pub(in crate::cli) struct UnpinArgs {
    /// A folder of records, a record of it, or the configuration beside it
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Only the run of this suite
    #[arg(long, value_name = "NAME")]
    suite: Option<String>,
}

pub(super) fn run(args: &UnpinArgs) -> Result<Outcome, AnyError> {
    let records = records_of(&args.path)?;
    let pins = records.pins()?;
    if let Some(suite) = &args.suite
        && !pins.contains_key(suite)
    {
        return Err(format!(
            "--suite {suite}: no run of this suite is pinned{}",
            nearest(suite, pins.keys().map(String::as_str))
        )
        .into());
    }
    let unpinned = records.unpin(args.suite.as_deref())?;
    let text = match unpinned.is_empty() {
        true => "nothing was pinned\n".to_owned(),
        false => format!("unpinned: {}\n", plain(&unpinned.join(", "))),
    };
    outcome::print(&text)?;
    Ok(Outcome::Done)
}
