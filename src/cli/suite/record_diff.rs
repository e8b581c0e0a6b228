//! Two records of regression suites side by side, for `nightmill suite diff`.

use std::path::Path;

use serde_json::{Value, json};

use crate::cli::{AnyError, Outcome, outcome};
use crate::report::{counted, plain};
use crate::suite::regression::{CaseDiff, CaseStatus, RunDiff, RunRecord, ThenNow, diff_records};

/// Compares two records and prints what changed.
///
/// # Errors
/// If a file is no record, or the two have no case in common.
pub(super) fn run(before: &Path, after: &Path, json: bool) -> Result<Outcome, AnyError> {
    let (then, now) = (RunRecord::read(before)?, RunRecord::read(after)?);
    let diff = diff_records(&then, &now);
    let has_common = diff.cases.iter().any(|of| of.score.difference().is_some());
    if !has_common {
        return Err(format!(
            "`{}` and `{}` have no case in common: there is nothing to compare; name two records of one suite",
            before.display(),
            after.display()
        )
        .into());
    }
    match json {
        true => outcome::print(&format!(
            "{}\n",
            serde_json::to_string_pretty(&document(&diff))?
        ))?,
        false => outcome::print(&text(&diff))?,
    }
    let newly_failed = diff
        .cases
        .iter()
        .any(|of| of.is_flipped() && of.passed_now == Some(false));
    let is_lost = |of: &CaseDiff| of.passed_then == Some(true) && of.passed_now.is_none();
    Ok(match newly_failed {
        true => Outcome::GateFailed,
        false if diff.cases.iter().any(is_lost) => Outcome::Incomplete,
        false => Outcome::Done,
    })
}

fn document(diff: &RunDiff) -> Value {
    let pair = |of: ThenNow| json!({"then": of.then, "now": of.now, "difference": of.difference(), "relative_change": of.relative_change()});
    let metrics = |of: &crate::suite::regression::Named<ThenNow>| -> Value {
        let pairs = of.iter().map(|(name, of)| (name.to_owned(), pair(*of)));
        Value::Object(pairs.collect())
    };
    let cases = diff.cases.iter().map(|of| {
        json!({
            "id": of.id,
            "status": of.status.name(),
            "score": pair(of.score),
            "passed_then": of.passed_then,
            "passed_now": of.passed_now,
            "metrics": metrics(&of.metrics),
        })
    });
    json!({
        "before": diff.runs[0],
        "after": diff.runs[1],
        "same_suite": diff.same_suite,
        "version_changed": diff.version_changed,
        "suite": pair(diff.suite),
        "metrics": metrics(&diff.metrics),
        "cases": cases.collect::<Vec<_>>(),
    })
}

fn number(of: Option<f64>) -> String {
    of.map_or_else(|| "–".to_owned(), |of| format!("{of:.4}"))
}

fn pair(of: ThenNow) -> String {
    let change = of.relative_change().map(|share| {
        // Never a negative zero.
        let points = (share * 1000.0).round() / 10.0 + 0.0;
        format!(" ({points:+.1} %)")
    });
    format!(
        "{} → {}{}",
        number(of.then),
        number(of.now),
        change.unwrap_or_default()
    )
}

fn text(diff: &RunDiff) -> String {
    let mut lines = vec![format!("{} → {}", diff.runs[0], diff.runs[1])];
    if !diff.same_suite {
        lines.push(
            "these are runs of two suites: only cases of the same id are compared".to_owned(),
        );
    }
    if diff.version_changed {
        lines.push("the version of the suite changed".to_owned());
    }
    lines.push(format!("suite  {}", pair(diff.suite)));
    for (name, of) in diff.metrics.iter() {
        lines.push(format!("metric {name}  {}", pair(*of)));
    }
    let verdict = |passed: Option<bool>| match passed {
        Some(true) => "passed",
        Some(false) => "FAILED",
        None => "not there",
    };
    let changed = diff.cases.iter();
    let is_same = |of: &&CaseDiff| of.status == CaseStatus::Unchanged && !of.is_flipped();
    for of in changed.filter(|of| !is_same(of)) {
        lines.push(format!(
            "case {}: {}  {}  {} → {}",
            of.id,
            of.status.name(),
            pair(of.score),
            verdict(of.passed_then),
            verdict(of.passed_now)
        ));
        for (name, of) in of.metrics.iter() {
            if of.difference() != Some(0.0) {
                lines.push(format!("    {name}  {}", pair(*of)));
            }
        }
    }
    let same = diff.cases.iter().filter(is_same).count() as u64;
    if same > 0 {
        lines.push(format!("{} unchanged", counted(same, "case", "cases")));
    }
    let lines: Vec<String> = lines.iter().map(|line| plain(line)).collect();
    lines.join("\n") + "\n"
}
