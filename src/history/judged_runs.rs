//! Judged conversations of finished runs: read from their tables, with the figures of each run.

use std::collections::{BTreeMap, HashMap};

use arrow::array::RecordBatch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::conversation::judged::known_cost;
use crate::conversation::{
    Agent, Breakdown, CaseBreakdown, CaseResult, ComparedCase, Label, MetricScore, MetricValue,
    RunBars, RunSummary, TokenUsage, by_case, by_metric, by_tier, summarise,
};
use crate::history::stored_run::{HistoryError, SUMMARY, StoredRun, read_json};
use crate::history::stored_table::{
    cell, flag, flags, for_each_batch, number, numbers, numbers_if_there, text, text_if_there,
    whole_number, whole_numbers,
};
use crate::output::directory::MANIFEST;

const VERDICTS: &str = "judge_verdicts";
const METRIC_SCORES: &str = "judge_metric_scores";

const KEYS: [&str; 4] = ["project_id", "session_id", "test_case", "repetition_index"];
const OF_VERDICTS: [&str; 11] = [
    "status",
    "case_passed",
    "overall_score",
    "judge_error",
    "agent_latency_p50_ms",
    // Runs without the following columns are read too.
    "agent_latency_total_ms",
    "error",
    "agent_token_usage",
    "platform_token_usage",
    "agent_cost_usd",
    "platform_cost_usd",
];
const OF_METRICS: [&str; 6] = [
    "metric",
    "tier",
    "is_binary",
    "score",
    "weight",
    "failure_code",
];

/// The judged conversations of a finished run.
#[derive(Clone, Debug)]
pub struct JudgedRun {
    /// The run.
    pub run: StoredRun,
    /// The judge's model, as in `openai/gpt-4o`.
    pub model: Option<String>,
    /// The version of the program, and with it of the prompts.
    pub program: Option<String>,
    /// What else decided the judge's answers and verdicts, by name; its `metrics`, `pass_threshold` and other
    /// fields of the configuration among them.
    pub settings: BTreeMap<String, Value>,
    /// The agent, as far as the conversations agree.
    pub agent: Agent,
    /// The bars of the run.
    pub bars: RunBars,
    /// One a conversation, for the figures.
    pub results: Vec<CaseResult>,
    /// The same conversations in the same order, for comparisons.
    pub cases: Vec<ComparedCase>,
    /// All scores of metrics, without their justifications.
    pub scores: Vec<MetricScore>,
    /// Conversations that the judge was not asked about.
    pub pending: usize,
}

/// The figures of the conversations of one run (as in Connexity).
#[derive(Clone, Debug, Serialize)]
pub struct ConversationFigures {
    /// The run.
    pub run: StoredRun,
    /// The judge's model.
    pub model: Option<String>,
    /// Conversations that the judge was not asked about.
    pub pending: usize,
    /// The conversations as a whole, with the bars of the run.
    pub figures: RunSummary,
    /// By metric, in order of first appearance.
    pub metrics: Vec<Breakdown>,
    /// By tier.
    pub tiers: Vec<Breakdown>,
    /// By test case, sorted.
    pub cases: Vec<CaseBreakdown>,
}

impl JudgedRun {
    /// The figures.
    pub fn figures(&self) -> ConversationFigures {
        ConversationFigures {
            run: self.run.clone(),
            model: self.model.clone(),
            pending: self.pending,
            figures: summarise(&self.results, &self.bars),
            metrics: by_metric(&self.scores),
            tiers: by_tier(&self.scores),
            cases: by_case(&self.results),
        }
    }
}

#[derive(Deserialize)]
struct Manifest {
    nightmill: Option<String>,
    judge: Option<StoredJudge>,
}

#[derive(Deserialize)]
struct StoredJudge {
    url: Option<Value>,
    conversation: Option<StoredConfiguration>,
}

#[derive(Deserialize)]
struct StoredConfiguration {
    model: Option<String>,
    #[serde(default)]
    config: Map<String, Value>,
    /// Temperature and the like.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Summary {
    judge: Option<SummaryOfJudge>,
}

#[derive(Deserialize)]
struct SummaryOfJudge {
    conversations: Option<SummaryOfConversations>,
}

#[derive(Deserialize)]
struct SummaryOfConversations {
    run: StoredBars,
    // Not written by earlier versions.
    #[serde(default)]
    agent: Agent,
}

