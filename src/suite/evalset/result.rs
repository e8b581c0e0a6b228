//! What an evaluation came to, as trpc-agent-go's result files hold it: case by case and run by run, with a summary.

use std::sync::Arc;

use serde_json::Value;

use super::model::{EpochTime, Invocation, Rest};

/// How a turn, metric, case, run or set ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EvalStatus {
    /// Nothing is said.
    #[default]
    Unset,
    /// `unknown`, which no evaluation produces.
    Unknown,
    /// `passed`
    Passed,
    /// `failed`
    Failed,
    /// `not_evaluated`
    NotEvaluated,
}

impl EvalStatus {
    /// [`EvalStatus::Passed`] for a score from the threshold on, else [`EvalStatus::Failed`].
    pub fn of(score: f64, threshold: f64) -> Self {
        match score >= threshold {
            true => Self::Passed,
            false => Self::Failed,
        }
    }

    /// What files hold; empty where nothing is said.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::Unknown => "unknown",
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotEvaluated => "not_evaluated",
        }
    }

    /// The status of this name; none for other texts.
    pub fn named(name: &str) -> Option<Self> {
        let all = [
            Self::Unset,
            Self::Unknown,
            Self::Passed,
            Self::Failed,
            Self::NotEvaluated,
        ];
        all.into_iter().find(|status| status.name() == name)
    }
}

/// `<id>.evalset_result.json`: all runs over a set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvalSetResult {
    /// `evalSetResultId`
    pub id: String,
    /// `evalSetResultName`: the id unless somebody named it.
    pub name: String,
    /// `evalSetId`
    pub set_id: String,
    /// `evalCaseResults`: run by run, in a run in the order of the set.
    pub cases: Vec<CaseResult>,
    /// `summary`; the first files have none.
    pub summary: Option<ResultSummary>,
    /// `creationTimestamp`
    pub created: Option<EpochTime>,
    /// All else.
    pub rest: Rest,
}

/// `evalCaseResults[]`: a case in one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseResult {
    /// `evalSetId`
    pub set_id: String,
    /// `evalId`
    pub id: String,
    /// `runId`, from 1 on; 0 in the first files, which have none.
    pub run_id: i64,
    /// `finalEvalStatus`
    pub status: EvalStatus,
    /// `score`, of later versions.
    pub score: Option<f64>,
    /// `errorMessage`; empty unless the case broke down.
    pub error_message: String,
    /// `overallEvalMetricResults`: over all turns.
    pub metrics: Vec<MetricResult>,
    /// `evalMetricResultPerInvocation`: one entry a turn.
    pub turns: Vec<TurnResult>,
    /// `sessionId`
    pub session_id: String,
    /// `userId`
    pub user_id: String,
    /// All else.
    pub rest: Rest,
}

/// What a metric says of a turn, or of all turns of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricResult {
    /// `metricName`
    pub name: String,
    /// `score`
    pub score: f64,
    /// `evalStatus`
    pub status: EvalStatus,
    /// `threshold`
    pub threshold: f64,
    /// `criterion`, as used and without a key; one value for all results of a metric.
    pub criterion: Option<Arc<Value>>,
    /// `details`
    pub details: Option<MetricDetails>,
    /// All else.
    pub rest: Rest,
}

impl CaseResult {
    /// Takes out what older versions of trpc-agent-go don't write: scores of cases, and verdicts that are no numbers.
    pub fn without_later_members(mut self) -> Self {
        self.score = None;
        let turns = self.turns.iter_mut().flat_map(|turn| &mut turn.metrics);
        for metric in self.metrics.iter_mut().chain(turns) {
            if let Some(details) = &mut metric.details {
                details.value = None;
            }
        }
        self
    }
}

impl MetricResult {
    /// The same with what the judge was asked in the place of the prompt's template, as results of turns have it.
    pub(super) fn with_prompt(mut self, prompt: &str) -> Self {
        let criterion = self.criterion.as_mut().map(Arc::make_mut);
        let template = criterion.and_then(|criterion| criterion.pointer_mut("/llmJudge/template"));
        if let Some(Value::Object(template)) = template {
            template.insert("prompt".to_owned(), prompt.into());
        }
        self
    }
}

