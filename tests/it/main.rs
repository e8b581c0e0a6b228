//! Integration tests: golden data, laws, and the program as a process.

mod golden_metrics;
mod golden_models;
mod support;
