//! `word_jaccard(a, b)`: overlap of two texts' word sets.

use std::sync::Arc;

use arrow::array::Float64Array;
use arrow::datatypes::DataType;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature};

use super::{FunctionDoc, any_arguments, is_text, string_views};
use crate::text::jaccard_of_texts;

pub(super) const DOC: FunctionDoc = FunctionDoc {
    call: "word_jaccard(a, b)",
    returns: "double in [0, 1]",
    meaning: "Shared words over all words of two texts, without stop words and single characters.",
};

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct WordJaccard {
    signature: Signature,
}

impl WordJaccard {
    pub fn new() -> Self {
        Self {
            signature: any_arguments!(2, Immutable),
        }
    }
}

impl ScalarUDFImpl for WordJaccard {
    fn name(&self) -> &str {
        "word_jaccard"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.iter().all(is_text) {
            true => Ok(DataType::Float64),
            false => plan_err!(
                "word_jaccard takes two texts, not {} and {}",
                types[0],
                types[1]
            ),
        }
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let (a, b) = (
            string_views("word_jaccard", &arrays[0])?,
            string_views("word_jaccard", &arrays[1])?,
        );
        let scores: Float64Array = a
            .iter()
            .zip(b.iter())
            .map(|(a, b)| Some(jaccard_of_texts(a?, b?)))
            .collect();
        Ok(ColumnarValue::Array(Arc::new(scores)))
    }
}
