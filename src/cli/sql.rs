//! `nightmill sql`.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use clap::Args;
use clap::builder::PossibleValuesParser;
use datafusion::execution::context::SQLOptions;
use datafusion::prelude::DataFrame;
use futures::StreamExt;

use super::analysed_runs::tell_gaps;
use super::foreign_tables::ForeignTables;
use super::setting_flags::{Offer, SettingFlags};
use super::{AnyError, Outcome, idle_flags, listing, outcome};
use crate::engine::{
    CheckFile, EngineOptions, FilesAsTables, MakeTable, documented, engine_session,
};
use crate::history::{
    StoredRun, VIEWS, Views, check_if_of_run, find_runs, find_runs_below, read_run,
};
use crate::job::{Job, Setting, SettingsError};
use crate::output::table_writer::Parts;
use crate::output::{PartialFile, RunError};
use crate::run::open;
use crate::run::{CacheChoice, load_service};
use crate::text::TextMode;
use crate::trace::format::CHOICES;

/// Flags of `sql`.
#[derive(Args, Debug)]
pub(super) struct SqlArgs {
    /// A SELECT; files, folders and globs in quotes are tables: FROM 'traces/*.parquet', also in other formats. `-` reads it from standard input;
    /// SHOW TABLES lists the tables of --run or --runs
    #[arg(required_unless_present = "functions", value_name = "SQL")]
    query: Option<String>,
    /// How rows are written; json is one object a line [default: as the name of --out ends, else table]
    #[arg(long, value_name = "FORMAT", value_parser = ["table", "csv", "json", "parquet"])]
    format: Option<String>,
    /// Write to a file instead of standard output; needed for parquet
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// What files in quotes are: a format as `score --format` has them; parquet and jsonl read them as they are [default:
    /// auto]
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(CHOICES))]
    input_format: Option<String>,
    /// List nightmill's functions
    #[arg(long, exclusive = true)]
    functions: bool,
    /// A run whose tables go by their names: FROM scores
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// A folder of runs: its history as tables: FROM sessions_latest. Give it again for more
    #[arg(long, value_name = "DIR", conflicts_with = "run")]
    runs: Vec<PathBuf>,
    /// Read every file of a run whole first, and refuse one that is not as the run wrote it
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    settings: SettingFlags<OfSql>,
}

#[derive(Debug)]
struct OfSql;

impl Offer for OfSql {
    fn offers(setting: &Setting) -> bool {
        [
            "model",
            "memory_limit",
            "threads",
            "window",
            "weights",
            "text_mode",
            "overwrite",
            "mapping",
        ]
        .contains(&setting.name)
    }

    fn help(setting: &Setting) -> Option<&'static str> {
        match setting.name {
            "text_mode" => Some(
                "What text_of makes of JSON, and files of other formats hold: what was said, or documents",
            ),
            "overwrite" => Some("Replace an existing file"),
            _ => None,
        }
    }
}

