//! The runs that an analysis reads: those of its flags, without the ones whose scores a retry among them holds.

use std::io::Write;

use serde::Serialize;

use super::runs_flags::Looked;
use super::{AnyError, listing};
use crate::history::figures::{ScoreFilter, ScoreRecord, Target};
use crate::history::{
    LeftOut, ScoreQuery, StoredRun, TimeOf, any_goes_on, find_runs, gaps, leave_out_retried,
    read_latest_scores, read_run, read_scores,
};
use crate::report::plain;

/// The runs of an analysis.
pub(super) struct AnalysedRuns {
    /// Those that it reads.
    pub runs: Vec<StoredRun>,
    left_out: Vec<LeftOut>,
}

/// A result, and what was left out for it.
#[derive(Serialize)]
struct Told<'a, T: Serialize> {
    #[serde(flatten)]
    result: &'a T,
    #[serde(skip_serializing_if = "<[LeftOut]>::is_empty")]
    left_out: &'a [LeftOut],
}

impl Looked {
    /// The scores that may pass the flags.
    pub(super) fn filter(&self, target: Target) -> ScoreFilter {
        ScoreFilter {
            target,
            date_from: self.from,
            date_to: self.to,
        }
    }

    /// All runs. One that can't be read is an error: without it every number would be another.
    pub(super) fn all_runs(&self) -> Result<Vec<StoredRun>, AnyError> {
        let folders = find_runs(&self.dirs)?;
        let runs: Result<Vec<StoredRun>, _> = folders.iter().map(|f| read_run(f)).collect();
        Ok(runs?)
    }

    /// The runs of which no other holds all scores, so that each score is counted once. Standard error names the others.
    pub(super) fn runs(&self) -> Result<AnalysedRuns, AnyError> {
        let filter = self.filter(Target::Trace);
        let (runs, left_out) = leave_out_retried(self.all_runs()?, &filter);
        if !left_out.is_empty() {
            let names = left_out.iter().map(|left| {
                let (run, retry) = (plain(&left.run), plain(&left.retry));
                format!("`{run}` (its retry `{retry}` holds all of its scores)")
            });
            let names = names.collect::<Vec<_>>().join(", ");
            // Nothing can be done about a closed standard error.
            let _ = writeln!(std::io::stderr(), "left out: {names}");
        }
        tell_gaps(&runs)?;
        Ok(AnalysedRuns { runs, left_out })
    }
}

/// Says on standard error what is missing between runs that are read together.
pub(super) fn tell_gaps(runs: &[StoredRun]) -> Result<(), AnyError> {
    for gap in gaps(runs)? {
        // Nothing can be done about a closed standard error.
        let _ = writeln!(std::io::stderr(), "{}", plain(&gap));
    }
    Ok(())
}

impl AnalysedRuns {
    /// The scores that figures are made of. Rows that a later night replaced never count. With `once`, each trace and session
    /// counts once, at its own time.
    pub fn scores(&self, query: &ScoreQuery<'_>, once: bool) -> Result<Vec<ScoreRecord>, AnyError> {
        Ok(match once {
            true => read_latest_scores(&self.runs, query, TimeOf::Traces)?,
            false if any_goes_on(&self.runs)? => {
                read_latest_scores(&self.runs, query, TimeOf::Run)?
            }
            false => read_scores(&self.runs, query)?,
        })
    }

    /// Prints one result, as [`listing::print`] does.
    pub fn print<T: Serialize>(
        &self,
        json: bool,
        result: &T,
        text: impl FnOnce() -> String,
    ) -> Result<(), AnyError> {
        listing::print(json, &self.told(result), text)
    }

    /// Prints rows. They stay a list in JSON, so that each of them says what was left out.
    pub fn print_rows<T: Serialize>(
        &self,
        json: bool,
        rows: &[T],
        text: impl FnOnce() -> String,
    ) -> Result<(), AnyError> {
        let told: Vec<Told<'_, T>> = rows.iter().map(|row| self.told(row)).collect();
        listing::print(json, &told, text)
    }

    fn told<'a, T: Serialize>(&'a self, result: &'a T) -> Told<'a, T> {
        Told {
            result,
            left_out: &self.left_out,
        }
    }
}
