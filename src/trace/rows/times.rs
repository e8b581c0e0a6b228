//! A column of start times, of whatever type.

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, PrimitiveArray};
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimestampNanosecondType};
use arrow::error::ArrowError;

use super::super::cells::{Moment, moment_of_text};
use super::super::epoch::EpochUnit;
use super::found_batch::bytes;

/// A start time column.
pub(super) enum Times<'b> {
    Missing,
    /// Nanoseconds or coarser, as nanoseconds could overflow: microseconds and what is beyond.
    Micros(Int64Array),
    Nanos(PrimitiveArray<TimestampNanosecondType>),
    Text(&'b ArrayRef),
    /// Whole numbers of a unit since 1970.
    Counts(Int64Array, EpochUnit),
    /// The same with fractions.
    Floats(Float64Array, EpochUnit),
}

impl<'b> Times<'b> {
    pub fn new(array: &'b ArrayRef, unit: Option<EpochUnit>) -> Result<Self, ArrowError> {
        use arrow::datatypes::TimeUnit::{Microsecond, Nanosecond};
        Ok(match array.data_type() {
            of if of.is_integer()
                && let Some(unit) = unit =>
            {
                let counts = arrow::compute::cast(array, &DataType::Int64)?;
                Self::Counts(counts.as_primitive::<Int64Type>().clone(), unit)
            }
            of if of.is_numeric()
                && let Some(unit) = unit =>
            {
                let counts = arrow::compute::cast(array, &DataType::Float64)?;
                Self::Floats(counts.as_primitive::<Float64Type>().clone(), unit)
            }
            DataType::Timestamp(Nanosecond, _) => {
                Self::Nanos(array.as_primitive::<TimestampNanosecondType>().clone())
            }
            DataType::BinaryView => Self::Text(array),
            _ => {
                let micros = arrow::compute::cast(array, &DataType::Timestamp(Microsecond, None))?;
                let micros = arrow::compute::cast(&micros, &DataType::Int64)?;
                Self::Micros(micros.as_primitive::<Int64Type>().clone())
            }
        })
    }

    /// A row's moment, or why there is none.
    pub fn at(&self, row: usize) -> Result<Moment, String> {
        const NULL: &str = "null";
        match self {
            Self::Missing => Err("the column is missing".into()),
            Self::Micros(times) if times.is_valid(row) => Ok(Moment {
                micros: times.value(row),
                nanos: 0,
            }),
            Self::Nanos(times) if times.is_valid(row) => {
                let nanos = times.value(row);
                Ok(Moment {
                    micros: nanos.div_euclid(1000),
                    nanos: nanos.rem_euclid(1000) as i16,
                })
            }
            Self::Counts(counts, unit) if counts.is_valid(row) => unit.moment(counts.value(row)),
            Self::Floats(counts, unit) if counts.is_valid(row) => {
                unit.moment_of_float(counts.value(row))
            }
            Self::Text(column) => match bytes(column, row) {
                None => Err(NULL.into()),
                Some(text) => moment_of_text(&String::from_utf8_lossy(text)),
            },
            _ => Err(NULL.into()),
        }
    }
}
