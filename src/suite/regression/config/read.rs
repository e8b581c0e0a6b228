//! Reading a configuration: every fault with its path, unknown keys as warnings.

use std::path::Path;

use serde_json::Value;

use super::{
    BaselineStrategy, ClaimDepth, ColorChoice, FactualityConfig, FactualityMode, FormatConfig,
    GoldenSetEntry, JudgeEntry, MetricsConfig, NfrGates, OutputConfig, Part, QualityGates,
    RegressionConfig, RegressionGate, ReportFormat, SuiteConfig, ToneConfig, USUAL_CONCURRENCY,
};
use crate::metric::comparison::Compat;
use crate::suite::regression::file_fault::{Fault, FileError};
use crate::suite::regression::members::{Findings, Members, kind_of};
use crate::suite::regression::named::Named;
use crate::suite::regression::suite_metric::SuiteMetric;
use crate::suite::regression::whole_file::{sha256_hex, text_of, yaml_of};
use crate::text::nearest;

const SHARE: std::ops::RangeInclusive<f64> = 0.0..=1.0;
/// Larger ones leave no digits for the sums.
const WEIGHT: std::ops::RangeInclusive<f64> = 0.0..=1e9;
/// Most milliseconds that a call may be allowed: a day.
const MAX_TIMEOUT_MS: u64 = 86_400_000;
/// Keys of Regtrace that ask for what an offline evaluation does not do, and why nothing follows from them.
const WITHOUT_EFFECT: [(&str, &str); 2] = [
    (
        "generator",
        "outputs are not generated here; join a table of outputs instead",
    ),
    (
        "storage",
        "run records are files and result tables are Parquet; there is no database to configure",
    ),
];

/// A configuration with what reading it had to say.
#[derive(Clone, Debug)]
pub struct ReadConfig {
    /// What can be used.
    pub config: SuiteConfig,
    /// What a reader should know: unknown keys, keys without effect.
    pub warnings: Vec<Fault>,
    /// SHA-256 of the file, in hex.
    pub hash: String,
}

impl SuiteConfig {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`FileError`] names the file and every fault with its path, as in `metrics.regression.tolerance`.
    pub fn read(path: &Path) -> Result<ReadConfig, FileError> {
        let text = text_of(path, "YAML")?;
        Self::of_yaml(path, &text)
    }

    /// Checks the text of the configuration at `path`.
    ///
    /// # Errors
    /// As [`SuiteConfig::read`].
    pub fn of_yaml(path: &Path, text: &str) -> Result<ReadConfig, FileError> {
        let value = yaml_of(path, text)?;
        let findings = Findings::default();
        let config = config(&findings, &value);
        let warnings = findings.finish().map_err(FileError::faults(path))?;
        Ok(ReadConfig {
            config,
            warnings,
            hash: sha256_hex(text.as_bytes()),
        })
    }
}

fn config(findings: &Findings, value: &Value) -> SuiteConfig {
    let top = Members::of(findings, "", value);
    let project = top.block("project");
    let project_name = project.text("name").map(str::to_owned);
    let project_version = project.text("version").unwrap_or("1.0").to_owned();
    project.text("description");
    project.finish();
    let golden_sets = golden_sets(findings, &top);
    let metrics = metrics(findings, top.block("metrics"));
    let judge = top.block("judge");
    let primary_judge = judge.optional_block("primary").map(judge_entry);
    let fallback_judge = judge.optional_block("fallback").map(judge_entry);
    if primary_judge.is_none() && fallback_judge.is_some() {
        judge.fault("primary", "is missing; a fallback needs a first judge");
    }
    judge.finish();
    let run = top.block("run");
    let concurrency = run.whole("concurrency", 1..=20);
    run.finish();
    let quality_gates = quality_gates(findings, top.block("quality_gates"));
    let nfr_gates = top.optional_block("nfr_gates").map(nfr_gates);
    let output = output(top.block("output"));
    let compats = [Compat::Document, Compat::Tool].map(|of| (of.name(), of));
    let compat = top.choice("compat", &compats).unwrap_or_default();
    for (key, why) in WITHOUT_EFFECT {
        if top.value(key).is_some() {
            top.warn(key, format!("has no effect: {why}"));
        }
    }
    top.finish();
    SuiteConfig {
        project_name,
        project_version,
        golden_sets,
        metrics,
        primary_judge,
        fallback_judge,
        concurrency: concurrency
            .and_then(|cases| usize::try_from(cases).ok())
            .unwrap_or(USUAL_CONCURRENCY),
        quality_gates,
        nfr_gates,
        output,
        compat,
    }
}

