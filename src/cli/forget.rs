//! `nightmill runs forget`: takes traces out of runs, of the ledger and of the cache.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::{AnyError, Outcome, listing};
use crate::embed::forget_vectors;
use crate::history::{
    ErasedFromRun, Erasing, StoredRun, check_none_under_way, erase, find_runs, read_run,
    traces_of_sessions,
};
use crate::judge::Ledger;
use crate::report::{counted, plain};
use crate::run::{LookedAt, RequestOfRun, UnreadFile, requests_of};
use crate::text::TextId;
use crate::trace::canonical_trace_id;

/// Flags of `runs forget`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(super) struct ForgetArgs {
    /// Run directories, and folders of them: all that may hold the traces
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// The traces whose ids are in this file, one a line
    #[arg(long, value_name = "FILE", group = "what")]
    trace_ids: Option<PathBuf>,
    /// All traces of this user, by the column `user_id` of the files that the runs read
    #[arg(long, value_name = "ID", group = "what")]
    user: Option<String>,
    /// This session, of whatever project, with all of its traces
    #[arg(long, value_name = "ID", group = "what")]
    session: Option<String>,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// What was forgotten, and what may be left.
#[derive(Debug, Default, Serialize)]
struct Forgotten {
    dry_run: bool,
    /// Traces that were looked for.
    traces: u64,
    runs: Vec<ErasedFromRun>,
    /// Answers of judges, in all ledgers.
    answers: u64,
    /// Vectors of texts, in all caches.
    vectors: u64,
    /// What could not be looked at, and may hold something.
    left: BTreeSet<UnreadFile>,
}

pub(super) fn run(args: &ForgetArgs) -> Result<Outcome, AnyError> {
    let mut runs: Vec<StoredRun> = Vec::new();
    for path in find_runs(&args.dirs)? {
        runs.push(read_run(&path)?);
    }
    let mut what = asked(args)?;
    check_none_under_way(&runs)?;
    let mut requests: Vec<RequestOfRun> = Vec::new();
    for run in &runs {
        for request in requests_of(run)? {
            if !requests.iter().any(|known| known.is_like(&request)) {
                requests.push(request);
            }
        }
    }
    let mut forgotten = Forgotten {
        dry_run: args.dry_run,
        ..Forgotten::default()
    };
    // Which traces: what files and tables say of the user and the session.
    if what.user.is_some() || !what.sessions.is_empty() {
        for request in &requests {
            let LookedAt { traces, unread, .. } = request.find_traces(&what);
            what.traces.extend(traces);
            forgotten.left.extend(unread);
        }
        for run in &runs {
            what.traces.extend(traces_of_sessions(run, &what)?.0);
        }
    }
    forgotten.traces = what.traces.len() as u64;
    // Their texts and questions, while runs still say where to look: a call that is killed can be made again.
    let mut texts: BTreeMap<PathBuf, HashSet<TextId>> = BTreeMap::new();
    let mut hashes: BTreeSet<String> = BTreeSet::new();
    let mut ledgers: BTreeSet<PathBuf> = BTreeSet::new();
    for request in &requests {
        let looked = request.find_texts(&what);
        for (file, rows) in looked.rows {
            what.rows.entry(file).or_default().extend(rows);
        }
        if let Some(cache) = request.cache() {
            texts.entry(cache).or_default().extend(&looked.texts);
        }
        if request.cache().is_some() || request.ledger().is_some() {
            forgotten.left.extend(looked.unread);
        }
        ledgers.extend(request.ledger());
        match request.questions(&what.traces) {
            Ok(found) => hashes.extend(found),
            Err(problem) => {
                let problem = format!("what its judges were asked can't be looked up: {problem}");
                forgotten.left.insert(UnreadFile {
                    file: request.run.clone(),
                    problem,
                });
            }
        }
    }
    for run in &runs {
        hashes.extend(traces_of_sessions(run, &what)?.1);
    }
    for ledger in ledgers.iter().filter(|ledger| ledger.is_file()) {
        from_ledger(ledger, &hashes, &mut forgotten)?;
    }
    for (cache, texts) in &texts {
        from_cache(cache, texts, &mut forgotten)?;
    }
    erase(&runs, &what, args.dry_run, |erased| {
        forgotten.runs.push(erased)
    })?;
    listing::print(args.json, &forgotten, || told(&forgotten, runs.len()))?;
    Ok(match forgotten.left.is_empty() {
        true => Outcome::Done,
        false => Outcome::Incomplete,
    })
}

