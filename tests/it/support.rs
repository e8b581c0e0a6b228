//! Helpers of the tests.

use std::path::{Path, PathBuf};

use nightmill::encoder::cpu::Level;
use nightmill::model::{Model, ModelFolder};
use serde_json::Value;

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The records of a golden file under `tests/golden`.
pub fn golden(file: &str) -> Vec<Value> {
    let path = root().join("tests/golden").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let records: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!records.is_empty(), "{file} has no records");
    records
}

/// The models to check scores with, each with the tolerance of its weights: the shipped f16 model
/// always, the original f32 one where `NIGHTMILL_F32_MODEL` names its folder (CI does).
pub fn reference_models() -> Vec<(Model, f64)> {
    let level = Level::choose().unwrap();
    let shipped = ModelFolder::shipped().expect("tests run with the shipped model");
    // 0.0005 is the promise for the shipped weights; 1e-9 is equality of numbers with 4 decimals.
    let mut models = vec![(Model::load(&shipped, level).unwrap(), 0.0005)];
    if let Some(folder) = std::env::var_os("NIGHTMILL_F32_MODEL") {
        let folder = ModelFolder::open(&PathBuf::from(folder)).unwrap();
        let model = Model::load(&folder, level).unwrap();
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
pub fn assert_json_close(got: &Value, expected: &Value, tolerance: f64, extra: &[&str], what: &str) {
    match (got, expected) {
        (Value::Object(g), Value::Object(e)) => {
            for key in g.keys() {
                assert!(e.contains_key(key) || extra.contains(&key.as_str()), "{what}: unexpected `{key}`");
            }
            for (key, value) in e {
                let got = g.get(key).unwrap_or_else(|| panic!("{what}: `{key}` is missing in {got}"));
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
