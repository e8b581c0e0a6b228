//! Regression suites: what a model answers is held against what was expected, the scores against those of an earlier
//! run, and a build against both (as in Regtrace, whose files and records are read as they are).
//!
//! The way of a run ([`run()`]): a configuration ([`SuiteConfig`]) names suites ([`GoldenSet`]), outputs of other
//! tables are joined onto them ([`Outputs`]), and all of it is checked before anything is evaluated. Suite by suite,
//! metrics are computed, case by case on all threads; then judges are asked what they are to say: the first one, the
//! fallback where it fails, and where nobody says anything that can be used, what was computed counts. The metrics of
//! each case ([`EvaluatedCase`]) give scores of cases and suites ([`cascade()`]); the store of records
//! ([`RecordStore`]) finds the baseline, and [`compare()`] says what changed; [`check_gates`] decides. Tables
//! ([`suite_tables`]) and a page are written beside the record, each whole or not at all, and the record
//! ([`RunRecord`]) last: only a record can be a baseline. Reports ([`json_report`], [`markdown_report`],
//! [`junit_report`]) follow.
//!
//! Three kinds of runs are never a baseline of their own accord: those whose gates failed, those that broke down or
//! wait for a judge (`errored`), and those of a part of the cases, which leave no record.

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
mod run;
mod scaffold;
mod shown;
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
pub use run::{
    BaselineChoice, JudgeOverrides, Judging, ListedSuite, RegressionOutcome, RegressionRequest,
    ReportFiles, SuiteChoice, SuitePath, json_reports, plan_questions, run, suites_of,
};
pub use scaffold::{Scaffold, scaffold_of_file, scaffold_of_record};
pub use shown::{head_line, record_outcome};
pub use suite_metric::SuiteMetric;
pub use tables::{SUITE_TABLES, suite_tables};
pub use whole_file::MAX_FILE_BYTES;
pub(in crate::suite) use whole_file::keys_of_yaml;
