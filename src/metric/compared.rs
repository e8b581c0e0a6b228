//! `factuality`, `format` and `tone` as columns: the score of a metric for one row and the few numbers that it is made
//! of, by the usual rules of each metric, without a judge and without texts.

use super::factuality::{self, FactualityRules, Path};
use super::format::{self, FormatRules, SubCheck};
use super::tone::{self, Dimension, ToneRules};
use super::{Metadata, comparison::Workspace};

/// A metric that holds an output against an expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparing {
    /// Does it say the same?
    Factuality,
    /// Does it look the same?
    Format,
    /// Does it sound the same?
    Tone,
}

/// What such a metric came to for one output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Compared {
    /// By the JSON documents that both are, or by shared words.
    Factuality {
        /// 0 to 1.
        score: f64,
        /// How it came about.
        path: Path,
    },
    /// By sub-checks.
    Format {
        /// 0 to 1.
        score: f64,
        /// For each of [`SubCheck::ALL`] whether it passes; none where it does not count.
        passed: [Option<bool>; 7],
    },
    /// By dimensions.
    Tone {
        /// 0 to 1.
        score: f64,
        /// The value of each of [`Dimension::ALL`], 0 to 1; none where it does not count.
        dimensions: [Option<f64>; 5],
    },
}

impl Comparing {
    /// All of them, in the order of the registry.
    pub const ALL: [Self; 3] = [Self::Factuality, Self::Format, Self::Tone];

    /// The registered name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Factuality => factuality::FACTUALITY,
            Self::Format => format::FORMAT,
            Self::Tone => tone::TONE,
        }
    }

    /// Holds an output against the expected one. Sub-checks of the format pass at `threshold`; the other metrics don't
    /// look at it.
    pub fn compare(
        self,
        actual: &str,
        expected: &str,
        threshold: f64,
        workspace: &mut Workspace,
    ) -> Compared {
        match self {
            Self::Factuality => {
                let rules = FactualityRules::default();
                let (score, path) = factuality::score(actual, expected, &rules, workspace);
                Compared::Factuality { score, path }
            }
            Self::Format => {
                let rules = FormatRules::default();
                let (score, passed) = format::score(actual, expected, threshold, &rules, workspace);
                Compared::Format { score, passed }
            }
            Self::Tone => {
                let rules = ToneRules::default();
                let (score, dimensions) = tone::score(actual, expected, &rules, workspace);
                Compared::Tone { score, dimensions }
            }
        }
    }
}

impl Compared {
    /// The metric that it is of.
    pub fn metric(&self) -> Comparing {
        match self {
            Self::Factuality { .. } => Comparing::Factuality,
            Self::Format { .. } => Comparing::Format,
            Self::Tone { .. } => Comparing::Tone,
        }
    }

    /// The unrounded score, 0 to 1.
    pub fn score(&self) -> f64 {
        match self {
            Self::Factuality { score, .. }
            | Self::Format { score, .. }
            | Self::Tone { score, .. } => *score,
        }
    }

    /// One line for a reader.
    pub fn reason(&self, threshold: f64) -> String {
        match self {
            Self::Factuality { path, .. } => match path {
                Path::Skipped => "There is no context to hold the output against.",
                Path::Json => {
                    "Both texts are JSON: matching leaves of all that are expected or extra."
                }
                Path::JsonError => "One of the texts is not JSON.",
                Path::Ngram | Path::Containment => {
                    "Shared words and neighbours of all that either text has."
                }
            }
            .to_owned(),
            Self::Format { passed, .. } => {
                let checks = SubCheck::ALL.iter().zip(passed);
                let failed = checks.filter(|(_, passed)| **passed == Some(false));
                let failed: Vec<&str> = failed.map(|(check, _)| check.name()).collect();
                match failed.is_empty() {
                    true => "All sub-checks pass.".to_owned(),
                    false => format!("Failed sub-checks: {}.", failed.join(", ")),
                }
            }
            Self::Tone { dimensions, .. } => {
                let values = Dimension::ALL.iter().zip(dimensions);
                let low = values.filter(|(_, value)| value.is_some_and(|v| v < threshold));
                let low: Vec<&str> = low.map(|(dimension, _)| dimension.name()).collect();
                match low.is_empty() {
                    true => "All dimensions reach the threshold.".to_owned(),
                    false => format!("Below the threshold: {}.", low.join(", ")),
                }
            }
        }
    }