fn golden_sets(findings: &Findings, top: &Members<'_>) -> Vec<GoldenSetEntry> {
    if top.value("golden_sets").is_none() {
        top.fault("golden_sets", "is missing; list the files of the suites");
        return Vec::new();
    }
    let mut sets = Vec::new();
    for (path, value) in top.list("golden_sets") {
        let entry = Members::of(findings, path, value);
        sets.push(GoldenSetEntry {
            path: entry.required_text("path").into(),
            alias: entry.text("alias").map(str::to_owned),
            enabled: entry.flag("enabled").unwrap_or(true),
            weight: entry.number("weight", WEIGHT).unwrap_or(1.0),
        });
        entry.finish();
    }
    let is_list = top.value("golden_sets").is_some_and(Value::is_array);
    if is_list && !sets.iter().any(|set| set.enabled) {
        top.fault("golden_sets", "has no enabled suite; enable at least one");
    }
    sets
}

fn metrics(findings: &Findings, block: Members<'_>) -> MetricsConfig {
    let default = MetricsConfig::default();
    let enabled = match block.value("enabled") {
        None => default.enabled,
        Some(_) => metric_names(findings, block.list("enabled")),
    };
    let default_threshold = block.number("default_threshold", SHARE);
    let default_weight = block.number("default_weight", WEIGHT);
    // The only method that there is; saying so is no fault.
    block.choice("scoring_method", &[("weighted_average", ())]);
    let mut weights = Named::default();
    let mut weigh = |metric: SuiteMetric, block: &Members<'_>| {
        if let Some(weight) = block.number("weight", WEIGHT) {
            weights.insert(metric.name(), weight);
        }
    };
    let of_metric = block.block("factuality");
    weigh(SuiteMetric::Factuality, &of_metric);
    let factuality = factuality(of_metric);
    let of_metric = block.block("format");
    weigh(SuiteMetric::Format, &of_metric);
    let format = format(of_metric);
    let of_metric = block.block("tone");
    weigh(SuiteMetric::Tone, &of_metric);
    let tone = tone(of_metric);
    let of_metric = block.block("regression");
    weigh(SuiteMetric::Regression, &of_metric);
    let regression = regression(findings, of_metric);
    block.finish();
    MetricsConfig {
        enabled,
        default_threshold: default_threshold.unwrap_or(default.default_threshold),
        default_weight: default_weight.unwrap_or(default.default_weight),
        weights,
        factuality,
        format,
        tone,
        regression,
    }
}

/// The metrics of a list; what is no metric is a fault.
pub(in super::super) fn metric_names(
    findings: &Findings,
    list: Vec<(String, &Value)>,
) -> Vec<SuiteMetric> {
    let mut metrics = Vec::new();
    for (path, item) in list {
        match item.as_str().and_then(SuiteMetric::of_name) {
            None => unknown_metric(findings, path, item),
            Some(metric) if metrics.contains(&metric) => {
                findings.warn(path, format!("`{}` is there twice", metric.name()));
            }
            Some(metric) => metrics.push(metric),
        }
    }
    metrics
}

fn unknown_metric(findings: &Findings, path: String, item: &Value) {
    let names = SuiteMetric::ALL.map(SuiteMetric::name);
    let near = nearest(item.as_str().unwrap_or_default(), names);
    let kind = kind_of(item);
    let known = names.join(", ");
    findings.fault(
        path,
        format!("is {kind}, no metric{near}; there are {known}"),
    );
}

