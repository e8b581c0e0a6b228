//! What a run came to, as plain figures: runs fill them in, reports show them.

mod attention;
mod first_text;
mod judging;
mod page;
mod triage;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::conversation::ConversationSummary;
use crate::output::{
    Distributions, FailureSummary, GateResult, MetricSummary, QuarantineSummary, WorstSession,
};
use crate::text::TextMode;

pub use attention::{AttentionPart, AttentionSession, AttentionSummary};
pub use first_text::{FirstText, first_texts};
pub use judging::{CapUse, JudgeSummary, JudgedMetricSummary};
pub use page::{
    ListOrder, ListedSession, MixedScores, PageFacts, PageSessions, RankedScore, ShownCall,
    ShownJudgement, ShownRepeat, ShownSession, ShownText, ShownTrace, ShownVerdict, TextsAt,
    VerdictMetric, VerdictOutcome,
};
pub use triage::TriageSummary;

/// Everything a run says about itself.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// A trace of each of the first sessions, with texts; only where the run has a page. Not written: the page has them.
    #[serde(skip)]
    pub first_texts: Vec<FirstText>,
    /// The spread of each metric, exact, to be added to those of other runs. Not written: `metrics` says what it comes to.
    #[serde(skip)]
    pub distributions: Distributions,
    /// What there is to say of files of other formats, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_notes: Vec<String>,
    /// Files read.
    pub files: u64,
    /// Rows seen: traces + merged duplicates + quarantined + left out. Where conversations come from a table of turns, rows of turns
    /// and cases, and no traces.
    pub rows_read: u64,
    /// Traces scored.
    pub traces: u64,
    /// Sessions scored.
    pub sessions: u64,
    /// Traces that belong to no session.
    pub traces_without_session: u64,
    /// Rows whose session id was the empty string.
    pub empty_session_ids: u64,
    /// What the run continues, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub continued: Option<ContinuedSummary>,
    /// The buckets of its sessions, if they are in several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buckets: Option<BucketSummary>,
    /// The order of its sessions for the morning, where their signals were computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionSummary>,
    /// What a quick model decided, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triage: Option<TriageSummary>,
    /// Rows merged into another row of the same trace id.
    pub merged_duplicates: u64,
    /// Rows set aside.
    pub quarantined: u64,
    /// Rows of traces that are no targets of the run.
    pub rows_left_out: u64,
    /// Files, or parts of them, that could not be read.
    pub unreadable_files: u64,
    /// Scores of traces that failed.
    pub failed_signals: u64,
    /// Given signals that were NaN or infinite, read as missing.
    pub non_finite_signals: u64,
    /// Rows of given signals whose trace id is none of the traces.
    pub unmatched_signals: u64,
    /// Sessions whose scores rest on no trace, by metric.
    pub sessions_without_evidence: BTreeMap<String, u64>,
    /// Whether such sessions have no score; else they have 1.0, as in PandaProbe, and count in means.
    pub evidence_required: bool,
    /// Traces without an expected text, which metrics that compare with one can't score.
    #[serde(skip_serializing_if = "is_zero")]
    pub traces_without_expected: u64,
    /// Traces without spans, where metrics look at them.
    #[serde(skip_serializing_if = "is_zero")]
    pub traces_without_spans: u64,
    /// What is embedded of documents, where texts were embedded and any may be of a document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_mode: Option<TextMode>,
    /// Non-empty texts seen.
    pub texts: u64,
    /// Distinct texts among them.
    pub distinct_texts: u64,
    /// Distinct texts whose vector was kept from an earlier run.
    pub cached_texts: u64,
    /// Texts that the encoder's precision could not hold, encoded at f32 instead.
    #[serde(skip_serializing_if = "is_zero")]
    pub texts_made_again: u64,
    /// Share of texts that did not have to be embedded again.
    pub dedup_share: Option<f64>,
    /// Tokens encoded.
    pub tokens: u64,
    /// Tokens per second of embedding.
    pub tokens_per_second: Option<f64>,
    /// Scores of traces that were not tried: a cap was reached, or nothing may be sent.
    pub pending_signals: u64,
    /// What judges were asked, if any were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeSummary>,
    /// Metrics.
    pub metrics: Vec<MetricSummary>,
    /// The worst sessions, worst first.
    pub worst_sessions: Vec<WorstSession>,
    /// Why scores of traces failed, the most frequent reasons first.
    pub failures: Vec<FailureSummary>,
    /// Reasons of quarantine.
    pub quarantine: Vec<QuarantineSummary>,
    /// Gates.
    pub gates: Vec<GateResult>,
    /// Seconds by stage.
    pub stages: Vec<(String, f64)>,
}

