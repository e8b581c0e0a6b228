//! Models against PyTorch and sentence-transformers.

use std::path::Path;

use nightmill::encoder::Precision;
use nightmill::encoder::cpu::Level;
use nightmill::model::{Model, ModelFolder};
use serde_json::Value;

use crate::support::{golden, golden_path, reference_models, root, vector};

fn vector_of(value: &Value) -> Vec<f32> {
    serde_json::from_value(value.clone()).unwrap()
}

fn assert_close(got: &[f32], expected: &[f32], component: f32, cosine: f64, what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    let worst = got
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(worst <= component, "{what}: a component is {worst} off");
    let similarity = nightmill::metric::cosine_similarity(got, expected).unwrap();
    assert!(similarity >= cosine, "{what}: cosine {similarity}");
}

#[test]
fn the_tokenizer_gives_the_reference_ids_and_the_model_the_reference_vectors() {
    for (model, _) in reference_models() {
        // f16 weights move a component by up to about 1e-3; f32 ones only by the order of sums.
        let (component, cosine) = if model.stored_precision == "f32" {
            (1e-5, 0.999_999)
        } else {
            (1e-3, 0.999_99)
        };
        for record in golden("pandaprobe/embeddings.jsonl", 47) {
            let text = record["text"].as_str().unwrap();
            let ids: Vec<u32> = serde_json::from_value(record["token_ids"].clone()).unwrap();
            assert_eq!(model.tokenizer.ids(text).unwrap(), ids, "{}", record["id"]);
            let what = record["id"].to_string();
            assert_close(
                &vector(&model, text),
                &vector_of(&record["embedding"]),
                component,
                cosine,
                &what,
            );
        }
    }
}

/// The devices of the device path at f32, and whether the graph is packed: both graphs on the CPU and in a Metal build on a
/// GPU, in a CUDA build the padded one there. A machine without a GPU leaves it out, unless `NIGHTMILL_REQUIRE_GPU` is set.
#[cfg(feature = "candle")]
fn devices() -> Vec<(nightmill::encoder::candle::CandleDevice, bool)> {
    use nightmill::encoder::candle::CandleDevice;
    let mut devices = vec![(CandleDevice::cpu(), false), (CandleDevice::cpu(), true)];
    let gpu = match (cfg!(feature = "cuda"), cfg!(feature = "metal")) {
        (true, _) => Some(CandleDevice::cuda(0, true)),
        (_, true) => Some(CandleDevice::metal(0, true)),
        _ => None,
    };
    if let Some(gpu) = gpu {
        match gpu {
            Ok(gpu) => {
                if cfg!(feature = "metal") {
                    devices.push((gpu.clone(), true));
                }
                devices.push((gpu, false));
            }
            Err(e) if std::env::var_os("NIGHTMILL_REQUIRE_GPU").is_some() => panic!("{e}"),
            Err(_) => {}
        }
    }
    devices
}

/// A folder's model at f32 at every level of this machine, and on the device path.
fn everywhere(folder: &Path) -> Vec<(String, Model)> {
    let folder = ModelFolder::open(folder).unwrap();
    let levels = Level::available().into_iter();
    #[allow(unused_mut, reason = "without the device path nothing is added")]
    let mut models: Vec<_> = levels
        .map(|level| {
            let model = Model::load(&folder, level, Precision::F32).unwrap();
            (level.name().to_owned(), model)
        })
        .collect();
    #[cfg(feature = "candle")]
    for (device, packed) in devices() {
        let model = Model::load_on_devices(&folder, &[device], packed).unwrap();
        models.push((model.encoder.device(), model));
    }
    models
}

fn check_folder(folder: &Path, at: &str, model: &Model) {
    let expected = std::fs::read_to_string(folder.join("expected.jsonl")).unwrap();
    assert!(expected.lines().count() > 3);
    for line in expected.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let text = record["text"].as_str().unwrap();
        let what = format!("{} at {at}: {text:?}", folder.display());
        assert_close(
            &vector(model, text),
            &vector_of(&record["embedding"]),
            1e-4,
            0.99999,
            &what,
        );
    }
}

#[test]
fn golden_sentence_transformers_folders_give_their_vectors_at_every_level() {
    let folders = folders("sentence-transformers");
    for folder in &folders {
        for (at, model) in everywhere(folder) {
            check_folder(folder, &at, &model);
        }
    }
    assert!(folders.len() >= at_least(12));
}

/// So many folders of the project's own; any number of others.
fn at_least(own: usize) -> usize {
    match std::env::var_os("NIGHTMILL_GOLDEN") {
        Some(_) => 1,
        None => own,
    }
}

/// The folders of golden models in a folder.
fn folders(name: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(golden_path(name)).unwrap();
    let mut folders: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|path| path.join("expected.jsonl").exists());
    folders.sort();
    folders
}

