//! `nightmill metrics`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::setting_flags::{OfJudges, SettingFlags};
use super::{AnyError, Outcome, outcome};
use crate::conversation::{Catalogue, CustomMetric};
use crate::job::{Given, Job};
use crate::metric::ALL;
use crate::report::plain;
use crate::run::open::{JudgeFile, column_map, questions};
use crate::run::{PreviewedTrace, draft_metric, preview_prompts};

/// Flags of `metrics`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct MetricsArgs {
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// List what the judge of conversations scores instead
    #[arg(long)]
    judge: bool,
    /// With the metrics of this file, as `score --judge-config` takes it
    #[arg(long, value_name = "FILE")]
    judge_config: Option<PathBuf>,
    /// Show what this metric asks a judge, stage by stage; sends nothing
    #[arg(long, value_name = "METRIC", conflicts_with = "judge")]
    prompt: Option<String>,
    /// With --prompt: as it would be asked about a trace of this file, folder or glob
    #[arg(long, value_name = "PATH", requires = "prompt")]
    trace: Option<String>,
    /// Which trace of it [default: the first]
    #[arg(long, value_name = "ID", requires = "trace")]
    trace_id: Option<String>,
    #[command(subcommand)]
    command: Option<MetricsCommand>,
}

#[derive(Debug, Subcommand)]
enum MetricsCommand {
    /// Let a judge draft a metric of conversations from a description; it is printed and not saved
    Draft(Box<DraftArgs>),
}

/// Flags of `metrics draft`.
#[derive(Args, Debug)]
struct DraftArgs {
    /// What the metric should be about, in plain words
    #[arg(value_name = "WISH")]
    wish: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Refuse everything that would open a connection
    #[arg(long)]
    offline: bool,
    #[command(flatten)]
    judge: SettingFlags<OfJudges>,
}

pub(super) fn run(args: MetricsArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let text = if let Some(MetricsCommand::Draft(args)) = args.command {
        draft(*args, config)?
    } else if let Some(metric) = &args.prompt {
        prompts(metric, &args, config)?
    } else if args.judge_config.is_some() && !args.judge {
        return Err("--judge-config: says what --judge and --prompt show; add one of them".into());
    } else if args.judge {
        let file = judge_file(args.judge_config.as_deref())?;
        of_conversations(&file.catalogue, args.json)?
    } else {
        registered(args.json)?
    };
    outcome::print(&text)?;
    Ok(Outcome::Done)
}

/// What a metric asks. Column names are those of the settings file.
fn prompts(metric: &str, args: &MetricsArgs, config: Option<&Path>) -> Result<String, AnyError> {
    let file = judge_file(args.judge_config.as_deref())?;
    let map = column_map(&Job::of(Given::default().complete(config)?)?)?;
    let trace = args.trace.clone().map(|path| PreviewedTrace {
        path,
        trace_id: args.trace_id.clone(),
        map,
    });
    let prompts = preview_prompts(metric, file.config, &file.catalogue, trace.as_ref())?;
    if args.json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&prompts)?));
    }
    let mut text = String::new();
    for prompt in &prompts {
        text.push_str(&format!(
            "== {} (prompt {}, version {})\n-- system\n{}\n-- user\n{}\n\n",
            prompt.stage, prompt.prompt, prompt.version, prompt.system, prompt.user
        ));
    }
    let lines: Vec<String> = text.split('\n').map(plain).collect();
    Ok(lines.join("\n"))
}

fn judge_file(path: Option<&Path>) -> Result<JudgeFile, AnyError> {
    Ok(match path {
        None => JudgeFile::default(),
        Some(path) => JudgeFile::read(path)?,
    })
}

/// A draft as an entry of the file that `--judge-config` takes.
#[derive(Serialize)]
struct Entry {
    custom_metrics: [CustomMetric; 1],
}

fn draft(args: DraftArgs, config: Option<&Path>) -> Result<String, AnyError> {
    if args.wish.trim().is_empty() {
        return Err("say in a few words what the metric should be about".into());
    }
    let mut given = args.judge.given;
    for (name, on) in [("offline", args.offline), ("json", args.json)] {
        if on {
            given = given.with(name, true);
        }
    }
    let job = Job::of(given.complete(config)?)?;
    let request = questions(&job, "`metrics draft`")?;
    let file = judge_file(job.judge_config.as_deref())?;
    let draft = draft_metric(&request, &args.wish, &file.catalogue)?;
    if job.json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&draft)?));
    }
    let name = draft.name.clone();
    let entry = toml::to_string_pretty(&Entry {
        custom_metrics: [draft],
    })?;
    Ok(format!(
        "# For the file that --judge-config names; a selection there takes it in: {{ metric = \"{name}\" }}\n{entry}"
    ))
}

fn registered(json: bool) -> Result<String, AnyError> {
    if json {
        let list: Vec<_> = ALL
            .iter()
            .map(|m| {
                serde_json::json!({
                    "name": m.name,
                    "level": m.level.name(),
                    "method": m.method.name(),
                    "default_threshold": m.has_scores().then_some(m.default_threshold),
                    "inputs": m.inputs,
                    "meaning": m.meaning,
                })
            })
            .collect();
        return Ok(format!("{}\n", serde_json::to_string_pretty(&list)?));
    }
    let mut text = String::new();
    for m in ALL {
        text.push_str(&format!(
            "{}\n  level {}, method {}, {}\n  from {}\n  {}\n",
            m.name,
            m.level.name(),
            m.method.name(),
            match m.has_scores() {
                true => format!("default threshold {}", m.default_threshold),
                false => "no score and no threshold".to_owned(),
            },
            m.inputs.join(", "),
            m.meaning
        ));
    }
    Ok(text)
}

/// The scales of the metric `conversation` (as in Connexity).
fn of_conversations(catalogue: &Catalogue, json: bool) -> Result<String, AnyError> {
    if json {
        let listing = serde_json::to_string_pretty(&catalogue.listing())?;
        return Ok(format!("{listing}\n"));
    }
    let mut text = String::new();
    for m in catalogue.listed() {
        text.push_str(&format!(
            "{} ({})\n  tier {}, {}, default weight {}{}\n  {}\n",
            m.name,
            m.display_name,
            m.tier.name(),
            m.score_type.name(),
            m.default_weight,
            match catalogue.defaults().any(|default| default.name == m.name) {
                true => "",
                false => ", only where it is selected",
            },
            m.description
        ));
    }
    Ok(text)
}
