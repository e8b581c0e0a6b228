//! The tool calls of two turns.

mod calls;
mod partial;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use self::calls::Calls;
pub use self::partial::TrajectoryShare;
use super::fields::Fields;
use super::matching::Fits;
use super::text::unknown_comparison;
use super::{
    Comparison, CriterionFault, InvocationFunction, JsonCriterion, Mismatch, MismatchKind,
    TextCriterion, shown,
};
use crate::suite::evalset::model::{Invocation, ToolUse};

/// Most pairs of calls that are looked at where their order is free.
const MOST_PAIRS: usize = 1 << 26;
/// Most calls without partner that a reason lists.
const MOST_LISTED: usize = 5;

/// How the tool calls of two turns are compared. The default compares names, arguments and results exactly, in any
/// order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolTrajectoryCriterion {
    /// `defaultStrategy`: for tools that have none of their own; exact in all parts if there is none.
    pub default_strategy: Option<ToolStrategy>,
    /// `toolStrategy`, by the name of the tool. It replaces the default altogether.
    pub tool_strategies: BTreeMap<String, ToolStrategy>,
    /// `orderSensitive`: the calls must come in the expected order.
    pub order_sensitive: bool,
    /// `subsetMatching`: there may be more calls than expected.
    pub subset_matching: bool,
    /// `compareName`: a comparison that a program registered; empty where there is none.
    pub compare_name: String,
    /// Replaces everything.
    pub compare: Option<InvocationFunction>,
}

/// How two tool calls are compared: part by part. A part that is left out is not compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolStrategy {
    /// `name`
    pub name: Option<TextCriterion>,
    /// `arguments`
    pub arguments: Option<JsonCriterion>,
    /// `result`; old files call it `response`.
    pub result: Option<JsonCriterion>,
}

/// For tools that no strategy is given for.
static BUILT_IN: LazyLock<ToolStrategy> = LazyLock::new(|| ToolStrategy {
    name: Some(TextCriterion::default()),
    arguments: Some(JsonCriterion::default()),
    result: Some(JsonCriterion::default()),
});

impl ToolStrategy {
    /// Reads the strategy of a tool; `path` leads to it.
    ///
    /// # Errors
    /// [`CriterionFault`] for a known key with a value of the wrong type. Unknown keys are no errors.
    pub fn read(value: &Value, path: &str) -> Result<Self, CriterionFault> {
        let fields = Fields::of(value, path)?;
        let result = match fields.value("result") {
            Some(_) => "result",
            None => "response",
        };
        Ok(Self {
            name: fields.part("name", TextCriterion::read)?,
            arguments: fields.part("arguments", JsonCriterion::read)?,
            result: fields.part(result, JsonCriterion::read)?,
        })
    }

    /// Compares two calls.
    fn compare(&self, actual: &ToolUse, expected: &ToolUse) -> Comparison {
        if let Some(name) = &self.name {
            let names = name.compare(&actual.name, &expected.name);
            names.map_err(|mismatch| mismatch.in_part("name"))?;
        }
        if let Some(arguments) = &self.arguments {
            let arguments = arguments.compare(&actual.arguments, &expected.arguments);
            arguments.map_err(|mismatch| mismatch.in_part("arguments"))?;
        }
        if let Some(result) = &self.result {
            let results = result.compare(&actual.result, &expected.result);
            results.map_err(|mismatch| mismatch.in_part("result"))?;
        }
        Ok(())
    }
}

impl ToolTrajectoryCriterion {
    /// Reads the `toolTrajectory` of a metrics file; `path` leads to it. Old names are understood: `response` for the
    /// `result` of a strategy, and `orderInsensitive` where there is no `orderSensitive`.
    ///
    /// # Errors
    /// [`CriterionFault`] for a known key with a value of the wrong type. Unknown keys are no errors.
    pub fn read(value: &Value, path: &str) -> Result<Self, CriterionFault> {
        let fields = Fields::of(value, path)?;
        let path = fields.path_of("toolStrategy");
        let mut tool_strategies = BTreeMap::new();
        for (tool, strategy) in fields.object("toolStrategy")? {
            if !strategy.is_null() {
                let strategy = ToolStrategy::read(&strategy, &format!("{path}.{tool}"))?;
                tool_strategies.insert(tool, strategy);
            }
        }
        let order_sensitive = match fields.optional_flag("orderSensitive")? {
            Some(sensitive) => sensitive,
            None => fields
                .optional_flag("orderInsensitive")?
                .is_some_and(|insensitive| !insensitive),
        };
        Ok(Self {
            default_strategy: fields.part("defaultStrategy", ToolStrategy::read)?,
            tool_strategies,
            order_sensitive,
            subset_matching: fields.flag("subsetMatching")?,
            compare_name: fields.text("compareName")?,
            compare: None,
        })
    }

