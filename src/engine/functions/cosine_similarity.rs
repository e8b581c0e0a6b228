//! `cosine_similarity(v, w)` of two vectors.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, FixedSizeListArray, Float64Builder};
use arrow::datatypes::{DataType, Field, Float32Type};
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature};

use super::{FunctionDoc, any_arguments};

pub(super) const DOC: FunctionDoc = FunctionDoc {
    call: "cosine_similarity(v, w)",
    returns: "double in [-1, 1]",
    meaning: "Cosine of the angle between two vectors of one length; null if a vector is null or has no length.",
};

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct CosineSimilarity {
    signature: Signature,
}

impl CosineSimilarity {
    pub fn new() -> Self {
        Self {
            signature: any_arguments!(2, Immutable),
        }
    }
}

/// Lists of any kind and number type, as lists of f32.
fn vectors(array: &ArrayRef) -> Result<ArrayRef> {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let wanted = match array.data_type() {
        DataType::FixedSizeList(_, size) => DataType::FixedSizeList(item, *size),
        _ => DataType::List(item),
    };
    Ok(arrow::compute::cast(array, &wanted)?)
}

fn row(array: &ArrayRef, row: usize) -> Option<ArrayRef> {
    if array.is_null(row) {
        return None;
    }
    let fixed: Option<&FixedSizeListArray> = array.as_fixed_size_list_opt();
    Some(fixed.map_or_else(
        || array.as_list::<i32>().value(row),
        |fixed| fixed.value(row),
    ))
}

impl ScalarUDFImpl for CosineSimilarity {
    fn name(&self) -> &str {
        "cosine_similarity"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let is_vector = |t: &DataType| match t {
            DataType::List(f) | DataType::LargeList(f) | DataType::FixedSizeList(f, _) => {
                f.data_type().is_numeric()
            }
            DataType::Null => true,
            _ => false,
        };
        match types.iter().all(is_vector) {
            true => Ok(DataType::Float64),
            false => plan_err!(
                "cosine_similarity takes two vectors (lists of numbers), not {} and {}",
                types[0],
                types[1]
            ),
        }
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let (a, b) = (vectors(&arrays[0])?, vectors(&arrays[1])?);
        let mut out = Float64Builder::with_capacity(a.len());
        for at in 0..a.len() {
            let (Some(x), Some(y)) = (row(&a, at), row(&b, at)) else {
                out.append_null();
                continue;
            };
            if x.len() != y.len() {
                return exec_err!(
                    "cosine_similarity: vectors of {} and {} components",
                    x.len(),
                    y.len()
                );
            }
            if x.null_count() + y.null_count() > 0 {
                out.append_null();
                continue;
            }
            let (x, y) = (
                x.as_primitive::<Float32Type>(),
                y.as_primitive::<Float32Type>(),
            );
            out.append_option(crate::metric::cosine_similarity(x.values(), y.values()));
        }
        Ok(ColumnarValue::Array(Arc::new(out.finish())))
    }
}
