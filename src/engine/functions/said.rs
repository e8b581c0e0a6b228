//! `input_facts(input)` and `output_facts(output)` for the plan: what signals of sessions need to know of a text, made
//! where the text is read.

use std::sync::Arc;

use arrow::array::{Array, BinaryBuilder};
use arrow::datatypes::DataType;
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use super::string_views;
use crate::metric::session_signal::{InputFacts, OutputFacts};

/// Whose text it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Said {
    /// The input of a trace.
    Input,
    /// The output of a trace.
    Output,
}

/// The function of a side.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct FactsOf {
    said: Said,
    signature: Signature,
}

impl FactsOf {
    pub fn new(said: Said) -> Self {
        Self {
            said,
            signature: Signature::exact(vec![DataType::Utf8View], Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for FactsOf {
    fn name(&self) -> &str {
        match self.said {
            Said::Input => "input_facts",
            Said::Output => "output_facts",
        }
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [texts] = arrays.as_slice() else {
            return exec_err!("{} takes a text", self.name());
        };
        let texts = string_views(self.name(), texts)?;
        let mut cells = BinaryBuilder::with_capacity(texts.len(), texts.len() * 128);
        for text in texts.iter() {
            cells.append_option(text.map(|text| match self.said {
                Said::Input => InputFacts::of(text).to_bytes(),
                Said::Output => OutputFacts::of(text).to_bytes(),
            }));
        }
        Ok(ColumnarValue::Array(Arc::new(cells.finish())))
    }
}
