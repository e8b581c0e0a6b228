//! What a run says about itself at the end: counts, distributions, worst sessions, gates.

use serde::{Deserialize, Serialize};

use crate::metric::{Gate, MetricInfo, Rules};

/// Scores have 4 decimals, so counting each value makes every quantile exact at constant memory.
const STEPS: usize = 10_000;

/// The distribution of one metric's stored scores: whole numbers alone, so that distributions of parts of the scores add
/// up to that of all, in any order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Distribution {
    counts: Vec<u64>,
    failed: u64,
    passed: u64,
}

/// A distribution in a file: of the steps, those with scores.
#[derive(Serialize, Deserialize)]
struct Stored {
    scores: Vec<(usize, u64)>,
    failed: u64,
    passed: u64,
}

impl From<Distribution> for Stored {
    fn from(of: Distribution) -> Self {
        let counts = of.counts.into_iter().enumerate();
        Self {
            scores: counts.filter(|(_, count)| *count > 0).collect(),
            failed: of.failed,
            passed: of.passed,
        }
    }
}

impl From<Stored> for Distribution {
    fn from(stored: Stored) -> Self {
        let mut counts = vec![0; STEPS + 1];
        for (step, count) in stored.scores {
            counts[step.min(STEPS)] += count;
        }
        Self {
            counts,
            failed: stored.failed,
            passed: stored.passed,
        }
    }
}

impl Default for Distribution {
    fn default() -> Self {
        Self {
            counts: vec![0; STEPS + 1],
            failed: 0,
            passed: 0,
        }
    }
}

impl Distribution {
    /// Adds a score in [0, 1] with 4 decimals.
    pub fn add(&mut self, score: f64, threshold: f64) {
        // To the nearest: a score of 4 decimals is never far from it.
        let step = (score * STEPS as f64 + 0.5).clamp(0.0, STEPS as f64) as usize;
        self.counts[step] += 1;
        self.passed += u64::from(score >= threshold);
    }

    /// Adds the scores of another one.
    fn merge(&mut self, other: &Self) {
        let counts = self.counts.iter_mut().zip(&other.counts);
        counts.for_each(|(count, more)| *count += more);
        self.failed += other.failed;
        self.passed += other.passed;
    }

    fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds a target whose metric failed.
    pub fn add_failure(&mut self) {
        self.failed += 1;
    }

    /// The mean score; none without scores.
    pub fn mean(&self) -> Option<f64> {
        let counts = self.counts.iter().enumerate();
        let sum: u128 = counts.map(|(step, n)| step as u128 * u128::from(*n)).sum();
        let count = self.count();
        (count > 0).then(|| sum as f64 / STEPS as f64 / count as f64)
    }

