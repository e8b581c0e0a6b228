//! Bad input: a clear error or a counted quarantine, never a panic, never silent loss.

use std::path::Path;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::Int64Type;

use crate::support::{Ran, entries, nightmill, read_parquet, summary, traces, write_parquet};

/// Scores `input` in a folder of its own; checks that a failure leaves nothing behind and that rows
/// add up otherwise.
#[track_caller]
fn score(input: &Path, flags: &[&str]) -> (Ran, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut args = vec![
        "score".to_owned(),
        input.display().to_string(),
        "--out".into(),
        out.display().to_string(),
    ];
    args.extend(flags.iter().map(|f| (*f).to_owned()));
    let ran = nightmill(&args);
    if ran.code == Some(2) {
        assert!(
            entries(folder.path()).is_empty(),
            "a failed run left {:?}: {ran:?}",
            entries(folder.path())
        );
        assert!(ran.stderr.starts_with("error: "), "{ran:?}");
    } else {
        let s = summary(&out);
        let n = |key: &str| s[key].as_u64().unwrap();
        assert_eq!(
            n("rows_read"),
            n("traces") + n("merged_duplicates") + n("quarantined"),
            "{s}"
        );
        assert_eq!(
            read_parquet(&out.join("traces")).num_rows() as u64,
            n("traces")
        );
        let quarantined = read_parquet(&out.join("quarantine"));
        let rows = quarantined
            .column_by_name("rows")
            .unwrap()
            .as_primitive::<Int64Type>();
        assert_eq!(rows.values().iter().sum::<i64>() as u64, n("quarantined"));
        assert_eq!(
            ran.code == Some(3),
            n("quarantined") + n("unreadable_files") > 0,
            "{ran:?}"
        );
    }
    (ran, folder)
}

fn small() -> RecordBatch {
    traces(&[
        (
            Some("a"),
            Some("s"),
            Some(1),
            Some("hello there"),
            Some("hello to you"),
        ),
        (
            Some("b"),
            Some("s"),
            Some(2),
            Some("and again"),
            Some("hello to you"),
        ),
        (Some("c"), Some("t"), Some(3), Some("what now"), None),
    ])
}

#[test]
fn rows_without_id_or_time_are_quarantined_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.parquet");
    let batch = traces(&[
        (Some("a"), Some("s"), Some(1), Some("one"), Some("two")),
        (None, Some("s"), Some(2), Some("one"), Some("two")),
        (Some(""), Some("s"), Some(2), Some("one"), Some("two")),
        (Some("b"), Some(""), Some(3), Some("one"), Some("two")),
        (Some("c"), Some("s"), None, Some("one"), Some("two")),
    ]);
    write_parquet(&file, &[batch], 2);
    let (ran, out) = score(&file, &[]);
    assert_eq!(ran.code, Some(3));
    let s = summary(&out.path().join("run"));
    assert_eq!(
        (
            s["traces"].as_u64(),
            s["quarantined"].as_u64(),
            s["empty_session_ids"].as_u64()
        ),
        (Some(2), Some(3), Some(1))
    );
    assert!(
        ran.stdout.contains("missing_trace_id")
            && ran.stdout.contains("bad_started_at")
            && ran.stdout.contains("row 4"),
        "{}",
        ran.stdout
    );
}

#[test]
fn cells_that_are_not_utf8_are_quarantined_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.parquet");
    write_parquet(&file, &[small()], 100);
    // Uncompressed pages hold the text as it is: break one character of one cell.
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(9).position(|w| w == b"and again").unwrap();
    bytes[at] = 0xff;
    std::fs::write(&file, bytes).unwrap();
    let (ran, out) = score(&file, &[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stdout.contains("invalid_utf8") && ran.stdout.contains("row 1, column input"),
        "{}",
        ran.stdout
    );
    assert_eq!(summary(&out.path().join("run"))["traces"], 2);
}

