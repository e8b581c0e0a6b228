//! Suites from rows: the columns of a suite repeated for each of its cases.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Float64Type};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Map, Value};

use super::case::{SUITE_COLUMNS, Source, check_ids, read_case};
use super::yaml::INTERACTIONS;
use super::{GoldenSet, Interaction, ReadSets};
use crate::suite::regression::file_fault::FileError;
use crate::suite::regression::members::{Findings, Members};

/// The columns of a case besides those of its suite.
const CASE_COLUMNS: [&str; 14] = [
    "id",
    "description",
    "input",
    "system_prompt",
    "expected_output",
    "actual_output",
    "metrics",
    "thresholds",
    "tags",
    "weight",
    "context",
    "required_terms",
    "forbidden_terms",
    "regex_pattern",
];
/// Columns that must be there, though `actual_output` may be null.
const REQUIRED: [&str; 4] = ["suite", "id", "expected_output", "actual_output"];
/// Columns that hold lists or blocks; as text they hold JSON, a list also its items with commas between.
const LISTS: [&str; 5] = [
    "metrics",
    "tags",
    "suite_tags",
    "required_terms",
    "forbidden_terms",
];
const BLOCKS: [&str; 2] = ["thresholds", "context"];

/// Reads the suites of a Parquet file; only the columns that suites have are read.
///
/// # Errors
/// [`FileError`] names the file, and rows as in `rows[12].weight`, counted from 0.
pub fn golden_sets_of_parquet(path: &Path) -> Result<ReadSets, FileError> {
    let mut columns = SUITE_COLUMNS.to_vec();
    columns.extend(CASE_COLUMNS);
    let batches = batches_of_parquet(path, &columns)?;
    let hash = hash_of(path)?;
    golden_sets_of_rows(path, &batches, &hash)
}

/// The wanted columns of a Parquet file, those that it has.
pub(super) fn batches_of_parquet(
    path: &Path,
    wanted: &[&str],
) -> Result<Vec<RecordBatch>, FileError> {
    let wrong = |problem: String| FileError::syntax(path, "Parquet", problem);
    let file = std::fs::File::open(path).map_err(|e| FileError::read(path, e))?;
    let builder =
        ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| wrong(e.to_string()))?;
    let fields = builder.schema().fields().iter().enumerate();
    let roots: Vec<usize> = fields
        .filter(|(_, field)| wanted.contains(&field.name().as_str()))
        .map(|(at, _)| at)
        .collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    let reader = builder.with_projection(mask).build();
    let reader = reader.map_err(|e| wrong(e.to_string()))?;
    let batches: Result<Vec<RecordBatch>, _> = reader.collect();
    batches.map_err(|e| wrong(e.to_string()))
}

/// SHA-256 of a file of any size, in hex.
fn hash_of(path: &Path) -> Result<String, FileError> {
    use sha2::{Digest, Sha256};
    use std::io::Read;
    let mut file = std::fs::File::open(path).map_err(|e| FileError::read(path, e))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = file
            .read(&mut buffer)
            .map_err(|e| FileError::read(path, e))?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        hasher.update(bytes);
    }
    let digest = hasher.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The suites of rows, in the order in which they begin; cases in the order of the rows. `path` is what messages name,
/// `hash` becomes the suites' file hash.
///
/// # Errors
/// [`FileError::Faults`] if a column is missing or a row can't be used: all of them, as in `rows[12].weight`.
pub fn golden_sets_of_rows(
    path: &Path,
    batches: &[RecordBatch],
    hash: &str,
) -> Result<ReadSets, FileError> {
    let findings = Findings::default();
    let sets = match rows_of(path, batches, &REQUIRED, &findings)? {
        None => Vec::new(),
        Some(rows) => suites(&findings, &rows, hash),
    };
    let warnings = findings.finish().map_err(FileError::faults(path))?;
    Ok(ReadSets { sets, warnings })
}

/// Rows as blocks of keys; none if a required column is missing, which is a fault.
pub(super) fn rows_of(
    path: &Path,
    batches: &[RecordBatch],
    required: &[&str],
    findings: &Findings,
) -> Result<Option<Vec<Value>>, FileError> {
    let mut missing = false;
    if let Some(batch) = batches.first() {
        for name in required {
            if batch.column_by_name(name).is_none() {
                findings.fault(*name, "is missing; add a column of this name");
                missing = true;
            }
        }
    }
    if missing {
        return Ok(None);
    }
    let mut rows = Vec::new();
    for batch in batches {
        rows_of_batch(path, batch, &mut rows)?;
    }
    Ok(Some(rows))
}

fn rows_of_batch(path: &Path, batch: &RecordBatch, rows: &mut Vec<Value>) -> Result<(), FileError> {
    let wrong = |e: arrow::error::ArrowError| FileError::syntax(path, "rows", e);
    let batch = readable(path, batch)?;
    let mut writer = arrow::json::ArrayWriter::new(Vec::new());
    writer.write(&batch).map_err(wrong)?;
    writer.finish().map_err(wrong)?;
    let bytes = writer.into_inner();
    if bytes.is_empty() {
        return Ok(());
    }
    // Numbers must come back exactly: not every reader of JSON promises that.
    let json = crate::text::parse(&bytes).map_err(|e| FileError::syntax(path, "rows", e))?;
    let Value::Array(of_batch) = Value::from(json) else {
        return Ok(());
    };
    rows.extend(of_batch.into_iter().map(with_text_keys));
    Ok(())
}

