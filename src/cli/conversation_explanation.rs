//! What a judge makes of a comparison of conversations, as text.

use serde::Serialize;

use crate::report::plain;
use crate::run::Explanation;

/// Causes, suggestions, and the questions that stayed without an answer.
pub(super) fn explained(of: &Explanation) -> String {
    let mut text = String::from("\nlikely causes, as the judge sees them\n");
    if let Some(causes) = &of.causes {
        for cause in &causes.analysis {
            text.push_str(&format!(
                "- {} {}: {} (confidence {}) {}\n",
                plain(&cause.metric),
                name(&cause.direction),
                plain(&cause.likely_cause),
                name(&cause.confidence),
                plain(&cause.reasoning)
            ));
        }
        for note in &causes.infrastructure_notes {
            text.push_str(&format!("- note: {}\n", plain(note)));
        }
        text.push_str(&format!("{}\n", plain(&causes.summary)));
    }
    text.push_str("\nsuggestions\n");
    if let Some(found) = &of.suggestions {
        for suggestion in &found.suggestions {
            text.push_str(&format!(
                "- {} ({}, priority {}): {}\n",
                plain(&suggestion.title),
                name(&suggestion.target),
                name(&suggestion.priority),
                plain(&suggestion.description)
            ));
            for (label, value) in [
                ("now", &suggestion.current_value),
                ("then", &suggestion.suggested_value),
            ] {
                if let Some(value) = value {
                    text.push_str(&format!("  {label}: {}\n", plain(value)));
                }
            }
        }
        text.push_str(&format!("{}\n", plain(&found.summary)));
    }
    for why in &of.unanswered {
        text.push_str(&format!("without answer: {}\n", plain(why)));
    }
    text
}

/// The name of a choice, as JSON has it.
fn name(choice: &impl Serialize) -> String {
    let value = serde_json::to_value(choice).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
