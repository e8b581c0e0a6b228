//! Thresholds and an order of sessions that fit a warehouse, out of its own runs.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use serde_json::Value;

use super::labels::LabelQuery;
use super::order::Order;
use super::resample::{Estimate, Resamples, interval};
use super::sessions::{LabelledSessions, whole_column};
use super::thresholds::{Scores, by_f1, by_percentile};
use super::told::{FEWEST, Verdict, told};
use super::{ValidationError, labelled, logistic};
use crate::history::{StoredRun, read_told};
use crate::job::{
    CalibratedModel, Calibration, CalibrationOrigin, FittingThreshold, LearntAttention,
};
use crate::metric::attention::ranks;
use crate::metric::session_signal::{ATTENTION, SessionSignal, learnable};
use crate::text::origin_of;

/// What is asked of a calibration.
#[derive(Clone, Debug)]
pub struct CalibrationQuery {
    /// Labels to learn from; without them thresholds are percentiles, and no order is learnt.
    pub labels: Option<LabelQuery>,
    /// The share of scores that thresholds leave below them, in (0, 1).
    pub below: f64,
    /// Only sessions with this value of a column of `sessions`.
    pub slice: Option<(String, String)>,
}

/// A calibration, and what there is to say of it.
#[derive(Clone, Debug)]
pub struct Calibrated {
    /// What goes into the file.
    pub calibration: Calibration,
    /// What a reader must know, a line each.
    pub notes: Vec<String>,
}

/// A run with its labels.
struct Labelled<'r> {
    run: &'r StoredRun,
    sessions: LabelledSessions,
}

/// Calibrates by these runs, which must be of one model, precision and text mode.
///
/// # Errors
/// [`ValidationError`] if a run or the labels can't be read, if runs are of different models, or nothing can be said.
pub fn calibrate(
    runs: &[StoredRun],
    query: &CalibrationQuery,
) -> Result<Calibrated, ValidationError> {
    let mut manifests = Vec::new();
    for run in runs {
        manifests.push(read_told(&run.path)?.0);
    }
    let of_triage = |manifest: &Value| !manifest["model"]["triage"].is_null();
    if let Some(at) = manifests.iter().position(of_triage) {
        return Err(ValidationError::Refused(format!(
            "`{}`: its scores are estimates of a quick model (--triage), which are no thresholds' measure; calibrate by a run \
             without it",
            origin_of(&runs[at].path)
        )));
    }
    let (model, text_mode) = one_model(runs, &manifests)?;
    let mut notes = Vec::new();
    let mut of_labels = Vec::new();
    if let Some(labels) = &query.labels {
        for (run, manifest) in runs.iter().zip(&manifests) {
            let (_, sessions) = labelled(run, labels, manifest)?;
            let sessions = match &query.slice {
                None => sessions,
                Some((column, value)) => sessions.only(column, value).map_err(|problem| {
                    ValidationError::Refused(format!("`{}`: {problem}", origin_of(&run.path)))
                })?,
            };
            of_labels.push(Labelled { run, sessions });
        }
    }
    let mut scores = Scores::default();
    for run in runs {
        scores.read(&run.path, query.slice.as_ref())?;
    }
    let mut thresholds = BTreeMap::new();
    for (metric, values) in scores.by_metric() {
        thresholds.insert(metric.clone(), by_percentile(values, query.below));
    }
    let mut seen = HashSet::new();
    for (name, _) in of_labels.iter().flat_map(|of| of.sessions.named()) {
        if !seen.insert(name) {
            return Err(ValidationError::Refused(format!(
                "the session `{}` is in two of these runs; name each session's run once",
                name.1
            )));
        }
    }
    if of_labels.len() > 1 {
        notes.push(
            "thresholds of several runs are percentiles; labels choose those of one run".into(),
        );
    }
    for (metric, found, note) in of_f1(&of_labels)? {
        if let Some(found) = found {
            thresholds.insert(metric.clone(), found);
        }
        notes.extend(note);
    }
    let mut attention = None;
    if !of_labels.is_empty() {
        let learnt = learn_order(&of_labels, query)?;
        attention = learnt.0;
        notes.extend(learnt.1);
    }
    if thresholds.is_empty() && attention.is_none() {
        notes.push("no score of these runs has a threshold that could be calibrated".into());
        return Err(ValidationError::Refused(notes.join("; ")));
    }
    let bad = |of: &Labelled<'_>| of.sessions.is_bad.iter().filter(|bad| **bad).count() as u64;
    let labels = query.labels.as_ref();
    let calibration = Calibration {
        origin: CalibrationOrigin {
            created_at: chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
            nightmill: env!("CARGO_PKG_VERSION").into(),
            runs: runs.iter().map(|run| run.name.clone()).collect(),
            sessions: scores.sessions(),
            labelled: of_labels
                .iter()
                .map(|of| of.sessions.is_bad.len() as u64)
                .sum(),
            bad: of_labels.iter().map(bad).sum(),
            label: labels.map(|labels| labels.column.clone()),
            bad_labels: labels
                .and_then(|of| of.bad.as_ref())
                .map(ToString::to_string),
            data: labels.map(|_| data_hash(&of_labels)),
            slice: query
                .slice
                .as_ref()
                .map(|(column, value)| format!("{column} = {value}")),
            model,
            text_mode,
        },
        thresholds,
        attention,
    };
    Ok(Calibrated { calibration, notes })
}

