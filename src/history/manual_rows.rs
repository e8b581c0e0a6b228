//! Rows of scores that people or programs made, out of a file: read and checked (as in PandaProbe).

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Map, Value};

use crate::history::figures::DataType;
use crate::text::nearest;
use crate::trace::{SourceFormat, canonical_trace_id, discover};

/// Columns of an import.
pub(crate) const IMPORTED: [&str; 7] = [
    "trace_id",
    "name",
    "value",
    "data_type",
    "source",
    "reason",
    "metadata",
];
/// Columns of an edit.
pub(crate) const EDITED: [&str; 5] = ["trace_id", "name", "value", "reason", "metadata"];

/// Columns of a removal.
pub(crate) const REMOVED: [&str; 2] = ["trace_id", "name"];

/// Where scores come from, by the words of tables.
const SOURCES: [&str; 3] = ["AUTOMATED", "ANNOTATION", "PROGRAMMATIC"];

/// What is wrong with a file of scores.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The file can't be read.
    #[error("`{path}`: {problem}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A row can't be used; nothing was written.
    #[error("`{path}`, row {row}, column `{column}`: {problem}")]
    Row {
        /// The file.
        path: PathBuf,
        /// The row, from 0.
        row: u64,
        /// The column.
        column: String,
        /// What is wrong, and what was expected.
        problem: String,
    },
}

/// A value that fits its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CheckedValue {
    /// As tables hold it.
    pub text: String,
    /// The number of a numeric one.
    pub number: Option<f64>,
}

impl CheckedValue {
    /// A value of a type: a number from 0 to 1, `true` or `false` in any case, or any text.
    pub fn of(text: &str, data_type: DataType) -> Result<Self, String> {
        let text = text.trim();
        match data_type {
            DataType::Numeric => match text.parse::<f64>() {
                Ok(number) if (0.0..=1.0).contains(&number) => Ok(Self {
                    text: text.to_owned(),
                    // Of the two zeros, one.
                    number: Some(number + 0.0),
                }),
                _ => Err(format!("`{text}` is no number from 0 to 1")),
            },
            DataType::Boolean => match text.to_ascii_lowercase() {
                word if word == "true" || word == "false" => Ok(Self {
                    text: word,
                    number: None,
                }),
                _ => Err(format!("`{text}` is neither true nor false")),
            },
            DataType::Categorical => Ok(Self {
                text: text.to_owned(),
                number: None,
            }),
        }
    }
}

/// A data type by its word in tables, in any case.
pub(crate) fn data_type_named(word: &str) -> Result<DataType, String> {
    match word.to_ascii_uppercase().as_str() {
        "NUMERIC" => Ok(DataType::Numeric),
        "BOOLEAN" => Ok(DataType::Boolean),
        "CATEGORICAL" => Ok(DataType::Categorical),
        _ => Err(format!(
            "`{word}` is no data type; choose NUMERIC, BOOLEAN or CATEGORICAL"
        )),
    }
}

/// A row with the place that it came from. Columns that are missing or null are not in it.
#[derive(Debug)]
pub(crate) struct GivenRow {
    path: PathBuf,
    row: u64,
    cells: Map<String, Value>,
}

impl GivenRow {
    /// What is wrong with a column of it.
    pub fn wrong(&self, column: &str, problem: impl Into<String>) -> RowError {
        RowError::Row {
            path: self.path.clone(),
            row: self.row,
            column: column.to_owned(),
            problem: problem.into(),
        }
    }

    /// Whether a column has a value here.
    pub fn has(&self, column: &str) -> bool {
        self.cells.contains_key(column)
    }