#[derive(Deserialize)]
struct StoredBars {
    pass_threshold: f64,
    metrics_pass_threshold: Option<f64>,
    cases_pass_threshold: Option<f64>,
}

/// Whether a run judged conversations.
pub fn holds_conversations(run: &StoredRun) -> bool {
    run.path.join(VERDICTS).exists()
}

/// Reads the judged conversations of a run, of one project if it is given; `None` if the run judged none. Memory grows
/// with their number and that of their scores: texts of the judge stay on disk.
///
/// # Errors
/// [`HistoryError::Damaged`] naming the run and the file.
pub fn read_judged(
    run: &StoredRun,
    project: Option<&str>,
) -> Result<Option<JudgedRun>, HistoryError> {
    if !holds_conversations(run) {
        return Ok(None);
    }
    let manifest: Manifest = read_json(&run.path, MANIFEST)?;
    let summary: Summary = read_json(&run.path, SUMMARY)?;
    let told = summary.judge.and_then(|judge| judge.conversations);
    let Some(SummaryOfConversations { run: bars, agent }) = told else {
        let problem = "it has no figures of conversations";
        return Err(HistoryError::damaged(&run.path, SUMMARY, problem));
    };
    let mut judged = JudgedRun {
        run: run.clone(),
        model: None,
        program: manifest.nightmill,
        settings: BTreeMap::new(),
        agent,
        bars: RunBars {
            pass_threshold: bars.pass_threshold,
            metrics_pass_threshold: bars.metrics_pass_threshold,
            cases_pass_threshold: bars.cases_pass_threshold,
        },
        results: Vec::new(),
        cases: Vec::new(),
        scores: Vec::new(),
        pending: 0,
    };
    if let Some(judge) = manifest.judge {
        judged.describe(judge);
    }
    let mut rows = HashMap::new();
    let columns = [&KEYS[..], &OF_VERDICTS].concat();
    for_each_batch(&run.path, VERDICTS, &columns, |batch| {
        judged.push_verdicts(batch, project, &mut rows)
    })?;
    let columns = [&KEYS[..], &OF_METRICS].concat();
    for_each_batch(&run.path, METRIC_SCORES, &columns, |batch| {
        judged.push_scores(batch, project, &rows)
    })?;
    Ok(Some(judged))
}

/// What names a conversation in every table: the columns [`KEYS`].
type Key = (Option<String>, String, String, i64);

/// The keys of a batch, row by row.
fn keys(batch: &RecordBatch) -> Result<Vec<Key>, String> {
    let [project, session, test_case] =
        ["project_id", "session_id", "test_case"].map(|name| text(batch, name));
    let (project, session, test_case) = (project?, session?, test_case?);
    let repetition = whole_numbers(batch, "repetition_index")?;
    let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let keys = (0..batch.num_rows()).map(|row| {
        (
            cell(&project, row).map(str::to_owned),
            owned(cell(&session, row)),
            owned(cell(&test_case, row)),
            whole_number(&repetition, row).unwrap_or_default(),
        )
    });
    Ok(keys.collect())
}

fn is_of((found, ..): &Key, project: Option<&str>) -> bool {
    project.is_none() || found.as_deref() == project
}

impl JudgedRun {
    fn describe(&mut self, judge: StoredJudge) {
        let Some(conversation) = judge.conversation else {
            return;
        };
        self.model = conversation.model;
        let url = judge.url.map(|url| ("url".to_owned(), url));
        // The model says which of them was asked.
        let config = conversation.config.into_iter();
        let config = config.filter(|(name, _)| name != "model" && name != "provider");
        let all = conversation.others.into_iter().chain(config).chain(url);
        self.settings = all.filter(|(_, value)| !value.is_null()).collect();
    }

