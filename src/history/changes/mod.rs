//! What changed since last night: sessions that went bad or recovered, and whether scores, volume and faults are still what
//! they were over the nights before.
//!
//! A night is held against up to 14 nights before it, each session of them once, as it was when the night began. Of the night
//! count the sessions that it scored, and the traces that no night before had. `chance` says what is more than chance.

mod means;
mod read;
mod sessions;
mod volume;

use serde::Serialize;

pub use read::{ChangeQuery, read_changes};
pub use sessions::{SessionChange, SessionChanges};
pub use volume::VolumeChange;

use crate::history::chance::{Difference, LEAST_NIGHTS, LEAST_SESSIONS, Sums, difference};
use crate::history::figures::Target;
use crate::metric::round4;

/// How many nights a night is held against.
pub const MOST_NIGHTS: usize = 14;

/// How sure an interval is to hold the true difference: one night in a hundred is named without cause.
pub const CONFIDENCE: f64 = 0.99;

/// The least change of a mean that counts as drift where nobody asks for another.
pub const LEAST_CHANGE: f64 = 0.01;

/// How many sessions of each state are shown where nobody asks for others.
pub const SHOWN_SESSIONS: usize = 10;

/// Bars of a histogram.
pub(super) const BINS: usize = 20;

/// What changed in a night.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changes {
    /// The run.
    pub run: String,
    /// Which night of its chain it is.
    pub night: u64,
    /// The runs whose sessions and traces count as now: the run, and those since an earlier one that was named.
    pub nights: Vec<String>,
    /// The runs that it is held against, the latest first.
    pub before: Vec<String>,
    /// A run of the chain that is not there any more, so that nothing before it counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The same with what is known of it, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_told: Option<String>,
    /// Sessions that go on from nights whose scores of them are not there any more, as after `runs prune`: what became of
    /// them can't be told.
    pub untold_sessions: u64,
    /// Traces and sessions that the night brought.
    pub volume: Vec<VolumeChange>,
    /// Rows that could not be read, and traces with an empty side, as shares.
    pub faults: Vec<MetricChange>,
    /// Scores by metric.
    pub metrics: Vec<MetricChange>,
    /// Scores by metric, of traces of one name, environment, release or model.
    pub slices: Vec<SliceChange>,
    /// Sessions by metric.
    pub sessions: Vec<SessionChanges>,
}

/// Which way a mean went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Down, by more than chance.
    Fell,
    /// Up, by more than chance.
    Rose,
    /// Neither.
    NoChange,
    /// Too few sessions on one side.
    TooFew,
    /// Scores are of several models, or text modes, or precisions.
    NotComparable,
}

/// Scores on one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// How many.
    pub count: u64,
    /// Of how many sessions; a trace without one counts for itself.
    pub sessions: u64,
    /// Their mean.
    pub mean: Option<f64>,
    /// Those that reach their threshold.
    pub passed: u64,
    /// How they spread over twentieths of [0, 1]; a score of 1 is in the last.
    pub bins: Vec<u64>,
}

/// A night before, or now.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NightMean {
    /// The run.
    pub run: String,
    /// Scores of it that count.
    pub count: u64,
    /// Their mean.
    pub mean: Option<f64>,
}

/// What became of a metric, or of a share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricChange {
    /// The metric, or what the share is of.
    pub metric: String,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// Which way the mean went.
    pub verdict: Verdict,
    /// The mean of now less that of before.
    pub difference: Option<f64>,
    /// The interval of the difference.
    pub interval: Option<[f64; 2]>,
    /// Whether it is worse by more than chance, and by more than was asked for.
    pub worse: bool,
    /// The same in words.
    pub sentence: String,
    /// Scores of now.
    pub now: Spread,
    /// Scores of the nights before.
    pub before: Spread,
    /// The means night by night, the earliest first, and now.
    pub trend: Vec<NightMean>,
}

/// What became of a metric on some of the traces.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SliceChange {
    /// `name`, `environment`, `release` or `model`.
    pub by: String,
    /// What they have there; null if nothing.
    pub value: Option<String>,
    /// What became of it.
    #[serde(flatten)]
    pub change: MetricChange,
}

impl MetricChange {
    /// Whether the mean is another one by more than chance.
    pub fn moved(&self) -> bool {
        matches!(self.verdict, Verdict::Fell | Verdict::Rose)
    }
}

impl Changes {
    /// What got worse by more than chance, in words: metrics, empty outputs and rows that can't be read, and a volume that is
    /// not the usual one.
    pub fn drift(&self) -> Vec<&str> {
        let means = self.metrics.iter().chain(&self.faults);
        let worse = means.filter(|change| change.worse);
        let worse = worse.map(|change| change.sentence.as_str());
        let volume = self.volume.iter().filter(|volume| volume.drifted);
        worse
            .chain(volume.map(|volume| volume.sentence.as_str()))
            .collect()
    }

    /// The metrics of which nothing can be told: no drift says nothing of them.
    pub fn untold(&self) -> Vec<&str> {
        let untold = |change: &&MetricChange| {
            matches!(change.verdict, Verdict::TooFew | Verdict::NotComparable)
        };
        let untold = self.metrics.iter().filter(untold);
        untold.map(|change| change.metric.as_str()).collect()
    }

    /// Whether there are too few nights to know how much nights differ among themselves: intervals are too narrow then.
    pub fn few_nights(&self) -> bool {
        self.before.len() < LEAST_NIGHTS
    }
}

