//! `format`: does the output look as it was expected to? As in Regtrace: up to seven sub-checks, all of them without a
//! judge.

mod ecma_pattern;
mod forbidden_content;
mod json_likeness;
mod json_schema;
mod json_validity;
mod length;
mod markdown_line;
mod markdown_structure;
mod regex_match;
mod required_fields;
mod sub_check;

pub use json_schema::{Fit, Violation};
pub use markdown_structure::Assertion;
pub use regex_match::Outcome;
pub use sub_check::{Finding, SubCheck, SubChecked, sub_check};

use sub_check::look;

use crate::metric::MetricInfo;
use crate::metric::checked::{Checked, Detail, listed};
use crate::metric::comparison::{Compat, Part, Workspace};

/// The metric's name.
pub const FORMAT: &str = "format";

/// What lists say of it.
pub(super) static INFO: MetricInfo = MetricInfo::comparing(
    FORMAT,
    "How much the output looks like the expected text, by seven checks of length, JSON, Markdown, words and phrases.",
);

/// What format looks at.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatRules {
    /// What each sub-check counts for, in the order of [`SubCheck::ALL`].
    pub sub_checks: [Part; 7],
    /// How far the length may be from the expected one, as a share of it.
    pub length_tolerance: f64,
    /// Whether a code fence around JSON makes it none. The tool knows no such rule.
    pub strict_json: bool,
    /// Whose rules hold.
    pub compat: Compat,
}

impl Default for FormatRules {
    /// All sub-checks with the same weight, a tolerance of 0.2, fences allowed.
    fn default() -> Self {
        Self {
            sub_checks: [Part::default(); 7],
            length_tolerance: 0.2,
            strict_json: false,
            compat: Compat::Document,
        }
    }
}

/// What a case says of the format of its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatCase<'c> {
    /// Terms that must be there, in place of the words of the expected text.
    pub required_terms: Option<&'c [String]>,
    /// Terms that must not be there, besides those that never may.
    pub forbidden_terms: &'c [String],
    /// The regular expression, in place of the expected text.
    pub regex_pattern: Option<&'c str>,
}

/// The score of an output: the weight of the sub-checks that it passes, of the weight of all that are enabled; 1 if
/// none is. In the tool it is the mean of their scores.
pub fn format(
    actual: &str,
    expected: &str,
    threshold: f64,
    rules: &FormatRules,
    case: FormatCase<'_>,
    workspace: &mut Workspace,
) -> Checked {
    let mut details = Vec::with_capacity(SubCheck::ALL.len());
    let mut explanation = String::new();
    let texts = (actual, expected);
    let score = each_counted(
        texts,
        threshold,
        rules,
        case,
        usize::MAX,
        workspace,
        |check, found| {
            let message = (!found.passed).then(|| found.message());
            if let Some(message) = &message {
                explanation.push_str(if explanation.is_empty() { "" } else { " " });
                explanation.push_str(check.name());
                explanation.push_str(": ");
                explanation.push_str(message);
            }
            details.push(Detail {
                check: ["format.", check.name()].concat(),
                passed: found.passed,
                message,
                ..Detail::default()
            });
        },
    );
    if explanation.is_empty() {
        explanation.push_str("All enabled sub-checks pass.");
    }
    Checked {
        score,
        threshold,
        passed: score >= threshold,
        confidence: 1.0,
        explanation,
        judged: false,
        token_cost: Some(0.0),
        details: listed(FORMAT, details),
    }
}

/// The score of [`format()`] for a case that says nothing more, and for each sub-check whether it passes; none where it
/// does not count. Nothing is explained.
pub fn score(
    actual: &str,
    expected: &str,
    threshold: f64,
    rules: &FormatRules,
    workspace: &mut Workspace,
) -> (f64, [Option<bool>; 7]) {
    let mut passed = [None; 7];
    let (texts, case) = ((actual, expected), FormatCase::default());
    let score = each_counted(
        texts,
        threshold,
        rules,
        case,
        0,
        workspace,
        |check, found| {
            let places = SubCheck::ALL.iter().zip(&mut passed);
            let own = places.filter(|(other, _)| **other == check);
            own.for_each(|(_, passed)| *passed = Some(found.passed));
        },
    );
    (score, passed)
}

/// Calls `each` with what the sub-checks that count find, of which at most `most` things are named, and returns the
/// score.
fn each_counted(
    (actual, expected): (&str, &str),
    threshold: f64,
    rules: &FormatRules,
    case: FormatCase<'_>,
    most: usize,
    workspace: &mut Workspace,
    mut each: impl FnMut(SubCheck, &SubChecked),
) -> f64 {
    let (mut earned, mut weighed) = (0.0, 0.0);
    for (check, part) in SubCheck::ALL.into_iter().zip(rules.sub_checks) {
        let Some(weight) = part.counted(rules.compat) else {
            continue;
        };
        let found = look(
            check, actual, expected, threshold, rules, case, most, workspace,
        );
        weighed += weight;
        earned += weight
            * match rules.compat {
                Compat::Document if found.passed => 1.0,
                Compat::Document => 0.0,
                Compat::Tool => found.score,
            };
        each(check, &found);
    }
    if weighed > 0.0 { earned / weighed } else { 1.0 }
}

#[cfg(test)]
mod tests;
