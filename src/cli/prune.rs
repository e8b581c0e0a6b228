//! `nightmill runs prune`: removes old runs, and breaks no chain of nights.

use std::path::PathBuf;

use chrono::TimeDelta;
use clap::Args;

use super::{AnyError, Outcome, listing};
use crate::history::{Pruned, prune};
use crate::report::{counted, plain};

/// Flags of `runs prune`.
#[derive(Args, Debug)]
pub(super) struct PruneArgs {
    /// Run directories, and folders of them. Runs beside them are looked at too: what they go on from is carried
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Remove runs that were made longer ago: 90d, 12w, 36h
    #[arg(long, value_name = "TIME", value_parser = parse_age)]
    keep: TimeDelta,
    /// Only say what would go, and what would be carried where
    #[arg(long)]
    dry_run: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// A stretch of time: a whole number and `h`, `d` or `w`.
fn parse_age(text: &str) -> Result<TimeDelta, String> {
    let wrong = || {
        format!(
            "`{text}` is no stretch of time: give a whole number of hours, days or weeks, as in 36h, 90d, 12w"
        )
    };
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let number = text.strip_suffix(unit).unwrap_or_default();
    let hours = match unit {
        'h' => 1,
        'd' => 24,
        'w' => 24 * 7,
        _ => return Err(wrong()),
    };
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    // Longer than anybody keeps anything, and far from what a date can hold.
    let count: i64 = number
        .parse()
        .ok()
        .filter(|n| *n <= 100_000)
        .ok_or_else(wrong)?;
    TimeDelta::try_hours(count * hours).ok_or_else(wrong)
}

pub(super) fn run(args: &PruneArgs) -> Result<Outcome, AnyError> {
    let before = chrono::Utc::now() - args.keep;
    let pruned = prune(&args.dirs, before, args.dry_run)?;
    listing::print(args.json, &pruned, || told(&pruned, args.dry_run))?;
    Ok(Outcome::Done)
}

fn told(pruned: &Pruned, dry_run: bool) -> String {
    let mut text = String::new();
    for carried in &pruned.carried {
        let into = plain(&carried.into);
        let of: Vec<String> = carried.of.iter().map(|name| plain(name)).collect();
        text.push_str(&match (carried.sessions, carried.traces) {
            (Some(sessions), Some(traces)) => format!(
                "{into}: holds now, of {}, {} and {} that no later night replaced; figures by run count them as {into}'s\n",
                of.join(", "),
                counted(sessions, "session", "sessions"),
                counted(traces, "trace", "traces"),
            ),
            _ => format!(
                "{into}: would take over what is still the latest of {}\n",
                of.join(", ")
            ),
        });
    }
    for kept in &pruned.kept {
        text.push_str(&format!(
            "{}: stays: {}\n",
            plain(&kept.run),
            plain(&kept.why)
        ));
    }
    let done = if dry_run {
        "would be removed"
    } else {
        "removed"
    };
    for run in &pruned.removed {
        text.push_str(&format!("{}: {done}\n", plain(run)));
    }
    let removed = counted(pruned.removed.len() as u64, "run", "runs");
    let young = counted(pruned.young, "run is", "runs are");
    text.push_str(&format!("{removed} {done}; {young} not that old\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_hours_days_and_weeks() {
        for (text, hours) in [("36h", 36), ("90d", 2160), ("2w", 336), ("0d", 0)] {
            assert_eq!(parse_age(text), Ok(TimeDelta::hours(hours)), "{text}");
        }
        for text in [
            "", "d", "90", "90 d", "-1d", "1.5d", "90m", "9d9d", "1000000d", "é",
        ] {
            let error = parse_age(text).unwrap_err();
            assert!(error.contains("90d"), "{text}: {error}");
        }
    }
}
