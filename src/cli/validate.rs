//! `nightmill validate`: what scores tell, held against labels.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::{AnyError, Outcome, brought, listing, outcome};
use crate::history::{find_runs, read_run};
use crate::report::{counted, plain, validation_page};
use crate::validation::{
    BadLabels, Estimate, Kind, LabelQuery, OF_SLICES, Precision, SliceTold, Told, ValidatedRun,
    Validation, validate,
};

/// Flags that say what labels are.
#[derive(Args, Debug)]
pub(super) struct LabelFlags {
    /// The labels that are bad: values, or a comparison of numbers such as '<0.5'
    #[arg(
        long,
        value_name = "VALUE,...",
        value_delimiter = ',',
        requires = "label",
        conflicts_with = "good"
    )]
    bad: Vec<String>,
    /// The labels that are good; all others are bad
    #[arg(
        long,
        value_name = "VALUE,...",
        value_delimiter = ',',
        requires = "label"
    )]
    good: Vec<String>,
    /// A file of labels: Parquet, JSON Lines or CSV with session_id, the column of labels and, where sessions need it,
    /// project_id
    #[arg(long, value_name = "FILE", requires = "label")]
    labels: Option<PathBuf>,
    /// The column that names the task of a session: sessions of one task are drawn together
    #[arg(long, value_name = "COLUMN", requires = "label")]
    task: Option<String>,
}

impl LabelFlags {
    /// Gives them to another command of the program.
    pub fn pass_on(&self, command: &mut std::process::Command) {
        for (flag, values) in [("--bad", &self.bad), ("--good", &self.good)] {
            if !values.is_empty() {
                command.arg(flag).arg(values.join(","));
            }
        }
        if let Some(file) = &self.labels {
            command.arg("--labels").arg(file);
        }
        if let Some(task) = &self.task {
            command.arg("--task").arg(task);
        }
    }

    /// What is looked for in this column.
    pub fn query(&self, column: &str) -> Result<LabelQuery, AnyError> {
        let bad = match (self.bad.as_slice(), self.good.as_slice()) {
            ([], []) => None,
            (bad, []) => Some(BadLabels::new(bad, false).map_err(|e| format!("--bad: {e}"))?),
            (_, good) => Some(BadLabels::new(good, true).map_err(|e| format!("--good: {e}"))?),
        };
        Ok(LabelQuery {
            column: column.to_owned(),
            bad,
            task: self.task.clone(),
            file: self.labels.clone(),
        })
    }
}

/// Flags of `validate`.
#[derive(Args, Debug)]
pub(super) struct ValidateArgs {
    /// Run directories, or folders of them
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// The column of labels, in the files that the runs read, or in that of --labels
    #[arg(long, value_name = "COLUMN")]
    label: String,
    #[command(flatten)]
    labels: LabelFlags,
    /// How it is printed
    #[arg(long, value_enum, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Table,
    Json,
    /// One page with curves, without outside resources
    Html,
}

pub(super) fn run(args: ValidateArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let query = args.labels.query(&args.label)?;
    let (dirs, _fetched) = brought(&args.runs, config)?;
    let runs = find_runs(&dirs)?;
    let runs: Result<Vec<_>, _> = runs.iter().map(|run| read_run(run)).collect();
    let validation = validate(&runs?, &query)?;
    match args.format {
        Format::Html => outcome::print(&validation_page(&validation)?)?,
        Format::Json => listing::print(true, &validation, String::new)?,
        Format::Table => listing::print(false, &validation, || text(&validation))?,
    }
    Ok(Outcome::Done)
}

fn text(validation: &Validation) -> String {
    let mut text = String::new();
    for run in &validation.runs {
        text.push_str(&of_run(validation, run));
        text.push('\n');
    }
    if !validation.together.is_empty() {
        text.push_str(&together(validation));
        text.push('\n');
    }
    text.push_str(
        "AUC: how often, of a bad and a good session, the bad one is worse by the figure; 0.5 is chance.\n\
         In brackets what 95 % of samples hold. Of forty figures that tell nothing, one seems to point somewhere.\n",
    );
    text
}

