//! Evaluation sets with expectations, file-compatible with trpc-agent-go's evaluation.

pub mod aggregate;
pub mod criterion;
mod difference;
pub mod environment;
mod epoch;
mod evaluation;
pub mod evaluator;
mod flakiness;
mod from_traces;
pub mod json_file;
pub mod judged;
mod legacy;
pub mod locator;
pub mod metrics_json;
pub mod model;
mod object;
mod place;
pub mod result;
mod result_json;
mod run;
pub mod semantic;
mod set_json;
mod shape;
mod shown;
pub mod store;

pub use difference::{ResultChange, ResultDifference, compare_results};
pub use from_traces::{CaseRules, FromTracesRequest, MadeSet, from_traces};
pub use run::{EvalSetRequest, located, run};
pub use shown::{read_result, shown_result};