/// The buckets of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BucketSummary {
    /// How many there are, with and without sessions.
    pub count: u32,
    /// Those that were finished when the run was broken off before.
    pub resumed: u64,
    /// Whether their texts are left out of the counts of texts.
    pub texts_left_out: bool,
}

/// What a night took over from the nights before it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ContinuedSummary {
    /// The run that it continues.
    pub run: String,
    /// Which run of its chain it is.
    pub night: u64,
    /// Sessions of earlier nights that new rows touch.
    pub sessions: u64,
    /// Their traces that were read again.
    pub traces_read_again: u64,
    /// Their traces that keep the scores of an earlier night, since the files that they were in are gone or changed.
    pub traces_kept: u64,
    /// How many such files there are.
    pub files_gone: u64,
    /// The first of them, and what is wrong with each.
    pub gone: Vec<String>,
    /// Whether it drifted from them; none where nobody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftSummary>,
}

/// What a run came to beside the nights before it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DriftSummary {
    /// Whether drift fails the run.
    pub is_gate: bool,
    /// What got worse by more than chance, a sentence each.
    pub found: Vec<String>,
    /// Whether there are too few nights to know how much nights differ among themselves.
    pub few_nights: bool,
    /// Metrics of which nothing can be told: their scores are of too few sessions, or of several models.
    pub untold: Vec<String>,
    /// Why nothing is known of it, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Most runs compare nothing, and say nothing of it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Summary {
    /// Whether every gate was passed.
    pub fn gates_passed(&self) -> bool {
        self.gates.iter().all(|gate| gate.passed)
            && self.drift_gate().is_none_or(|drift| drift.found.is_empty())
    }

    /// What the run came to beside the nights before it, if drift fails it.
    pub fn drift_gate(&self) -> Option<&DriftSummary> {
        let continued = self.continued.as_ref()?;
        continued.drift.as_ref().filter(|drift| drift.is_gate)
    }

    /// Whether something waits for a later run: a cap was reached, or a batch is not back.
    pub fn pending(&self) -> bool {
        let conversations = self.judge.as_ref().and_then(|j| j.conversations.as_ref());
        self.pending_signals > 0 || conversations.is_some_and(|c| c.pending > 0)
    }

    /// Whether a judge was asked and none of its calls was answered, as if it was down.
    pub fn judge_was_silent(&self) -> bool {
        self.judge.as_ref().is_some_and(|judge| {
            let calls = judge.calls;
            let failed = calls.failed > 0 || !judge.stopped.is_empty();
            failed && calls.answered == 0 && calls.from_ledger == 0
        })
    }

    /// Whether outputs were to be compared with expected texts, and no trace has one.
    pub fn compared_nothing(&self) -> bool {
        self.traces > 0 && self.traces_without_expected == self.traces
    }

    /// Whether everything that was read was scored. Some traces may lack an expected text, but not all.
    pub fn complete(&self) -> bool {
        let conversations = self.judge.as_ref().and_then(|j| j.conversations.as_ref());
        conversations.is_none_or(ConversationSummary::complete)
            && self.quarantined == 0
            && self.failed_signals == 0
            && self.pending_signals == 0
            && self.unreadable_files == 0
            && self
                .continued
                .as_ref()
                .is_none_or(|continued| continued.traces_kept == 0)
            && self
                .drift_gate()
                .is_none_or(|drift| drift.problem.is_none())
            && !self.compared_nothing()
    }
}

impl Summary {
    /// Its counts of rows, traces and sessions, as a manifest keeps them.
    pub(crate) fn counts(&self) -> serde_json::Value {
        serde_json::json!({
            "rows_read": self.rows_read,
            "traces": self.traces,
            "sessions": self.sessions,
            "merged_duplicates": self.merged_duplicates,
            "quarantined": self.quarantined,
            "left_out": self.rows_left_out,
            "failed_signals": self.failed_signals,
        })
    }
}
