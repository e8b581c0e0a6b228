//! Means of a night and of the nights before it: sums by metric, by slice, and of faults.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::read::{Reading, list};
use super::{BINS, MetricChange, Seen, SliceChange, Verdict, Words};
use crate::history::chance::{STEPS, Sums};
use crate::history::figures::Target;
use crate::history::model_labels::ModelLabels;
use crate::history::stored_run::HistoryError;
use crate::history::stored_table::{cell, flag, flags, text, whole_number, whole_numbers};
use crate::history::views::{SumColumns, each_batch, target};

/// Values of a slice that are told apart: those with most traces.
const MOST_VALUES: usize = 20;

/// Columns of traces that slices are made by, where tables have them.
const SLICES: [&str; 4] = ["name", "environment", "release", "model"];

impl Reading<'_> {
    /// Sums and spreads by metric.
    pub(super) fn seen(&self) -> Result<BTreeMap<(Target, String), Seen>, HistoryError> {
        let mut found: BTreeMap<(Target, String), Seen> = BTreeMap::new();
        let sums = self.asked.rows(
            "SELECT run_no, target_type, metric, n, s, count(*) AS sessions FROM \
             (SELECT run_no, target_type, metric, _unit, count(*) AS n, sum(steps) AS s FROM _sample \
              WHERE status = 'SUCCESS' AND steps IS NOT NULL GROUP BY run_no, target_type, metric, _unit) \
             GROUP BY run_no, target_type, metric, n, s",
        )?;
        each_batch(&sums, |batch| {
            let (targets, metrics) = (text(batch, "target_type")?, text(batch, "metric")?);
            let sums = SumColumns::of(batch)?;
            for row in 0..batch.num_rows() {
                let metric = cell(&metrics, row).unwrap_or_default().to_owned();
                let seen = found
                    .entry((target(cell(&targets, row)), metric))
                    .or_default();
                self.add(seen, &sums, row);
            }
            Ok(())
        })?;
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
                let metric = cell(&metrics, row).unwrap_or_default().to_owned();
                let Some(seen) = found.get_mut(&(target(cell(&targets, row)), metric)) else {
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

    /// Adds the sums of a row to what is known.
    fn add(&self, seen: &mut Seen, sums: &SumColumns, row: usize) {
        seen.before.resize(self.before.len(), Sums::default());
        let Some((run, sessions, count, sum)) = sums.row(row) else {
            return;
        };
        let night = self.before.iter().position(|before| *before == run);
        let side = match night {
            Some(night) => seen.before.get_mut(night),
            None => Some(&mut seen.now),
        };
        if let Some(side) = side {
            side.add_sessions(sessions, count, sum);
        }
    }

    /// Metrics whose scores are of several models, with their names.
    pub(super) fn mixed_models(&self) -> Result<HashMap<String, String>, HistoryError> {
        let rows = self.asked.rows(
            "SELECT DISTINCT metric, CAST(model AS VARCHAR) AS model, CAST(precision AS VARCHAR) AS precision, \
             CAST(text_mode AS VARCHAR) AS text_mode FROM _sample WHERE model IS NOT NULL AND status = 'SUCCESS'",
        )?;
        let mut models: HashMap<String, BTreeSet<String>> = HashMap::new();
        each_batch(&rows, |batch| {
            let metrics = text(batch, "metric")?;
            let mut labels = ModelLabels::of(batch)?;
            for row in 0..batch.num_rows() {
                if let (Some(metric), Some(label)) = (cell(&metrics, row), labels.row(row)) {
                    let known = models.entry(metric.to_owned()).or_default();
                    known.insert(label.to_string());
                }
            }
            Ok(())
        })?;
        let mixed = models.into_iter().filter(|(_, models)| models.len() > 1);
        let named = mixed.map(|(metric, models)| {
            let models: Vec<String> = models.into_iter().collect();
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
        let rows = self.asked.rows(&format!(
            "SELECT run_no, n, s, count(*) AS sessions FROM (SELECT run_no, _unit, count(*) AS n, \
             sum(CASE WHEN {is_empty} THEN {STEPS} ELSE 0 END) AS s FROM _sample \
             WHERE target_type = 'trace' AND status = 'SUCCESS' AND {empty} GROUP BY run_no, _unit) GROUP BY run_no, n, s"
        ))?;
        let mut seen = Seen::default();
        each_batch(&rows, |batch| {
            let sums = SumColumns::of(batch)?;
            (0..batch.num_rows()).for_each(|row| self.add(&mut seen, &sums, row));
            Ok(())
        })?;
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
            let rows = self.asked.rows(&format!(
                "SELECT run_no, metric, slice, n, s, count(*) AS sessions FROM \
                 (SELECT s.run_no, s.metric, CAST(t.\"{by}\" AS VARCHAR) AS slice, s._unit, count(*) AS n, sum(s.steps) AS s \
                  FROM _sample s JOIN (SELECT * FROM _united_traces WHERE run_no IN ({})) t \
                  ON s.run_no = t.run_no AND s.target_id = t.trace_id \
                  WHERE s.target_type = 'trace' AND s.status = 'SUCCESS' AND s.steps IS NOT NULL \
                  GROUP BY s.run_no, s.metric, CAST(t.\"{by}\" AS VARCHAR), s._unit) GROUP BY run_no, metric, slice, n, s",
                list(self.now.iter().chain(&self.before))
            ))?;
            let mut found: BTreeMap<(String, Option<String>), Seen> = BTreeMap::new();
            each_batch(&rows, |batch| {
                let (metrics, values) = (text(batch, "metric")?, text(batch, "slice")?);
                let sums = SumColumns::of(batch)?;
                for row in 0..batch.num_rows() {
                    let metric = cell(&metrics, row).unwrap_or_default().to_owned();
                    let value = cell(&values, row).map(str::to_owned);
                    self.add(found.entry((metric, value)).or_default(), &sums, row);
                }
                Ok(())
            })?;
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