/// The model and text mode of the runs.
fn one_model(
    runs: &[StoredRun],
    manifests: &[Value],
) -> Result<(Option<CalibratedModel>, Option<String>), ValidationError> {
    let of = |manifest: &Value| {
        let model = &manifest["model"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let model = text(&model["sha256"]).map(|sha256| CalibratedModel {
            name: text(&model["name"]).unwrap_or_default(),
            sha256,
            precision: text(&model["precision"]).unwrap_or_default(),
        });
        let mode = model
            .is_some()
            .then(|| text(&manifest["rules"]["text_mode"]));
        (model, mode.flatten())
    };
    let mut found = None;
    for (run, manifest) in runs.iter().zip(manifests) {
        let now = of(manifest);
        if let Some((first, before)) = found.replace((run, now.clone()))
            && before != now
        {
            return Err(ValidationError::Refused(format!(
                "`{}` and `{}` are of different models, precisions or text modes; their scores can't be calibrated \
                 together",
                origin_of(&first.path),
                origin_of(&run.path)
            )));
        }
    }
    Ok(found.map(|(_, of)| of).unwrap_or_default())
}

/// A hash of which sessions there were, and which were bad.
fn data_hash(labelled: &[Labelled<'_>]) -> String {
    let mut lines: Vec<String> = labelled
        .iter()
        .flat_map(|of| of.sessions.named())
        .map(|((project, session), bad)| {
            format!(
                "{}\0{session}\0{bad}",
                project.as_deref().unwrap_or_default()
            )
        })
        .collect();
    lines.sort_unstable();
    blake3::hash(lines.join("\n").as_bytes())
        .to_hex()
        .to_string()
}

type OfF1 = (String, Option<FittingThreshold>, Option<String>);

/// Thresholds of scores of sessions that tell something of the labels: where the two kinds part best.
fn of_f1(labelled: &[Labelled<'_>]) -> Result<Vec<OfF1>, ValidationError> {
    let [first, rest @ ..] = labelled else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    if !rest.is_empty() {
        return Ok(found);
    }
    let sessions = &first.sessions;
    let figures = sessions.figures(&first.run.path)?;
    let resamples = Resamples::of(sessions.cluster_of.clone(), sessions.clusters, 0);
    let wanted = |name: &str| {
        let lowest = name.strip_suffix(", lowest");
        let of_sessions = ["agent_reliability", "agent_consistency"].contains(&name);
        lowest
            .map(str::to_owned)
            .or_else(|| of_sessions.then(|| name.to_owned()))
    };
    let figures: Vec<_> = figures
        .into_iter()
        .filter(|figure| wanted(&figure.name).is_some())
        .collect();
    for (figure, told) in figures
        .iter()
        .zip(told(sessions, &figures, &resamples.drawn()))
    {
        let Some(metric) = wanted(&figure.name) else {
            continue;
        };
        let metric_has_scores = crate::metric::find(&metric).is_some_and(|m| m.has_scores());
        if !metric_has_scores || told.verdict == Verdict::TooFew {
            continue;
        }
        let tells = matches!(
            told.verdict,
            Verdict::NoMoreThanBaseline | Verdict::MoreThanBaselines
        );
        match tells {
            true => found.push((metric, by_f1(figure, sessions), None)),
            false => {
                let note = format!("{metric} {}: its threshold is a percentile", told.words);
                found.push((metric, None, Some(note)));
            }
        }
    }
    Ok(found)
}

/// How many parts sessions are held out in.
const PARTS: u32 = 5;
/// The share of sessions, the earliest, that is learnt from where they are split by time.
const EARLIER: f64 = 0.7;

/// Learns what signals count for, and measures it on sessions that were held out.
fn learn_order(
    labelled: &[Labelled<'_>],
    query: &CalibrationQuery,
) -> Result<(Option<LearntAttention>, Vec<String>), ValidationError> {
    let nothing = |note: &str| Ok((None, vec![format!("no order was learnt: {note}")]));
    let signals: Vec<&'static SessionSignal> = learnable().collect();
    let data = Data::of(labelled, &signals)?;
    let bad = data.is_bad.iter().filter(|bad| **bad).count() as u64;
    let good = data.is_bad.len() as u64 - bad;
    if bad < 2 * FEWEST || good < 2 * FEWEST {
        return nothing("it takes 20 bad and 20 good sessions");
    }
    let of_default = signals.iter().zip(&data.columns);
    let mut of_default = of_default.filter(|(signal, _)| signal.weight > 0.0);
    if of_default.all(|(_, column)| column.iter().all(|rank| *rank == 0.0)) {
        return nothing("the runs have no signals of sessions; score with --metrics attention");
    }
    let by_task = query.labels.as_ref().and_then(|labels| labels.task.clone());
    let (parts, held_out) = match &by_task {
        Some(task) => (
            data.parts_by_cluster(),
            format!("{PARTS} parts of whole tasks, by {task}"),
        ),
        None => (
            data.parts_by_time(),
            format!("the latest {:.0} % of sessions", 100.0 * (1.0 - EARLIER)),
        ),
    };
    let before: Vec<f64> = signals.iter().map(|signal| signal.weight).collect();
    // Of each held-out session, what the order learnt from the others says of it.
    let mut learnt = vec![f64::NAN; data.is_bad.len()];
    let mut unlearnt = learnt.clone();
    let last = parts.iter().copied().max().unwrap_or_default();
    // By time, the first part is only learnt from.
    let first = u32::from(by_task.is_none());
    for part in first..=last {
        let is_held = |unit: &u32| parts.get(*unit as usize) == Some(&part);
        let (held, units): (Vec<u32>, Vec<u32>) = (0..data.is_bad.len() as u32).partition(is_held);
        let weights = logistic::learn(data.examples(&units), &before);
        for unit in held {
            let unit = unit as usize;
            let of = |weights: &[f64]| logistic::weighted(&data.columns, weights, unit);
            if let (Some(slot), Some(other)) = (learnt.get_mut(unit), unlearnt.get_mut(unit)) {
                (*slot, *other) = (of(&weights), of(&before));
            }
        }
    }
    // Sums of two parts are not on one scale, and ranks of two runs are of other sessions.
    let strata: Vec<u32> = parts
        .iter()
        .zip(&data.run_of)
        .map(|(part, run)| run * (PARTS + 1) + part)
        .collect();
    let resamples = Resamples::of(data.cluster_of.clone(), data.clusters, 0);
    let orders = [&learnt, &unlearnt].map(|sums| Order::within(sums, &strata));
    let ones = vec![1; data.is_bad.len()];
    let values = orders
        .each_ref()
        .map(|order| order.auc(&data.is_bad, &ones));
    let [Some(value), Some(default)] = values else {
        return nothing("no held-out part has both bad and good sessions");
    };
    let mut samples = [Vec::new(), Vec::new(), Vec::new()];
    for weights in resamples.drawn() {
        let aucs = orders.each_ref().map(|order| {
            let auc = order.auc(&data.is_bad, &weights);
            auc.unwrap_or(f64::NAN)
        });
        samples[0].push(aucs[0]);
        samples[1].push(aucs[1]);
        samples[2].push(aucs[0] - aucs[1]);
    }
    let [of_learnt, of_default, of_difference] = &samples;
    let (Some(held), Some(before_auc), Some(difference)) = (
        interval(value, of_learnt),
        interval(default, of_default),
        interval(value - default, of_difference),
    ) else {
        return nothing("too few sessions are held out to measure it");
    };
    let shown = |e: Estimate| format!("{:.2} ({:.2} to {:.2})", e.value, e.low, e.high);
    let note = format!(
        "held out ({held_out}): AUC {} learnt, {} by the default weights; difference {:+.2} ({:+.2} to {:+.2})",
        shown(held),
        shown(before_auc),
        difference.value,
        difference.low,
        difference.high
    );
    if difference.low <= 0.0 {
        return Ok((
            None,
            vec![
                note,
                "the learnt order is no better by more than chance: the default one stays".into(),
            ],
        ));
    }
    let all: Vec<u32> = (0..data.is_bad.len() as u32).collect();
    let weights = logistic::learn(data.examples(&all), &before);
    let sum: f64 = weights.iter().sum();
    let rounded = |weight: f64| (1000.0 * weight / sum).round() / 1000.0;
    let weights: BTreeMap<String, f64> = signals
        .iter()
        .zip(&weights)
        .map(|(signal, weight)| (signal.name.to_owned(), rounded(*weight)))
        .filter(|(_, weight)| *weight > 0.0)
        .collect();
    let three = |e: Estimate| [e.value, e.low, e.high].map(|v| (1e4 * v).round() / 1e4);
    let attention = LearntAttention {
        held_out,
        held_out_auc: three(held),
        default_auc: three(before_auc),
        weights,
    };
    Ok((Some(attention), vec![note]))
}

/// Labelled sessions of all runs, with the ranks of their signals.
struct Data {
    /// Rank within the run less 0.5, by signal and session.
    columns: Vec<Vec<f64>>,
    is_bad: Vec<bool>,
    cluster_of: Vec<u32>,
    clusters: u32,
    run_of: Vec<u32>,
    started: Vec<i64>,
}

impl Data {
    fn of(
        labelled: &[Labelled<'_>],
        signals: &[&'static SessionSignal],
    ) -> Result<Self, ValidationError> {
        let mut data = Self {
            columns: vec![Vec::new(); signals.len()],
            is_bad: Vec::new(),
            cluster_of: Vec::new(),
            clusters: 0,
            run_of: Vec::new(),
            started: Vec::new(),
        };
        for (nth, of) in labelled.iter().enumerate() {
            let sessions = &of.sessions;
            for (signal, column) in signals.iter().zip(&mut data.columns) {
                let values = signal_values(&of.run.path, signal)?;
                let ranks = values.and_then(|values| ranks(signal, &values));
                let rank = |row: usize| {
                    let rank = ranks.as_ref().and_then(|ranks| ranks.get(row));
                    rank.map_or(0.0, |rank| rank - 0.5)
                };
                column.extend(sessions.rows_of_units().into_iter().map(rank));
            }
            data.is_bad.extend(&sessions.is_bad);
            let before = data.clusters;
            let clusters = sessions.cluster_of.iter().map(|of| of + before);
            data.cluster_of.extend(clusters);
            data.clusters += sessions.clusters;
            data.run_of
                .extend(std::iter::repeat_n(nth as u32, sessions.is_bad.len()));
            data.started.extend(&sessions.started);
        }
        Ok(data)
    }

    fn examples<'d>(&'d self, units: &'d [u32]) -> logistic::Examples<'d> {
        logistic::Examples {
            columns: &self.columns,
            is_bad: &self.is_bad,
            units,
        }
    }

    /// Parts of whole clusters, in the order in which these came.
    fn parts_by_cluster(&self) -> Vec<u32> {
        self.cluster_of
            .iter()
            .map(|cluster| cluster % PARTS)
            .collect()
    }

    /// 0 for the earliest sessions, 1 for the others.
    fn parts_by_time(&self) -> Vec<u32> {
        let mut times = self.started.clone();
        times.sort_unstable();
        let split = (times.len() as f64 * EARLIER) as usize;
        let from = times.get(split).copied().unwrap_or(i64::MAX);
        self.started
            .iter()
            .map(|at| u32::from(*at >= from))
            .collect()
    }
}

/// The values of a signal in all sessions of a run, in the order of its tables; none where the run has no such column.
fn signal_values(run: &Path, signal: &SessionSignal) -> Result<Option<Vec<f64>>, ValidationError> {
    let of_order = crate::metric::session_signal::WAREHOUSE_SIGNALS.iter();
    let table = match of_order.clone().any(|of| of.name == signal.name) {
        true => ATTENTION,
        false => "sessions",
    };
    if !run.join(table).is_dir() {
        return Ok(None);
    }
    let values = whole_column(run, table, signal.name)?;
    Ok(values.iter().any(|value| !value.is_nan()).then_some(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(started: Vec<i64>, cluster_of: Vec<u32>) -> Data {
        Data {
            columns: Vec::new(),
            is_bad: vec![false; started.len()],
            clusters: cluster_of.iter().max().map_or(0, |most| most + 1),
            run_of: vec![0; started.len()],
            cluster_of,
            started,
        }
    }

    #[test]
    fn parts_hold_whole_tasks_or_later_sessions() {
        let data = data(
            vec![5, 1, 9, 3, 7, 2, 8, 4, 6, 10],
            vec![0, 0, 1, 2, 3, 4, 5, 5, 6, 7],
        );
        let by_time = data.parts_by_time();
        assert_eq!(by_time, [0, 0, 1, 0, 0, 0, 1, 0, 0, 1]);
        let by_task = data.parts_by_cluster();
        assert_eq!(by_task, [0, 0, 1, 2, 3, 4, 0, 0, 1, 2]);
    }
}
