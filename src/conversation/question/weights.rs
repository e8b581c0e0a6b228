//! What is asked of the judge and how much each metric counts (as in Connexity).

use serde::{Deserialize, Serialize};

use crate::conversation::question::catalogue::{Catalogue, OPT_IN_METRIC};
use crate::conversation::question::metric::Metric;
use crate::conversation::question::transcript::{Case, Turn};

/// Metrics that make no sense where no tool could be used.
const TOOL_METRICS: [&str; 3] = [
    "tool_routing",
    "parameter_extraction",
    "result_interpretation",
];

/// One entry of a selection. In a file it may also be the id alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SelectedMetric {
    /// The exact id of a metric.
    pub metric: String,
    /// At least 0. Absent: the metric's default weight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

impl<'de> Deserialize<'de> for SelectedMetric {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Members {
            metric: String,
            #[serde(default)]
            weight: Option<f64>,
        }
        struct Entry;
        impl<'de> serde::de::Visitor<'de> for Entry {
            type Value = SelectedMetric;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the id of a metric, or `metric` and `weight`")
            }
            fn visit_str<E: serde::de::Error>(self, id: &str) -> Result<Self::Value, E> {
                Ok(SelectedMetric {
                    metric: id.to_owned(),
                    weight: None,
                })
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                members: A,
            ) -> Result<Self::Value, A::Error> {
                let members = serde::de::value::MapAccessDeserializer::new(members);
                let Members { metric, weight } = Members::deserialize(members)?;
                Ok(SelectedMetric { metric, weight })
            }
        }
        deserializer.deserialize_any(Entry)
    }
}

/// What happens to tool metrics in transcripts without tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToollessPolicy {
    /// They are scored like all others.
    #[default]
    Score,
    /// They are removed and the other weights renormalised.
    Drop,
}

/// What happens to expected outcomes that the reply has no result for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingOutcomes {
    /// Nothing: the results that came decide.
    #[default]
    Ignore,
    /// They count as not met.
    Fail,
}

/// What happens to a Markdown fence around the whole reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyFences {
    /// It is removed.
    #[default]
    Strip,
    /// The reply counts as not JSON.
    Reject,
}

/// The configuration of the judge. Unknown fields are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JudgeConfig {
    /// The metrics to score, in order. Absent or empty: the eight defaults.
    pub metrics: Option<Vec<SelectedMetric>>,
    /// The overall score from which a case passes, 0 to 100.
    pub pass_threshold: f64,
    /// The judge's model; see [`JudgeConfig::route`].
    pub model: Option<String>,
    /// The judge's provider.
    pub provider: Option<String>,
    /// Transcripts without tools.
    pub toolless_policy: ToollessPolicy,
    /// Outcomes without a result.
    pub missing_outcomes: MissingOutcomes,
    /// Fences around replies.
    pub reply_fences: ReplyFences,
    /// Requests estimated to be longer, in tokens, are not sent. Absent: no limit.
    pub max_input_tokens: Option<u64>,
    /// Whether the judge sees the expected tool calls of a case.
    pub include_expected_tool_calls: bool,
}

impl Default for JudgeConfig {
    fn default() -> Self {
        Self {
            metrics: None,
            pass_threshold: 75.0,
            model: None,
            provider: None,
            toolless_policy: ToollessPolicy::default(),
            missing_outcomes: MissingOutcomes::default(),
            reply_fences: ReplyFences::default(),
            max_input_tokens: None,
            include_expected_tool_calls: false,
        }
    }
}

/// Why a configuration can't be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A selected id is not in the catalogue.
    #[error("there is no metric `{metric}`; list the metrics or define it in a metrics file")]
    UnknownMetric {
        /// The id found.
        metric: String,
    },
    /// `task_completion` was selected without a weight.
    #[error(
        "the metric `{metric}` needs a weight of its own in the selection; give it one, 0 is allowed"
    )]
    ExplicitWeightRequired {
        /// The id found.
        metric: String,
    },
    /// A weight is below 0.
    #[error("the metric `{metric}` has the weight {weight}; use a number of at least 0")]
    NegativeWeight {
        /// The metric.
        metric: String,
        /// The weight found.
        weight: f64,
    },
    /// The weights add up to nothing, or to more than a number can hold.
    #[error("the weights add up to {sum}; give at least one metric a positive, finite weight")]
    NonPositiveWeightSum {
        /// The sum found.
        sum: f64,
    },
    /// The pass threshold is not a percentage.
    #[error("`pass_threshold` is {found}; use a number from 0 to 100")]
    PassThreshold {
        /// The value found.
        found: f64,
    },
}

impl ConfigError {
    /// The short name of the fault, such as `unknown_metric`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownMetric { .. } => "unknown_metric",
            Self::ExplicitWeightRequired { .. } => "explicit_weight_required",
            Self::NegativeWeight { .. } => "negative_weight",
            Self::NonPositiveWeightSum { .. } => "non_positive_weight_sum",
            Self::PassThreshold { .. } => "pass_threshold",
        }
    }
}

