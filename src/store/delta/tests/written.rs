//! Tables written by hand: files, logs and checkpoints, and what is read of them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::store::fetched;

/// A table in a folder.
pub(super) struct Written(tempfile::TempDir);

impl Written {
    pub(super) fn new() -> Self {
        let table = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(table.at("_delta_log")).unwrap();
        table
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn path(&self) -> String {
        self.0.path().display().to_string()
    }

    pub(super) fn commit(&self, version: u64, actions: &[Value]) {
        let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
        let name = format!("_delta_log/{version:020}.json");
        std::fs::write(self.at(&name), lines.join("\n")).unwrap();
    }

    /// Writes a file of the table, and gives the action that adds it.
    pub(super) fn add(
        &self,
        path: &str,
        columns: Vec<(&str, ArrayRef)>,
        partition: Value,
    ) -> Value {
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns
                .into_iter()
                .map(|(name, values)| (name, values, true)),
        )
        .unwrap();
        // Paths of logs are those of addresses.
        let place = percent_decode_str(path).decode_utf8().unwrap();
        let place = self.at(&place);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        let file = File::create(&place).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let stats = json!({ "numRecords": batch.num_rows() }).to_string();
        json!({"add": {"path": path, "partitionValues": partition, "modificationTime": 0, "dataChange": true,
            "size": place.metadata().unwrap().len(), "stats": stats}})
    }

    pub(super) fn read(&self) -> Result<Vec<Row>, String> {
        self.read_at("")
    }

    pub(super) fn read_at(&self, version: &str) -> Result<Vec<Row>, String> {
        let path = format!("{}{version}", self.path());
        let fetched = fetched(vec![path], true).map_err(|e| e.to_string())?;
        Ok(rows_of(Path::new(&fetched.paths[0])))
    }
}

pub(super) type Row = (i64, Option<String>, Option<String>);

/// The columns `id`, `text` and `more`, if there is one, of all files of a folder, by `id`.
pub(super) fn rows_of(folder: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    for entry in walkdir::WalkDir::new(folder) {
        let entry = entry.unwrap();
        if !entry.file_type().is_file() {
            continue;
        }
        let file = File::open(entry.path()).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let text = |name: &str, row: usize| {
                let values = batch.column_by_name(name)?.as_string::<i32>();
                values.iter().nth(row)?.map(str::to_owned)
            };
            let ids = batch.column_by_name("id").unwrap();
            for (row, id) in ids.as_primitive::<Int64Type>().values().iter().enumerate() {
                rows.push((*id, text("text", row), text("more", row)));
            }
        }
    }
    rows.sort();
    rows
}

pub(super) fn ids(rows: &[Row]) -> Vec<i64> {
    rows.iter().map(|row| row.0).collect()
}

pub(super) fn numbers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

pub(super) fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

pub(super) fn protocol() -> Value {
    json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
}

pub(super) fn protocol_with(features: &[&str]) -> Value {
    json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
        "writerFeatures": features}})
}

pub(super) fn field(name: &str, kind: &str) -> Value {
    json!({"name": name, "type": kind, "nullable": true, "metadata": {}})
}

pub(super) fn metadata(fields: &[Value], partition: &[&str], configuration: &Value) -> Value {
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    json!({"metaData": {"id": "a-table", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
        "partitionColumns": partition, "configuration": configuration, "createdTime": 0}})
}

pub(super) fn remove(path: &str) -> Value {
    json!({"remove": {"path": path, "deletionTimestamp": 1, "dataChange": true}})
}

/// Three versions: two files of a partition; one of them is replaced; a column is new.
pub(super) fn grown() -> Written {
    let table = Written::new();
    let first = [field("id", "long"), field("text", "string")];
    let kept = "text=a%253Ab/p0.parquet";
    let of = |text: Value| json!({ "text": text });
    table.commit(
        0,
        &[
            protocol(),
            metadata(&first, &["text"], &json!({})),
            table.add(kept, vec![("id", numbers([1, 2]))], of(json!("a:b"))),
            table.add("p1.parquet", vec![("id", numbers([3]))], of(json!("c"))),
        ],
    );
    table.commit(
        1,
        &[
            remove("p1.parquet"),
            table.add("_text/p2", vec![("id", numbers([4, 5]))], of(json!(null))),
        ],
    );
    let [id, text] = first;
    let columns = vec![("id", numbers([6])), ("more", texts(&["new"]))];
    table.commit(
        2,
        &[
            metadata(&[id, text, field("more", "string")], &["text"], &json!({})),
            table.add("p3.parquet", columns, of(json!("d"))),
        ],
    );
    table
}

pub(super) fn of_grown() -> Vec<Row> {
    let row = |id, text: &str, more: &str| {
        let given = |value: &str| (!value.is_empty()).then(|| value.to_owned());
        (id, given(text), given(more))
    };
    vec![
        row(1, "a:b", ""),
        row(2, "a:b", ""),
        row(4, "", ""),
        row(5, "", ""),
        row(6, "d", "new"),
    ]
}

/// Puts the first versions of a log into a checkpoint.
pub(super) fn with_checkpoint(table: &Written, version: u64, actions: &[Value]) {
    let texts = |name: &str| Field::new(name, DataType::Utf8, true);
    let number = |name: &str| Field::new(name, DataType::Int64, true);
    let version_of = |name: &str| Field::new(name, DataType::Int32, true);
    let map = |name: &str| {
        let entry = vec![
            Field::new("key", DataType::Utf8, false),
            Field::new("value", DataType::Utf8, true),
        ];
        let entry = Field::new("key_value", DataType::Struct(entry.into()), false);
        Field::new(name, DataType::Map(Arc::new(entry), false), true)
    };
    let group = |name: &str, fields: Vec<Field>| {
        Field::new(name, DataType::Struct(Fields::from(fields)), true)
    };
    let list = DataType::List(Arc::new(Field::new("element", DataType::Utf8, true)));
    let schema = Arc::new(Schema::new(vec![
        group(
            "protocol",
            vec![
                version_of("minReaderVersion"),
                version_of("minWriterVersion"),
            ],
        ),
        group(
            "metaData",
            vec![
                texts("id"),
                group("format", vec![texts("provider"), map("options")]),
                texts("schemaString"),
                Field::new("partitionColumns", list, true),
                map("configuration"),
                number("createdTime"),
            ],
        ),
        group(
            "add",
            vec![
                texts("path"),
                map("partitionValues"),
                number("size"),
                number("modificationTime"),
                Field::new("dataChange", DataType::Boolean, true),
                texts("stats"),
            ],
        ),
        group("remove", vec![texts("path"), number("deletionTimestamp")]),
    ]));
    let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
    let mut reader = arrow::json::ReaderBuilder::new(Arc::clone(&schema))
        .build(std::io::Cursor::new(lines.join("\n")))
        .unwrap();
    let batch = reader.next().unwrap().unwrap();
    let name = format!("_delta_log/{version:020}.checkpoint.parquet");
    let file = File::create(table.at(&name)).unwrap();
    let mut writer = ArrowWriter::try_new(file, schema, None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let last = json!({"version": version, "size": actions.len()}).to_string();
    std::fs::write(table.at("_delta_log/_last_checkpoint"), last).unwrap();
    for version in 0..=version {
        std::fs::remove_file(table.at(&format!("_delta_log/{version:020}.json"))).unwrap();
    }
}
