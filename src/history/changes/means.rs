//! Means of a night and of the nights before it: sums by metric, by slice, and of faults.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::read::{Reading, list};
use super::{BINS, MetricChange, Seen, SliceChange, Verdict, Words};
use crate::history::chance::{STEPS, Sums};
use crate::history::figures::Target;
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{cell, flag, flags, text, whole_number, whole_numbers};
use crate::history::views::{
    AlikeSessions, MetricKey, each_batch, each_sum, metric_key, models_of, sums_of,
};

/// Values of a slice that are told apart: those with most traces.
const MOST_VALUES: usize = 20;

/// Columns of traces that slices are made by, where tables have them.
const SLICES: [&str; 4] = ["name", "environment", "release", "model"];

impl Reading<'_> {
    /// Sums and spreads by metric.
    pub(super) fn seen(&self) -> Result<BTreeMap<MetricKey, Seen>, HistoryError> {
        let mut found: BTreeMap<MetricKey, Seen> = BTreeMap::new();
        let scored = "_sample WHERE status = 'SUCCESS' AND steps IS NOT NULL";
        let sums = self
            .asked
            .rows(&sums_of("run_no, target_type, metric", "steps", scored))?;
        each_sum(
            &sums,
            ["target_type", "metric"],
            |[target, metric], alike| {
                self.add(found.entry(metric_key(target, metric)).or_default(), alike);
            },
        )?;
        let now = list(self.now.iter());
        let spread = self.asked.rows(&format!(
            "SELECT run_no IN ({now}) AS is_now, target_type, metric, least(steps / 500, {}) AS bin, passed, count(*) AS n \
             FROM _sample WHERE status = 'SUCCESS' AND steps IS NOT NULL \
             GROUP BY run_no IN ({now}), target_type, metric, least(steps / 500, {0}), passed",
            BINS - 1
        ))?;
        each_batch(&spread, |batch| {
            let (targets, metrics) = (text(batch, "target_type")?, text(batch, "metric")?);
            let (is_now, passed) = (flags(batch, "is_now")?, flags(batch, "passed")?);
            let (bins, counts) = (whole_numbers(batch, "bin")?, whole_numbers(batch, "n")?);
            for row in 0..batch.num_rows() {
                let key = metric_key(cell(&targets, row), cell(&metrics, row));
                let Some(seen) = found.get_mut(&key) else {
                    continue;
                };
                let side = usize::from(flag(&is_now, row) != Some(true));
                let count = whole_number(&counts, row)
                    .unwrap_or_default()
                    .unsigned_abs();
                if flag(&passed, row) == Some(true) {
                    seen.passed[side] += count;
                }
                seen.bins[side].resize(BINS, 0);
                let bin = whole_number(&bins, row).and_then(|bin| usize::try_from(bin).ok());
                if let Some(bar) = bin.and_then(|bin| seen.bins[side].get_mut(bin)) {
                    *bar += count;
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Adds sessions that are alike to what is known.
    fn add(&self, seen: &mut Seen, alike: AlikeSessions) {
        seen.before.resize(self.before.len(), Sums::default());
        let night = self.before.iter().position(|before| *before == alike.run);
        let side = match night {
            Some(night) => seen.before.get_mut(night),
            None => Some(&mut seen.now),
        };
        if let Some(side) = side {
            side.add_sessions(alike.sessions, alike.count, alike.sum);
        }
    }

    /// Metrics whose scores are of several models, with their names.
    pub(super) fn mixed_models(&self) -> Result<HashMap<String, String>, HistoryError> {
        let models = models_of(&self.asked, "_sample")?.into_iter();
        let mixed = models.filter(|(_, models)| models.len() > 1);
        let named = mixed.map(|(metric, models)| {
            let models: Vec<String> = models.into_keys().collect();
            (metric, models.join(", "))
        });
        Ok(named.collect())
    }

    /// Traces with an empty text: without an output, where that was looked at, or else with an empty input or output, as
    /// coherence sees them.
    pub(super) fn empty<'m>(
        &self,
        metrics: impl Iterator<Item = &'m str>,
    ) -> Result<Option<Seen>, HistoryError> {
        let metrics: BTreeSet<&str> = metrics.collect();
        let empty = match () {
            () if metrics.contains("empty_output") => "metric = 'empty_output'",
            () if metrics.contains("coherence") => "metric = 'coherence'",
            () => return Ok(None),
        };
        let is_empty = match metrics.contains("empty_output") {
            true => "steps = 0",
            false => "passed IS NULL",
        };
        let rows = self.asked.rows(&sums_of(
            "run_no",
            &format!("CASE WHEN {is_empty} THEN {STEPS} ELSE 0 END"),
            &format!("_sample WHERE target_type = 'trace' AND status = 'SUCCESS' AND {empty}"),
        ))?;
        let mut seen = Seen::default();
        each_sum(&rows, [], |[], alike| self.add(&mut seen, alike))?;
        Ok(Some(seen))
    }

    /// Means of traces by what their rows say of them.
    pub(super) fn slices(
        &self,
        words: &Words<'_>,
        mixed: &HashMap<String, String>,
    ) -> Result<Vec<SliceChange>, HistoryError> {
        let columns = self.asked.columns("_united_traces")?;
        let mut changes = Vec::new();
        for by in SLICES
            .into_iter()
            .filter(|by| columns.iter().any(|column| column == by))
        {
            let of_traces = format!(
                "(SELECT s.run_no, s.metric, CAST(t.\"{by}\" AS VARCHAR) AS slice, s._unit, s.steps \
                 FROM _sample s JOIN (SELECT * FROM _united_traces WHERE run_no IN ({})) t \
                 ON s.run_no = t.run_no AND s.target_id = t.trace_id \
                 WHERE s.target_type = 'trace' AND s.status = 'SUCCESS' AND s.steps IS NOT NULL)",
                list(self.now.iter().chain(&self.before))
            );
            let query = sums_of("run_no, metric, slice", "steps", &of_traces);
            let mut found: BTreeMap<(String, Option<String>), Seen> = BTreeMap::new();
            each_sum(
                &self.asked.rows(&query)?,
                ["metric", "slice"],
                |[metric, value], alike| {
                    let key = (
                        metric.unwrap_or_default().to_owned(),
                        value.map(str::to_owned),
                    );
                    self.add(found.entry(key).or_default(), alike);
                },
            )?;
            let mut sizes: BTreeMap<&Option<String>, u64> = BTreeMap::new();
            for ((_, value), seen) in &found {
                *sizes.entry(value).or_default() += seen.now.count;
            }
            // One value for all is no slice.
            if sizes.len() < 2 {
                continue;
            }
            let mut shown: Vec<_> = sizes.into_iter().collect();
            shown.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
            shown.truncate(MOST_VALUES);
            for ((metric, value), seen) in &found {
                if shown.iter().any(|(shown, _)| *shown == value) && !mixed.contains_key(metric) {
                    let mut change = words.change(metric, Some(Target::Trace), seen, false);
                    let of = value.as_deref().unwrap_or("none");
                    change.sentence = format!("{by} {of}: {}", change.sentence);
                    changes.push(SliceChange {
                        by: by.to_owned(),
                        value: value.clone(),
                        change,
                    });
                }
            }
        }
        Ok(changes)
    }
}

/// A metric of several models.
pub(super) fn not_comparable(change: MetricChange, models: &str) -> MetricChange {
    MetricChange {
        verdict: Verdict::NotComparable,
        difference: None,
        interval: None,
        worse: false,
        sentence: format!(
            "{}: scores are of several models, whose numbers can't be compared: {models}",
            change.metric
        ),
        ..change
    }
}