    /// A cell as text; numbers and truth values as they are written.
    pub fn text(&self, column: &str) -> Result<Option<String>, RowError> {
        match self.cells.get(column) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(other.to_string())),
            Some(_) => Err(self.wrong(column, "expected a text, a number, true or false")),
        }
    }

    fn needed(&self, column: &str) -> Result<String, RowError> {
        let text = self.text(column)?.filter(|text| !text.trim().is_empty());
        text.ok_or_else(|| self.wrong(column, "null or empty; every row needs one"))
    }

    /// The trace as the row has it.
    pub fn given_trace_id(&self) -> Result<String, RowError> {
        self.needed("trace_id")
    }

    /// The trace, in its canonical form.
    pub fn trace_id(&self) -> Result<String, RowError> {
        let id = self.needed("trace_id")?;
        Ok(canonical_trace_id(&id).unwrap_or(id))
    }

    /// The name of the score.
    pub fn name(&self) -> Result<String, RowError> {
        Ok(self.needed("name")?.trim().to_owned())
    }

    /// The value, fitting its type; none if the row has none.
    pub fn value(&self, data_type: DataType) -> Result<Option<CheckedValue>, RowError> {
        let text = self.text("value")?;
        text.map(|text| CheckedValue::of(&text, data_type))
            .transpose()
            .map_err(|problem| self.wrong("value", problem))
    }

    /// The type of the value.
    pub fn data_type(&self) -> Result<DataType, RowError> {
        match self.text("data_type")? {
            None => Ok(DataType::Numeric),
            Some(word) => data_type_named(&word).map_err(|e| self.wrong("data_type", e)),
        }
    }

    /// Who made the score.
    pub fn source(&self) -> Result<&'static str, RowError> {
        let Some(word) = self.text("source")? else {
            return Ok("ANNOTATION");
        };
        let found = SOURCES.into_iter().find(|s| s.eq_ignore_ascii_case(&word));
        found.ok_or_else(|| {
            let choices = SOURCES.join(" or ");
            self.wrong("source", format!("`{word}` is no source; choose {choices}"))
        })
    }

    /// The metadata as the text of a JSON object; none if the row has none.
    pub fn metadata(&self) -> Result<Option<String>, RowError> {
        let wrong = || self.wrong("metadata", "expected a JSON object");
        match self.cells.get("metadata") {
            None => Ok(None),
            Some(object @ Value::Object(_)) => Ok(Some(object.to_string())),
            Some(Value::String(text)) => match serde_json::from_str(text) {
                Ok(Value::Object(object)) => Ok(Some(Value::Object(object).to_string())),
                _ => Err(wrong()),
            },
            Some(_) => Err(wrong()),
        }
    }
}

/// The rows of Parquet and JSON Lines files: a file, a folder or a glob. All of them are in memory. No other columns than
/// `columns` may be there: a misspelt one would be lost without a word.
///
/// # Errors
/// [`RowError`].
pub(crate) fn read_rows(given: &str, columns: &[&str]) -> Result<Vec<GivenRow>, RowError> {
    let files = discover(&[given.to_owned()], None).map_err(|e| RowError::File {
        path: given.into(),
        problem: e.to_string(),
    })?;
    let mut rows = Vec::new();
    for file in files {
        let path = &file.path;
        let mut number = 0;
        let mut push = |cells: Map<String, Value>| {
            let row = GivenRow {
                path: path.clone(),
                row: number,
                cells: cells.into_iter().filter(|(_, v)| !v.is_null()).collect(),
            };
            number += 1;
            let other = row.cells.keys().find(|c| !columns.contains(&c.as_str()));
            match other {
                None => rows.push(row),
                Some(other) => {
                    let near = nearest(other, columns.iter().copied());
                    let problem = format!(
                        "no such column here{near}; columns are {}",
                        columns.join(", ")
                    );
                    return Err(row.wrong(other, problem));
                }
            }
            Ok(())
        };
        match file.format {
            SourceFormat::Parquet => {
                // Decoders have assertions that corrupt files can reach.
                let read = catch_unwind(AssertUnwindSafe(|| read_parquet(path, &mut push)));
                read.unwrap_or_else(|_| Err(in_file(path, "the file is corrupt")))?;
            }
            SourceFormat::JsonLines => read_lines(path, &mut push)?,
        }
    }
    Ok(rows)
}

fn in_file(path: &Path, problem: impl ToString) -> RowError {
    RowError::File {
        path: path.to_owned(),
        problem: problem.to_string(),
    }
}

