//! The plan: metrics as DataFusion functions, traces as tables, runs as one plan.

mod bucket_order;
mod buckets;
mod comparison_record;
mod functions;
mod kept_rows;
mod likeness;
mod loop_record;
mod plan;
mod session;
mod session_plan;
mod session_walk;
mod span_facts;
mod sql_table;
mod stuck_record;
mod tap;
mod trace_table;

pub(crate) use buckets::for_each_bucket;
pub use comparison_record::unpack_comparison_record;
pub use functions::{FunctionDoc, documented};
pub(crate) use kept_rows::KeptRows;
pub use loop_record::unpack_loop_record;
pub use plan::{Digests, ScorePlan, for_each_batch, given_signals};
pub(crate) use plan::{JUDGED_AT, JUDGED_SIGNALS, sessions_of_repeated};
pub use session::{EngineOptions, engine_session};
pub use session_plan::SessionPlan;
pub use span_facts::span_facts;
pub use sql_table::{CheckFile, FilesAsTables, MakeTable};
pub use tap::Tap;
pub use trace_table::traces_table;

use datafusion::error::DataFusionError;

/// An error of ours on its way through DataFusion.
pub(crate) fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
