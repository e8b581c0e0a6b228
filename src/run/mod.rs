//! Runs: from a request to a finished run directory.

mod aggregate;
mod aggregated_traces;
mod begun;
mod columns;
mod conversations;
mod directory;
mod embed;
mod engine;
mod error;
mod finished;
mod judging;
mod manifest;
mod passes;
mod quarantine_rows;
mod request_record;
mod score;
mod score_rows;
mod session_rows;
mod signals_file;
mod summary;
mod table_folder;
mod table_writer;
mod targets;
mod trace_rows;
mod worst;

pub use aggregate::{AggregateRequest, aggregate};
pub use begun::{Announced, Begun, BegunRun, BegunStatus, begun_runs};
pub use conversations::from_tables::{TurnsRequest, judge_turns};
pub use conversations::planned::{PlannedTables, plan_turns};
pub use conversations::tabled_sessions::TableCounts;
pub use conversations::{ConversationRequest, ConversationSummary};
pub use directory::{PartialFile, RunDirectory, delete_run};
pub use embed::{EmbedRequest, EmbedSummary, embed};
pub use engine::{CacheChoice, EngineRequest, Gpu, Target, load_service};
pub use error::RunError;
pub use finished::comparison_tables::{comparison_folder, write_comparison};
pub use finished::edit_scores::{Edit, Edited, edit_scores};
pub use finished::explanation::{Explanation, explain};
pub use finished::history::{
    HistoryError, RunStatus, ScoreQuery, StoredRun, find_runs, find_runs_below, read_run,
    read_scores, read_told, stored_metrics,
};
pub use finished::import_scores::{Imported, ScoresError, import_scores};
pub use finished::judged_comparison::{JudgedComparison, compare_judged};
pub use finished::judged_runs::{ConversationFigures, JudgedRun, holds_conversations, read_judged};
pub use finished::keep_scores::keep_scores;
pub use finished::lineage::{LeftOut, RunMark, leave_out_retried};
pub use finished::manual_rows::RowError;
pub use finished::retry::{Retry, RetryError};
pub use finished::run_record::RunRecord;
pub use finished::verify::{FaultyFile, FileFault, VerifiedRun, check_if_of_run, verify_run};
pub use judging::cap_use::CapUse;
pub use judging::metric_draft::draft_metric;
pub use judging::plan::{PlanSummary, PlannedMetric, plan};
pub use judging::prompt_preview::{PreviewedPrompt, PreviewedTrace, preview_prompts};
pub use judging::request::{BatchRules, JudgeRequest};
pub use judging::summary::{JudgeSummary, JudgedMetricSummary};
pub use request_record::{RecordedFile, RequestRecord, TablesRecord};
pub use score::{Progress, ScoreRequest, score};
pub use summary::{
    Distribution, FailureSummary, Gate, GateResult, MetricSummary, QuarantineSummary, Summary,
    WorstSession, WorstStep,
};
pub use targets::any_match;
pub use worst::ShownSession;

/// What decides a score beside the traces and the model.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Metrics asked for, by registered name.
    pub metrics: Vec<String>,
    /// Thresholds given, by metric.
    pub thresholds: std::collections::BTreeMap<String, f64>,
    /// Traces that loop detection looks back at.
    pub window: usize,
    /// Signal weights.
    pub weights: crate::metric::SignalWeights,
    /// What a JSON cell's text is.
    pub text_mode: crate::text::TextMode,
    /// A session without evaluable trace scores 1 (as in PandaProbe) or null.
    pub null_without_evidence: bool,
    /// Minimum means that the run must reach.
    pub gates: Vec<Gate>,
}

impl Rules {
    /// Whether a metric was asked for.
    pub fn wants(&self, metric: &str) -> bool {
        self.metrics.iter().any(|m| m == metric)
    }

    /// Whether any session metric was asked for that folds trace signals.
    pub fn wants_sessions(&self) -> bool {
        self.metrics
            .iter()
            .filter_map(|m| crate::metric::find(m))
            .any(|m| m.method == crate::metric::Method::Aggregate)
    }

    /// Whether a metric is computed: asked for, or a signal of a session metric that the local model can give.
    pub fn computes(&self, metric: &str) -> bool {
        use crate::metric::Method;
        let local = crate::metric::find(metric).is_some_and(|m| m.method == Method::Embedding);
        self.wants(metric) || (local && self.wants_sessions())
    }

    /// The threshold in force for a metric.
    pub fn threshold(&self, metric: &str) -> f64 {
        let given = self.thresholds.get(metric).copied();
        match metric {
            "loop_detection" => crate::metric::loop_detection::threshold(given),
            _ => given.unwrap_or_else(|| {
                crate::metric::find(metric)
                    .map_or(crate::metric::DEFAULT_THRESHOLD, |m| m.default_threshold)
            }),
        }
    }
}
