//! Two texts.

use serde_json::Value;

use super::fields::Fields;
use super::{Comparison, CriterionFault, Mismatch, TextFunction, re2, shown};

/// How two texts are compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TextCriterion {
    /// `ignore`: any two texts match.
    pub ignore: bool,
    /// `caseInsensitive`: both texts are lower-cased first, patterns too.
    pub case_insensitive: bool,
    /// `matchStrategy`
    pub strategy: TextStrategy,
    /// `length`: what the actual text must keep to before it is compared.
    pub length: Option<LengthCriterion>,
    /// `compareName`: a comparison that a program registered; empty where there is none.
    pub compare_name: String,
    /// Replaces everything but `ignore`.
    pub compare: Option<TextFunction>,
}

/// `matchStrategy` of a text criterion. Names are case-sensitive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TextStrategy {
    /// `exact`, also where none is given: the same bytes.
    #[default]
    Exact,
    /// `contains`: the actual text contains the expected one.
    Contains,
    /// `regex`: the expected text is a pattern in RE2 syntax that is found somewhere in the actual one.
    Regex,
    /// `skip`: no comparison.
    Skip,
    /// Any other name. Nothing matches.
    Unknown(String),
}

/// `length` of a text criterion: bounds of the number of code points, inclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LengthCriterion {
    /// `ignore`: any length will do.
    pub ignore: bool,
    /// `min`
    pub min: Option<i64>,
    /// `max`
    pub max: Option<i64>,
}

impl TextCriterion {
    /// Reads a text criterion of a metrics file; `path` leads to it.
    ///
    /// # Errors
    /// [`CriterionFault`] for a known key with a value of the wrong type. Unknown keys are no errors.
    pub fn read(value: &Value, path: &str) -> Result<Self, CriterionFault> {
        let fields = Fields::of(value, path)?;
        Ok(Self {
            ignore: fields.flag("ignore")?,
            case_insensitive: fields.flag("caseInsensitive")?,
            strategy: match fields.text("matchStrategy")?.as_str() {
                "" | "exact" => TextStrategy::Exact,
                "contains" => TextStrategy::Contains,
                "regex" => TextStrategy::Regex,
                "skip" => TextStrategy::Skip,
                other => TextStrategy::Unknown(other.to_owned()),
            },
            length: fields.part("length", LengthCriterion::read)?,
            compare_name: fields.text("compareName")?,
            compare: None,
        })
    }

    /// Compares two texts as trpc-agent-go does: no trimming, no Unicode normalisation.
    ///
    /// # Errors
    /// [`Mismatch`] if they do not match, or the criterion can't be used.
    pub fn compare(&self, actual: &str, expected: &str) -> Comparison {
        if self.ignore {
            return Ok(());
        }
        if let Some(function) = &self.compare {
            return function.compare(actual, expected);
        }
        if self.holds(actual, expected)? {
            return Ok(());
        }
        let verb = match self.strategy {
            TextStrategy::Contains => "does not contain",
            TextStrategy::Regex => "does not match the pattern",
            _ => "is not",
        };
        let reason = format!("{} {verb} {}", shown(actual), shown(expected));
        Err(Mismatch::differs(reason))
    }

    /// Whether two texts match: [`Self::compare`] without words.
    pub(super) fn fits(&self, actual: &str, expected: &str) -> bool {
        match (self.ignore, &self.compare) {
            (true, _) => true,
            (_, Some(function)) => function.compare(actual, expected).is_ok(),
            (_, None) => self.holds(actual, expected) == Ok(true),
        }
    }

    fn holds(&self, actual: &str, expected: &str) -> Result<bool, Mismatch> {
        if !self.compare_name.is_empty() {
            return Err(unknown_comparison(&self.compare_name));
        }
        if let Some(length) = &self.length {
            length.check(actual)?;
        }
        match self.case_insensitive {
            true => self.holds_as_is(&lower(actual), &lower(expected)),
            false => self.holds_as_is(actual, expected),
        }
    }

    fn holds_as_is(&self, actual: &str, expected: &str) -> Result<bool, Mismatch> {
        match &self.strategy {
            TextStrategy::Skip => Ok(true),
            TextStrategy::Exact => Ok(actual == expected),
            TextStrategy::Contains => Ok(actual.contains(expected)),
            TextStrategy::Regex => re2::is_match(expected, actual)
                .map_err(|bad| Mismatch::config(format!("bad pattern {}: {bad}", shown(expected)))),
            TextStrategy::Unknown(name) => Err(unknown_strategy(name)),
        }
    }

    /// Whether it needs features that the first files did not have.
    pub(super) fn is_later(&self) -> bool {
        self.length.is_some() || self.strategy == TextStrategy::Skip
    }
}

impl LengthCriterion {
    /// Reads the `length` of a text criterion; `path` leads to it.
    ///
    /// # Errors
    /// [`CriterionFault`] for a known key with a value of the wrong type.
    pub fn read(value: &Value, path: &str) -> Result<Self, CriterionFault> {
        let fields = Fields::of(value, path)?;
        Ok(Self {
            ignore: fields.flag("ignore")?,
            min: fields.integer("min")?,
            max: fields.integer("max")?,
        })
    }

