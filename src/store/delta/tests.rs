//! Tables whose logs are written by hand, as the protocol of Delta has them.

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Fields, Int64Type};
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use super::super::location::{Named, parse};
use super::*;
use crate::text::origin_of;

/// A table in a folder.
struct Written(tempfile::TempDir);

impl Written {
    fn new() -> Self {
        let table = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(table.at("_delta_log")).unwrap();
        table
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn path(&self) -> String {
        self.0.path().display().to_string()
    }

    fn commit(&self, version: u64, actions: &[Value]) {
        let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
        let name = format!("_delta_log/{version:020}.json");
        std::fs::write(self.at(&name), lines.join("\n")).unwrap();
    }

    /// Writes a file of the table, and gives the action that adds it.
    fn add(&self, path: &str, columns: Vec<(&str, ArrayRef)>, partition: Value) -> Value {
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

    fn read(&self) -> Result<Vec<Row>, String> {
        self.read_at("")
    }

    fn read_at(&self, version: &str) -> Result<Vec<Row>, String> {
        let path = format!("{}{version}", self.path());
        let fetched = super::super::fetched(vec![path], true).map_err(|e| e.to_string())?;
        Ok(rows_of(Path::new(&fetched.paths[0])))
    }
}

type Row = (i64, Option<String>, Option<String>);

/// The columns `id`, `text` and `more`, if there is one, of all files of a folder, by `id`.
fn rows_of(folder: &Path) -> Vec<Row> {
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

fn ids(rows: &[Row]) -> Vec<i64> {
    rows.iter().map(|row| row.0).collect()
}

fn numbers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

fn protocol() -> Value {
    json!({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
}

fn protocol_with(features: &[&str]) -> Value {
    json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
        "writerFeatures": features}})
}

fn field(name: &str, kind: &str) -> Value {
    json!({"name": name, "type": kind, "nullable": true, "metadata": {}})
}

fn metadata(fields: &[Value], partition: &[&str], configuration: &Value) -> Value {
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    json!({"metaData": {"id": "a-table", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
        "partitionColumns": partition, "configuration": configuration, "createdTime": 0}})
}

fn remove(path: &str) -> Value {
    json!({"remove": {"path": path, "deletionTimestamp": 1, "dataChange": true}})
}

/// Three versions: two files of a partition; one of them is replaced; a column is new.
fn grown() -> Written {
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

fn of_grown() -> Vec<Row> {
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

#[test]
fn live_files_partitions_and_later_columns_are_read_at_each_version() {
    let table = grown();
    assert_eq!(table.read().unwrap(), of_grown());
    assert_eq!(table.read_at("/").unwrap(), of_grown());
    assert_eq!(ids(&table.read_at("@v0").unwrap()), [1, 2, 3]);
    assert_eq!(ids(&table.read_at("@v1").unwrap()), [1, 2, 4, 5]);
    let refused = table.read_at("@v9").unwrap_err();
    assert!(refused.contains(&table.path()), "{refused}");
    // What follows is no version: such a path is read as it stands.
    let plain = super::super::fetched(vec![format!("{}@vx", table.path())], true).unwrap();
    assert_eq!(plain.paths, [format!("{}@vx", table.path())]);

    let twice = vec![table.path(), format!("{}@v2", table.path())];
    let fetched = super::super::fetched(twice, true).unwrap();
    assert_eq!(fetched.paths[0], fetched.paths[1]);
    let folder = PathBuf::from(&fetched.paths[0]);
    assert_eq!(origin_of(&folder), format!("{}@v2", table.path()));
    let mut names: Vec<String> = walkdir::WalkDir::new(&folder)
        .into_iter()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().is_file())
        .map(|entry| {
            entry
                .path()
                .strip_prefix(&folder)
                .unwrap()
                .display()
                .to_string()
        })
        .collect();
    names.sort();
    // No name that discovery passes over, or takes values from.
    assert_eq!(
        names,
        ["p3.parquet", "text:a%3Ab/p0.parquet", "~_text/p2.parquet"]
    );
    drop(fetched);
    assert!(!folder.exists());
}

/// Rows 3, 4, 7, 11, 18 and 29: 44 bytes in the base 85 of logs.
const INLINE: &str = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L";

#[test]
fn deleted_rows_are_left_out() {
    let table = Written::new();
    let write = |vector: Value| {
        let columns = vec![("id", numbers(0..600))];
        let mut add = table.add("p0.parquet", columns, json!({}));
        add["add"]["deletionVector"] = vector;
        table.commit(
            0,
            &[
                protocol_with(&["deletionVectors"]),
                metadata(
                    &[field("id", "long")],
                    &[],
                    &json!({"delta.enableDeletionVectors": "true"}),
                ),
                add,
            ],
        );
        table.read()
    };
    let inline = |cardinality: u64| json!({"storageType": "i", "pathOrInlineDv": INLINE, "sizeInBytes": 44, "cardinality": cardinality});
    let left = write(inline(6)).unwrap();
    let deleted = [3, 4, 7, 11, 18, 29];
    let expected: Vec<i64> = (0..600).filter(|id| !deleted.contains(id)).collect();
    assert_eq!(ids(&left), expected);
    let refused = write(inline(7)).unwrap_err();
    assert!(
        refused.contains("7 of its rows are to be deleted"),
        "{refused}"
    );

    // In a file beside: a version, then size, vector and checksum. The vector is one bitmap of one array: rows 1, 300 and
    // 599, which are of three batches.
    let mut vector = Vec::new();
    vector.extend(1_681_511_377_u32.to_le_bytes());
    vector.extend(1_u64.to_le_bytes());
    for number in [0_u32, 12_346, 1] {
        vector.extend(number.to_le_bytes());
    }
    vector.extend([0_u16, 2].map(u16::to_le_bytes).concat());
    vector.extend(16_u32.to_le_bytes());
    vector.extend([1_u16, 300, 599].map(u16::to_le_bytes).concat());
    let size = u32::try_from(vector.len()).unwrap();
    let mut file = vec![1_u8];
    file.extend(size.to_be_bytes());
    file.extend(&vector);
    file.extend(crc32fast::hash(&vector).to_be_bytes());
    let name = "deletion_vector_00000000-0000-0000-0000-000000000000.bin";
    std::fs::write(table.at(name), &file).unwrap();
    let beside = json!({"storageType": "u", "pathOrInlineDv": "00000000000000000000", "offset": 1, "sizeInBytes": size,
        "cardinality": 3});
    let left = write(beside.clone()).unwrap();
    let expected: Vec<i64> = (0..600).filter(|id| ![1, 300, 599].contains(id)).collect();
    assert_eq!(ids(&left), expected);
    file[30] ^= 1;
    std::fs::write(table.at(name), &file).unwrap();
    let refused = write(beside).unwrap_err();
    assert!(refused.contains("p0.parquet"), "{refused}");
}

#[test]
fn columns_have_the_names_of_the_schema_whatever_they_are_stored_as() {
    let table = Written::new();
    let mapped = |name: &str, kind: &str, id: u64, stored: &str| {
        json!({"name": name, "type": kind, "nullable": true, "metadata": {"delta.columnMapping.id": id,
            "delta.columnMapping.physicalName": stored}})
    };
    let columns = vec![("col-1", numbers([7])), ("text", texts(&["not this"]))];
    table.commit(
        0,
        &[
            json!({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}),
            metadata(
                &[
                    mapped("id", "long", 1, "col-1"),
                    mapped("text", "string", 2, "col-2"),
                    mapped("more", "string", 3, "text"),
                ],
                &["text"],
                &json!({"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "3"}),
            ),
            table.add("Xy/p0.parquet", columns, json!({"col-2": "of the partition"})),
        ],
    );
    assert_eq!(
        table.read().unwrap(),
        [(
            7,
            Some("of the partition".to_owned()),
            Some("not this".to_owned())
        )]
    );
}

/// Puts the first versions of a log into a checkpoint.
fn with_checkpoint(table: &Written, version: u64, actions: &[Value]) {
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

#[test]
fn checkpoints_stand_for_the_commits_before_them() {
    let table = grown();
    let actions_of = |version: u64| {
        let name = format!("_delta_log/{version:020}.json");
        let text = std::fs::read_to_string(table.at(&name)).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<Value>>()
    };
    let (first, second) = (actions_of(0), actions_of(1));
    // Protocol, schema, and the files that are left.
    let state = [&first[0], &first[1], &first[2], &second[1]].map(Value::clone);
    with_checkpoint(&table, 1, &state);
    assert_eq!(table.read().unwrap(), of_grown());
    let gone = table.read_at("@v0").unwrap_err();
    assert!(gone.contains("can't be read"), "{gone}");
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    let schema = metadata(&[field("id", "long")], &[], &json!({}));
    let table = Written::new();
    table.commit(0, &[protocol_with(&["nightFeature"]), schema.clone()]);
    let refused = table.read().unwrap_err();
    assert!(
        refused.contains("nightFeature") && refused.contains("write its rows as Parquet"),
        "{refused}"
    );
    for elsewhere in [
        "s3://other/p0.parquet",
        "file:///etc/passwd",
        "/etc/passwd",
        "../p0.parquet",
        "%2E%2E/p0.parquet",
    ] {
        let table = Written::new();
        let mut add = table.add("p0.parquet", vec![("id", numbers([1]))], json!({}));
        add["add"]["path"] = json!(elsewhere);
        table.commit(0, &[protocol(), schema.clone(), add]);
        let refused = table.read().unwrap_err();
        assert!(refused.contains("is not in its folder"), "{refused}");
    }
}

#[test]
fn damaged_tables_are_refused() {
    type Damage = fn(&Written);
    let damage: [(&str, Damage); 7] = [
        (
            "no commit",
            (|table| {
                std::fs::remove_dir_all(table.at("_delta_log")).unwrap();
                std::fs::create_dir(table.at("_delta_log")).unwrap();
            }) as fn(&Written),
        ),
        ("a commit is missing", |table| {
            std::fs::remove_file(table.at("_delta_log/00000000000000000001.json")).unwrap();
        }),
        ("a commit is cut off", |table| {
            let name = table.at("_delta_log/00000000000000000001.json");
            let text = std::fs::read_to_string(&name).unwrap();
            std::fs::write(name, &text[..text.len() - 20]).unwrap();
        }),
        ("a commit is no text", |table| {
            let name = table.at("_delta_log/00000000000000000002.json");
            std::fs::write(name, [0xff, 0xfe, 0, 1]).unwrap();
        }),
        ("a file is missing", |table| {
            std::fs::remove_file(table.at("p3.parquet")).unwrap();
        }),
        ("a file is cut off", |table| {
            let bytes = std::fs::read(table.at("p3.parquet")).unwrap();
            std::fs::write(table.at("p3.parquet"), &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("a file is of another schema", |table| {
            let columns = vec![("id", texts(&["six"])), ("more", numbers([1]))];
            table.add("p3.parquet", columns, json!({"text": "d"}));
        }),
    ];
    for (what, damage) in damage {
        let table = grown();
        damage(&table);
        let refused = table.read().expect_err(what);
        assert!(refused.contains(&table.path()), "{what}: {refused}");
        assert!(refused.contains("check the table"), "{what}: {refused}");
        assert!(!refused.contains("x-s3"), "{what}: {refused}");
    }
}

#[test]
fn a_table_without_rows_is_a_file_without_rows() {
    let table = Written::new();
    let schema = metadata(&[field("id", "long")], &[], &json!({}));
    table.commit(0, &[protocol(), schema]);
    let fetched = super::super::fetched(vec![table.path()], true).unwrap();
    let file = File::open(Path::new(&fetched.paths[0]).join("no-rows.parquet")).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
    assert_eq!(reader.schema().field(0).name(), "id");
    assert_eq!(rows_of(Path::new(&fetched.paths[0])), []);
}

#[test]
fn a_table_of_a_bucket_is_read_from_there() {
    let table = grown();
    let bucket = InMemory::new();
    let runtime = super::super::runtime().unwrap();
    for entry in walkdir::WalkDir::new(table.0.path()) {
        let entry = entry.unwrap();
        if entry.file_type().is_file() {
            let name = entry.path().strip_prefix(table.0.path()).unwrap();
            let key = object_store::path::Path::parse(format!("w/t/{}", name.display())).unwrap();
            let bytes = std::fs::read(entry.path()).unwrap();
            runtime.block_on(bucket.put(&key, bytes.into())).unwrap();
        }
    }
    let connection = Connection::of_test(Arc::new(bucket));
    let scratch = Scratch::make().unwrap();
    for (number, (address, rows, named)) in [
        ("s3://b/w/t", 5, "s3://b/w/t@v2"),
        ("s3://b/w/t/", 5, "s3://b/w/t@v2"),
        ("s3://b/w/t@v0", 3, "s3://b/w/t@v0"),
    ]
    .into_iter()
    .enumerate()
    {
        let Named::Remote(at) = parse(address).unwrap() else {
            panic!("{address}")
        };
        let found = runtime.block_on(Table::remote(&connection, &at)).unwrap();
        let (table, from) = found.unwrap();
        assert_eq!(from.shown(), "s3://b/w/t");
        let folder = table.write(&scratch, number, &runtime).unwrap();
        assert_eq!(rows_of(&folder).len(), rows, "{address}");
        assert_eq!(origin_of(&folder), named);
    }
    for address in ["s3://b/w", "s3://b/w/t/p3.parquet", "s3://b/w/*"] {
        let Named::Remote(at) = parse(address).unwrap() else {
            panic!("{address}")
        };
        let found = runtime.block_on(Table::remote(&connection, &at)).unwrap();
        assert!(found.is_none(), "{address}");
    }
}
