//! `tone`: does the output sound as it was expected to? As in Regtrace: five dimensions, by a judge or by words and
//! lengths. As a column of traces it asks no judge.

mod dimension;
mod heuristics;
mod judged;
mod reading;
mod word_lists;

pub use dimension::Dimension;
pub use judged::judged;

use heuristics::Traits;

use crate::metric::MetricInfo;
use crate::metric::checked::{Checked, Detail, listed};
use crate::metric::comparison::{Compat, Part, Workspace};

/// The metric's name.
pub const TONE: &str = "tone";

/// What lists say of it.
pub(super) static INFO: MetricInfo = MetricInfo::comparing(
    TONE,
    "How much the output sounds like the expected text, by five dimensions from words and lengths (1 = alike).",
);

/// What is thought of a tone that no judge has read.
const HEURISTIC_CONFIDENCE: f64 = 0.7;

/// What tone looks at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToneRules {
    /// The tone to sound like; none for that of the expected text. Only a judge can tell.
    pub tone_profile: Option<String>,
    /// What each dimension counts for, in the order of [`Dimension::ALL`].
    pub dimensions: [Part; 5],
    /// Whose rules hold.
    pub compat: Compat,
}

impl ToneRules {
    /// The dimensions that count, which a judge is asked about.
    pub fn active(&self) -> impl Iterator<Item = Dimension> {
        let parts = Dimension::ALL.into_iter().zip(self.dimensions);
        let active = parts.filter(|(_, part)| part.counted(self.compat).is_some());
        active.map(|(dimension, _)| dimension)
    }

    /// Whether there is anything to ask a judge about.
    pub fn asks_judge(&self) -> bool {
        self.active().next().is_some()
    }
}

/// What a tone came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Tone {
    /// The result.
    pub checked: Checked,
    /// The values of the dimensions that were looked at, 0 to 1, in the order of [`Dimension::ALL`].
    pub dimensions: [Option<f64>; 5],
}

/// The tone of an output without a judge: from word lists, phrases, pronouns and lengths.
pub fn heuristic(
    actual: &str,
    expected: &str,
    threshold: f64,
    rules: &ToneRules,
    workspace: &mut Workspace,
) -> Tone {
    let mut tone = result(values(actual, expected, rules, workspace), threshold, rules);
    if rules.asks_judge() {
        tone.checked.confidence = HEURISTIC_CONFIDENCE;
    }
    tone
}

/// The score of [`heuristic`], and the values of the dimensions that were looked at; nothing is explained.
pub fn score(
    actual: &str,
    expected: &str,
    rules: &ToneRules,
    workspace: &mut Workspace,
) -> (f64, [Option<f64>; 5]) {
    let values = values(actual, expected, rules, workspace);
    (mean(&values, rules).unwrap_or(1.0), values)
}

/// The values of the enabled dimensions, without a judge.
fn values(
    actual: &str,
    expected: &str,
    rules: &ToneRules,
    workspace: &mut Workspace,
) -> [Option<f64>; 5] {
    let mut values = [None; 5];
    if rules.dimensions.iter().any(|part| part.enabled) {
        let traits = Traits::of(actual, expected, rules.compat, workspace);
        let parts = Dimension::ALL.into_iter().zip(rules.dimensions);
        for (value, (dimension, part)) in values.iter_mut().zip(parts) {
            *value = part.enabled.then(|| traits.value(dimension));
        }
    }
    values
}

/// The weighted mean of the values that count, 0 to 1; none where none does.
fn mean(values: &[Option<f64>; 5], rules: &ToneRules) -> Option<f64> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for (value, part) in values.iter().zip(rules.dimensions) {
        if let (Some(weight), Some(value)) = (part.counted(rules.compat), value) {
            sum += weight * value;
            weights += weight;
        }
    }
    (weights != 0.0).then(|| (sum / weights).clamp(0.0, 1.0))
}

/// The result where no dimension counts.
fn nothing_counts(threshold: f64) -> Tone {
    Tone {
        checked: Checked {
            score: 1.0,
            threshold,
            passed: 1.0 >= threshold,
            confidence: 1.0,
            explanation: "No dimension of tone counts.".to_owned(),
            judged: false,
            token_cost: Some(0.0),
            details: Vec::new(),
        },
        dimensions: [None; 5],
    }
}

/// The result for these values of the dimensions: their weighted mean, and a check for each that counts.
fn result(dimensions: [Option<f64>; 5], threshold: f64, rules: &ToneRules) -> Tone {
    let Some(score) = mean(&dimensions, rules) else {
        return Tone {
            dimensions,
            ..nothing_counts(threshold)
        };
    };
    let mut details = Vec::with_capacity(dimensions.len());
    let mut low = String::new();
    let parts = Dimension::ALL
        .into_iter()
        .zip(rules.dimensions)
        .zip(dimensions);
    for ((dimension, part), value) in parts {
        let (Some(_), Some(value)) = (part.counted(rules.compat), value) else {
            continue;
        };
        let passed = value >= threshold;
        if !passed {
            low.push_str(if low.is_empty() {
                "Below the threshold: "
            } else {
                ", "
            });
            low.push_str(&format!("{} {value:.2}", dimension.name()));
        }
        details.push(Detail {
            check: ["tone.", dimension.name()].concat(),
            passed,
            ..Detail::default()
        });
    }
    let explanation = match low.is_empty() {
        true => "All dimensions reach the threshold.".to_owned(),
        false => low + ".",
    };
    Tone {
        checked: Checked {
            score,
            threshold,
            passed: score >= threshold,
            confidence: 1.0,
            explanation,
            judged: false,
            token_cost: Some(0.0),
            details: listed(TONE, details),
        },
        dimensions,
    }
}

#[cfg(test)]
mod tests;