    /// Appends the metadata object.
    pub fn push_metadata(&self, threshold: f64, out: &mut String) {
        let mut metadata = Metadata::object(out);
        match self {
            Self::Factuality { path, .. } => {
                metadata.text("path", path.name());
            }
            Self::Format { passed, .. } => {
                metadata.nested("sub_checks", |checks| {
                    for (check, passed) in SubCheck::ALL.iter().zip(passed) {
                        if let Some(passed) = passed {
                            checks.flag(check.name(), *passed);
                        }
                    }
                });
            }
            Self::Tone { dimensions, .. } => {
                metadata.nested("dimensions", |values| {
                    for (dimension, value) in Dimension::ALL.iter().zip(dimensions) {
                        if let Some(value) = value {
                            values.rounded(dimension.name(), *value);
                        }
                    }
                });
            }
        }
        metadata
            .number("threshold", threshold)
            .flag("success", self.score() >= threshold);
        metadata.end();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::metric::comparison::{Compat, Part};
    use crate::metric::factuality::{FactualityMode, shallow};
    use crate::metric::format::{FormatCase, format};

    /// Texts of the kinds that the metrics tell apart: prose, JSON whole and broken, fences, Markdown.
    fn text() -> impl Strategy<Value = String> {
        let json = r#"(\{"a": ?(1|"x"|\[1, ?2\]|\{"b": ?null\})(, ?"[ab]": ?(1\.0|"y"|\[\{"b": 1\}\]))?\}|\[\]|7|"a")"#;
        let prose = "((I think|maybe|good|therefore|hey|it|Refund|order 5|caf\u{e9}|\u{212a})[ .,!\n]){0,6}";
        prop_oneof![
            json.prop_map(|json| json),
            json.prop_map(|json| format!("```json\n{json}\n```")),
            prose.prop_map(|prose| prose),
            ("[#-]{0,3} ?[a-z]{1,5}\n", prose).prop_map(|(line, prose)| line + &prose),
            "[\\[{}\"a. \u{e9}#`-]{0,12}".prop_map(|text| text),
        ]
    }

    fn parts<const N: usize>() -> impl Strategy<Value = [Part; N]> {
        let part = (any::<bool>(), 0_u8..3).prop_map(|(enabled, weight)| Part {
            enabled,
            weight: f64::from(weight),
        });
        proptest::collection::vec(part, N).prop_map(|parts| std::array::from_fn(|at| parts[at]))
    }

    proptest! {
        #[test]
        fn a_score_alone_is_that_of_the_whole_result(
            actual in text(), expected in text(), threshold in 0.0..1.0_f64, mode in 0..3_usize,
            tool in any::<bool>(), strict_json in any::<bool>(), sub_checks in parts::<7>(), dimensions in parts::<5>(),
        ) {
            let compat = if tool { Compat::Tool } else { Compat::Document };
            let (mut one, mut other) = (Workspace::default(), Workspace::default());

            let rules = FactualityRules { mode: FactualityMode::ALL[mode], compat, ..FactualityRules::default() };
            let whole = shallow(&actual, &expected, &[], threshold, &rules, &mut one);
            let alone = factuality::score(&actual, &expected, &rules, &mut other);
            prop_assert_eq!((whole.checked.score, whole.path), alone);

            let rules = FormatRules { sub_checks, strict_json, compat, ..FormatRules::default() };
            let case = FormatCase::default();
            let whole = format(&actual, &expected, threshold, &rules, case, &mut one);
            let (score, passed) = format::score(&actual, &expected, threshold, &rules, &mut other);
            prop_assert_eq!(whole.score, score);
            let details: Vec<bool> = whole.details.iter().map(|detail| detail.passed).collect();
            prop_assert_eq!(details, passed.into_iter().flatten().collect::<Vec<_>>());

            let rules = ToneRules { dimensions, compat, ..ToneRules::default() };
            let whole = tone::heuristic(&actual, &expected, threshold, &rules, &mut one);
            let (score, values) = tone::score(&actual, &expected, &rules, &mut other);
            prop_assert_eq!((whole.checked.score, whole.dimensions), (score, values));
        }
    }

    #[test]
    fn a_reason_names_what_failed() {
        let mut workspace = Workspace::default();
        let mut told = |metric: Comparing, actual: &str, expected: &str| {
            let compared = metric.compare(actual, expected, 0.7, &mut workspace);
            assert_eq!(compared.metric(), metric);
            let mut metadata = String::new();
            compared.push_metadata(0.7, &mut metadata);
            (compared.score(), compared.reason(0.7), metadata)
        };
        let (score, reason, metadata) = told(Comparing::Factuality, "{\"a\": 1}", "{\"a\": 2}");
        assert!(reason.starts_with("Both texts are JSON"), "{reason}");
        assert_eq!(
            (score, &*metadata),
            (0.0, r#"{"path":"json","threshold":0.7,"success":false}"#)
        );
        let (score, reason, metadata) = told(Comparing::Format, "[1]", "[1]");
        // The pattern is a class of characters, which `1` is in.
        assert_eq!((score, &*reason), (1.0, "All sub-checks pass."));
        assert!(
            metadata.contains(r#""sub_checks":{"length":true,"#),
            "{metadata}"
        );
        let (score, reason, _) = told(Comparing::Format, "a", "a");
        assert_eq!(score, 5.0 / 7.0);
        assert_eq!(reason, "Failed sub-checks: json_validity, json_schema.");
        let (_, reason, metadata) = told(Comparing::Tone, "Hey", "Hey");
        assert_eq!(reason, "Below the threshold: formality, assertiveness.");
        assert!(metadata.contains(r#""assertiveness":0.5"#), "{metadata}");
    }
}
