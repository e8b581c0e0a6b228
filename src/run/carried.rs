//! What a run leaves for the night after it: the table `carried`, with the places of each trace's rows, and the list of the
//! files that they are in.
//!
//! The table has the rows of `traces`, in its order and with its ids. A place is a number of the list, times 2^40, plus a row of that file.
//! `trace_hash` and `session_hash` are the quick hashes of the ids (`id_hash.rs`), by which a night passes over rows that it
//! does not touch; `night` is the night in which the trace was new.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, ListBuilder, RecordBatch, StringArray, UInt64Array, UInt64Builder,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt64Type};
use arrow::error::ArrowError;
use serde::{Deserialize, Serialize};

use super::id_hash::id_hash;
use super::night::Night;
use super::trace_rows::column;
use crate::history::CARRIED;
use crate::history::stored_run::{HistoryError, read_json};
use crate::job::{RecordedFile, whole_path};
use crate::output::manifest::write_json;
use crate::output::{RunDirectory, RunError};
use crate::trace::{RowAt, SourceFile, SourceFormat, TraceSource};

/// The list of files, inside the folder of the table.
const FILES: &str = "files.json";

/// The night in which a trace was new.
pub(super) const NIGHT: &str = "night";
/// The hash of a trace's canonical id.
pub(super) const TRACE_HASH: &str = "trace_hash";
/// The hash of the name of its session; null where it has none.
pub(super) const SESSION_HASH: &str = "session_hash";

/// Bytes at either end of a file that are kept as a hash.
const END: u64 = 64 << 10;

/// A file that rows of traces are in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CarriedFile {
    /// A whole path, an address, or a path inside the directory of a run.
    pub path: String,
    /// Of what was made of files of other formats: the night whose run directory it is in.
    pub inside: Option<u64>,
    /// `parquet` or `jsonl`.
    pub format: String,
    /// Values in the names of its folders.
    pub partition: Vec<(String, String)>,
    /// Its size.
    pub bytes: u64,
    /// When it was last written: seconds since 1970, with nanoseconds.
    pub modified: String,
    /// BLAKE3 of its first and last 64 KiB.
    pub ends: String,
    /// The night in which it was new, and its place among the files of that night.
    pub arrived: (u64, u64),
}

impl CarriedFile {
    /// A file as it was when the run began, as `recorded` has it. `inside` is where it will be in the directory of this
    /// night's run, if it belongs to it.
    fn of(
        file: &SourceFile,
        inside: Option<&str>,
        arrived: (u64, u64),
        recorded: &[RecordedFile],
    ) -> Self {
        let path = whole_path(&file.path);
        let then = recorded.iter().find(|known| known.path == path).cloned();
        // Of a file that has gone meanwhile nothing is known: the next night says so.
        let then = then.or_else(|| RecordedFile::of(&file.path));
        let (bytes, modified) = then.map_or_else(Default::default, |of| (of.bytes, of.modified));
        Self {
            path: inside.map_or(path, str::to_owned),
            inside: inside.map(|_| arrived.0),
            format: match file.format {
                SourceFormat::Parquet => "parquet",
                SourceFormat::JsonLines => "jsonl",
            }
            .into(),
            partition: file.partition.clone(),
            bytes,
            modified,
            ends: ends(&file.path, bytes).unwrap_or_default(),
            arrived,
        }
    }

    /// The file at `path`, with these rows of it; why not, if it is not the one that it was. Lines may have been added to a
    /// file of JSON Lines.
    ///
    /// `copied` says that its time tells nothing: what a run holds is sealed by its manifest, and copies have their own.
    pub fn open(&self, path: PathBuf, copied: bool) -> Result<SourceFile, String> {
        let gone = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => "is gone".to_owned(),
            _ => e.to_string(),
        };
        let now = RecordedFile::of(&path).ok_or("is gone")?;
        let format = match self.format.as_str() {
            "parquet" => SourceFormat::Parquet,
            _ => SourceFormat::JsonLines,
        };
        let grown = format == SourceFormat::JsonLines && now.bytes > self.bytes;
        let by_ends = copied || grown;
        let as_long = grown || now.bytes == self.bytes;
        let same = match by_ends {
            true => as_long && ends(&path, self.bytes).map_err(gone)? == self.ends,
            false => as_long && now.modified == self.modified,
        };
        if !same {
            return Err("was changed since".into());
        }
        Ok(SourceFile {
            path,
            format,
            partition: self.partition.clone(),
            origins: Vec::new(),
            rows: None,
        })
    }
}

