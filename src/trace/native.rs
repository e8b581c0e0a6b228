//! Arrow values as JSON values: the `native` text encoding (as in PandaProbe).

use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::text::Json;

/// Whether a type can be turned into JSON values: everything but unions and lists of views.
pub(super) fn is_native(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().all(|f| is_native(f.data_type())),
        DataType::List(f) | DataType::LargeList(f) | DataType::FixedSizeList(f, _) => {
            is_native(f.data_type())
        }
        DataType::Map(f, _) => is_native(f.data_type()),
        DataType::Dictionary(_, value) => is_native(value),
        DataType::Union(..)
        | DataType::RunEndEncoded(..)
        | DataType::ListView(_)
        | DataType::LargeListView(_) => false,
        _ => true,
    }
}

/// The value of a cell that may be an id: a UUID as 16 bytes becomes hex digits, all else is as in [`value`].
pub(super) fn value_or_uuid(array: &dyn Array, row: usize) -> Result<Json, String> {
    match uuid(array, row) {
        Some(hex) => Ok(Json::String(hex)),
        None => value(array, row),
    }
}

/// The 32 hex digits of a UUID, in a column of 16 bytes.
pub(super) fn uuid(array: &dyn Array, row: usize) -> Option<String> {
    let bytes = match array.data_type() {
        DataType::FixedSizeBinary(16) if array.is_valid(row) => {
            array.as_fixed_size_binary().value(row)
        }
        _ => return None,
    };
    Some(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// The value of one cell. Binary that is not UTF-8 is refused with a message.
pub(super) fn value(array: &dyn Array, row: usize) -> Result<Json, String> {
    if array.is_null(row) {
        return Ok(Json::Null);
    }
    let items = |list: arrow::array::ArrayRef| -> Result<Json, String> {
        (0..list.len())
            .map(|i| value(list.as_ref(), i))
            .collect::<Result<_, _>>()
            .map(Json::Array)
    };
    let utf8 = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Json::String(text.to_owned())),
        Err(_) => Err("binary value is not UTF-8".to_owned()),
    };
    Ok(match array.data_type() {
        DataType::Null => Json::Null,
        DataType::Boolean => Json::Bool(array.as_boolean().value(row)),
        DataType::Float16 => Json::of_f64(array.as_primitive::<Float16Type>().value(row).to_f64()),
        DataType::Float32 => {
            Json::of_f64(f64::from(array.as_primitive::<Float32Type>().value(row)))
        }
        DataType::Float64 => Json::of_f64(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => Json::String(array.as_string::<i32>().value(row).to_owned()),
        DataType::LargeUtf8 => Json::String(array.as_string::<i64>().value(row).to_owned()),
        DataType::Utf8View => Json::String(array.as_string_view().value(row).to_owned()),
        DataType::Binary => utf8(array.as_binary::<i32>().value(row))?,
        DataType::LargeBinary => utf8(array.as_binary::<i64>().value(row))?,
        DataType::BinaryView => utf8(array.as_binary_view().value(row))?,
        DataType::FixedSizeBinary(_) => utf8(array.as_fixed_size_binary().value(row))?,
        DataType::List(_) => items(array.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => items(array.as_list::<i64>().value(row))?,
        DataType::FixedSizeList(..) => items(array.as_fixed_size_list().value(row))?,
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            let members = fields.iter().zip(columns);
            Json::Object(
                members
                    .map(|(field, column)| Ok((field.name().clone(), value(column.as_ref(), row)?)))
                    .collect::<Result<_, String>>()?,
            )
        }
        DataType::Map(..) => {
            let entries = array.as_map().value(row);
            let (keys, values) = (entries.column(0), entries.column(1));
            (0..entries.len())
                .map(|i| {
                    let key = match value(keys.as_ref(), i)? {
                        Json::String(text) => text,
                        other => crate::text::to_text(&other),
                    };
                    Ok((key, value(values.as_ref(), i)?))
                })
                .collect::<Result<_, String>>()
                .map(Json::Object)?
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = match value(dictionary.keys(), row)? {
                Json::Integer(digits) => digits.parse().ok(),
                _ => None,
            };
            match key.filter(|key| *key < dictionary.values().len()) {
                Some(key) => value(dictionary.values().as_ref(), key)?,
                None => return Err("its dictionary key is out of range".into()),
            }
        }
        data_type => {
            let printed = ArrayFormatter::try_new(array, &FormatOptions::default())
                .and_then(|f| f.value(row).try_to_string())
                .map_err(|e| e.to_string())?;
            if data_type.is_integer() {
                Json::Integer(printed)
            } else {
                Json::String(printed)
            }
        }
    })
}
