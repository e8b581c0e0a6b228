//! What a suite must hold to, and what a build system is told (as in Regtrace).

use serde_json::{Value, json};

use super::compare::RegressionStatus;
use super::config::{NfrGates, QualityGates, RegressionGate};
use super::members::{Findings, Members};
use super::named::Named;
use super::record::{CaseRecord, RunRecord};
use super::sum::{count, share, sum};
use crate::metric::comparison::Compat;

/// A metric is doubtful below this confidence.
const LOW_CONFIDENCE: f64 = 0.5;
const CENTS_PER_DOLLAR: f64 = 100.0;
/// Variables that build systems set.
const CI_VARIABLES: [&str; 4] = ["CI", "GITHUB_ACTIONS", "GITLAB_CI", "CIRCLECI"];

/// What a gate says.
#[derive(Clone, Debug, PartialEq)]
pub struct GateResult {
    /// Whether it holds.
    pub passed: bool,
    /// What was measured, in the unit of the bar; none where it is no number or not known.
    pub actual: Option<f64>,
    /// The bar.
    pub required: Option<f64>,
    /// What was measured and what is required, for a reader.
    pub message: String,
}

/// What all gates of a suite say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GateResults {
    /// Whether all of them hold.
    pub passed: bool,
    /// The configured ones: `suite_score`, `max_failed_cases`, `max_low_confidence`, `metric_scores`, `regression`,
    /// `nfr`, `nfr.latency`, `nfr.cost`, `nfr.coverage`.
    pub gates: Named<GateResult>,
    /// Metrics below their lowest mean score, in the order of the configuration.
    pub failed_metrics: Vec<String>,
    /// The share of cases with a doubtful metric, 0 to 1.
    pub low_confidence_ratio: f64,
    /// How many cases failed outright.
    pub failed_cases: usize,
}

/// Holds a run to its gates.
pub fn check_gates(
    record: &RunRecord,
    quality: &QualityGates,
    nfr: Option<&NfrGates>,
) -> GateResults {
    let mut gates = Named::default();
    let score = record.head.suite_score;
    let minimum = quality.suite_score_minimum;
    let compared = |passed, actual: f64, required: f64, message: String| GateResult {
        passed,
        actual: Some(actual),
        required: Some(required),
        message,
    };
    gates.insert(
        "suite_score",
        compared(
            score >= minimum,
            score,
            minimum,
            format!("suite score {score:.3}, at least {minimum} required"),
        ),
    );
    let failed_cases = record.severity_counts().fail;
    let most = quality.max_failed_test_cases;
    gates.insert(
        "max_failed_cases",
        GateResult {
            passed: u64::try_from(failed_cases).unwrap_or(u64::MAX) <= most,
            actual: Some(count(failed_cases)),
            required: Some(usize::try_from(most).map_or(f64::INFINITY, count)),
            message: format!("{failed_cases} cases failed outright, at most {most} allowed"),
        },
    );
    let is_doubtful = |of: &&CaseRecord| {
        let mut results = of.case.results.values();
        results.any(|result| result.confidence < LOW_CONFIDENCE)
    };
    let doubtful = record.cases.iter().filter(is_doubtful).count();
    let ratio = share(doubtful, record.cases.len());
    let most = quality.max_low_confidence_ratio;
    gates.insert(
        "max_low_confidence",
        compared(
            ratio <= most,
            ratio,
            most,
            format!("{ratio:.3} of the cases are doubtful, at most {most} allowed"),
        ),
    );
    let mut failed_metrics = Vec::new();
    if let Some(minimums) = &quality.metric_score_minimums {
        failed_metrics = below_minimum(record, minimums);
        gates.insert("metric_scores", metric_gate(&failed_metrics));
    }
    if let Some(passed) = regression_gate(record, quality.regression_gate) {
        let status = record.regression.comparison.status.name();
        gates.insert("regression", without_number(passed, status.to_owned()));
    }
    if let Some(nfr) = nfr {
        nfr_gates(record, nfr, &mut gates);
    }
    let passed = gates.values().all(|gate: &GateResult| gate.passed);
    GateResults {
        passed,
        gates,
        failed_metrics,
        low_confidence_ratio: ratio,
        failed_cases,
    }
}

