//! Suites and records of regression suites, for `nightmill suite list`.

use serde_json::json;

use crate::cli::{AnyError, Outcome, outcome};
use crate::report::{counted, plain};
use crate::suite::regression::{RecordStore, RunFilter, SuitePath, head_line, suites_of};

/// Prints the suites that a path names, enabled or not.
pub(super) fn suites(path: &SuitePath, json: bool) -> Result<Outcome, AnyError> {
    let records = RecordStore::beside(path.anchor());
    let runs = records.list(&RunFilter::default())?.runs;
    let mut text = String::new();
    let mut listed = Vec::new();
    for suite in suites_of(path)? {
        let last = runs.iter().find(|of| of.golden_set_name == suite.name);
        let mut line = format!(
            "{}  {}",
            suite.name,
            counted(suite.cases as u64, "case", "cases")
        );
        if suite.without_output > 0 {
            line.push_str(&format!(", {} without an output", suite.without_output));
        }
        line.push_str(&format!(", {}", suite.file.display()));
        if let Some(alias) = &suite.alias {
            line.push_str(&format!(" ({alias})"));
        }
        if !suite.enabled {
            line.push_str(", not enabled");
        }
        text.push_str(&plain(&line));
        text.push('\n');
        if let Some(last) = last {
            text.push_str(&format!("    last run: {}\n", plain(&head_line(last))));
        }
        listed.push(json!({
            "suite": suite.name,
            "version": suite.version,
            "file": suite.file.display().to_string(),
            "alias": suite.alias,
            "enabled": suite.enabled,
            "weight": suite.weight,
            "cases": suite.cases,
            "without_output": suite.without_output,
            "last_run": last.map(|of| &of.run_id),
            "last_status": last.map(|of| of.status.name()),
        }));
    }
    print(&text, &listed, json)
}

/// Prints records, newest first; files that are no records are told of on standard error.
pub(super) fn records(
    records: &RecordStore,
    filter: &RunFilter,
    json: bool,
) -> Result<Outcome, AnyError> {
    let listing = records.list(filter)?;
    let pins = records.pins()?;
    let mut text = String::new();
    let mut listed = Vec::new();
    for head in &listing.runs {
        let is_pinned = pins.values().any(|id| *id == head.run_id);
        text.push_str(&plain(&head_line(head)));
        text.push_str(if is_pinned { "  pinned\n" } else { "\n" });
        listed.push(json!({
            "run_id": head.run_id,
            "suite": head.golden_set_name,
            "version": head.golden_set_version,
            "timestamp": crate::text::format_instant(head.timestamp),
            "status": head.status.name(),
            "branch": head.branch,
            "suite_score": head.suite_score,
            "metric_summary": head.metric_summary,
            "pinned": is_pinned,
        }));
    }
    if listing.runs.is_empty() && !json {
        text = format!("no such record in `{}`\n", records.folder().display());
    }
    for skipped in &listing.skipped {
        tracing::warn!("skipped: {skipped}");
    }
    print(&text, &listed, json)
}

fn print(text: &str, listed: &[serde_json::Value], json: bool) -> Result<Outcome, AnyError> {
    match json {
        true => outcome::print(&format!("{}\n", serde_json::to_string_pretty(listed)?))?,
        false => outcome::print(text)?,
    }
    Ok(Outcome::Done)
}
