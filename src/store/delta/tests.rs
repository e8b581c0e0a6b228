//! Tables whose logs are written by hand, as the protocol of Delta has them.

mod written;

use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use super::super::location::{Named, parse};
use super::*;
use crate::text::origin_of;
use written::*;

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
    for entry in walkdir::WalkDir::new(table.path()) {
        let entry = entry.unwrap();
        if entry.file_type().is_file() {
            let name = entry.path().strip_prefix(table.path()).unwrap();
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