/// What flags name.
fn asked(args: &ForgetArgs) -> Result<Erasing, AnyError> {
    let given = [("--user", &args.user), ("--session", &args.session)];
    if let Some((flag, _)) = given.iter().find(|(_, id)| id.as_deref() == Some("")) {
        return Err(format!("{flag}: name one; the empty text is nobody's id").into());
    }
    let mut what = Erasing {
        user: args.user.clone(),
        sessions: args.session.iter().cloned().collect(),
        ..Erasing::default()
    };
    if let Some(file) = &args.trace_ids {
        let failed = |e: std::io::Error| format!("--trace-ids `{}`: {e}", file.display());
        let ids = std::fs::read_to_string(file).map_err(failed)?;
        let ids = ids.lines().map(str::trim).filter(|id| !id.is_empty());
        what.traces.extend(ids.filter_map(canonical_trace_id));
        if what.traces.is_empty() {
            return Err(format!(
                "--trace-ids `{}`: the file holds no id; write one a line",
                file.display()
            )
            .into());
        }
    }
    Ok(what)
}

fn from_ledger(
    path: &Path,
    hashes: &BTreeSet<String>,
    forgotten: &mut Forgotten,
) -> Result<(), AnyError> {
    if hashes.is_empty() {
        return Ok(());
    }
    let gone = Ledger::open(path)?.forget(hashes, forgotten.dry_run)?;
    forgotten.answers += gone.answers;
    let mut left = |problem: String| {
        forgotten.left.insert(UnreadFile {
            file: path.display().to_string(),
            problem,
        });
    };
    if gone.waiting > 0 {
        let calls = counted(gone.waiting, "call waits", "calls wait");
        left(format!(
            "{calls} in a batch, whose answers are still to come: run this again when they are back"
        ));
    }
    if gone.log_in_use {
        left("another process reads the ledger, so that its log may still hold what was taken out: run this again when it has ended".to_owned());
    }
    Ok(())
}

fn from_cache(
    folder: &Path,
    texts: &HashSet<TextId>,
    forgotten: &mut Forgotten,
) -> Result<(), AnyError> {
    let failed = |e: std::io::Error| format!("the cache `{}`: {e}", folder.display());
    let gone = forget_vectors(folder, texts, forgotten.dry_run).map_err(failed)?;
    forgotten.vectors += gone.vectors;
    let busy = gone.busy.into_iter().map(|file| {
        let problem = "a run is writing it: run this again when that has ended";
        (file, problem.to_owned())
    });
    for (file, problem) in busy.chain(gone.unread) {
        forgotten.left.insert(UnreadFile {
            file: file.display().to_string(),
            problem,
        });
    }
    Ok(())
}

fn told(forgotten: &Forgotten, looked: usize) -> String {
    let mut text = String::new();
    let would = |done: &str| match forgotten.dry_run {
        true => format!("would be {done}"),
        false => done.to_owned(),
    };
    for run in &forgotten.runs {
        let rows: Vec<String> = run
            .rows
            .iter()
            .map(|(table, count)| format!("{count} of {table}"))
            .collect();
        let rows = match rows.is_empty() {
            true => "no rows".to_owned(),
            false => format!("rows {}", rows.join(", ")),
        };
        let traces = counted(run.traces, "trace", "traces");
        text.push_str(&format!(
            "{}: {traces} {}: {rows}\n",
            plain(&run.run),
            would("forgotten")
        ));
        if run.sessions_without_scores > 0 {
            let sessions = counted(run.sessions_without_scores, "session has", "sessions have");
            text.push_str(&format!(
                "  {sessions} other traces and no score of its own any more; nightmill aggregate makes new ones\n"
            ));
        }
        if run.mended > 0 {
            let rows = counted(run.mended, "row", "rows");
            text.push_str(&format!(
                "  {rows} of other traces named them, and do not any more\n"
            ));
        }
        if run.report {
            text.push_str(&format!(
                "  report.html {}: it shows texts\n",
                would("removed")
            ));
        }
    }
    let runs = counted(forgotten.runs.len() as u64, "run", "runs");
    let answers = counted(forgotten.answers, "answer of judges", "answers of judges");
    let vectors = counted(forgotten.vectors, "vector", "vectors");
    text.push_str(&format!(
        "{} looked for in {looked} runs; {}: rows of {runs}, {answers}, {vectors} of the cache\n",
        counted(forgotten.traces, "trace", "traces"),
        would("removed"),
    ));
    text.push_str("counts and means in summary.json stay as the runs came to; the files that runs read are yours to change\n");
    for left in &forgotten.left {
        text.push_str(&format!(
            "  not looked at: {}: {}\n",
            plain(&left.file),
            plain(&left.problem)
        ));
    }
    text
}