fn without_number(passed: bool, message: String) -> GateResult {
    GateResult {
        passed,
        actual: None,
        required: None,
        message,
    }
}

/// Metrics below their minimum; those that no case has say nothing.
fn below_minimum(record: &RunRecord, minimums: &Named<f64>) -> Vec<String> {
    let summary = &record.head.metric_summary;
    let below = minimums.iter().filter(|(name, minimum)| {
        let found = summary.get(name);
        found.is_some_and(|of| of.score < **minimum)
    });
    below.map(|(name, _)| name.to_owned()).collect()
}

fn metric_gate(failed: &[String]) -> GateResult {
    let message = match failed.is_empty() {
        true => "all metrics reach their minimum".to_owned(),
        false => format!("below their minimum: {}", failed.join(", ")),
    };
    without_number(failed.is_empty(), message)
}

fn regression_gate(record: &RunRecord, gate: RegressionGate) -> Option<bool> {
    let status = record.regression.comparison.status;
    match gate {
        RegressionGate::Off => None,
        RegressionGate::On => Some(status <= RegressionStatus::Clean),
        RegressionGate::OnlyCritical => Some(status < RegressionStatus::Critical),
    }
}

fn nfr_gates(record: &RunRecord, nfr: &NfrGates, gates: &mut Named<GateResult>) {
    let mut parts: Vec<(&str, GateResult)> = Vec::new();
    if let Some(most) = nfr.max_latency_ms {
        let took = record.head.duration_ms;
        parts.push((
            "nfr.latency",
            GateResult {
                passed: took <= most,
                actual: Some(took as f64),
                required: Some(most as f64),
                message: format!("took {took} ms, at most {most} ms allowed"),
            },
        ));
    }
    if let Some(most) = nfr.max_cost_usd {
        parts.push(("nfr.cost", cost_gate(record, most)));
    }
    if let Some(least) = nfr.min_coverage {
        let coverage = share(record.passed_cases(), record.cases.len());
        parts.push((
            "nfr.coverage",
            GateResult {
                passed: coverage >= least,
                actual: Some(coverage),
                required: Some(least),
                message: format!("{coverage:.3} of the cases passed, at least {least} required"),
            },
        ));
    }
    let failed = parts.iter().filter(|(_, gate)| !gate.passed).count();
    let message = match failed {
        0 => "time, cost and coverage hold".to_owned(),
        failed => format!("{failed} of {} fail", parts.len()),
    };
    gates.insert("nfr", without_number(failed == 0, message));
    for (name, gate) in parts {
        gates.insert(name, gate);
    }
}

/// A cost that is not known can't be said to stay below a bar: the gate fails.
fn cost_gate(record: &RunRecord, most: f64) -> GateResult {
    let results = record.cases.iter().flat_map(|of| of.case.results.values());
    let costs: Vec<Option<f64>> = results.map(|of| of.token_cost).collect();
    let unknown = costs.iter().filter(|cost| cost.is_none()).count();
    let known = costs.into_iter().flatten().collect();
    let dollars = sum(known, Compat::Document) / CENTS_PER_DOLLAR;
    let message = match unknown {
        0 => format!("judges cost {dollars:.4} $, at most {most} $ allowed"),
        unknown => format!(
            "the cost of {unknown} results is not known; give the price of the judge's model \
             (known: {dollars:.4} $, at most {most} $ allowed)"
        ),
    };
    GateResult {
        passed: unknown == 0 && dollars <= most,
        actual: (unknown == 0).then_some(dollars),
        required: Some(most),
        message,
    }
}

