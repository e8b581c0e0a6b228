//! `bucket_of(project_id, session_id, trace_id, buckets)`: the bucket that a trace is in.

use std::sync::Arc;

use arrow::array::{Array, StringViewArray, UInt32Array};
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature};
use datafusion::scalar::ScalarValue;

use super::{FunctionDoc, any_arguments, is_text, string_views};
use crate::trace::Buckets;

pub(super) const DOC: FunctionDoc = FunctionDoc {
    call: "bucket_of(project_id, session_id, trace_id, buckets)",
    returns: "int unsigned",
    meaning: "The bucket of a trace, from 0, in a run with so many buckets (`score --buckets`).",
};

fn cell(column: &StringViewArray, row: usize) -> Option<&str> {
    column.is_valid(row).then(|| column.value(row))
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct BucketOf {
    signature: Signature,
}

impl BucketOf {
    pub fn new() -> Self {
        Self {
            signature: any_arguments!(4, Immutable),
        }
    }
}

impl ScalarUDFImpl for BucketOf {
    fn name(&self) -> &str {
        "bucket_of"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [texts @ .., count] if texts.iter().all(is_text) && count.is_integer() => {
                Ok(DataType::UInt32)
            }
            _ => plan_err!("bucket_of takes three texts and a whole number, not {types:?}"),
        }
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(ColumnarValue::Scalar(count)) = args.args.last() else {
            return exec_err!("bucket_of: the number of buckets must be the same for all rows");
        };
        let buckets = match count.cast_to(&DataType::UInt64)? {
            ScalarValue::UInt64(Some(count)) => usize::try_from(count).ok().and_then(Buckets::new),
            _ => None,
        };
        let Some(buckets) = buckets else {
            return exec_err!(
                "bucket_of: the number of buckets must be from 1 to {}",
                Buckets::MOST
            );
        };
        let arrays = ColumnarValue::values_to_arrays(&args.args[..3])?;
        let [projects, sessions, traces] =
            [0, 1, 2].map(|at| string_views(self.name(), &arrays[at]));
        let (projects, sessions, traces) = (projects?, sessions?, traces?);
        let bucket = |row: usize| {
            let trace = cell(&traces, row).unwrap_or_default();
            buckets.of(cell(&projects, row), cell(&sessions, row), trace)
        };
        let found: UInt32Array = (0..traces.len()).map(|row| Some(bucket(row))).collect();
        Ok(ColumnarValue::Array(Arc::new(found)))
    }
}
