//! `nightmill suite diff`.

use std::path::PathBuf;

use clap::Args;

use super::record_diff;
use crate::cli::{AnyError, Outcome, outcome};
use crate::report::plain;
use crate::suite::evalset::{compare_results, read_result};
use crate::suite::{ResultKind, result_kind};

/// Flags of `suite diff`.
#[derive(Args, Debug)]
pub(in crate::cli) struct DiffArgs {
    /// The earlier result or record
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The later one
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DiffArgs) -> Result<Outcome, AnyError> {
    match (result_kind(&args.before)?, result_kind(&args.after)?) {
        (ResultKind::Regression, ResultKind::Regression) => {
            return record_diff::run(&args.before, &args.after, args.json);
        }
        (ResultKind::EvalSet, ResultKind::EvalSet) => {}
        _ => {
            return Err(format!(
                "`{}` and `{}` are of two kinds: one is the record of a regression suite, the other is not; name two of one kind",
                args.before.display(),
                args.after.display()
            )
            .into());
        }
    }
    let before = read_result(&args.before)?.value;
    let after = read_result(&args.after)?.value;
    let difference = compare_results(&before, &after);
    if difference.is_of_strangers() {
        return Err(format!(
            "`{}` and `{}` have no case in common: there is nothing to compare; name two results of one set",
            args.before.display(),
            args.after.display()
        )
        .into());
    }
    match args.json {
        true => outcome::print(&format!("{}\n", serde_json::to_string_pretty(&difference)?))?,
        false => {
            let lines = difference.lines();
            let lines: Vec<String> = lines.iter().map(|line| plain(line)).collect();
            outcome::print(&format!("{}\n", lines.join("\n")))?;
        }
    }
    Ok(match (difference.newly_failed(), difference.lost()) {
        (true, _) => Outcome::GateFailed,
        (false, true) => Outcome::Incomplete,
        (false, false) => Outcome::Done,
    })
}
