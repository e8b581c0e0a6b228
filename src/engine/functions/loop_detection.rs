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
use crate::engine::LoopRecord;
use crate::engine::external;
use crate::metric::NonFinite;
use crate::metric::loop_detection::{LoopDetection, Output};

pub(super) const DOC: FunctionDoc = FunctionDoc {
    call: "loop_detection(output) OVER (PARTITION BY session_id ORDER BY started_at, trace_id)",
    returns: "double in [0, 1]",
    meaning: "How new the output is among the last 3 of its session, 4 decimals; 1 is free of repetition.",
};

/// Window and threshold of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub window: usize,
    pub threshold: f64,
}

impl PartialEq for Settings {
    fn eq(&self, other: &Self) -> bool {
        self.window == other.window && self.threshold.to_bits() == other.threshold.to_bits()
    }
}
impl Eq for Settings {}
impl std::hash::Hash for Settings {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.window, self.threshold.to_bits()).hash(state);
    }
}

/// The window function in its two forms: the score alone, for users, and `loop_record(output_text,
/// trace_id)` over places of embedded texts, for the plan.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct LoopDetectionWindow {
    signature: Signature,
    embedding: Embedding,
    settings: Settings,
    record: bool,
}

impl LoopDetectionWindow {
    pub fn score(embedding: Embedding, settings: Settings) -> Self {
        let signature = Signature::string(1, Volatility::Immutable);
        Self {
            signature,
            embedding,
            settings,
            record: false,
        }
    }

    pub fn record(embedding: Embedding, settings: Settings) -> Self {
        let signature = Signature::exact(
            vec![DataType::UInt64, DataType::Utf8],
            Volatility::Immutable,
        );
        Self {
            signature,
            embedding,
            settings,
            record: true,
        }
    }
}

impl WindowUDFImpl for LoopDetectionWindow {
    fn name(&self) -> &str {
        if self.record {
            "loop_record"
        } else {
            "loop_detection"
        }
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
            settings: self.settings,
            record: self.record,
            earlier: 0,
            window: VecDeque::with_capacity(self.settings.window + 1),
        }))
    }
    fn field(&self, args: WindowUDFFieldArgs) -> Result<FieldRef> {
        let data_type = if self.record {
            DataType::Binary
        } else {
            DataType::Float64
        };
        Ok(Arc::new(Field::new(args.name(), data_type, true)))
    }
    fn limit_effect(&self, _: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        LimitEffect::None
    }
}

/// One earlier trace of the session.
#[derive(Debug, Default)]
struct Earlier {
    trace_id: String,
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
    settings: Settings,
    record: bool,
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
        let full = self.window.len() > self.settings.window;
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
        if let Some(ids) = values.get(1) {
            current.trace_id.clear();
            current.trace_id.push_str(ids.as_string::<i32>().value(row));
        }
        let first = self.window.len().saturating_sub(self.settings.window);
        let outputs: Vec<Option<Output<'_>>> = self
            .window
            .iter()
            .skip(first)
            .map(Earlier::output)
            .collect();
        let detection = LoopDetection::new(
            current.output(),
            &outputs,
            self.earlier,
            self.settings.threshold,
        );
        drop(outputs);
        let result = match (&detection, self.record) {
            (Ok(detection), false) => ScalarValue::Float64(Some(detection.score())),
            (Err(NonFinite), false) => ScalarValue::Float64(None),
            (Ok(detection), true) => {
                let id_back = |back: usize| {
                    let at = self.window.len().checked_sub(back)?;
                    self.window.get(at).map(|trace| trace.trace_id.as_str())
                };
                ScalarValue::Binary(Some(LoopRecord::pack(detection, id_back)))
            }
            (Err(e), true) => ScalarValue::Binary(Some(LoopRecord::pack_failure(&e.to_string()))),
        };
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
                let score = LoopRecord::unpack(cell?)?.score_raw;
                (!score.is_nan()).then(|| crate::metric::round4(score))
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(scores)))
    }
}