impl GateResults {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        let gates = self.gates.iter().map(|(name, gate)| {
            let json = json!({
                "passed": gate.passed,
                "actual": gate.actual,
                "required": gate.required,
                "message": gate.message,
            });
            (name.to_owned(), json)
        });
        json!({
            "passed": self.passed,
            "gates": Value::Object(gates.collect()),
            "failed_metrics": self.failed_metrics,
            "low_confidence_ratio": self.low_confidence_ratio,
            "failed_cases": self.failed_cases,
        })
    }

    /// Those of a record.
    pub(super) fn of_members(findings: &Findings, block: &Members<'_>) -> Self {
        let any = f64::MIN..=f64::MAX;
        let of_gates = block.block("gates");
        let mut gates = Named::default();
        for name in of_gates.few_names() {
            let Some(value) = of_gates.value(name) else {
                continue;
            };
            let gate = Members::of(findings, of_gates.path_of(name), value);
            let result = GateResult {
                passed: gate.flag("passed").unwrap_or(false),
                actual: gate.number("actual", any.clone()),
                required: gate.number("required", any.clone()),
                message: gate.text("message").unwrap_or_default().to_owned(),
            };
            gates.insert(name, result);
        }
        let failed = block.whole("failed_cases", 0..=u64::MAX).unwrap_or(0);
        Self {
            passed: block.flag("passed").unwrap_or(false),
            gates,
            failed_metrics: block.texts("failed_metrics"),
            low_confidence_ratio: block.number("low_confidence_ratio", any).unwrap_or(0.0),
            failed_cases: usize::try_from(failed).unwrap_or(usize::MAX),
        }
    }
}

/// Whether gates decide the exit code: asked for (`Some`), or found in the environment where that is on. `variable`
/// reads an environment variable.
pub fn is_ci(
    asked: Option<bool>,
    auto_detect: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> bool {
    let is_set = |name: &str| {
        variable(name).is_some_and(|value| !["", "0", "false"].contains(&value.as_str()))
    };
    asked.unwrap_or_else(|| auto_detect && CI_VARIABLES.iter().any(|name| is_set(name)))
}

/// 0 if all suites hold to their gates or nobody asked, 1 otherwise. (2, a fault of configuration or data, is not
/// decided here: nothing was evaluated then.)
pub fn exit_code(passed: bool, ci: bool) -> u8 {
    u8::from(ci && !passed)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{against, record};
    use super::*;

    #[test]
    fn the_regression_gate_can_be_relaxed() {
        let first = record("run_20260601_aaaaaa", &[("a", 1.0)]);
        let passed = |score: f64, gate| {
            let of = against(Some(&first), "run_20260602_bbbbbb", &[("a", score)]);
            let quality = QualityGates {
                regression_gate: gate,
                ..QualityGates::default()
            };
            check_gates(&of, &quality, None).passed
        };
        assert!(!passed(0.9, RegressionGate::On));
        assert!(passed(0.9, RegressionGate::OnlyCritical));
        assert!(!passed(0.8, RegressionGate::OnlyCritical));
        assert!(passed(0.8, RegressionGate::Off));
        assert!(passed(1.0, RegressionGate::On));
    }

    #[test]
    fn a_cost_that_is_not_known_fails_its_gate() {
        let mut of = record("run_20260601_aaaaaa", &[("a", 1.0)]);
        let nfr = NfrGates {
            max_cost_usd: Some(1.0),
            ..NfrGates::default()
        };
        let gate = |of: &RunRecord| {
            let gates = check_gates(of, &QualityGates::default(), Some(&nfr)).gates;
            gates.get("nfr.cost").unwrap().clone()
        };
        assert!(gate(&of).passed);
        let mut result = of.cases[0].case.results.get("format").unwrap().clone();
        result.token_cost = None;
        of.cases[0].case.results.insert("format", result);
        let told = gate(&of);
        assert!(!told.passed && told.actual.is_none(), "{told:?}");
        assert!(told.message.contains("1 results is not known"), "{told:?}");
    }

    #[test]
    fn build_systems_are_found_in_the_environment() {
        let env = |name: &str, value: &str| {
            let (name, value) = (name.to_owned(), value.to_owned());
            move |asked: &str| (asked == name).then(|| value.clone())
        };
        assert!(is_ci(None, true, env("GITLAB_CI", "true")));
        assert!(is_ci(None, true, env("CI", "1")));
        assert!(!is_ci(None, true, env("CI", "false")));
        assert!(!is_ci(None, true, env("HOME", "1")));
        assert!(!is_ci(None, false, env("CI", "true")));
        assert!(!is_ci(Some(false), true, env("CI", "true")));
        assert!(is_ci(Some(true), false, |_| None));
        assert_eq!([exit_code(false, true), exit_code(true, true)], [1, 0]);
        assert_eq!(exit_code(false, false), 0);
    }
}
