//! Tables of finished runs, read batch by batch.

use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::history::stored_run::HistoryError;
use crate::history::verify::check_file;
use crate::output::table_writer::Parts;
use crate::trace::canonical_trace_id;

/// Rows that are in memory at once while a table is read.
const BATCH_ROWS: usize = 8192;

/// Hands the batches of a table on, in the order of its parts. Of `columns`, batches have those that the table has.
///
/// # Errors
/// [`HistoryError::Damaged`] with the part, if it can't be read or `each` finds a problem.
pub(crate) fn for_each_batch(
    run: &Path,
    table: &str,
    columns: &[&str],
    mut each: impl FnMut(&RecordBatch) -> Result<(), String>,
) -> Result<(), HistoryError> {
    let folder = run.join(table);
    let entries = fs::read_dir(&folder).map_err(|e| HistoryError::damaged(run, table, e))?;
    let mut parts: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| Parts::of(Path::new(name)).is_some())
        .collect();
    if parts.is_empty() {
        let problem = "the folder holds no part-*.parquet and no bucket-*.parquet";
        return Err(HistoryError::damaged(run, table, problem));
    }
    parts.sort();
    for part in parts {
        check_file(run, &format!("{table}/{part}"))?;
        let path = folder.join(&part);
        // Decoders have assertions that corrupt files can reach.
        let read = catch_unwind(AssertUnwindSafe(|| read_part(&path, columns, &mut each)));
        read.unwrap_or_else(|_| Err("the file is corrupt".into()))
            .map_err(|e| HistoryError::damaged(run, &format!("{table}/{part}"), e))?;
    }
    Ok(())
}

fn read_part(
    path: &Path,
    columns: &[&str],
    each: &mut impl FnMut(&RecordBatch) -> Result<(), String>,
) -> Result<(), String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| e.to_string())?;
    let mask = ProjectionMask::columns(builder.parquet_schema(), columns.iter().copied());
    let reader = builder
        .with_projection(mask)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|e| e.to_string())?;
    for batch in reader {
        each(&batch.map_err(|e| e.to_string())?)?;
    }
    Ok(())
}

fn column<'b>(batch: &'b RecordBatch, name: &str) -> Result<&'b ArrayRef, String> {
    batch
        .column_by_name(name)
        .ok_or_else(|| format!("there is no column `{name}`"))
}

/// A column of texts, whatever their encoding.
pub(crate) fn text(batch: &RecordBatch, name: &str) -> Result<StringArray, String> {
    let texts = arrow::compute::cast(column(batch, name)?, &DataType::Utf8)
        .map_err(|e| format!("column `{name}`: {e}"))?;
    let texts = texts.as_string_opt::<i32>().cloned();
    texts.ok_or_else(|| format!("column `{name}` holds no texts"))
}

/// The same; all null where the table lacks it.
pub(crate) fn text_if_there(batch: &RecordBatch, name: &str) -> Result<StringArray, String> {
    match batch.column_by_name(name) {
        Some(_) => text(batch, name),
        None => Ok(StringArray::new_null(batch.num_rows())),
    }
}

/// A column of numbers; all null where the table lacks it.
pub(crate) fn numbers_if_there(batch: &RecordBatch, name: &str) -> Result<Float64Array, String> {
    match batch.column_by_name(name) {
        Some(_) => numbers(batch, name),
        None => Ok(Float64Array::new_null(batch.num_rows())),
    }
}

/// A column of numbers.
pub(crate) fn numbers(batch: &RecordBatch, name: &str) -> Result<Float64Array, String> {
    let numbers = column(batch, name)?.as_primitive_opt::<Float64Type>();
    numbers
        .cloned()
        .ok_or_else(|| format!("column `{name}` holds no numbers"))
}

/// A column of whole numbers of any width; all null where the table lacks it.
pub(crate) fn whole_numbers(batch: &RecordBatch, name: &str) -> Result<Int64Array, String> {
    let Some(found) = batch.column_by_name(name) else {
        return Ok(Int64Array::new_null(batch.num_rows()));
    };
    let wide = found.data_type().is_integer();
    let wide = wide.then(|| arrow::compute::cast(found, &DataType::Int64));
    let wide = wide.transpose().ok().flatten();
    let numbers = wide.and_then(|wide| wide.as_primitive_opt::<Int64Type>().cloned());
    numbers.ok_or_else(|| format!("column `{name}` holds no whole numbers"))
}

/// A column of true and false.
pub(crate) fn flags(batch: &RecordBatch, name: &str) -> Result<BooleanArray, String> {
    let flags = column(batch, name)?.as_boolean_opt();
    flags
        .cloned()
        .ok_or_else(|| format!("column `{name}` holds no booleans"))
}

/// The text in a row; none if it is null.
pub(crate) fn cell(texts: &StringArray, row: usize) -> Option<&str> {
    texts.is_valid(row).then(|| texts.value(row))
}

/// The id of a trace in a row in its canonical form, which ids are matched by; none if it is null or empty.
pub(crate) fn trace_id(ids: &StringArray, row: usize) -> Option<String> {
    canonical_trace_id(cell(ids, row)?)
}

/// The number in a row; none if it is null.
pub(crate) fn number(numbers: &Float64Array, row: usize) -> Option<f64> {
    numbers.is_valid(row).then(|| numbers.value(row))
}

/// The whole number in a row; none if it is null.
pub(crate) fn whole_number(numbers: &Int64Array, row: usize) -> Option<i64> {
    numbers.is_valid(row).then(|| numbers.value(row))
}

/// True or false in a row; none if it is null.
pub(crate) fn flag(flags: &BooleanArray, row: usize) -> Option<bool> {
    flags.is_valid(row).then(|| flags.value(row))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn columns_are_read_in_their_type_and_only_some_may_be_missing() {
        let counts: ArrayRef = Arc::new(arrow::array::Int32Array::from(vec![Some(2), None]));
        let names: ArrayRef = Arc::new(StringArray::from(vec![None, Some("a")]));
        let batch =
            RecordBatch::try_from_iter_with_nullable([("n", counts, true), ("t", names, true)])
                .unwrap();
        let found = whole_numbers(&batch, "n").unwrap();
        assert_eq!(
            (whole_number(&found, 0), whole_number(&found, 1)),
            (Some(2), None)
        );
        let texts = text(&batch, "t").unwrap();
        assert_eq!((cell(&texts, 0), cell(&texts, 1)), (None, Some("a")));
        let missing = whole_numbers(&batch, "later").unwrap();
        assert_eq!(missing.null_count(), 2);
        assert_eq!(text_if_there(&batch, "later").unwrap().null_count(), 2);
        assert_eq!(text_if_there(&batch, "t").unwrap().null_count(), 1);
        assert_eq!(numbers_if_there(&batch, "later").unwrap().null_count(), 2);
        assert!(numbers_if_there(&batch, "t").is_err());
        assert!(flags(&batch, "later").unwrap_err().contains("`later`"));
        assert!(numbers(&batch, "later").unwrap_err().contains("`later`"));
        for wrong in [
            numbers(&batch, "t").map(|_| ()),
            whole_numbers(&batch, "t").map(|_| ()),
            flags(&batch, "n").map(|_| ()),
        ] {
            assert!(wrong.unwrap_err().contains("holds no"));
        }
    }
}
