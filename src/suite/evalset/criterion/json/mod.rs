//! Two JSON values.

mod difference;
mod print;

use serde_json::{Map, Value};

use super::fields::Fields;
use super::text::{unknown_comparison, unknown_strategy};
use super::{
    Comparison, CriterionFault, JsonFunction, JsonSchema, Mismatch, first_value, only_value,
};

pub(super) use print::Print;

/// How much two numbers may differ where a criterion does not say it.
pub const DEFAULT_TOLERANCE: f64 = 1e-6;

/// How two JSON values are compared. A missing value is null.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JsonCriterion {
    /// `ignore`: any two values match.
    pub ignore: bool,
    /// `ignoreTree`: keys with `true` are not compared, those with an object have it as their tree. It never reaches
    /// into arrays.
    pub ignore_tree: Map<String, Value>,
    /// `onlyTree`: only keys with `true` are compared, or with an object in part.
    pub only_tree: Map<String, Value>,
    /// `matchStrategy`
    pub strategy: JsonStrategy,
    /// `numberTolerance`: how much two numbers may differ; [`DEFAULT_TOLERANCE`] if none. Below 0, no two numbers
    /// match.
    pub tolerance: Option<f64>,
    /// `valid`: an actual text must be one JSON value and nothing else.
    pub valid: bool,
    /// `schema`: what the actual value must keep to before it is compared.
    pub schema: Option<JsonSchema>,
    /// `compareName`: a comparison that a program registered; empty where there is none.
    pub compare_name: String,
    /// Replaces everything but `ignore`.
    pub compare: Option<JsonFunction>,
}

/// `matchStrategy` of a JSON criterion. Names are case-sensitive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JsonStrategy {
    /// `exact`, also where none is given: the same value, numbers within the tolerance.
    #[default]
    Exact,
    /// `skip`: no comparison.
    Skip,
    /// Any other name. Nothing matches.
    Unknown(String),
}

