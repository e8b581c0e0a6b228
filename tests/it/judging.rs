//! Judged metrics by the program itself, against a scripted judge on loopback.

mod at_once;
mod batches;
mod caps;
mod choice;
pub mod comparison;
mod conversations_of_turns;
mod faults;
mod interrupted;
mod ledger;
mod metrics;
mod provider_faults;
mod provider_stops;
mod providers;
mod replies;
mod retry;
mod scene;
mod secrets;
mod tables;