fn of_run(validation: &Validation, run: &ValidatedRun) -> String {
    let share = 100.0 * run.bad as f64 / run.labelled.max(1) as f64;
    let mut text = format!(
        "{}: {} of {} labelled, {} bad ({share:.1} %): `{}` is {}\n",
        plain(&run.run),
        run.labelled,
        counted(run.sessions, "session", "sessions"),
        run.bad,
        plain(&validation.label),
        plain(&validation.bad),
    );
    text.push_str(&format!(
        "{} samples, drawn by {} ({})\n",
        run.samples,
        plain(&validation.drawn_by),
        run.clusters
    ));
    for note in &run.notes {
        text.push_str(&format!("{}\n", plain(note)));
    }
    text.push('\n');
    let mut rows = vec![[
        "chance".to_owned(),
        "0.50".to_owned(),
        String::new(),
        format!("{share:.0} %"),
        format!("{share:.0} %"),
        String::new(),
        String::new(),
    ]];
    let mut kind = None;
    for told in &run.told {
        if kind != Some(told.kind) {
            kind = Some(told.kind);
            let mut heading: [String; 7] = Default::default();
            heading[0] = format!("-- {}", heading_of(told.kind));
            rows.push(heading);
        }
        rows.push(row(told));
    }
    let header = [
        "figure",
        "AUC",
        "of equal length",
        "bad in worst 1 %",
        "worst 5 %",
        "beside best baseline",
        "verdict",
    ];
    text.push_str(&listing::table(header, rows));
    if !run.slices.is_empty() {
        text.push_str("\nby slice, AUC\n");
        text.push_str(&slices(&run.slices));
    }
    text
}

fn heading_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Baseline => "baselines",
        Kind::Session => "of sessions",
        Kind::Trace => "of traces",
        Kind::Signal => "signals",
    }
}

fn row(told: &Told) -> [String; 7] {
    [
        told.name.clone(),
        interval(told.auc),
        interval(told.auc_of_equal_length),
        precision(told.worst_1_percent),
        precision(told.worst_5_percent),
        told.ahead.as_ref().map_or_else(String::new, |ahead| {
            let Estimate { value, low, high } = ahead.difference;
            format!("{value:+.2} ({low:+.2} to {high:+.2})")
        }),
        told.words.clone(),
    ]
}

fn interval(estimate: Option<Estimate>) -> String {
    estimate.map_or_else(
        || "–".to_owned(),
        |Estimate { value, low, high }| format!("{value:.2} ({low:.2} to {high:.2})"),
    )
}

fn precision(precision: Option<Precision>) -> String {
    precision.map_or_else(
        || "–".to_owned(),
        |of| format!("{:.0} % of {}", 100.0 * of.bad, of.sessions),
    )
}

fn slices(slices: &[SliceTold]) -> String {
    let rows = slices.iter().map(|slice| {
        let auc = |name: &str| {
            let found = slice.aucs.iter().find(|(of, _)| of == name);
            interval(found.and_then(|(_, auc)| *auc))
        };
        let [a, b, c, d] = OF_SLICES.map(auc);
        [
            format!("{} {}", slice.column, slice.value),
            format!("{} of {}", slice.bad, slice.sessions),
            a,
            b,
            c,
            d,
        ]
    });
    let [a, b, c, d] = OF_SLICES;
    listing::table(["slice", "bad", a, b, c, d], rows.collect())
}

fn together(validation: &Validation) -> String {
    let rows = validation.together.iter().map(|mean| {
        [
            mean.name.clone(),
            mean.runs.to_string(),
            interval(mean.auc),
            format!("{:.2} to {:.2}", mean.range[0], mean.range[1]),
            mean.ahead.as_ref().map_or_else(String::new, |ahead| {
                let Estimate { value, low, high } = ahead.difference;
                format!("{value:+.2} ({low:+.2} to {high:+.2})")
            }),
            mean.words.clone(),
        ]
    });
    let runs = counted(validation.runs.len() as u64, "run", "runs");
    let header = [
        "figure",
        "runs",
        "mean AUC",
        "lowest to highest",
        "beside best baseline",
        "verdict",
    ];
    format!(
        "together, {runs}: means of those that a figure is told of, each run counting the same\n\n{}",
        listing::table(header, rows.collect())
    )
}