/// A metric with its share of the overall score.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResolvedMetric {
    /// The metric.
    #[serde(flatten)]
    pub metric: Metric,
    /// Its weight, 0 to 1. The weights of a selection add up to 1.
    pub weight: f64,
}

/// The metrics that one request asks for, in order. A metric selected twice is here twice.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Selection {
    /// The metrics.
    pub metrics: Vec<ResolvedMetric>,
    /// Ids that were removed because the transcript has no tools.
    pub dropped_metrics: Vec<String>,
}

impl JudgeConfig {
    /// Resolves the selection into weights that add up to 1.
    ///
    /// # Errors
    /// A pass threshold outside of 0 to 100; then the first fault in the order of the selection; then a sum of
    /// weights that is not positive and finite.
    pub fn resolve(&self, catalogue: &Catalogue) -> Result<Selection, ConfigError> {
        if !(0.0..=100.0).contains(&self.pass_threshold) {
            return Err(ConfigError::PassThreshold {
                found: self.pass_threshold,
            });
        }
        let selected = self.metrics.as_deref().unwrap_or_default();
        let chosen: Vec<(&Metric, f64)> = if selected.is_empty() {
            catalogue
                .defaults()
                .map(|m| (m, m.default_weight))
                .collect()
        } else {
            selected
                .iter()
                .map(|entry| choose(entry, catalogue))
                .collect::<Result<_, _>>()?
        };
        let metrics = chosen
            .into_iter()
            .map(|(metric, weight)| ResolvedMetric {
                metric: metric.clone(),
                weight,
            })
            .collect();
        Ok(Selection {
            metrics: normalised(metrics)?,
            dropped_metrics: Vec::new(),
        })
    }

    /// The full model id: a model with `/` as it is, else `provider/model`, else the model alone.
    /// What this configuration lacks is taken from the tool's settings. `None` if no model is known.
    pub fn route(
        &self,
        default_provider: Option<&str>,
        default_model: Option<&str>,
    ) -> Option<String> {
        let known = |text: &&str| !text.trim().is_empty();
        let model = self.model.as_deref().filter(known).or(default_model)?;
        let provider = self.provider.as_deref().filter(known).or(default_provider);
        Some(match provider {
            Some(provider) if !model.contains('/') => format!("{provider}/{model}"),
            _ => model.to_owned(),
        })
    }
}

fn choose<'a>(
    entry: &SelectedMetric,
    catalogue: &'a Catalogue,
) -> Result<(&'a Metric, f64), ConfigError> {
    let Some(metric) = catalogue.find(&entry.metric) else {
        return Err(ConfigError::UnknownMetric {
            metric: entry.metric.clone(),
        });
    };
    if metric.name == OPT_IN_METRIC && entry.weight.is_none() {
        return Err(ConfigError::ExplicitWeightRequired {
            metric: entry.metric.clone(),
        });
    }
    let weight = entry.weight.unwrap_or(metric.default_weight);
    if weight < 0.0 {
        return Err(ConfigError::NegativeWeight {
            metric: entry.metric.clone(),
            weight,
        });
    }
    Ok((metric, weight))
}

fn normalised(mut metrics: Vec<ResolvedMetric>) -> Result<Vec<ResolvedMetric>, ConfigError> {
    let sum = metrics.iter().fold(0.0, |sum, m| sum + m.weight);
    if !(sum > 0.0 && sum.is_finite()) {
        return Err(ConfigError::NonPositiveWeightSum { sum });
    }
    for metric in &mut metrics {
        metric.weight /= sum;
    }
    Ok(metrics)
}

impl Selection {
    /// The metrics, each once.
    pub(in crate::conversation) fn distinct(&self) -> impl Iterator<Item = &ResolvedMetric> {
        let metrics = &self.metrics;
        let first = move |(at, m): &(usize, &ResolvedMetric)| {
            metrics
                .iter()
                .position(|other| other.metric.name == m.metric.name)
                == Some(*at)
        };
        metrics.iter().enumerate().filter(first).map(|(_, m)| m)
    }

    /// The selection without tool metrics, renormalised. If nothing with a positive weight remains, the selection
    /// as it is.
    pub fn without_tool_metrics(&self) -> Self {
        let (dropped, kept): (Vec<_>, Vec<_>) = self
            .metrics
            .iter()
            .cloned()
            .partition(|m| TOOL_METRICS.contains(&m.metric.name.as_str()));
        let Ok(metrics) = normalised(kept) else {
            return self.clone();
        };
        let mut dropped_metrics: Vec<String> = Vec::new();
        for metric in dropped {
            if !dropped_metrics.contains(&metric.metric.name) {
                dropped_metrics.push(metric.metric.name);
            }
        }
        Self {
            metrics,
            dropped_metrics,
        }
    }
}

