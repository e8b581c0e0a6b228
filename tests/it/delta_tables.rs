//! Delta tables through the program: what is scored and imported of them is what plain files of the same rows give.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field};
use serde_json::{Value, json};

use crate::support::{nightmill, program, read_parquet, root, traces, write_parquet};

/// The deletion vector of these rows, as logs carry it.
const VECTOR: &str = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L";
const DELETED: [usize; 6] = [3, 4, 7, 11, 18, 29];

fn rows(name: &str, count: usize) -> RecordBatch {
    let texts: Vec<[String; 4]> = (0..count)
        .map(|row| {
            [
                format!("{name}-{row:02}"),
                format!("talk-{}", row % 7),
                format!("Where is order {row}?"),
                format!("Order {} of {name} arrives on day {}.", row, row % 3),
            ]
        })
        .collect();
    let rows: Vec<_> = texts
        .iter()
        .zip(1_700_000_000_i64..)
        .map(|([id, session, input, output], at)| {
            (
                Some(id.as_str()),
                Some(session.as_str()),
                Some(at),
                Some(input.as_str()),
                Some(output.as_str()),
            )
        })
        .collect();
    traces(&rows)
}

/// The schema of a table in the form of Delta's log.
fn type_of(kind: &DataType) -> Value {
    match kind {
        DataType::Utf8 => json!("string"),
        DataType::Int64 => json!("long"),
        DataType::Float64 => json!("double"),
        DataType::Boolean => json!("boolean"),
        DataType::Timestamp(..) => json!("timestamp"),
        DataType::List(item) => {
            json!({"type": "array", "elementType": type_of(item.data_type()), "containsNull": true})
        }
        DataType::Struct(fields) => {
            let fields: Vec<Value> = fields.iter().map(|field| field_of(field)).collect();
            json!({"type": "struct", "fields": fields})
        }
        other => panic!("{other}"),
    }
}

fn field_of(field: &Field) -> Value {
    json!({"name": field.name(), "type": type_of(field.data_type()), "nullable": true, "metadata": {}})
}

/// Writes a file of a table, and gives the action that adds it.
fn add(table: &Path, name: &str, batch: &RecordBatch, partition: Value) -> Value {
    std::fs::create_dir_all(table.join("_delta_log")).unwrap();
    let path = table.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_parquet(&path, std::slice::from_ref(batch), 16);
    let stats = json!({ "numRecords": batch.num_rows() }).to_string();
    json!({"add": {"path": name, "partitionValues": partition, "size": path.metadata().unwrap().len(),
        "modificationTime": 0, "dataChange": true, "stats": stats}})
}

fn begin(fields: Vec<Value>, partition: &[&str]) -> [Value; 2] {
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    let features = ["deletionVectors", "timestampNtz"];
    [
        json!({"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features,
            "writerFeatures": features}}),
        json!({"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
            "partitionColumns": partition, "configuration": {"delta.enableDeletionVectors": "true"}}}),
    ]
}

fn commit(table: &Path, version: u64, actions: &[Value]) {
    let lines: Vec<String> = actions.iter().map(Value::to_string).collect();
    let name = format!("_delta_log/{version:020}.json");
    std::fs::write(table.join(name), lines.join("\n")).unwrap();
}

/// The bytes of a run's tables.
fn tables(run: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = walkdir::WalkDir::new(run).into_iter().map(Result::unwrap);
    let files = files.filter(|entry| entry.path().extension().is_some_and(|e| e == "parquet"));
    let named = files.map(|entry| {
        let name = entry.path().strip_prefix(run).unwrap().to_owned();
        (name, std::fs::read(entry.path()).unwrap())
    });
    named.collect()
}

fn with_environment(batch: &RecordBatch, value: Option<&str>) -> RecordBatch {
    let values: StringArray = (0..batch.num_rows()).map(|_| value).collect();
    let columns = batch.columns().iter().cloned();
    let schema = batch.schema();
    let named = schema.fields().iter().map(|field| field.name().as_str());
    let all = named.zip(columns);
    let all = all.chain([("environment", Arc::new(values) as ArrayRef)]);
    RecordBatch::try_from_iter_with_nullable(all.map(|(name, column)| (name, column, true)))
        .unwrap()
}

