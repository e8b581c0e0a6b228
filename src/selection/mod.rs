//! Which traces and sessions a run takes: filters, and a sample of what passes them.

mod filters;
mod sampling;
mod targets;

pub use filters::{Ids, SessionFilters, SessionTally, TraceFacts, TraceFilters, TraceStatus};
pub(crate) use sampling::sample_of_sessions;
pub use sampling::{Cutoff, DEFAULT_SEED, Lowest, Rank, Ranking, RateError, SamplingRate};
pub use targets::{TargetChoice, TargetFilters};
