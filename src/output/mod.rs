//! What a run leaves behind: its directory, manifest and tables, and the summary of what came of it.
//!
//! Nothing here knows how a score comes about.

mod begun;
pub(crate) mod columns;
pub(crate) mod directory;
mod error;
mod figures;
pub(crate) mod label_column;
mod leftovers;
pub(crate) mod manifest;
pub(crate) mod quarantine_rows;
pub(crate) mod score_rows;
mod status;
pub(crate) mod table_folder;
pub(crate) mod table_writer;

pub use begun::{Announced, Begun, BegunRun, BegunStatus, begun_runs};
pub(crate) use directory::names_of_a_run;
pub use directory::{PartialFile, RunDirectory, delete_run};
pub use error::RunError;
pub use figures::{
    Distribution, Distributions, FailureSummary, GateResult, MetricSummary, QuarantineSummary,
    WorstSession, WorstStep,
};
pub(crate) use leftovers::remove_all_leftovers;
pub(crate) use status::Status;
