//! Rows are found again without reading what is before them.

use std::path::Path;

use super::*;

fn file(path: &Path) -> RowFile {
    RowFile::of_table(SourceFile {
        path: path.to_owned(),
        format: SourceFormat::JsonLines,
        partition: Vec::new(),
        origins: Vec::new(),
        rows: None,
    })
    .unwrap()
}

fn read(file: &RowFile, rows: Option<&[u64]>) -> Vec<(u64, Option<Json>)> {
    let reading = Reading {
        names: &["n"],
        rows,
        limits: BatchLimits::default(),
    };
    let mut found = Vec::new();
    let each = &mut |number, row: Found<'_>| {
        let value = row.ok().and_then(|row| row.value("n")?.ok());
        found.push((number, value));
        Ok(true)
    };
    file.read_unit(0, reading, each).unwrap();
    found
}

/// Twenty thousand lines of about 200 bytes, of which one in a hundred is blank and one in a hundred is no JSON.
fn lines(path: &Path) -> u64 {
    let lines = (0..20_000).map(|n| match n % 100 {
        50 => "\n".to_owned(),
        51 => "{oops\n".to_owned(),
        _ => format!("{{\"n\": {n}, \"text\": \"{}\"}}\n", "x".repeat(170)),
    });
    let text: String = lines.collect();
    std::fs::write(path, &text).unwrap();
    text.len() as u64
}

#[test]
fn single_rows_cost_what_is_around_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let size = lines(&path);
    let file = file(&path);
    assert_eq!(read(&file, None).len(), 20_000 - 200);
    assert_eq!(file.bytes_passed(), size);
    assert_eq!(file.rows_decoded(), 20_000 - 200);
    // A hundred groups of two rows, as sessions that lie apart are read. A reader that began at the first line each time
    // would pass half of the file for each of them.
    for group in 0..100u64 {
        let rows = [group * 100 + 7, 19_999 - group];
        let found = read(&file, Some(&rows));
        let expected = rows.map(|row| match row % 100 {
            51 => (row, None),
            _ => (row, Some(Json::Integer(row.to_string()))),
        });
        let expected = expected.into_iter().filter(|(row, _)| row % 100 != 50);
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
    let around = 100 * 2 * (16 << 10);
    let passed = file.bytes_passed() - size;
    assert!(passed < around, "{passed} bytes passed");
    assert!(file.rows_decoded() <= 20_000, "{}", file.rows_decoded());
}

#[test]
fn rows_are_found_without_an_earlier_reading_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    lines(&path);
    let file = file(&path);
    let value = |row: u64| (row, Some(Json::Integer(row.to_string())));
    assert_eq!(read(&file, Some(&[19_998])), [value(19_998)]);
    let before = file.bytes_passed();
    assert_eq!(
        read(&file, Some(&[19_997, 19_998])),
        [19_997, 19_998].map(value)
    );
    assert!(file.bytes_passed() - before < 17 << 10);
    assert_eq!(read(&file, Some(&[3, 50, 20_000, 30_000])), [value(3)]);
}

#[test]
fn runs_are_places_that_follow_each_other() {
    let mut runs = Vec::new();
    for (file, row) in [(0, 0), (0, 1), (0, 3), (1, 4), (1, 5)] {
        push_row(&mut runs, RowAt::new(file, row));
    }
    let lengths: Vec<u64> = runs.iter().map(RowRun::rows).collect();
    assert_eq!(lengths, [2, 1, 2]);
    let places: Vec<RowAt> = runs.into_iter().flat_map(RowRun::places).collect();
    assert_eq!(rows_of_file(&places, 0), [0, 1, 3]);
    assert_eq!(rows_of_file(&places, 1), [4, 5]);
    assert_eq!(rows_of_file(&places, 2), [0u64; 0]);
}
