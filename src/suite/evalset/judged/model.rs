//! Who judges: from the `judgeModel` of a metrics file to an endpoint, a model and the body of a request.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::judge::{ProviderSettings, url_fault};
use crate::suite::evalset::evaluator::{EvaluationError, lacks};
use crate::suite::evalset::model::{EvalMetric, JudgeModel};

/// The one provider that is built in: any server that speaks OpenAI's protocol.
const OPENAI: &str = "openai";
/// The largest reply where a metric has no `generationConfig`, and its randomness.
const USUAL_MAX_TOKENS: u32 = 2000;
const USUAL_TEMPERATURE: f64 = 0.8;
/// What a reply is reckoned with where the metric sets no limit to it.
const RECKONED_TOKENS: u32 = 4096;

/// What decides where judges are asked beside the metrics file.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouteRules {
    /// Timeouts and headers of the run.
    pub provider: ProviderSettings,
    /// Names of providers that stand for `openai`.
    pub providers: Vec<String>,
    /// Whether calls are held below caps on tokens or money, so that replies must have a limit.
    pub capped: bool,
}

/// Where and how a metric's judge is asked.
#[derive(Clone, Debug)]
pub(crate) struct JudgeRoute {
    pub provider: ProviderSettings,
    /// With the prefix of its provider.
    pub model: String,
    /// The request beside model and messages.
    pub body: Arc<Map<String, Value>>,
    /// Most tokens of a reply, as far as is known.
    pub max_output_tokens: u32,
    /// Samples a turn, at least 1.
    pub samples: u32,
}

/// A variable of OpenAI's, if it is set and not empty.
fn environment_key(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl JudgeRoute {
    /// The route of a metric that asks a judge.
    ///
    /// # Errors
    /// [`EvaluationError`] if the metric does not say whom to ask, or says it in a way that can't be done.
    pub fn of(metric: &EvalMetric, rules: &RouteRules) -> Result<Self, EvaluationError> {
        let wrong = |problem: String| EvaluationError {
            metric: metric.name.clone(),
            problem,
        };
        let judge = metric.rules.judge.as_ref();
        let Some(model) = judge.and_then(|judge| judge.model.as_ref()) else {
            return Err(lacks(metric, "criterion.llmJudge.judgeModel"));
        };
        let known = model.provider == OPENAI || rules.providers.contains(&model.provider);
        if !known {
            return Err(wrong(format!(
                "the provider `{0}` of its judge is not known; where it speaks OpenAI's protocol, say so with --judge-provider {0}=openai",
                model.provider
            )));
        }
        if model.name.is_empty() {
            return Err(lacks(metric, "criterion.llmJudge.judgeModel.modelName"));
        }
        let samples = model.samples.unwrap_or(1);
        let Some(samples) = u32::try_from(samples).ok().filter(|n| *n > 0) else {
            return Err(wrong(format!(
                "`numSamples` is {samples}; at least 1 is needed"
            )));
        };
        let body = body(model);
        let limit = ["max_tokens", "max_completion_tokens"];
        let limit = limit.iter().find_map(|name| body.get(*name)?.as_u64());
        if rules.capped && limit.is_none() {
            return Err(wrong(
                "caps on tokens or money need a largest reply; give its judge `max_tokens` in `generationConfig`"
                    .to_owned(),
            ));
        }
        let url = match model.base_url.is_empty() {
            true => environment_key("OPENAI_BASE_URL"),
            false => Some(model.base_url.clone()),
        };
        if let Some(fault) = url.as_deref().and_then(url_fault) {
            return Err(wrong(format!("the `baseURL` of its judge: {fault}")));
        }
        Ok(Self {
            provider: ProviderSettings {
                url,
                key: (!model.api_key.is_empty()).then(|| model.api_key.clone()),
                ..rules.provider.clone()
            },
            model: format!("{OPENAI}/{}", model.name),
            max_output_tokens: limit
                .map_or(RECKONED_TOKENS, |n| u32::try_from(n).unwrap_or(u32::MAX)),
            body: Arc::new(body),
            samples,
        })
    }

    /// What tells endpoints apart.
    pub fn endpoint(&self) -> (Option<String>, Option<String>) {
        (self.provider.url.clone(), self.provider.key.clone())
    }
}

/// The request beside model and messages: the generation config as it is given, and the usual one only where there is
/// none at all. Replies are never streamed.
fn body(model: &JudgeModel) -> Map<String, Value> {
    let mut body = model.generation.clone().unwrap_or_else(|| {
        Map::from_iter([
            ("max_tokens".to_owned(), json!(USUAL_MAX_TOKENS)),
            ("temperature".to_owned(), json!(USUAL_TEMPERATURE)),
        ])
    });
    body.retain(|_, value| !value.is_null());
    for (name, value) in &model.extra_fields {
        body.insert(name.clone(), value.clone());
    }
    body.insert("stream".to_owned(), false.into());
    body
}