/// Numbers by metric, each in the range. A null is left out.
pub(in super::super) fn by_metric(findings: &Findings, block: Members<'_>) -> Named<f64> {
    let mut numbers = Named::default();
    for name in block.few_names() {
        if SuiteMetric::of_name(name).is_none() {
            unknown_metric(findings, block.path_of(name), &Value::from(name));
        } else if let Some(number) = block.number(name, SHARE) {
            numbers.insert(name, number);
        }
    }
    numbers
}

fn factuality(block: Members<'_>) -> FactualityConfig {
    let modes = [
        ("strict", FactualityMode::Strict),
        ("lenient", FactualityMode::Lenient),
        ("json_structural", FactualityMode::JsonStructural),
    ];
    let depths = [("shallow", ClaimDepth::Shallow), ("deep", ClaimDepth::Deep)];
    let config = FactualityConfig {
        mode: block.choice("mode", &modes).unwrap_or_default(),
        claim_extraction_depth: block
            .choice("claim_extraction_depth", &depths)
            .unwrap_or_default(),
        rag_faithfulness_only: block.flag("rag_faithfulness_only").unwrap_or(false),
    };
    if config.rag_faithfulness_only && config.mode == FactualityMode::Strict {
        block.fault(
            "rag_faithfulness_only",
            "can't be `true` with `mode: strict`, which is the default; set `mode: lenient`",
        );
    }
    block.finish();
    config
}

fn parts<'a>(block: &Members<'a>, keys: [&'a str; 2], mut parts: Vec<Part>) -> Vec<Part> {
    let (on, weights) = (block.block(keys[0]), block.block(keys[1]));
    for part in &mut parts {
        part.enabled = on.flag(part.name).unwrap_or(true);
        part.weight = weights.number(part.name, WEIGHT).unwrap_or(1.0);
    }
    on.finish();
    weights.finish();
    parts
}

fn format(block: Members<'_>) -> FormatConfig {
    let default = FormatConfig::default();
    let keys = ["sub_checks", "sub_check_weights"];
    let config = FormatConfig {
        sub_checks: parts(&block, keys, default.sub_checks),
        length_tolerance: block
            .number("length_tolerance", SHARE)
            .unwrap_or(default.length_tolerance),
        strict_json: block.flag("strict_json").unwrap_or(default.strict_json),
    };
    block.finish();
    config
}

fn tone(block: Members<'_>) -> ToneConfig {
    let keys = ["sub_dimensions", "sub_dimension_weights"];
    let config = ToneConfig {
        tone_profile: block.text("tone_profile").map(str::to_owned),
        sub_dimensions: parts(&block, keys, ToneConfig::default().sub_dimensions),
    };
    block.finish();
    config
}

fn regression(findings: &Findings, block: Members<'_>) -> RegressionConfig {
    let default = RegressionConfig::default();
    let is_pinned = block
        .choice(
            "baseline_strategy",
            &[("last_passing", false), ("pinned", true)],
        )
        .unwrap_or(false);
    let pinned = block.text("pinned_run_id").filter(|id| !id.is_empty());
    if is_pinned && pinned.is_none() {
        block.fault(
            "pinned_run_id",
            "is missing; `baseline_strategy: pinned` needs the id of a run",
        );
    }
    let tolerance = block.number("tolerance", SHARE);
    let critical = block.number("critical_threshold", SHARE);
    let exclude = block.flag("exclude_new_test_cases");
    let fallback = block.text("fallback_baseline").map(str::to_owned);
    let config = RegressionConfig {
        enabled: block.flag("enabled").unwrap_or(default.enabled),
        strategy: match pinned.filter(|_| is_pinned) {
            Some(id) => BaselineStrategy::Pinned(id.to_owned()),
            None => BaselineStrategy::LastPassing,
        },
        tolerance: tolerance.unwrap_or(default.tolerance),
        critical_threshold: critical.unwrap_or(default.critical_threshold),
        metric_tolerances: by_metric(findings, block.block("metric_tolerances")),
        exclude_new_test_cases: exclude.unwrap_or(default.exclude_new_test_cases),
        branch_aware: block.flag("branch_aware").unwrap_or(default.branch_aware),
        fallback_baseline: fallback.unwrap_or(default.fallback_baseline),
    };
    if config.critical_threshold < config.tolerance {
        let problem = "is below `tolerance`: nothing is ever only a warning";
        block.warn("critical_threshold", problem);
    }
    block.finish();
    config
}

