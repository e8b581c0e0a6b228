//! What a report page shows beside the summary.

use serde::Serialize;

use super::AttentionPart;
use crate::trace::RowAt;

/// The facts of a run that are in no other part of it.
#[derive(Clone, Debug)]
pub struct PageFacts {
    /// The run's name.
    pub title: String,
    /// The run directory as whoever made it named it.
    pub run: String,
    /// The model's name and SHA-256; none for runs without a model.
    pub model: Option<(String, String)>,
    /// What it computed in.
    pub precision: String,
    /// Where.
    pub device: String,
    /// Input files.
    pub inputs: Vec<String>,
    /// The file of given signals.
    pub signals: Option<String>,
    /// Where the texts of a session are; none where no one command reads them.
    pub texts: Option<TextsAt>,
}

/// How `nightmill sql` reads the texts of a session again.
#[derive(Clone, Debug, Serialize)]
pub struct TextsAt {
    /// Files, folders and globs.
    pub tables: Vec<String>,
    /// The columns that are shown: the trace's id, its time, its texts.
    pub columns: Vec<String>,
    /// The column of the session's id.
    pub session_id: String,
    /// That of its project.
    pub project_id: String,
    /// That of the time, by which rows are sorted.
    pub started_at: String,
    /// Flags that the command needs, each with its value.
    pub flags: Vec<(String, String)>,
}

/// The sessions of a run, as its page lists them.
#[derive(Clone, Debug, Default)]
pub struct PageSessions {
    /// All sessions of the run, listed or not.
    pub total: u64,
    /// Where their order comes from.
    pub order: ListOrder,
    /// The names of slices, as `environment`; their values stand in this order in each session.
    pub slices: Vec<String>,
    /// Whether the run knows tags.
    pub has_tags: bool,
    /// Whether whole sessions were judged.
    pub has_verdicts: bool,
    /// The names of signals; their values stand in this order in each session.
    pub signals: Vec<&'static str>,
    /// The first sessions in this order.
    pub listed: Vec<ListedSession>,
    /// The first of these with their texts.
    pub shown: Vec<ShownSession>,
    /// What made the scores, where one metric's come from several models, precisions or text modes.
    pub mixed: Vec<MixedScores>,
}

/// Where the order of a list comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    /// Their places in the table `attention`.
    Attention,
    /// Their scores, the lowest first.
    Scores,
    /// Nothing: they stand as in the table `sessions`.
    #[default]
    Table,
}

/// A session of the list.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ListedSession {
    /// As in the table `sessions`.
    pub session_id: String,
    /// As there.
    pub project_id: Option<String>,
    /// Its place in the order for the morning, from 1 on.
    pub place: Option<u64>,
    /// In [0, 1].
    pub attention: Option<f64>,
    /// Why it has that place, in words.
    pub why: Option<String>,
    /// The signals behind that.
    pub parts: Vec<AttentionPart>,
    /// Its traces.
    pub traces: u64,
    /// How many of them are flagged; none where nobody looked.
    pub flagged: Option<u64>,
    /// Its reliability.
    pub agent_reliability: Option<RankedScore>,
    /// Its consistency.
    pub agent_consistency: Option<RankedScore>,
    /// The score of the whole conversation, in [0, 1].
    pub conversation: Option<f64>,
    /// When its first trace began, microseconds since 1970.
    pub started_at: Option<i64>,
    /// The values of slices; none where one is not known.
    pub slices: Vec<Option<String>>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Signals of the session; none where there is nothing to measure.
    pub signals: Vec<Option<f64>>,
}

/// A score among those of all sessions of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RankedScore {
    /// In [0, 1], 4 decimals.
    pub value: f64,
    /// The share of sessions with a score whose score is lower.
    pub better_than: f64,
}

/// A metric whose scores have several makers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MixedScores {
    /// The metric.
    pub metric: String,
    /// Model, precision and text mode of each, in words, with how many scores.
    pub makers: Vec<(String, u64)>,
}

/// A session with its traces.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShownSession {
    /// Its number in the list, from 0.
    pub row: usize,
    /// Traces left out.
    pub rows_hidden: usize,
    /// Its traces, in session order.
    pub rows: Vec<ShownTrace>,
    /// What a judge said of the whole conversation.
    pub verdict: Option<ShownVerdict>,
}

/// A trace as the report shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShownTrace {
    /// From 0 in its session.
    pub position: u64,
    /// As it was given.
    pub trace_id: String,
    /// RFC 3339; empty where it is not known.
    pub started_at: String,
    /// Its scores in [0, 1] by metric, those that it has.
    pub scores: Vec<(String, f64)>,
    /// In [0, 1]; 1 is much risk.
    pub step_risk: Option<f64>,
    /// Whether its step risk exceeds one half.
    pub flagged: bool,
    /// None where the run did not read inputs.
    pub input: Option<ShownText>,
    /// None where the run did not read outputs.
    pub output: Option<ShownText>,
    /// The earlier output that this one repeats.
    pub repeats: Option<ShownRepeat>,
    /// Calls of tools.
    pub calls: Vec<ShownCall>,
    /// Calls left out.
    pub calls_hidden: usize,
    /// What judges said of it.
    pub judged: Vec<ShownJudgement>,
}

/// A text, cut where it is long.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShownText {
    /// Its beginning.
    pub text: String,
    /// Whether it goes on.
    pub cut: bool,
}

/// The earlier output that a trace repeats.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShownRepeat {
    /// The trace of that output.
    pub trace_id: String,
    /// Its position in the session.
    pub position: Option<u64>,
    /// Likeness in meaning; none where only words were compared.
    pub cosine: Option<f64>,
    /// Shared words among all words of both.
    pub jaccard: Option<f64>,
    /// What loop detection made of both; none where it did not find the pair.
    pub hybrid: Option<f64>,
    /// The earlier output.
    pub output: ShownText,
    #[serde(skip)]
    pub(crate) place: Option<RowAt>,
}

/// A call of a tool as the report shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShownCall {
    /// The tool.
    pub name: String,
    /// JSON or text, cut.
    pub arguments: ShownText,
    /// Whether it failed.
    pub failed: bool,
    /// What went wrong, cut; the answer of the tool where nothing else says it.
    pub error: Option<ShownText>,
}

/// What a judge said of a trace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShownJudgement {
    /// The metric.
    pub metric: String,
    /// None where it failed or is pending.
    pub score: Option<f64>,
    /// As in `scores`.
    pub status: String,
    /// Why, in the judge's words.
    pub reason: String,
}

/// What a judge said of a conversation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ShownVerdict {
    /// As in `judge_verdicts`.
    pub status: String,
    /// Why there is no score, or what was said of it.
    pub reason: String,
    /// 0 to 100.
    pub overall_score: Option<f64>,
    /// The bar, 0 to 100.
    pub pass_threshold: Option<f64>,
    /// Whether it was reached.
    pub passed: Option<bool>,
    /// Metric by metric.
    pub metrics: Vec<VerdictMetric>,
    /// Expected outcomes.
    pub outcomes: Vec<VerdictOutcome>,
}

/// A metric of a verdict.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerdictMetric {
    /// Its name.
    pub metric: String,
    /// 0 to 5.
    pub score: Option<i64>,
    /// The score in a word.
    pub label: String,
    /// Why.
    pub justification: String,
    /// What kind of failure it is.
    pub failure_code: Option<String>,
}

/// An expected outcome of a verdict.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerdictOutcome {
    /// What was expected.
    pub statement: String,
    /// Whether it came about.
    pub passed: Option<bool>,
    /// Why.
    pub justification: String,
}
