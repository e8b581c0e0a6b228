//! What figures of sessions tell of labels.

use rayon::prelude::*;
use serde::Serialize;

use super::order::Order;
use super::resample::{Estimate, interval};
use super::sessions::{Figure, Kind, LabelledSessions};
use crate::metric::session_signal::{ATTENTION, TRACES, Worse};

/// Fewest bad and fewest good sessions that anything is told of.
pub const FEWEST: u64 = 10;

/// What a figure tells of labels, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Fewer than ten bad, or ten good, sessions have it.
    TooFew,
    /// The interval of its AUC holds 0.5.
    Nothing,
    /// The interval lies below 0.5: what it calls worse is better.
    WrongWay,
    /// It tells something, and no baseline that it could be held against does better, or worse: the interval of the
    /// difference holds 0. Of a baseline: it tells something.
    NoMoreThanBaseline,
    /// It tells more than the best baseline, by more than chance.
    MoreThanBaselines,
}

/// A figure beside the baseline that does best on the same sessions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ahead {
    /// That baseline.
    pub baseline: String,
    /// The AUC of the figure less that of the baseline.
    pub difference: Estimate,
}

/// Bad sessions among those that a figure calls the worst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Precision {
    /// How many these are.
    pub sessions: u64,
    /// The share of bad ones among them.
    pub bad: f64,
}

/// What a figure tells of labels.
#[derive(Clone, Debug, Serialize)]
pub struct Told {
    /// The figure: a column of the run, or `coherence, mean`.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Whether more of it is taken as worse.
    pub more_is_worse: bool,
    /// Labelled sessions that have it.
    pub sessions: u64,
    /// Bad ones among them.
    pub bad: u64,
    /// How often it is worse in the bad of a bad and a good session; none where it can't be told.
    pub auc: Option<Estimate>,
    /// The same among sessions of equally many traces.
    pub auc_of_equal_length: Option<Estimate>,
    /// How many pairs these are.
    pub pairs_of_equal_length: u64,
    /// Beside the best baseline; none of baselines.
    pub ahead: Option<Ahead>,
    /// Among the worst 1 % by it.
    pub worst_1_percent: Option<Precision>,
    /// Among the worst 5 %.
    pub worst_5_percent: Option<Precision>,
    /// The share of bad sessions that is found by looking at the worst 0, 2, 4 … 100 %.
    pub found: Vec<f64>,
    /// In one word.
    pub verdict: Verdict,
    /// In words.
    pub words: String,
    /// Resampled AUCs.
    #[serde(skip)]
    pub(super) samples: Vec<f64>,
    /// Those of each baseline on the same sessions, with the AUC itself.
    #[serde(skip)]
    pub(super) beside: Vec<(String, f64, Vec<f64>)>,
}

impl Verdict {
    /// In words, of a figure of this kind.
    pub(super) fn words(self, ahead: Option<&Ahead>, kind: Kind) -> String {
        match (self, ahead) {
            (Self::TooFew, _) => "too few to tell".to_owned(),
            (Self::Nothing, _) => "tells nothing".to_owned(),
            (Self::WrongWay, _) => "points the wrong way".to_owned(),
            (Self::NoMoreThanBaseline, _) if kind == Kind::Baseline => "a baseline".to_owned(),
            (Self::NoMoreThanBaseline, Some(ahead)) => {
                format!("no more than `{}`", ahead.baseline)
            }
            (Self::NoMoreThanBaseline, None) => "tells something".to_owned(),
            (Self::MoreThanBaselines, _) => "more than any baseline".to_owned(),
        }
    }

    pub(super) fn of(auc: Option<Estimate>, ahead: Option<&Ahead>) -> Self {
        match (auc, ahead) {
            (None, _) => Self::TooFew,
            (Some(auc), _) if auc.high < 0.5 => Self::WrongWay,
            (Some(auc), _) if auc.low <= 0.5 => Self::Nothing,
            (_, Some(ahead)) if ahead.difference.low > 0.0 => Self::MoreThanBaselines,
            _ => Self::NoMoreThanBaseline,
        }
    }
}

/// What each of these figures tells.
pub(super) fn told(
    sessions: &LabelledSessions,
    figures: &[Figure],
    drawn: &[Vec<u32>],
) -> Vec<Told> {
    let baselines = figures
        .iter()
        .filter(|figure| figure.kind == Kind::Baseline);
    let baselines: Vec<Baseline<'_>> = baselines
        .map(|figure| {
            let badness = figure.badness();
            Baseline {
                name: &figure.name,
                of_all: estimate(&Order::of(&badness), &sessions.is_bad, drawn),
                badness,
            }
        })
        .collect();
    let told = |figure: &Figure| one(sessions, figure, &baselines, drawn);
    figures.par_iter().map(told).collect()
}

/// What figures are held beside.
struct Baseline<'f> {
    name: &'f str,
    badness: Vec<f64>,
    /// Over all sessions, which most figures are of.
    of_all: (Option<Estimate>, Vec<f64>),
}