type Push<'p> = &'p mut dyn FnMut(Map<String, Value>) -> Result<(), RowError>;

fn read_lines(path: &Path, push: Push<'_>) -> Result<(), RowError> {
    let file = File::open(path).map_err(|e| in_file(path, e))?;
    for (number, line) in BufReader::new(file).lines().enumerate() {
        let line = line.map_err(|e| in_file(path, format!("line {}: {e}", number + 1)))?;
        if line.trim().is_empty() {
            continue;
        }
        let cells = serde_json::from_str(&line)
            .map_err(|e| in_file(path, format!("line {}: {e}", number + 1)))?;
        push(cells)?;
    }
    Ok(())
}

/// Rows of Parquet as JSON, so that both kinds of file are checked in one place.
fn read_parquet(path: &Path, push: Push<'_>) -> Result<(), RowError> {
    let file = File::open(path).map_err(|e| in_file(path, e))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| in_file(path, e))?;
    let reader = builder.build().map_err(|e| in_file(path, e))?;
    for batch in reader {
        let batch = batch.map_err(|e| in_file(path, e))?;
        let mut lines = arrow::json::LineDelimitedWriter::new(Vec::new());
        lines
            .write(&batch)
            .and_then(|()| lines.finish())
            .map_err(|e| in_file(path, e))?;
        for line in lines.into_inner().split(|byte| *byte == b'\n') {
            if !line.is_empty() {
                push(serde_json::from_slice(line).map_err(|e| in_file(path, e))?)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(json: &str) -> GivenRow {
        GivenRow {
            path: "f".into(),
            row: 3,
            cells: serde_json::from_str(json).unwrap(),
        }
    }

    #[test]
    fn values_fit_their_types() {
        use DataType::*;
        for (text, data_type, expected) in [
            ("0", Numeric, Some("0")),
            (" 1.0 ", Numeric, Some("1.0")),
            ("4.5", Numeric, None),
            ("-0.01", Numeric, None),
            ("NaN", Numeric, None),
            ("inf", Numeric, None),
            ("good", Numeric, None),
            ("TRUE", Boolean, Some("true")),
            ("False", Boolean, Some("false")),
            ("1", Boolean, None),
            ("anything at all", Categorical, Some("anything at all")),
        ] {
            let checked = CheckedValue::of(text, data_type).ok();
            assert_eq!(checked.map(|v| v.text).as_deref(), expected, "{text}");
        }
        let zero = CheckedValue::of("-0", Numeric).unwrap().number.unwrap();
        assert!(zero.is_sign_positive());
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let row = row(r#"{"trace_id": "t", "name": "helpful", "value": 0.5}"#);
        assert_eq!(row.data_type().unwrap(), DataType::Numeric);
        assert_eq!(row.source().unwrap(), "ANNOTATION");
        assert_eq!(row.metadata().unwrap(), None);
        assert_eq!(row.value(DataType::Numeric).unwrap().unwrap().text, "0.5");
    }

    #[test]
    fn wrong_cells_are_named() {
        let row = row(
            r#"{"trace_id": "", "value": [1], "data_type": "NUMBER", "source": "ME", "metadata": "[]"}"#,
        );
        for (error, column) in [
            (row.trace_id().unwrap_err(), "trace_id"),
            (row.name().unwrap_err(), "name"),
            (row.value(DataType::Numeric).unwrap_err(), "value"),
            (row.data_type().unwrap_err(), "data_type"),
            (row.source().unwrap_err(), "source"),
            (row.metadata().unwrap_err(), "metadata"),
        ] {
            let text = error.to_string();
            let place = format!("row 3, column `{column}`");
            assert!(text.contains(&place), "{text}");
        }
    }

    #[test]
    fn metadata_is_an_object_or_the_text_of_one() {
        for cell in [r#"{"by": "me"}"#, r#""{\"by\": \"me\"}""#] {
            let row = row(&format!(r#"{{"metadata": {cell}}}"#));
            assert_eq!(row.metadata().unwrap().unwrap(), r#"{"by":"me"}"#);
        }
    }
}
