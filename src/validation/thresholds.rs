//! Thresholds that fit the scores of a warehouse.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use super::ValidationError;
use super::labels::SessionName;
use super::sessions::{Figure, LabelledSessions};
use crate::history::stored_table::{
    cell, for_each_batch, number, numbers_if_there, text, text_if_there,
};
use crate::job::FittingThreshold;

/// The scores of runs, by metric.
#[derive(Clone, Debug, Default)]
pub(super) struct Scores {
    by_metric: BTreeMap<String, Vec<f64>>,
    sessions: u64,
}

impl Scores {
    /// Adds those of a run; of a slice, those of sessions with this value of a column.
    pub fn read(
        &mut self,
        run: &Path,
        slice: Option<&(String, String)>,
    ) -> Result<(), ValidationError> {
        let mut chosen: HashSet<SessionName> = HashSet::new();
        if run.join("sessions").is_dir() {
            let mut columns = vec!["session_id", "project_id"];
            columns.extend(slice.map(|(column, _)| column.as_str()));
            for_each_batch(run, "sessions", &columns, |batch| {
                let Some((column, value)) = slice else {
                    self.sessions += batch.num_rows() as u64;
                    return Ok(());
                };
                let ids = text(batch, "session_id")?;
                let projects = text_if_there(batch, "project_id")?;
                let values = text_if_there(batch, column)?;
                for row in 0..batch.num_rows() {
                    if cell(&values, row) == Some(value.as_str()) {
                        self.sessions += 1;
                        let project = cell(&projects, row).map(str::to_owned);
                        chosen.insert((project, ids.value(row).to_owned()));
                    }
                }
                Ok(())
            })?;
        }
        if let Some((column, value)) = slice
            && chosen.is_empty()
        {
            return Err(ValidationError::Refused(format!(
                "--slice: no session of `{}` has `{value}` in `{column}`",
                run.display()
            )));
        }
        let columns = ["metric", "status", "score", "session_id", "project_id"];
        for_each_batch(run, "scores", &columns, |batch| {
            let (metrics, statuses) = (text(batch, "metric")?, text(batch, "status")?);
            let scores = numbers_if_there(batch, "score")?;
            let ids = text_if_there(batch, "session_id")?;
            let projects = text_if_there(batch, "project_id")?;
            for row in 0..batch.num_rows() {
                let (Some(metric), Some("SUCCESS")) = (cell(&metrics, row), cell(&statuses, row))
                else {
                    continue;
                };
                let Some(score) = number(&scores, row).filter(|s| (0.0..=1.0).contains(s)) else {
                    continue;
                };
                if slice.is_some() {
                    let project = cell(&projects, row).map(str::to_owned);
                    let session = cell(&ids, row).unwrap_or_default().to_owned();
                    if !chosen.contains(&(project, session)) {
                        continue;
                    }
                }
                let known = crate::metric::find(metric).is_some_and(|metric| metric.has_scores());
                if known {
                    let values = self.by_metric.entry(metric.to_owned()).or_default();
                    values.push(score);
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    pub fn by_metric(&self) -> &BTreeMap<String, Vec<f64>> {
        &self.by_metric
    }

    /// The sessions that scores are of.
    pub fn sessions(&self) -> u64 {
        self.sessions
    }
}

/// The largest threshold with at most this share of scores below it.
pub(super) fn by_percentile(scores: &[f64], share: f64) -> FittingThreshold {
    let mut sorted = scores.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let allowed = (share * sorted.len() as f64).floor() as usize;
    let threshold = sorted
        .get(allowed)
        .or(sorted.last())
        .copied()
        .unwrap_or_default();
    let below = sorted.partition_point(|score| *score < threshold);
    FittingThreshold {
        threshold,
        found_by: format!("{below} of {} scores are below it", sorted.len()),
        below: rounded(below as f64 / sorted.len().max(1) as f64),
    }
}

fn rounded(value: f64) -> f64 {
    (1e4 * value).round() / 1e4
}

/// How many parts sessions are held out in.
const PARTS: u32 = 5;

/// The threshold below which bad sessions are found best (F1); none where none finds any.
pub(super) fn by_f1(figure: &Figure, sessions: &LabelledSessions) -> Option<FittingThreshold> {
    let scored = figure
        .values
        .iter()
        .zip(&sessions.is_bad)
        .zip(&sessions.cluster_of);
    let scored: Vec<Scored> = scored
        .filter(|((score, _), _)| !score.is_nan())
        .map(|((score, is_bad), cluster)| Scored {
            score: *score,
            is_bad: *is_bad,
            part: cluster % PARTS,
        })
        .collect();
    let (threshold, f1) = best(scored.iter())?;
    let mut held = Counts::default();
    for part in 0..PARTS {
        let others = scored.iter().filter(|of| of.part != part);
        let Some((threshold, _)) = best(others) else {
            continue;
        };
        for of in scored.iter().filter(|of| of.part == part) {
            held.add(of.score < threshold, of.is_bad);
        }
    }
    let below = scored.iter().filter(|of| of.score < threshold).count();
    let of_sessions = match figure.name.ends_with(", lowest") {
        true => ", of the lowest score of each session",
        false => "",
    };
    Some(FittingThreshold {
        threshold,
        found_by: format!(
            "best F1 on labels{of_sessions}: {f1:.2}, and {:.2} on sessions that were held out",
            held.f1()
        ),
        below: rounded(below as f64 / scored.len() as f64),
    })
}

struct Scored {
    score: f64,
    is_bad: bool,
    part: u32,
}

#[derive(Default)]
struct Counts {
    found: u64,
    missed: u64,
    wrong: u64,
}

impl Counts {
    fn add(&mut self, called_bad: bool, is_bad: bool) {
        match (called_bad, is_bad) {
            (true, true) => self.found += 1,
            (true, false) => self.wrong += 1,
            (false, true) => self.missed += 1,
            (false, false) => {}
        }
    }

    fn f1(&self) -> f64 {
        let all = 2 * self.found + self.missed + self.wrong;
        if all == 0 {
            0.0
        } else {
            (2 * self.found) as f64 / all as f64
        }
    }
}

/// The threshold with the best F1, the lowest of equal ones.
fn best<'s>(scored: impl Iterator<Item = &'s Scored>) -> Option<(f64, f64)> {
    let mut sorted: Vec<&Scored> = scored.collect();
    sorted.sort_unstable_by(|a, b| a.score.total_cmp(&b.score));
    let all_bad = sorted.iter().filter(|of| of.is_bad).count() as u64;
    let mut counts = Counts {
        missed: all_bad,
        ..Counts::default()
    };
    let mut best: Option<(f64, f64)> = None;
    for (at, of) in sorted.iter().enumerate() {
        match of.is_bad {
            true => (counts.found, counts.missed) = (counts.found + 1, counts.missed - 1),
            false => counts.wrong += 1,
        }
        // The next score is the lowest that passes.
        let next = sorted.get(at + 1).map(|next| next.score);
        let Some(next) = next.filter(|next| *next > of.score) else {
            continue;
        };
        let f1 = counts.f1();
        if f1 > 0.0 && best.is_none_or(|(_, best)| f1 > best) {
            best = Some((next, f1));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_leaves_at_most_its_share_below() {
        let scores: Vec<f64> = (0..100).map(|n| f64::from(n) / 100.0).collect();
        let found = by_percentile(&scores, 0.05);
        assert_eq!((found.threshold, found.below), (0.05, 0.05));
        // Of equal scores none is below.
        let found = by_percentile(&[0.5; 10], 0.2);
        assert_eq!((found.threshold, found.below), (0.5, 0.0));
        let found = by_percentile(&[0.1, 0.1, 0.1, 0.9], 0.5);
        assert_eq!((found.threshold, found.below), (0.1, 0.0));
        assert_eq!(by_percentile(&[], 0.5).threshold, 0.0);
    }

    #[test]
    fn the_best_f1_parts_the_kinds() {
        let scored = |score, is_bad| Scored {
            score,
            is_bad,
            part: 0,
        };
        let all = [
            scored(0.1, true),
            scored(0.2, true),
            scored(0.3, false),
            scored(0.4, true),
            scored(0.9, false),
            scored(0.95, false),
        ];
        // Below 0.9: three found, one wrong, none missed.
        assert_eq!(best(all.iter()), Some((0.9, 6.0 / 7.0)));
        assert_eq!(best([scored(0.5, true), scored(0.5, false)].iter()), None);
    }
}
