//! What the scores of runs tell: held against labels of sessions, which somebody knows to have gone well or badly.
//!
//! Every figure that a run has of a session (scores, signals, folded scores of traces) is taken in the direction in which
//! it is meant, never in the better of the two. What counts is the order that it gives: the share of pairs of a bad and a
//! good session in which the bad one is the worse (AUC), beside baselines that look at nothing said: `traces`,
//! `tool_calls`, `output_words`.

mod bad_labels;
mod calibrate;
mod error;
mod labels;
mod logistic;
mod order;
mod resample;
mod sessions;
mod thresholds;
mod told;

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use serde_json::Value;

use crate::history::{HistoryError, StoredRun, read_told};
use crate::job::{Given, Job, RequestRecord};
use crate::text::origin_of;

pub use bad_labels::BadLabels;
pub use calibrate::{Calibrated, CalibrationQuery, calibrate};
pub use error::ValidationError;
pub use labels::LabelQuery;
pub use resample::Estimate;
pub use sessions::{Kind, SLICES};
pub use told::{Ahead, FEWEST, OF_SLICES, Precision, SliceTold, Told, Verdict};

use labels::{Labels, NameColumns};
use resample::{Resamples, interval};
use sessions::LabelledSessions;

/// Runs held against labels.
#[derive(Clone, Debug, Serialize)]
pub struct Validation {
    /// The column of labels.
    pub label: String,
    /// Which of them are bad, in words.
    pub bad: String,
    /// What sessions are drawn by in resampling: a column, or `session`.
    pub drawn_by: String,
    /// Each run.
    pub runs: Vec<ValidatedRun>,
    /// Means of what is told of at least two runs; empty of one run, and of runs that share sessions.
    pub together: Vec<MeanTold>,
}

/// A run held against labels.
#[derive(Clone, Debug, Serialize)]
pub struct ValidatedRun {
    /// Its name.
    pub run: String,
    /// Its sessions.
    pub sessions: u64,
    /// Those with a label.
    pub labelled: u64,
    /// Those of them that are bad.
    pub bad: u64,
    /// What is drawn in resampling: tasks, or sessions.
    pub clusters: u64,
    /// How many samples were drawn.
    pub samples: u64,
    /// What a reader must know, a line each.
    pub notes: Vec<String>,
    /// What each figure tells: baselines, scores of sessions, scores of traces, signals; in each, the best first.
    pub told: Vec<Told>,
    /// What the main figures tell of slices.
    pub slices: Vec<SliceTold>,
}

/// What a figure tells on average over several runs, each counting the same.
#[derive(Clone, Debug, Serialize)]
pub struct MeanTold {
    /// The figure.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The runs that it is told of.
    pub runs: u64,
    /// The mean of the AUCs.
    pub auc: Option<Estimate>,
    /// The lowest and the highest of them.
    pub range: [f64; 2],
    /// Beside the baseline with the best mean.
    pub ahead: Option<Ahead>,
    /// In one word.
    pub verdict: Verdict,
    /// In words.
    pub words: String,
}

/// Holds runs against labels.
///
/// # Errors
/// [`ValidationError`] if a run or the labels can't be read, or nothing can be compared.
pub fn validate(runs: &[StoredRun], query: &LabelQuery) -> Result<Validation, ValidationError> {
    let mut validated = Vec::new();
    let mut seen = HashSet::new();
    let mut twice = false;
    for (nth, run) in runs.iter().enumerate() {
        let (of_run, sessions) = of_run(run, query, nth as u64)?;
        for (name, _) in sessions.named() {
            twice |= !seen.insert(name.clone());
        }
        validated.push(of_run);
    }
    // Runs of the same sessions are no further evidence.
    let together = match validated.len() {
        0 | 1 => Vec::new(),
        _ if twice => Vec::new(),
        _ => together(&validated),
    };
    Ok(Validation {
        label: query.column.clone(),
        bad: query
            .bad
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        drawn_by: query.task.clone().unwrap_or_else(|| "session".into()),
        runs: validated,
        together,
    })
}

/// The files that a run read its traces from, as its manifest tells.
fn inputs(manifest: &Value) -> Vec<String> {
    let files = manifest["request"]["files"].as_array();
    let paths = files.into_iter().flatten().map(|file| &file["path"]);
    paths
        .filter_map(|path| path.as_str().map(str::to_owned))
        .collect()
}

