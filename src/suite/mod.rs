//! Suites: evaluation sets with expectations (as trpc-agent-go), and regression against a baseline (as Regtrace).

mod difference;
pub mod evalset;
mod kind;
mod outcome;
pub mod page;
pub mod regression;
pub mod terminal;

pub use kind::{ResultKind, SuiteKind, result_kind, suite_kind};
pub use outcome::{
    CaseOutcome, CheckOutcome, GateOutcome, JudgingOutcome, MetricOutcome, PartOutcome,
    SuiteOutcome, Verdict,
};
