//! From a configuration to the rules of metrics.

use crate::metric::comparison::{Compat, Part};
use crate::metric::factuality::{self, FactualityRules};
use crate::metric::format::{FormatRules, SubCheck};
use crate::metric::tone::{Dimension, ToneRules};
use crate::suite::regression::config::{
    self, ClaimDepth, FactualityMode, MetricsConfig, SuiteConfig,
};
use crate::suite::regression::golden_set::GoldenSet;
use crate::suite::regression::suite_metric::SuiteMetric;

/// How the cases of a run are evaluated.
#[derive(Clone, Debug)]
pub(super) struct CaseRules<'c> {
    pub metrics: &'c MetricsConfig,
    pub factuality: FactualityRules,
    pub format: FormatRules,
    pub tone: ToneRules,
}

impl<'c> CaseRules<'c> {
    pub fn of(config: &'c SuiteConfig) -> Self {
        let (metrics, compat) = (&config.metrics, config.compat);
        Self {
            metrics,
            factuality: factuality_rules(&metrics.factuality, compat),
            format: FormatRules {
                sub_checks: parts(
                    SubCheck::ALL.map(SubCheck::name),
                    &metrics.format.sub_checks,
                ),
                length_tolerance: metrics.format.length_tolerance,
                strict_json: metrics.format.strict_json,
                compat,
            },
            tone: ToneRules {
                tone_profile: metrics.tone.tone_profile.clone(),
                dimensions: parts(
                    Dimension::ALL.map(Dimension::name),
                    &metrics.tone.sub_dimensions,
                ),
                compat,
            },
        }
    }

    /// Whether a metric may ask a judge about a case.
    pub fn asks(&self, metric: SuiteMetric) -> bool {
        match metric {
            SuiteMetric::Factuality => self.factuality.deep,
            SuiteMetric::Tone => self.tone.asks_judge(),
            SuiteMetric::Format | SuiteMetric::Regression => false,
        }
    }

    /// The metrics of these suites that may ask a judge.
    pub fn asking<'s>(&self, sets: impl Iterator<Item = &'s GoldenSet>) -> Vec<SuiteMetric> {
        let mut asking = Vec::new();
        for case in sets.flat_map(|set| &set.cases) {
            for metric in self.metrics.evaluated(case.metrics.as_deref()) {
                if self.asks(metric) && !asking.contains(&metric) {
                    asking.push(metric);
                }
            }
        }
        asking
    }
}

fn factuality_rules(config: &config::FactualityConfig, compat: Compat) -> FactualityRules {
    FactualityRules {
        mode: match config.mode {
            FactualityMode::Strict => factuality::FactualityMode::Strict,
            FactualityMode::Lenient => factuality::FactualityMode::Lenient,
            FactualityMode::JsonStructural => factuality::FactualityMode::JsonStructural,
        },
        deep: config.claim_extraction_depth == ClaimDepth::Deep,
        rag_faithfulness_only: config.rag_faithfulness_only,
        compat,
    }
}

/// The parts by their names, in this order; what the configuration does not name counts as usual.
fn parts<const N: usize>(names: [&str; N], configured: &[config::Part]) -> [Part; N] {
    names.map(|name| {
        let found = configured.iter().find(|of| of.name == name);
        found.map_or_else(Part::default, |of| Part {
            enabled: of.enabled,
            weight: of.weight,
        })
    })
}
