//! Regression suites: what a model answers is held against what was expected, the scores against those of an earlier
//! run, and a build against both (as in Regtrace, whose files and records are read as they are).
//!
//! The way of a run: a configuration ([`SuiteConfig`]) names suites ([`GoldenSet`]), outputs of other tables are joined
//! onto them ([`Outputs`]); the metrics of each case ([`EvaluatedCase`]) give scores of cases and suites
//! ([`cascade()`]); the store of records ([`RecordStore`]) finds the baseline, and [`compare()`] says what changed;
//! [`check_gates`] decides; the record ([`RunRecord`]) is saved, and becomes reports ([`json_report`],
//! [`markdown_report`], [`junit_report`]) and tables ([`suite_tables`]).

mod baseline;
mod cascade;
mod case_regression;
mod compare;
mod config;
mod file_fault;
mod gates;
mod golden_set;
mod members;
mod named;
mod record;
mod record_diff;
mod record_store;
mod report;
mod scaffold;
mod suite_metric;
mod sum;
mod tables;
mod whole_file;

pub use crate::metric::comparison::Compat;
pub use baseline::{BaselineOf, baseline_notices, choose_baseline, clean_branch, current_branch};
pub use cascade::{
    CaseFigures, EvaluatedCase, MetricSummary, Severity, SuiteFigures, cascade, case_score,
    overall_score,
};
pub use case_regression::{
    CaseBaseline, add_regression, regression_of_case, regression_of_scores, regression_score,
};
pub use compare::{
    CaseDelta, CaseStatus, Comparison, RegressionStatus, Side, SideCase, compare, relative_change,
    status_of,
};
pub use config::{
    BaselineStrategy, CONFIG_NAMES, ClaimDepth, ColorChoice, FactualityConfig, FactualityMode,
    FormatConfig, GoldenSetEntry, JudgeEntry, MetricsConfig, NfrGates, OutputConfig, Part,
    QualityGates, ReadConfig, RegressionConfig, RegressionGate, ReportFormat, SuiteConfig,
    ToneConfig, UnknownSet, find_config,
};
pub use file_fault::{Fault, Faults, FileError};
pub use gates::{GateResult, GateResults, check_gates, exit_code, is_ci};
pub use golden_set::{
    ContextDocument, GoldenSet, Interaction, Outputs, ReadSets, TestCase, golden_sets_of_parquet,
    golden_sets_of_rows,
};
pub use named::Named;
pub use record::{
    CaseRecord, JudgeName, RegressionRecord, RunHead, RunRecord, RunStatus, SeverityCounts,
    Trigger, new_run_id,
};
pub use record_diff::{CaseDiff, RunDiff, ThenNow, diff_records};
pub use record_store::{Baseline, Listing, RecordStore, RunFilter, StoreError};
pub use report::{json_report, junit_report, markdown_report};
pub use scaffold::{Scaffold, scaffold_of_file, scaffold_of_record};
pub use suite_metric::SuiteMetric;
pub use tables::{SUITE_TABLES, suite_tables};
pub use whole_file::MAX_FILE_BYTES;
