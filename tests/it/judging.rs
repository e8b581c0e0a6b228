//! Judged metrics by the program itself, against a scripted judge on loopback.

mod at_once;
mod batches;
mod caps;
mod choice;
pub mod comparison;
mod comparison_tables;
mod conversations_of_turns;
mod deadline;
mod endpoints;
mod faults;
mod interrupted;
mod ledger;
mod masks;
mod metrics;
mod plan_of_turns;
mod provider_faults;
mod provider_stops;
mod providers;
mod replies;
mod retry;
mod retry_of_turns;
mod rounds_of_turns;
mod scene;
mod scene_of_turns;
mod secrets;
mod tables;
