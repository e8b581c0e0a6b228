//! `nightmill import`: traces of any format as Parquet of nightmill's own columns.

use std::path::{Path, PathBuf};

use clap::Args;

use super::piped::Piped;
use super::setting_flags::{Offer, SettingFlags};
use super::{AnyError, Outcome, outcome};
use crate::job::{Job, Setting};
use crate::run::open;
use crate::run::{ImportRequest, Imported, import};
use crate::store::FileDestination;
use crate::text::{origin_of, with_origins};
use crate::trace::format::Found;

/// Flags of `import`.
#[derive(Args, Debug)]
pub(super) struct ImportArgs {
    /// Files, folders and globs, also of several formats at once; .gz and .zst too
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    /// The Parquet file to make, here or in a bucket
    #[arg(long, value_name = "FILE", required_unless_present = "explain")]
    out: Option<PathBuf>,
    /// Say which format each file is in, why, and which of its fields becomes which column; writes nothing
    #[arg(long, conflicts_with = "out")]
    explain: bool,
    #[command(flatten)]
    settings: SettingFlags<OfImport>,
}

#[derive(Debug)]
struct OfImport;

impl Offer for OfImport {
    fn offers(setting: &Setting) -> bool {
        [
            "format",
            "mapping",
            "text_mode",
            "on_bad_file",
            "memory_limit",
            "threads",
            "overwrite",
            "offline",
            "json",
        ]
        .contains(&setting.name)
    }

    fn help(setting: &Setting) -> Option<&'static str> {
        match setting.name {
            "text_mode" => Some(
                "What input and output hold: what was said (content), or the exported documents (compat) [default: content]",
            ),
            "overwrite" => Some("Replace an existing file"),
            "offline" => Some("Refuse everything that would open a connection"),
            _ => None,
        }
    }
}

pub(super) fn run(mut args: ImportArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let _piped = Piped::take(&mut args.paths)?;
    let job = Job::of(args.settings.given.complete(config)?)?;
    let inputs = crate::store::fetched(args.paths, job.offline)?;
    let found = open::found(&job, &inputs.paths)?;
    let Some(out) = args.out else {
        outcome::print(&explained(&found, job.json)?)?;
        return Ok(Outcome::Done);
    };
    let place = FileDestination::of(out, job.overwrite, job.offline, &inputs)?;
    let request: ImportRequest = open::import(&job, found, place.file().to_owned())?;
    let mut imported = import(&request)?;
    imported.out = PathBuf::from(origin_of(&imported.out));
    place.deliver()?;
    let text = match job.json {
        true => format!("{}\n", serde_json::to_string_pretty(&imported)?),
        false => told(&imported),
    };
    outcome::print_of(&request.out, &with_origins(&text))?;
    Ok(match imported.set_aside {
        0 => Outcome::Done,
        _ => Outcome::Incomplete,
    })
}

fn told(imported: &Imported) -> String {
    let mut text = String::new();
    for note in &imported.notes {
        text.push_str(&format!("{note}\n"));
    }
    for (reason, count) in &imported.reasons {
        text.push_str(&format!("{count} documents could not be read: {reason}\n"));
    }
    text.push_str(&format!("traces: {}\n", imported.out.display()));
    text
}

/// Format, reason and mapping of each file.
fn explained(found: &Found, json: bool) -> Result<String, AnyError> {
    let native = found.native.iter().map(|file| {
        (
            origin_of(&file.path),
            "nightmill",
            "no other format claims it".to_owned(),
            Vec::new(),
        )
    });
    let foreign = found.foreign.iter();
    let foreign = foreign.map(|file| {
        (
            origin_of(&file.path),
            file.reader.name(),
            file.why.clone(),
            file.reader.mapping(),
        )
    });
    let all: Vec<_> = native.chain(foreign).collect();
    if json {
        let files = all.iter().map(|(path, name, why, mapping)| {
            let mapping: serde_json::Map<_, _> = mapping
                .iter()
                .map(|(column, source)| (column.clone(), source.as_str().into()))
                .collect();
            serde_json::json!({"file": path, "format": name, "why": why, "mapping": mapping})
        });
        return Ok(format!(
            "{}\n",
            serde_json::to_string_pretty(&files.collect::<Vec<_>>())?
        ));
    }
    let mut text = String::new();
    let mut told: Vec<&str> = Vec::new();
    for (path, name, why, mapping) in &all {
        text.push_str(&format!("{path}: {name}: {why}\n"));
        if mapping.is_empty() || told.contains(name) {
            continue;
        }
        told.push(name);
        let width = mapping
            .iter()
            .map(|(column, _)| column.len())
            .max()
            .unwrap_or(0);
        for (column, source) in mapping {
            text.push_str(&format!("  {column:width$}  {source}\n"));
        }
    }
    for (path, problem) in &found.damaged {
        text.push_str(&format!("{}: damaged: {problem}\n", path.display()));
    }
    for path in &found.passed_over {
        text.push_str(&format!(
            "{}: passed over: no format that is known\n",
            origin_of(path)
        ));
    }
    Ok(text)
}