pub(super) fn run(args: SqlArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    if args.functions {
        let mut text = String::new();
        for function in documented() {
            text.push_str(&format!(
                "{}\n  returns {}\n  {}\n",
                function.call, function.returns, function.meaning
            ));
        }
        outcome::print(&text)?;
        return Ok(Outcome::Done);
    }
    let query = match args.query {
        None => return Ok(Outcome::Done),
        Some(query) if query == "-" => std::io::read_to_string(std::io::stdin())?,
        Some(query) => query,
    };
    let query = query.trim().trim_end_matches(';').trim_end();
    if query.eq_ignore_ascii_case("show tables") {
        return show_tables(args.run.as_deref(), &args.runs);
    }
    let views = match args.runs.as_slice() {
        [] => None,
        folders => {
            let views = Views::of(stored(folders)?, args.verify)?;
            tell_gaps(views.runs())?;
            Some(views)
        }
    };
    let writer = Writer::of(args.format.as_deref(), args.out.as_deref())?;
    let given = args.settings.given;
    idle_flags::of_query(query, &given, args.out.as_deref())?;
    // What a settings file says of formats is meant for runs: here it would be said of all tables of a query.
    let mut reading = given.clone().only(|name| name == "mapping");
    if let Some(format) = &args.input_format {
        reading = reading.with("format", format.clone());
    }
    // Gates and metrics of a settings file are about runs, and queries keep nothing.
    let given = given.complete(config)?;
    let job = Job::of(given.without(&["fail_under", "metrics", "cache"]))?;
    let rules = open::rules(&job)?;
    let engine = open::engine(&job, CacheChoice::Off)?;
    let folder = tempfile::tempdir()?;
    let embedding = match needs_model(query) {
        true => Some(load_service(&engine, folder.path())?),
        false => None,
    };
    let context = engine_session(&EngineOptions {
        threads: engine.threads,
        memory: engine.memory_limit / 2,
        spill_folder: folder.path().to_owned(),
        embedding,
        triage: None,
        window: rules.window,
        weights: rules.weights.clone(),
        text_mode: rules.text_mode,
    })
    .map_err(RunError::from)?;
    let check: CheckFile = Arc::new(|file| check_if_of_run(file).map_err(|e| e.to_string()));
    let foreign = Arc::new(ForeignTables::new(
        Job::of(reading)?,
        job.text_mode.unwrap_or(TextMode::Content),
        engine.memory_limit / 8,
    ));
    let make: MakeTable = {
        let foreign = Arc::clone(&foreign);
        Arc::new(move |path| foreign.table(path))
    };
    let check = args.verify.then_some(check);
    let context = FilesAsTables::enable_making(context, check, Some(make));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(engine.threads)
        .build()?;
    let options = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    let result: Result<(), AnyError> = runtime.block_on(async {
        if let Some(run) = &args.run {
            for table in tables_of(run)? {
                let path = run.join(&table).display().to_string();
                let provider = context.table_provider(path).await.map_err(RunError::from)?;
                context
                    .register_table(table, provider)
                    .map_err(RunError::from)?;
            }
        }
        if let Some(views) = &views {
            let needs = |view: &str| names(query, view);
            views
                .register(&context, needs)
                .await
                .map_err(RunError::from)?;
        }
        let frame = context
            .sql_with_options(query, options)
            .await
            .map_err(RunError::from)?;
        writer
            .write(frame, args.out.as_deref(), job.overwrite)
            .await
    });
    match result {
        Err(error) if !is_closed_pipe(&error) => Err(error),
        _ if foreign.are_whole() => Ok(Outcome::Done),
        _ => Ok(Outcome::Incomplete),
    }
}

/// The names of a run's tables.
fn tables_of(run: &Path) -> Result<Vec<String>, AnyError> {
    let run = read_run(
        &run.canonicalize()
            .map_err(|e| format!("--run `{}`: {e}", run.display()))?,
    )?;
    let entries = std::fs::read_dir(&run.path)?;
    let tables = entries
        .flatten()
        .filter(|entry| holds_parts(&entry.path()).unwrap_or(false));
    let mut names: Vec<String> = tables
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

/// Whether a folder of a run is a table.
fn holds_parts(folder: &Path) -> std::io::Result<bool> {
    let mut files = std::fs::read_dir(folder)?.flatten();
    Ok(files.any(|file| Parts::of(&file.path()).is_some()))
}

/// The runs of folders: those in them, or below folders that hold none themselves.
fn stored(folders: &[PathBuf]) -> Result<Vec<StoredRun>, AnyError> {
    let found = find_runs(folders).or_else(|_| find_runs_below(folders))?;
    let runs: Result<Vec<StoredRun>, _> = found.iter().map(|run| read_run(run)).collect();
    Ok(runs?)
}

/// Whether a query has this word. One inside a string counts too, which costs the opening of files and nothing else.
fn names(query: &str, word: &str) -> bool {
    let of_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = query.split(|c| !of_name(c));
    words.any(|found| found.eq_ignore_ascii_case(word))
}

fn show_tables(run: Option<&Path>, runs: &[PathBuf]) -> Result<Outcome, AnyError> {
    if !runs.is_empty() {
        stored(runs)?;
        let rows = VIEWS.map(|(view, what)| [view.to_owned(), what.to_owned()]);
        outcome::print(&listing::table(["table", "what it holds"], rows.into()))?;
        return Ok(Outcome::Done);
    }
    let Some(run) = run else {
        return Err(
            "SHOW TABLES lists the tables of a run or of many: name one with --run, or a folder with --runs; without them, files and \
             folders in quotes are tables"
                .into(),
        );
    };
    let rows = tables_of(run)?.into_iter().map(|table| {
        let path = run.join(&table).display().to_string();
        [table, path]
    });
    outcome::print(&listing::table(["table", "folder"], rows.collect()))?;
    Ok(Outcome::Done)
}

/// A result as a table for people: control characters of data are written as escapes, and on a terminal it fits the width.
fn table_text(
    schema: &Schema,
    batches: &[RecordBatch],
    width: Option<u16>,
) -> Result<String, AnyError> {
    let options = FormatOptions::default();
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let cells = columns.map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let cells = cells.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            rows.push(
                cells
                    .iter()
                    .map(|cell| escaped(&cell.value(row).to_string()))
                    .collect(),
            );
        }
    }
    let names: Vec<String> = schema
        .fields()
        .iter()
        .map(|field| escaped(field.name()))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(listing::laid_out(&names, rows, width))
}

