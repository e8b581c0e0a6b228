//! Columns of result tables: each with its name and its type in one place, so that a table without rows has its schema too.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Float64Array, Float64Builder, Int32Builder, Int64Array,
    ListBuilder, RecordBatch, StringArray, StringBuilder,
};
use arrow::datatypes::{Field, Schema, SchemaRef};

use crate::output::RunError;

/// A column with its name and type.
pub(crate) type Column = (Field, ArrayRef);

pub(crate) fn column(name: &str, nullable: bool, array: impl Array + 'static) -> Column {
    let field = Field::new(name, array.data_type().clone(), nullable);
    let array: ArrayRef = Arc::new(array);
    (field, array)
}

/// Texts of which none is null.
pub(crate) fn texts<'a>(name: &str, values: impl Iterator<Item = &'a str>) -> Column {
    let values: Vec<Option<&str>> = values.map(Some).collect();
    column(name, false, StringArray::from(values))
}

pub(crate) fn optional_texts<'a>(
    name: &str,
    values: impl Iterator<Item = Option<&'a str>>,
) -> Column {
    let values: Vec<Option<&str>> = values.collect();
    column(name, true, StringArray::from(values))
}

pub(crate) fn numbers(name: &str, values: impl Iterator<Item = Option<f64>>) -> Column {
    let values: Vec<Option<f64>> = values.collect();
    column(name, true, Float64Array::from(values))
}

pub(crate) fn integers(name: &str, values: impl Iterator<Item = Option<i64>>) -> Column {
    let values: Vec<Option<i64>> = values.collect();
    column(name, true, Int64Array::from(values))
}

pub(crate) fn booleans(name: &str, values: impl Iterator<Item = Option<bool>>) -> Column {
    let values: Vec<Option<bool>> = values.collect();
    column(name, true, BooleanArray::from(values))
}

pub(crate) fn text_lists<'a>(
    name: &str,
    values: impl Iterator<Item = Option<&'a [String]>>,
) -> Column {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for value in values {
        for text in value.unwrap_or_default() {
            lists.values().append_value(text);
        }
        lists.append(value.is_some());
    }
    column(name, true, lists.finish())
}

pub(crate) fn integer_lists<'a>(name: &str, values: impl Iterator<Item = &'a [i32]>) -> Column {
    let mut lists = ListBuilder::new(Int32Builder::new());
    for value in values {
        lists.values().append_slice(value);
        lists.append(true);
    }
    column(name, true, lists.finish())
}

pub(crate) fn number_lists<'a>(name: &str, values: impl Iterator<Item = &'a [f64]>) -> Column {
    let mut lists = ListBuilder::new(Float64Builder::new());
    for value in values {
        lists.values().append_slice(value);
        lists.append(true);
    }
    column(name, true, lists.finish())
}

/// The schema of a table with these columns.
pub(crate) fn schema_of(columns: &[Column]) -> SchemaRef {
    let fields: Vec<Field> = columns.iter().map(|(field, _)| field.clone()).collect();
    Arc::new(Schema::new(fields))
}

/// The rows of a table with these columns, which must be equally long.
pub(crate) fn batch_of(columns: Vec<Column>) -> Result<RecordBatch, RunError> {
    let schema = schema_of(&columns);
    let arrays: Vec<ArrayRef> = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(schema, arrays).map_err(|e| not_built(&e))
}

/// The error of a batch that Arrow refused.
pub(crate) fn not_built(error: &arrow::error::ArrowError) -> RunError {
    RunError::Plan(format!("a result batch could not be built: {error}"))
}