/// BLAKE3 of the first and last bytes of the first `length` bytes of a file.
pub(super) fn ends(path: &Path, length: u64) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = blake3::Hasher::new();
    for from in [0, length.saturating_sub(END)] {
        file.seek(SeekFrom::Start(from))?;
        let mut piece = Vec::new();
        (&mut file).take(END.min(length)).read_to_end(&mut piece)?;
        hasher.update(&piece);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// The table's columns.
pub(super) fn schema() -> SchemaRef {
    let text = |name, null| Field::new(name, DataType::Utf8, null);
    let place = Field::new("item", DataType::UInt64, false);
    Arc::new(Schema::new(vec![
        text("trace_id", false),
        text("session_id", true),
        text("project_id", true),
        Field::new("rows", DataType::List(Arc::new(place)), false),
        Field::new(NIGHT, DataType::UInt64, false),
        Field::new(TRACE_HASH, DataType::UInt64, false),
        Field::new(SESSION_HASH, DataType::UInt64, true),
    ]))
}

/// When the traces of a run were new.
#[derive(Clone, Debug)]
pub(super) struct FirstNights {
    /// The night that the run is.
    pub own: u64,
    /// Traces of earlier nights, by canonical id.
    pub earlier: Arc<HashMap<String, u64>>,
}

impl Default for FirstNights {
    fn default() -> Self {
        Self {
            own: 1,
            earlier: Arc::default(),
        }
    }
}

/// The table's rows for a batch of the plan. `standing_in` is the number of a file whose rows only stand for what can't be
/// read again: they have no place.
pub(super) fn rows_of(
    batch: &RecordBatch,
    standing_in: Option<usize>,
    nights: &FirstNights,
) -> Result<RecordBatch, ArrowError> {
    let item = Arc::new(Field::new("item", DataType::UInt64, false));
    let mut lists = ListBuilder::new(UInt64Builder::new()).with_field(item);
    let rows = batch.num_rows();
    let listed = batch.column_by_name("positions");
    let listed = listed.and_then(|column| column.as_list_opt::<i32>());
    let single = column(batch, "output_position")?.as_primitive::<UInt64Type>();
    for row in 0..rows {
        // Without repeated ids a trace has one row, where its output is.
        let places = match listed {
            Some(lists) => lists.value(row),
            None => Arc::new(single.slice(row, 1)),
        };
        for place in places.as_primitive::<UInt64Type>().iter().flatten() {
            if Some(RowAt::from_position(place).parts().0) != standing_in {
                lists.values().append_value(place);
            }
        }
        lists.append(true);
    }
    let text = |name| -> Result<&StringArray, ArrowError> {
        let texts = column(batch, name)?.as_string_opt::<i32>();
        texts.ok_or_else(|| ArrowError::SchemaError(format!("column `{name}` holds no texts")))
    };
    let (ids, sessions) = (text("trace_id")?, text("session_id")?);
    let night = |id: &str| nights.earlier.get(id).copied().unwrap_or(nights.own);
    let of_ids =
        |of: &dyn Fn(&str) -> u64| -> UInt64Array { ids.iter().flatten().map(of).collect() };
    let session_hashes: UInt64Array = sessions.iter().map(|id| id.map(id_hash)).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::clone(column(batch, "shown_id")?),
        Arc::clone(column(batch, "session_id")?),
        Arc::clone(column(batch, "project_id")?),
        Arc::new(lists.finish()),
        Arc::new(of_ids(&night)),
        Arc::new(of_ids(&id_hash)),
        Arc::new(session_hashes),
    ];
    RecordBatch::try_new(schema(), columns)
}

/// Writes the list of files, by their numbers; none for one whose rows stand for others.
fn write_files(run: &RunDirectory, files: &[Option<CarriedFile>]) -> Result<(), RunError> {
    write_json(&run.path().join(CARRIED).join(FILES), &files)
}

/// Writes the list of the files of a run that was scored, and keeps what was made of files of other formats.
///
/// # Errors
/// [`RunError`] for a disk that can't be written to.
pub(super) fn keep(
    run: &RunDirectory,
    source: &TraceSource,
    night: Option<&Night>,
    recorded: &[RecordedFile],
) -> Result<(), RunError> {
    let number = night.map_or(1, |night| night.summary.night);
    let mut files = Vec::new();
    let mut new = 0;
    for file in source.files() {
        let earlier = night.and_then(|night| {
            let mut earlier = night.files.iter();
            earlier.find(|(other, _)| other == file)
        });
        let stands_in = night.is_some_and(|night| night.standing_in.as_ref() == Some(file));
        files.push(match earlier {
            Some((_, carried)) => Some(carried.clone()),
            None if stands_in => None,
            None => {
                let made = file.path.starts_with(run.work());
                let name = format!("{CARRIED}/made/{new}.parquet");
                let inside = made.then_some(name.as_str());
                let carried = CarriedFile::of(file, inside, (number, new), recorded);
                if made {
                    let target = run.path().join(&name);
                    let folder = run.path().join(CARRIED).join("made");
                    std::fs::create_dir_all(&folder).map_err(|e| RunError::write(&folder, e))?;
                    std::fs::rename(&file.path, &target)
                        .map_err(|e| RunError::write(&target, e))?;
                }
                new += 1;
                Some(carried)
            }
        });
    }
    write_files(run, &files)
}

/// The list of files of a finished run.
///
/// # Errors
/// [`HistoryError`] if it can't be read.
pub(super) fn read_files(run: &Path) -> Result<Vec<Option<CarriedFile>>, HistoryError> {
    read_json(run, &format!("{CARRIED}/{FILES}"))
}
