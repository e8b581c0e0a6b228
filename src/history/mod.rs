//! What is done with finished runs: listing and reading them, figures over them, comparing them, scores of people.

mod ancestry;
pub(crate) mod chain;
mod chance;
pub mod changes;
mod comparison_tables;
mod computed_comparison;
mod continues;
mod edit_scores;
mod edit_traces;
pub mod figures;
pub(crate) mod import_scores;
mod judged_comparison;
mod judged_runs;
mod keep_scores;
mod keeping;
mod latest_scores;
pub(crate) mod lineage;
mod manual_rows;
mod model_labels;
mod run_record;
pub(crate) mod stored_run;
pub(crate) mod stored_table;
mod verify;
pub(crate) mod views;

pub use ancestry::gaps;
pub(crate) use chain::{CARRIED, ChainRun, chain, continued_beside, continued_by, latest, made_in};
pub use changes::{ChangeQuery, Changes, read_changes};
pub use comparison_tables::{comparison_folder, write_comparison};
pub use computed_comparison::{
    ComparedMetric, ComparedScore, ComputedComparison, compare_computed,
};
pub(crate) use continues::Continues;
pub use edit_scores::{Edit, Edited, edit_scores};
pub use import_scores::{Imported, ScoresError, import_scores};
pub use judged_comparison::{JudgedComparison, compare_judged};
pub use judged_runs::{ConversationFigures, JudgedRun, holds_conversations, read_judged};
pub use keep_scores::keep_scores;
pub use keeping::{
    CarriedRows, ErasedFromRun, Erasing, KeepingError, KeptRun, Pruned, check_none_under_way,
    erase, prune, traces_of_sessions,
};
pub use latest_scores::{TimeOf, any_goes_on, read_latest_scores};
pub use lineage::{LeftOut, RunMark, leave_out_retried};
pub use manual_rows::RowError;
pub use run_record::RunRecord;
pub use stored_run::{
    HistoryError, RunStatus, ScoreQuery, StoredRun, find_runs, find_runs_below, read_run,
    read_scores, read_told, stored_metrics,
};
pub use verify::{FaultyFile, FileFault, VerifiedRun, check_if_of_run, verify_run};
pub use views::{QueryLimits, VIEWS, Views};
