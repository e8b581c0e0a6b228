//! `nightmill bench`: what models are worth here, side by side.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::models::named;
use super::validate::LabelFlags;
use super::{AnyError, Outcome, listing, outcome};
use crate::benchmark::{
    Estimate, ModelFigures, made_grades, made_pairs, measure, read_grades, read_pairs,
};
use crate::encoder::Precision;
use crate::encoder::cpu::Level;
use crate::history::read_run;
use crate::job::{Given, Job};
use crate::model::{Library, Model, ModelFacts, ModelFolder, load_fastest};
use crate::report::{benchmark_page, plain};
use crate::run::{Progress, open, score};
use crate::validation::validate;

/// Flags of `bench`.
#[derive(Args, Debug)]
pub(super) struct BenchArgs {
    /// Model folders, ids of the folder of models, or shipped [default: shipped]
    #[arg(value_name = "MODEL")]
    names: Vec<String>,
    /// The folder of the models [default: nightmill/models in the user's data folder]
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// What to compute in, each beside the others: auto, f32, bf16, int8; a static table has one
    #[arg(long, value_name = "PRECISION,...", value_delimiter = ',', default_value = "auto", value_parser = ["auto", "f32", "bf16", "int8"])]
    precision: Vec<String>,
    /// Trace files, folders or globs with `input` and `output`: coherence is measured on their first 2,000 pairs
    /// [default: pairs of our own]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    data: Vec<String>,
    /// Files of graded pairs to measure similarity on, with the columns `sentence1`, `sentence2` and `score` [default:
    /// pairs of our own]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pairs: Vec<String>,
    /// A column of labels in the traces of --data, or in --labels: how well do session scores of each model agree with
    /// it? All traces are scored for that
    #[arg(long, value_name = "COLUMN", requires = "data")]
    label: Option<String>,
    #[command(flatten)]
    labels: LabelFlags,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    format: Format,
    /// What an earlier `bench --format json` printed, to hold this one against
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// One model in this process; how the others are started
    #[arg(long, hide = true)]
    alone: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
    /// One page with a chart, without outside resources
    Html,
}

/// What is printed as JSON.
#[derive(Serialize, Deserialize)]
struct Figures {
    models: Vec<ModelFigures>,
}

pub(super) fn run(args: &BenchArgs) -> Result<Outcome, AnyError> {
    let names = match args.names.as_slice() {
        [] => vec!["shipped".to_owned()],
        names => names.to_vec(),
    };
    let library = Library::of(args.models.as_deref())
        .ok_or("this system has no folder for the user's data; name one with --models")?;
    if args.alone {
        let found = alone(args, &names, &library)?;
        outcome::print(&serde_json::to_string(&found)?)?;
        return Ok(Outcome::Done);
    }
    if args.baseline.is_some() && !matches!(args.format, Format::Table) {
        return Err("--baseline: only the table shows it; leave --format out".into());
    }
    let baseline = args.baseline.as_deref().map(read_baseline).transpose()?;
    let mut models = Vec::new();
    for name in &names {
        let facts = ModelFacts::of(&named(name, &library)?)?;
        let precisions = match facts.family == "static table" {
            true => vec!["auto".to_owned()],
            false => args.precision.clone(),
        };
        for precision in precisions {
            // In a process of its own, so that its memory is its own.
            models.push(started(args, name, &precision)?);
        }
    }
    let figures = Figures { models };
    match args.format {
        Format::Json => listing::print(true, &figures, String::new)?,
        Format::Html => outcome::print(&benchmark_page(&figures.models)?)?,
        Format::Table => listing::print(false, &figures, || {
            text(&figures.models, baseline.as_deref().unwrap_or_default())
        })?,
    }
    Ok(Outcome::Done)
}

/// Measures one model in this process.
fn alone(args: &BenchArgs, names: &[String], library: &Library) -> Result<ModelFigures, AnyError> {
    let name = names.first().map_or("shipped", String::as_str);
    let folder = named(name, library)?;
    let read;
    let pairs = match args.data.as_slice() {
        [] => made_pairs(),
        paths => {
            read = read_pairs(paths)?;
            if read.len() < 2 {
                return Err(
                    "--data: fewer than two traces have both an input and an output".into(),
                );
            }
            &read
        }
    };
    let graded;
    let grades = match args.pairs.as_slice() {
        [] => made_grades(),
        paths => {
            graded = read_grades(paths)?;
            let first = graded.first().map(|pair| pair.score);
            if graded.len() < 3 || graded.iter().all(|pair| Some(pair.score) == first) {
                return Err(
                    "--pairs: at least three pairs are needed, not all of one score: there is no order in these"
                        .into(),
                );
            }
            &graded
        }
    };
    let level = Level::choose()?;
    let precision = match args.precision.first().map(String::as_str) {
        Some("f32") => Some(Precision::F32),
        Some("bf16") => Some(Precision::Bf16),
        Some("int8") => Some(Precision::Int8),
        _ => None,
    };
    let model = match precision {
        None => load_fastest(&folder, level)?,
        Some(precision) => Model::load(&folder, level, precision)?,
    };
    let threads = args.threads.map_or(0, usize::from);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()?;
    let mut figures = pool.install(|| measure(&model, pairs, grades))?;
    if let Some(column) = &args.label {
        figures.sessions = of_sessions(args, column, &folder, &model)?;
    }
    Ok(figures)
}

