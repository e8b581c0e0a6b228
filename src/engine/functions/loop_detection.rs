//! `loop_detection(output) OVER (PARTITION BY session_id ORDER BY started_at, trace_id)`.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Field, FieldRef, UInt64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{
    ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::{
    ColumnarValue, LimitEffect, PartitionEvaluator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, WindowUDFImpl,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::embed::EmbedOnce;
use super::{Embedding, FunctionDoc};
use crate::embed::{TextRecord, TextRef};
use crate::engine::external;
use crate::engine::loop_record::unpack_loop_record;
use crate::metric::DEFAULT_THRESHOLD;
use crate::metric::loop_detection::{LoopDetection, Output};

pub(super) const DOC: FunctionDoc = FunctionDoc {
    call: "loop_detection(output) OVER (PARTITION BY session_id ORDER BY started_at, trace_id)",
    returns: "double in [0, 1]",
    meaning: "How new the output is among the last 3 of its session, 4 decimals; 1 is free of repetition. Where session ids repeat across projects, partition by project_id too.",
};

/// The window function. The plan of a run computes the same in a walk over sessions, see `session_walk.rs`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct LoopDetectionWindow {
    signature: Signature,
    embedding: Embedding,
    window: usize,
}

impl LoopDetectionWindow {
    pub fn new(embedding: Embedding, window: usize) -> Self {
        Self {
            signature: Signature::string(1, Volatility::Immutable),
            embedding,
            window,
        }
    }
}

impl WindowUDFImpl for LoopDetectionWindow {
    fn name(&self) -> &str {
        "loop_detection"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    /// Texts are embedded a batch at a time, before the rows are looked at one by one.
    fn expressions(&self, args: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        let inputs = args.input_exprs();
        let [text] = inputs else {
            return inputs.to_vec();
        };
        let embed_once = Arc::new(ScalarUDF::from(EmbedOnce::new(self.embedding.clone())));
        let returns: FieldRef = Arc::new(Field::new("embed_once", DataType::UInt64, true));
        vec![Arc::new(ScalarFunctionExpr::new(
            "embed_once",
            embed_once,
            vec![Arc::clone(text)],
            returns,
            Arc::new(datafusion::config::ConfigOptions::default()),
        ))]
    }
    fn partition_evaluator(
        &self,
        _: PartitionEvaluatorArgs,
    ) -> Result<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(SessionEvaluator {
            embedding: self.embedding.clone(),
            length: self.window,
            earlier: 0,
            window: VecDeque::with_capacity(self.window + 1),
        }))
    }
    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(args.name(), DataType::Float64, true)))
    }
    fn limit_effect(&self, _: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::None
    }
}

/// One earlier trace of the session.
#[derive(Debug, Default)]
struct Earlier {
    /// Whether the output has text; the record is stale if not.
    has_text: bool,
    record: TextRecord,
}

impl Earlier {
    fn output(&self) -> Option<Output<'_>> {
        self.has_text.then_some(Output {
            vector: &self.record.vector,
            norm_squared: self.record.norm_squared,
            words: &self.record.words,
        })
    }
}

/// Walks one session in order; remembers the window and nothing else.
#[derive(Debug)]
struct SessionEvaluator {
    embedding: Embedding,
    /// How many earlier traces are looked at.
    length: usize,
    earlier: usize,
    window: VecDeque<Earlier>,
}

impl PartitionEvaluator for SessionEvaluator {
    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> Result<ScalarValue> {
        let row = range.start;
        let texts = values[0].as_primitive::<UInt64Type>();
        let text = if texts.is_null(row) {
            TextRef::EMPTY
        } else {
            TextRef::from_u64(texts.value(row))
        };
        // Reuse the buffers of the trace that leaves the window.
        let full = self.window.len() > self.length;
        let mut current = if full {
            self.window.pop_front().unwrap_or_default()
        } else {
            Earlier::default()
        };
        current.has_text = !text.is_empty();
        if current.has_text {
            self.embedding
                .service("loop_detection")?
                .read(text, &mut current.record)
                .map_err(external)?;
        }
        let first = self.window.len().saturating_sub(self.length);
        let outputs: Vec<Option<Output<'_>>> = self
            .window
            .iter()
            .skip(first)
            .map(Earlier::output)
            .collect();
        // The threshold has no part in the score.
        let detection =
            LoopDetection::new(current.output(), &outputs, self.earlier, DEFAULT_THRESHOLD);
        drop(outputs);
        let result = ScalarValue::Float64(detection.ok().map(|d| d.score()));
        self.window.push_back(current);
        self.earlier += 1;
        Ok(result)
    }
    fn supports_bounded_execution(&self) -> bool {
        true
    }
    fn is_causal(&self) -> bool {
        true
    }
}

/// `loop_score(record)`: the stored score of a record; null if the metric failed or there is none.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct LoopScore {
    signature: Signature,
}

impl LoopScore {
    pub fn new() -> Self {
        Self {
            signature: Signature::exact(vec![DataType::Binary], Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for LoopScore {
    fn name(&self) -> &str {
        "loop_score"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Binary] => Ok(DataType::Float64),
            _ => plan_err!("loop_score takes a loop record"),
        }
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let scores: Float64Array = arrays[0]
            .as_binary::<i32>()
            .iter()
            .map(|cell| {
                let detection = unpack_loop_record(cell?, DEFAULT_THRESHOLD)?;
                detection.ok().map(|d| d.score())
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(scores)))
    }
}