/// A model folder around bare weights: they are fed token ids, so that any tokenizer does.
fn folder_around(weights: &Path, pooling: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(weights.join(file), folder.path().join(file)).unwrap();
    }
    std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    let write = |file: &str, content: Value| {
        std::fs::write(folder.path().join(file), content.to_string()).unwrap();
    };
    write(
        "modules.json",
        serde_json::json!([
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        ]),
    );
    write(
        "1_Pooling/config.json",
        serde_json::json!({"pooling_mode": pooling}),
    );
    write(
        "tokenizer.json",
        serde_json::json!({
            "version": "1.0",
            "model": {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
        }),
    );
    folder
}

#[test]
fn golden_bare_weights_of_every_family_give_pytorchs_vectors_at_every_level() {
    let folders = folders("encoders");
    assert!(folders.len() >= at_least(12));
    for golden in folders {
        let name = golden.file_name().unwrap().to_string_lossy().into_owned();
        let records = std::fs::read_to_string(golden.join("expected.jsonl")).unwrap();
        assert!(records.lines().count() > 3);
        for (pooling, key) in [("mean", "mean"), ("cls", "cls"), ("lasttoken", "last")] {
            let folder = folder_around(&golden, pooling);
            for (at, model) in everywhere(folder.path()) {
                gives_vectors(&model, &records, key, &format!("{name} at {at}, {pooling}"));
            }
        }
    }
}

/// One by one, and all in one batch.
fn gives_vectors(model: &Model, records: &str, key: &str, at: &str) {
    let (mut all, mut alone) = (nightmill::encoder::Packed::default(), Vec::new());
    let dim = model.encoder.dim();
    for (row, line) in records.lines().enumerate() {
        let record: Value = serde_json::from_str(line).unwrap();
        let ids: Vec<u32> = serde_json::from_value(record["ids"].clone()).unwrap();
        all.push(&ids);
        let mut one = nightmill::encoder::Packed::default();
        one.push(&ids);
        model.encoder.encode(&one, &mut alone).unwrap();
        let expected = vector_of(&record[key]);
        let what = format!("text {row} of {at}");
        assert_close(&alone[row * dim..], &expected, 1e-4, 0.99999, &what);
    }
    let mut together = Vec::new();
    model.encoder.encode(&all, &mut together).unwrap();
    for (row, (together, alone)) in together
        .chunks_exact(dim)
        .zip(alone.chunks_exact(dim))
        .enumerate()
    {
        let what = format!("text {row} of {at}, in a batch");
        assert_close(together, alone, 1e-4, 0.99999, &what);
    }
}

/// The device path, which has its own kernels, agrees with the packed encoder on the shipped model.
#[cfg(feature = "candle")]
#[test]
fn the_device_path_agrees_with_the_packed_encoder() {
    let shipped = ModelFolder::shipped().unwrap();
    let packed = Model::load(&shipped, Level::choose().unwrap(), Precision::F32).unwrap();
    let chats = std::fs::read_to_string(root().join("datasets/chats.jsonl")).unwrap();
    let mut batch = nightmill::encoder::Packed::default();
    for line in chats.lines().take(40) {
        batch.push(&packed.tokenizer.ids(line).unwrap());
    }
    let mut a = Vec::new();
    packed.encoder.encode(&batch, &mut a).unwrap();
    for (device, packed) in devices() {
        let device = Model::load_on_devices(&shipped, &[device], packed).unwrap();
        let mut b = Vec::new();
        device.encoder.encode(&batch, &mut b).unwrap();
        for (row, (a, b)) in a.chunks(384).zip(b.chunks(384)).enumerate() {
            let what = format!("text {row} on {}", device.encoder.device());
            assert_close(a, b, 1e-5, 0.999_999, &what);
        }
    }
}

const PRECISIONS: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::Int8];

#[test]
fn a_vector_is_the_same_to_the_bit_in_any_batch() {
    let small = root().join("tests/golden/sentence-transformers/mean");
    let small = ModelFolder::open(&small).unwrap();
    let shipped = ModelFolder::shipped().unwrap();
    for precision in PRECISIONS {
        let best = Level::choose().unwrap();
        same_in_any_batch(&Model::load(&shipped, best, precision).unwrap(), 60);
        for level in Level::available() {
            same_in_any_batch(&Model::load(&small, level, precision).unwrap(), 25);
        }
    }
}

/// All products of the packed graph are as large whatever the texts are.
#[cfg(feature = "candle")]
#[test]
fn a_vector_of_the_packed_graph_is_the_same_to_the_bit_in_any_batch() {
    use nightmill::encoder::candle::CandleDevice;
    let mut folders = folders("sentence-transformers");
    folders.truncate(4);
    for folder in folders {
        let folder = ModelFolder::open(&folder).unwrap();
        let model = Model::load_on_devices(&folder, &[CandleDevice::cpu()], true).unwrap();
        same_in_any_batch(&model, 25);
    }
}

