//! The column `tags` of tables: lists of texts, of the JSON lists that the plan carries.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, ListBuilder, StringBuilder};
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;

/// Its type.
pub(super) fn tags() -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)))
}

/// The lists of a column of JSON lists; null where there is none.
///
/// # Errors
/// If the column, or a cell, is of another kind.
pub(super) fn tag_lists(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let unreadable = || ArrowError::ParseError("tags are no list of texts".into());
    let cells = column.as_string_opt::<i32>().ok_or_else(unreadable)?;
    let mut lists = ListBuilder::new(StringBuilder::new());
    for cell in cells {
        let tags: Option<Vec<String>> = cell
            .map(serde_json::from_str)
            .transpose()
            .map_err(|_| unreadable())?;
        for tag in tags.iter().flatten() {
            lists.values().append_value(tag);
        }
        lists.append(tags.is_some());
    }
    Ok(Arc::new(lists.finish()))
}