#[test]
fn duplicates_are_merged_by_the_rule() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (
        folder.path().join("1.parquet"),
        folder.path().join("2.parquet"),
    );
    write_parquet(
        &first,
        &[traces(&[
            (
                Some("a"),
                Some("s"),
                Some(5),
                Some("the question"),
                Some("first answer"),
            ),
            (
                Some("b"),
                Some("s"),
                Some(6),
                Some("x y z"),
                Some("other words here"),
            ),
        ])],
        10,
    );
    // Later: time replaced, session and input kept (null), output replaced.
    write_parquet(
        &second,
        &[traces(&[(
            Some("a"),
            None,
            Some(9),
            None,
            Some("the question"),
        )])],
        10,
    );
    let (ran, out) = score(folder.path(), &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let run = out.path().join("run");
    assert_eq!(summary(&run)["merged_duplicates"], 1);
    let table = read_parquet(&run.join("traces"));
    let ids = table.column_by_name("trace_id").unwrap().as_string::<i32>();
    assert_eq!(
        ids.iter().flatten().collect::<Vec<_>>(),
        ["b", "a"],
        "the later time counts"
    );
    let coherence = table
        .column_by_name("coherence")
        .unwrap()
        .as_primitive::<arrow::datatypes::Float64Type>();
    assert_eq!(
        coherence.value(1),
        1.0,
        "the later output equals the earlier input"
    );
}

#[test]
fn wrong_files_and_columns_get_an_error_that_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("empty.parquet"), "").unwrap();
    std::fs::write(at("magic.parquet"), b"NOPE this is not parquet at all NOPE").unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    let renamed = RecordBatch::try_from_iter_with_nullable(
        small()
            .schema()
            .fields()
            .iter()
            .zip(small().columns())
            .map(|(f, c)| {
                (
                    if f.name() == "output" {
                        "outptu".to_owned()
                    } else {
                        f.name().clone()
                    },
                    c.clone(),
                    true,
                )
            }),
    )
    .unwrap();
    write_parquet(&at("renamed.parquet"), &[renamed], 10);
    let numbers: ArrayRef =
        std::sync::Arc::new(arrow::array::Float64Array::from(vec![1.0, 2.0, 3.0]));
    let mut columns: Vec<(String, ArrayRef)> = small()
        .schema()
        .fields()
        .iter()
        .map(|f| f.name().clone())
        .zip(small().columns().iter().cloned())
        .collect();
    columns[2].1 = numbers;
    write_parquet(
        &at("types.parquet"),
        &[RecordBatch::try_from_iter(columns).unwrap()],
        10,
    );
    std::fs::write(at("text.txt"), "hello").unwrap();
    write_parquet(&at("rows.parquet"), &[small().slice(0, 0)], 10);
    for (file, words) in [
        ("empty.parquet", vec!["empty.parquet"]),
        ("magic.parquet", vec!["magic.parquet", "Parquet"]),
        ("folder", vec!["folder", ".parquet"]),
        ("missing", vec!["missing"]),
        ("none-*.parquet", vec!["none-*.parquet"]),
        (
            "renamed.parquet",
            vec!["renamed.parquet", "`output`", "`outptu`", "--map"],
        ),
        (
            "types.parquet",
            vec!["types.parquet", "`started_at`", "Float64"],
        ),
        ("text.txt", vec!["text.txt", "--format"]),
        ("rows.parquet", vec!["no rows"]),
    ] {
        let (ran, _out) = score(&at(file), &[]);
        assert_eq!(ran.code, Some(2), "{file}: {ran:?}");
        for word in words {
            assert!(
                ran.stderr.contains(word),
                "{file}: no {word} in {}",
                ran.stderr
            );
        }
    }
    let (ran, _out) = score(&at("magic.parquet"), &["--on-bad-file", "skip"]);
    assert!(ran.code == Some(3) || ran.code == Some(2), "{ran:?}");
}

