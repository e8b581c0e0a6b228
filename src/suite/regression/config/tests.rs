use std::path::Path;

use super::*;

const FILE: &str = "regtrace.config.yaml";

fn read(text: &str) -> Result<ReadConfig, String> {
    SuiteConfig::of_yaml(Path::new(FILE), text).map_err(|e| e.to_string())
}

const SETS: &str = "golden_sets:\n  - path: suites/qa.yaml\n";

fn fault(text: &str) -> String {
    read(&format!("{SETS}{text}")).unwrap_err()
}

#[test]
fn the_shortest_configuration_has_the_documented_defaults() {
    let read = read(SETS).unwrap();
    assert_eq!(read.warnings, []);
    let config = read.config;
    assert_eq!(config.project_version, "1.0");
    assert_eq!(config.metrics, MetricsConfig::default());
    assert_eq!(config.metrics.enabled.len(), 4);
    assert_eq!(config.metrics.weight_of("tone"), 1.0);
    assert_eq!(config.concurrency, 4);
    assert_eq!(config.quality_gates, QualityGates::default());
    assert_eq!(config.nfr_gates, None);
    assert_eq!(config.output, OutputConfig::default());
    assert_eq!(config.compat, Compat::Document);
    assert_eq!(config.golden_sets[0].weight, 1.0);
    assert!(config.golden_sets[0].enabled);
    assert_eq!(read.hash.len(), 64);
}

/// Every key that the tool's own configurations have, at values that are not the defaults.
#[test]
fn a_whole_configuration_of_the_tool_loads() {
    let text = r#"
project:
  name: support
  version: "2.0"
  description: what it is for
golden_sets:
  - path: golden-sets/qa.yaml
    alias: qa
    enabled: true
    weight: 2
    store_in_db: true
  - path: golden-sets/rag.yaml
    enabled: false
metrics:
  enabled: [format, factuality]
  default_threshold: 0.8
  default_weight: 2
  factuality: { mode: lenient, claim_extraction_depth: deep, rag_faithfulness_only: true, weight: 3 }
  format:
    sub_checks: { length: true, json_validity: false }
    sub_check_weights: { length: 2 }
    length_tolerance: 0.3
    strict_json: true
  tone:
    tone_profile: "calm"
    sub_dimensions: { verbosity: false }
    sub_dimension_weights: { formality: 1.5 }
  regression:
    enabled: true
    baseline_strategy: pinned
    pinned_run_id: run_20260101_abc123
    tolerance: 0.03
    critical_threshold: 0.1
    metric_tolerances: { format: 0, factuality: 0.1 }
    exclude_new_test_cases: false
    branch_aware: false
    fallback_baseline: develop
judge:
  primary: { provider: anthropic, model: m, temperature: 0.2, max_tokens: 1, timeout_ms: 2, retry_attempts: 0 }
  fallback: { provider: ollama, model: n, local_endpoint: "http://localhost:1" }
  cost_controls: { max_tokens_per_run: 100000, warn_at_tokens: 80000 }
generator: { provider: anthropic, model: m }
run: { concurrency: 1 }
nfr_gates: { max_latency_ms: 30000, max_cost_usd: 0.50, min_coverage: 0.8 }
quality_gates:
  suite_score_minimum: 0.75
  metric_score_minimums: { factuality: 0.85 }
  max_failed_test_cases: 1
  max_low_confidence_ratio: 0.2
  regression_gate: critical
output:
  run_history_limit: 7
  default_format: markdown
  color: never
  report_path: out/report.md
  ci_mode_auto_detect: false
storage:
  db: { enabled: false, path: .regtrace/regtrace.db }
compat: tool
"#;
    let read = read(text).unwrap();
    let warned: Vec<&str> = read.warnings.iter().map(|w| w.path.as_str()).collect();
    let expected = [
        "golden_sets[0].store_in_db",
        "judge.cost_controls",
        "generator",
        "storage",
    ];
    assert_eq!(warned, expected);
    let config = read.config;
    let metrics = &config.metrics;
    assert_eq!(metrics.weight_of("factuality"), 3.0);
    assert_eq!(metrics.weight_of("format"), 2.0);
    assert_eq!(metrics.factuality.mode, FactualityMode::Lenient);
    assert_eq!(metrics.factuality.claim_extraction_depth, ClaimDepth::Deep);
    assert!(metrics.factuality.rag_faithfulness_only);
    assert!(!metrics.format.sub_checks[1].enabled);
    assert_eq!(metrics.format.sub_checks[0].weight, 2.0);
    assert!(metrics.format.strict_json);
    assert_eq!(metrics.tone.tone_profile.as_deref(), Some("calm"));
    assert_eq!(metrics.tone.sub_dimensions[0].weight, 1.5);
    assert!(!metrics.tone.sub_dimensions[4].enabled);
    let pinned = BaselineStrategy::Pinned("run_20260101_abc123".to_owned());
    assert_eq!(metrics.regression.strategy, pinned);
    assert_eq!(
        metrics.regression.metric_tolerances.get("format"),
        Some(&0.0)
    );
    assert!(!metrics.regression.exclude_new_test_cases);
    assert!(!metrics.regression.branch_aware);
    assert_eq!(metrics.regression.fallback_baseline, "develop");
    assert_eq!(config.primary_judge.unwrap().retry_attempts, 0);
    let fallback = config.fallback_judge.unwrap();
    assert_eq!((fallback.temperature, fallback.timeout_ms), (0.1, 30_000));
    assert_eq!(
        fallback.local_endpoint.as_deref(),
        Some("http://localhost:1")
    );
    assert_eq!(config.concurrency, 1);
    let gates = config.quality_gates;
    assert_eq!(gates.regression_gate, RegressionGate::OnlyCritical);
    assert_eq!(gates.metric_score_minimums.unwrap().len(), 1);
    assert_eq!(config.nfr_gates.unwrap().max_cost_usd, Some(0.5));
    assert_eq!(config.output.default_format, ReportFormat::Markdown);
    assert_eq!(config.output.color, ColorChoice::Never);
    assert_eq!(config.compat, Compat::Tool);
}

