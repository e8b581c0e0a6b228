//! Runs: from a request to a finished run directory.

mod aggregate;
mod aggregated_traces;
mod embed;
mod engine;
mod imported_signals;
mod judging;
mod making;
pub mod open;
mod plan;
mod retry;
mod retry_conversations;
mod score;
mod session_rows;
mod signals_file;
mod stages;
mod targets;
mod trace_rows;
mod turns;
mod worst;

pub use aggregate::{AggregateRequest, aggregate};
pub use embed::{EmbedRequest, EmbedSummary, embed};
pub(crate) use engine::runtime;
pub use engine::{CacheChoice, EngineRequest, Gpu, Target, load_service};
pub use judging::explanation::{Explanation, explain};
pub use judging::metric_draft::draft_metric;
pub use judging::prompt_preview::{PreviewedPrompt, PreviewedTrace, preview_prompts};
pub(crate) use judging::request::Shared as SharedJudges;
pub use judging::request::{BatchRules, JudgeRequest};
pub use plan::turns::{PlannedTables, plan_turns};
pub use plan::{PlanSummary, PlannedMetric, plan};
pub(crate) use plan::{USUAL_REPLY_TOKENS, price_of};
pub use retry::{Retry, RetryError};
pub use score::{PageWriter, Progress, ScoreRequest, score};
pub use targets::any_match;
pub use turns::{TurnsRequest, judge_turns};
