//! `nightmill suite` for regression suites: runs, judges, baselines, reports, and what is refused.

mod baselines;
mod golden;
mod judged;
mod refused;
mod reports;
mod runs;
mod safety;
mod scene;
