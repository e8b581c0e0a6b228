//! The sub-checks of `format`, and what each finds.

use super::json_likeness::likeness;
use super::json_schema::{Fit, fit};
use super::markdown_structure::{self, Assertion};
use super::regex_match::{Outcome, outcome};
use super::{FormatCase, FormatRules, forbidden_content, json_validity, length, required_fields};
use crate::metric::comparison::{Compat, Workspace};

/// A sub-check of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubCheck {
    /// About as long as the expected text.
    Length,
    /// JSON.
    JsonValidity,
    /// JSON of the shape of the expected document.
    JsonSchema,
    /// Well-formed headings and lists.
    MarkdownStructure,
    /// The words of the expected text.
    RequiredFields,
    /// None of the phrases that say no answer.
    ForbiddenContent,
    /// A match of a regular expression.
    RegexMatch,
}

impl SubCheck {
    /// All of them, in the order of results.
    pub const ALL: [Self; 7] = [
        Self::Length,
        Self::JsonValidity,
        Self::JsonSchema,
        Self::MarkdownStructure,
        Self::RequiredFields,
        Self::ForbiddenContent,
        Self::RegexMatch,
    ];

    /// The name in configuration and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::JsonValidity => "json_validity",
            Self::JsonSchema => "json_schema",
            Self::MarkdownStructure => "markdown_structure",
            Self::RequiredFields => "required_fields",
            Self::ForbiddenContent => "forbidden_content",
            Self::RegexMatch => "regex_match",
        }
    }
}

/// What a sub-check came to.
#[derive(Clone, Debug, PartialEq)]
pub struct SubChecked {
    /// 0 to 1.
    pub score: f64,
    /// Whether it passes.
    pub passed: bool,
    /// What the score is from.
    pub finding: Finding,
}

/// What a sub-check found.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Nothing but the score.
    Score,
    /// Whether output and expected text are JSON, where one of them is not.
    NoJson {
        /// The output.
        actual: bool,
        /// The expected text.
        expected: bool,
    },
    /// How the output fits the shape.
    Fit(Fit),
    /// For each of [`Assertion::ALL`] whether it holds; none where it does not apply.
    Assertions([Option<bool>; 4]),
    /// The first terms that are missing.
    Missing(Vec<String>),
    /// The forbidden phrases that are there.
    Forbidden(Vec<String>),
    /// What came of the regular expression.
    Regex(Outcome),
}

/// One sub-check of an output, enabled or not.
pub fn sub_check(
    check: SubCheck,
    actual: &str,
    expected: &str,
    threshold: f64,
    rules: &FormatRules,
    case: FormatCase<'_>,
    workspace: &mut Workspace,
) -> SubChecked {
    let most = usize::MAX;
    look(
        check, actual, expected, threshold, rules, case, most, workspace,
    )
}

/// The same, where at most `most` of what is found are named: with 0, the score is all there is.
#[expect(
    clippy::too_many_arguments,
    reason = "a sub-check takes all that the metric takes"
)]
pub(super) fn look(
    check: SubCheck,
    actual: &str,
    expected: &str,
    threshold: f64,
    rules: &FormatRules,
    case: FormatCase<'_>,
    most: usize,
    workspace: &mut Workspace,
) -> SubChecked {
    let (score, passes, finding) = match check {
        SubCheck::Length => {
            let score = length::score(actual, expected, rules.length_tolerance);
            (score, Passes::AtThreshold, Finding::Score)
        }
        SubCheck::JsonValidity => {
            let json = json_validity::read(actual, is_strict(rules), &mut workspace.actual_json);
            (if json { 1.0 } else { 0.0 }, Passes::AtOne, Finding::Score)
        }
        SubCheck::JsonSchema => json_schema(actual, expected, rules, most, workspace),
        SubCheck::MarkdownStructure => match rules.compat {
            Compat::Document => {
                let assertions = markdown_structure::assertions(actual);
                let score = markdown_structure::score(&assertions);
                (score, Passes::AtOne, Finding::Assertions(assertions))
            }
            Compat::Tool => {
                let score = markdown_structure::features(actual);
                (score, Passes::AtThreshold, Finding::Score)
            }
        },
        SubCheck::RequiredFields => {
            let required = match case.required_terms {
                Some(terms) => {
                    required_fields::of_case(actual, terms, &mut workspace.required_phrases)
                }
                None => required_fields::of_expected(actual, expected, most, workspace),
            };
            let score = required.score();
            (
                score,
                Passes::AtThreshold,
                Finding::Missing(required.missing),
            )
        }
        SubCheck::ForbiddenContent => {
            let (count, named) =
                forbidden_content::found(actual, case.forbidden_terms, most, workspace);
            let score = forbidden_content::score(count);
            (score, Passes::AtOne, Finding::Forbidden(named))
        }
        SubCheck::RegexMatch => {
            let outcome = outcome(case.regex_pattern.unwrap_or(expected), actual);
            let score = if outcome == Outcome::Found { 1.0 } else { 0.0 };
            (score, Passes::AtOne, Finding::Regex(outcome))
        }
    };
    let passed = match passes {
        Passes::AtOne => score >= 1.0,
        Passes::AtThreshold => score >= threshold,
        Passes::Never => false,
    };
    SubChecked {
        score,
        passed,
        finding,
    }
}