    /// The smallest score that at least a share `q` of all scores does not exceed.
    fn quantile(&self, q: f64) -> Option<f64> {
        let rank = ((q * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let step = self.counts.iter().position(|n| {
            seen += n;
            seen >= rank
        })?;
        Some(step as f64 / STEPS as f64)
    }

    /// For the summary and the report.
    pub fn summarise(&self, metric: &MetricInfo, threshold: f64) -> MetricSummary {
        let mut bins = vec![0; 20];
        for (step, count) in self.counts.iter().enumerate() {
            bins[(step / (STEPS / 20)).min(19)] += count;
        }
        MetricSummary {
            name: metric.name.into(),
            level: metric.level.name().into(),
            meaning: metric.meaning.into(),
            count: self.count(),
            failed: self.failed,
            mean: self.mean().map(crate::metric::round4),
            min: self.quantile(0.0),
            p10: self.quantile(0.1),
            median: self.quantile(0.5),
            p90: self.quantile(0.9),
            max: self.quantile(1.0),
            threshold,
            passed: self.passed,
            bins,
        }
    }
}

/// Distributions by metric.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Distributions(Vec<(String, Distribution)>);

impl Distributions {
    /// That of a metric, to add to.
    pub fn of(&mut self, metric: &str) -> &mut Distribution {
        let known = self.0.iter().position(|(name, _)| name == metric);
        let at = known.unwrap_or_else(|| {
            self.0.push((metric.to_owned(), Distribution::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    fn find(&self, metric: &str) -> Option<&Distribution> {
        let found = self.0.iter().find(|(name, _)| name == metric);
        found.map(|(_, distribution)| distribution)
    }

    /// Takes one that is known.
    pub fn insert(&mut self, metric: &str, distribution: Distribution) {
        *self.of(metric) = distribution;
    }

    /// Adds the scores of others, metric by metric.
    pub fn merge(&mut self, others: &Self) {
        for (metric, distribution) in &others.0 {
            self.of(metric).merge(distribution);
        }
    }

    /// Takes those of other metrics.
    pub fn join(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// For the summary and the report, in the order of `metrics`.
    pub fn summaries<'m>(
        &self,
        metrics: impl Iterator<Item = &'m &'static MetricInfo>,
        rules: &Rules,
    ) -> Vec<MetricSummary> {
        let nothing = Distribution::default();
        let summary = |metric: &&'static MetricInfo| {
            let distribution = self.find(metric.name).unwrap_or(&nothing);
            distribution.summarise(metric, rules.threshold(metric.name))
        };
        metrics.map(summary).collect()
    }

    /// What came of the gates of a run.
    pub fn gates(&self, rules: &Rules) -> Vec<GateResult> {
        let result = |gate: &Gate| {
            let value = self.find(&gate.metric).and_then(Distribution::mean);
            GateResult {
                metric: gate.metric.clone(),
                minimum: gate.minimum,
                value: value.map(crate::metric::round4),
                passed: value.is_some_and(|v| v >= gate.minimum),
            }
        };
        rules.gates.iter().map(result).collect()
    }
}

/// One metric of a run.
#[derive(Clone, Debug, Serialize)]
pub struct MetricSummary {
    /// Registered name.
    pub name: String,
    /// `trace` or `session`.
    pub level: String,
    /// One line for a reader.
    pub meaning: String,
    /// Targets with a score.
    pub count: u64,
    /// Targets without one, because it failed.
    pub failed: u64,
    /// Mean, 4 decimals.
    pub mean: Option<f64>,
    /// Smallest score.
    pub min: Option<f64>,
    /// A tenth of scores is at most this.
    pub p10: Option<f64>,
    /// Half of scores is at most this.
    pub median: Option<f64>,
    /// Nine tenths of scores are at most this.
    pub p90: Option<f64>,
    /// Largest score.
    pub max: Option<f64>,
    /// The threshold in force.
    pub threshold: f64,
    /// Scores at or above it.
    pub passed: u64,
    /// Counts in twentieths of [0, 1]; the last one is closed.
    pub bins: Vec<u64>,
}

/// A gate after the run.
#[derive(Clone, Debug, Serialize)]
pub struct GateResult {
    /// Registered name.
    pub metric: String,
    /// Least mean asked for.
    pub minimum: f64,
    /// The mean; null if nothing was scored, which fails the gate.
    pub value: Option<f64>,
    /// Whether it was reached.
    pub passed: bool,
}

/// A session at the bottom of the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstSession {
    /// Its id.
    pub session_id: String,
    /// Its project, if the traces name one.
    pub project_id: Option<String>,
    /// Its reliability.
    pub agent_reliability: Option<f64>,
    /// Its consistency.
    pub agent_consistency: Option<f64>,
    /// How many traces it has.
    pub traces: u64,
    /// Traces whose step risk exceeds 0.5.
    pub flagged_traces: Vec<String>,
    /// What weighs most in its reliability; none where that was not computed, or rests on nothing.
    pub worst_step: Option<WorstStep>,
}

impl WorstSession {
    /// How many sessions a summary shows.
    pub const SHOWN: usize = 10;

    /// The worse first: by reliability, consistency, id and project.
    pub fn order(&self, other: &Self) -> std::cmp::Ordering {
        let badness = |s: &Self| {
            (
                s.agent_reliability.unwrap_or(2.0),
                s.agent_consistency.unwrap_or(2.0),
            )
        };
        let ((ra, ca), (rb, cb)) = (badness(self), badness(other));
        ra.total_cmp(&rb)
            .then(ca.total_cmp(&cb))
            .then_with(|| self.session_id.cmp(&other.session_id))
            .then_with(|| self.project_id.cmp(&other.project_id))
    }
}

/// The riskiest trace of a session, and the signal that makes it so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstStep {
    /// The trace.
    pub trace_id: String,
    /// The signal.
    pub signal: String,
    /// Its value, from 0 to 1, 4 decimals.
    pub value: f64,
}

/// Scores of a metric that failed for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureSummary {
    /// The metric.
    pub metric: String,
    /// How many scores.
    pub count: u64,
    /// The reason of the first of them.
    pub reason: String,
}

/// Rows set aside for one reason.
#[derive(Clone, Debug, Serialize)]
pub struct QuarantineSummary {
    /// The code.
    pub code: String,
    /// How many rows.
    pub rows: u64,
    /// The first of them, in words.
    pub example: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_bins_are_exact() {
        let mut distribution = Distribution::default();
        for score in [0.0, 0.05, 0.5, 0.9999, 1.0] {
            distribution.add(score, 0.5);
        }
        let metric = crate::metric::find("coherence").unwrap();
        let summary = distribution.summarise(metric, 0.5);
        assert_eq!(
            (summary.min, summary.median, summary.max),
            (Some(0.0), Some(0.5), Some(1.0))
        );
        assert_eq!(
            (summary.p10, summary.p90, summary.passed),
            (Some(0.0), Some(1.0), 3)
        );
        assert_eq!(
            (
                summary.bins[0],
                summary.bins[1],
                summary.bins[10],
                summary.bins[19]
            ),
            (1, 1, 1, 2)
        );
        let stored = serde_json::to_string(&distribution).unwrap();
        let read: Distribution = serde_json::from_str(&stored).unwrap();
        assert_eq!(read, distribution);
        let mut twice = read.clone();
        twice.merge(&distribution);
        assert_eq!(twice.mean(), distribution.mean());
        let twice = twice.summarise(metric, 0.5);
        assert_eq!(
            (twice.count, twice.passed, twice.median),
            (10, 6, Some(0.5))
        );
        let empty = Distribution::default().summarise(metric, 0.5);
        assert_eq!((empty.mean, empty.median, empty.count), (None, None, 0));
    }
}
