//! `nightmill models`: what there is, what it is, and how it goes from one site to another.

mod hub;

use std::path::Path;
use std::process::Command;

use nightmill::encoder::Precision;
use nightmill::encoder::cpu::Level;
use nightmill::model::{Model, ModelFolder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{golden_path, program, root};

fn models(library: &Path, args: &[&str]) -> Command {
    let mut command = program();
    command
        .arg("models")
        .args(args)
        .arg("--models")
        .arg(library);
    command
}

fn ended(command: &mut Command, code: i32) -> (String, String) {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_model_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let info = |model: &str| -> Value {
        let (told, _) = ended(&mut models(folder.path(), &["info", model, "--json"]), 0);
        serde_json::from_str(&told).unwrap()
    };
    let shipped = info("shipped");
    assert_eq!(
        (
            &shipped["family"],
            &shipped["dim"],
            &shipped["max_tokens"],
            &shipped["licence"]
        ),
        (
            &json!("bert"),
            &json!(384),
            &json!(256),
            &json!("Apache-2.0")
        )
    );
    for (model, family, pooling) in [
        ("sentence-transformers/cls", "bert", "cls"),
        ("sentence-transformers/static", "static table", "mean"),
        ("encoders/qwen3", "qwen3", "mean"),
    ] {
        let path = golden_path(model);
        if model.starts_with("encoders") {
            // Weights and a configuration alone have no tokenizer, and that is said.
            let (_, problem) = ended(
                program()
                    .args(["embed", "datasets/chats.jsonl", "--columns", "question"])
                    .current_dir(root())
                    .arg("--out")
                    .arg(folder.path().join("x.parquet"))
                    .arg("--model")
                    .arg(&path),
                2,
            );
            assert!(problem.contains("tokenizer.json"), "{problem}");
        }
        let told = info(&shown(&path));
        assert_eq!(
            (&told["family"], &told["pooling"]),
            (&json!(family), &json!(pooling))
        );
    }
    let (told, _) = ended(&mut models(folder.path(), &["info", "shipped"]), 0);
    assert!(
        told.contains("vectors    384 components, of length 1"),
        "{told}"
    );
    let (_, problem) = ended(&mut models(folder.path(), &["info", "no/such"]), 2);
    assert!(problem.contains("no folder of a model"), "{problem}");
}

#[test]
fn an_unknown_family_is_named_with_those_that_are_known() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), r#"{"model_type": "t5"}"#).unwrap();
    let (_, problem) = ended(
        &mut models(folder.path(), &["info", &shown(folder.path())]),
        2,
    );
    for word in ["`t5`", "modernbert", "qwen3", "Model2Vec"] {
        assert!(problem.contains(word), "{problem}");
    }
}

#[test]
fn a_bundle_carries_a_model_to_another_site_without_a_network() {
    let folder = tempfile::tempdir().unwrap();
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let bundle = shown(&folder.path().join("m.tar.zst"));
    let source = shown(&golden_path("sentence-transformers/dense"));
    ended(
        &mut models(&here, &["export", &source, &bundle, "--id", "tiny/dense"]),
        0,
    );
    let first = std::fs::read(&bundle).unwrap();
    let (_, problem) = ended(&mut models(&here, &["export", &source, &bundle]), 2);
    assert!(problem.contains("--overwrite"), "{problem}");
    ended(
        &mut models(
            &here,
            &[
                "export",
                &source,
                &bundle,
                "--id",
                "tiny/dense",
                "--overwrite",
            ],
        ),
        0,
    );
    assert_eq!(
        std::fs::read(&bundle).unwrap(),
        first,
        "equal models make equal bundles"
    );

    let mut import = models(&there, &["import", &bundle]);
    let without_network = cut_off(&mut import);
    let (told, _) = ended(&mut without_network.unwrap_or(import), 0);
    assert!(told.starts_with("tiny/dense: "), "{told}");
    let (told, _) = ended(&mut models(&there, &["list"]), 0);
    assert!(
        told.contains("tiny/dense") && told.contains("shipped"),
        "{told}"
    );
    let (told, _) = ended(&mut models(&there, &["verify"]), 0);
    assert!(told.contains("as they came"), "{told}");
    let place = there.join("tiny/dense");
    assert_eq!(vectors(&place), vectors(Path::new(&source)));

    let (_, problem) = ended(&mut models(&there, &["import", &bundle]), 2);
    assert!(problem.contains("--overwrite"), "{problem}");
    ended(&mut models(&there, &["import", &bundle, "--overwrite"]), 0);
    // One byte of one file, a file more, a file less.
    std::fs::write(place.join("extra.json"), "{}").unwrap();
    std::fs::remove_file(place.join("tokenizer_config.json")).unwrap();
    let config = std::fs::read_to_string(place.join("config.json")).unwrap();
    std::fs::write(place.join("config.json"), config + " ").unwrap();
    let (told, _) = ended(&mut models(&there, &["verify", "tiny/dense"]), 1);
    for fault in [
        "extra    extra.json",
        "missing  tokenizer_config.json",
        "changed  config.json",
    ] {
        assert!(told.contains(fault), "{told}");
    }
    let (_, problem) = ended(&mut models(&there, &["verify", &source]), 2);
    assert!(problem.contains("no list of sums"), "{problem}");
}

