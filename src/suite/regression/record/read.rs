//! Reading records: our own, and those of Regtrace, which say less.

use std::path::Path;

use serde_json::Value;

use super::{CaseRecord, JudgeName, RegressionRecord, RunHead, RunRecord, RunStatus, Trigger};
use crate::metric::checked::{Checked, Detail};
use crate::metric::comparison::Compat;
use crate::suite::regression::cascade::{CaseFigures, EvaluatedCase, MetricSummary, Severity};
use crate::suite::regression::compare::{CaseDelta, CaseStatus, Comparison, RegressionStatus};
use crate::suite::regression::file_fault::FileError;
use crate::suite::regression::gates::GateResults;
use crate::suite::regression::members::{Findings, Members};
use crate::suite::regression::named::Named;
use crate::suite::regression::sum::mean;
use crate::suite::regression::whole_file::text_of;
use crate::text::{Json, parse_instant, parse_members, parse_strict};

const ANY: std::ops::RangeInclusive<f64> = f64::MIN..=f64::MAX;
const SHARE: std::ops::RangeInclusive<f64> = 0.0..=1.0;
const WEIGHT: std::ops::RangeInclusive<f64> = 0.0..=f64::MAX;
/// The kinds of faults of structural comparisons.
const KINDS: [&str; 4] = ["missing", "extra", "wrong", "type_mismatch"];

impl RunRecord {
    /// Reads a record of at most 256 MiB.
    ///
    /// # Errors
    /// [`FileError`] if it is no record: it can't be read, is no JSON, or lacks what a record must have.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = text_of(path, "JSON")?;
        Self::of_json(path, &text)
    }

    /// The record of a JSON text; `path` is what messages name.
    ///
    /// # Errors
    /// As [`RunRecord::read`].
    pub fn of_json(path: &Path, text: &str) -> Result<Self, FileError> {
        let json = parse_strict(text).map_err(|e| FileError::syntax(path, "JSON", e))?;
        let value = Value::from(json);
        let findings = Findings::default();
        let record = record(&findings, &value);
        findings.finish().map_err(FileError::faults(path))?;
        Ok(record)
    }
}

impl RunHead {
    /// Reads a record without its cases, which are passed over.
    ///
    /// # Errors
    /// As [`RunRecord::read`], of what it looks at.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = text_of(path, "JSON")?;
        let json: Json = parse_members(text.as_bytes(), |name| name != "test_case_results")
            .map_err(|e| FileError::syntax(path, "JSON", e))?;
        let value = Value::from(json);
        let findings = Findings::default();
        let head = head(&findings, &Members::of(&findings, "", &value));
        findings.finish().map_err(FileError::faults(path))?;
        Ok(head)
    }
}

fn named<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> Vec<(&'static str, T)> {
    all.iter().map(|of| (name(*of), *of)).collect()
}

fn head(findings: &Findings, top: &Members<'_>) -> RunHead {
    let timestamp = top.required_text("timestamp");
    let timestamp = parse_instant(&timestamp).unwrap_or_else(|e| {
        if !timestamp.is_empty() {
            top.fault("timestamp", e.to_string());
        }
        chrono::DateTime::UNIX_EPOCH
    });
    let status = top.choice("status", &named(&RunStatus::ALL, RunStatus::name));
    if top.value("status").is_none() {
        top.fault("status", "is missing");
    }
    let provider = top.text("judge_provider").filter(|of| !of.is_empty());
    let text = |key: &'static str| top.text(key).unwrap_or_default().to_owned();
    let own_version = text("nightmill_version");
    let tool_version = match own_version.is_empty() {
        true => text("regtrace_version"),
        false => own_version,
    };
    RunHead {
        run_id: top.required_text("run_id"),
        timestamp,
        status: status.unwrap_or(RunStatus::Errored),
        trigger: top
            .choice("trigger", &named(&Trigger::ALL, Trigger::name))
            .unwrap_or(Trigger::Cli),
        duration_ms: duration(top),
        tool_version,
        judge: provider.map(|provider| JudgeName {
            provider: provider.to_owned(),
            model: text("judge_model"),
        }),
        config_hash: text("config_hash"),
        golden_set_file_hash: text("golden_set_file_hash"),
        golden_set_name: top.required_text("golden_set_name"),
        golden_set_version: text("golden_set_version"),
        branch: top.text("branch").map(str::to_owned),
        suite_score: required_number(top, "suite_score"),
        metric_summary: metric_summary(findings, &top.block("metric_summary")),
    }
}

/// Whole milliseconds; the tool measures fractions.
fn duration(top: &Members<'_>) -> u64 {
    let milliseconds = top.number("duration_ms", WEIGHT).unwrap_or(0.0);
    format!("{milliseconds:.0}").parse().unwrap_or(u64::MAX)
}

fn required_number(of: &Members<'_>, key: &'static str) -> f64 {
    if of.value(key).is_none() {
        of.fault(key, "is missing");
    }
    of.number(key, SHARE).unwrap_or(0.0)
}

fn metric_summary(findings: &Findings, block: &Members<'_>) -> Named<MetricSummary> {
    let mut summary = Named::default();
    for name in block.few_names() {
        let Some(value) = block.value(name) else {
            continue;
        };
        let of = Members::of(findings, block.path_of(name), value);
        let figures = MetricSummary {
            score: required_number(&of, "score"),
            pass_rate: of.number("pass_rate", SHARE).unwrap_or(0.0),
        };
        summary.insert(name, figures);
    }
    summary
}

