//! A decoded batch of a Parquet file: its canonical columns, and all of them by name.

use std::borrow::Cow;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type};
use arrow::error::ArrowError;

use super::super::cells::{Row, TextCell};
use super::super::epoch::EpochUnit;
use super::super::native;
use super::super::schema::TextEncoding;
use super::parquet_columns::FoundColumns;
use super::times::Times;
use crate::text::Json;

/// A decoded batch of found columns.
pub(super) struct FoundBatch<'b> {
    all: &'b RecordBatch,
    trace_id: Option<&'b ArrayRef>,
    session_id: Option<&'b ArrayRef>,
    project_id: Option<&'b ArrayRef>,
    started_at: Times<'b>,
    name: Option<&'b ArrayRef>,
    environment: Option<&'b ArrayRef>,
    release: Option<&'b ArrayRef>,
    model: Option<&'b ArrayRef>,
    tags: Option<&'b ArrayRef>,
    input: Option<(&'b ArrayRef, TextEncoding)>,
    output: Option<(&'b ArrayRef, TextEncoding)>,
    expected: Option<(&'b ArrayRef, TextEncoding)>,
    spans: Option<(&'b ArrayRef, TextEncoding)>,
    signals: Vec<Option<ArrayRef>>,
}

impl<'b> FoundBatch<'b> {
    /// Pairs a batch's columns with what they stand for; `chosen` says which columns of the file it holds, ascending.
    pub fn of(
        all: &'b RecordBatch,
        chosen: &[usize],
        found: &FoundColumns,
        time_unit: Option<EpochUnit>,
    ) -> Result<Self, ArrowError> {
        let column = |at: Option<usize>| -> Option<&'b ArrayRef> {
            all.columns().get(chosen.binary_search(&at?).ok()?)
        };
        let text = |at: Option<(usize, TextEncoding)>| Some((column(at.map(|(i, _)| i))?, at?.1));
        let signal = |at: &Option<usize>| {
            let column = column(*at);
            column.map(|array| arrow::compute::cast(array, &DataType::Float64))
        };
        Ok(Self {
            all,
            trace_id: column(found.trace_id),
            session_id: column(found.session_id),
            project_id: column(found.project_id),
            started_at: match column(found.started_at) {
                None => Times::Missing,
                Some(array) => Times::new(array, time_unit)?,
            },
            name: column(found.name),
            environment: column(found.environment),
            release: column(found.release),
            model: column(found.model),
            tags: column(found.tags),
            input: text(found.input),
            output: text(found.output),
            expected: text(found.expected),
            spans: text(found.spans),
            signals: found
                .signals
                .iter()
                .map(|at| signal(at).transpose())
                .collect::<Result<_, _>>()?,
        })
    }

    pub fn rows(&self) -> usize {
        self.all.num_rows()
    }

    /// A cell of any column: none where there is no such column, else its value or why it has none.
    pub fn value(&self, column: &str, row: usize) -> Option<Result<Json, String>> {
        let column = self.all.column_by_name(column)?;
        Some(native::value_or_uuid(column.as_ref(), row))
    }

    /// A row's signal values, in the order of the wanted signals.
    pub fn signals(&self, row: usize, into: &mut Vec<Option<f64>>) {
        into.clear();
        into.extend(self.signals.iter().map(|column| {
            let column = column.as_ref()?.as_primitive::<Float64Type>();
            column.is_valid(row).then(|| column.value(row))
        }));
    }

    pub fn row<'a>(&'a self, row: usize, signals: &'a [Option<f64>]) -> Row<'a> {
        Row {
            trace_id: self.trace_id.and_then(|c| identifier(c, row)),
            session_id: self.session_id.and_then(|c| identifier(c, row)),
            project_id: self.project_id.and_then(|c| identifier(c, row)),
            started_at: self.started_at.at(row),
            name: self.name.and_then(|c| identifier(c, row)),
            environment: self.environment.and_then(|c| identifier(c, row)),
            release: self.release.and_then(|c| identifier(c, row)),
            model: self.model.and_then(|c| identifier(c, row)),
            tags: self.tags.map_or(TextCell::Null, |c| tag_cell(c, row)),
            input: text_cell(self.input, row),
            output: text_cell(self.output, row),
            expected: text_cell(self.expected, row),
            spans: text_cell(self.spans, row),
            signals,
        }
    }
}

fn tag_cell(column: &ArrayRef, row: usize) -> TextCell<'_> {
    let encoding = match column.as_binary_view_opt() {
        Some(_) => TextEncoding::Text,
        None => TextEncoding::Native,
    };
    text_cell(Some((column, encoding)), row)
}

fn text_cell(column: Option<(&ArrayRef, TextEncoding)>, row: usize) -> TextCell<'_> {
    match column {
        None => TextCell::Null,
        Some((column, _)) if column.is_null(row) => TextCell::Null,
        Some((column, TextEncoding::Native)) => match native::value(column.as_ref(), row) {
            Ok(value) => TextCell::Value(value),
            Err(reason) => TextCell::Bad(reason),
        },
        Some((column, encoding)) => match bytes(column, row) {
            Some(bytes) => TextCell::Bytes(bytes, encoding),
            None => TextCell::Null,
        },
    }
}

pub(super) fn bytes(column: &ArrayRef, row: usize) -> Option<&[u8]> {
    let column = column.as_binary_view_opt()?;
    column.is_valid(row).then(|| column.value(row))
}

/// An id, name or label: text, an integer, or a UUID as 16 bytes.
fn identifier(column: &ArrayRef, row: usize) -> Option<Cow<'_, [u8]>> {
    if column.is_null(row) {
        return None;
    }
    match column.data_type() {
        DataType::BinaryView => bytes(column, row).map(Cow::Borrowed),
        DataType::FixedSizeBinary(16) => {
            native::uuid(column.as_ref(), row).map(|hex| Cow::Owned(hex.into_bytes()))
        }
        _ => match native::value(column.as_ref(), row).ok()? {
            Json::Integer(digits) => Some(Cow::Owned(digits.into_bytes())),
            _ => None,
        },
    }
}
