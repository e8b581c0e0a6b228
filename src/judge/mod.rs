//! Asking language models, only where a metric or a command wants it.
//!
//! ```text
//! trace document ─ evidence ─ metric (stages and score rule) ─ asker (attempts, form, repair, rounds)
//!   ─ service: ledger ─ breaker ─ budget ─ rate gate ─ provider over HTTP
//!                   └─ budget ─ batch submitter ─ request files ─ batch client over HTTP
//! ```
//!
//! What is asked is pure and stands elsewhere (`metric`, `question`, `conversation`); the service alone meets the network
//! and the ledger.

pub(crate) mod answers;
pub(crate) mod asker;
mod attempts;
pub mod batch;
mod breaker;
mod budget;
mod call;
mod chat;
mod concurrency_limit;
mod exchange;
mod fault;
mod ledger;
mod limited_body;
mod model_name;
mod poster;
mod price;
mod protocol;
mod provider;
mod rate;
mod retries;
mod secret;
mod service;
mod temperature;
mod trace_judge;
mod webhook;

pub use asker::MOST_ROUNDS;
pub use attempts::{Attempts, JudgeFailed, Outcome, Policy};
pub use breaker::BreakerRules;
pub use budget::{Budget, CapReached, Caps, SetAside, Spent};
pub use call::{
    Call, CallError, CallErrorKind, CallHash, Judge, PromptLabel, Reply, ReplyFormat, Usage,
    usual_tokens,
};
pub use chat::{Chat, ChatError};
pub use ledger::{
    BatchEnd, BatchRequest, BatchRows, CallLabel, Claim, ForgottenAnswers, InBatch, Ledger,
    LedgerError, OpenBatch, Spend, Taken,
};
pub use model_name::{Provider, ProviderNotConfigured, resolve, resolve_at};
pub use poster::{Check, Endpoint, PostError, Poster, Seen, Verb};
pub use price::{Price, PriceError, PriceTable};
pub use protocol::Protocol;
pub use provider::{HttpJudge, ProviderError, ProviderSettings, endpoint_of};
pub use rate::{RateGate, RateLimits, TooLargeForLimit};
pub use retries::Retries;
pub use secret::{
    SECRET, SecretError, Secrets, Written, header_secrets, key_of_file, masked_header, masked_url,
    masked_webhook, url_fault, with_variables,
};
pub(crate) use service::billed_for_failure;
pub use service::{CallCounts, JudgeService, ServiceParts, Unanswered};
pub use temperature::Temperature;
pub(crate) use trace_judge::follow;
pub use trace_judge::{AskingRules, Unjudged, judge_trace};
pub use webhook::{Webhook, WebhookError};
