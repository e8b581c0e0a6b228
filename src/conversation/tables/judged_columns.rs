//! From judged conversations to the columns of `judge_verdicts`, `judge_metric_scores` and `judge_outcomes` (as in Connexity).

use arrow::array::Int32Array;
use serde_json::json;

use crate::conversation::judged::JudgedConversation;
use crate::conversation::{Highlight, MetricScore, OutcomeResult, TokenUsage};
use crate::output::columns::{
    Column, booleans, column, integer_lists, integers, numbers, optional_texts, text_lists, texts,
};

/// What is the same for all conversations of a run.
#[derive(Clone, Debug)]
pub(in crate::conversation) struct RunFacts {
    /// The model asked, as in `openai/gpt-4o`.
    pub route: String,
    /// The bar of a verdict, 0 to 100.
    pub pass_threshold: f64,
}

/// The columns of some conversations; without any, they still have their names and types.
pub(in crate::conversation) type Columns = fn(&[JudgedConversation], &RunFacts) -> Vec<Column>;

/// Every table that has rows for each conversation.
pub(in crate::conversation) const TABLES: [(&str, Columns); 3] = [
    ("judge_verdicts", verdict_columns),
    ("judge_metric_scores", metric_columns),
    ("judge_outcomes", outcome_columns),
];

fn verdict_columns(rows: &[JudgedConversation], facts: &RunFacts) -> Vec<Column> {
    let verdicts = || rows.iter().map(|row| row.verdict.as_ref());
    let mut columns = keys(rows.iter());
    columns.extend(case_columns(rows));
    columns.extend([
        texts("status", rows.iter().map(|row| row.status.name())),
        texts("reason", rows.iter().map(|row| row.reason.as_str())),
        booleans("passed", verdicts().map(|v| Some(v?.passed))),
        numbers("overall_score", verdicts().map(|v| Some(v?.overall_score))),
        booleans("case_passed", rows.iter().map(|row| row.case_passed())),
        optional_texts(
            "judge_error",
            verdicts().map(|v| Some(v?.judge_error?.code())),
        ),
        numbers(
            "pass_threshold",
            rows.iter().map(|_| Some(facts.pass_threshold)),
        ),
        text_lists(
            "dropped_metrics",
            verdicts().map(|v| Some(v?.dropped_metrics.as_slice())),
        ),
    ]);
    let weakest = || verdicts().map(|v| v?.highlights.weakest.as_ref());
    let strongest = || verdicts().map(|v| v?.highlights.strongest.as_ref());
    columns.extend(highlight("weakest", weakest));
    columns.extend(highlight("strongest", strongest));
    columns.extend([
        text_lists(
            "failed_binary",
            verdicts().map(|v| Some(v?.highlights.failed_binary.as_slice())),
        ),
        optional_texts("raw_reply", verdicts().map(|v| v?.raw_reply.as_deref())),
    ]);
    columns.extend(recorded_columns(rows));
    columns.extend(answer_columns(rows, facts));
    columns
}

/// What the case is for people, and whether the conversation itself failed. Null where nothing was given, as with sessions
/// of traces.
fn case_columns(rows: &[JudgedConversation]) -> [Column; 4] {
    let recorded = || rows.iter().map(|row| &row.recorded);
    [
        optional_texts("name", recorded().map(|r| r.name.as_deref())),
        optional_texts("difficulty", recorded().map(|r| Some(r.difficulty?.name()))),
        text_lists(
            "tags",
            recorded().map(|r| Some(r.tags.as_slice()).filter(|tags| !tags.is_empty())),
        ),
        optional_texts("error", recorded().map(|r| r.error.as_deref())),
    ]
}

/// A metric that stands out, and its score.
fn highlight<'a, I: Iterator<Item = Option<&'a Highlight>>>(
    which: &str,
    found: impl Fn() -> I,
) -> [Column; 2] {
    [
        optional_texts(
            &format!("{which}_metric"),
            found().map(|h| Some(h?.metric.as_str())),
        ),
        integers(
            &format!("{which}_score"),
            found().map(|h| Some(i64::from(h?.score))),
        ),
    ]
}

