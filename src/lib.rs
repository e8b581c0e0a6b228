//! nightmill scores warehouses of agent traces offline.
//!
//! The library is what the `nightmill` program is made of; see ARCHITECTURE.md for the rooms and
//! the way of the data.

pub mod embed;
pub mod encoder;
pub mod metric;
pub mod model;
pub mod text;
pub mod trace;
