//! `nightmill export`: the scores of a run for other systems.

use std::path::{Path, PathBuf};

use clap::Args;

use super::named_values::named;
use super::scores::one_run;
use super::{AnyError, Outcome, listing, local_out};
use crate::export::{
    Chosen, ExportError, Exported, Level, OtelForm, Sending, System, send, write_file,
};
use crate::history::StoredRun;
use crate::job::{Given, Job};
use crate::judge::Retries;
use crate::report::{counted, plain};

const KEYS: &str = "Systems, and the variables that keys and endpoints are read from:
  langfuse    scores of traces and sessions: LANGFUSE_PUBLIC_KEY, LANGFUSE_SECRET_KEY, LANGFUSE_BASE_URL (before
              LANGFUSE_HOST). They go to its endpoint for batches, which Langfuse calls legacy
  phoenix     annotations of traces and sessions: PHOENIX_COLLECTOR_ENDPOINT, or PHOENIX_HOST and PHOENIX_PORT;
              PHOENIX_API_KEY, PHOENIX_CLIENT_HEADERS
  langsmith   feedback on traces: LANGSMITH_API_KEY, LANGSMITH_ENDPOINT, LANGSMITH_WORKSPACE_ID
  otel        spans that carry evaluations, as OTLP/JSON: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS, and
              those of traces alone. Phoenix takes OTLP as protobuf alone: use --to phoenix there
  pandaprobe  scores of traces: PANDAPROBE_API_KEY, PANDAPROBE_PROJECT_NAME, PANDAPROBE_ENDPOINT. What changed is updated
              there, which PandaProbe then calls an annotation
  csv, parquet  a table, for a file alone

Exit codes: 0 all scores are written or sent; 2 none could be, or the sending stopped, and the same command goes on from there; 3 done, but the system refused scores, has no place for them, or has no such trace or session.";

