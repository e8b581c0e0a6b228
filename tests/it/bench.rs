//! `nightmill bench`: models side by side, by the program itself.

use std::process::Command;

use nightmill::report::benchmark_page;
use serde_json::{Value, json};

use crate::support::{golden_path, program, root};

fn bench(more: &[&str]) -> Command {
    let mut command = program();
    command.arg("bench").args(more).current_dir(root());
    command
}

fn passed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn number(of: &Value, name: &str) -> f64 {
    of[name]["value"].as_f64().unwrap()
}

#[test]
fn a_trained_model_is_better_than_one_of_random_weights_and_its_figures_are_the_same_again() {
    let tiny = golden_path("sentence-transformers/mean")
        .display()
        .to_string();
    let table = golden_path("sentence-transformers/static")
        .display()
        .to_string();
    let asked = [
        "shipped",
        &tiny,
        &table,
        "--precision",
        "f32,bf16",
        "--format",
        "json",
    ];
    let told = passed(&mut bench(&asked));
    let figures: Value = serde_json::from_str(&told).unwrap();
    let models = figures["models"].as_array().unwrap();
    let names: Vec<(&str, &str)> = models
        .iter()
        .map(|of| {
            (
                of["model"].as_str().unwrap(),
                of["precision"].as_str().unwrap(),
            )
        })
        .collect();
    let shipped = "all-MiniLM-L6-v2";
    assert_eq!(
        names,
        [
            (shipped, "f32"),
            (shipped, "bf16"),
            ("mean", "f32"),
            ("mean", "bf16"),
            ("static", "f32")
        ]
    );
    for test in ["similarity", "coherence", "loops", "search"] {
        for of in models {
            let [value, low, high] =
                ["value", "low", "high"].map(|end| of[test][end].as_f64().unwrap());
            assert!(
                (-1.0..=1.0).contains(&value) && low <= value && value <= high,
                "{of}"
            );
        }
    }
    // What was learnt is seen where it matters most.
    assert!(
        number(&models[0], "similarity") > number(&models[2], "similarity") + 0.2,
        "{told}"
    );
    assert!(
        number(&models[0], "search") > number(&models[2], "search") + 0.2,
        "{told}"
    );
    assert!(number(&models[0], "coherence") > 0.8, "{told}");
    assert!(
        models
            .iter()
            .all(|of| of["tokens_per_second"].as_f64().unwrap() > 100.0)
    );
    if cfg!(target_os = "linux") {
        assert!(
            models
                .iter()
                .all(|of| of["memory"].as_u64().unwrap() > 1_000_000)
        );
    }
    // On one thread the same, but for speed and memory.
    let again = passed(&mut bench(&[
        "shipped",
        "--precision",
        "f32",
        "--format",
        "json",
        "--threads",
        "1",
    ]));
    let again: Value = serde_json::from_str(&again).unwrap();
    for test in [
        "similarity",
        "coherence",
        "loops",
        "search",
        "cosines",
        "sha256",
    ] {
        assert_eq!(again["models"][0][test], models[0][test], "{test}");
    }
    // Held against what was printed before.
    let folder = tempfile::tempdir().unwrap();
    let baseline = folder.path().join("before.json");
    std::fs::write(&baseline, &told).unwrap();
    let text = passed(&mut bench(&[
        "shipped",
        "--precision",
        "f32",
        "--baseline",
        &baseline.display().to_string(),
    ]));
    assert!(
        text.contains("against the baseline: all-MiniLM-L6-v2 at f32: similarity +0.000"),
        "{text}"
    );
}

#[test]
fn traces_are_measured_where_they_are_named_and_what_can_t_be_is_refused() {
    let told = passed(&mut bench(&[
        "--data",
        "datasets/support",
        "--format",
        "json",
    ]));
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(told["models"][0]["pairs"].as_u64().unwrap() > 500, "{told}");
    let refused = |more: &[&str], why: &str| {
        let output = bench(more).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(why), "{said}");
    };
    refused(&["no/model"], "no folder of a model");
    refused(&["--data", "datasets/chats.jsonl"], "`input`");
    refused(
        &["--baseline", "README.md"],
        "not what `bench --format json` prints",
    );
    refused(&["--precision", "f8"], "f8");
    refused(
        &["--baseline", "README.md", "--format", "json"],
        "only the table shows it",
    );
}