/// The same command in a network namespace of its own, where the system lets us make one.
fn cut_off(command: &mut Command) -> Option<Command> {
    let mut probe = Command::new("unshare");
    probe.args(["-r", "-n", "true"]);
    if !probe.output().is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mut alone = Command::new("unshare");
    alone
        .args(["-r", "-n"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            alone.env(name, value);
        }
    }
    Some(alone)
}

fn vectors(model: &Path) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("v.parquet");
    let mut embed = program();
    embed.args([
        "embed",
        "datasets/chats.jsonl",
        "--columns",
        "question",
        "--precision",
        "f32",
    ]);
    embed
        .current_dir(root())
        .arg("--model")
        .arg(model)
        .arg("--out")
        .arg(&out);
    ended(&mut embed, 0);
    std::fs::read(out).unwrap()
}

/// A member of a bundle: its name, its kind, and what is in it.
struct Member<'a> {
    name: &'a str,
    kind: tar::EntryType,
    bytes: &'a [u8],
}

fn member<'a>(name: &'a str, bytes: &'a [u8]) -> Member<'a> {
    Member {
        name,
        kind: tar::EntryType::Regular,
        bytes,
    }
}

/// Writes a bundle by hand; names are put into its headers as they are.
fn write_bundle(path: &Path, members: &[Member<'_>]) {
    let mut archive = tar::Builder::new(Vec::new());
    for member in members {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..member.name.len()]
            .copy_from_slice(member.name.as_bytes());
        header.set_size(member.bytes.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(member.kind);
        if member.kind == tar::EntryType::Symlink {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        archive.append(&header, member.bytes).unwrap();
    }
    let packed = zstd::encode_all(&archive.into_inner().unwrap()[..], 1).unwrap();
    std::fs::write(path, packed).unwrap();
}

fn head(id: &str, files: &[(&str, &[u8])]) -> Vec<u8> {
    let files = files.iter().map(|(name, bytes)| {
        let sum: String = Sha256::digest(bytes)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        (
            (*name).to_owned(),
            json!({"bytes": bytes.len(), "sha256": sum}),
        )
    });
    let files: serde_json::Map<String, Value> = files.collect();
    json!({"id": id, "files": files}).to_string().into_bytes()
}

#[test]
fn a_bundle_is_believed_in_nothing() {
    const HEAD: &str = "nightmill-model.json";
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("models");
    let bundle = folder.path().join("b.tar.zst");
    let refused = |members: &[Member<'_>], why: &str| {
        write_bundle(&bundle, members);
        let (_, problem) = ended(&mut models(&library, &["import", &shown(&bundle)]), 2);
        assert!(problem.contains(why), "{problem} does not say: {why}");
        let left: Vec<_> = walkdir::WalkDir::new(folder.path())
            .into_iter()
            .flatten()
            .filter(|entry| entry.file_type().is_file() && entry.path() != bundle)
            .collect();
        assert!(left.is_empty(), "{left:?}");
    };
    let text: &[u8] = b"{}";
    let outside = head("a/b", &[("../escape.json", text)]);
    refused(
        &[member(HEAD, &outside), member("../escape.json", text)],
        "is refused",
    );
    let absolute = head("a/b", &[("/tmp/escape.json", text)]);
    refused(
        &[member(HEAD, &absolute), member("/tmp/escape.json", text)],
        "is refused",
    );
    for name in [
        "pytorch_model.bin",
        "model.pkl",
        "run.py",
        ".hidden.json",
        "x/../../y.json",
    ] {
        let told = head("a/b", &[(name, text)]);
        refused(&[member(HEAD, &told), member(name, text)], "is refused");
    }
    let id = head("../../a", &[]);
    refused(&[member(HEAD, &id)], "no id of a model");
    let plain = head("a/b", &[("config.json", text)]);
    let link = Member {
        name: "config.json",
        kind: tar::EntryType::Symlink,
        bytes: b"",
    };
    refused(&[member(HEAD, &plain), link], "no plain file");
    refused(
        &[member(HEAD, &plain), member("config.json", b"[]")],
        "is not what was exported",
    );
    refused(
        &[member(HEAD, &plain), member("config.json", b"{ }")],
        "its head says 2",
    );
    refused(
        &[member(HEAD, &plain), member("other.json", text)],
        "is refused",
    );
    refused(&[member(HEAD, &plain)], "is missing");
    let twice = [
        member(HEAD, &plain),
        member("config.json", text),
        member("config.json", text),
    ];
    refused(&twice, "is in it twice");
    refused(&[member("config.json", text)], "does not begin with");
    refused(&[], "it is empty");
    // A model that can't be used does not come in either.
    refused(
        &[member(HEAD, &plain), member("config.json", text)],
        "model_type",
    );
    std::fs::write(&bundle, b"no archive").unwrap();
    let (_, problem) = ended(&mut models(&library, &["import", &shown(&bundle)]), 2);
    assert!(problem.contains("b.tar.zst"), "{problem}");
}

#[test]
fn no_model_takes_the_place_of_others_or_stands_inside_one() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("models");
    let source = shown(&golden_path("sentence-transformers/cls"));
    let bundle = |id: &str| {
        let bundle = shown(
            &folder
                .path()
                .join(format!("{}.tar.zst", id.replace('/', "-"))),
        );
        ended(
            &mut models(&library, &["export", &source, &bundle, "--id", id]),
            0,
        );
        bundle
    };
    ended(&mut models(&library, &["import", &bundle("org/b")]), 0);
    let (_, problem) = ended(
        &mut models(&library, &["import", &bundle("org"), "--overwrite"]),
        2,
    );
    assert!(problem.contains("is no model"), "{problem}");
    assert!(library.join("org/b/config.json").exists());
    ended(&mut models(&library, &["import", &bundle("alone")]), 0);
    let (_, problem) = ended(&mut models(&library, &["import", &bundle("alone/x")]), 2);
    assert!(problem.contains("would be inside it"), "{problem}");
    let (_, problem) = ended(&mut models(&library, &["import", &bundle("shipped")]), 2);
    assert!(problem.contains("another id"), "{problem}");
    // A table replaces a table, and nothing else.
    let precious = folder.path().join("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("data.txt"), "x").unwrap();
    let distil = |teacher: &str, out: &Path| {
        let out = shown(out);
        ended(
            &mut models(
                &library,
                &[
                    "distill",
                    teacher,
                    "--dim",
                    "8",
                    "--out",
                    &out,
                    "--overwrite",
                ],
            ),
            2,
        )
        .1
    };
    assert!(distil(&source, &precious).contains("is no model"));
    assert!(precious.join("data.txt").exists());
    let teacher = library.join("alone");
    assert!(distil(&shown(&teacher), &teacher).contains("the teacher itself"));
}

#[test]
fn what_would_change_vectors_and_is_not_read_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |file: &str, change: &dyn Fn(&mut Value), why: &str| {
        let model = folder.path().join("model");
        let _ = std::fs::remove_dir_all(&model);
        for entry in walkdir::WalkDir::new(golden_path("sentence-transformers/dense"))
            .into_iter()
            .flatten()
        {
            let name = entry
                .path()
                .strip_prefix(golden_path("sentence-transformers/dense"))
                .unwrap();
            let to = model.join(name);
            match entry.file_type().is_dir() {
                true => std::fs::create_dir(&to).unwrap(),
                false => std::fs::write(&to, std::fs::read(entry.path()).unwrap()).unwrap(),
            }
        }
        let path = model.join(file);
        let mut told: Value = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap(),
            Err(_) => json!({}),
        };
        change(&mut told);
        std::fs::write(&path, told.to_string()).unwrap();
        let (_, problem) = ended(&mut models(folder.path(), &["info", &shown(&model)]), 2);
        assert!(problem.contains(why), "{file}: {problem}");
    };
    let set = |key: &'static str, value: Value| move |told: &mut Value| told[key] = value.clone();
    refused(
        "tokenizer_config.json",
        &set("truncation_side", json!("left")),
        "truncation_side",
    );
    refused(
        "tokenizer_config.json",
        &set("do_lower_case", json!(false)),
        "do_lower_case",
    );
    refused(
        "2_Dense/config.json",
        &set("module_output_name", json!("other")),
        "module_output_name",
    );
    refused(
        "sentence_bert_config.json",
        &set("config_kwargs", json!({"a": 1})),
        "config_kwargs",
    );
    let another = |told: &mut Value| {
        told["modality_config"]["text"]["method_output_name"] = json!(["hidden_states", -2]);
    };
    refused("sentence_bert_config.json", &another, "method_output_name");
    refused(
        "config.json",
        &set("model_type", json!("gemma")),
        "this version encodes bert",
    );
    refused(
        "config.json",
        &set("hidden_act", json!("mish")),
        "hidden_act",
    );
    refused(
        "config.json",
        &set("position_embedding_type", json!("relative_key")),
        "position_embedding_type",
    );
}

