//! Pairs of tool calls. What a value looks like to a criterion is found once a call, not once a pair.

use std::collections::HashMap;

use serde_json::Value;

use super::{ToolStrategy, ToolTrajectoryCriterion};
use crate::suite::evalset::criterion::JsonCriterion;
use crate::suite::evalset::criterion::json::Print;
use crate::suite::evalset::model::ToolUse;

/// The calls of two turns under a criterion.
pub(super) struct Calls<'a> {
    /// The general one, and then those of the tools.
    strategies: Vec<&'a ToolStrategy>,
    actual: Side<'a>,
    expected: Side<'a>,
}

/// The calls of one turn.
struct Side<'a> {
    calls: Vec<Option<Call<'a>>>,
    /// By strategy, and then by call. Those of a strategy are made when it is first asked for.
    prints: Vec<Vec<Option<Prints>>>,
}

#[derive(Clone, Copy)]
struct Call<'a> {
    call: &'a ToolUse,
    /// That of its tool.
    strategy: Option<usize>,
}

/// What a call looks like to a strategy.
struct Prints {
    arguments: Print,
    result: Print,
}

impl<'a> Calls<'a> {
    pub fn new(
        criterion: &'a ToolTrajectoryCriterion,
        actual: &'a [Option<ToolUse>],
        expected: &'a [Option<ToolUse>],
    ) -> Self {
        let mut strategies = vec![criterion.general_strategy()];
        let mut of_tools = HashMap::new();
        for (tool, strategy) in &criterion.tool_strategies {
            // Equal strategies share their prints.
            let index = match strategies.iter().position(|known| *known == strategy) {
                Some(index) => index,
                None => {
                    strategies.push(strategy);
                    strategies.len() - 1
                }
            };
            of_tools.insert(tool.as_str(), index);
        }
        let side = |calls: &'a [Option<ToolUse>]| Side {
            calls: calls
                .iter()
                .map(|call| {
                    call.as_ref().map(|call| Call {
                        call,
                        strategy: of_tools.get(call.name.as_str()).copied(),
                    })
                })
                .collect(),
            prints: strategies.iter().map(|_| Vec::new()).collect(),
        };
        Self {
            actual: side(actual),
            expected: side(expected),
            strategies,
        }
    }

    /// Whether two calls match. A null call never does.
    pub fn fits(&mut self, actual: usize, expected: usize) -> bool {
        let (Some(&Some(a)), Some(&Some(e))) = (
            self.actual.calls.get(actual),
            self.expected.calls.get(expected),
        ) else {
            return false;
        };
        let index = a.strategy.or(e.strategy).unwrap_or(0);
        let Some(&strategy) = self.strategies.get(index) else {
            return false;
        };
        let name_fits = match &strategy.name {
            Some(name) => name.fits(&a.call.name, &e.call.name),
            None => true,
        };
        if !name_fits {
            return false;
        }
        let actual = self.actual.prints(index, actual, |call| Prints {
            arguments: print(&strategy.arguments, |c| c.print_of_actual(&call.arguments)),
            result: print(&strategy.result, |c| c.print_of_actual(&call.result)),
        });
        let expected = self.expected.prints(index, expected, |call| Prints {
            arguments: print(&strategy.arguments, |c| {
                c.print_of_expected(&call.arguments)
            }),
            result: print(&strategy.result, |c| c.print_of_expected(&call.result)),
        });
        let (Some(actual), Some(expected)) = (actual, expected) else {
            return false;
        };
        let arguments = (&actual.arguments, &expected.arguments);
        let results = (&actual.result, &expected.result);
        part_fits(
            &strategy.arguments,
            arguments,
            (&a.call.arguments, &e.call.arguments),
        ) && part_fits(&strategy.result, results, (&a.call.result, &e.call.result))
    }
}

impl Side<'_> {
    fn prints(
        &mut self,
        strategy: usize,
        call: usize,
        make: impl FnOnce(&ToolUse) -> Prints,
    ) -> Option<&Prints> {
        let prints = self.prints.get_mut(strategy)?;
        if prints.is_empty() {
            prints.resize_with(self.calls.len(), || None);
        }
        let place = prints.get_mut(call)?;
        if place.is_none() {
            *place = self.calls.get(call)?.map(|call| make(call.call));
        }
        place.as_ref()
    }
}

/// A part that is not compared, or by a function, needs no print.
fn print(criterion: &Option<JsonCriterion>, make: impl FnOnce(&JsonCriterion) -> Print) -> Print {
    match criterion {
        Some(criterion) if criterion.compare.is_none() => make(criterion),
        _ => Print::Anything,
    }
}

fn part_fits(
    criterion: &Option<JsonCriterion>,
    (actual, expected): (&Print, &Print),
    values: (&Value, &Value),
) -> bool {
    match criterion {
        None => true,
        Some(criterion) if criterion.compare.is_some() => {
            criterion.compare(values.0, values.1).is_ok()
        }
        Some(criterion) => criterion.fits(actual, expected),
    }
}
