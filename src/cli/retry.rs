//! `nightmill runs retry`: a new run that asks again what failed.

use std::path::PathBuf;

use clap::Args;

use super::conversations::Tables;
use super::scores::{beside, one_run};
use super::{AnyError, Outcome, conversations, outcome, request, score};
use crate::job::{RecordedFile, Settings, SettingsError, split_pairs};
use crate::judge::MOST_ROUNDS;
use crate::report::counted;
use crate::run::Retry;

/// Flags of `runs retry`.
#[derive(Args, Debug)]
pub(super) struct RetryArgs {
    /// The run directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The run directory to make [default: DIR-retry]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The endpoint again, if its URL has a secret: those are written nowhere
    #[arg(long, value_name = "URL")]
    judge_url: Option<String>,
    /// Headers again, if their values were written out
    #[arg(long, value_name = "NAME=VALUE,...", value_delimiter = ',')]
    judge_headers: Vec<String>,
    /// Another file with the key
    #[arg(long, value_name = "FILE")]
    judge_key_file: Option<PathBuf>,
    /// Rounds of a question whose replies can't be used [default: one more than in the old run, and one more than the ledger
    /// holds]
    #[arg(long, value_name = "N")]
    judge_rounds: Option<String>,
    /// The ledger, if it has moved
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Print the summary as JSON; null where nothing failed
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: RetryArgs) -> Result<Outcome, AnyError> {
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
    let settings = settings(&retry, &args)?;
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
        let mut request = conversations::request_of(settings, tables, out)?;
        tell()?;
        retry.narrow_turns(&mut request);
        return conversations::carry_out(&request, args.json);
    }
    let mut request = request::score(&settings, files, out)?;
    tell()?;
    retry.narrow(&mut request);
    score::carry_out(&request, args.json)
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
fn settings(retry: &Retry, args: &RetryArgs) -> Result<Settings, AnyError> {
    let mut settings = Settings::of_record(&retry.request.settings)?;
    let judge = &mut settings.judge;
    if judge.replay {
        let message = format!(
            "the run `{}` only replayed its ledger (--replay), so that nobody may be asked; score the traces again without it",
            retry.id()
        );
        return Err(SettingsError(message).into());
    }
    // Replies that could not be used are the ledger's answers to the rounds that there were.
    let rounds = judge.judge_rounds.as_deref().unwrap_or("1").parse();
    let one_more = rounds.map_or(2, |rounds: u32| rounds.saturating_add(1).min(MOST_ROUNDS));
    let rounds = args.judge_rounds.clone();
    judge.judge_rounds = Some(rounds.unwrap_or_else(|| one_more.to_string()));
    if !retry.of_turns() {
        // The pairs are known: nothing else chooses them.
        (judge.judge_sample, judge.sample_seed) = (None, None);
        (judge.judge_only, judge.judge_tags, judge.judge_where) = (None, None, None);
    }
    if args.judge_url.is_some() {
        judge.judge_url.clone_from(&args.judge_url);
    }
    if args.judge_key_file.is_some() {
        judge.judge_key_file.clone_from(&args.judge_key_file);
    }
    if args.ledger.is_some() {
        judge.ledger.clone_from(&args.ledger);
    }
    if !args.judge_headers.is_empty() {
        let given = split_pairs("judge-headers", &args.judge_headers)?;
        let mut headers = judge.judge_headers.take().unwrap_or_default();
        headers.retain(|header| {
            let name = header.split('=').next().unwrap_or_default();
            !given
                .iter()
                .any(|(other, _)| other.eq_ignore_ascii_case(name))
        });
        headers.extend(args.judge_headers.iter().cloned());
        judge.judge_headers = Some(headers);
    }
    let missing = settings.missing_secrets();
    if !missing.is_empty() {
        let message = format!(
            "the manifest of `{}` keeps no secrets; give again: {}",
            retry.id(),
            missing.join(" ")
        );
        return Err(SettingsError(message).into());
    }
    settings.precision = retry
        .precision()
        .map(str::to_owned)
        .or(settings.precision.take());
    (settings.overwrite, settings.json) = (false, false);
    Ok(settings)
}