/// How its files call the columns that name a session.
fn name_columns(manifest: &Value) -> Result<NameColumns, ValidationError> {
    let settings = manifest["request"]["settings"].as_object();
    let settings = settings.cloned().unwrap_or_default();
    let job = Given::of_record(&settings).and_then(Job::of);
    let job = job.map_err(|e| ValidationError::Refused(e.to_string()))?;
    let mut columns = NameColumns::default();
    for (canonical, column) in job.map.into_iter().flatten() {
        match canonical.as_str() {
            "session_id" => columns.session = column,
            "project_id" => columns.project = column,
            _ => {}
        }
    }
    Ok(columns)
}

/// Whether the tables that are looked at are there, whole.
fn check_tables(run: &StoredRun, manifest: &Value) -> Result<(), ValidationError> {
    let files = manifest["files"].as_object();
    let names = files.into_iter().flat_map(|files| files.keys());
    let of_tables = names.filter(|name| name.ends_with(".parquet"));
    for name in of_tables {
        if !run.path.join(name).is_file() {
            let problem = "the file is not there";
            return Err(HistoryError::damaged(&run.path, name, problem).into());
        }
    }
    Ok(())
}

/// Reads the labels of the sessions of a run.
fn labelled(
    run: &StoredRun,
    query: &LabelQuery,
    manifest: &Value,
) -> Result<(Labels, LabelledSessions), ValidationError> {
    let refused = |problem: String| Err(ValidationError::Refused(problem));
    let shown = origin_of(&run.path);
    if !run.path.join("sessions").is_dir() {
        return refused(format!(
            "`{shown}` has no sessions; there is nothing to hold against labels"
        ));
    }
    let files = inputs(manifest);
    if query.file.is_none() {
        if let Some(remote) = files.iter().find(|file| file.contains("://")) {
            return refused(format!(
                "`{shown}` read `{remote}`, which is not here; give the labels with --labels FILE"
            ));
        }
        if files.is_empty() {
            return refused(format!(
                "`{shown}` does not say which files it read; give the labels with --labels FILE"
            ));
        }
    }
    if query.task.as_ref() == Some(&query.column) {
        return refused(
            "--task: it is the column of labels; name the column that tells tasks apart".into(),
        );
    }
    check_tables(run, manifest)?;
    let labels = Labels::read(query, (&files, name_columns(manifest)?))?;
    let sessions = LabelledSessions::of(&run.path, &labels)?;
    if sessions.is_bad.is_empty() {
        return refused(format!(
            "none of the {} labelled sessions is in `{shown}`; are session and project named as there?",
            labels.len()
        ));
    }
    if let Some(task) = &query.task
        && u64::from(sessions.clusters) < FEWEST
    {
        return refused(format!(
            "--task {task}: there are {} tasks in `{shown}`, and intervals of fewer than {FEWEST} say nothing; leave it out to \
             draw sessions",
            sessions.clusters
        ));
    }
    Ok((labels, sessions))
}

