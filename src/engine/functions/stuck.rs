//! `stuck_record(span_digest, output_digest, alone) OVER (PARTITION BY session_id ORDER BY started_at, trace_id)` for the
//! plan: what the session so far says of a trace, packed.

use std::collections::HashSet;
use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    LimitEffect, PartitionEvaluator, Signature, Volatility, WindowUDFImpl,
};
use std::sync::Arc;

use crate::engine::stuck_record::{StuckRecord, pack_stuck_record};
use crate::metric::stuck::Steps;
use crate::trace::{OutputDigest, SpanDigest};

/// The window function. A trace that is `alone` is a session of its own.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct StuckWindow {
    signature: Signature,
}

impl StuckWindow {
    pub fn new() -> Self {
        let types = vec![DataType::Binary, DataType::Binary, DataType::Boolean];
        Self {
            signature: Signature::exact(types, Volatility::Immutable),
        }
    }
}

impl WindowUDFImpl for StuckWindow {
    fn name(&self) -> &str {
        "stuck_record"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn partition_evaluator(
        &self,
        _: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(SessionSteps::default()))
    }
    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Binary, true)))
    }
    fn limit_effect(&self, _: &[Arc<dyn datafusion::physical_expr::PhysicalExpr>]) -> LimitEffect {
        LimitEffect::None
    }
}

/// Walks one session in order.
#[derive(Debug, Default)]
struct SessionSteps {
    steps: Steps,
    /// Hashes of all calls so far.
    calls: HashSet<u64>,
}

impl SessionSteps {
    fn next(&mut self, spans: Option<SpanDigest>, output: Option<OutputDigest>) -> StuckRecord {
        let SpanDigest { calls, kept, .. } = spans.unwrap_or_default();
        let repeated_calls = calls.iter().filter(|call| !self.calls.insert(**call));
        let repeated_calls = repeated_calls.count();
        self.steps.push(kept, output);
        StuckRecord {
            stuck: self.steps.stuck(),
            repeated_calls,
        }
    }
}

/// The cell of a row; null is none.
fn cell(array: &ArrayRef, row: usize) -> Option<&[u8]> {
    let cells = array.as_binary_opt::<i32>()?;
    cells.is_valid(row).then(|| cells.value(row))
}

impl PartitionEvaluator for SessionSteps {
    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let row = range.start;
        let [spans, output, alone] = values else {
            return exec_err!("stuck_record takes two digests and a truth value");
        };
        let (spans, output) = (cell(spans, row), cell(output, row));
        let (read_spans, read_output) = (
            spans.map(SpanDigest::from_bytes),
            output.map(OutputDigest::from_bytes),
        );
        if read_spans == Some(None) || read_output == Some(None) {
            return exec_err!("an unreadable digest");
        }
        if alone.as_boolean().value(row) {
            *self = Self::default();
        }
        let record = self.next(read_spans.flatten(), read_output.flatten());
        Ok(ScalarValue::Binary(Some(pack_stuck_record(&record))))
    }
    fn supports_bounded_execution(&self) -> bool {
        true
    }
    fn is_causal(&self) -> bool {
        true
    }
}