/// What the conversation itself took; nothing of it is the judge's.
fn recorded_columns(rows: &[JudgedConversation]) -> Vec<Column> {
    let whole = |name: &str, of: fn(&JudgedConversation) -> Option<i64>| {
        integers(name, rows.iter().map(of))
    };
    let dollars =
        |name: &str, of: fn(&JudgedConversation) -> Option<f64>| numbers(name, rows.iter().map(of));
    let usage = |name: &str, of: fn(&JudgedConversation) -> Option<&TokenUsage>| {
        let found = rows.iter().map(|row| Some(json!(of(row)?).to_string()));
        let found: Vec<Option<String>> = found.collect();
        optional_texts(name, found.iter().map(Option::as_deref))
    };
    vec![
        whole("traces", |row| Some(row.traces? as i64)),
        whole("turns", |row| Some(row.turns as i64)),
        whole("agent_latency_p50_ms", |r| r.latency.agent_latency_p50_ms),
        whole("agent_latency_p95_ms", |r| r.latency.agent_latency_p95_ms),
        whole("agent_latency_max_ms", |r| r.latency.agent_latency_max_ms),
        whole("agent_latency_total_ms", |row| row.total_latency_ms),
        usage("agent_token_usage", |row| {
            row.recorded.agent_token_usage.as_ref()
        }),
        usage("platform_token_usage", |row| {
            row.recorded.platform_token_usage.as_ref()
        }),
        dollars("agent_cost_usd", |row| row.recorded.agent_cost_usd),
        dollars("platform_cost_usd", |row| row.recorded.platform_cost_usd),
    ]
}

/// What was asked and what the answer took.
fn answer_columns(rows: &[JudgedConversation], facts: &RunFacts) -> [Column; 10] {
    let answers = || rows.iter().map(|row| row.answer.as_ref());
    let usages = || answers().map(|answer| answer?.usage);
    let route = facts.route.as_str();
    let provider = route.split_once('/').map(|(provider, _)| provider);
    let hashes = rows.iter().map(|row| row.request_hash.as_ref());
    [
        texts("route", rows.iter().map(|_| route)),
        optional_texts("provider", rows.iter().map(|_| provider)),
        optional_texts("model", answers().map(|a| Some(a?.model.as_str()))),
        integers("latency_ms", answers().map(|a| a?.taken.latency_ms)),
        integers("prompt_tokens", usages().map(|u| whole(u?.prompt))),
        integers("completion_tokens", usages().map(|u| whole(u?.completion))),
        integers("total_tokens", usages().map(|u| whole(u?.total()))),
        integers("cached_prompt_tokens", usages().map(|u| whole(u?.cached))),
        numbers("cost_usd", answers().map(|a| a?.taken.cost)),
        optional_texts("request_hash", hashes.map(|hash| Some(hash?.as_str()))),
    ]
}

/// A count as tables hold it.
fn whole(count: u64) -> Option<i64> {
    i64::try_from(count).ok()
}

fn metric_columns(rows: &[JudgedConversation], _: &RunFacts) -> Vec<Column> {
    let found: Vec<(&JudgedConversation, &MetricScore)> = rows
        .iter()
        .flat_map(|row| {
            let verdict = row.verdict.iter();
            let scores = verdict.flat_map(|verdict| &verdict.metric_scores);
            scores.map(move |score| (row, score))
        })
        .collect();
    let scores = || found.iter().map(|(_, score)| *score);
    let mut columns = keys(found.iter().map(|(row, _)| *row));
    columns.extend([
        texts("metric", scores().map(|s| s.metric.as_str())),
        texts("tier", scores().map(|s| s.tier.name())),
        booleans("is_binary", scores().map(|s| Some(s.is_binary))),
        integers("score", scores().map(|s| Some(i64::from(s.score)))),
        texts("label", scores().map(|s| s.label.name())),
        numbers("weight", scores().map(|s| Some(s.weight))),
        texts("justification", scores().map(|s| s.justification.as_str())),
        optional_texts("failure_code", scores().map(|s| s.failure_code.as_deref())),
        integer_lists("turns", scores().map(|s| s.turns.as_slice())),
    ]);
    columns
}

fn outcome_columns(rows: &[JudgedConversation], _: &RunFacts) -> Vec<Column> {
    let found: Vec<(&JudgedConversation, &OutcomeResult)> = rows
        .iter()
        .flat_map(|row| {
            let verdict = row.verdict.iter();
            let results = verdict.filter_map(|v| v.expected_outcome_results.as_ref());
            results.flatten().map(move |result| (row, result))
        })
        .collect();
    let results = || found.iter().map(|(_, result)| *result);
    let mut columns = keys(found.iter().map(|(row, _)| *row));
    columns.extend([
        texts("statement", results().map(|r| r.statement.as_str())),
        booleans("passed", results().map(|r| Some(r.passed))),
        texts("justification", results().map(|r| r.justification.as_str())),
    ]);
    columns
}

/// What names a case result, in every table.
fn keys<'a>(rows: impl Iterator<Item = &'a JudgedConversation> + Clone) -> Vec<Column> {
    let repetitions: Vec<i32> = rows.clone().map(|row| row.repetition_index).collect();
    let projects = rows.clone().map(|row| row.key.project_id.as_deref());
    let sessions = rows.clone().map(|row| row.key.session_id.as_str());
    vec![
        optional_texts("project_id", projects),
        texts("session_id", sessions),
        texts("test_case", rows.map(|row| row.test_case.as_str())),
        column("repetition_index", false, Int32Array::from(repetitions)),
    ]
}
