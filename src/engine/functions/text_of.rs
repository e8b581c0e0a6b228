//! `text_of(json)`: JSON text to the text that is embedded.

use std::sync::Arc;

use arrow::array::StringViewBuilder;
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature};

use super::{FunctionDoc, any_arguments, is_text, string_views};
use crate::text::{Json, TextMode};

pub(super) const DOC: FunctionDoc = FunctionDoc {
    call: "text_of(json)",
    returns: "text",
    meaning: "The text of a JSON document that metrics embed; null for null. Fails on text that is not JSON.",
};

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TextOf {
    signature: Signature,
    mode: TextMode,
}

impl TextOf {
    pub fn new(mode: TextMode) -> Self {
        Self {
            signature: any_arguments!(1, Immutable),
            mode,
        }
    }
}

impl ScalarUDFImpl for TextOf {
    fn name(&self) -> &str {
        "text_of"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types.iter().all(is_text) {
            true => Ok(DataType::Utf8View),
            false => plan_err!("text_of takes JSON as text, not {}", types[0]),
        }
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let cells = string_views("text_of", &arrays[0])?;
        let mut out = StringViewBuilder::new();
        for (row, cell) in cells.iter().enumerate() {
            let Some(cell) = cell else {
                out.append_null();
                continue;
            };
            match crate::text::parse(cell.as_bytes()) {
                Ok(Json::Null) => out.append_null(),
                Ok(value) => out.append_value(match self.mode {
                    TextMode::Compat => crate::text::to_text(&value),
                    TextMode::Content => crate::text::content_of(&value),
                }),
                Err(e) => return exec_err!("text_of: row {row} of a batch is {e}"),
            }
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}