    fn check(&self, actual: &str) -> Comparison {
        if self.ignore {
            return Ok(());
        }
        let (min, max) = (self.min.unwrap_or(0), self.max.unwrap_or(i64::MAX));
        let unbounded = self.min.is_none() && self.max.is_none();
        if unbounded || min < 0 || max < min {
            return Err(Mismatch::config(
                "`length` needs `min` or `max`, neither below 0, and `min` not above `max`",
            ));
        }
        let length = i64::try_from(actual.chars().count()).unwrap_or(i64::MAX);
        match (min..=max).contains(&length) {
            true => Ok(()),
            false => Err(Mismatch::differs(format!(
                "the text has {length} characters, not {min} to {}",
                self.max
                    .map_or("any number".to_owned(), |max| max.to_string())
            ))),
        }
    }
}

/// A text in lower case, character by character: no rule of final sigmas, and a dotted capital I becomes `i`.
pub(super) fn lower(text: &str) -> String {
    text.chars()
        .map(|character| character.to_lowercase().next().unwrap_or(character))
        .collect()
}

pub(super) fn unknown_strategy(name: &str) -> Mismatch {
    Mismatch::config(format!("`matchStrategy` {} is not known", shown(name)))
}

pub(super) fn unknown_comparison(name: &str) -> Mismatch {
    Mismatch::config(format!("there is no comparison named {}", shown(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::evalset::criterion::MismatchKind;
    use serde_json::json;

    fn kind(criterion: Value, actual: &str, expected: &str) -> Option<MismatchKind> {
        let criterion = TextCriterion::read(&criterion, "text").unwrap();
        let comparison = criterion.compare(actual, expected);
        comparison.err().map(|mismatch| mismatch.kind)
    }

    const DIFFERS: Option<MismatchKind> = Some(MismatchKind::Differs);
    const CONFIG: Option<MismatchKind> = Some(MismatchKind::Config);

    #[test]
    fn lower_case_is_character_by_character() {
        assert_eq!(lower("ΑΣ İ ẞ K"), "ας i ß k".replace('ς', "σ"));
        let folded = json!({"caseInsensitive": true});
        assert_eq!(kind(folded.clone(), "ΟΔΟΣ", "οδος"), DIFFERS);
        assert_eq!(kind(folded.clone(), "ΟΔΟΣ", "οδοσ"), None);
        assert_eq!(kind(folded, "İ", "I"), None);
    }

    #[test]
    fn lower_casing_changes_the_classes_of_a_pattern() {
        let criterion = json!({"matchStrategy": "regex", "caseInsensitive": true});
        assert_eq!(kind(criterion.clone(), "abc", r"^\D+$"), DIFFERS);
        assert_eq!(kind(criterion.clone(), "123", r"^\D+$"), None);
        // `\PL` becomes `\pl`, which no class is called.
        assert_eq!(kind(criterion, "123", r"\PL"), CONFIG);
    }

    #[test]
    fn bad_bounds_are_a_matter_of_the_criterion() {
        for length in [
            json!({}),
            json!({"min": -1}),
            json!({"max": -1}),
            json!({"min": 3, "max": 2}),
        ] {
            assert_eq!(kind(json!({"length": length}), "abc", "abc"), CONFIG);
        }
        let ignored = json!({"length": {"ignore": true, "min": 9}});
        assert_eq!(kind(ignored, "abc", "abc"), None);
        let bounds = json!({"length": {"min": 3, "max": 3}});
        assert_eq!(kind(bounds.clone(), "äöü", "äöü"), None);
        assert_eq!(kind(bounds.clone(), "äö", "äö"), DIFFERS);
        assert_eq!(kind(bounds, "äöüß", "äöüß"), DIFFERS);
    }

    #[test]
    fn a_function_replaces_everything_but_ignore() {
        let mut criterion = TextCriterion {
            strategy: TextStrategy::Unknown("x".to_owned()),
            length: Some(LengthCriterion::default()),
            compare: Some(TextFunction::of_texts(|actual, expected| {
                match expected.is_empty() {
                    true => Err("nothing expected".to_owned()),
                    false => Ok(actual.len() == expected.len()),
                }
            })),
            ..TextCriterion::default()
        };
        assert!(criterion.compare("abc", "xyz").is_ok());
        assert!(criterion.compare("abc", "xy").is_err());
        let reason = criterion.compare("abc", "").unwrap_err().reason;
        assert_eq!(reason, "nothing expected");
        criterion.ignore = true;
        assert!(criterion.compare("abc", "").is_ok());
        assert_eq!(criterion, criterion.clone());
    }

    #[test]
    fn long_texts_are_cut_in_reasons() {
        let criterion = TextCriterion::default();
        let reason = criterion
            .compare(&"ä".repeat(9999), "b")
            .unwrap_err()
            .reason;
        assert!(reason.len() < 400, "{reason}");
    }

    #[test]
    fn a_name_that_nothing_was_registered_under_is_a_matter_of_the_criterion() {
        assert_eq!(kind(json!({"compareName": "x"}), "a", "a"), CONFIG);
    }
}