fn record(findings: &Findings, value: &Value) -> RunRecord {
    let top = Members::of(findings, "", value);
    let head = head(findings, &top);
    if top.value("test_case_results").is_none() {
        top.fault("test_case_results", "is missing");
    }
    let items = top.list("test_case_results").into_iter();
    let cases = items.map(|(path, item)| case(findings, path, item));
    let gates = top.optional_block("quality_gates");
    RunRecord {
        cases: cases.collect(),
        regression: regression(findings, &top.block("regression")),
        gates: gates.map(|block| GateResults::of_members(findings, &block)),
        head,
    }
}

fn case(findings: &Findings, path: String, value: &Value) -> CaseRecord {
    let of = Members::of(findings, path, value);
    let text = |key: &'static str| of.text(key).unwrap_or_default().to_owned();
    let results = results(findings, &of.block("metric_results"));
    let scores = || results.values().map(|of| of.score).collect();
    let score = of.number("score", SHARE);
    let passed = of.flag("overall_passed");
    let passed = passed.unwrap_or_else(|| results.values().all(|of| of.passed));
    let severity = of.choice("severity", &named(&Severity::ALL, Severity::name));
    let figures = CaseFigures {
        // The tool's records have neither score nor weight.
        score: score.unwrap_or_else(|| mean(scores(), Compat::Document).unwrap_or(0.0)),
        passed,
        severity: severity.unwrap_or(match passed {
            true => Severity::Pass,
            false => Severity::Warn,
        }),
    };
    let delta = of.optional_block("regression_delta");
    CaseRecord {
        figures,
        regression_delta: delta.map(|block| numbers(&block)),
        case: EvaluatedCase {
            id: of.required_text("test_case_id"),
            input: text("input"),
            actual_output: text("actual_output"),
            weight: of.number("weight", WEIGHT).unwrap_or(1.0),
            results,
        },
    }
}

fn results(findings: &Findings, block: &Members<'_>) -> Named<Checked> {
    let mut results = Named::default();
    for name in block.few_names() {
        let Some(value) = block.value(name) else {
            continue;
        };
        let of = Members::of(findings, block.path_of(name), value);
        let kinds = [("deterministic", false), ("llm_judged", true)];
        let details = of.list("details").into_iter();
        let result = Checked {
            score: required_number(&of, "score"),
            threshold: of.number("threshold", ANY).unwrap_or(0.0),
            passed: of.flag("passed").unwrap_or(false),
            confidence: of.number("confidence", SHARE).unwrap_or(1.0),
            explanation: of.text("explanation").unwrap_or_default().to_owned(),
            judged: of.choice("evaluation_type", &kinds).unwrap_or(false),
            // Null is a cost that nobody knows; a record that does not speak of costs has none.
            token_cost: match of.has("token_cost") {
                true => of.number("token_cost", WEIGHT),
                false => Some(0.0),
            },
            details: details
                .map(|(path, item)| detail(findings, path, item))
                .collect(),
        };
        results.insert(name, result);
    }
    results
}

fn detail(findings: &Findings, path: String, value: &Value) -> Detail {
    let of = Members::of(findings, path, value);
    let text = |key: &'static str| of.text(key).map(str::to_owned);
    let kind = of.text("kind");
    Detail {
        check: text("check").unwrap_or_default(),
        passed: of.flag("passed").unwrap_or(false),
        kind: KINDS.into_iter().find(|known| Some(*known) == kind),
        expected: text("expected"),
        actual: text("actual"),
        message: text("message"),
    }
}

fn numbers(block: &Members<'_>) -> Named<f64> {
    let numbers = block.few_names().into_iter();
    let numbers = numbers.filter_map(|name| Some((name, block.number(name, ANY)?)));
    numbers.collect()
}

fn regression(findings: &Findings, block: &Members<'_>) -> RegressionRecord {
    let text = |key: &'static str| block.text(key).map(str::to_owned);
    let statuses = named(&RegressionStatus::ALL, RegressionStatus::name);
    let status = block.choice("regression_status", &statuses);
    let deltas = block.list("case_deltas").into_iter();
    let deltas = deltas.map(|(path, item)| {
        let of = Members::of(findings, path, item);
        let statuses = named(&CaseStatus::ALL, CaseStatus::name);
        CaseDelta {
            id: of.required_text("id"),
            status: of.choice("status", &statuses).unwrap_or(CaseStatus::New),
            delta: of.number("delta", ANY),
            metrics: numbers(&of.block("metrics")),
        }
    });
    let changed = block.flag("version_change_detected");
    RegressionRecord {
        baseline_run_id: text("baseline_run_id"),
        baseline_golden_set_version: text("baseline_golden_set_version"),
        comparison: Comparison {
            status: status.unwrap_or(RegressionStatus::New),
            suite_delta: block.number("suite_delta", ANY).unwrap_or(0.0),
            metric_deltas: numbers(&block.block("metric_deltas")),
            test_cases_excluded: block.texts("test_cases_excluded"),
            version_change_detected: changed.unwrap_or(false),
            metric_tolerances_applied: numbers(&block.block("metric_tolerances_applied")),
            case_deltas: deltas.collect(),
        },
    }
}
