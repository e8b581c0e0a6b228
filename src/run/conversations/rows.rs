//! The tables of judged conversations: `judge_verdicts`, `judge_metric_scores`, `judge_outcomes`, `run_summary`, and the
//! conversations' part of `scores` (specification of conversations, section 14).

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int32Array, Int32Builder, Int64Array, ListBuilder,
    RecordBatch, StringArray, StringBuilder,
};
use arrow::datatypes::{Field, Schema, SchemaRef};
use serde_json::{Value, json};

use crate::judge::conversation::{MetricScore, OutcomeResult, RunSummary, TokenUsage, Verdict};
use crate::metric::CONVERSATION;
use crate::run::conversations::{ConversationRequest, JudgedConversation};
use crate::run::score_rows::{ScoreRow, ScoreRows, scores_schema};
use crate::run::table_writer::{TableWriter, part_path};
use crate::run::{Rules, RunDirectory, RunError};

/// Conversations that are written together.
const ROWS_AT_ONCE: usize = 512;

/// A column with its name and type, so that each column is described in one place.
type Column = (Field, ArrayRef);

/// Writes judged conversations in the order given.
pub(in crate::run) struct ConversationTables {
    verdicts: TableWriter,
    metric_scores: TableWriter,
    outcomes: TableWriter,
    /// Aside until the other scores are written; see [`ConversationScores`].
    scores: TableWriter,
    rules: Rules,
    route: String,
    pass_threshold: f64,
    waiting: Vec<JudgedConversation>,
}

impl ConversationTables {
    pub fn create(
        run: &RunDirectory,
        rules: &Rules,
        request: &ConversationRequest,
    ) -> Result<Self, RunError> {
        let pass_threshold = request.judge.config().pass_threshold;
        let table = |name: &str, columns: Vec<Column>| {
            TableWriter::create(run.path(), name, schema_of(&columns))
        };
        Ok(Self {
            verdicts: table("judge_verdicts", verdict_columns(&[], "", pass_threshold))?,
            metric_scores: table("judge_metric_scores", metric_columns(&[]))?,
            outcomes: table("judge_outcomes", outcome_columns(&[]))?,
            scores: TableWriter::create(&run.work(), "conversation_scores", scores_schema())?,
            rules: rules.clone(),
            route: request.model.clone(),
            pass_threshold,
            waiting: Vec::new(),
        })
    }

    pub fn push(&mut self, conversation: JudgedConversation) -> Result<(), RunError> {
        self.waiting.push(conversation);
        match self.waiting.len() < ROWS_AT_ONCE {
            true => Ok(()),
            false => self.write(),
        }
    }

    fn write(&mut self) -> Result<(), RunError> {
        let waiting = std::mem::take(&mut self.waiting);
        let verdicts = verdict_columns(&waiting, &self.route, self.pass_threshold);
        self.verdicts.write(&batch_of(verdicts)?)?;
        let metric_scores = metric_columns(&waiting);
        self.metric_scores.write(&batch_of(metric_scores)?)?;
        let outcomes = outcome_columns(&waiting);
        self.outcomes.write(&batch_of(outcomes)?)?;
        let mut scores = ScoreRows::new(None, &self.rules);
        for conversation in &waiting {
            push_score(&mut scores, conversation, &self.rules, &self.route);
        }
        let scores = scores.finish().map_err(|e| not_built(&e))?;
        self.scores.write(&scores)
    }

    /// Closes the tables, and writes the figures of the run as a table of one row.
    pub fn finish(
        mut self,
        run: &RunDirectory,
        summary: &RunSummary,
    ) -> Result<ConversationScores, RunError> {
        self.write()?;
        self.verdicts.finish()?;
        self.metric_scores.finish()?;
        self.outcomes.finish()?;
        write_summary(run, summary)?;
        let folder = self.scores.folder().to_owned();
        let last_part = self.scores.finish()?;
        Ok(ConversationScores { folder, last_part })
    }
}

/// Scores of conversations that wait for the other scores of the run.
#[derive(Debug)]
pub(in crate::run) struct ConversationScores {
    folder: PathBuf,
    last_part: u64,
}

