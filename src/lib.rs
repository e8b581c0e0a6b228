//! nightmill scores warehouses of agent traces offline.
//!
//! The library is what the `nightmill` program is made of; see ARCHITECTURE.md for the rooms and
//! the way of the data.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        reason = "a failed test is a panic"
    )
)]

pub mod benchmark;
pub mod cli;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod conversation;
pub mod embed;
pub mod engine;
pub mod export;
pub mod history;
pub mod job;
pub mod judge;
pub mod metric;
pub mod model;
pub mod monitor;
pub mod output;
pub mod question;
pub mod report;
pub mod run;
pub mod scorer;
pub mod selection;
pub mod store;
pub mod suite;
pub mod summary;
pub mod text;
pub mod trace;
pub mod validation;

pub use nightmill_encoder as encoder;
