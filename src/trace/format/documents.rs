//! The documents of a file: rows of Parquet and CSV, lines of JSON Lines, or a whole JSON file; plain, gzip or zstd.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Map, Value};

use super::super::native;
use super::ArrayIs;
use super::values::lenient;

/// The largest document that is read: beyond it a file is damaged, or not what it seems.
const MOST_BYTES: u64 = 2 << 30;
/// About how much is handed on at once.
const PORTION: usize = 8 << 20;

/// What a file's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    Parquet,
    Csv,
    /// A document a line.
    Lines,
    /// One JSON document.
    Whole,
}

/// A document, read or not yet.
pub(super) enum Document {
    Value(Value),
    Bytes(Vec<u8>),
}

impl Document {
    /// Whether it is a blank line.
    pub fn is_blank(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes.is_empty())
    }

    /// The value.
    pub fn value(self) -> Result<Value, String> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Bytes(bytes) => parsed(&bytes),
        }
    }
}

/// A JSON document; NaN and infinities, which Python writes, are null.
pub(super) fn parsed(bytes: &[u8]) -> Result<Value, String> {
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        Err(first) => lenient(bytes).ok_or_else(|| format!("is not JSON: {first}")),
    }
}

/// The extension of a name, and that below `.gz` or `.zst`.
pub(super) fn extension(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let name = ["gz", "zst", "zstd"]
        .iter()
        .find_map(|packed| {
            name.strip_suffix(packed)?
                .strip_suffix('.')
                .map(str::to_owned)
        })
        .unwrap_or(name);
    name.rsplit_once('.')
        .map(|(_, extension)| extension.to_owned())
}

/// Opens a file, unpacked.
pub(super) fn open(path: &Path) -> std::io::Result<Box<dyn BufRead>> {
    let mut file = File::open(path)?;
    let mut magic = [0; 4];
    let mut length = 0;
    while length < 4 {
        match file.read(&mut magic[length..])? {
            0 => break,
            count => length += count,
        }
    }
    file.seek(SeekFrom::Start(0))?;
    let file = BufReader::with_capacity(1 << 20, file);
    Ok(match magic {
        [0x1f, 0x8b, ..] => Box::new(BufReader::with_capacity(
            1 << 20,
            flate2::bufread::MultiGzDecoder::new(file),
        )),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(BufReader::with_capacity(
            1 << 20,
            zstd::Decoder::with_buffer(file)?,
        )),
        _ => Box::new(file),
    })
}

/// What a file's bytes are, by its first ones; none for a file without any.
pub(super) fn container(path: &Path) -> std::io::Result<Option<Container>> {
    let mut file = open(path)?;
    let first = file.fill_buf()?;
    if first.is_empty() {
        return Ok(None);
    }
    if first.starts_with(b"PAR1") {
        return Ok(Some(Container::Parquet));
    }
    match extension(path).as_deref() {
        Some("csv") => return Ok(Some(Container::Csv)),
        Some("jsonl" | "ndjson") => return Ok(Some(Container::Lines)),
        _ => {}
    }
    // One document a line, whatever the name: the first line is a whole object and more follows.
    let mut line = Vec::new();
    let mut limited = file.take(MOST_BYTES);
    while limited.read_until(b'\n', &mut line)? > 0 {
        if line.iter().all(u8::is_ascii_whitespace) {
            line.clear();
            continue;
        }
        break;
    }
    without_mark(&mut line);
    let object = line.trim_ascii_start().first() == Some(&b'{');
    if object && serde_json::from_slice::<serde::de::IgnoredAny>(&line).is_ok() {
        let mut rest = [0; 1];
        loop {
            match limited.read(&mut rest)? {
                0 => break,
                _ if rest[0].is_ascii_whitespace() => {}
                _ => return Ok(Some(Container::Lines)),
            }
        }
    }
    Ok(Some(Container::Whole))
}

/// What a file begins with.
pub(super) enum First {
    /// There is no document in it.
    Empty,
    /// None of its first lines is a document.
    Unreadable,
    /// The first document, and the columns of a table.
    Document(Value, Vec<String>),
}

/// How many lines are looked at for one that is a document.
const LINES: usize = 64;