impl ConversationScores {
    /// Makes them the last parts of `scores`, which must be finished.
    pub fn append(&self, run: &RunDirectory) -> Result<(), RunError> {
        let target = run.path().join("scores");
        std::fs::create_dir_all(&target).map_err(|e| RunError::write(&target, e))?;
        let mut next = 0;
        while part_path(&target, next).exists() {
            next += 1;
        }
        for part in 0..=self.last_part {
            let path = part_path(&target, next + part);
            std::fs::rename(part_path(&self.folder, part), &path)
                .map_err(|e| RunError::write(&path, e))?;
        }
        Ok(())
    }
}

/// The session's row in `scores`. A verdict without scores has no score here: a failed judge is no low score.
fn push_score(rows: &mut ScoreRows, judged: &JudgedConversation, rules: &Rules, route: &str) {
    let score = judged.score();
    let session_id = judged.key.session_id.as_str();
    let verdict = judged.verdict.as_ref();
    let metadata = verdict.map_or_else(|| "{}".to_owned(), |v| metadata_of(v, judged.turns));
    rows.push(&ScoreRow {
        target_type: "session",
        target_id: session_id,
        session_id: Some(session_id),
        project_id: judged.key.project_id.as_deref(),
        metric: CONVERSATION,
        score_raw: score,
        status: judged.status.name(),
        threshold: score.map(|_| rules.threshold(CONVERSATION)),
        passed: verdict.filter(|_| score.is_some()).map(|v| v.passed),
        reason: &judged.reason,
        metadata: &metadata,
        evaluated_traces: judged.traces.map(|count| count as i64),
        environment: None,
        judge: Some(route),
    });
}

fn metadata_of(verdict: &Verdict, turns: usize) -> String {
    let signals: serde_json::Map<String, Value> = verdict
        .signals()
        .into_iter()
        .map(|(name, value)| (name, json!(value)))
        .collect();
    let metadata = json!({
        "judge_error": verdict.judge_error.map(|fault| fault.code()),
        "pass_threshold": verdict.pass_threshold,
        "turns": turns,
        "signals": signals,
    });
    metadata.to_string()
}

fn verdict_columns(rows: &[JudgedConversation], route: &str, pass_threshold: f64) -> Vec<Column> {
    let verdicts = || rows.iter().map(|row| row.verdict.as_ref());
    let weakest = || verdicts().map(|v| v?.highlights.weakest.as_ref());
    let strongest = || verdicts().map(|v| v?.highlights.strongest.as_ref());
    let mut columns = keys(rows.iter());
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
        numbers("pass_threshold", rows.iter().map(|_| Some(pass_threshold))),
        text_lists(
            "dropped_metrics",
            verdicts().map(|v| Some(v?.dropped_metrics.as_slice())),
        ),
        optional_texts(
            "weakest_metric",
            weakest().map(|h| Some(h?.metric.as_str())),
        ),
        integers(
            "weakest_score",
            weakest().map(|h| Some(i64::from(h?.score))),
        ),
        optional_texts(
            "strongest_metric",
            strongest().map(|h| Some(h?.metric.as_str())),
        ),
        integers(
            "strongest_score",
            strongest().map(|h| Some(i64::from(h?.score))),
        ),
        text_lists(
            "failed_binary",
            verdicts().map(|v| Some(v?.highlights.failed_binary.as_slice())),
        ),
        optional_texts("raw_reply", verdicts().map(|v| v?.raw_reply.as_deref())),
        integers(
            "traces",
            rows.iter().map(|row| row.traces.map(|count| count as i64)),
        ),
        integers("turns", rows.iter().map(|row| Some(row.turns as i64))),
        integers(
            "agent_latency_p50_ms",
            rows.iter().map(|row| row.latency.agent_latency_p50_ms),
        ),
        integers(
            "agent_latency_p95_ms",
            rows.iter().map(|row| row.latency.agent_latency_p95_ms),
        ),
        integers(
            "agent_latency_max_ms",
            rows.iter().map(|row| row.latency.agent_latency_max_ms),
        ),
        integers(
            "agent_latency_total_ms",
            rows.iter().map(|row| row.total_latency_ms),
        ),
    ]);
    columns.extend(answer_columns(rows, route));
    columns
}