fn judge_entry(block: Members<'_>) -> JudgeEntry {
    let entry = JudgeEntry {
        provider: block.required_text("provider"),
        model: block.required_text("model"),
        temperature: block.number("temperature", 0.0..=2.0).unwrap_or(0.1),
        max_tokens: block.whole("max_tokens", 1..=10_000_000).unwrap_or(4096),
        timeout_ms: block
            .whole("timeout_ms", 1..=MAX_TIMEOUT_MS)
            .unwrap_or(30_000),
        retry_attempts: block.whole("retry_attempts", 0..=100).unwrap_or(3),
        local_endpoint: block.text("local_endpoint").map(str::to_owned),
    };
    block.finish();
    entry
}

fn quality_gates(findings: &Findings, block: Members<'_>) -> QualityGates {
    let default = QualityGates::default();
    let score = block.number("suite_score_minimum", SHARE);
    let failed = block.whole("max_failed_test_cases", 0..=u64::MAX);
    let doubtful = block.number("max_low_confidence_ratio", SHARE);
    let minimums = block.optional_block("metric_score_minimums");
    let regression_gate = match block.value("regression_gate") {
        None => RegressionGate::On,
        Some(Value::Bool(true)) => RegressionGate::On,
        Some(Value::Bool(false)) => RegressionGate::Off,
        Some(Value::String(text)) if text == "critical" => RegressionGate::OnlyCritical,
        Some(other) => {
            let kind = kind_of(other);
            let problem = format!("is {kind}; write `true`, `false` or `critical`");
            block.fault("regression_gate", problem);
            RegressionGate::On
        }
    };
    let gates = QualityGates {
        suite_score_minimum: score.unwrap_or(default.suite_score_minimum),
        metric_score_minimums: minimums.map(|block| by_metric(findings, block)),
        max_failed_test_cases: failed.unwrap_or(default.max_failed_test_cases),
        max_low_confidence_ratio: doubtful.unwrap_or(default.max_low_confidence_ratio),
        regression_gate,
    };
    block.finish();
    gates
}

fn nfr_gates(block: Members<'_>) -> NfrGates {
    let gates = NfrGates {
        max_latency_ms: block.whole("max_latency_ms", 0..=u64::MAX),
        max_cost_usd: block.number("max_cost_usd", WEIGHT),
        min_coverage: block.number("min_coverage", SHARE),
    };
    block.finish();
    gates
}

fn output(block: Members<'_>) -> OutputConfig {
    let default = OutputConfig::default();
    let formats = [
        ("terminal", ReportFormat::Terminal),
        ("json", ReportFormat::Json),
        ("markdown", ReportFormat::Markdown),
    ];
    let colors = [
        ("auto", ColorChoice::Auto),
        ("always", ColorChoice::Always),
        ("never", ColorChoice::Never),
    ];
    let limit = block.whole("run_history_limit", 1..=1_000_000);
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let format = block.choice("default_format", &formats);
    let detect = block.flag("ci_mode_auto_detect");
    let config = OutputConfig {
        run_history_limit: limit.unwrap_or(default.run_history_limit),
        default_format: format.unwrap_or(default.default_format),
        color: block.choice("color", &colors).unwrap_or(default.color),
        report_path: block.text("report_path").map(Into::into),
        ci_mode_auto_detect: detect.unwrap_or(default.ci_mode_auto_detect),
    };
    block.finish();
    config
}