#[test]
fn a_distilled_table_agrees_with_its_teacher_and_is_the_same_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("models");
    let distil = |out: &Path, more: &[&str]| {
        let out = shown(out);
        let args = [
            &["distill", "shipped", "--dim", "64", "--out", &out][..],
            more,
        ]
        .concat();
        models(&library, &args)
    };
    let (first, second) = (folder.path().join("one"), folder.path().join("two"));
    let (told, _) = ended(&mut distil(&first, &["--json"]), 0);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(told["agreement"].as_f64().unwrap() > 0.4, "{told}");
    assert!(told["tokens"].as_u64().unwrap() > 25_000, "{told}");
    ended(&mut distil(&second, &[]), 0);
    for file in [
        "model.safetensors",
        "config.json",
        "README.md",
        "tokenizer.json",
    ] {
        let read = |folder: &Path| std::fs::read(folder.join(file)).unwrap();
        assert!(read(&first) == read(&second), "{file}");
    }
    let (told, _) = ended(&mut models(&library, &["info", &shown(&first)]), 0);
    for words in ["static table", "64 components", "Apache-2.0"] {
        assert!(told.contains(words), "{told}");
    }
    let (_, problem) = ended(&mut distil(&first, &[]), 2);
    assert!(problem.contains("--overwrite"), "{problem}");
    let table = shown(&first);
    let again = models(
        &library,
        &["distill", &table, "--out", &shown(&folder.path().join("x"))],
    );
    let (_, problem) = ended(&mut { again }, 2);
    assert!(problem.contains("static table already"), "{problem}");
}

