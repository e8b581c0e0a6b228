//! `nightmill conversations`: judges transcripts that come as a table of turns.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::Value;

use super::notify::Notifier;
use super::piped::Piped;
use super::progress::ProgressBar;
use super::setting_flags::{Offer, SettingFlags};
use super::{AnyError, Outcome, idle_flags, outcome, plan};
use crate::conversation::{ConversationSummary, TableCounts};
use crate::job::{Given, Job, Setting, SettingsError};
use crate::metric::CONVERSATION;
use crate::report::{brief, counted};
use crate::run::open::{Tables, turns};
use crate::run::{Progress, TurnsRequest, judge_turns, plan_turns};
use crate::store::Destination;
use crate::summary::Summary;
use crate::text::origin_of;

/// Flags of `conversations`.
#[derive(Args, Debug)]
pub(super) struct ConversationsArgs {
    /// Files, folders and globs of turns: session_id, turn_index, role, content, and tool_calls, tool_call_id,
    /// latency_ms, token_count where there are any
    #[arg(required = true, value_name = "TURNS")]
    turns: Vec<String>,
    /// What is known of transcripts, one row each: session_id, and test_case, repetition_index, expected_outcomes,
    /// evaluation_criteria_override, agent_system_prompt, agent_tools, error and more
    #[arg(long, value_name = "FILE")]
    cases: Option<String>,
    /// Judge drafts and archived cases too [default: active ones]
    #[arg(long)]
    all_statuses: bool,
    /// Only count what the judge would be asked and what it would cost; sends nothing. With --out, makes a folder with the
    /// table `judge_plan`, a row a conversation
    #[arg(long)]
    dry_run: bool,
    /// The run directory to make, or the folder of a dry run
    #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags<OfConversations>,
}

/// Flags that would change nothing are there to be refused with a reason.
#[derive(Debug)]
pub(super) struct OfConversations;

impl Offer for OfConversations {
    fn offers(_: &Setting) -> bool {
        true
    }

    fn hides(setting: &Setting) -> bool {
        idle_flags::OF_CONVERSATIONS.contains(&setting.name)
    }
}

pub(super) fn run(mut args: ConversationsArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let _piped = Piped::take(&mut args.turns)?;
    refuse_idle_flags(&args.settings.given)?;
    let flags = args.settings.given.clone();
    args.settings.given = args.settings.given.complete(config)?;
    if args.dry_run {
        idle_flags::of_no_alert(
            &flags,
            "a dry run makes no run, so that there is nothing to tell of; leave it out",
        )?;
        return judged(args, None);
    }
    let job = Job::of(args.settings.given.clone())?;
    idle_flags::of_alerts(&flags, &job)?;
    if flags.has("notify_texts") {
        return Err(SettingsError(
            "--notify-texts: a run over a table of turns has no report, whose texts these are; leave it out".into(),
        )
        .into());
    }
    let notifier = Notifier::of(&job)?;
    let out = args.out.clone().unwrap_or_default();
    let result = judged(args, notifier.as_ref());
    if let (Some(notifier), Err(error)) = (&notifier, &result) {
        notifier.failed(None, &out, &error.to_string());
    }
    result
}

/// Judges, or plans to; the settings are complete.
fn judged(args: ConversationsArgs, notifier: Option<&Notifier>) -> Result<Outcome, AnyError> {
    let given = args.settings.given;
    let (json, overwrite) = (given.has("json"), given.has("overwrite"));
    let offline = given.has("offline");
    let inputs = crate::store::fetched(args.turns, offline)?;
    let cases = crate::store::fetched(args.cases.into_iter().collect(), offline)?;
    let tables = Tables {
        turns: inputs.paths.clone(),
        cases: cases.paths.clone(),
        all_statuses: args.all_statuses,
    };
    let names = crate::output::names_of_a_run();
    let out = args
        .out
        .map(|out| Destination::of(out, overwrite, offline, &inputs, names, None));
    let place = out.transpose()?;
    let out = place.as_ref().map(|place| place.folder().to_owned());
    let request = TurnsRequest {
        overwrite,
        ..turns(given, tables, out.clone().unwrap_or_default())?
    };
    match args.dry_run {
        true => {
            let (plan, written) = plan_turns(&request, out.as_deref())?;
            place.map_or(Ok(()), Destination::deliver)?;
            plan::print(&plan, json, written.as_deref())
        }
        false => carry_out(&request, json, place.unwrap_or_default(), notifier),
    }
}

/// Judges, with a progress bar, prints what came of it, and tells who is to be told.
pub(super) fn carry_out(
    request: &TurnsRequest,
    json: bool,
    place: Destination,
    notifier: Option<&Notifier>,
) -> Result<Outcome, AnyError> {
    let progress = Arc::new(Progress::default());
    let bar = ProgressBar::start(Arc::clone(&progress));
    let result = judge_turns(request, &progress);
    bar.stop();
    let (summary, folder) = result?;
    place.deliver()?;
    let ended = Outcome::of(&summary);
    let text = match json {
        true => format!("{}\n", serde_json::to_string_pretty(&summary)?),
        false => format!("{}results: {}\n", text(&summary), origin_of(&folder)),
    };
    let printed = outcome::print_of(&folder, &text);
    if let Some(notifier) = notifier {
        notifier.ended(None, &folder, false, &summary, ended);
    }
    printed?;
    Ok(ended)
}

