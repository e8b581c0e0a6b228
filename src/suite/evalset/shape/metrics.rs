//! Tables of metrics files: metrics, criteria, judges.

use super::{Kind, Shape, flag, free, free_map, integer, list, map, number, object, text};

/// `<id>.metrics.json`
pub(in super::super) static METRICS: Kind = Kind::List(&Kind::Object(&METRIC));

/// A metric.
pub(in super::super) static METRIC: Shape = Shape(&[
    text("metricName"),
    text("evaluatorName"),
    number("threshold"),
    object("criterion", &CRITERION),
]);

/// `criterion`
pub(in super::super) static CRITERION: Shape = Shape(&[
    object("toolTrajectory", &TOOL_TRAJECTORY),
    object("finalResponse", &FINAL_RESPONSE),
    object("llmJudge", &LLM_JUDGE),
    object("semantic", &SEMANTIC),
]);

/// nightmill's own.
static SEMANTIC: Shape = Shape(&[number("minCosine").nullable()]);

static TOOL_TRAJECTORY: Shape = Shape(&[
    object("defaultStrategy", &STRATEGY),
    map("toolStrategy", &Kind::Object(&STRATEGY)),
    flag("orderSensitive"),
    flag("subsetMatching"),
    text("compareName"),
]);

static STRATEGY: Shape = Shape(&[
    object("name", &TEXT),
    object("arguments", &JSON),
    object("result", &JSON),
]);

static FINAL_RESPONSE: Shape = Shape(&[
    object("text", &TEXT),
    object("json", &JSON),
    object("xml", &XML),
    object("rouge", &ROUGE),
    text("compareName"),
]);

static TEXT: Shape = Shape(&[
    flag("ignore"),
    flag("caseInsensitive"),
    text("matchStrategy"),
    object("length", &LENGTH),
    text("compareName"),
]);

static LENGTH: Shape = Shape(&[
    flag("ignore"),
    integer("min").nullable(),
    integer("max").nullable(),
]);

static JSON: Shape = Shape(&[
    flag("ignore"),
    free_map("ignoreTree"),
    free_map("onlyTree"),
    number("numberTolerance").nullable(),
    text("matchStrategy"),
    flag("valid"),
    free("schema"),
    text("compareName"),
]);

static XML: Shape = Shape(&[flag("ignore"), flag("valid"), text("matchStrategy")]);

static ROUGE: Shape = Shape(&[
    flag("ignore"),
    text("rougeType"),
    text("measure"),
    object("threshold", &ROUGE_THRESHOLD),
    flag("useStemmer"),
    flag("splitSummaries"),
    text("tokenizerName"),
]);

static ROUGE_THRESHOLD: Shape = Shape(&[number("precision"), number("recall"), number("f1")]);

static LLM_JUDGE: Shape = Shape(&[
    list("rubrics", &Kind::Object(&RUBRIC)),
    object("judgeModel", &JUDGE_MODEL),
    object("template", &TEMPLATE),
    flag("sampleParallelismEnabled"),
    integer("sampleParallelism"),
]);

static RUBRIC: Shape = Shape(&[
    text("id"),
    object("content", &RUBRIC_CONTENT),
    text("description"),
    text("type"),
]);

static RUBRIC_CONTENT: Shape = Shape(&[text("text")]);

static JUDGE_MODEL: Shape = Shape(&[
    text("providerName"),
    text("modelName"),
    text("variant"),
    text("baseURL"),
    text("apiKey"),
    free_map("extraFields"),
    integer("numSamples").nullable(),
    object("generationConfig", &GENERATION),
]);

static GENERATION: Shape = Shape(&[
    integer("max_tokens").nullable(),
    number("temperature").nullable(),
    number("top_p").nullable(),
    flag("stream").always(),
    list("stop", &Kind::Text),
    number("presence_penalty").nullable(),
    number("frequency_penalty").nullable(),
    text("reasoning_effort").nullable(),
    flag("thinking_enabled").nullable(),
    integer("thinking_tokens").nullable(),
]);

static TEMPLATE: Shape = Shape(&[
    text("prompt"),
    list("variableBindings", &Kind::Object(&BINDING)),
    text("responseScorerName"),
    object("responseScorerOptions", &SCORER_OPTIONS),
    text("structuredOutputName"),
    text("sampleAggregatorName"),
    text("invocationAggregatorName"),
]);

static BINDING: Shape = Shape(&[text("templateVariable"), object("source", &SOURCE)]);

static SOURCE: Shape = Shape(&[
    text("scope"),
    text("field"),
    object("selector", &SELECTOR),
    text("path"),
]);

static SELECTOR: Shape = Shape(&[text("nodeID")]);

static SCORER_OPTIONS: Shape = Shape(&[list("categories", &Kind::Object(&CATEGORY))]);

static CATEGORY: Shape = Shape(&[text("label"), number("score").always()]);