#[test]
fn a_table_is_scored_as_plain_files_of_its_live_rows() {
    let home = tempfile::tempdir().unwrap();
    let table = home.path().join("warehouse/traces");
    let (first, gone, last) = (rows("a", 40), rows("b", 9), rows("c", 5));
    let mut fields: Vec<Value> = first
        .schema()
        .fields()
        .iter()
        .map(|f| field_of(f))
        .collect();
    fields.push(json!({"name": "environment", "type": "string", "nullable": true, "metadata": {}}));
    let [protocol, metadata] = begin(fields, &["environment"]);
    let mut kept = add(
        &table,
        "environment=prod/p0.parquet",
        &first,
        json!({"environment": "prod"}),
    );
    let wrong = add(&table, "p1.parquet", &gone, json!({"environment": null}));
    commit(&table, 0, &[protocol, metadata, kept.clone(), wrong]);
    let replaced = json!({"remove": {"path": "environment=prod/p0.parquet", "deletionTimestamp": 1, "dataChange": true}});
    let removed =
        json!({"remove": {"path": "p1.parquet", "deletionTimestamp": 1, "dataChange": true}});
    kept["add"]["deletionVector"] =
        json!({"storageType": "i", "pathOrInlineDv": VECTOR, "sizeInBytes": 44, "cardinality": 6});
    let added = add(&table, "p2.parquet", &last, json!({"environment": null}));
    commit(&table, 1, &[replaced, kept, removed, added]);

    let plain = home.path().join("plain");
    std::fs::create_dir(&plain).unwrap();
    let live: BooleanArray = (0..40).map(|row| Some(!DELETED.contains(&row))).collect();
    let live = filter_record_batch(&first, &live).unwrap();
    for (name, batch) in [
        ("p0.parquet", with_environment(&live, Some("prod"))),
        ("p2.parquet", with_environment(&last, None)),
    ] {
        write_parquet(&plain.join(name), &[batch], 1000);
    }
    let scored = |path: &str, name: &str| {
        let out = home.path().join(name);
        let mut command = program();
        let command = command
            .env("TMPDIR", home.path())
            .args(["score", path, "--out"]);
        let ran = command.arg(&out).output().unwrap();
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        out
    };
    let of_plain = scored(&plain.display().to_string(), "of-plain");
    let of_table = scored(&table.display().to_string(), "of-table");
    let expected = tables(&of_plain);
    assert!(expected.len() > 1);
    assert_eq!(tables(&of_table), expected);
    let counts = crate::support::summary(&of_table);
    assert_eq!(counts["rows_read"], 39, "{counts}");

    // The manifest names table and version, and that name is read again.
    let manifest = std::fs::read(of_table.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let named = format!("{}@v1", table.display());
    assert_eq!(manifest["request"]["paths"], json!([named]));
    let input = manifest["inputs"][0]["path"].as_str().unwrap();
    assert_eq!(input, format!("{named}/environment:prod/p0.parquet"));
    assert_eq!(tables(&scored(&named, "again")), expected);
    let before = scored(&format!("{}@v0", table.display()), "before");
    assert_eq!(crate::support::summary(&before)["rows_read"], 49);
    let query = format!(
        "SELECT count(*) AS n, min(environment) AS e FROM '{}'",
        table.display()
    );
    let mut command = program();
    let command = command
        .env("TMPDIR", home.path())
        .args(["sql", &query, "--format", "json"]);
    let ran = command.output().unwrap();
    let counted: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(counted, json!({"n": 39, "e": "prod"}));
    let left = std::fs::read_dir(home.path()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let left: Vec<String> = left
        .filter(|name| name.starts_with("nightmill-r"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn rows_of_another_format_are_imported_from_a_table() {
    let home = tempfile::tempdir().unwrap();
    let sample = root().join("datasets/formats/langfuse.jsonl");
    let mut file = BufReader::new(File::open(sample).unwrap());
    let (schema, _) =
        arrow::json::reader::infer_json_schema_from_seekable(&mut file, None).unwrap();
    let mut reader = arrow::json::ReaderBuilder::new(Arc::new(schema))
        .build(file)
        .unwrap();
    let batch = reader.next().unwrap().unwrap();
    let plain = home.path().join("plain/part-0.parquet");
    std::fs::create_dir(plain.parent().unwrap()).unwrap();
    write_parquet(&plain, std::slice::from_ref(&batch), 1000);

    let schema = batch.schema();
    let project = schema.index_of("project_id").unwrap();
    let stored: Vec<usize> = (0..batch.num_columns())
        .filter(|at| *at != project)
        .collect();
    let stored = batch.project(&stored).unwrap();
    let table = home.path().join("observations");
    let fields = schema
        .fields()
        .iter()
        .map(|field| field_of(field))
        .collect();
    let [protocol, metadata] = begin(fields, &["project_id"]);
    let half = stored.num_rows() / 2;
    let parts = [
        stored.slice(0, half),
        stored.slice(half, stored.num_rows() - half),
    ];
    let of = json!({"project_id": "shop"});
    let first = add(&table, "part-1.parquet", &parts[1], of.clone());
    let twice = add(&table, "old.parquet", &rows("x", 3), of.clone());
    let second = add(&table, "part-0.parquet", &parts[0], of);
    let removed =
        json!({"remove": {"path": "old.parquet", "deletionTimestamp": 1, "dataChange": true}});
    commit(&table, 0, &[protocol, metadata, first, twice]);
    commit(&table, 1, &[removed, second]);

    let imported = |path: &Path, name: &str| {
        let out = home.path().join(name);
        let ran = nightmill([
            "import",
            &path.display().to_string(),
            "--out",
            &out.display().to_string(),
        ]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("5 traces"), "{}", ran.stdout);
        read_parquet(&out)
    };
    let of_table = imported(&table, "of-table.parquet");
    assert_eq!(of_table, imported(&plain, "of-plain.parquet"));
    let explained = nightmill(["import", &table.display().to_string(), "--explain"]);
    assert!(
        explained.stdout.contains("observations@v1/part-0.parquet"),
        "{}",
        explained.stdout
    );
    assert!(
        explained.stdout.contains("langfuse-observations"),
        "{}",
        explained.stdout
    );
}

#[test]
fn tables_that_are_not_named_themselves_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let table = home.path().join("w/t");
    let [protocol, metadata] = begin(vec![], &[]);
    let added = add(&table, "p0.parquet", &rows("a", 3), json!({}));
    commit(&table, 0, &[protocol, metadata, added]);
    let monitors = home.path().join("monitors").display().to_string();
    let table = table.display().to_string();
    let watched = nightmill([
        "monitor",
        "add",
        "m",
        &table,
        "--target",
        "trace",
        "--metrics",
        "empty_output",
        "--cadence",
        "daily",
        "--out",
        &monitors,
        "--monitors",
        &monitors,
    ]);
    assert_eq!(watched.code, Some(2), "{watched:?}");
    assert!(
        watched
            .stderr
            .contains("what `nightmill import` makes of it"),
        "{}",
        watched.stderr
    );
    let iceberg = home.path().join("i");
    std::fs::create_dir_all(iceberg.join("data")).unwrap();
    std::fs::create_dir_all(iceberg.join("metadata")).unwrap();
    std::fs::write(iceberg.join("metadata/v1.metadata.json"), "{}").unwrap();
    write_parquet(&iceberg.join("data/p0.parquet"), &[rows("a", 3)], 1000);
    for (path, what, advice) in [
        ("w", "Delta table", "name the folder of the table itself"),
        (
            "w/t/*.parquet",
            "Delta table",
            "name the folder of the table itself",
        ),
        ("i", "Iceberg table", "write its rows as Parquet"),
        ("i/data", "Iceberg table", "write its rows as Parquet"),
    ] {
        let path = home.path().join(path).display().to_string();
        let out = home.path().join("run").display().to_string();
        for args in [
            &["score", &path, "--out", &out][..],
            &["import", &path, "--explain"],
        ] {
            let ran = nightmill(args);
            assert_eq!(ran.code, Some(2), "{ran:?}");
            assert!(
                ran.stderr.contains(what) && ran.stderr.contains(advice),
                "{}",
                ran.stderr
            );
        }
    }
}