/// `details` of a metric's result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricDetails {
    /// `reason`; over several turns theirs, with `;` between.
    pub reason: String,
    /// `score`
    pub score: f64,
    /// `value`, of later versions: what the judge said, where that is more than a score.
    pub value: Option<DetailValue>,
    /// `rubricScores`; over several turns theirs, in order.
    pub rubric_scores: Vec<RubricScore>,
    /// All else.
    pub rest: Rest,
}

/// `details.value`
#[derive(Clone, Debug, PartialEq)]
pub enum DetailValue {
    /// `{"kind": "numeric", "numeric": …}`
    Numeric(f64),
    /// `{"kind": "boolean", "boolean": …}`
    Boolean(bool),
    /// `{"kind": "categorical", "categorical": …}`
    Categorical(String),
    /// A kind that is not known here, as written.
    Other(Value),
}

/// `rubricScores[]`: a rubric's verdict.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RubricScore {
    /// `id` of the rubric.
    pub id: String,
    /// `reason`
    pub reason: String,
    /// `score`, 0 to 1.
    pub score: f64,
    /// All else.
    pub rest: Rest,
}

/// `evalMetricResultPerInvocation[]`: a turn, with what each metric says of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnResult {
    /// `actualInvocation`
    pub actual: Option<Invocation>,
    /// `expectedInvocation`
    pub expected: Option<Invocation>,
    /// `evalMetricResults`, in the order of the metrics file.
    pub metrics: Vec<MetricResult>,
    /// All else.
    pub rest: Rest,
}

/// `summary` of a result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResultSummary {
    /// `overallStatus`
    pub status: EvalStatus,
    /// `numRuns`
    pub runs_asked: i64,
    /// `runStatusCounts`: how many runs ended how.
    pub run_counts: Option<StatusCounts>,
    /// `runSummaries`, by run.
    pub runs: Vec<RunSummary>,
    /// `evalCaseSummaries`, by id of the case.
    pub cases: Vec<CaseSummary>,
    /// All else.
    pub rest: Rest,
}

/// How many ended how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatusCounts {
    /// `passed`
    pub passed: i64,
    /// `failed`
    pub failed: i64,
    /// `notEvaluated`
    pub not_evaluated: i64,
    /// All else.
    pub rest: Rest,
}

/// `runSummaries[]` of a summary: one pass over all cases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSummary {
    /// `runId`, from 1 on.
    pub run_id: i64,
    /// `overallStatus`
    pub status: EvalStatus,
    /// `caseStatusCounts`; none for a run without cases.
    pub case_counts: Option<StatusCounts>,
    /// `metricSummaries`, by name.
    pub metrics: Vec<MetricSummary>,
    /// All else.
    pub rest: Rest,
}

/// `metricSummaries[]`: a metric over the cases of a run, or over the runs of a case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricSummary {
    /// `metricName`
    pub name: String,
    /// `averageScore`, over what was evaluated.
    pub average_score: f64,
    /// `evalStatus` of the average.
    pub status: EvalStatus,
    /// `threshold`: the first one.
    pub threshold: f64,
    /// `statusCounts`
    pub counts: Option<StatusCounts>,
    /// All else.
    pub rest: Rest,
}

/// `evalCaseSummaries[]`: a case over all runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseSummary {
    /// `evalId`
    pub id: String,
    /// `overallStatus`: of the metrics' averages.
    pub status: EvalStatus,
    /// `runStatusCounts`
    pub run_counts: Option<StatusCounts>,
    /// `metricSummaries`, by name.
    pub metrics: Vec<MetricSummary>,
    /// `runSummaries`, by run.
    pub runs: Vec<CaseRun>,
    /// All else.
    pub rest: Rest,
}

/// `runSummaries[]` of a case's summary: the case in one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseRun {
    /// `runId`
    pub run_id: i64,
    /// `finalEvalStatus`
    pub status: EvalStatus,
    /// `errorMessage`
    pub error_message: String,
    /// `metricResults`, by name, without criteria and details.
    pub metrics: Vec<MetricResult>,
    /// All else.
    pub rest: Rest,
}
