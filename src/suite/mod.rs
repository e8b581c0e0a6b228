//! Suites: evaluation sets with expectations (as trpc-agent-go), and regression against a baseline (as Regtrace).

mod difference;
pub mod evalset;
mod outcome;
pub mod page;
mod plan;
pub mod process;
pub mod regression;
pub mod terminal;

pub use outcome::{
    CaseOutcome, CheckOutcome, GateOutcome, JudgingOutcome, MetricOutcome, PartOutcome,
    SuiteOutcome, Verdict,
};
pub use plan::{PlannedQuestions, SuitePlan};