/// Flags of `export`.
#[derive(Args, Debug)]
#[command(after_help = KEYS)]
pub(super) struct ExportArgs {
    /// The run directory
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Whom the scores are for
    #[arg(long, value_name = "SYSTEM", value_parser = named(SYSTEMS))]
    to: System,
    /// The file to write, or a folder for it [default: beside the run, RUN.SYSTEM.jsonl, RUN.csv or RUN.parquet]
    #[arg(long, value_name = "FILE", conflicts_with = "send")]
    out: Option<PathBuf>,
    /// Replace the file, if it is there
    #[arg(long, conflicts_with = "send")]
    overwrite: bool,
    /// Scores of these metrics alone
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    metrics: Vec<String>,
    /// Scores of traces or of sessions alone
    #[arg(long, value_name = "LEVEL", value_parser = named(LEVELS))]
    level: Option<Level>,
    /// Spans with events `gen_ai.evaluation.result` instead of OpenInference's annotations (otel)
    #[arg(long)]
    events: bool,
    /// Send the scores instead of writing a file
    #[arg(long)]
    send: bool,
    /// Where to send them [default: what the system's own variables say]
    #[arg(long, value_name = "URL", requires = "send")]
    endpoint: Option<String>,
    /// The file that notes what was sent, so that nothing is sent twice [default: export-ledger.db in the user's data folder]
    #[arg(long, value_name = "FILE", requires = "send")]
    export_ledger: Option<PathBuf>,
    /// Requests under way at once, at most [default: 4]
    #[arg(long, value_name = "N", requires = "send", value_parser = clap::value_parser!(u16).range(1..=256))]
    at_once: Option<u16>,
    /// Requests in a minute, at most
    #[arg(long, value_name = "N", requires = "send", value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_minute: Option<u32>,
    /// Tries of one request before the sending stops [default: 5]
    #[arg(long, value_name = "N", requires = "send", value_parser = clap::value_parser!(u16).range(1..=100))]
    tries: Option<u16>,
    /// Refuse everything that would open a connection
    #[arg(long)]
    offline: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

const SYSTEMS: &[(&str, System)] = &[
    ("langfuse", System::Langfuse),
    ("phoenix", System::Phoenix),
    ("langsmith", System::LangSmith),
    ("otel", System::Otel),
    ("pandaprobe", System::PandaProbe),
    ("csv", System::Csv),
    ("parquet", System::Parquet),
];

const LEVELS: &[(&str, Level)] = &[("trace", Level::Trace), ("session", Level::Session)];

pub(super) fn run(args: ExportArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let system = args.to;
    let form = match (args.events, system) {
        (true, System::Otel) => OtelForm::Events,
        (true, _) => {
            return Err("--events: says how spans carry scores; only --to otel has spans".into());
        }
        (false, _) => OtelForm::Annotations,
    };
    if let Some(out) = &args.out {
        local_out(
            out,
            "scores are written to local files; name one, and copy it there",
        )?;
    }
    let mut given = Given::default();
    for (name, on) in [("offline", args.offline), ("json", args.json)] {
        if on {
            given = given.with(name, true);
        }
    }
    let job = Job::of(given.complete(config)?)?;
    let run = one_run(&args.run)?;
    let metrics = args.metrics.iter().map(|name| name.trim().to_owned());
    let chosen = Chosen {
        metrics: metrics.collect(),
        level: args.level,
    };
    let exported = if args.send {
        if job.offline {
            return Err("--offline: --send opens connections; leave it out to write a file".into());
        }
        let sending = Sending {
            endpoint: args.endpoint,
            ledger: ledger(args.export_ledger)?,
            at_once: usize::from(args.at_once.unwrap_or(4)),
            per_minute: args.requests_per_minute.map(u64::from),
            retries: Retries {
                attempts: args.tries.map_or(5, u32::from),
                ..Retries::default()
            },
        };
        send(&run, &chosen, system, form, &sending)?
    } else {
        let out = file_of(args.out, &run, system);
        write_file(&run, &chosen, system, form, &out, args.overwrite)?
    };
    listing::print(job.json, &exported, || told(&exported, args.send))?;
    Ok(match exported.is_whole() {
        true => Outcome::Done,
        false => Outcome::Incomplete,
    })
}

fn ledger(given: Option<PathBuf>) -> Result<PathBuf, ExportError> {
    match (given, dirs::data_local_dir()) {
        (Some(path), _) => Ok(path),
        (None, Some(folder)) => Ok(folder.join("nightmill").join("export-ledger.db")),
        (None, None) => Err(ExportError::Request(
            "this user has no data folder; name a ledger with --export-ledger".into(),
        )),
    }
}

/// The file that is written: beside the run, unless another was named.
fn file_of(out: Option<PathBuf>, run: &StoredRun, system: System) -> PathBuf {
    let name = format!("{}.{}", run.name, system.ending());
    match out {
        Some(folder) if folder.is_dir() => folder.join(name),
        Some(file) => file,
        None => run.path.with_file_name(name),
    }
}

fn told(exported: &Exported, sent: bool) -> String {
    let scores = |count| counted(count, "score", "scores");
    let (count, to) = (scores(exported.scores), &exported.to);
    let target = plain(&exported.target);
    let mut text = match sent {
        true => format!("{count} sent to {to} at {target}\n"),
        false => format!("{count} for {to} written to {target}\n"),
    };
    if exported.already > 0 {
        let count = scores(exported.already);
        text.push_str(&format!("{count} sent before, and not again\n"));
    }
    if exported.refused > 0 {
        let why = exported.first_refusal.as_deref();
        let why = plain(why.unwrap_or("no reason was given"));
        let count = scores(exported.refused);
        text.push_str(&format!("{count} refused, the first because: {why}\n"));
    }
    if exported.not_there > 0 {
        let named: Vec<String> = exported
            .first_not_there
            .iter()
            .map(|id| plain(id))
            .collect();
        let count = scores(exported.not_there);
        text.push_str(&format!(
            "{count} refused, because {to} has no such trace or session: {}{}\n",
            named.join(", "),
            match named.len() >= 5 && exported.not_there > 5 {
                true => " …",
                false => "",
            }
        ));
        if exported.scores + exported.already == 0 {
            text.push_str(
                "it has none of them: check the endpoint and the project that the key is of\n",
            );
        }
    }
    for (reason, count) in &exported.no_place {
        let count = scores(*count);
        text.push_str(&format!("{count} left out: {}\n", plain(reason)));
    }
    for (status, count) in &exported.without_score {
        let rows = counted(*count, "row", "rows");
        let status = plain(status);
        text.push_str(&format!("{rows} without a score left out ({status})\n"));
    }
    text
}