/// The columns as JSON can hold them: texts that are stored as bytes are texts, and numbers that JSON has none for are
/// refused, since they would read as if nothing was said.
fn readable(path: &Path, batch: &RecordBatch) -> Result<RecordBatch, FileError> {
    let wrong =
        |name: &str, e: String| FileError::syntax(path, "rows", format!("column `{name}`: {e}"));
    let schema = batch.schema();
    let fields = schema.fields().iter().zip(batch.columns());
    let columns = fields.map(|(field, column)| {
        let name = field.name();
        let cast = |to: &DataType| {
            let options = CastOptions {
                safe: false,
                ..CastOptions::default()
            };
            cast_with_options(column, to, &options).map_err(|e| wrong(name, e.to_string()))
        };
        let column = match column.data_type() {
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                cast(&DataType::LargeUtf8)?
            }
            DataType::Float16 | DataType::Float32 | DataType::Float64 => {
                let numbers = cast(&DataType::Float64)?;
                let numbers = numbers.as_primitive::<Float64Type>();
                if let Some(odd) = numbers.iter().flatten().find(|of| !of.is_finite()) {
                    return Err(wrong(
                        name,
                        format!("{odd} is no number that counts; correct it"),
                    ));
                }
                Arc::clone(column)
            }
            _ => Arc::clone(column),
        };
        Ok((name.clone(), column))
    });
    let columns: Vec<(String, ArrayRef)> = columns.collect::<Result<_, FileError>>()?;
    RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    )
    .map_err(|e| FileError::syntax(path, "rows", e))
}

/// The row with its keys as texts: tables may number their cases.
fn with_text_keys(mut row: Value) -> Value {
    for key in ["suite", "id"] {
        if let Some(value @ Value::Number(_)) = row.get_mut(key) {
            *value = Value::from(value.to_string());
        }
    }
    row
}

fn suites(findings: &Findings, rows: &[Value], hash: &str) -> Vec<GoldenSet> {
    let mut sets: Vec<(GoldenSet, usize)> = Vec::new();
    let mut at: HashMap<String, usize> = HashMap::new();
    let mut places: Vec<Vec<String>> = Vec::new();
    for (row, value) in rows.iter().enumerate() {
        let path = format!("rows[{row}]");
        let value = with_lists(findings, &path, value);
        let columns = Members::of(findings, path.clone(), &value);
        let name = columns.required_text("suite");
        let index = *at.entry(name.clone()).or_insert_with(|| {
            sets.push((suite(&columns, name, hash), row));
            places.push(Vec::new());
            sets.len() - 1
        });
        let Some((set, first)) = sets.get_mut(index) else {
            continue;
        };
        if *first != row {
            check_same(&columns, set, *first);
        }
        let case = read_case(findings, path.clone(), &value, set.interaction, Source::Row);
        set.cases.push(case);
        if let Some(of) = places.get_mut(index) {
            of.push(path);
        }
    }
    for ((set, _), places) in sets.iter().zip(places) {
        let ids = set.cases.iter().map(|case| case.id.as_str());
        check_ids(findings, places.into_iter().zip(ids));
    }
    sets.into_iter().map(|(set, _)| set).collect()
}

fn suite(columns: &Members<'_>, name: String, hash: &str) -> GoldenSet {
    let text = |key: &'static str| columns.text(key).unwrap_or_default().to_owned();
    GoldenSet {
        name,
        version: text("suite_version"),
        description: text("suite_description"),
        interaction: interaction(columns),
        tags: columns.texts("suite_tags"),
        author: text("author"),
        created_at: text("created_at"),
        updated_at: text("updated_at"),
        cases: Vec::new(),
        file_hash: hash.to_owned(),
    }
}

fn interaction(columns: &Members<'_>) -> Interaction {
    let found = columns.choice("interaction_type", &INTERACTIONS);
    found.unwrap_or_default()
}

/// What decides about a suite must not change from row to row.
fn check_same(columns: &Members<'_>, set: &GoldenSet, first: usize) {
    let version = columns.text("suite_version").unwrap_or_default();
    if version != set.version {
        let problem = format!("is `{version}` and `{}` in rows[{first}]", set.version);
        columns.fault("suite_version", problem + "; a suite has one version");
    }
    if columns.value("interaction_type").is_some() && interaction(columns) != set.interaction {
        let problem = format!("differs from that of rows[{first}]; a suite has one type");
        columns.fault("interaction_type", problem);
    }
}

/// The row with lists and blocks that are given as text read.
fn with_lists(findings: &Findings, path: &str, row: &Value) -> Value {
    let mut members: Map<String, Value> = row.as_object().cloned().unwrap_or_default();
    for key in LISTS.into_iter().chain(BLOCKS) {
        let Some(Value::String(text)) = members.get(key) else {
            continue;
        };
        let is_list = LISTS.contains(&key);
        let trimmed = text.trim();
        let read = if trimmed.is_empty() {
            Value::Null
        } else if is_list && !trimmed.starts_with('[') {
            let items = trimmed.split(',').map(|item| Value::from(item.trim()));
            Value::Array(items.collect())
        } else {
            match crate::text::parse_strict(trimmed) {
                Ok(json) => Value::from(json),
                Err(e) => {
                    findings.fault(format!("{path}.{key}"), format!("is no JSON: {e}"));
                    Value::Null
                }
            }
        };
        members.insert(key.to_owned(), read);
    }
    Value::Object(members)
}