/// What was asked and what the answer took.
fn answer_columns(rows: &[JudgedConversation], route: &str) -> [Column; 10] {
    let answers = || rows.iter().map(|row| row.answer.as_ref());
    let usages = || answers().map(|answer| answer?.usage);
    let provider = route.split_once('/').map(|(provider, _)| provider);
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
        optional_texts("request_hash", answers().map(|a| Some(a?.hash.as_str()))),
    ]
}

fn metric_columns(rows: &[JudgedConversation]) -> Vec<Column> {
    let found: Vec<(&JudgedConversation, &MetricScore)> = rows
        .iter()
        .flat_map(|row| {
            let scores = row
                .verdict
                .iter()
                .flat_map(|verdict| &verdict.metric_scores);
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

fn outcome_columns(rows: &[JudgedConversation]) -> Vec<Column> {
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

/// A table rather than JSON: runs are compared by joining their tables. `summary.json` has the same figures.
fn write_summary(run: &RunDirectory, summary: &RunSummary) -> Result<(), RunError> {
    let columns = summary_columns(summary);
    let mut table = TableWriter::create(run.path(), "run_summary", schema_of(&columns))?;
    table.write(&batch_of(columns)?)?;
    table.finish().map(|_| ())
}

fn summary_columns(summary: &RunSummary) -> Vec<Column> {
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

fn column(name: &str, nullable: bool, array: impl Array + 'static) -> Column {
    let field = Field::new(name, array.data_type().clone(), nullable);
    let array: ArrayRef = Arc::new(array);
    (field, array)
}

fn texts<'a>(name: &str, values: impl Iterator<Item = &'a str>) -> Column {
    let values: Vec<Option<&str>> = values.map(Some).collect();
    column(name, false, StringArray::from(values))
}

fn optional_texts<'a>(name: &str, values: impl Iterator<Item = Option<&'a str>>) -> Column {
    let values: Vec<Option<&str>> = values.collect();
    column(name, true, StringArray::from(values))
}

fn numbers(name: &str, values: impl Iterator<Item = Option<f64>>) -> Column {
    let values: Vec<Option<f64>> = values.collect();
    column(name, true, Float64Array::from(values))
}

fn integers(name: &str, values: impl Iterator<Item = Option<i64>>) -> Column {
    let values: Vec<Option<i64>> = values.collect();
    column(name, true, Int64Array::from(values))
}

fn booleans(name: &str, values: impl Iterator<Item = Option<bool>>) -> Column {
    let values: Vec<Option<bool>> = values.collect();
    column(name, true, BooleanArray::from(values))
}

fn text_lists<'a>(name: &str, values: impl Iterator<Item = Option<&'a [String]>>) -> Column {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for value in values {
        for text in value.unwrap_or_default() {
            lists.values().append_value(text);
        }
        lists.append(value.is_some());
    }
    column(name, true, lists.finish())
}

fn integer_lists<'a>(name: &str, values: impl Iterator<Item = &'a [i32]>) -> Column {
    let mut lists = ListBuilder::new(Int32Builder::new());
    for value in values {
        lists.values().append_slice(value);
        lists.append(true);
    }
    column(name, true, lists.finish())
}

/// A count as tables hold it.
fn whole(count: u64) -> Option<i64> {
    i64::try_from(count).ok()
}

fn schema_of(columns: &[Column]) -> SchemaRef {
    let fields: Vec<Field> = columns.iter().map(|(field, _)| field.clone()).collect();
    Arc::new(Schema::new(fields))
}

fn batch_of(columns: Vec<Column>) -> Result<RecordBatch, RunError> {
    let schema = schema_of(&columns);
    let arrays: Vec<ArrayRef> = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(schema, arrays).map_err(|e| not_built(&e))
}

fn not_built(error: &arrow::error::ArrowError) -> RunError {
    RunError::Plan(format!("a result batch could not be built: {error}"))
}

#[cfg(test)]
mod tests;