/// How well session scores by a model agree with labels; none where these are too few.
fn of_sessions(
    args: &BenchArgs,
    column: &str,
    folder: &ModelFolder,
    model: &Model,
) -> Result<Option<Estimate>, AnyError> {
    const FIGURE: &str = "agent_reliability";
    let query = args.labels.query(column)?;
    let place = tempfile::tempdir()?;
    let mut given = Given::default()
        .with("metrics", vec![FIGURE.to_owned()])
        .with("no_cache", true);
    if let Some(path) = folder.path() {
        given = given.with("model", path.display().to_string());
    }
    if !model.is_table {
        given = given.with("precision", model.encoder.precision());
    }
    if let Some(threads) = args.threads {
        given = given.with("threads", threads.to_string());
    }
    let out = place.path().join("run");
    let request = open::score(&Job::of(given)?, args.data.clone(), out, None)?;
    let (_, run) = score(&request, &Progress::default())?;
    let validation = validate(&[read_run(&run)?], &query)?;
    let told = validation.runs.iter().flat_map(|run| &run.told);
    let told = told.filter(|told| told.name == FIGURE);
    let auc = told.filter_map(|told| told.auc).next();
    Ok(auc.map(|auc| Estimate {
        value: auc.value,
        low: auc.low,
        high: auc.high,
    }))
}

fn started(args: &BenchArgs, name: &str, precision: &str) -> Result<ModelFigures, AnyError> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", name, "--alone", "--precision", precision]);
    if let Some(models) = &args.models {
        command.arg("--models").arg(models);
    }
    if let Some(threads) = args.threads {
        command.arg("--threads").arg(threads.to_string());
    }
    for (flag, values) in [("--data", &args.data), ("--pairs", &args.pairs)] {
        if !values.is_empty() {
            command.arg(flag).args(values);
        }
    }
    if let Some(column) = &args.label {
        command.arg("--label").arg(column);
        args.labels.pass_on(&mut command);
    }
    let ran = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !ran.status.success() {
        return Err(format!("`{name}` at {precision} could not be measured").into());
    }
    Ok(serde_json::from_slice(&ran.stdout)?)
}

fn read_baseline(path: &Path) -> Result<Vec<ModelFigures>, AnyError> {
    let wrong = |problem: String| format!("--baseline {}: {problem}", path.display());
    let bytes = std::fs::read(path).map_err(|e| wrong(e.to_string()))?;
    let figures: Figures = serde_json::from_slice(&bytes)
        .map_err(|e| wrong(format!("not what `bench --format json` prints: {e}")))?;
    Ok(figures.models)
}

fn text(models: &[ModelFigures], baseline: &[ModelFigures]) -> String {
    let rows = models.iter().map(|of| {
        [
            of.model.clone(),
            of.precision.clone(),
            shown(&of.similarity),
            shown(&of.coherence),
            shown(&of.loops),
            shown(&of.search),
            of.sessions.as_ref().map_or_else(|| "–".into(), shown),
            format!("{:.0}", of.tokens_per_second),
            of.memory.map_or_else(
                || "–".into(),
                |bytes| format!("{:.0} MB", bytes as f64 / 1e6),
            ),
            of.cosines.map(|x| format!("{x:.2}")).join(" "),
        ]
    });
    let header = [
        "model",
        "precision",
        "similarity",
        "coherence",
        "loops",
        "search",
        "sessions",
        "tokens/s",
        "memory",
        "cosines",
    ];
    let mut text = listing::table(header, rows.collect());
    let pairs = models.first().map_or(0, |of| of.pairs);
    text.push_str(&format!(
        "\n95 % of samples are within the brackets. similarity: Spearman on graded pairs; coherence: how often one of {pairs} outputs \
         is more like\nits own input than a shuffled one; loops: how often a repeat is more alike than what only has its form; search: \
         nDCG@10;\nsessions: how often, of a bad and a good session by --label, the bad one has the lower agent_reliability;\n\
         cosines of true pairs: 5 %, half and 95 % are below. Thresholds of one model don't fit another: `nightmill calibrate`.\n"
    ));
    for of in models {
        let before = baseline
            .iter()
            .find(|old| (&old.model, &old.precision) == (&of.model, &of.precision));
        let Some(before) = before else { continue };
        if of.data != before.data {
            text.push_str(&format!(
                "\nagainst the baseline: {} at {} was measured on other data there: nothing to compare\n",
                plain(&of.model),
                of.precision
            ));
            continue;
        }
        let change = |name: &str, now: f64, then: f64| format!("{name} {:+.3}", now - then);
        let changes = [
            change("similarity", of.similarity.value, before.similarity.value),
            change("coherence", of.coherence.value, before.coherence.value),
            change("loops", of.loops.value, before.loops.value),
            change("search", of.search.value, before.search.value),
            of.sessions.zip(before.sessions).map_or_else(
                || "no sessions in both".into(),
                |(now, then)| change("sessions", now.value, then.value),
            ),
            format!(
                "speed {:.2} times",
                of.tokens_per_second / before.tokens_per_second
            ),
        ];
        let same = if of.sha256 == before.sha256 {
            ""
        } else {
            ", other files"
        };
        text.push_str(&format!(
            "\nagainst the baseline{same}: {} at {}: {}\n",
            plain(&of.model),
            of.precision,
            changes.join(", ")
        ));
    }
    text
}

fn shown(of: &Estimate) -> String {
    format!("{:.2} ({:.2} to {:.2})", of.value, of.low, of.high)
}
