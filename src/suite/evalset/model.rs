//! What trpc-agent-go's evaluation files hold: sets of cases, their turns, metrics and criteria.
//!
//! Members that nightmill gives no meaning to are kept in `rest`, so that a file that is written again loses nothing.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::criterion::{FinalResponseCriterion, SemanticCriterion, ToolTrajectoryCriterion};
use super::environment::Unexpanded;

/// Members of an object that nothing here reads, in stored order.
pub type Rest = Map<String, Value>;

/// A point in time, in nanoseconds from 1970 on; files hold seconds with a fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpochTime(pub i64);

/// `<id>.evalset.json`: cases under one name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvalSet {
    /// `evalSetId`
    pub id: String,
    /// `name`
    pub name: String,
    /// `description`
    pub description: String,
    /// `evalCases`; null entries are not kept.
    pub cases: Vec<EvalCase>,
    /// `creationTimestamp`
    pub created: Option<EpochTime>,
    /// All else.
    pub rest: Rest,
}

/// One session: what was, or will be, said and done in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvalCase {
    /// `evalId`, unique in its set.
    pub id: String,
    /// `evalMode`, as written: empty for the default mode, or `trace`.
    pub mode: String,
    /// `contextMessages`: given to the agent before every turn.
    pub context_messages: Vec<Option<Message>>,
    /// `conversation`: what is expected; in trace mode what was done, unless `actual_conversation` says it.
    pub conversation: Vec<Option<Invocation>>,
    /// `actualConversation`: what was done.
    pub actual_conversation: Vec<Option<Invocation>>,
    /// `sessionInput`
    pub session_input: Option<SessionInput>,
    /// `rubrics`: added to those of a metric for this case.
    pub rubrics: Vec<CaseRubric>,
    /// `creationTimestamp`
    pub created: Option<EpochTime>,
    /// All else.
    pub rest: Rest,
}

/// Who speaks, and from which state the agent begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionInput {
    /// `appName`
    pub app_name: String,
    /// `userId`
    pub user_id: String,
    /// `state`
    pub state: Map<String, Value>,
    /// All else.
    pub rest: Rest,
}

/// One turn: a message of the user with everything up to the final response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Invocation {
    /// `invocationId`
    pub id: String,
    /// `contextMessages`: those of the case unless the turn has its own.
    pub context_messages: Vec<Option<Message>>,
    /// `userContent`
    pub user_content: Option<Message>,
    /// `finalResponse`; null is no response, which is not one of empty content.
    pub final_response: Option<Message>,
    /// `tools`, in the order of the calls.
    pub tools: Vec<Option<ToolUse>>,
    /// `intermediateResponses`
    pub intermediate_responses: Vec<Option<Message>>,
    /// `creationTimestamp`
    pub created: Option<EpochTime>,
    /// All else.
    pub rest: Rest,
}

/// A message. Only its content takes part in comparisons and prompts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// `role`, never checked.
    pub role: String,
    /// `content`
    pub content: String,
    /// `content_parts`, `tool_calls` and all else, carried along.
    pub rest: Rest,
}

/// A tool call with its result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolUse {
    /// `id`, never compared.
    pub id: String,
    /// `name`
    pub name: String,
    /// `arguments`: any JSON; null where there are none.
    pub arguments: Value,
    /// `result`: any JSON; null where there is none.
    pub result: Value,
    /// All else.
    pub rest: Rest,
}

/// `rubrics` of a case: one more rubric for one of the metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaseRubric {
    /// `metricName`
    pub metric_name: String,
    /// The rubric itself.
    pub rubric: Rubric,
}

/// Something that a judge answers with yes or no.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rubric {
    /// `id`
    pub id: String,
    /// `content.text`; none where there is no `content`, and such a rubric is not asked about.
    pub text: Option<String>,
    /// `description`
    pub description: String,
    /// `type`
    pub kind: String,
    /// All else.
    pub rest: Rest,
}

/// An entry of `<id>.metrics.json`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EvalMetric {
    /// `metricName`: names the results, and the evaluator unless that is named.
    pub name: String,
    /// `evaluatorName`; empty where the metric's name says it.
    pub evaluator_name: String,
    /// `threshold`; a metric without one is passed by every score from 0 on.
    pub threshold: Option<f64>,
    /// `criterion`, as written, without the key of a judge and with variables filled in: what results hold.
    pub criterion: Option<Arc<Value>>,
    /// The same as typed values.
    pub rules: Criterion,
    /// What the metrics file has in place of values of variables, and the key's text: what goes back into that file.
    pub unexpanded: Unexpanded,
    /// All else.
    pub rest: Rest,
}

/// What a metric compares, or whom it asks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Criterion {
    /// `toolTrajectory`
    pub tool_trajectory: Option<ToolTrajectoryCriterion>,
    /// `finalResponse`
    pub final_response: Option<FinalResponseCriterion>,
    /// `llmJudge`
    pub judge: Option<JudgeCriterion>,
    /// `semantic`, which is nightmill's own.
    pub semantic: Option<SemanticCriterion>,
}

/// `llmJudge`: who judges, and what about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgeCriterion {
    /// `rubrics`; null entries are not kept.
    pub rubrics: Vec<Rubric>,
    /// `judgeModel`
    pub model: Option<JudgeModel>,
    /// `template`: what the judge is asked, where the metrics file words it.
    pub template: Option<JudgeTemplate>,
}

/// `template` of `llmJudge`: a prompt with placeholders, what fills them, and how replies are read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JudgeTemplate {
    /// `prompt`, with `{{name}}` for each value.
    pub prompt: String,
    /// `variableBindings`; a null entry can't be filled in.
    pub bindings: Vec<Option<TemplateBinding>>,
    /// `responseScorerName`
    pub scorer: String,
    /// `responseScorerOptions.categories`: labels and what each is worth.
    pub categories: Vec<Option<(String, f64)>>,
    /// `structuredOutputName`
    pub structured_output: String,
    /// `sampleAggregatorName`
    pub sample_aggregator: String,
    /// `invocationAggregatorName`
    pub invocation_aggregator: String,
}

/// An entry of `variableBindings`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateBinding {
    /// `templateVariable`
    pub variable: String,
    /// `source`
    pub source: Option<TemplateSource>,
}

/// `source` of a binding: where its value is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateSource {
    /// `scope`: `actual`, `expected` or `metric`.
    pub scope: String,
    /// `field`
    pub field: String,
    /// `selector.nodeID`: of which step of the execution trace.
    pub node: String,
    /// `path` into the value as JSON; empty for the whole value.
    pub path: String,
}

/// `judgeModel`, with the values of variables.
#[derive(Clone, Default, PartialEq)]
pub struct JudgeModel {
    /// `providerName`
    pub provider: String,
    /// `modelName`
    pub name: String,
    /// `variant`
    pub variant: String,
    /// `baseURL`
    pub base_url: String,
    /// `apiKey`: never written anywhere.
    pub api_key: String,
    /// `extraFields`: members of the request's body.
    pub extra_fields: Map<String, Value>,
    /// `numSamples`; none where it is not set.
    pub samples: Option<i64>,
    /// `generationConfig`, as written; none where there is none.
    pub generation: Option<Map<String, Value>>,
}

impl std::fmt::Debug for JudgeModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JudgeModel")
            .field("provider", &self.provider)
            .field("name", &self.name)
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}
