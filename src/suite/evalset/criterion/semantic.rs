//! Final responses by their meaning: how close two vectors must be. Nothing here makes vectors.

use serde_json::Value;

use super::fields::Fields;
use super::{CriterionFault, shown_value};

/// The least cosine where a metric sets none: with the shipped model, most pairs from there on mean the same, and most
/// pairs that do are there. `README.md` of evaluation sets has the numbers.
pub const DEFAULT_MIN_COSINE: f64 = 0.8;

/// `semantic` of a criterion. It is nightmill's own: trpc-agent-go passes over it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SemanticCriterion {
    /// `minCosine`: the least cosine of two responses that mean the same; [`DEFAULT_MIN_COSINE`] if it is not set.
    pub min_cosine: Option<f64>,
}

impl SemanticCriterion {
    /// Reads the `semantic` of a metrics file; `path` leads to it.
    ///
    /// # Errors
    /// [`CriterionFault`] for a known key with a value of the wrong type. Unknown keys are no errors.
    pub fn read(value: &Value, path: &str) -> Result<Self, CriterionFault> {
        let fields = Fields::of(value, path)?;
        Ok(Self {
            min_cosine: fields.number("minCosine")?,
        })
    }

    /// The least cosine that counts as the same meaning: above 0, at most 1.
    ///
    /// # Errors
    /// A text for users if the file sets another number: nothing would fail it, or nothing pass.
    pub fn bar(&self) -> Result<f64, String> {
        let bar = self.min_cosine.unwrap_or(DEFAULT_MIN_COSINE);
        match bar > 0.0 && bar <= 1.0 {
            true => Ok(bar),
            false => Err(format!(
                "`criterion.semantic.minCosine` is {}; name a cosine above 0 and up to 1, such as {DEFAULT_MIN_COSINE}",
                shown_value(&bar.into())
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bar(value: Value) -> Result<f64, String> {
        SemanticCriterion::read(&value, "criterion.semantic")
            .unwrap()
            .bar()
    }

    #[test]
    fn a_bar_that_decides_nothing_is_refused() {
        assert_eq!(bar(json!({})), Ok(DEFAULT_MIN_COSINE));
        assert_eq!(
            bar(json!({"minCosine": null, "later": 1})),
            Ok(DEFAULT_MIN_COSINE)
        );
        assert_eq!(bar(json!({"minCosine": 0.65})), Ok(0.65));
        assert_eq!(bar(json!({"minCosine": 1})), Ok(1.0));
        for wrong in [json!(0), json!(-0.5), json!(80), json!(1.0001)] {
            let problem = bar(json!({"minCosine": wrong})).unwrap_err();
            assert!(problem.contains(&wrong.to_string()), "{problem}");
        }
        let fault = SemanticCriterion::read(&json!({"minCosine": "0.8"}), "criterion.semantic");
        assert_eq!(fault.unwrap_err().path, "criterion.semantic.minCosine");
    }
}
