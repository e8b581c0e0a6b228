//! `nightmill plan`: what judges would be asked, before anything is sent.

use std::path::{Path, PathBuf};

use clap::Args;

use super::piped::Piped;
use super::score::brought;
use super::setting_flags::{OfRuns, SettingFlags};
use super::target_flags::TargetFlags;
use super::{AnyError, Outcome, conversations, idle_flags, outcome};
use crate::job::Job;
use crate::output::QuarantineSummary;
use crate::report::{brief, counted};
use crate::run::open::{self, sample_seed};
use crate::run::{PlanSummary, PlannedTables, ScoreRequest, plan};

/// Flags of `plan`.
#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    /// Files, folders (also Hive-partitioned) and globs of traces, here or in buckets; for tables of turns see `conversations --dry-run`
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    #[command(flatten)]
    targets: TargetFlags,
    #[command(flatten)]
    settings: SettingFlags<OfRuns>,
}

pub(super) fn run(mut args: PlanArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let _piped = Piped::take(&mut args.paths)?;
    let mut job = Job::of(args.settings.given.clone().complete(config)?)?;
    let why = "a plan makes no run, so that there is nothing to hold against earlier nights; leave it out";
    idle_flags::of_no_night(&args.settings.given, why)?;
    idle_flags::of_no_run(&args.settings.given)?;
    let inputs = brought(args.paths, &mut job)?;
    // A plan makes no run directory.
    let request = ScoreRequest {
        targets: args.targets.choice(sample_seed(&job))?,
        ..open::score(&job, inputs.paths.clone(), PathBuf::new(), None)?
    };
    let Some(judge) = &request.judge else {
        return Err("no metric of this plan asks a judge, so that nothing would be sent; name one with --metrics".into());
    };
    let sampled = args.targets.sampled();
    idle_flags::of_scoring(&args.settings.given, &job, &request.rules, sampled)?;
    print(&plan(&request, judge)?, job.json, None)
}

/// Prints a plan, and where it was written if it was.
pub(super) fn print(
    plan: &PlanSummary,
    json: bool,
    written: Option<&Path>,
) -> Result<Outcome, AnyError> {
    let mut text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(plan)?),
        false => table(plan),
    };
    if let Some(written) = written.filter(|_| !json) {
        text.push_str(&format!("\ntables: {}\n", crate::text::origin_of(written)));
    }
    outcome::print(&text)?;
    Ok(Outcome::Done)
}

fn table(plan: &PlanSummary) -> String {
    let chosen = match &plan.tables {
        None => format!(
            "{} would be judged, of {}",
            counted(plan.chosen_traces, "trace", "traces"),
            counted(plan.rows, "row", "rows")
        ),
        Some(tables) => format!(
            "{} of {} would be judged, from {} of turns and {} of cases",
            plan.total.calls,
            counted(tables.conversations, "conversation", "conversations"),
            counted(tables.counts.turn_rows, "row", "rows"),
            tables.counts.case_rows
        ),
    };
    let mut text = format!(
        "{chosen}; nothing was sent\n\n\
         metric                model                         calls  of them known   prompt tokens  reply tokens     dollars\n",
    );
    for metric in plan.metrics.iter().chain([&plan.total]) {
        let cost = metric
            .cost
            .map_or_else(|| "no price".to_owned(), |cost| format!("{cost:.4}"));
        text.push_str(&format!(
            "{:<21} {:<26} {:>8} {:>14} {:>15} {:>13} {:>11}\n",
            metric.name,
            metric.model,
            metric.calls,
            metric.known,
            metric.prompt_tokens,
            metric.reply_tokens,
            cost
        ));
    }
    text.push_str(&format!(
        "\nFirst stages are counted exactly, later ones at their most: they need the replies of the first. Tokens are estimated \
         (a token for four bytes; {} for a reply, four times as many for one about a conversation). Prices as of {}.\n",
        plan.usual_reply_tokens, plan.prices_as_of
    ));
    let notes = plan.tables.as_ref().map(notes).unwrap_or_default();
    if !notes.is_empty() {
        text.push_str(&format!("\nnotes\n  {}\n", notes.join("\n  ")));
    }
    text
}

fn notes(tables: &PlannedTables) -> Vec<String> {
    let mut notes = set_aside(&tables.quarantine);
    if tables.not_asked > 0 {
        notes.push(format!(
            "{} would fail without a call: without turns, with a row that was set aside, failed by themselves, or too long",
            counted(tables.not_asked, "conversation", "conversations")
        ));
    }
    notes.extend(conversations::left_out(&tables.counts));
    notes
}

/// Rows that were set aside, by problem.
pub(super) fn set_aside(problems: &[QuarantineSummary]) -> Vec<String> {
    let notes = problems.iter().map(|q| {
        let (rows, example) = (counted(q.rows, "row", "rows"), brief(&q.example));
        format!("{rows} quarantined: {}, first {example}", q.code)
    });
    notes.collect()
}
