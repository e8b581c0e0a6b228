//! The lists of files that the rows of `carried` are in, of several runs, as one list.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt64Array};
use arrow::datatypes::{DataType, UInt64Type};
use serde_json::Value;

use super::KeepingError;
use super::chain::Night;
use crate::history::chain::CARRIED;
use crate::history::stored_run::read_json;
use crate::output::{RunDirectory, RunError, manifest};
use crate::trace::RowAt;

/// The list, inside the folder of the table.
const FILES: &str = "files.json";

/// One list for all, and the numbers that the files of each run have in it.
pub(super) struct CarriedFiles {
    files: Vec<Value>,
    numbers: Vec<Vec<usize>>,
}

impl CarriedFiles {
    /// The lists of these runs; a run without the table has none.
    pub fn of(runs: &[&Night]) -> Result<Self, KeepingError> {
        let mut all = Self {
            files: Vec::new(),
            numbers: Vec::new(),
        };
        for run in runs {
            let path = &run.run.path;
            let list: Vec<Value> = match path.join(CARRIED).is_dir() {
                true => read_json(path, &format!("{CARRIED}/{FILES}"))?,
                false => Vec::new(),
            };
            let numbers = list.into_iter().map(|file| {
                let known = all.files.iter().position(|known| *known == file);
                known.unwrap_or_else(|| {
                    all.files.push(file);
                    all.files.len() - 1
                })
            });
            let numbers = numbers.collect();
            all.numbers.push(numbers);
        }
        Ok(all)
    }

    /// The places of a run's rows by the numbers of the one list.
    pub fn places(&self, run: usize, column: &ArrayRef) -> Result<ArrayRef, String> {
        let wrong = || "column `rows` holds no places".to_owned();
        let lists = column.as_list_opt::<i32>().ok_or_else(wrong)?;
        let DataType::List(item) = column.data_type() else {
            return Err(wrong());
        };
        let values = lists.values().as_primitive_opt::<UInt64Type>();
        let numbers = self.numbers.get(run).map_or(&[][..], Vec::as_slice);
        let values: UInt64Array = values
            .ok_or_else(wrong)?
            .values()
            .iter()
            .map(|place| {
                let (file, row) = RowAt::from_position(*place).parts();
                let file = numbers.get(file).ok_or_else(wrong)?;
                Ok(RowAt::new(*file, row).position())
            })
            .collect::<Result<Vec<u64>, String>>()?
            .into();
        let offsets = lists.offsets().clone();
        let nulls = lists.nulls().cloned();
        let made = ListArray::try_new(Arc::clone(item), offsets, Arc::new(values), nulls);
        Ok(Arc::new(made.map_err(|e| e.to_string())?))
    }

    /// Writes the list.
    pub fn write(&self, directory: &RunDirectory) -> Result<(), RunError> {
        let path = directory.path().join(CARRIED).join(FILES);
        manifest::write_json(&path, &self.files)
    }
}
