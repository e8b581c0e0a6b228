//! `factuality`, `format` and `tone` for users, and `comparison_record` for the plan, which reads each pair of texts once
//! for all three.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, Float64Builder, StringViewArray};
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use super::{FunctionDoc, is_text, string_views};
use crate::engine::comparison_record::pack_comparison;
use crate::metric::compared::Comparing;
use crate::metric::comparison::{DEFAULT_THRESHOLD, Workspace};
use crate::metric::factuality::{self, FactualityMode, FactualityRules};

pub(super) const DOCS: [FunctionDoc; 3] = [
    FunctionDoc {
        call: "factuality(output, expected [, 'strict' | 'lenient' | 'json_structural'])",
        returns: "double in [0, 1]",
        meaning: "How much of the expected text the output says, without a judge; null without an expected text.",
    },
    FunctionDoc {
        call: "format(output, expected [, threshold])",
        returns: "double in [0, 1]",
        meaning: "How much the output looks like the expected text; the threshold (0.7) is that of its sub-checks.",
    },
    FunctionDoc {
        call: "tone(output, expected)",
        returns: "double in [0, 1]",
        meaning: "How much the output sounds like the expected text, by words and lengths.",
    },
];

/// Calls `each` with each pair of texts: none where there is no expected one. A missing output says nothing: it is the
/// empty text, as everywhere.
fn each_pair(
    function: &str,
    arguments: &[ColumnarValue],
    mut each: impl FnMut(Option<(&str, &str)>),
) -> Result<()> {
    let arrays = ColumnarValue::values_to_arrays(arguments)?;
    let [actual, expected, ..] = arrays.as_slice() else {
        return exec_err!("{function} takes an output and an expected text");
    };
    let views = |array: &ArrayRef| -> Result<StringViewArray> { string_views(function, array) };
    let (actual, expected) = (views(actual)?, views(expected)?);
    for (actual, expected) in actual.iter().zip(expected.iter()) {
        each(expected.map(|expected| (actual.unwrap_or_default(), expected)));
    }
    Ok(())
}

/// Checks the first two arguments, and how many there are.
fn check_texts(function: &str, types: &[DataType], most: usize) -> Result<()> {
    match types {
        [actual, expected, ..] if types.len() <= most && is_text(actual) && is_text(expected) => {
            Ok(())
        }
        [actual, expected, ..] if types.len() <= most => plan_err!(
            "{function} takes an output and an expected text, not {actual} and {expected}"
        ),
        _ => plan_err!(
            "{function} takes an output and an expected text{}, not {} arguments",
            if most > 2 {
                ", and at most one thing more"
            } else {
                ""
            },
            types.len()
        ),
    }
}

/// One of the metrics for users.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ComparingFunction {
    metric: Comparing,
    signature: Signature,
}

impl ComparingFunction {
    pub fn new(metric: Comparing) -> Self {
        Self {
            metric,
            signature: Signature::variadic_any(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for ComparingFunction {
    fn name(&self) -> &str {
        self.metric.name()
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let most = if self.metric == Comparing::Tone { 2 } else { 3 };
        check_texts(self.name(), types, most)?;
        Ok(DataType::Float64)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let more = args.args.get(2);
        let mut workspace = Workspace::default();
        let mut scores = Float64Builder::with_capacity(args.number_rows);
        match self.metric {
            Comparing::Factuality => {
                let rules = FactualityRules {
                    mode: more.map_or(Ok(FactualityMode::default()), mode)?,
                    ..FactualityRules::default()
                };
                each_pair(self.name(), &args.args, |pair| {
                    let score = |(actual, expected): (&str, &str)| {
                        factuality::score(actual, expected, &rules, &mut workspace).0
                    };
                    scores.append_option(pair.map(score));
                })?;
            }
            metric => {
                let threshold = more.map_or(Ok(DEFAULT_THRESHOLD), threshold)?;
                each_pair(self.name(), &args.args, |pair| {
                    let score = |(actual, expected): (&str, &str)| {
                        let compared = metric.compare(actual, expected, threshold, &mut workspace);
                        compared.score()
                    };
                    scores.append_option(pair.map(score));
                })?;
            }
        }
        Ok(ColumnarValue::Array(Arc::new(scores.finish())))
    }
}

/// The mode that is named, which must be the same for all rows.
fn mode(argument: &ColumnarValue) -> Result<FactualityMode> {
    let name = match argument {
        ColumnarValue::Scalar(scalar) => scalar.try_as_str().flatten(),
        ColumnarValue::Array(_) => None,
    };
    let mode = FactualityMode::ALL
        .into_iter()
        .find(|mode| Some(mode.name()) == name);
    match mode {
        Some(mode) => Ok(mode),
        None => plan_err!(
            "factuality takes 'strict', 'lenient' or 'json_structural' as its third argument, the same for all rows"
        ),
    }
}

/// The threshold that is given, which must be the same for all rows.
fn threshold(argument: &ColumnarValue) -> Result<f64> {
    let number = match argument {
        ColumnarValue::Scalar(scalar) => match scalar.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(number)) => number,
            _ => None,
        },
        ColumnarValue::Array(_) => None,
    };
    match number.filter(|number| (0.0..=1.0).contains(number)) {
        Some(number) => Ok(number),
        None => plan_err!(
            "format takes a number from 0 to 1 as its third argument, the same for all rows"
        ),
    }
}

/// `comparison_record(output, expected, threshold of factuality, of format, of tone)` for the plan: what the metrics
/// came to, packed; null without an expected text. A metric with a null threshold is not computed.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct ComparisonRecord {
    signature: Signature,
}

impl ComparisonRecord {
    pub fn new() -> Self {
        let (text, number) = (DataType::Utf8View, DataType::Float64);
        let types = vec![text.clone(), text, number.clone(), number.clone(), number];
        Self {
            signature: Signature::exact(types, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for ComparisonRecord {
    fn name(&self) -> &str {
        "comparison_record"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let thresholds = args.args.iter().skip(2).map(|threshold| match threshold {
            ColumnarValue::Scalar(ScalarValue::Float64(threshold)) => *threshold,
            _ => None,
        });
        let wanted: Vec<(Comparing, f64)> = Comparing::ALL
            .into_iter()
            .zip(thresholds)
            .filter_map(|(metric, threshold)| Some((metric, threshold?)))
            .collect();
        let mut workspace = Workspace::default();
        let mut records = BinaryBuilder::with_capacity(args.number_rows, 80 * args.number_rows);
        let mut record = Vec::new();
        each_pair(self.name(), &args.args, |pair| {
            record.clear();
            if let Some((actual, expected)) = pair {
                for (metric, threshold) in &wanted {
                    let compared = metric.compare(actual, expected, *threshold, &mut workspace);
                    pack_comparison(&compared, &mut record);
                }
            }
            records.append_option(pair.map(|_| &record));
        })?;
        Ok(ColumnarValue::Array(Arc::new(records.finish())))
    }
}