#[test]
fn prompts_and_components_make_another_model_and_wrong_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let prompts = shown(&golden_path("sentence-transformers/prompts"));
    let embed = |more: &[&str], code: i32| -> (Vec<u8>, String) {
        let out = folder.path().join("v.parquet");
        let mut command = program();
        command.args(["embed", "datasets/chats.jsonl", "--columns", "question"]);
        command
            .args(["--precision", "f32", "--model", &prompts, "--overwrite"])
            .args(more);
        let (_, problem) = ended(command.current_dir(root()).arg("--out").arg(&out), code);
        (std::fs::read(&out).unwrap_or_default(), problem)
    };
    let (usual, _) = embed(&[], 0);
    let (none, _) = embed(&["--prompt", "none"], 0);
    let (named, _) = embed(&["--prompt", "text:passage: "], 0);
    assert!(usual != none && usual == named);
    let (_, problem) = embed(&["--prompt", "no-such"], 2);
    assert!(problem.contains("it has "), "{problem}");
    let (_, problem) = embed(&["--dim", "4096"], 2);
    assert!(problem.contains("--dim 4096"), "{problem}");
    let (short, _) = embed(&["--dim", "8"], 0);
    assert!(short.len() < usual.len());
}

#[test]
fn weights_in_several_files_are_those_of_one() {
    let folder = tempfile::tempdir().unwrap();
    let source = golden_path("sentence-transformers/mean");
    let parts = folder.path().join("parts");
    for entry in walkdir::WalkDir::new(&source).into_iter().flatten() {
        let to = parts.join(entry.path().strip_prefix(&source).unwrap());
        match entry.file_type().is_dir() {
            true => std::fs::create_dir_all(&to).unwrap(),
            false => drop(std::fs::copy(entry.path(), &to).unwrap()),
        }
    }
    let whole = parts.join("model.safetensors");
    let bytes = std::fs::read(&whole).unwrap();
    std::fs::remove_file(&whole).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut map = serde_json::Map::new();
    for (at, part) in [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    .into_iter()
    .enumerate()
    {
        let half = tensors.iter().enumerate().filter(|(n, _)| n % 2 == at);
        let half: Vec<_> = half.map(|(_, tensor)| tensor).collect();
        for (name, _) in &half {
            map.insert((*name).to_owned(), json!(part));
        }
        safetensors::serialize_to_file(half, None, &parts.join(part)).unwrap();
    }
    let index = parts.join("model.safetensors.index.json");
    let write = |map: &serde_json::Map<String, Value>| {
        std::fs::write(
            &index,
            json!({"metadata": {}, "weight_map": map}).to_string(),
        )
        .unwrap();
    };
    write(&map);
    let out = folder.path().join("vectors.parquet");
    let embedded = |model: &Path, code: i32| {
        let args = [
            "embed",
            "datasets/chats.jsonl",
            "--columns",
            "question",
            "--no-cache",
            "--overwrite",
        ];
        let mut command = program();
        command.args(args).current_dir(root());
        command.arg("--model").arg(model).arg("--out").arg(&out);
        let (_, problem) = ended(&mut command, code);
        (std::fs::read(&out).unwrap_or_default(), problem)
    };
    assert!(embedded(&source, 0).0 == embedded(&parts, 0).0);

    // A bundle carries all of them.
    let bundle = shown(&folder.path().join("parts.tar.zst"));
    let library = folder.path().join("library");
    ended(
        &mut models(&library, &["export", &shown(&parts), &bundle]),
        0,
    );
    ended(&mut models(&library, &["import", &bundle]), 0);
    ended(&mut models(&library, &["verify"]), 0);
    let (told, _) = ended(&mut models(&library, &["info", "parts", "--json"]), 0);
    let (before, _) = ended(
        &mut models(&library, &["info", &shown(&parts), "--json"]),
        0,
    );
    let sum = |told: &str| serde_json::from_str::<Value>(told).unwrap()["sha256"].clone();
    assert_eq!(sum(&told), sum(&before));

    let first = map.keys().next().unwrap().clone();
    map.insert(first, json!("../elsewhere.safetensors"));
    write(&map);
    let (_, problem) = embedded(&parts, 2);
    assert!(problem.contains("../elsewhere.safetensors"), "{problem}");
    map.values_mut()
        .for_each(|file| *file = json!("model-00003-of-00003.safetensors"));
    write(&map);
    let (_, problem) = embedded(&parts, 2);
    assert!(problem.contains("model-00003-of-00003"), "{problem}");
}

/// Texts of real agents, where they are beside the repository: they are not part of it.
fn real_texts() -> Option<Vec<String>> {
    let folder = root().join("../shared/data/sessions");
    if !folder.is_dir() {
        assert!(
            std::env::var_os("NIGHTMILL_REQUIRE_SHARED").is_none(),
            "{} is not there",
            folder.display()
        );
        eprintln!("SKIPPED, no text of real agents was looked at");
        return None;
    }
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "parquet") {
            continue;
        }
        let file = std::fs::File::open(&path).unwrap();
        let reader =
            parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            for name in ["input", "output"] {
                let Some(column) = batch.column_by_name(name) else {
                    continue;
                };
                let column = arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8);
                let column = column.unwrap();
                let column = arrow::array::AsArray::as_string::<i32>(&column);
                texts.extend(column.iter().flatten().map(str::to_owned));
            }
        }
    }
    Some(texts)
}

#[test]
fn ids_of_real_texts_are_those_of_the_tokenizer_itself() {
    let Some(texts) = real_texts() else { return };
    assert!(texts.len() > 5000, "{}", texts.len());
    let model = Model::load(
        &ModelFolder::shipped().unwrap(),
        Level::choose().unwrap(),
        Precision::F32,
    )
    .unwrap();
    let mut tokenizer =
        tokenizers::Tokenizer::from_file(root().join("models/all-MiniLM-L6-v2/tokenizer.json"))
            .unwrap();
    let truncation = tokenizers::TruncationParams {
        max_length: model.tokenizer.max_tokens().unwrap(),
        ..Default::default()
    };
    tokenizer.with_truncation(Some(truncation)).unwrap();
    tokenizer.with_padding(None);
    // The first of equal texts fill the memo, later ones read it.
    for text in texts.iter().step_by(7).chain(texts.iter().step_by(11)) {
        let expected = tokenizer.encode_fast(text.as_str(), true).unwrap();
        assert_eq!(
            model.tokenizer.ids(text).unwrap(),
            expected.get_ids(),
            "{text}"
        );
    }
}
