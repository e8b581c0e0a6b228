//! The conversation judge: everything but calls, tables and the command line.
//!
//! It turns a case and its transcript into a request to a judge, the judge's reply into a verdict, verdicts into the
//! figures of a run, and two runs into a comparison. Plain data in, plain data out.
//!
//! Requests, verdicts, figures and comparisons are those of Connexity.

mod aggregate;
mod breakdown;
mod catalogue;
mod compare;
mod diff;
mod differences;
mod draft;
mod evidence;
mod explain;
mod json;
mod judge;
mod metric;
mod numbers;
mod repetitions;
mod reply;
mod request;
mod schema;
mod token_usage;
mod transcript;
mod verdict;
mod weights;

pub use aggregate::{CaseLatency, CaseResult, RunBars, RunSummary, summarise};
pub use breakdown::{Breakdown, CaseBreakdown, FailureCount, by_case, by_metric, by_tier};
pub use catalogue::{Catalogue, CatalogueError};
pub use compare::{
    AggregateComparison, CaseComparison, ChangeStatus, MetricAverages, MetricDelta,
    RegressionReason, RunComparison, Thresholds, compare,
};
pub use differences::{
    Change, PromptChange, RunDifferences, RunSnapshot, ToolChanges, differences,
};
pub use draft::{DraftError, draft_prompt, draft_prompt_version, read_draft};
pub use explain::{
    Cause, CauseAnalysis, Degree, Direction, Suggestion, Suggestions, Target, cause_prompt,
    cause_prompt_version, read_causes, read_suggestions, suggestions_prompt,
    suggestions_prompt_version,
};
pub use judge::{ConversationJudge, SetupError};
pub use metric::{CustomMetric, Metric, Scale, Tier};
pub use repetitions::{ComparedCase, MetricValue};
pub use reply::{JudgeError, MetricScore, OutcomeResult, Reply, read_reply};
pub use request::{
    Request, RequestError, SchemaPlace, estimated_tokens, prompt_versions, request, system_message,
};
pub use schema::{SCHEMA_NAME, reply_schema};
pub use token_usage::TokenUsage;
pub use transcript::{
    Case, CaseStatus, Difficulty, ExpectedToolCall, NotJudged, Role, ToolCall, Turn, UnknownRole,
    not_judged, takes_part,
};
pub use verdict::{Highlight, Highlights, Label, Verdict, case_passed, overall_score};
pub use weights::{
    ConfigError, JudgeConfig, MissingOutcomes, ReplyFences, ResolvedMetric, SelectedMetric,
    Selection, ToollessPolicy, is_toolless,
};