fn of_run(
    run: &StoredRun,
    query: &LabelQuery,
    nth: u64,
) -> Result<(ValidatedRun, LabelledSessions), ValidationError> {
    let (manifest, _) = read_told(&run.path)?;
    let (labels, sessions) = labelled(run, query, &manifest)?;
    let figures = sessions.figures(&run.path)?;
    let resamples = Resamples::of(sessions.cluster_of.clone(), sessions.clusters, nth);
    let drawn = resamples.drawn();
    let mut told = told::told(&sessions, &figures, &drawn);
    // Of a kind, the best first; what can't be told last.
    told.sort_by(|a, b| {
        let value = |told: &Told| told.auc.map_or(-1.0, |auc| auc.value);
        let kinds = (a.kind as u8).cmp(&(b.kind as u8));
        kinds.then(value(b).total_cmp(&value(a)))
    });
    let labelled = sessions.is_bad.len() as u64;
    let mut notes = Vec::new();
    let unmatched = (labels.len() as u64).saturating_sub(labelled);
    if unmatched > 0 {
        notes.push(format!("{unmatched} labelled sessions are not in the run"));
    }
    if labels.unclear > 0 {
        let unclear = labels.unclear;
        notes.push(format!(
            "{unclear} labels are no numbers, and count as none"
        ));
    }
    let record = serde_json::from_value::<RequestRecord>(manifest["request"].clone());
    if query.file.is_none()
        && let Some(changed) = record.ok().as_ref().and_then(RequestRecord::changed)
    {
        let path = &changed.path;
        notes.push(format!(
            "{path} was changed since the run: its labels are those of now"
        ));
    }
    for value in &labels.unmet {
        notes.push(format!("no label is `{value}`"));
    }
    if labels.mixed() > 0 {
        let mixed = labels.mixed();
        notes.push(format!(
            "{mixed} sessions have good and bad labels, and count as bad"
        ));
    }
    if let Some(file) = manifest["calibration"]["file"].as_str() {
        notes.push(format!(
            "attention was learnt with {file}: where that learnt from these sessions, its figures here are not held out"
        ));
    }
    let validated = ValidatedRun {
        run: run.name.clone(),
        sessions: run.sessions,
        labelled,
        bad: sessions.is_bad.iter().filter(|bad| **bad).count() as u64,
        clusters: sessions.clusters.into(),
        samples: resamples.count as u64,
        notes,
        slices: told::slices(&sessions, &figures, &drawn),
        told,
    };
    Ok((validated, sessions))
}

/// The mean over values, and over samples of each run.
fn mean_of(values: &[f64], samples: &[&[f64]]) -> (f64, Vec<f64>) {
    let runs = values.len() as f64;
    let count = samples
        .iter()
        .map(|samples| samples.len())
        .min()
        .unwrap_or_default();
    let mean = |at: usize| {
        let of_runs = samples.iter().filter_map(|samples| samples.get(at));
        of_runs.sum::<f64>() / runs
    };
    (
        values.iter().sum::<f64>() / runs,
        (0..count).map(mean).collect(),
    )
}

fn together(runs: &[ValidatedRun]) -> Vec<MeanTold> {
    let mut by_name: BTreeMap<&str, Vec<&Told>> = BTreeMap::new();
    for told in runs.iter().flat_map(|run| &run.told) {
        if told.auc.is_some() {
            by_name.entry(&told.name).or_default().push(told);
        }
    }
    let mut means = Vec::new();
    for (name, of_runs) in by_name {
        let [first, ..] = of_runs.as_slice() else {
            continue;
        };
        if of_runs.len() < 2 {
            continue;
        }
        let values: Vec<f64> = of_runs
            .iter()
            .filter_map(|told| Some(told.auc?.value))
            .collect();
        let samples: Vec<&[f64]> = of_runs.iter().map(|told| told.samples.as_slice()).collect();
        let (value, samples) = mean_of(&values, &samples);
        let auc = interval(value, &samples);
        let baselines = first.beside.iter().map(|(name, ..)| name);
        let beside = baselines.filter_map(|baseline| {
            let found = of_runs.iter().filter_map(|told| {
                let mut beside = told.beside.iter();
                beside.find(|(name, ..)| name == baseline)
            });
            let found: Vec<_> = found.collect();
            let values: Vec<f64> = found.iter().map(|(_, value, _)| *value).collect();
            let samples: Vec<&[f64]> = found.iter().map(|(.., s)| s.as_slice()).collect();
            let (value, samples) = mean_of(&values, &samples);
            (found.len() == of_runs.len()).then(|| (baseline.clone(), value, samples))
        });
        let ahead = told::ahead(value, &samples, &beside.collect::<Vec<_>>());
        let verdict = Verdict::of(auc, ahead.as_ref());
        means.push(MeanTold {
            words: verdict.words(ahead.as_ref(), first.kind),
            name: name.to_owned(),
            kind: first.kind,
            runs: of_runs.len() as u64,
            auc,
            range: [
                values.iter().copied().fold(f64::INFINITY, f64::min),
                values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ],
            verdict,
            ahead,
        });
    }
    means.sort_by(|a, b| {
        let value = |told: &MeanTold| told.auc.map_or(-1.0, |auc| auc.value);
        let kinds = (a.kind as u8).cmp(&(b.kind as u8));
        kinds.then(value(b).total_cmp(&value(a)))
    });
    means
}
