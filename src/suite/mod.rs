//! Suites: evaluation sets with expectations (as trpc-agent-go), and regression against a baseline (as Regtrace).

mod difference;
pub mod evalset;
mod flakiness;
mod kind;
mod outcome;
pub mod page;
mod plan;
pub mod process;
pub mod regression;
pub mod terminal;

pub use kind::{ResultKind, SuiteKind, result_kind, suite_kind};
pub use outcome::{
    CaseFlakiness, CaseOutcome, Chance, CheckOutcome, FlakinessOutcome, GateOutcome,
    JudgingOutcome, MetricOutcome, PartOutcome, PassFigures, SuiteOutcome, Verdict,
};
pub use plan::{PlannedQuestions, SuitePlan};