    fn push_verdicts(
        &mut self,
        batch: &RecordBatch,
        project: Option<&str>,
        rows: &mut HashMap<Key, usize>,
    ) -> Result<(), String> {
        let (statuses, errors) = (text(batch, "status")?, text(batch, "judge_error")?);
        let passed = flags(batch, "case_passed")?;
        let overall = numbers(batch, "overall_score")?;
        let medians = whole_numbers(batch, "agent_latency_p50_ms")?;
        let totals = whole_numbers(batch, "agent_latency_total_ms")?;
        let failures = text_if_there(batch, "error")?;
        let [of_agent, of_platform] =
            ["agent_token_usage", "platform_token_usage"].map(|name| text_if_there(batch, name));
        let (of_agent, of_platform) = (of_agent?, of_platform?);
        let usage = |column, row| {
            let text: Option<&str> = cell(column, row);
            text.map(|text| TokenUsage::from(Value::from(text)))
        };
        let agent_costs = numbers_if_there(batch, "agent_cost_usd")?;
        let platform_costs = numbers_if_there(batch, "platform_cost_usd")?;
        for (row, key) in keys(batch)?.into_iter().enumerate() {
            if !is_of(&key, project) {
                continue;
            }
            self.pending += usize::from(cell(&statuses, row) == Some("PENDING"));
            let judge_error = cell(&errors, row).map(|code| named("judge error", code));
            let agent_cost_usd = number(&agent_costs, row);
            let platform_cost_usd = number(&platform_costs, row);
            let result = CaseResult {
                test_case: key.2.clone(),
                error: cell(&failures, row).map(str::to_owned),
                agent_token_usage: usage(&of_agent, row),
                platform_token_usage: usage(&of_platform, row),
                agent_cost_usd,
                platform_cost_usd,
                estimated_cost_usd: known_cost(agent_cost_usd, platform_cost_usd),
                case_passed: flag(&passed, row),
                overall_score: number(&overall, row),
                judge_error: judge_error.transpose()?,
                agent_latency_p50_ms: whole_number(&medians, row),
            };
            self.cases.push(ComparedCase {
                test_case: key.2.clone(),
                passed: result.case_passed,
                error: result.error.clone(),
                estimated_cost_usd: result.estimated_cost_usd,
                overall_score: result.overall_score,
                total_latency_ms: whole_number(&totals, row),
                agent_latency_p50_ms: result.agent_latency_p50_ms,
                metrics: BTreeMap::new(),
            });
            rows.insert(key, self.results.len());
            self.results.push(result);
        }
        Ok(())
    }

    fn push_scores(
        &mut self,
        batch: &RecordBatch,
        project: Option<&str>,
        rows: &HashMap<Key, usize>,
    ) -> Result<(), String> {
        let [metrics, tiers, codes] =
            ["metric", "tier", "failure_code"].map(|name| text(batch, name));
        let (metrics, tiers, codes) = (metrics?, tiers?, codes?);
        let binary = flags(batch, "is_binary")?;
        let (scores, weights) = (whole_numbers(batch, "score")?, numbers(batch, "weight")?);
        for (row, key) in keys(batch)?.into_iter().enumerate() {
            if !is_of(&key, project) {
                continue;
            }
            let case = rows.get(&key).and_then(|at| self.cases.get_mut(*at));
            let case = case.ok_or_else(|| {
                format!(
                    "the conversation `{}` is not in the table {VERDICTS}",
                    key.1
                )
            })?;
            let metric = cell(&metrics, row).unwrap_or_default();
            let score = whole_number(&scores, row).and_then(|score| u8::try_from(score).ok());
            let score = score.filter(|score| *score <= 5);
            let score = score.ok_or_else(|| format!("`{metric}` has no score from 0 to 5"))?;
            let is_binary = flag(&binary, row).unwrap_or_default();
            let value = match is_binary {
                true => MetricValue::Binary(score > 0),
                false => MetricValue::Scored(f64::from(score)),
            };
            case.metrics.insert(metric.to_owned(), value);
            self.scores.push(MetricScore {
                metric: metric.to_owned(),
                tier: named("tier", cell(&tiers, row).unwrap_or_default())?,
                is_binary,
                score,
                label: match is_binary {
                    true => Label::of_binary(score > 0),
                    false => Label::of_score(score),
                },
                weight: number(&weights, row).unwrap_or_default(),
                justification: String::new(),
                failure_code: cell(&codes, row).map(str::to_owned),
                turns: Vec::new(),
            });
        }
        Ok(())
    }
}

/// A value by its name in tables.
fn named<T: DeserializeOwned>(what: &str, name: &str) -> Result<T, String> {
    serde_json::from_value(Value::from(name)).map_err(|_| format!("`{name}` is no {what}"))
}
