//! What is evaluated and how.

use super::RegressionConfig;
use crate::suite::regression::named::Named;
use crate::suite::regression::suite_metric::SuiteMetric;

/// What is evaluated and how.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsConfig {
    /// The metrics that are evaluated, of those that a case lists.
    pub enabled: Vec<SuiteMetric>,
    /// The bar of a metric whose case has none of its own, 0 to 1.
    pub default_threshold: f64,
    /// The weight of a metric that has none of its own, from 0.
    pub default_weight: f64,
    /// Weights of single metrics, from 0.
    pub weights: Named<f64>,
    /// Of factuality.
    pub factuality: FactualityConfig,
    /// Of format.
    pub format: FormatConfig,
    /// Of tone.
    pub tone: ToneConfig,
    /// Of the comparison with a baseline.
    pub regression: RegressionConfig,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self {
            enabled: SuiteMetric::ALL.to_vec(),
            default_threshold: crate::metric::comparison::DEFAULT_THRESHOLD,
            default_weight: 1.0,
            weights: Named::default(),
            factuality: FactualityConfig::default(),
            format: FormatConfig::default(),
            tone: ToneConfig::default(),
            regression: RegressionConfig::default(),
        }
    }
}

impl MetricsConfig {
    /// The weight of a metric in the score of a case.
    pub fn weight_of(&self, metric: &str) -> f64 {
        let own = self.weights.get(metric);
        own.copied().unwrap_or(self.default_weight)
    }

    /// Those of `listed` that are enabled, in the order of `listed`; all enabled ones where a case lists none.
    pub fn evaluated(&self, listed: Option<&[SuiteMetric]>) -> Vec<SuiteMetric> {
        let listed = listed.unwrap_or(&self.enabled).iter().copied();
        listed.filter(|of| self.enabled.contains(of)).collect()
    }
}

/// How factuality is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactualityConfig {
    /// What counts as a fault.
    pub mode: FactualityMode,
    /// Whether a judge reads the claims.
    pub claim_extraction_depth: ClaimDepth,
    /// Whether outputs are held against the context documents instead of the expected output.
    pub rag_faithfulness_only: bool,
}

/// What counts as a fault of facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FactualityMode {
    /// Contradicted and unverifiable claims.
    #[default]
    Strict,
    /// Contradicted claims.
    Lenient,
    /// Both texts must be JSON, and are compared as such.
    JsonStructural,
}

/// Whether a judge reads the claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimDepth {
    /// Words are compared.
    #[default]
    Shallow,
    /// A judge extracts and rules claims.
    Deep,
}

/// A sub-check or a sub-dimension of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Whether it is looked at.
    pub enabled: bool,
    /// Its weight in the metric's score, from 0.
    pub weight: f64,
}

impl Part {
    fn all(names: &[&'static str]) -> Vec<Self> {
        let part = |name: &&'static str| Self {
            name,
            enabled: true,
            weight: 1.0,
        };
        names.iter().map(part).collect()
    }
}

/// How the form of outputs is checked.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatConfig {
    /// `length`, `json_validity`, `json_schema`, `markdown_structure`, `required_fields`, `forbidden_content`,
    /// `regex_match`.
    pub sub_checks: Vec<Part>,
    /// The relative difference of lengths that counts as none, 0 to 1.
    pub length_tolerance: f64,
    /// Whether fences around JSON are a fault.
    pub strict_json: bool,
}

impl Default for FormatConfig {
    fn default() -> Self {
        Self {
            sub_checks: Part::all(&[
                "length",
                "json_validity",
                "json_schema",
                "markdown_structure",
                "required_fields",
                "forbidden_content",
                "regex_match",
            ]),
            length_tolerance: 0.2,
            strict_json: false,
        }
    }
}

/// How the tone of outputs is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct ToneConfig {
    /// The tone that is wanted; none: that of the expected output.
    pub tone_profile: Option<String>,
    /// `formality`, `sentiment`, `assertiveness`, `persona_consistency`, `verbosity`.
    pub sub_dimensions: Vec<Part>,
}

impl Default for ToneConfig {
    fn default() -> Self {
        Self {
            tone_profile: None,
            sub_dimensions: Part::all(&[
                "formality",
                "sentiment",
                "assertiveness",
                "persona_consistency",
                "verbosity",
            ]),
        }
    }
}
