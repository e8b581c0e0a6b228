//! What is done with finished runs: listing and reading them, comparing them, scores of people, asking again what failed.

pub(in crate::run) mod comparison_tables;
pub(in crate::run) mod edit_scores;
mod edit_traces;
pub(in crate::run) mod explanation;
pub(in crate::run) mod history;
pub(in crate::run) mod import_scores;
pub(in crate::run) mod imported_signals;
pub(in crate::run) mod judged_comparison;
pub(in crate::run) mod judged_runs;
pub(in crate::run) mod keep_scores;
pub(in crate::run) mod lineage;
pub(in crate::run) mod manual_rows;
mod model_labels;
pub(in crate::run) mod retry;
pub(in crate::run) mod retry_conversations;
pub(in crate::run) mod run_record;
pub(in crate::run) mod stored_table;
pub(in crate::run) mod verify;
