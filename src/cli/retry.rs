//! `nightmill runs retry`: a new run that asks again what failed.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use super::notify::Notifier;
use super::scores::{beside, one_run};
use super::setting_flags::{Offer, SettingFlags};
use super::{AnyError, Outcome, conversations, idle_flags, outcome, score};
use crate::job::{Given, Job, RecordedFile, Setting, SettingsError};
use crate::judge::MOST_ROUNDS;
use crate::report::counted;
use crate::run::Retry;
use crate::run::open::{self, Tables};
use crate::store::Destination;

/// Flags of `runs retry`.
#[derive(Args, Debug)]
pub(super) struct RetryArgs {
    /// The run directory; the files that it read must be local, and what they were
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The run directory to make [default: DIR-retry]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags<OfRetry>,
    /// Print the summary as JSON; null where nothing failed
    #[arg(long)]
    json: bool,
}

#[derive(Debug)]
struct OfRetry;

impl Offer for OfRetry {
    fn offers(setting: &Setting) -> bool {
        Self::help(setting).is_some()
    }

    fn help(setting: &Setting) -> Option<&'static str> {
        Some(match setting.name {
            "judge_url" => "The endpoint again, if its URL has a secret: those are written nowhere",
            "judge_headers" => "Headers again, if their values were written out",
            "judge_key_file" => "Another file with the key",
            "judge_rounds" => {
                "Rounds of a question whose replies can't be used [default: one more than in the old run, and one more than \
                 the ledger holds]"
            }
            "ledger" => "The ledger, if it has moved",
            "notify" => "Post a summary of the new run to this address, as score does",
            "notify_format" => "What is posted, as for score",
            "notify_link" => "What links into the report begin with, as for score",
            "notify_when" => "Of which runs, as for score",
            "notify_texts" => "Post texts of traces too, where the run has a report",
            _ => return None,
        })
    }
}

pub(super) fn run(args: RetryArgs) -> Result<Outcome, AnyError> {
    let alerts = args.settings.given.clone().only(of_alerts);
    let job = Job::of(alerts.clone())?;
    idle_flags::of_alerts(&alerts, &job)?;
    let notifier = Notifier::of(&job)?;
    let out = args.out.clone();
    let out = out.unwrap_or_else(|| beside(&args.dir, "retry"));
    let result = retried(args, notifier.as_ref());
    if let (Some(notifier), Err(error)) = (&notifier, &result) {
        notifier.failed(None, &out, &error.to_string());
    }
    result
}

fn of_alerts(name: &str) -> bool {
    Setting::named(name).is_some_and(Setting::of_alerts)
}

fn retried(args: RetryArgs, notifier: Option<&Notifier>) -> Result<Outcome, AnyError> {
    if args.dir.to_string_lossy().contains("://") {
        return Err(SettingsError(format!(
            "`{}`: retries read local runs and their local files alone; copy the run here first",
            args.dir.display()
        ))
        .into());
    }
    let retry = Retry::of(one_run(&args.dir)?)?;
    if retry.pairs() == 0 && retry.conversations() == 0 {
        let told = nothing_failed(&retry);
        match args.json {
            true => {
                tracing::warn!("{told}");
                outcome::print("null\n")?;
            }
            false => outcome::print(&format!("{told}\n"))?,
        }
        return Ok(Outcome::Done);
    }
    retry.check()?;
    // Who is told is no part of what was asked.
    let again = args.settings.given.only(|name| !of_alerts(name));
    let given = given(&retry, &again)?;
    let out = args.out.unwrap_or_else(|| beside(retry.path(), "retry"));
    let conversations = retry.conversations() as u64;
    let conversations = counted(conversations, "conversation", "conversations");
    let asking = match retry.of_turns() {
        true => conversations,
        false => {
            let pairs = retry.pairs() as u64;
            let scores = counted(pairs, "score of a trace", "scores of traces");
            format!("{scores} and {conversations}")
        }
    };
    let mut told = format!("{}: asking again for {asking}\n", retry.name);
    if retry.edited() > 0 {
        let edited = counted(retry.edited(), "edited score", "edited scores");
        told.push_str(&format!(
            "{edited} of metrics without a judge will be computed again\n"
        ));
    }
    let paths = |files: &[RecordedFile]| files.iter().map(|file| file.path.clone()).collect();
    let files = paths(&retry.request.files);
    let tables = retry.request.tables.as_ref();
    let tables = tables.filter(|_| retry.of_turns()).cloned();
    let tell = || match args.json {
        true => Ok(()),
        false => outcome::print(&told),
    };
    if let Some(of_turns) = tables {
        let tables = Tables {
            turns: files,
            cases: paths(&of_turns.cases),
            all_statuses: of_turns.all_statuses,
        };
        let mut request = open::turns(given, tables, out)?;
        tell()?;
        retry.narrow_turns(&mut request);
        let here = Destination::local(request.out.clone());
        return conversations::carry_out(&request, args.json, here, notifier);
    }
    let here = Destination::local(out.clone());
    let mut request = open::score(&Job::of(given)?, files, out, Some(crate::report::html))?;
    tell()?;
    retry.narrow(&mut request);
    score::carry_out(&request, args.json, here, notifier)
}

fn nothing_failed(retry: &Retry) -> String {
    let mut told = vec!["no judge failed".to_owned()];
    match retry.unjudged() {
        0 => {}
        count => told.push(format!(
            "{} without one, and would fail again",
            counted(count, "score failed", "scores failed")
        )),
    }
    match retry.pending() {
        0 => {}
        count => told.push(format!(
            "{} still pending: make the run again by its command, with --overwrite",
            counted(count, "score is", "scores are")
        )),
    }
    if told.len() == 1 {
        told = vec!["nothing failed".to_owned()];
    }
    format!("{}: {}", retry.id(), told.join("; "))
}

/// The settings of the old run, and what was given again. Neither the environment nor a settings file has a say.
fn given(retry: &Retry, again: &Given) -> Result<Given, AnyError> {
    let old = Given::of_record(&retry.request.settings)?;
    if old.has("replay") {
        let message = format!(
            "the run `{}` only replayed its ledger (--replay), so that nobody may be asked; score the traces again without it",
            retry.id()
        );
        return Err(SettingsError(message).into());
    }
    // Replies that could not be used are the ledger's answers to the rounds that there were.
    let rounds = old.get("judge_rounds").and_then(Value::as_str);
    let rounds = rounds.unwrap_or("1").parse();
    let one_more = rounds.map_or(2, |rounds: u32| rounds.saturating_add(1).min(MOST_ROUNDS));
    let mut given = old.with("judge_rounds", one_more.to_string());
    if !retry.of_turns() {
        // The pairs are known: nothing else chooses them.
        given = given.without(&[
            "judge_sample",
            "sample_seed",
            "judge_only",
            "judge_tags",
            "judge_where",
        ]);
    }
    let given = given.given_again(again)?;
    let missing = given.missing_secrets();
    if !missing.is_empty() {
        let message = format!(
            "the manifest of `{}` keeps no secrets; give again: {}",
            retry.id(),
            missing.join(" ")
        );
        return Err(SettingsError(message).into());
    }
    let given = given.without(&["overwrite", "json"]);
    Ok(match retry.precision() {
        None => given,
        Some(precision) => given.with("precision", precision),
    })
}