#[test]
fn labels_and_graded_pairs_of_the_user_are_held_against_each_model() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, lines: Vec<Value>| {
        let path = folder.path().join(name);
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        path.display().to_string()
    };
    // Sessions that repeat themselves are bad.
    let line = |n: usize| {
        let (session, step) = (n / 4, n % 4);
        let is_bad = session % 3 == 0;
        let said = match is_bad {
            true => "I am sorry, I can not do that for you.".to_owned(),
            false => format!(
                "Step {step}: the {} is ready.",
                ["soup", "bread", "salad", "cake"][step]
            ),
        };
        json!({"trace_id": format!("t{n}"), "session_id": format!("s{session}"), "label": if is_bad { "bad" } else { "good" },
               "started_at": format!("2026-11-20T10:00:{step:02}Z"), "input": format!("go on with dish {n}"), "output": said})
    };
    let traces = write("traces.jsonl", (0..240).map(line).collect());
    let pair =
        |a: &str, b: &str, score: f64| json!({"sentence1": a, "sentence2": b, "score": score});
    let pairs = write(
        "pairs.jsonl",
        vec![
            pair("a dog runs", "a dog is running", 5.0),
            pair("a dog runs", "a cat sleeps", 2.0),
            pair("a dog runs", "the stock market fell", 0.0),
        ],
    );
    let table = golden_path("sentence-transformers/static")
        .display()
        .to_string();
    let args = [
        "shipped",
        &table,
        "--precision",
        "f32",
        "--format",
        "json",
        "--data",
        &traces,
        "--label",
        "label",
    ];
    let told = passed(&mut bench(
        &[&args[..], &["--bad", "bad", "--pairs", &pairs]].concat(),
    ));
    let told: Value = serde_json::from_str(&told).unwrap();
    for of in told["models"].as_array().unwrap() {
        assert!(number(of, "sessions") > 0.9, "{of}");
    }
    assert_eq!(number(&told["models"][0], "similarity"), 1.0);
    // Figures of other data are not held against these.
    let before = folder.path().join("before.json");
    std::fs::write(&before, told.to_string()).unwrap();
    let before = before.display().to_string();
    let text = passed(&mut bench(&[
        "shipped",
        "--precision",
        "f32",
        "--baseline",
        &before,
    ]));
    assert!(text.contains("was measured on other data"), "{text}");
    let level = write(
        "level.jsonl",
        (0..3).map(|n| pair("a", &format!("b{n}"), 2.0)).collect(),
    );
    let refused = |more: &[&str], why: &str| {
        let output = bench(more).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(why), "{said}");
    };
    refused(&["--label", "label"], "--data");
    refused(&["--data", &traces, "--label", "nothing"], "nothing");
    refused(&["--pairs", &traces], "sentence1");
    refused(&["--pairs", &level], "there is no order in these");
    let broken = write(
        "broken.jsonl",
        vec![
            pair("a", "b", 1.0),
            json!({"sentence1": "a", "sentence2": "b", "score": "x"}),
        ],
    );
    refused(&["--pairs", &broken], "`score` is no number");
}

#[test]
fn the_page_shows_every_model_and_escapes_what_it_is_called() {
    let estimate = json!({"value": 0.8, "low": 0.7, "high": 0.9});
    let of = |name: &str, speed: f64| {
        json!({"model": name, "sha256": "0", "precision": "f32", "device": "cpu", "dim": 4, "similarity": estimate,
               "coherence": estimate, "loops": estimate, "search": estimate, "cosines": [0.1, 0.5, 0.9], "pairs": 64, "sessions": estimate,
               "tokens_per_second": speed, "memory": 90_000_000})
    };
    let models = json!([of("<b>one", 8000.0), of("two", 5_000_000.0)]);
    let page = benchmark_page(&serde_json::from_value::<Vec<_>>(models).unwrap()).unwrap();
    assert!(!page.contains("<b>one") && page.contains("&lt;b&gt;one"));
    assert_eq!(page.matches("<circle").count(), 2);
    for words in ["5,000,000", "90 MB", "0.80 <span", ">1 k<", ">10 M<"] {
        assert!(page.contains(words), "{words}");
    }
    benchmark_page(&[]).unwrap();
}