fn same_in_any_batch(model: &Model, words: usize) {
    let texts: Vec<String> = (0..40)
        .map(|i| "word ".repeat(1 + i * 7 % words) + &i.to_string())
        .collect();
    let ids: Vec<Vec<u32>> = texts
        .iter()
        .map(|t| model.tokenizer.ids(t).unwrap())
        .collect();
    let alone: Vec<Vec<f32>> = texts.iter().map(|text| vector(model, text)).collect();
    for order in [1, 3, 7, 11] {
        let mut batch = nightmill::encoder::Packed::default();
        let picked: Vec<usize> = (0..40)
            .map(|i| i * order % 40)
            .filter(|i| i % 5 != order % 5)
            .collect();
        picked.iter().for_each(|&i| assert!(batch.push(&ids[i])));
        let mut out = Vec::new();
        model.encoder.encode(&batch, &mut out).unwrap();
        for (&i, got) in picked.iter().zip(out.chunks_exact(model.encoder.dim())) {
            assert_eq!(
                got,
                alone[i],
                "{}: text {i} depends on its batch",
                model.encoder.device()
            );
        }
    }
}

/// Mean and least cosine to f32 that each precision must keep, on the sample's texts.
#[test]
fn fewer_bits_stay_close_to_f32_at_every_level() {
    let shipped = ModelFolder::shipped().unwrap();
    let best = Level::choose().unwrap();
    let chats = std::fs::read_to_string(root().join("datasets/chats.jsonl")).unwrap();
    let texts: Vec<String> = chats
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .flat_map(|chat| ["question", "answer"].map(|key| chat[key].as_str().map(str::to_owned)))
        .flatten()
        .filter(|text| !text.is_empty())
        .collect();
    assert!(texts.len() >= 40, "{} texts", texts.len());
    let reference = Model::load(&shipped, best, Precision::F32).unwrap();
    for level in Level::available() {
        let texts = match level == best {
            true => &texts[..],
            false => &texts[..8],
        };
        for (precision, mean, least) in [
            (Precision::F32, 0.999_999, 0.999_999),
            (Precision::Bf16, 0.9999, 0.9995),
            (Precision::Int8, 0.998, 0.99),
        ] {
            let model = Model::load(&shipped, level, precision).unwrap();
            let cosines: Vec<f64> = texts
                .iter()
                .map(|text| {
                    let (a, b) = (vector(&model, text), vector(&reference, text));
                    a.iter()
                        .zip(&b)
                        .map(|(a, b)| f64::from(*a) * f64::from(*b))
                        .sum()
                })
                .collect();
            let got_mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
            let got_least = cosines.iter().copied().fold(1.0, f64::min);
            assert!(
                got_mean >= mean && got_least >= least,
                "{level:?} {precision:?}: mean {got_mean}, least {got_least}"
            );
        }
    }
}

#[test]
fn unusable_folders_name_the_file_or_key() {
    let good = root().join("tests/golden/sentence-transformers/mean");
    let load = |folder: &Path| {
        ModelFolder::open(folder)
            .and_then(|f| Model::load(&f, Level::Portable, Precision::F32))
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    let copy = || {
        let folder = tempfile::tempdir().unwrap();
        for entry in walkdir::WalkDir::new(&good) {
            let entry = entry.unwrap();
            let target = folder
                .path()
                .join(entry.path().strip_prefix(&good).unwrap());
            if entry.file_type().is_dir() {
                std::fs::create_dir_all(target).unwrap();
            } else {
                std::fs::copy(entry.path(), target).unwrap();
            }
        }
        folder
    };
    load(copy().path()).unwrap();
    for file in [
        "config.json",
        "modules.json",
        "tokenizer.json",
        "model.safetensors",
        "1_Pooling/config.json",
    ] {
        let folder = copy();
        std::fs::remove_file(folder.path().join(file)).unwrap();
        let message = load(folder.path()).unwrap_err();
        assert!(message.contains(file), "{file} removed: {message}");
        std::fs::write(folder.path().join(file), "{").unwrap();
        let message = load(folder.path()).unwrap_err();
        assert!(message.contains(file), "{file} broken: {message}");
    }
    for key in [
        "hidden_size",
        "num_hidden_layers",
        "vocab_size",
        "max_position_embeddings",
    ] {
        let folder = copy();
        let path = folder.path().join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config.as_object_mut().unwrap().remove(key);
        std::fs::write(&path, config.to_string()).unwrap();
        let message = load(folder.path()).unwrap_err();
        assert!(message.contains(key), "{key} removed: {message}");
    }
    let folder = copy();
    std::fs::rename(
        folder.path().join("model.safetensors"),
        folder.path().join("pytorch_model.bin"),
    )
    .unwrap();
    let message = load(folder.path()).unwrap_err();
    assert!(message.contains("pickle"), "{message}");
    assert!(
        load(Path::new("/nonexistent"))
            .unwrap_err()
            .contains("/nonexistent")
    );
}
