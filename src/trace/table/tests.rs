//! Tests of tables, through files.

use super::super::discover::SourceFormat;
use super::super::push_row;
use super::*;

const COLUMNS: TableColumns<'static> = TableColumns {
    table: "notes",
    names: &["id", "text", "cost", "list"],
    required: &["id"],
    structured: &["list"],
};

fn source(
    folder: &Path,
    lines: &str,
) -> Result<(TableSource<'static>, Arc<Quarantine>), TraceError> {
    let path = folder.join("notes.jsonl");
    std::fs::write(&path, lines).unwrap();
    let file = SourceFile {
        path,
        format: SourceFormat::JsonLines,
        partition: vec![("text".into(), "of the folder".into())],
        origins: Vec::new(),
        rows: None,
    };
    let quarantine = Arc::new(Quarantine::default());
    let opened = TableSource::open(
        vec![file],
        COLUMNS,
        OnBadFile::Fail,
        Arc::clone(&quarantine),
    );
    opened.map(|source| (source, quarantine))
}

#[test]
fn rows_are_found_again_by_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "\u{feff}{\"id\": 0}\n\n{\"id\": 2}\n{\"id\": 3, \"text\": \"\u{e9}\"}\r\n{oops\n{\"id\": 5}";
    let (source, _) = source(folder.path(), lines).unwrap();
    let (mut runs, mut bad) = (Vec::new(), Vec::new());
    let rows = source.scan(|row| match row.cells {
        Ok(_) => push_row(&mut runs, row.at),
        Err(problem) => bad.push((row.at.row(), problem.code)),
    });
    assert_eq!(rows.unwrap(), 5);
    assert_eq!(bad, [(4, Code::InvalidJson)]);
    let lengths: Vec<u64> = runs.iter().map(RowRun::rows).collect();
    assert_eq!(lengths, [1, 2, 1]);
    let read = |runs: Vec<RowRun>| {
        let mut ids = Vec::new();
        let each = |row: TableRow| {
            let cells = row.cells.unwrap();
            assert_eq!(cells["id"], row.at.row());
            ids.push(row.at.row());
            Ok(())
        };
        source.read(runs, each).unwrap();
        ids
    };
    assert_eq!(read(vec![runs[2], runs[0]]), [0, 5]);
    assert_eq!(read(runs), [0, 2, 3, 5]);
}

#[test]
fn cells_are_what_their_columns_mean() {
    let folder = tempfile::tempdir().unwrap();
    let lines = r#"{"id": 7.0, "cost": NaN, "list": "[1, 2]", "other": 1}
{"id": "a", "text": "own", "cost": 0.5, "list": "no list"}"#;
    let (source, _) = source(folder.path(), lines).unwrap();
    let mut rows = Vec::new();
    source
        .scan(|row| rows.push(Value::Object(row.cells.unwrap())))
        .unwrap();
    let expected = [
        serde_json::json!({"id": 7, "text": "of the folder", "list": [1, 2]}),
        serde_json::json!({"id": "a", "text": "own", "cost": 0.5, "list": "no list"}),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn a_missing_column_is_named_with_the_nearest_one() {
    let folder = tempfile::tempdir().unwrap();
    let problem = source(folder.path(), r#"{"ids": 1}"#)
        .unwrap_err()
        .to_string();
    assert!(
        problem.contains("`id`") && problem.contains("`ids`"),
        "{problem}"
    );
    // An empty file has no columns to miss.
    assert!(source(folder.path(), "").is_ok());
}

#[test]
fn null_members_of_structs_are_not_there() {
    let member = |value: Json| ("a".to_owned(), value);
    let item = Json::Object(vec![member(Json::Null), ("b".into(), Json::Bool(true))]);
    let list = without_nulls(Json::Array(vec![item, Json::Null]));
    let kept = Json::Object(vec![("b".into(), Json::Bool(true))]);
    assert_eq!(list, Json::Array(vec![kept, Json::Null]));
}
