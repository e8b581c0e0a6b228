//! Helpers of the tests.

use std::path::{Path, PathBuf};

use nightmill::encoder::Precision;
use nightmill::encoder::cpu::Level;
use nightmill::model::{Model, ModelFolder};
use serde_json::Value;

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A golden file or folder: that of the folder in `NIGHTMILL_GOLDEN`, which has the layout of `tests/golden`, if it is there.
pub fn golden_path(name: &str) -> PathBuf {
    let other = std::env::var_os("NIGHTMILL_GOLDEN").map(|folder| PathBuf::from(folder).join(name));
    let other = other.filter(|path| path.exists());
    other.unwrap_or_else(|| root().join("tests/golden").join(name))
}

/// The records of a golden file. Of the project's own there are at least so many: none of them gets lost.
pub fn golden(file: &str, at_least: usize) -> Vec<Value> {
    let path = golden_path(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let at_least = match path.starts_with(root()) {
        true => at_least,
        false => 1,
    };
    let count = records.len();
    assert!(count >= at_least, "{} has {count} records", path.display());
    records
}

/// The models to check scores with, each with the tolerance of its weights: the shipped f16 model
/// always, the original f32 one where `NIGHTMILL_F32_MODEL` names its folder (CI does).
pub fn reference_models() -> Vec<(Model, f64)> {
    let level = Level::choose().unwrap();
    let shipped = ModelFolder::shipped().expect("tests run with the shipped model");
    // 0.0005 is the promise for the shipped weights; 1e-9 is equality of numbers with 4 decimals.
    let mut models = vec![(
        Model::load(&shipped, level, Precision::F32).unwrap(),
        0.0005,
    )];
    if let Some(folder) = std::env::var_os("NIGHTMILL_F32_MODEL") {
        let folder = ModelFolder::open(&PathBuf::from(folder)).unwrap();
        let model = Model::load(&folder, level, Precision::F32).unwrap();
        assert_eq!(model.stored_precision, "f32");
        models.push((model, 1e-9));
    }
    models
}

/// Vectors of texts, alone in their batches.
pub fn vector(model: &Model, text: &str) -> Vec<f32> {
    let mut batch = nightmill::encoder::Packed::default();
    batch.push(&model.tokenizer.ids(text).unwrap());
    let mut out = Vec::new();
    model.encoder.encode(&batch, &mut out).unwrap();
    out
}

/// Panics unless `got` equals `expected`, numbers within `tolerance`. Object keys that only `got`
/// has must be in `extra`.
#[track_caller]
pub fn assert_json_close(
    got: &Value,
    expected: &Value,
    tolerance: f64,
    extra: &[&str],
    what: &str,
) {
    match (got, expected) {
        (Value::Object(g), Value::Object(e)) => {
            for key in g.keys() {
                assert!(
                    e.contains_key(key) || extra.contains(&key.as_str()),
                    "{what}: unexpected `{key}`"
                );
            }
            for (key, value) in e {
                let got = g
                    .get(key)
                    .unwrap_or_else(|| panic!("{what}: `{key}` is missing in {got}"));
                assert_json_close(got, value, tolerance, extra, &format!("{what}.{key}"));
            }
        }
        (Value::Array(g), Value::Array(e)) => {
            assert_eq!(g.len(), e.len(), "{what}: {got} is not {expected}");
            for (i, (g, e)) in g.iter().zip(e).enumerate() {
                assert_json_close(g, e, tolerance, extra, &format!("{what}[{i}]"));
            }
        }
        (Value::Number(g), Value::Number(e)) => {
            let difference = (g.as_f64().unwrap() - e.as_f64().unwrap()).abs();
            assert!(difference <= tolerance, "{what}: {got} is not {expected}");
        }
        _ => assert_eq!(got, expected, "{what}"),
    }
}

/// What a run of the program came to.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The program, from the repository's root, without settings of the machine it is tested on, and without its cache:
/// a test must see what a run does, not what an earlier one did.
pub fn program() -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_nightmill"));
    command.current_dir(root());
    without_settings(&mut command);
    command.env("NIGHTMILL_NO_CACHE", "1");
    command
}

/// Takes every `NIGHTMILL_` variable out of a command's environment: those that tests read are no
/// settings of the program, and it refuses what it does not know.
pub fn without_settings(command: &mut std::process::Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("NIGHTMILL_") {
            command.env_remove(name);
        }
    }
}

/// Runs the program. A panic is never the right answer, whatever the test is about.
#[track_caller]
pub fn nightmill<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Ran {
    let output = program().args(args).output().unwrap();
    let ran = Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(
        ran.code.is_some() && ran.code != Some(101),
        "the program died: {ran:?}"
    );
    ran
}

/// Writes record batches as one Parquet file with row groups of `rows` rows.
pub fn write_parquet(path: &Path, batches: &[arrow::array::RecordBatch], rows: usize) {
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(rows))
        .build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer =
        parquet::arrow::ArrowWriter::try_new(file, batches[0].schema(), Some(properties)).unwrap();
    batches
        .iter()
        .for_each(|batch| writer.write(batch).unwrap());
    writer.close().unwrap();
}

/// All rows of a Parquet file or of a table of a run directory.
pub fn read_parquet(path: &Path) -> arrow::array::RecordBatch {
    let mut files: Vec<PathBuf> = match path.is_dir() {
        true => std::fs::read_dir(path)
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect(),
        false => vec![path.to_owned()],
    };
    files.sort();
    let mut batches = Vec::new();
    let mut schema = None;
    for file in files {
        let reader = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(
            std::fs::File::open(file).unwrap(),
        )
        .unwrap();
        schema = Some(reader.schema().clone());
        batches.extend(reader.build().unwrap().map(Result::unwrap));
    }
    arrow::compute::concat_batches(&schema.unwrap(), &batches).unwrap()
}

/// A batch of traces: (trace id, session id, seconds, input, output).
pub type TraceRow<'a> = (
    Option<&'a str>,
    Option<&'a str>,
    Option<i64>,
    Option<&'a str>,
    Option<&'a str>,
);

pub fn traces(rows: &[TraceRow<'_>]) -> arrow::array::RecordBatch {
    use arrow::array::{ArrayRef, StringArray, TimestampMicrosecondArray};
    use std::sync::Arc;
    let text = |f: &dyn Fn(&TraceRow<'_>) -> Option<String>| -> ArrayRef {
        Arc::new(rows.iter().map(f).collect::<StringArray>())
    };
    let times: TimestampMicrosecondArray =
        rows.iter().map(|r| r.2.map(|s| s * 1_000_000)).collect();
    arrow::array::RecordBatch::try_from_iter_with_nullable([
        ("trace_id", text(&|r| r.0.map(str::to_owned)), true),
        ("session_id", text(&|r| r.1.map(str::to_owned)), true),
        (
            "started_at",
            Arc::new(times.with_timezone("UTC")) as ArrayRef,
            true,
        ),
        ("input", text(&|r| r.3.map(str::to_owned)), true),
        ("output", text(&|r| r.4.map(str::to_owned)), true),
    ])
    .unwrap()
}

/// The summary of a run directory.
pub fn summary(run: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(run.join("summary.json")).unwrap()).unwrap()
}

/// What is in a folder, hidden things too.
pub fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The same without the records of runs that failed or were killed.
pub fn entries_but_records(folder: &Path) -> Vec<String> {
    let mut names = entries(folder);
    names.retain(|name| !name.contains(".nightmill-run-"));
    names
}
