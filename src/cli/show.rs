//! `nightmill runs show`: all that a run says of itself.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::{AnyError, Outcome, brought, listing};
use crate::history::{StoredRun, read_run, read_told};
use crate::output::{BegunRun, begun_runs};
use crate::report::counted;
use crate::text::{format_instant, origin_of};

/// Flags of `runs show`.
#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    /// The run directory, here or in a bucket, or the one that a run was to make that failed or is under way
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print as JSON: the run, its manifest and its summary
    #[arg(long)]
    json: bool,
}

/// A finished run with what it wrote.
#[derive(Serialize)]
struct Told {
    run: StoredRun,
    manifest: Value,
    summary: Value,
}

pub(super) fn run(args: &ShowArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let (dirs, _fetched) = brought(std::slice::from_ref(&args.dir), config)?;
    let dir = dirs.into_iter().next().unwrap_or_default();
    let begun = begun_as(&dir);
    if !dir.exists() && !begun.is_empty() {
        listing::print(args.json, &begun, || {
            lines(begun.iter().flat_map(of_begun).collect())
        })?;
        return Ok(Outcome::Done);
    }
    let mut run = read_run(&dir.canonicalize().unwrap_or(dir))?;
    let (manifest, summary) = read_told(&run.path)?;
    run.path = PathBuf::from(origin_of(&run.path));
    let told = Told {
        run,
        manifest,
        summary,
    };
    listing::print(args.json, &told, || {
        let mut text = lines(of_finished(&told));
        text.push('\n');
        text.push_str(&metrics(&told.summary));
        text
    })?;
    Ok(Outcome::Done)
}

/// The records of runs that were to make this directory, by time.
fn begun_as(dir: &Path) -> Vec<BegunRun> {
    let parent = dir.parent().filter(|p| !p.as_os_str().is_empty());
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let mut begun = begun_runs(parent.unwrap_or(Path::new(".")));
    begun.retain(|run| run.name == name);
    begun.sort_by_key(|run| run.created_at);
    begun
}

type Line = (&'static str, String);

fn lines(lines: Vec<Line>) -> String {
    let rows = lines
        .into_iter()
        .map(|(name, value)| [name.to_owned(), value]);
    listing::table(["run", ""], rows.collect())
}

fn of_begun(run: &BegunRun) -> Vec<Line> {
    let mut lines = vec![
        ("name", run.name.clone()),
        ("status", run.status.name().to_owned()),
        ("command", run.command.clone()),
        ("began", format_instant(run.created_at)),
        ("process", run.process.to_string()),
        ("metrics", run.metric_names.join(", ")),
    ];
    lines.extend(run.monitor_id.iter().map(|id| ("monitor", id.clone())));
    lines.extend(run.error.iter().map(|why| ("why", why.clone())));
    lines
}

/// A value as people read it: texts without quotes, lists with commas, members as `name=value`.
fn words(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(", "),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| format!("{name}={}", words(value)));
            members.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

fn of_finished(told: &Told) -> Vec<Line> {
    let Told {
        run,
        manifest,
        summary,
    } = told;
    let of = |value: &Value, path: &str| words(value.pointer(path).unwrap_or(&Value::Null));
    let inputs = manifest["inputs"].as_array().map_or(&[][..], Vec::as_slice);
    let bytes: u64 = inputs
        .iter()
        .filter_map(|input| input["bytes"].as_u64())
        .sum();
    let first = inputs.first().map(|input| of(input, "/path"));
    let files = manifest["files"]
        .as_object()
        .map_or(0, |files| files.len() as u64);
    let mut lines = vec![
        ("name", run.name.clone()),
        ("title", run.title.clone().unwrap_or_default()),
        ("status", run.status.name().to_owned()),
        ("command", run.command.clone()),
        ("created", format_instant(run.created_at)),
        ("edited", of(manifest, "/edited_at")),
        ("nightmill", of(manifest, "/nightmill")),
        (
            "metrics",
            run.record
                .metric_names
                .clone()
                .unwrap_or_default()
                .join(", "),
        ),
        (
            "inputs",
            match first {
                None => String::new(),
                Some(first) if inputs.len() == 1 => format!("{first} ({bytes} bytes)"),
                Some(first) => format!(
                    "{} ({bytes} bytes), first {first}",
                    counted(inputs.len() as u64, "file", "files")
                ),
            },
        ),
        ("signals", of(manifest, "/signals")),
        (
            "rows",
            match summary["rows_read"].as_u64() {
                None => String::new(),
                Some(rows) => format!(
                    "{rows} read: {} traces, {} merged, {} quarantined, {} left out",
                    run.traces,
                    of(summary, "/merged_duplicates"),
                    of(summary, "/quarantined"),
                    of(summary, "/rows_left_out")
                ),
            },
        ),
        ("sessions", run.sessions.to_string()),
        ("failed", run.failed.to_string()),
        ("pending", run.pending.to_string()),
        ("model", of(manifest, "/model/name")),
        ("precision", of(manifest, "/model/precision")),
        ("device", of(manifest, "/model/device")),
        ("judge", run.record.model.clone().unwrap_or_default()),
        ("judged", run.judged.to_string()),
        (
            "filters",
            run.record
                .filters
                .clone()
                .map(|filters| words(&Value::Object(filters)))
                .unwrap_or_default(),
        ),
        (
            "sample",
            run.record
                .sampling_rate
                .map(|rate| rate.to_string())
                .unwrap_or_default(),
        ),
        ("window", of(manifest, "/rules/window")),
        ("weights", of(manifest, "/rules/weights")),
        ("text mode", of(manifest, "/rules/text_mode")),
        ("monitor", run.record.monitor_id.clone().unwrap_or_default()),
        ("retry of", run.record.retry_of.clone().unwrap_or_default()),
        ("scores of", of(manifest, "/scores_of")),
        ("files", format!("{files}; see nightmill runs verify")),
        ("path", run.path.display().to_string()),
    ];
    lines.retain(|(_, value)| !value.is_empty());
    lines
}

/// The figures of each metric, as the summary has them.
fn metrics(summary: &Value) -> String {
    let rows = summary["metrics"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |row: &Value, name: &str| listing::score(row[name].as_f64());
    let whole = |row: &Value, name: &str| row[name].as_u64().unwrap_or_default().to_string();
    let rows = rows.iter().map(|row| {
        [
            words(&row["name"]),
            words(&row["level"]),
            whole(row, "count"),
            whole(row, "failed"),
            number(row, "mean"),
            number(row, "threshold"),
        ]
    });
    listing::table(
        ["metric", "level", "scored", "failed", "mean", "threshold"],
        rows.collect(),
    )
}