    /// Compares the tool calls of two turns as trpc-agent-go does.
    ///
    /// # Errors
    /// [`Mismatch`] if they do not match: of kind `nil` if a turn is missing, `count` if the numbers of calls do not
    /// fit, `tools` if some expected call has no partner, also for a strategy that can't be used.
    pub fn compare(
        &self,
        actual: Option<&Invocation>,
        expected: Option<&Invocation>,
    ) -> Comparison {
        if let Some(function) = &self.compare {
            return function.compare(actual, expected);
        }
        if !self.compare_name.is_empty() {
            return Err(unknown_comparison(&self.compare_name));
        }
        let (Some(actual), Some(expected)) = (actual, expected) else {
            return Err(Mismatch {
                kind: MismatchKind::Nil,
                reason: "the actual or the expected turn is missing".to_owned(),
            });
        };
        let (actual, expected) = (actual.tools.as_slice(), expected.tools.as_slice());
        let (fits, how_many) = match self.subset_matching {
            true => (actual.len() >= expected.len(), "at least "),
            false => (actual.len() == expected.len(), ""),
        };
        if !fits {
            return Err(Mismatch {
                kind: MismatchKind::Count,
                reason: format!(
                    "there are {} tool calls, expected {how_many}{}",
                    actual.len(),
                    expected.len()
                ),
            });
        }
        let mut calls = Calls::new(self, actual, expected);
        let unmatched = match self.order_sensitive {
            true => first_out_of_order(&mut calls, actual.len(), expected.len()),
            false if actual.len().saturating_mul(expected.len()) > MOST_PAIRS => {
                return Err(Mismatch {
                    kind: MismatchKind::Tools,
                    reason: "too many tool calls to compare in any order; use `orderSensitive`"
                        .to_owned(),
                });
            }
            false => Fits::new(expected.len(), actual.len(), |e, a| calls.fits(a, e))
                .unmatched(expected.len()),
        };
        match unmatched.is_empty() {
            true => Ok(()),
            false => Err(Mismatch {
                kind: MismatchKind::Tools,
                reason: self.about_unmatched(&unmatched, actual, expected),
            }),
        }
    }

    /// The strategy for a pair of calls, by the name of the actual one first.
    fn strategy(&self, actual: &ToolUse, expected: &ToolUse) -> &ToolStrategy {
        let by_name = |call: &ToolUse| self.tool_strategies.get(&call.name);
        by_name(actual)
            .or_else(|| by_name(expected))
            .unwrap_or_else(|| self.general_strategy())
    }

    fn general_strategy(&self) -> &ToolStrategy {
        self.default_strategy.as_ref().unwrap_or(&BUILT_IN)
    }

    /// The calls without partner, each with what sets it apart from the first call of its name.
    fn about_unmatched(
        &self,
        unmatched: &[usize],
        actual: &[Option<ToolUse>],
        expected: &[Option<ToolUse>],
    ) -> String {
        let mut listed: Vec<String> = unmatched
            .iter()
            .take(MOST_LISTED)
            .map(|&index| match expected.get(index) {
                Some(Some(call)) => {
                    let namesake = actual.iter().flatten().find(|a| a.name == call.name);
                    let why = match namesake.map(|a| self.strategy(a, call).compare(a, call)) {
                        None => ": there is no call of that name".to_owned(),
                        Some(Err(mismatch)) => format!(": {}", mismatch.reason),
                        Some(Ok(())) => String::new(),
                    };
                    format!("{} with id {}{why}", shown(&call.name), shown(&call.id))
                }
                _ => "a null call".to_owned(),
            })
            .collect();
        if unmatched.len() > MOST_LISTED {
            listed.push(format!("and {} more", unmatched.len() - MOST_LISTED));
        }
        format!("expected tool calls without partner: {}", listed.join("; "))
    }
}

/// The first expected call that does not come after the partner of the one before it.
fn first_out_of_order(calls: &mut Calls<'_>, actual: usize, expected: usize) -> Vec<usize> {
    let mut next = 0;
    for e in 0..expected {
        match (next..actual).find(|&a| calls.fits(a, e)) {
            Some(found) => next = found + 1,
            None => return vec![e],
        }
    }
    Vec::new()
}

#[cfg(test)]
mod tests;