#[test]
fn broken_lines_of_json_lines_are_quarantined() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.jsonl");
    let line = |id: &str, output: &str| {
        format!(
            r#"{{"trace_id":"{id}","session_id":"s","started_at":"2026-01-01T00:00:00Z","input":"hi","output":{output}}}"#
        )
    };
    let lines = [
        line("a", r#"{"messages":[{"role":"assistant","content":"ü"}]}"#),
        "{broken".into(),
        "[1]".into(),
        String::new(),
        line("b", "\"x\"").replace("2026-01-01T", "yesterday "),
    ];
    std::fs::write(&file, lines.join("\r\n")).unwrap();
    let (ran, out) = score(&file, &[]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let s = summary(&out.path().join("run"));
    assert_eq!(
        (s["rows_read"].as_u64(), s["traces"].as_u64()),
        (Some(4), Some(1))
    );

    // Ids that are no ids are set aside, keys may be missing in a line, a byte-order mark is skipped.
    let odd = line("c", "\"x\"").replace("\"s\"", "1.5");
    let short = r#"{"trace_id":"d","started_at":"2026-01-01T00:00:00Z"}"#.to_owned();
    std::fs::write(
        &file,
        format!("\u{feff}{short}\n{odd}\n{}\n", line("e", "\"y\"")),
    )
    .unwrap();
    let (ran, out) = score(&file, &[]);
    assert!(
        ran.code == Some(3) && ran.stdout.contains("invalid_value"),
        "{ran:?}"
    );
    assert_eq!(summary(&out.path().join("run"))["traces"], 2);
}

#[test]
fn nan_signals_count_as_missing_and_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (file, given) = (
        folder.path().join("x.parquet"),
        folder.path().join("g.parquet"),
    );
    write_parquet(&file, &[small()], 10);
    let batch = RecordBatch::try_from_iter([
        (
            "trace_id",
            std::sync::Arc::new(arrow::array::StringArray::from(vec!["a", "b", "zzz"])) as ArrayRef,
        ),
        (
            "confidence",
            std::sync::Arc::new(arrow::array::Float64Array::from(vec![f64::NAN, 0.5, 0.1]))
                as ArrayRef,
        ),
    ])
    .unwrap();
    write_parquet(&given, &[batch], 10);
    let (ran, out) = score(&file, &["--signals", &given.display().to_string()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let s = summary(&out.path().join("run"));
    assert_eq!(
        (
            s["non_finite_signals"].as_u64(),
            s["unmatched_signals"].as_u64()
        ),
        (Some(1), Some(1))
    );
}

/// Every prefix and many flipped bytes of a small file, through the reader itself: an error or rows,
/// never a panic.
#[test]
fn no_prefix_and_no_flipped_byte_of_a_file_is_fatal() {
    use nightmill::trace::{
        BatchLimits, ColumnMap, OnBadFile, Quarantine, ReadOptions, TraceColumns, TraceSource,
        discover,
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.parquet");
    write_parquet(&file, &[small()], 2);
    let whole = std::fs::read(&file).unwrap();
    // The decoder's own panics are caught by the reader; keep their messages out of the test's output.
    std::panic::set_hook(Box::new(|_| {}));
    let read = |bytes: &[u8], on_bad_file| {
        std::fs::write(&file, bytes).unwrap();
        let files = discover(&[file.display().to_string()], None).unwrap();
        let quarantine = std::sync::Arc::new(Quarantine::default());
        let options = ReadOptions {
            columns: TraceColumns {
                labels: true,
                input: true,
                output: true,
                compared: false,
                spans: false,
                spans_required: false,
                spans_strict: false,
                output_digest: false,
                session_required: true,
                signals: Vec::new(),
            },
            map: ColumnMap::default(),
            text_mode: Default::default(),
            on_bad_file,
            limits: BatchLimits::default(),
        };
        let source = TraceSource::open(files, options, quarantine.clone()).ok()?;
        let mut rows = 0;
        source
            .read_shared(|batch| {
                rows += batch.num_rows() as u64;
                true
            })
            .ok()?;
        Some((source.rows_read(), rows, quarantine.rows()))
    };
    let mut survived = 0;
    for length in 0..whole.len() {
        assert_eq!(
            read(&whole[..length], OnBadFile::Fail),
            None,
            "a prefix of {length} bytes was read"
        );
    }
    for at in 0..whole.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            if let Some((read, kept, quarantined)) = read(&bytes, OnBadFile::Skip) {
                assert_eq!(
                    read,
                    kept + quarantined,
                    "byte {at} flipped by {flip:#x}: rows are lost"
                );
                survived += 1;
            }
        }
    }
    let _ = std::panic::take_hook();
    assert!(
        survived > 0,
        "no flipped file could be read: the test tests nothing"
    );
    assert_eq!(read(&whole, OnBadFile::Fail), Some((3, 3, 0)));
}

#[test]
fn escapes_that_would_be_read_as_other_characters_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("far.jsonl");
    let line = r#"{"trace_id": "t1", "input": "\ud842\udfb7", "output": "𠮷"}"#;
    std::fs::write(&path, line).unwrap();
    let path = path.display().to_string();
    let out = folder.path().join("out.parquet").display().to_string();
    let query = format!("SELECT input = output AS same FROM '{path}'");
    for args in [
        &["sql", &query][..],
        &["embed", &path, "--columns", "input", "--out", &out],
    ] {
        let ran = crate::support::nightmill(args);
        assert_eq!(ran.code, Some(2), "{}", ran.stdout);
        assert!(ran.stderr.contains("beyond U+1FFFF"), "{}", ran.stderr);
    }
}
