//! What judge models cost.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::call::Usage;

/// Prices of one model, in US dollars for a million tokens.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Tokens of the question.
    pub input: f64,
    /// Tokens of the reply.
    pub output: f64,
    /// Tokens of the question that the provider had in its cache; as `input` if not given.
    pub cached_input: Option<f64>,
}

/// List prices known to the program, and the day they were written down.
const SHIPPED: &str = include_str!("prices.toml");

/// Prices by model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// The day of the shipped prices, as `YYYY-MM-DD`.
    pub as_of: String,
    /// What a call costs in a batch, as a share of its price.
    batch_share: f64,
    models: BTreeMap<String, Price>,
    /// Models whose price was given: it is taken as it is, in batches too.
    #[serde(skip)]
    given: BTreeSet<String>,
}

/// Prices that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PriceError(String);

impl PriceTable {
    /// Models whose price was given, by their full names.
    pub fn given(&self) -> impl Iterator<Item = &str> {
        self.given.iter().map(String::as_str)
    }

    /// The shipped prices with `given` over them, by full names: `openai/gpt-4o` to `INPUT:OUTPUT` or `INPUT:OUTPUT:CACHED`.
    ///
    /// # Errors
    /// If a price is no number from 0, or the shipped table is broken.
    pub fn with(given: &[(String, String)]) -> Result<Self, PriceError> {
        let mut table: Self = toml::from_str(SHIPPED)
            .map_err(|e| PriceError(format!("the shipped price table is broken: {e}")))?;
        for (model, price) in given {
            let numbers: Option<Vec<f64>> = price
                .split(':')
                .map(|part| {
                    part.trim()
                        .parse()
                        .ok()
                        .filter(|x: &f64| x.is_finite() && *x >= 0.0)
                })
                .collect();
            let price = match numbers.as_deref() {
                Some([input, output]) => Price {
                    input: *input,
                    output: *output,
                    cached_input: None,
                },
                Some([input, output, cached]) => Price {
                    input: *input,
                    output: *output,
                    cached_input: Some(*cached),
                },
                _ => {
                    return Err(PriceError(format!(
                        "{model}={price}: expected dollars for a million tokens as INPUT:OUTPUT or INPUT:OUTPUT:CACHED, such as 2.5:10"
                    )));
                }
            };
            table.models.insert(model.clone(), price);
            table.given.insert(model.clone());
        }
        Ok(table)
    }

    /// A model's price: its own, or that of the longest known name that it continues after a hyphen (a dated version).
    pub fn of(&self, model: &str) -> Option<Price> {
        self.entry(model).map(|(_, price)| price)
    }

    /// A model's price in a batch: a share of the shipped price; a price that was given stands as it is.
    pub fn of_batch(&self, model: &str) -> Option<Price> {
        let (name, price) = self.entry(model)?;
        let share = match self.given.contains(name) {
            true => 1.0,
            false => self.batch_share,
        };
        Some(Price {
            input: price.input * share,
            output: price.output * share,
            cached_input: price.cached_input.map(|cached| cached * share),
        })
    }

    fn entry(&self, model: &str) -> Option<(&str, Price)> {
        let version_of = |name: &str| {
            let rest = model.strip_prefix(name)?;
            let dated = rest
                .strip_prefix('-')
                .is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()));
            (rest.is_empty() || dated).then_some(name.len())
        };
        let fitting = self
            .models
            .iter()
            .filter_map(|(name, price)| Some((version_of(name)?, name.as_str(), *price)));
        fitting
            .max_by_key(|(length, ..)| *length)
            .map(|(_, name, price)| (name, price))
    }
}

impl Price {
    /// Dollars for these tokens.
    pub fn of(self, usage: Usage) -> f64 {
        let cached = usage.cached.min(usage.prompt);
        let millionth = |tokens: u64, price: f64| tokens as f64 * price / 1e6;
        millionth(usage.prompt - cached, self.input)
            + millionth(cached, self.cached_input.unwrap_or(self.input))
            + millionth(usage.completion, self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_found_by_name_and_dated_version_only() {
        let table = PriceTable::with(&[("openai/test".into(), "1:2:0.5".into())]).unwrap();
        assert_eq!(
            table.of("openai/gpt-4o-2024-08-06"),
            table.of("openai/gpt-4o")
        );
        assert_ne!(table.of("openai/gpt-4o-mini"), table.of("openai/gpt-4o"));
        assert!(table.of("openai/gpt-4o").is_some() && table.of("openai/gpt-4oo").is_none());
        assert!(table.of("somebody/else").is_none());
        assert_eq!(table.as_of.len(), 10);
        let usage = Usage {
            prompt: 1_000_000,
            completion: 500_000,
            cached: 400_000,
        };
        let cost = table.of("openai/test").unwrap().of(usage);
        assert!((cost - (0.6 + 0.2 + 1.0)).abs() < 1e-12, "{cost}");
        let given = PriceTable::with(&[("openai/gpt-4o".into(), "7:8".into())]).unwrap();
        assert_eq!(given.of("openai/gpt-4o").unwrap().input, 7.0);
        assert_eq!(given.given().collect::<Vec<_>>(), ["openai/gpt-4o"]);
        // A price that was given is not halved in batches.
        assert_eq!(given.of_batch("openai/gpt-4o"), given.of("openai/gpt-4o"));
        for bad in ["", "1", "1:x", "1:-2", "NaN:1", "1:2:3:4"] {
            assert!(
                PriceTable::with(&[("m".into(), bad.into())]).is_err(),
                "{bad}"
            );
        }
    }
}