/// The first document of a file that can be read.
///
/// # Errors
/// What is wrong with the file as a whole.
pub(super) fn first(path: &Path, container: Container) -> Result<First, String> {
    match container {
        Container::Parquet => first_row(path),
        Container::Csv => {
            let mut rows = csv_reader(path)?;
            let columns = csv_columns(&mut rows)?;
            let record = rows.records().next();
            Ok(match record {
                Some(Ok(record)) => First::Document(csv_row(&columns, &record), columns),
                Some(Err(e)) => return Err(e.to_string()),
                None => First::Document(Value::Object(Map::new()), columns),
            })
        }
        Container::Lines => {
            let mut file = open(path).map_err(|e| e.to_string())?.take(MOST_BYTES);
            let (mut line, mut seen) = (Vec::new(), 0);
            while seen < LINES
                && file
                    .read_until(b'\n', &mut line)
                    .map_err(|e| e.to_string())?
                    > 0
            {
                without_mark(&mut line);
                if !line.iter().all(u8::is_ascii_whitespace) {
                    seen += 1;
                    if let Ok(value) = parsed(&line) {
                        return Ok(First::Document(value, Vec::new()));
                    }
                }
                line.clear();
            }
            Ok(match seen {
                0 => First::Empty,
                _ => First::Unreadable,
            })
        }
        Container::Whole => {
            let bytes = whole(path)?;
            if bytes.iter().all(u8::is_ascii_whitespace) {
                return Ok(First::Empty);
            }
            Ok(match parsed(&bytes)? {
                Value::Array(items) if items.is_empty() => First::Empty,
                document => First::Document(document, Vec::new()),
            })
        }
    }
}

/// Takes off the mark that some editors put at the beginning.
fn without_mark(bytes: &mut Vec<u8>) {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
}

fn whole(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = open(path).map_err(|e| e.to_string())?;
    file.take(MOST_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|e| e.to_string())?;
    if bytes.len() as u64 == MOST_BYTES {
        return Err("is larger than 2 GiB in one JSON document; write it as JSON Lines".into());
    }
    without_mark(&mut bytes);
    Ok(bytes)
}

/// Hands on all documents in portions, each with the number of its first.
///
/// # Errors
/// What is wrong with the file as a whole, or as `each` says.
pub(super) fn read(
    path: &Path,
    container: Container,
    array: ArrayIs,
    each: &mut dyn FnMut(u64, Vec<Document>) -> Result<(), String>,
) -> Result<(), String> {
    match container {
        Container::Parquet => read_parquet(path, each),
        Container::Csv => read_csv(path, each),
        Container::Lines => read_lines(path, each),
        Container::Whole => {
            let bytes = whole(path)?;
            if bytes.trim_ascii_start().first() != Some(&b'[') {
                // Its reader may want the bytes.
                return each(0, vec![Document::Bytes(bytes)]);
            }
            match (parsed(&bytes)?, array) {
                (Value::Array(items), ArrayIs::Documents) => read_items(items, each),
                (document, _) => each(0, vec![Document::Value(document)]),
            }
        }
    }
}

fn read_items(
    items: Vec<Value>,
    each: &mut dyn FnMut(u64, Vec<Document>) -> Result<(), String>,
) -> Result<(), String> {
    let mut number = 0;
    let mut items = items.into_iter();
    loop {
        let portion: Vec<Document> = items.by_ref().take(1024).map(Document::Value).collect();
        if portion.is_empty() {
            return Ok(());
        }
        let count = portion.len() as u64;
        each(number, portion)?;
        number += count;
    }
}

fn read_lines(
    path: &Path,
    each: &mut dyn FnMut(u64, Vec<Document>) -> Result<(), String>,
) -> Result<(), String> {
    let mut file = open(path).map_err(|e| e.to_string())?;
    let (mut portion, mut bytes, mut first, mut number) = (Vec::new(), 0, 0, 0);
    loop {
        let mut line = Vec::new();
        let read = file.by_ref().take(MOST_BYTES).read_until(b'\n', &mut line);
        let read = read.map_err(|e| format!("after line {number}: {e}"))?;
        if read as u64 == MOST_BYTES {
            return Err(format!("line {} is longer than 2 GiB", number + 1));
        }
        if number == 0 {
            without_mark(&mut line);
        }
        if read > 0 && line.iter().all(u8::is_ascii_whitespace) {
            // Blank lines count as lines, and as nothing else: an empty document keeps the numbering.
            line.clear();
        }
        if read > 0 {
            bytes += line.len() + 64;
            portion.push(Document::Bytes(line));
            number += 1;
        }
        if (read == 0 || bytes > PORTION) && !portion.is_empty() {
            each(first, std::mem::take(&mut portion))?;
            (bytes, first) = (0, number);
        }
        if read == 0 {
            return Ok(());
        }
    }
}

