//! Which labels are bad.

use std::fmt;

/// What `--bad` or `--good` says.
#[derive(Clone, Debug, PartialEq)]
pub struct BadLabels {
    tests: Vec<Test>,
    /// Whether the tests tell good labels, and all others are bad.
    are_good: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Is(String),
    Below(f64),
    AtMost(f64),
    Above(f64),
    AtLeast(f64),
}

impl BadLabels {
    /// Labels that are one of these values, or numbers that pass a comparison: `failure`, `0`, `<0.5`, `>=3`. With `are_good`,
    /// these are the good ones.
    ///
    /// # Errors
    /// A message for a comparison with what is no number, and for none at all.
    pub fn new(values: &[String], are_good: bool) -> Result<Self, String> {
        if values.is_empty() {
            return Err("no value is named".into());
        }
        let tests = values.iter().map(|value| Test::of(value));
        Ok(Self {
            tests: tests.collect::<Result<_, _>>()?,
            are_good,
        })
    }

    /// Whether a label is bad; none where numbers are compared and it is none.
    pub(super) fn is_bad(&self, label: &str) -> Option<bool> {
        let named = self.tests.iter().any(|test| test.holds(label));
        let compares = self.tests.iter().any(|test| !matches!(test, Test::Is(_)));
        let unclear = !named && compares && label.trim().parse::<f64>().is_err();
        (!unclear).then_some(named != self.are_good)
    }
}

/// A value that is named as a label, and is the label of no row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unmet {
    pub value: String,
    /// A label that it may be meant for.
    pub like: Option<String>,
}

impl BadLabels {
    /// The named values that are none of these labels.
    pub(super) fn unmet<'l>(&self, labels: impl Iterator<Item = &'l String> + Clone) -> Vec<Unmet> {
        /// Likeness from which on a name is a slip of another.
        const ALIKE: f64 = 0.88;
        let values = self.tests.iter().filter_map(|test| match test {
            Test::Is(value) if !labels.clone().any(|label| test.holds(label)) => Some(value),
            _ => None,
        });
        let unmet = values.map(|value| {
            let lower = value.to_lowercase();
            let likeness = |label: &String| strsim::jaro_winkler(&label.to_lowercase(), &lower);
            let unnamed = labels
                .clone()
                .filter(|label| !self.tests.iter().any(|test| test.holds(label)));
            let nearest = unnamed.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
            Unmet {
                value: value.clone(),
                like: nearest.filter(|label| likeness(label) >= ALIKE).cloned(),
            }
        });
        unmet.collect()
    }
}

impl Test {
    fn of(text: &str) -> Result<Self, String> {
        type Comparison = fn(f64) -> Test;
        let comparisons: [(&str, Comparison); 4] = [
            ("<=", Self::AtMost),
            (">=", Self::AtLeast),
            ("<", Self::Below),
            (">", Self::Above),
        ];
        for (sign, test) in comparisons {
            if let Some(number) = text.strip_prefix(sign) {
                let number = number.trim().parse::<f64>().ok().filter(|n| !n.is_nan());
                return number
                    .map(test)
                    .ok_or_else(|| format!("`{text}`: a number must follow `{sign}`"));
            }
        }
        Ok(Self::Is(text.to_owned()))
    }

    fn holds(&self, label: &str) -> bool {
        let number = || label.trim().parse::<f64>().ok();
        let passes = |test: &dyn Fn(f64) -> bool| number().is_some_and(test);
        match self {
            // `0` is `0.0` too.
            Self::Is(value) => {
                value == label || number().is_some_and(|n| value.parse::<f64>() == Ok(n))
            }
            Self::Below(end) => passes(&|n| n < *end),
            Self::AtMost(end) => passes(&|n| n <= *end),
            Self::Above(end) => passes(&|n| n > *end),
            Self::AtLeast(end) => passes(&|n| n >= *end),
        }
    }
}

impl fmt::Display for BadLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tests: Vec<String> = self
            .tests
            .iter()
            .map(|test| match test {
                Test::Is(value) => format!("`{value}`"),
                Test::Below(end) => format!("below {end}"),
                Test::AtMost(end) => format!("at most {end}"),
                Test::Above(end) => format!("above {end}"),
                Test::AtLeast(end) => format!("at least {end}"),
            })
            .collect();
        let what = if self.are_good { "not " } else { "" };
        write!(f, "{what}{}", tests.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(values: &[&str]) -> BadLabels {
        let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
        BadLabels::new(&values, false).unwrap()
    }

    #[test]
    fn labels_are_texts_or_numbers() {
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(
            ["0", "0.0", "1", "false"].map(|l| bad(&["0"]).is_bad(l)),
            [yes, yes, no, no]
        );
        let several = bad(&["failure", "halted"]);
        assert_eq!(["halted", "success"].map(|l| several.is_bad(l)), [yes, no]);
        // What is no number is neither above nor below one.
        assert_eq!(
            ["0.25", "0.5", "many"].map(|l| bad(&["<0.5"]).is_bad(l)),
            [yes, no, None]
        );
        assert_eq!(["3", "many"].map(|l| bad(&[">=3"]).is_bad(l)), [yes, None]);
        let good = BadLabels::new(&["1".into()], true).unwrap();
        assert_eq!(["0", "1.0"].map(|l| good.is_bad(l)), [yes, no]);
        assert_eq!(good.to_string(), "not `1`");
        assert_eq!(several.to_string(), "`failure` or `halted`");
        let labels = ["halted", "success"].map(str::to_owned);
        let unmet = |values: &[&str]| bad(values).unmet(labels.iter());
        let of = |value: &str, like: Option<&str>| Unmet {
            value: value.into(),
            like: like.map(str::to_owned),
        };
        assert_eq!(unmet(&["halt", "halted"]), [of("halt", None)]);
        assert_eq!(unmet(&["halt"]), [of("halt", Some("halted"))]);
        assert_eq!(unmet(&["Halted"]), [of("Halted", Some("halted"))]);
        assert_eq!(unmet(&["failure", "halted"]), [of("failure", None)]);
        assert!(BadLabels::new(&["<much".into()], false).is_err());
        assert!(BadLabels::new(&[], false).is_err());
    }
}
