//! The record of a run of one suite, as JSON (as in Regtrace, with more in it).

mod read;
mod write;

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::cascade::{CaseFigures, EvaluatedCase, MetricSummary, Severity, SuiteFigures};
use super::compare::{Comparison, Side, SideCase};
use super::gates::GateResults;
use super::named::Named;
pub(super) use write::{case_delta_json, evaluation_type, result_json};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunStatus {
    /// It holds to all gates.
    Passed,
    /// A gate failed.
    Failed,
    /// It broke down.
    Errored,
}

impl RunStatus {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Passed, Self::Failed, Self::Errored];

    /// The name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Errored => "errored",
        }
    }
}

/// Who started a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A person.
    Cli,
    /// A build system.
    Ci,
    /// A change of a file; only the tool has such runs.
    Watch,
}

impl Trigger {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Cli, Self::Ci, Self::Watch];

    /// The name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cli => "cli",
            Self::Ci => "ci",
            Self::Watch => "watch",
        }
    }
}

/// The judge of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgeName {
    /// As in `anthropic`.
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
}

/// What is known of a run before its cases are evaluated.
#[derive(Clone, Debug, PartialEq)]
pub struct RunHead {
    /// `run_YYYYMMDD_` and 6 letters or digits.
    pub run_id: String,
    /// When it began.
    pub timestamp: DateTime<Utc>,
    /// How it ended; decided after the gates.
    pub status: RunStatus,
    /// Who started it.
    pub trigger: Trigger,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
    /// The version of the program that wrote it.
    pub tool_version: String,
    /// Who judged, if anybody did.
    pub judge: Option<JudgeName>,
    /// SHA-256 of the configuration, in hex.
    pub config_hash: String,
    /// SHA-256 of the suite's file, in hex.
    pub golden_set_file_hash: String,
    /// The suite.
    pub golden_set_name: String,
    /// The suite's version.
    pub golden_set_version: String,
    /// The branch, cleaned as [`super::clean_branch`] does.
    pub branch: Option<String>,
    /// 0 to 1.
    pub suite_score: f64,
    /// By metric.
    pub metric_summary: Named<MetricSummary>,
}

/// The record of a run of one suite.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    /// All but the cases.
    pub head: RunHead,
    /// In the order of the suite.
    pub cases: Vec<CaseRecord>,
    /// Against which run it was compared, and what came of it.
    pub regression: RegressionRecord,
    /// What the gates say; none in records of the tool.
    pub gates: Option<GateResults>,
}

/// A case of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseRecord {
    /// The case and the results of its metrics.
    pub case: EvaluatedCase,
    /// What it came to.
    pub figures: CaseFigures,
    /// Differences of its metrics to the baseline's; none where the baseline lacks it.
    pub regression_delta: Option<Named<f64>>,
}

/// Against which run a run was compared, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct RegressionRecord {
    /// None where there was no baseline.
    pub baseline_run_id: Option<String>,
    /// The baseline's version of the suite.
    pub baseline_golden_set_version: Option<String>,
    /// What the comparison says.
    pub comparison: Comparison,
}

/// How many cases are of each severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeverityCounts {
    /// All metrics passed.
    pub pass: usize,
    /// A metric failed.
    pub warn: usize,
    /// A metric failed far below its bar.
    pub fail: usize,
}

impl RunRecord {
    /// The record of an evaluated suite; `head` is what was known before, its score and summary are set here. Its
    /// status waits for [`RunRecord::decide`].
    pub fn new(
        head: RunHead,
        cases: Vec<EvaluatedCase>,
        figures: SuiteFigures,
        baseline: Option<&RunHead>,
        comparison: Comparison,
    ) -> Self {
        let deltas = comparison.case_deltas.iter();
        let deltas = deltas.filter(|of| of.delta.is_some());
        let mut deltas: HashMap<String, Named<f64>> = deltas
            .map(|of| (of.id.clone(), of.metrics.clone()))
            .collect();
        let cases = cases.into_iter().zip(figures.cases);
        let cases = cases.map(|(case, figures)| CaseRecord {
            regression_delta: deltas.remove(&case.id),
            case,
            figures,
        });
        let cases = cases.collect();
        Self {
            cases,
            head: RunHead {
                suite_score: figures.suite_score,
                metric_summary: figures.metric_summary,
                ..head
            },
            regression: RegressionRecord {
                baseline_run_id: baseline.map(|of| of.run_id.clone()),
                baseline_golden_set_version: baseline.map(|of| of.golden_set_version.clone()),
                comparison,
            },
            gates: None,
        }
    }

    /// Takes what the gates say; the status follows from it.
    pub fn decide(&mut self, gates: GateResults) {
        self.head.status = match gates.passed {
            true => RunStatus::Passed,
            false => RunStatus::Failed,
        };
        self.gates = Some(gates);
    }

    /// What comparisons look at.
    pub fn side(&self) -> Side {
        let cases = self.cases.iter().map(|of| of.case.side(of.figures.score));
        Side {
            version: self.head.golden_set_version.clone(),
            suite_score: self.head.suite_score,
            metric_scores: summary_scores(&self.head.metric_summary),
            cases: cases.collect(),
        }
    }

    /// How many cases are of each severity.
    pub fn severity_counts(&self) -> SeverityCounts {
        let count = |severity: Severity| {
            let cases = self.cases.iter();
            cases.filter(|of| of.figures.severity == severity).count()
        };
        SeverityCounts {
            pass: count(Severity::Pass),
            warn: count(Severity::Warn),
            fail: count(Severity::Fail),
        }
    }

    /// How many cases passed all their metrics.
    pub fn passed_cases(&self) -> usize {
        self.cases.iter().filter(|of| of.figures.passed).count()
    }
}

impl EvaluatedCase {
    /// What comparisons look at; `score` is that of the case.
    pub fn side(&self, score: f64) -> SideCase {
        let metrics = self.results.iter().map(|(name, of)| (name, of.score));
        SideCase {
            id: self.id.clone(),
            score,
            weight: self.weight,
            metrics: metrics.collect(),
        }
    }
}

impl SuiteFigures {
    /// What comparisons look at of the current run, before it has a record.
    pub fn side(&self, version: &str, cases: &[EvaluatedCase]) -> Side {
        let cases = cases.iter().zip(&self.cases);
        Side {
            version: version.to_owned(),
            suite_score: self.suite_score,
            metric_scores: summary_scores(&self.metric_summary),
            cases: cases.map(|(case, of)| case.side(of.score)).collect(),
        }
    }
}

fn summary_scores(summary: &Named<MetricSummary>) -> Named<f64> {
    let scores = summary.iter().map(|(name, of)| (name, of.score));
    scores.collect()
}

/// An id for a run that begins at this moment: its day in UTC and 6 random letters or digits.
pub fn new_run_id(at: DateTime<Utc>) -> String {
    use std::hash::{BuildHasher, RandomState};
    const SYMBOLS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    // The standard library's hashers begin at random.
    let mut random = RandomState::new().hash_one(at.timestamp_nanos_opt());
    let mut id = format!("run_{}_", at.format("%Y%m%d"));
    for _ in 0..6 {
        let at = usize::try_from(random % 36).unwrap_or_default();
        id.push(char::from(SYMBOLS.get(at).copied().unwrap_or(b'0')));
        random /= 36;
    }
    id
}

#[cfg(test)]
pub(super) mod tests;
