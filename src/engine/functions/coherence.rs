//! `coherence(input, output)` for users, and for the plan the score of a gap between two embedded texts; the gap itself
//! is found in a walk over sessions, see `session_walk.rs`.

use std::sync::Arc;

use arrow::array::{AsArray, Float64Array, Float64Builder};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature};

use super::{Embedding, FunctionDoc, any_arguments, embed_column, is_text, string_views};
use crate::embed::{EmbeddingService, TextRecord, TextRef};
use crate::metric::coherence::Coherence;
use crate::metric::{DEFAULT_THRESHOLD, distance};

pub(super) const DOC: FunctionDoc = FunctionDoc {
    call: "coherence(input, output)",
    returns: "double in [0, 1]",
    meaning: "The coherence score of a trace's two texts, 4 decimals; 1 if either is empty.",
};

/// The cosine distance of each pair: `None` if either text is empty, NaN if an embedding is not
/// finite.
fn gaps(
    service: &EmbeddingService,
    pairs: impl Iterator<Item = (TextRef, TextRef)>,
) -> Result<Vec<Option<f64>>> {
    let (mut a, mut b) = (TextRecord::default(), TextRecord::default());
    pairs
        .map(|(input, output)| {
            if input.is_empty() || output.is_empty() {
                return Ok(None);
            }
            service
                .read(input, &mut a)
                .map_err(crate::engine::external)?;
            service
                .read(output, &mut b)
                .map_err(crate::engine::external)?;
            let norms = (a.norm_squared, b.norm_squared);
            Ok(Some(
                distance(&a.vector, &b.vector, norms).unwrap_or(f64::NAN),
            ))
        })
        .collect()
}

fn score(gap: Option<f64>) -> Option<f64> {
    Coherence::new(gap, DEFAULT_THRESHOLD)
        .ok()
        .map(Coherence::score)
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CoherenceFunction {
    signature: Signature,
    embedding: Embedding,
}

impl CoherenceFunction {
    pub fn new(embedding: Embedding) -> Self {
        Self {
            signature: any_arguments!(2, Immutable),
            embedding,
        }
    }
}

impl ScalarUDFImpl for CoherenceFunction {
    fn name(&self) -> &str {
        "coherence"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.iter().all(is_text) {
            true => Ok(DataType::Float64),
            false => plan_err!(
                "coherence takes two texts, not {} and {}",
                types[0],
                types[1]
            ),
        }
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let service = self.embedding.service("coherence")?;
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let inputs = embed_column(service, &string_views("coherence", &arrays[0])?)?;
        let outputs = embed_column(service, &string_views("coherence", &arrays[1])?)?;
        let gaps = gaps(service, inputs.into_iter().zip(outputs))?;
        let scores: Float64Array = gaps.into_iter().map(score).collect();
        Ok(ColumnarValue::Array(Arc::new(scores)))
    }
}

/// `coherence_of_gap(gap)`: the stored score; 1 for null (an empty side), null for NaN (failed).
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CoherenceOfGap {
    signature: Signature,
}

impl CoherenceOfGap {
    pub fn new() -> Self {
        let signature = Signature::exact(
            vec![DataType::Float64],
            datafusion::logical_expr::Volatility::Immutable,
        );
        Self { signature }
    }
}

impl ScalarUDFImpl for CoherenceOfGap {
    fn name(&self) -> &str {
        "coherence_of_gap"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let gaps = arrays[0].as_primitive::<Float64Type>();
        let mut out = Float64Builder::with_capacity(gaps.len());
        gaps.iter().for_each(|gap| out.append_option(score(gap)));
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}