/// Text in which nothing steers a terminal, and nothing is lost.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// Whether a query names a function that embeds. A name inside a string loads the model in vain,
/// which costs a moment and nothing else.
fn needs_model(query: &str) -> bool {
    let lower = query.to_lowercase();
    ["embed", "coherence", "loop_detection"]
        .iter()
        .any(|name| lower.contains(name))
}

#[derive(Clone, Copy)]
enum Writer {
    Table,
    Csv,
    Json,
    Parquet,
}

impl Writer {
    fn of(name: Option<&str>, out: Option<&Path>) -> Result<Self, SettingsError> {
        let ending = out.and_then(Path::extension).and_then(|e| e.to_str());
        let by_ending = match ending {
            Some("parquet") => "parquet",
            Some("csv") => "csv",
            Some("json" | "jsonl" | "ndjson") => "json",
            None | Some("txt") => "table",
            Some(other) if name.is_none() => {
                return Err(SettingsError(format!(
                    "--out: a name that ends in .{other} does not say what is written; end it in .parquet, .csv, .jsonl or \
                     .txt, or name one with --format"
                )));
            }
            Some(_) => "table",
        };
        match (name.unwrap_or(by_ending), out) {
            ("csv", _) => Ok(Self::Csv),
            ("json", _) => Ok(Self::Json),
            ("parquet", Some(_)) => Ok(Self::Parquet),
            ("parquet", None) => Err(SettingsError(
                "--format parquet: name a file with --out".into(),
            )),
            _ => Ok(Self::Table),
        }
    }

    async fn write(
        self,
        frame: DataFrame,
        out: Option<&Path>,
        overwrite: bool,
    ) -> Result<(), AnyError> {
        let (partial, mut sink): (Option<PartialFile>, Box<dyn Write + Send>) = match out {
            Some(path) => {
                let (partial, file) = PartialFile::create(path, overwrite)?;
                (Some(partial), Box::new(BufWriter::new(file)))
            }
            None => (None, Box::new(BufWriter::new(std::io::stdout()))),
        };
        self.write_to(frame, &mut sink, out.is_none()).await?;
        sink.flush()?;
        drop(sink);
        if let Some(partial) = partial {
            partial.commit()?;
        }
        Ok(())
    }

    async fn write_to(
        self,
        frame: DataFrame,
        sink: &mut (dyn Write + Send),
        to_terminal: bool,
    ) -> Result<(), AnyError> {
        let schema = Arc::clone(frame.schema().inner());
        if matches!(self, Self::Table) {
            let batches = frame.collect().await.map_err(RunError::from)?;
            let width = listing::terminal_width().filter(|_| to_terminal);
            return Ok(write!(sink, "{}", table_text(&schema, &batches, width)?)?);
        }
        let mut stream = frame.execute_stream().await.map_err(RunError::from)?;
        match self {
            Self::Csv => {
                let mut csv = arrow::csv::WriterBuilder::new()
                    .with_header(true)
                    .build(sink);
                // The header, also of a result without rows.
                csv.write(&RecordBatch::new_empty(schema))?;
                while let Some(batch) = stream.next().await {
                    csv.write(&batch.map_err(RunError::from)?)?;
                }
            }
            Self::Json => {
                let mut json = arrow::json::LineDelimitedWriter::new(sink);
                while let Some(batch) = stream.next().await {
                    json.write(&batch.map_err(RunError::from)?)?;
                }
                json.finish()?;
            }
            Self::Table | Self::Parquet => {
                let mut parquet = parquet::arrow::ArrowWriter::try_new(sink, schema, None)?;
                while let Some(batch) = stream.next().await {
                    parquet.write(&batch.map_err(RunError::from)?)?;
                }
                parquet.close()?;
            }
        }
        Ok(())
    }
}

/// Whether an error is a reader that closed its end early (`| head`): no error to report.
fn is_closed_pipe(error: &AnyError) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error.as_ref());
    while let Some(error) = cause {
        if error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
        {
            return true;
        }
        cause = error.source();
    }
    error.to_string().to_lowercase().contains("broken pipe")
}
