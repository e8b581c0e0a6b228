//! `tone`: does the output sound as it was expected to? As in Regtrace: five dimensions, by a judge or by words and
//! lengths.

mod dimension;
mod heuristics;
mod judged;
mod reading;
mod word_lists;

pub use dimension::Dimension;
pub use judged::judged;

use heuristics::Traits;

use crate::metric::checked::{Checked, Detail, listed};
use crate::metric::comparison::{Compat, Part, Workspace};

/// The metric's name.
pub const TONE: &str = "tone";

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
    if !rules.dimensions.iter().any(|part| part.enabled) {
        return nothing_counts(threshold);
    }
    let traits = Traits::of(actual, expected, rules.compat, workspace);
    let mut values = [None; 5];
    for ((value, dimension), part) in values.iter_mut().zip(Dimension::ALL).zip(rules.dimensions) {
        *value = part.enabled.then(|| traits.value(dimension));
    }
    let mut tone = result(values, threshold, rules);
    if rules.asks_judge() {
        tone.checked.confidence = HEURISTIC_CONFIDENCE;
    }
    tone
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
    let (mut sum, mut weights) = (0.0, 0.0);
    let mut details = Vec::with_capacity(dimensions.len());
    let mut low = String::new();
    let parts = Dimension::ALL
        .into_iter()
        .zip(rules.dimensions)
        .zip(dimensions);
    for ((dimension, part), value) in parts {
        let (Some(weight), Some(value)) = (part.counted(rules.compat), value) else {
            continue;
        };
        sum += weight * value;
        weights += weight;
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
    if weights == 0.0 {
        return Tone {
            dimensions,
            ..nothing_counts(threshold)
        };
    }
    let score = (sum / weights).clamp(0.0, 1.0);
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
