//! What came of a bucket, as numbers that add up: those of all buckets are those of the run, in whatever order they come.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::output::{Distributions, FailureSummary, WorstSession, WorstStep};

/// What came of the traces and sessions of a bucket, or of several.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct BucketCounts {
    pub traces: TraceCounts,
    pub sessions: SessionCounts,
}

impl BucketCounts {
    /// Adds those of another bucket.
    pub fn merge(&mut self, other: Self) {
        self.traces.merge(other.traces);
        self.sessions.merge(other.sessions);
    }
}

/// Counts that the summary needs.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct TraceCounts {
    pub traces: u64,
    pub without_session: u64,
    pub failed_signals: u64,
    pub with_given_signals: u64,
    pub pending_signals: u64,
    /// Traces without an expected text, where outputs are compared with one.
    pub without_expected: u64,
    /// Traces without spans, where metrics look at them.
    pub without_spans: u64,
    pub distributions: Distributions,
    /// How often a metric failed with a code, and the reason of the first time.
    failures: Vec<FailureCount>,
}

/// How often a metric failed with a code.
#[derive(Debug, Serialize, Deserialize)]
struct FailureCount {
    metric: String,
    code: String,
    count: u64,
    /// The reason of the first time.
    reason: String,
}

impl TraceCounts {
    /// Most codes of failures that are told apart.
    const MOST_CODES: usize = 100;

    pub fn fail(&mut self, metric: &str, reason: &str) {
        self.add_failures(metric, 1, reason);
    }

    fn add_failures(&mut self, metric: &str, count: u64, reason: &str) {
        // Reasons of judges begin with a code: `timeout: …`.
        let code = reason.split(':').next().unwrap_or_default();
        let mut known = self.failures.iter_mut();
        if let Some(known) = known.find(|f| f.metric == metric && f.code == code) {
            known.count += count;
        } else if self.failures.len() < Self::MOST_CODES {
            self.failures.push(FailureCount {
                metric: metric.to_owned(),
                code: code.to_owned(),
                count,
                reason: reason.to_owned(),
            });
        }
    }

    fn merge(&mut self, other: Self) {
        self.traces += other.traces;
        self.without_session += other.without_session;
        self.failed_signals += other.failed_signals;
        self.with_given_signals += other.with_given_signals;
        self.pending_signals += other.pending_signals;
        self.without_expected += other.without_expected;
        self.without_spans += other.without_spans;
        self.distributions.merge(&other.distributions);
        for failure in other.failures {
            self.add_failures(&failure.metric, failure.count, &failure.reason);
        }
    }

    /// Why scores failed, the most frequent reasons first.
    pub fn failures(&self) -> Vec<FailureSummary> {
        let mut failures: Vec<&FailureCount> = self.failures.iter().collect();
        failures.sort_by_key(|f| (std::cmp::Reverse(f.count), &f.metric, &f.code));
        let summary = |failure: &FailureCount| FailureSummary {
            metric: failure.metric.clone(),
            count: failure.count,
            reason: failure.reason.clone(),
        };
        failures.into_iter().map(summary).collect()
    }
}

/// What the summary needs of the sessions.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in crate::run) struct SessionCounts {
    pub sessions: u64,
    pub distributions: Distributions,
    pub without_evidence: BTreeMap<String, u64>,
    /// The worst first.
    worst: Vec<WorstSession>,
}

impl SessionCounts {
    /// Counts a session, and takes it into the list of the worst, if it is one of them; then `step` finds its
    /// worst step.
    pub fn count(&mut self, mut session: WorstSession, step: impl FnOnce() -> Option<WorstStep>) {
        self.sessions += 1;
        if session.agent_reliability.is_none() && session.agent_consistency.is_none() {
            return;
        }
        let at = self
            .worst
            .partition_point(|other| other.order(&session).is_lt());
        if at < WorstSession::SHOWN {
            session.worst_step = step();
            self.worst.insert(at, session);
            self.worst.truncate(WorstSession::SHOWN);
        }
    }

    fn merge(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.distributions.merge(&other.distributions);
        for (metric, count) in other.without_evidence {
            *self.without_evidence.entry(metric).or_default() += count;
        }
        self.worst.extend(other.worst);
        self.worst.sort_by(WorstSession::order);
        self.worst.truncate(WorstSession::SHOWN);
    }

    /// The worst sessions, the worst first.
    pub fn worst_sessions(&self) -> Vec<WorstSession> {
        self.worst.clone()
    }
}