fn one(
    sessions: &LabelledSessions,
    figure: &Figure,
    baselines: &[Baseline<'_>],
    weights: &[Vec<u32>],
) -> Told {
    let bad = &sessions.is_bad;
    let badness = figure.badness();
    let order = Order::of(&badness);
    let valued = badness.iter().zip(bad).filter(|(value, _)| !value.is_nan());
    let all_bad = valued.filter(|(_, bad)| **bad).count() as u64;
    let all = order.units() as u64;
    let mut told = Told {
        name: figure.name.clone(),
        kind: figure.kind,
        more_is_worse: figure.worse == Worse::More,
        sessions: all,
        bad: all_bad,
        auc: None,
        auc_of_equal_length: None,
        pairs_of_equal_length: 0,
        ahead: None,
        worst_1_percent: None,
        worst_5_percent: None,
        found: Vec::new(),
        verdict: Verdict::TooFew,
        words: Verdict::TooFew.words(None, figure.kind),
        samples: Vec::new(),
        beside: Vec::new(),
    };
    if all_bad < FEWEST || all - all_bad < FEWEST {
        return told;
    }
    let estimate = |order: &Order| estimate(order, bad, weights);
    (told.auc, told.samples) = estimate(&order);
    if figure.name != TRACES.name {
        let within = Order::within(&badness, &sessions.lengths);
        told.pairs_of_equal_length = within.pairs(bad);
        told.auc_of_equal_length = estimate(&within).0;
    }
    let precision = |share| {
        let (bad, sessions) = order.precision(bad, share)?;
        Some(Precision { sessions, bad })
    };
    told.worst_1_percent = precision(0.01);
    told.worst_5_percent = precision(0.05);
    told.found = order.curve(bad);
    if figure.kind != Kind::Baseline {
        let is_of_all = order.units() == badness.len();
        told.beside = baselines
            .iter()
            .filter_map(|baseline| {
                let (auc, samples) = match is_of_all {
                    true => baseline.of_all.clone(),
                    false => {
                        // On the same sessions.
                        let same = baseline.badness.iter().zip(&badness);
                        let same =
                            same.map(|(value, of)| if of.is_nan() { f64::NAN } else { *value });
                        estimate(&Order::of(&same.collect::<Vec<f64>>()))
                    }
                };
                Some((baseline.name.to_owned(), auc?.value, samples))
            })
            .collect();
        told.ahead = told
            .auc
            .and_then(|auc| ahead(auc.value, &told.samples, &told.beside));
    }
    told.verdict = Verdict::of(told.auc, told.ahead.as_ref());
    told.words = told.verdict.words(told.ahead.as_ref(), told.kind);
    told
}

/// Beside the baseline with the largest AUC.
pub(super) fn ahead(
    auc: f64,
    samples: &[f64],
    beside: &[(String, f64, Vec<f64>)],
) -> Option<Ahead> {
    let (baseline, of_baseline, others) = beside.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let differences = samples.iter().zip(others).map(|(own, other)| own - other);
    let differences: Vec<f64> = differences.collect();
    Some(Ahead {
        baseline: baseline.clone(),
        difference: interval(auc - of_baseline, &differences)?,
    })
}

fn estimate(order: &Order, bad: &[bool], weights: &[Vec<u32>]) -> (Option<Estimate>, Vec<f64>) {
    let Some(value) = order.auc(bad, &vec![1; bad.len()]) else {
        return (None, Vec::new());
    };
    let samples = weights.iter().map(|weights| order.auc(bad, weights));
    let samples: Vec<f64> = samples.map(|auc| auc.unwrap_or(f64::NAN)).collect();
    (interval(value, &samples), samples)
}

/// What the main figures tell of the sessions of a slice.
#[derive(Clone, Debug, Serialize)]
pub struct SliceTold {
    /// The column that it is of.
    pub column: String,
    /// The value in it.
    pub value: String,
    /// Its labelled sessions.
    pub sessions: u64,
    /// Bad ones among them.
    pub bad: u64,
    /// The AUC of each main figure, where it can be told.
    pub aucs: Vec<(String, Option<Estimate>)>,
}

/// The figures that slices show.
pub const OF_SLICES: [&str; 4] = [
    ATTENTION,
    "agent_reliability",
    "agent_consistency",
    "traces",
];

/// The most slices of a column that are shown, the largest first.
const MOST_SLICES: usize = 20;

/// What the main figures tell of each slice that has enough of both kinds, of columns with several values.
pub(super) fn slices(
    sessions: &LabelledSessions,
    figures: &[Figure],
    drawn: &[Vec<u32>],
) -> Vec<SliceTold> {
    let shown: Vec<&Figure> = OF_SLICES
        .iter()
        .filter_map(|name| figures.iter().find(|figure| figure.name == *name))
        .collect();
    let mut found = Vec::new();
    for (column, values) in sessions
        .slices
        .iter()
        .filter(|(_, values)| values.len() > 1)
    {
        let mut values: Vec<(&String, &Vec<u32>)> = values.iter().collect();
        values.sort_by(|a, b| b.1.len().cmp(&a.1.len()).then(a.0.cmp(b.0)));
        for (value, units) in values.into_iter().take(MOST_SLICES) {
            let is_bad = |unit: &&u32| sessions.is_bad.get(**unit as usize) == Some(&true);
            let bad = units.iter().filter(is_bad).count() as u64;
            let all = units.len() as u64;
            if bad < FEWEST || all - bad < FEWEST {
                continue;
            }
            let auc = |figure: &&Figure| {
                let of = figure.badness();
                let mut inside = vec![f64::NAN; of.len()];
                for unit in units {
                    let unit = *unit as usize;
                    if let (Some(slot), Some(value)) = (inside.get_mut(unit), of.get(unit)) {
                        *slot = *value;
                    }
                }
                let auc = estimate(&Order::of(&inside), &sessions.is_bad, drawn).0;
                (figure.name.clone(), auc)
            };
            found.push(SliceTold {
                column: (*column).to_owned(),
                value: value.clone(),
                sessions: all,
                bad,
                aucs: shown.par_iter().map(auc).collect(),
            });
        }
    }
    found
}
