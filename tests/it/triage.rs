//! `--triage`: a quick model decides what it can, and says so; everything else is as if it were not there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::nights::rows;
use crate::support::{nightmill, read_parquet, summary};

const THINGS: [&str; 12] = [
    "the invoice",
    "a refund",
    "my password",
    "the delivery",
    "a broken lamp",
    "our contract",
    "the weather",
    "a flight",
    "the garden",
    "my salary",
    "a recipe for soup",
    "the printer",
];
const ASKED: [&str; 4] = [
    "Can you tell me more about {}?",
    "I have a question on {}, please help.",
    "What happened to {}?",
    "Please look into {} today.",
];
const SAID: [&str; 5] = [
    "I looked into {}, and it is all right now.",
    "{} is taken care of, you will hear from us.",
    "There is no news on {} yet.",
    "Let me think about something else first.",
    "Sorry, I can't do that.",
];

/// Traces of sessions of six; of every third trace, the output is about another thing.
fn lines(count: usize) -> Vec<String> {
    let line = |n: usize| {
        let asked = THINGS[n * 7 % THINGS.len()];
        let said = THINGS[if n.is_multiple_of(3) {
            n * 5 + 3
        } else {
            n * 7
        } % THINGS.len()];
        json!({
            "trace_id": format!("t{n:04}"),
            "session_id": format!("s{:03}", n / 6),
            "started_at": format!("2026-11-20T10:{:02}:{:02}Z", n / 60 % 60, n % 60),
            "input": format!("{} ({n})", ASKED[n / 3 % ASKED.len()].replace("{}", asked)),
            "output": SAID[n * 11 / 4 % SAID.len()].replace("{}", said),
        })
        .to_string()
    };
    (0..count).map(line).collect()
}

fn file(folder: &Path, name: &str, lines: &[String]) -> String {
    let path = folder.join(name);
    std::fs::write(&path, lines.join("\n")).unwrap();
    path.display().to_string()
}