fn csv_reader(path: &Path) -> Result<csv::Reader<Box<dyn BufRead>>, String> {
    let file = open(path).map_err(|e| e.to_string())?;
    // Rows that are short or long are faults of single rows.
    Ok(csv::ReaderBuilder::new().flexible(true).from_reader(file))
}

fn csv_columns(rows: &mut csv::Reader<Box<dyn BufRead>>) -> Result<Vec<String>, String> {
    let columns = rows.headers().map_err(|e| e.to_string())?;
    let columns: Vec<String> = columns
        .iter()
        .map(|name| name.trim_start_matches('\u{feff}').to_owned())
        .collect();
    let mut met = std::collections::HashSet::new();
    match columns.iter().find(|name| !met.insert(name.as_str())) {
        Some(twice) => Err(format!(
            "two columns are named `{twice}`; name each column once"
        )),
        None => Ok(columns),
    }
}

fn csv_row(columns: &[String], record: &csv::StringRecord) -> Value {
    let cell = |text: &str| match text {
        "" => Value::Null,
        text => Value::String(text.to_owned()),
    };
    Value::Object(
        columns
            .iter()
            .cloned()
            .zip(record.iter().map(cell))
            .collect(),
    )
}

fn read_csv(
    path: &Path,
    each: &mut dyn FnMut(u64, Vec<Document>) -> Result<(), String>,
) -> Result<(), String> {
    let mut rows = csv_reader(path)?;
    let columns = csv_columns(&mut rows)?;
    let (mut portion, mut bytes, mut first, mut number) = (Vec::new(), 0, 0, 0);
    for record in rows.records() {
        let record = record.map_err(|e| format!("after row {number}: {e}"))?;
        if record.len() != columns.len() {
            return Err(format!(
                "row {number} has {} cells and the header {} names; write the file with quotes around cells with commas",
                record.len(),
                columns.len()
            ));
        }
        bytes += record.as_slice().len() + 64;
        portion.push(Document::Value(csv_row(&columns, &record)));
        number += 1;
        if bytes > PORTION {
            each(first, std::mem::take(&mut portion))?;
            (bytes, first) = (0, number);
        }
    }
    match portion.is_empty() {
        true => Ok(()),
        false => each(first, portion),
    }
}

fn first_row(path: &Path) -> Result<First, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| e.to_string())?;
    let columns: Vec<String> = builder
        .schema()
        .fields()
        .iter()
        .map(|f| f.name().clone())
        .collect();
    let mut rows = builder
        .with_batch_size(1)
        .build()
        .map_err(|e| e.to_string())?;
    let row = match rows.next() {
        None => Value::Object(Map::new()),
        Some(batch) => row_of(&batch.map_err(|e| e.to_string())?, 0)?,
    };
    Ok(First::Document(row, columns))
}

fn row_of(batch: &arrow::array::RecordBatch, row: usize) -> Result<Value, String> {
    let schema = batch.schema();
    let cells = schema.fields().iter().zip(batch.columns());
    let members = cells.map(|(field, column)| {
        let value = native::value_or_uuid(column.as_ref(), row)
            .map_err(|problem| format!("column `{}`: {problem}", field.name()))?;
        Ok((field.name().clone(), Value::from(value)))
    });
    Ok(Value::Object(members.collect::<Result<_, String>>()?))
}

fn read_parquet(
    path: &Path,
    each: &mut dyn FnMut(u64, Vec<Document>) -> Result<(), String>,
) -> Result<(), String> {
    use rayon::prelude::*;
    let file = File::open(path).map_err(|e| e.to_string())?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| e.to_string())?;
    let groups = builder.metadata().row_groups().iter();
    // Cells may be megabytes: batches are as many rows as are a portion together, by the fattest row group.
    let fattest = groups
        .map(|g| g.total_byte_size().max(0) as usize / (g.num_rows().max(1) as usize))
        .max();
    let rows = (PORTION / fattest.unwrap_or(0).max(1)).clamp(1, 4096);
    let reader = builder
        .with_batch_size(rows)
        .build()
        .map_err(|e| e.to_string())?;
    let mut number = 0;
    for batch in reader {
        let batch = batch.map_err(|e| format!("after row {number}: {e}"))?;
        let documents: Result<Vec<Document>, String> = (0..batch.num_rows())
            .into_par_iter()
            .map(|row| row_of(&batch, row).map(Document::Value))
            .collect();
        let documents = documents.map_err(|problem| format!("rows from {number}: {problem}"))?;
        each(number, documents)?;
        number += batch.num_rows() as u64;
    }
    Ok(())
}