/// Which keys of an object take part.
#[derive(Clone, Copy)]
enum Tree<'a> {
    All,
    Ignore(&'a Map<String, Value>),
    Only(&'a Map<String, Value>),
}

impl JsonCriterion {
    /// Reads a JSON criterion of a metrics file; `path` leads to it.
    ///
    /// # Errors
    /// [`CriterionFault`] for a known key with a value of the wrong type. Unknown keys are no errors.
    pub fn read(value: &Value, path: &str) -> Result<Self, CriterionFault> {
        let fields = Fields::of(value, path)?;
        Ok(Self {
            ignore: fields.flag("ignore")?,
            ignore_tree: fields.object("ignoreTree")?,
            only_tree: fields.object("onlyTree")?,
            strategy: match fields.text("matchStrategy")?.as_str() {
                "" | "exact" => JsonStrategy::Exact,
                "skip" => JsonStrategy::Skip,
                other => JsonStrategy::Unknown(other.to_owned()),
            },
            tolerance: fields.number("numberTolerance")?,
            valid: fields.flag("valid")?,
            schema: fields.value("schema").cloned().map(JsonSchema::new),
            compare_name: fields.text("compareName")?,
            compare: None,
        })
    }

    /// Compares two values as trpc-agent-go does.
    ///
    /// # Errors
    /// [`Mismatch`] if they do not match, or the criterion can't be used.
    pub fn compare(&self, actual: &Value, expected: &Value) -> Comparison {
        if self.ignore {
            return Ok(());
        }
        if let Some(function) = &self.compare {
            return function.compare(actual, expected);
        }
        self.check(actual)?;
        match self.strategy {
            JsonStrategy::Skip => Ok(()),
            _ => difference::compare(actual, expected, self.tree(), self.tolerance()),
        }
    }

    /// Compares the values that two texts begin with. With `skip` only what `valid` and `schema` ask for is read.
    ///
    /// # Errors
    /// [`Mismatch`] if they do not match, one of them holds no JSON, or the criterion can't be used.
    pub fn compare_texts(&self, actual: &str, expected: &str) -> Comparison {
        if self.ignore {
            return Ok(());
        }
        let unread = |side: &str, error: String| {
            Mismatch::differs(format!("the {side} response is no JSON: {error}"))
        };
        let skips = self.compare.is_none() && self.strategy == JsonStrategy::Skip;
        let actual = match (self.valid, skips && self.schema.is_none()) {
            (false, true) => return self.check(&Value::Null),
            (true, _) => only_value(actual),
            (false, false) => first_value(actual),
        };
        let actual = actual.map_err(|error| unread("actual", error))?;
        if skips {
            return self.check_value(&actual);
        }
        let expected = first_value(expected).map_err(|error| unread("expected", error))?;
        if let Some(function) = &self.compare {
            return function.compare(&actual, &expected);
        }
        self.check_value(&actual)?;
        difference::compare(&actual, &expected, self.tree(), self.tolerance())
    }

    /// What must hold before an actual value is compared. A string is a text that `valid` is about.
    fn check(&self, actual: &Value) -> Comparison {
        if let (true, Value::String(text)) = (self.valid, actual) {
            only_value(text)
                .map_err(|error| Mismatch::differs(format!("the text is no JSON: {error}")))?;
        }
        self.check_value(actual)
    }

    fn check_value(&self, actual: &Value) -> Comparison {
        if !self.compare_name.is_empty() && self.compare.is_none() {
            return Err(unknown_comparison(&self.compare_name));
        }
        if let JsonStrategy::Unknown(name) = &self.strategy {
            return Err(unknown_strategy(name));
        }
        if !self.ignore_tree.is_empty() && !self.only_tree.is_empty() {
            return Err(Mismatch::config(
                "`onlyTree` and `ignoreTree` can't be used together; take one out",
            ));
        }
        match &self.schema {
            Some(schema) => schema.check(actual),
            None => Ok(()),
        }
    }

    /// What decides whether an actual value fits, found once for many comparisons. Not for criteria with a function.
    pub(super) fn print_of_actual(&self, actual: &Value) -> Print {
        match self.ignore || self.check(actual).is_ok() {
            true => self.print_of_expected(actual),
            false => Print::Nothing,
        }
    }

    /// What decides whether an expected value fits, found once for many comparisons. Not for criteria with a function.
    pub(super) fn print_of_expected(&self, expected: &Value) -> Print {
        match self.ignore || self.strategy == JsonStrategy::Skip {
            true => Print::Anything,
            false => Print::of(expected, self.tree()),
        }
    }

    /// Whether two values match, by their prints: what [`Self::compare`] says of the values.
    pub(super) fn fits(&self, actual: &Print, expected: &Print) -> bool {
        actual.fits(expected, self.tolerance())
    }

    fn tree(&self) -> Tree<'_> {
        match (self.only_tree.is_empty(), self.ignore_tree.is_empty()) {
            (false, _) => Tree::Only(&self.only_tree),
            (_, false) => Tree::Ignore(&self.ignore_tree),
            _ => Tree::All,
        }
    }

    fn tolerance(&self) -> f64 {
        self.tolerance.unwrap_or(DEFAULT_TOLERANCE)
    }

    /// Whether it needs features that the first files did not have.
    pub(super) fn is_later(&self) -> bool {
        let has_tree = !self.only_tree.is_empty();
        self.valid || self.schema.is_some() || has_tree || self.strategy == JsonStrategy::Skip
    }
}

/// What a tree says about a key of an object.
enum Part<'a> {
    Compared(Tree<'a>),
    Left,
    /// `onlyTree` has something else there than a flag or an object.
    Unclear,
}

impl<'a> Tree<'a> {
    fn part(self, key: &str) -> Part<'a> {
        match self {
            Self::All => Part::Compared(Self::All),
            Self::Ignore(tree) => match tree.get(key) {
                Some(Value::Bool(true)) => Part::Left,
                Some(Value::Object(tree)) => Part::Compared(Self::Ignore(tree)),
                _ => Part::Compared(Self::All),
            },
            Self::Only(tree) => match tree.get(key) {
                None | Some(Value::Bool(false)) => Part::Left,
                Some(Value::Bool(true)) => Part::Compared(Self::All),
                Some(Value::Object(tree)) => Part::Compared(Self::Only(tree)),
                Some(_) => Part::Unclear,
            },
        }
    }
}

#[cfg(test)]
mod tests;