/// When a sub-check passes.
enum Passes {
    AtOne,
    AtThreshold,
    Never,
}

fn json_schema(
    actual: &str,
    expected: &str,
    rules: &FormatRules,
    most: usize,
    workspace: &mut Workspace,
) -> (f64, Passes, Finding) {
    let Workspace {
        actual_json,
        expected_json,
        ..
    } = workspace;
    let is_json = (
        json_validity::read(actual, is_strict(rules), actual_json),
        // The expected text must be JSON as it is.
        json_validity::read(expected, true, expected_json),
    );
    match (is_json, rules.compat) {
        ((true, true), Compat::Document) => {
            let fit = fit(actual_json, expected_json, most);
            (fit.score(), Passes::AtOne, Finding::Fit(fit))
        }
        ((true, true), Compat::Tool) => {
            let score = likeness(actual_json, expected_json);
            (score, Passes::AtThreshold, Finding::Score)
        }
        ((actual, expected), _) => (0.0, Passes::Never, Finding::NoJson { actual, expected }),
    }
}

fn is_strict(rules: &FormatRules) -> bool {
    rules.strict_json && rules.compat == Compat::Document
}

impl SubChecked {
    /// What there is to say of a sub-check that fails.
    pub(super) fn message(&self) -> String {
        match &self.finding {
            Finding::Score => format!("score {:.2}.", self.score),
            Finding::NoJson { actual: true, .. } => "the expected text is not JSON.".to_owned(),
            Finding::NoJson { expected: true, .. } => "the output is not JSON.".to_owned(),
            Finding::NoJson { .. } => "output and expected text are not JSON.".to_owned(),
            Finding::Fit(fit) => {
                let first = fit.violations.first();
                let first = first.map_or_else(String::new, |violation| match violation.kind {
                    "required" => format!("; `{}` is missing", violation.path),
                    _ => format!("; `{}` has another type", violation.path),
                });
                format!("{} of {} assertions fail{first}.", fit.counted - fit.held, fit.counted)
            }
            Finding::Assertions(assertions) => {
                let failed = Assertion::ALL.iter().zip(assertions);
                let failed = failed.filter(|(_, holds)| **holds == Some(false));
                let names: Vec<&str> = failed.map(|(assertion, _)| assertion.name()).collect();
                format!("{} does not hold.", names.join(", "))
            }
            Finding::Missing(terms) => format!("missing: {}.", terms.join(", ")),
            Finding::Forbidden(phrases) => format!("found: {}.", phrases.join("; ")),
            Finding::Regex(outcome) => match outcome {
                Outcome::Found | Outcome::NotFound => "the pattern does not match.",
                Outcome::Invalid => "the pattern is no regular expression.",
                Outcome::TooLong => "the pattern has over 500 characters and was not tried (too_long).",
                Outcome::Unsafe => {
                    "the pattern repeats something complex without an upper bound and was not tried (unsafe)."
                }
                Outcome::TooComplex => "the pattern takes too many steps (too_complex).",
            }
            .to_owned(),
        }
    }
}