/// Refuses flags that would do nothing here.
fn refuse_idle_flags(given: &Given) -> Result<(), SettingsError> {
    idle_flags::of_conversations(given)?;
    for setting in ["threshold", "fail_under", "judge_model"] {
        let pairs = given.get(setting).and_then(Value::as_array);
        let mut pairs = pairs.into_iter().flatten().filter_map(Value::as_str);
        let other = pairs.find(|pair| {
            let name = pair.split('=').next().unwrap_or_default();
            name.trim() != CONVERSATION
        });
        if let Some(pair) = other {
            let flag = setting.replace('_', "-");
            return Err(SettingsError(format!(
                "--{flag} {pair}: this command has one metric; write {CONVERSATION}=…"
            )));
        }
    }
    Ok(())
}

/// The summary as text. Every number in it is in `summary.json` too.
fn text(summary: &Summary) -> String {
    let mut out = String::new();
    let judge = summary.judge.as_ref();
    if let Some(c) = judge.and_then(|judge| judge.conversations.as_ref()) {
        let counts = c.tables.clone().unwrap_or_default();
        // Writing to a String can't fail.
        let _ = write_judged(&mut out, summary, c, &counts);
        for (reason, count) in &c.without_score {
            let _ = writeln!(out, "  {count} without score: {}", brief(reason));
        }
        out.push_str(&crate::report::judges(summary));
        let _ = write_notes(&mut out, summary, &counts);
    }
    let stages: Vec<String> = summary
        .stages
        .iter()
        .map(|(name, seconds)| format!("{name} {seconds:.1} s"))
        .collect();
    let _ = writeln!(out, "\ntime: {}", stages.join(", "));
    for gate in &summary.gates {
        let verdict = if gate.passed { "passed" } else { "FAILED" };
        let mean = gate.value.map_or_else(|| "–".into(), |v| format!("{v:.4}"));
        let _ = writeln!(
            out,
            "gate {verdict}: mean {} {mean} (at least {})",
            gate.metric, gate.minimum
        );
    }
    out
}

fn write_judged(
    out: &mut String,
    s: &Summary,
    c: &ConversationSummary,
    counts: &TableCounts,
) -> std::fmt::Result {
    writeln!(
        out,
        "{} of {}, from {} of turns and {} of cases",
        counted(c.conversations, "conversation", "conversations"),
        counted(
            c.run.unique_test_case_count as u64,
            "test case",
            "test cases"
        ),
        counted(counts.turn_rows, "row", "rows"),
        counts.case_rows
    )?;
    writeln!(
        out,
        "{} judged by {}, {} passed (at least {} of 100, or all expected outcomes met), average {}; {} failed, {} pending",
        c.judged,
        brief(&c.model),
        c.passed,
        c.run.pass_threshold,
        c.average.map_or_else(|| "–".into(), |v| format!("{v:.2}")),
        c.failed,
        c.pending
    )?;
    if !c.metrics.is_empty() {
        writeln!(
            out,
            "\n{:<24} {:>9} {:>9} {:>9}",
            "metric", "average", "above 2", "2 or less"
        )?;
    }
    for metric in &c.metrics {
        writeln!(
            out,
            "{:<24} {:>9.2} {:>9} {:>9}",
            brief(metric.metric.as_deref().unwrap_or_default()),
            metric.average_score,
            metric.passed_count,
            metric.failed_count
        )?;
    }
    let spend = s.judge.iter().flat_map(|judge| &judge.spend);
    let (cost, unpriced) = spend.fold((0.0, 0), |(cost, unpriced), spend| {
        (cost + spend.cost, unpriced + spend.unpriced)
    });
    match unpriced {
        0 => writeln!(out, "\nspent: {cost:.4} dollars"),
        _ => writeln!(
            out,
            "\nspent: {cost:.4} dollars, and {} without a known price",
            counted(unpriced, "answer", "answers")
        ),
    }
}

fn write_notes(out: &mut String, s: &Summary, counts: &TableCounts) -> std::fmt::Result {
    let mut notes = plan::set_aside(&s.quarantine);
    notes.extend(left_out(counts));
    let stopped = s.judge.iter().flat_map(|judge| &judge.stopped);
    notes.extend(stopped.map(|why| brief(why)));
    if !notes.is_empty() {
        writeln!(out, "\nnotes")?;
    }
    notes.iter().try_for_each(|note| writeln!(out, "  {note}"))
}

/// What is not judged, or judged otherwise than one may think.
pub(super) fn left_out(counts: &TableCounts) -> impl Iterator<Item = String> {
    let notes = [
        (
            counts.merged_turns,
            "turn is there twice and counts once",
            "turns are there twice and count once",
        ),
        (
            counts.without_case,
            "conversation has no row in the cases: it has no expectations",
            "conversations have no row in the cases: they have no expectations",
        ),
        (
            counts.not_active,
            "conversation left out: its case is a draft or archived (--all-statuses takes it)",
            "conversations left out: their case is a draft or archived (--all-statuses takes them)",
        ),
        (
            counts.not_sampled,
            "conversation left out by --judge-sample",
            "conversations left out by --judge-sample",
        ),
    ];
    let some = notes.into_iter().filter(|(count, ..)| *count > 0);
    some.map(|(count, one, many)| counted(count, one, many))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_traces_and_of_other_metrics_are_refused() {
        let refused = |given: Given| refuse_idle_flags(&given).map_err(|e| e.to_string());
        assert!(refused(Given::default()).is_ok());
        let of_conversations = Given::default().with("threshold", vec!["conversation=0.8"]);
        assert!(refused(of_conversations).is_ok());
        let problem = refused(Given::default().with("fail_under", vec!["coherence=0.8"]));
        let problem = problem.unwrap_err();
        assert!(problem.contains("--fail-under coherence=0.8"), "{problem}");
        assert!(refused(Given::default().with("judge_where", "coherence < 1")).is_err());
        let problem = refused(Given::default().with("judge_policy", "compat")).unwrap_err();
        assert!(problem.starts_with("--judge-policy:"), "{problem}");
    }
}
