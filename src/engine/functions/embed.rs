//! `embed(text)`: the embedding as a vector; and `embed_once(text)`, which the plan uses: the text's
//! place in the embedding service, 8 bytes that can be sorted and shuffled.

use std::sync::Arc;

use arrow::array::{FixedSizeListBuilder, Float32Builder, UInt64Array};
use arrow::datatypes::{DataType, Field};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature};

use super::{Embedding, FunctionDoc, any_arguments, embed_column, is_text, string_views};
use crate::embed::TextRecord;

pub(super) const DOC: FunctionDoc = FunctionDoc {
    call: "embed(text)",
    returns: "fixed-size list of float",
    meaning: "The text's embedding by the model in use; null for null and the empty text.",
};

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Embed {
    signature: Signature,
    embedding: Embedding,
}

impl Embed {
    pub fn new(embedding: Embedding) -> Self {
        Self {
            signature: any_arguments!(1, Immutable),
            embedding,
        }
    }
}

impl ScalarUDFImpl for Embed {
    fn name(&self) -> &str {
        "embed"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        if !types.iter().all(is_text) {
            return plan_err!("embed takes a text, not {}", types[0]);
        }
        let dim = self.embedding.service("embed")?.dim();
        Ok(DataType::FixedSizeList(
            Arc::new(Field::new("item", DataType::Float32, true)),
            dim as i32,
        ))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let service = self.embedding.service("embed")?;
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let places = embed_column(service, &string_views("embed", &arrays[0])?)?;
        let dim = service.dim();
        let values = Float32Builder::with_capacity(places.len() * dim);
        let mut out = FixedSizeListBuilder::new(values, dim as i32);
        let mut record = TextRecord::default();
        for place in places {
            if place.is_empty() {
                out.values().append_nulls(dim);
                out.append(false);
            } else {
                service
                    .read(place, &mut record)
                    .map_err(crate::engine::external)?;
                out.values().append_slice(&record.vector);
                out.append(true);
            }
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct EmbedOnce {
    signature: Signature,
    embedding: Embedding,
}

impl EmbedOnce {
    pub fn new(embedding: Embedding) -> Self {
        // Volatile, so that no optimizer rule evaluates it twice or moves it above the sort.
        Self {
            signature: any_arguments!(1, Volatile),
            embedding,
        }
    }
}

impl ScalarUDFImpl for EmbedOnce {
    fn name(&self) -> &str {
        "embed_once"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.iter().all(is_text) {
            true => Ok(DataType::UInt64),
            false => plan_err!("embed_once takes a text, not {}", types[0]),
        }
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let service = self.embedding.service("embed_once")?;
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let texts = string_views("embed_once", &arrays[0])?;
        let places = embed_column(service, &texts)?;
        // Null stays null: merging duplicates must tell it from an empty text.
        let refs = UInt64Array::new(
            places.iter().map(|p| p.to_u64()).collect(),
            arrow::array::Array::nulls(&texts).cloned(),
        );
        Ok(ColumnarValue::Array(Arc::new(refs)))
    }
}
