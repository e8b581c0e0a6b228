//! `signal_stuck(span_digest, output_digest, stuck_record)` and its like for the plan: the score of spans that session
//! metrics fold, as it is stored, with 4 decimals.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Builder};
use arrow::datatypes::DataType;
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use crate::engine::span_facts::span_facts;
use crate::metric::round4;
use crate::metric::spans::OfSpans;

/// The score of one metric of spans; null where there is nothing to score.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct SpanSignal {
    signature: Signature,
    metric: OfSpans,
}

impl SpanSignal {
    pub fn new(metric: OfSpans) -> Self {
        let types = vec![DataType::Binary, DataType::Binary, DataType::Binary];
        Self {
            signature: Signature::exact(types, Volatility::Immutable),
            metric,
        }
    }
}

fn cell(array: &ArrayRef, row: usize) -> Option<&[u8]> {
    let cells = array.as_binary_opt::<i32>()?;
    cells.is_valid(row).then(|| cells.value(row))
}

impl ScalarUDFImpl for SpanSignal {
    fn name(&self) -> &str {
        match self.metric {
            OfSpans::ToolErrorRate => "signal_tool_error_rate",
            OfSpans::RepeatedToolCalls => "signal_repeated_tool_calls",
            OfSpans::EmptyOutput => "signal_empty_output",
            OfSpans::OutputTruncated => "signal_output_truncated",
            OfSpans::Stuck => "signal_stuck",
        }
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let arrays = args
            .args
            .iter()
            .map(|value| value.to_array(rows))
            .collect::<Result<Vec<ArrayRef>>>()?;
        let [spans, output, record] = arrays.as_slice() else {
            return exec_err!("{} takes two digests and a record", self.name());
        };
        let mut scores = Float64Builder::with_capacity(rows);
        for row in 0..rows {
            let facts = span_facts(cell(spans, row), cell(output, row), cell(record, row));
            let Some(facts) = facts else {
                return exec_err!("an unreadable digest");
            };
            let found = self.metric.score(&facts).ok();
            scores.append_option(found.map(|found| round4(found.score)));
        }
        Ok(ColumnarValue::Array(Arc::new(scores.finish())))
    }
}