/// Whether a case and its transcript show no trace of tools: no tool call, no `tool` turn, no tools of the agent
/// and no expected tool calls.
pub fn is_toolless(case: &Case, turns: &[Turn]) -> bool {
    let used = turns.iter().any(Turn::involves_tools);
    !used && !case.has_agent_tools() && case.expected_tool_calls.as_ref().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> JudgeConfig {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_first_fault_in_order_is_reported() {
        let code = |json: &str| {
            config(json)
                .resolve(&Catalogue::built_in())
                .unwrap_err()
                .code()
        };
        let negative = r#"{"metrics":[{"metric":"tool_routing","weight":-1},{"metric":"nope"}]}"#;
        assert_eq!(code(negative), "negative_weight");
        assert_eq!(
            code(r#"{"metrics":[{"metric":" tool_routing"}]}"#),
            "unknown_metric"
        );
        assert_eq!(
            code(r#"{"pass_threshold":100.5,"metrics":[{"metric":"nope"}]}"#),
            "pass_threshold"
        );
        let overflow = r#"{"metrics":[{"metric":"tool_routing","weight":1e308},{"metric":"response_delivery","weight":1e308}]}"#;
        assert_eq!(code(overflow), "non_positive_weight_sum");
        let mut broken = config(r#"{"metrics":[{"metric":"tool_routing","weight":1}]}"#);
        broken.metrics.as_mut().unwrap()[0].weight = Some(f64::NAN);
        assert_eq!(
            broken.resolve(&Catalogue::built_in()).unwrap_err().code(),
            "non_positive_weight_sum"
        );
        assert!(serde_json::from_str::<JudgeConfig>(r#"{"pass_treshold":50}"#).is_err());
    }

    #[test]
    fn a_metric_selected_twice_counts_twice() {
        let twice = r#"{"metrics":[{"metric":"tool_routing","weight":1},{"metric":"tool_routing","weight":3}]}"#;
        let selection = config(twice).resolve(&Catalogue::built_in()).unwrap();
        let weights: Vec<f64> = selection.metrics.iter().map(|m| m.weight).collect();
        assert_eq!(weights, [0.25, 0.75]);
    }

    #[test]
    fn dropping_tool_metrics_renormalises_unless_nothing_remains() {
        let all = JudgeConfig::default()
            .resolve(&Catalogue::built_in())
            .unwrap();
        let rest = all.without_tool_metrics();
        assert_eq!(rest.dropped_metrics, TOOL_METRICS);
        assert_eq!(rest.metrics.len(), 5);
        assert!((rest.metrics.iter().map(|m| m.weight).sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((rest.metrics[0].weight - 0.125 / 0.55).abs() < 1e-12);
        for only_tools in [
            r#"{"metrics":[{"metric":"tool_routing"}]}"#,
            r#"{"metrics":[{"metric":"tool_routing"},{"metric":"task_completion","weight":0}]}"#,
        ] {
            let selection = config(only_tools).resolve(&Catalogue::built_in()).unwrap();
            assert_eq!(selection.without_tool_metrics(), selection);
        }
    }

    #[test]
    fn tools_show_in_turns_in_the_agent_and_in_the_expectations() {
        let turn = |json: &str| -> Turn { serde_json::from_str(json).unwrap() };
        let case = |json: &str| -> Case { serde_json::from_str(json).unwrap() };
        let talk = [turn(
            r#"{"turn_index":0,"role":"user","content":"hi","tool_calls":[]}"#,
        )];
        let bare = case(r#"{"session_id":"s","agent_tools":"[]","expected_tool_calls":[]}"#);
        assert!(is_toolless(&bare, &talk));
        assert!(!is_toolless(
            &bare,
            &[turn(r#"{"turn_index":0,"role":"tool","content":"x"}"#)]
        ));
        let call =
            r#"{"turn_index":0,"role":"assistant","tool_calls":[{"name":"f","arguments":"{}"}]}"#;
        assert!(!is_toolless(&bare, &[turn(call)]));
        let armed = case(r#"{"session_id":"s","agent_tools":"[{\"function\":{\"name\":\"f\"}}]"}"#);
        assert!(!is_toolless(&armed, &talk));
        let expected = case(r#"{"session_id":"s","expected_tool_calls":[{"tool":"f"}]}"#);
        assert!(!is_toolless(&expected, &talk));
    }

    #[test]
    fn routes_are_completed_from_the_settings() {
        let own = config(r#"{"model":"m","provider":"p"}"#);
        assert_eq!(own.route(Some("q"), Some("n")).as_deref(), Some("p/m"));
        assert_eq!(
            config(r#"{"model":"a/b"}"#)
                .route(Some("q"), None)
                .as_deref(),
            Some("a/b")
        );
        assert_eq!(config("{}").route(None, Some("n")).as_deref(), Some("n"));
        assert_eq!(config("{}").route(Some("q"), None), None);
    }
}
