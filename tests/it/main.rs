//! Integration tests: golden data, laws, and the program as a process.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a failed test is a panic, and its output is for people"
)]

mod attention;
mod bad_data;
mod bench;
mod browser;
mod bucket;
mod buckets;
mod cache;
mod changes;
mod choosing;
mod cluster;
mod compared_runs;
mod comparisons;
mod damaged_formats;
mod delta_tables;
mod device_threads;
mod exports;
mod formats;
mod formats_elsewhere;
mod golden_conversation;
mod golden_evalset_criteria;
mod golden_evalset_files;
mod golden_evalset_judges;
mod golden_evalset_scenarios;
mod golden_judges;
mod golden_metrics;
mod golden_models;
mod golden_regtrace_columns;
mod golden_regtrace_metrics;
mod golden_regtrace_suite;
mod golden_sessions;
mod gpu_kit;
mod hand_made_runs;
mod history_views;
mod idle_flags;
mod judging;
mod keeping;
mod killed_at_each_write;
mod laws;
mod manual_scores;
mod models;
mod night_pages;
mod nights;
mod no_evidence;
mod notices;
mod process;
mod readme;
mod regression_suites;
mod report;
mod report_page;
mod rooms;
mod run_records;
mod runs_and_monitors;
mod scripted_judge;
mod scripted_judge_tests;
mod session_buckets;
mod settings;
mod span_metrics;
mod span_weights;
mod suite_agents;
mod suite_metrics;
mod suites;
mod support;
mod texts;
mod trace_ids;
mod triage;
mod unclear_input;
mod validation;
mod verified;
