//! Conversations: judged whole, one call each, from the transcript to the verdict and to figures (as in Connexity).
//!
//! `question` turns a case and its transcript into a request to a judge, and the judge's reply into a verdict; `figures`
//! turns verdicts into the figures of a run, and two runs into a comparison: plain data in, plain data out. The files
//! beside them read transcripts from sessions of traces or from tables of turns, ask, and write tables.

mod agent;
mod asked;
pub(crate) mod figures;
pub(crate) mod from_tables;
pub(crate) mod from_traces;
pub(crate) mod judged;
pub(crate) mod question;
mod request;
mod summary;
pub(crate) mod tables;
pub(crate) mod transcript_of_traces;
pub(crate) mod verdict_question;

pub use agent::Agent;
pub(crate) use asked::{Conversations, Listener, judge_all, judge_each, not_asked};
pub use from_tables::TableCounts;
pub use request::ConversationRequest;
pub use summary::ConversationSummary;

pub use figures::aggregate::{CaseLatency, CaseResult, RunBars, RunSummary, summarise};
pub use figures::breakdown::{Breakdown, CaseBreakdown, FailureCount, by_case, by_metric, by_tier};
pub use figures::compare::{
    AggregateComparison, CaseComparison, ChangeStatus, MetricAverages, MetricDelta,
    RegressionReason, RunComparison, Thresholds, compare,
};
pub use figures::differences::{
    Change, PromptChange, RunDifferences, RunSnapshot, ToolChanges, differences,
};
pub use figures::explain::{
    Cause, CauseAnalysis, Degree, Direction, Suggestion, Suggestions, Target, cause_prompt,
    cause_prompt_version, read_causes, read_suggestions, suggestions_prompt,
    suggestions_prompt_version,
};
pub use figures::repetitions::{ComparedCase, MetricValue};
pub use question::catalogue::{Catalogue, CatalogueError};
pub use question::draft::{DraftError, draft_prompt, draft_prompt_version, read_draft};
pub use question::judge::{ConversationJudge, SetupError};
pub use question::metric::{CustomMetric, Metric, Scale, Tier};
pub use question::reply::{JudgeError, MetricScore, OutcomeResult, Reply, read_reply};
pub use question::request::{
    Request, RequestError, SchemaPlace, estimated_tokens, prompt_versions, request, system_message,
};
pub use question::schema::{SCHEMA_NAME, reply_schema};
pub use question::token_usage::TokenUsage;
pub use question::transcript::{
    Case, CaseStatus, Difficulty, ExpectedToolCall, NotJudged, Role, Turn, UnknownRole, not_judged,
    takes_part,
};
pub use question::verdict::{Highlight, Highlights, Label, Verdict, case_passed, overall_score};
pub use question::weights::{
    ConfigError, JudgeConfig, MissingOutcomes, ReplyFences, ResolvedMetric, SelectedMetric,
    Selection, ToollessPolicy, is_toolless,
};
