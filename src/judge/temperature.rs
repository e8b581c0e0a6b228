//! How random a judge's replies are.

use super::model_name::reasons;

/// The randomness that calls ask for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Temperature {
    /// This one, from 0, whatever the model.
    Given(f64),
    /// This one, but none for models that reason: they refuse calls with a temperature of their own.
    Usual(f64),
    /// None: the model's own.
    Unsaid,
}

impl Temperature {
    /// What a call to this model says; `None` leaves it out.
    pub fn of(self, model: &str) -> Option<f64> {
        match self {
            Self::Given(temperature) => Some(temperature),
            Self::Usual(_) if reasons(model) => None,
            Self::Usual(temperature) => Some(temperature),
            Self::Unsaid => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_reason_get_one_only_if_it_was_given() {
        for model in ["openai/gpt-5.4", "openai/o3-mini", "openai/openai/gpt-5"] {
            assert_eq!(Temperature::Usual(0.2).of(model), None, "{model}");
            assert_eq!(Temperature::Given(0.2).of(model), Some(0.2));
        }
        for model in ["openai/gpt-4o", "openai/test", "anthropic/claude-haiku-4-5"] {
            assert_eq!(Temperature::Usual(0.2).of(model), Some(0.2), "{model}");
            assert_eq!(Temperature::Unsaid.of(model), None);
        }
    }
}
