//! The columns of `run_summary`: the figures of a run as a table of one row (as in Connexity).

use serde_json::json;

use crate::conversation::{RunSummary, TokenUsage};
use crate::output::columns::{Column, booleans, integers, numbers, optional_texts};

/// One column for each figure, in the order of the figures in JSON. Sums of tokens are JSON objects.
pub(in crate::conversation) fn summary_columns(summary: &RunSummary) -> Vec<Column> {
    let count = |name: &str, value: usize| integers(name, std::iter::once(Some(value as i64)));
    let number = |name: &str, value: Option<f64>| numbers(name, std::iter::once(value));
    let flag = |name: &str, value: Option<bool>| booleans(name, std::iter::once(value));
    let usage = |name: &str, value: &Option<TokenUsage>| {
        let json = value.as_ref().map(|usage| json!(usage).to_string());
        optional_texts(name, std::iter::once(json.as_deref()))
    };
    let s = summary;
    vec![
        count("unique_test_case_count", s.unique_test_case_count),
        count("total_executions", s.total_executions),
        count("passed_count", s.passed_count),
        count("failed_count", s.failed_count),
        count("error_count", s.error_count),
        count("judge_error_count", s.judge_error_count),
        number("pass_rate", Some(s.pass_rate)),
        number("latency_p50_ms", s.latency_p50_ms),
        number("latency_p95_ms", s.latency_p95_ms),
        number("latency_max_ms", s.latency_max_ms),
        number("latency_avg_ms", s.latency_avg_ms),
        usage("total_agent_token_usage", &s.total_agent_token_usage),
        usage("total_platform_token_usage", &s.total_platform_token_usage),
        number("total_agent_cost_usd", s.total_agent_cost_usd),
        number("total_platform_cost_usd", s.total_platform_cost_usd),
        number("total_estimated_cost_usd", s.total_estimated_cost_usd),
        number("avg_overall_score", s.avg_overall_score),
        number("weighted_metrics_score_pct", s.weighted_metrics_score_pct),
        number("avg_judged_score", s.avg_judged_score),
        number("pass_threshold", Some(s.pass_threshold)),
        number("metrics_pass_threshold", s.metrics_pass_threshold),
        flag("metrics_passed", s.metrics_passed),
        number("cases_pass_rate_pct", s.cases_pass_rate_pct),
        number("cases_pass_threshold", s.cases_pass_threshold),
        flag("cases_passed", s.cases_passed),
    ]
}