#[test]
fn all_faults_are_listed_with_their_paths() {
    let told = fault(
        "metrics:\n  enabled: [format, tonne]\n  regression: { tolerance: 2, metric_tolerances: { style: 1 } }\n\
         run: { concurrency: 21 }\njudge: { primary: { provider: x } }\n",
    );
    for line in [
        "`regtrace.config.yaml` can't be used:",
        "metrics.enabled[1]: is the text `tonne`, no metric (did you mean `tone`?)",
        "metrics.regression.tolerance: is the number 2; write a number from 0 to 1",
        "metrics.regression.metric_tolerances.style: ",
        "run.concurrency: is the number 21; write a whole number from 1 to 20",
        "judge.primary.model: is missing",
    ] {
        assert!(told.contains(line), "{line} is not in {told}");
    }
}

#[test]
fn settings_that_exclude_each_other_are_faults() {
    let told = fault("metrics: { factuality: { rag_faithfulness_only: true } }\n");
    assert!(
        told.contains("metrics.factuality.rag_faithfulness_only"),
        "{told}"
    );
    let told = fault("metrics: { regression: { baseline_strategy: pinned } }\n");
    assert!(
        told.contains("metrics.regression.pinned_run_id: is missing"),
        "{told}"
    );
    let told = read("golden_sets: [{path: a, enabled: false}]").unwrap_err();
    assert!(told.contains("golden_sets: has no enabled suite"), "{told}");
    let told = read("metrics: {}").unwrap_err();
    assert!(told.contains("golden_sets: is missing"), "{told}");
    assert!(
        read("golden_sets: {path: a}")
            .unwrap_err()
            .contains("write a list")
    );
}

#[test]
fn a_scoring_method_other_than_the_weighted_average_is_a_fault() {
    let told = fault("metrics: { scoring_method: median }\n");
    assert!(told.contains("metrics.scoring_method"), "{told}");
}

#[test]
fn unknown_keys_are_warnings_with_the_nearest_key() {
    let read = read(&format!("{SETS}metrics: {{ default_treshold: 0.9 }}\n")).unwrap();
    assert_eq!(
        read.warnings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        [
            "metrics.default_treshold: is no key that is known (did you mean `default_threshold`?); it is ignored"
        ]
    );
    assert_eq!(read.config.metrics.default_threshold, 0.7);
}

#[test]
fn choosing_suites_restricts_the_run() {
    let text = "golden_sets:\n  - {path: ./a.yaml, alias: first}\n  - {path: b.yaml}\n  \
                - {path: c.yaml, enabled: false}\n";
    let config = read(text).unwrap().config;
    let chosen = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&n| n.to_owned()).collect();
        config.chosen_sets(&names).map(|sets| {
            let paths = sets.iter().map(|set| set.path.display().to_string());
            paths.collect::<Vec<_>>()
        })
    };
    assert_eq!(chosen(&[]).unwrap(), ["./a.yaml", "b.yaml"]);
    assert_eq!(chosen(&["first"]).unwrap(), ["./a.yaml"]);
    assert_eq!(
        chosen(&["./b.yaml", "a.yaml"]).unwrap(),
        ["./a.yaml", "b.yaml"]
    );
    assert_eq!(
        chosen(&["c.yaml"]),
        Err(UnknownSet::Disabled("c.yaml".to_owned()))
    );
    let told = chosen(&["frist"]).unwrap_err().to_string();
    assert!(told.contains("did you mean `first`"), "{told}");
    let file = config.golden_sets[1].file(Path::new("/p/regtrace.config.yaml"));
    assert_eq!(file, Path::new("/p/b.yaml"));
}