/// What is known of a metric, or share, before words are made of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Of the night.
    pub now: Sums,
    /// Of the nights before, the latest first.
    pub before: Vec<Sums>,
    /// Whether each score reached its threshold, and how they spread: now and before.
    pub passed: [u64; 2],
    pub bins: [Vec<u64>; 2],
}

/// What the words of changes are made with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    /// The runs before, the latest first.
    pub before: &'a [String],
    /// The run.
    pub now: &'a str,
    /// The least change that counts.
    pub least: f64,
}

impl Words<'_> {
    /// What became of a metric. A share is better the lower it is.
    pub fn change(
        &self,
        metric: &str,
        target: Option<Target>,
        seen: &Seen,
        share: bool,
    ) -> MetricChange {
        // Shares of faults are small.
        let least = match share {
            true => self.least / 10.0,
            false => self.least,
        };
        let found = difference(&seen.now, &seen.before, CONFIDENCE);
        let verdict = verdict(found);
        let nights = seen.before.iter().filter(|night| night.count > 0).count();
        let worse = match (verdict, share) {
            (Verdict::Fell, false) | (Verdict::Rose, true) => {
                found.is_some_and(|found| round4(found.difference.abs()) >= least)
            }
            _ => false,
        };
        let before = seen
            .before
            .iter()
            .fold(Sums::default(), |all, night| all.with(*night));
        let trend = self.before.iter().zip(&seen.before).rev();
        let trend = trend.map(|(run, sums)| night_mean(run, sums));
        MetricChange {
            metric: metric.to_owned(),
            target,
            verdict,
            difference: found.map(|found| round4(found.difference)),
            interval: found.map(|found| [round4(found.low), round4(found.high)]),
            worse,
            sentence: sentence(metric, verdict, found, nights, least, share),
            now: spread(&seen.now, seen.passed[0], &seen.bins[0]),
            before: spread(&before, seen.passed[1], &seen.bins[1]),
            trend: trend.chain([night_mean(self.now, &seen.now)]).collect(),
        }
    }
}

fn verdict(found: Option<Difference>) -> Verdict {
    match found {
        None => Verdict::TooFew,
        Some(found) if found.high < 0.0 => Verdict::Fell,
        Some(found) if found.low > 0.0 => Verdict::Rose,
        Some(_) => Verdict::NoChange,
    }
}

/// What became of it, in one line.
fn sentence(
    metric: &str,
    verdict: Verdict,
    found: Option<Difference>,
    nights: usize,
    least: f64,
    share: bool,
) -> String {
    let before = match nights {
        1 => "the night before".to_owned(),
        _ => format!("the last {nights} nights"),
    };
    let went = match verdict {
        Verdict::Fell => "fell",
        Verdict::Rose => "rose",
        // A mean may stay where it is while its scores go apart.
        Verdict::NoChange => {
            let what = if share { "" } else { " of the mean" };
            return format!("{metric}: no change{what} beyond chance from that of {before}");
        }
        Verdict::TooFew | Verdict::NotComparable => {
            return format!(
                "{metric}: no verdict, with fewer than {LEAST_SESSIONS} sessions now or before"
            );
        }
    };
    let by = found.map_or(0.0, |found| round4(found.difference.abs()));
    let but = match by < least {
        true => format!(", but by less than {least}"),
        false => String::new(),
    };
    format!("{metric} {went} by {by:.4} from the mean of {before}, more than chance{but}")
}

fn spread(sums: &Sums, passed: u64, bins: &[u64]) -> Spread {
    Spread {
        count: sums.count,
        sessions: sums.sessions,
        mean: sums.mean().map(round4),
        passed,
        bins: bins.to_vec(),
    }
}

fn night_mean(run: &str, sums: &Sums) -> NightMean {
    NightMean {
        run: run.to_owned(),
        count: sums.count,
        mean: sums.mean().map(round4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn night(mean: u64) -> Sums {
        let mut sums = Sums::default();
        sums.add_sessions(100, 2, 2 * (mean + 500));
        sums.add_sessions(100, 2, 2 * (mean - 500));
        sums
    }

    fn change(now: u64, share: bool, least: f64) -> MetricChange {
        let seen = Seen {
            now: night(now),
            before: vec![night(6000); 3],
            ..Seen::default()
        };
        let before = ["c", "b", "a"].map(str::to_owned);
        let words = Words {
            before: &before,
            now: "d",
            least,
        };
        words.change("coherence", Some(Target::Trace), &seen, share)
    }

    #[test]
    fn one_plain_sentence_says_what_became_of_a_metric() {
        let fell = change(5600, false, 0.01);
        assert_eq!(
            fell.sentence,
            "coherence fell by 0.0400 from the mean of the last 3 nights, more than chance"
        );
        assert!(fell.worse && fell.verdict == Verdict::Fell);
        let runs: Vec<&str> = fell.trend.iter().map(|night| night.run.as_str()).collect();
        assert_eq!(runs, ["a", "b", "c", "d"]);
        assert_eq!((fell.now.mean, fell.before.mean), (Some(0.56), Some(0.6)));

        let small = change(5600, false, 0.05);
        assert!(!small.worse && small.sentence.ends_with(", but by less than 0.05"));
        let rose = change(6400, false, 0.01);
        assert!(!rose.worse && rose.verdict == Verdict::Rose);
        assert!(change(6400, true, 0.01).worse);
        let same = change(6001, false, 0.01);
        assert_eq!(
            same.sentence,
            "coherence: no change of the mean beyond chance from that of the last 3 nights"
        );
    }
}