fn score(folder: &Path, name: &str, args: &[&str]) -> PathBuf {
    let out = folder.join(name);
    let to = out.display().to_string();
    let settings = [
        "--out",
        &to,
        "--no-cache",
        "--no-report",
        "--precision",
        "f32",
    ];
    let ran = nightmill([&["score"][..], args, &settings].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    out
}

fn quick_model(folder: &Path) -> String {
    let quick = folder.join("quick").display().to_string();
    let ran = nightmill([
        "models", "distill", "shipped", "--dim", "64", "--out", &quick,
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    quick
}

/// By trace and metric: score, whether it passed, whether it is an estimate, and the model.
fn scores(run: &Path) -> BTreeMap<(String, String), (String, String, bool, String)> {
    let table = read_parquet(&run.join("scores"));
    let schema = table.schema();
    let at = |name: &str| schema.index_of(name).unwrap();
    let rows = rows(&table).into_iter();
    rows.filter(|row| row[at("target_type")] == "trace")
        .map(|row| {
            let estimated = row[at("metadata")].contains(r#""estimated":true"#);
            assert_eq!(estimated, row[at("reason")].contains("estimated by"));
            let cell = |name: &str| row[at(name)].clone();
            let key = (cell("target_id"), cell("metric"));
            (
                key,
                (cell("score_raw"), cell("passed"), estimated, cell("model")),
            )
        })
        .collect()
}

#[test]
fn what_the_quick_model_leaves_open_is_scored_as_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let quick = quick_model(folder);
    let lines = lines(600);
    let traces = file(folder, "traces.jsonl", &lines);
    let full = scores(&score(folder, "full", &[&traces]));
    let run = score(folder, "triaged", &[&traces, "--triage", &quick]);
    let triaged = scores(&run);
    assert_eq!(full.len(), triaged.len());
    let mut decided = BTreeMap::<&str, [usize; 3]>::new();
    for (key, (score, passed, estimated, model)) in &triaged {
        let (of_full, passed_of_full, _, model_of_full) = &full[key];
        let counts = decided.entry(&key.1).or_default();
        counts[usize::from(*estimated)] += 1;
        counts[2] += usize::from(passed != passed_of_full);
        if !estimated {
            assert_eq!(score, of_full, "{key:?}");
        }
        assert_eq!(*model, format!("{model_of_full} after quick"));
    }
    // Both ways were gone, and nearly all decisions are those of the model.
    let [open, estimated, wrong] = decided["coherence"];
    assert!(open > 20 && estimated > 20 && wrong <= 18, "{decided:?}");
    let [_, estimated, wrong] = decided["loop_detection"];
    assert!(estimated > 20 && wrong <= 6, "{decided:?}");

    let told = &summary(&run)["triage"];
    let number = |name: &str| told[name].as_u64().unwrap();
    assert_eq!(told["model"], "quick");
    assert!(number("pairs_decided") > 0 && number("pairs_decided") < number("pairs_compared"));
    assert!(number("texts_of_the_model") < number("texts"), "{told}");
    assert!(
        number("held_out_agreeing") * 100 >= number("held_out_pairs") * 95,
        "{told}"
    );
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(run.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(&manifest["model"]["triage"], told);
    // What rests on estimates says so, also where it is made later.
    let marked = |run: &Path| {
        let table = read_parquet(&run.join("scores"));
        let at = |name: &str| table.schema().index_of(name).unwrap();
        let of_sessions = |row: &Vec<String>| row[at("target_type")] == "session";
        let rows: Vec<Vec<String>> = rows(&table).into_iter().filter(of_sessions).collect();
        assert!(!rows.is_empty());
        rows.iter().all(|row| {
            let metadata: Value = serde_json::from_str(&row[at("metadata")]).unwrap();
            metadata["estimated"] == true && row[at("reason")].contains("estimated by")
        })
    };
    assert!(marked(&run) && !marked(&folder.join("full")));
    let aggregated = folder.join("aggregated");
    let ran = nightmill([
        "aggregate",
        &run.display().to_string(),
        "--out",
        &aggregated.display().to_string(),
    ]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stdout.contains("estimates of a quick model"),
        "{}",
        ran.stdout
    );
    assert!(marked(&aggregated));
    let to = folder.join("found.toml").display().to_string();
    let ran = nightmill(["calibrate", &run.display().to_string(), "--out", &to]);
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    assert!(
        ran.stderr.contains("estimates of a quick model"),
        "{}",
        ran.stderr
    );
    assert_eq!(manifest["request"]["settings"]["triage"], json!(quick));

    // However the rows come, and on however many threads.
    let mut turned = lines.clone();
    turned.reverse();
    let (a, b) = turned.split_at(250);
    let split = [file(folder, "a.jsonl", a), file(folder, "b.jsonl", b)];
    for more in [
        &["--threads", "1"][..],
        &["--threads", "4", "--buckets", "3"],
    ] {
        let args = [&[&split[0], &split[1], "--triage", &quick][..], more].concat();
        let _ = std::fs::remove_dir_all(folder.join("again"));
        assert!(
            scores(&score(folder, "again", &args)) == triaged,
            "{more:?}"
        );
    }

    // A night that goes on must have the same quick model.
    let more = file(folder, "more.jsonl", &lines[..10]);
    let run = run.display().to_string();
    let out = folder.join("night").display().to_string();
    let night = [
        "score",
        &more,
        "--continue",
        &run,
        "--out",
        &out,
        "--precision",
        "f32",
    ];
    let ran = nightmill(night);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("after quick"), "{}", ran.stderr);
    let ran = nightmill([&night[..], &["--triage", &quick, "--no-cache"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stdout.contains("learnt from its own pairs"),
        "{}",
        ran.stdout
    );
}

#[test]
fn few_pairs_decide_nothing_and_the_same_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let quick = quick_model(folder);
    let traces = file(folder, "traces.jsonl", &lines(60));
    let full = scores(&score(folder, "full", &[&traces]));
    let run = score(folder, "triaged", &[&traces, "--triage", &quick]);
    for (key, (score, _, estimated, _)) in scores(&run) {
        assert!(!estimated && score == full[&key].0, "{key:?}");
    }
    assert_eq!(summary(&run)["triage"]["pairs_decided"], 0);
    let out = folder.join("refused").display().to_string();
    let refused = |args: &[&str]| {
        let ran = nightmill([&["score", &traces, "--out", &out, "--no-cache"][..], args].concat());
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        ran.stderr
    };
    let same = refused(&["--model", &quick, "--triage", &quick]);
    assert!(same.contains("the model of the run itself"), "{same}");
    let idle = refused(&["--metrics", "stuck", "--triage", &quick]);
    assert!(idle.contains("--triage"), "{idle}");
    for more in [
        ["--fail-under", "coherence=0.5"],
        ["--judge-where", "coherence < 0.5"],
    ] {
        let args = [
            &[
                "--triage",
                &quick,
                "--metrics",
                "coherence,confidence",
                "--judge",
                "openai/x",
            ][..],
            &more,
        ]
        .concat();
        let why = refused(&args);
        assert!(why.contains("with --triage"), "{why}");
    }
    let gone = refused(&["--triage", "nowhere"]);
    assert!(gone.contains("nowhere"), "{gone}");
}
