//! `nightmill calibrate`: thresholds and an order of sessions that fit a warehouse.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use super::validate::LabelFlags;
use super::{AnyError, Outcome, brought, listing, local_out, outcome};
use crate::history::{find_runs, read_run};
use crate::job::Calibration;
use crate::report::{counted, plain};
use crate::validation::{CalibrationQuery, SLICES, calibrate};

/// Flags of `calibrate`.
#[derive(Args, Debug)]
pub(super) struct CalibrateArgs {
    /// Run directories, or folders of them, of one model, precision and text mode
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// The file to write, for `score --calibration`; it must not be there
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The column of labels to learn from, in the files that the runs read, or in that of --labels
    #[arg(long, value_name = "COLUMN")]
    label: Option<String>,
    #[command(flatten)]
    labels: LabelFlags,
    /// The share of scores that a threshold leaves below it, where labels say nothing of it
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = share)]
    below: f64,
    /// Only sessions of this slice: environment=prod
    #[arg(long, value_name = "COLUMN=VALUE", value_parser = slice)]
    slice: Option<(String, String)>,
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let number = number.filter(|number| *number > 0.0 && *number < 1.0);
    number.ok_or_else(|| "expected a number between 0 and 1, as 0.05".to_owned())
}

fn slice(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((column, value)) if SLICES.contains(&column) => {
            Ok((column.to_owned(), value.to_owned()))
        }
        _ => Err(format!(
            "expected COLUMN=VALUE; columns are {}",
            SLICES.join(", ")
        )),
    }
}

pub(super) fn run(args: CalibrateArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    local_out(&args.out, "a calibration is written to a local file")?;
    let labels = args.label.as_deref();
    let labels = labels.map(|column| args.labels.query(column)).transpose()?;
    let (dirs, _fetched) = brought(&args.runs, config)?;
    let runs = find_runs(&dirs)?;
    let runs: Result<Vec<_>, _> = runs.iter().map(|run| read_run(run)).collect();
    let query = CalibrationQuery {
        labels,
        below: args.below,
        slice: args.slice,
    };
    let found = calibrate(&runs?, &query)?;
    write_new(&args.out, &found.calibration.text()?)?;
    outcome::print(&text(&found.calibration, &found.notes, &args.out))?;
    Ok(Outcome::Done)
}

/// Writes a file that is not there yet.
fn write_new(path: &Path, text: &str) -> Result<(), AnyError> {
    let file = std::fs::File::options()
        .write(true)
        .create_new(true)
        .open(path);
    let written = file.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => format!(
            "--out {}: it exists already; choose another name",
            path.display()
        )
        .into(),
        _ => format!("--out {}: {e}", path.display()).into(),
    })
}

fn text(calibration: &Calibration, notes: &[String], out: &Path) -> String {
    let rows = calibration.thresholds.iter().map(|(metric, found)| {
        [
            metric.clone(),
            listing::score(Some(found.threshold)),
            format!("{:.1} %", 100.0 * found.below),
            found.found_by.clone(),
        ]
    });
    let header = ["metric", "threshold", "below it", "found by"];
    let mut text = String::new();
    if !calibration.thresholds.is_empty() {
        text.push_str(&listing::table(header, rows.collect()));
        text.push('\n');
    }
    for note in notes {
        text.push_str(&format!("{}\n", plain(note)));
    }
    if let Some(learnt) = &calibration.attention {
        let mut weights: Vec<(&String, &f64)> = learnt.weights.iter().collect();
        weights.sort_by(|a, b| b.1.total_cmp(a.1));
        let weights = weights
            .iter()
            .map(|(name, weight)| format!("{name} {weight}"));
        let weights: Vec<String> = weights.collect();
        text.push_str(&format!("attention: {}\n", weights.join(", ")));
    }
    let origin = &calibration.origin;
    text.push_str(&format!(
        "of {}{}; written to {}\n",
        counted(origin.sessions, "session", "sessions"),
        match origin.labelled {
            0 => String::new(),
            labelled => format!(", {labelled} labelled, {} bad", origin.bad),
        },
        out.display()
    ));
    text
}
