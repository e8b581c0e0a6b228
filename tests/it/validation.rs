//! `validate` and `calibrate`: what scores tell of labels, and what a warehouse learns of its own.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Ran, nightmill, summary};

/// Sessions of one to three traces. Bad ones have a failed call; good ones talk more. Every task is tried twice.
fn warehouse(sessions: usize) -> Vec<Value> {
    let mut rows = Vec::new();
    for n in 0..sessions {
        let is_bad = n % 5 < 2;
        for turn in 0..=(n % 3) {
            let error = if is_bad && n % 10 != 5 {
                json!("no such parcel")
            } else {
                Value::Null
            };
            let words = if is_bad { 4 } else { 30 + n % 7 };
            let said: Vec<String> = (0..words)
                .map(|w| format!("word{}", (w * 7 + n + turn) % 40))
                .collect();
            rows.push(json!({
                "trace_id": format!("t{n}-{turn}"),
                "session_id": format!("s{n:03}"),
                "started_at": format!("2026-11-{:02}T10:{turn:02}:{:02}Z", 1 + n % 20, n / 20),
                "input": format!("where is parcel {n}?"),
                "output": said.join(" "),
                "release": if n % 2 == 0 { "1.0" } else { "1.1" },
                "spans": [{ "kind": "TOOL", "name": "look", "input": format!("{n} {turn}"), "output": "x", "error": error }],
                "went_well": f64::from(u8::from(!is_bad)),
                "job": format!("job{}", n / 2),
            }));
        }
    }
    rows
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, rows: &[Value]) -> String {
        let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(self.path(name), lines).unwrap();
        self.shown(name)
    }

    fn score(&self, file: &str, run: &str, more: &[&str]) -> Ran {
        let out = self.shown(run);
        let ran = nightmill([&["score", file, "--out", &out, "--no-report"], more].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran
    }
}

fn validate(runs: &[&str], more: &[&str]) -> Ran {
    nightmill([&["validate"], runs, &["--label", "went_well"], more].concat())
}

fn told<'v>(run: &'v Value, name: &str) -> &'v Value {
    let all = run["told"].as_array().unwrap();
    all.iter()
        .find(|told| told["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {run}"))
}

fn read(ran: &Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn scores_are_held_against_labels_in_the_direction_that_they_mean() {
    let place = Place::new();
    let file = place.write("traces.jsonl", &warehouse(100));
    place.score(&file, "run", &["--metrics", "attention"]);
    let run = place.shown("run");
    let json = ["--bad", "0", "--task", "job", "--format", "json"];
    let found = read(&validate(&[&run], &json));
    let of_run = &found["runs"][0];
    assert_eq!(
        [
            &of_run["sessions"],
            &of_run["labelled"],
            &of_run["bad"],
            &of_run["clusters"]
        ],
        [&json!(100), &json!(100), &json!(40), &json!(50)]
    );
    // Of 40 bad sessions 10 have no failed call, as no good one has: 30 pairs of 40 are in order, and 10 are equal.
    let failed = told(of_run, "failed_calls");
    assert_eq!(failed["auc"]["value"], 0.875);
    assert_eq!(failed["verdict"], "more_than_baselines");
    assert_eq!(
        failed["worst_5_percent"],
        json!({ "sessions": 5, "bad": 1.0 })
    );
    // Good sessions talk more, and a signal is never turned round.
    let words = told(of_run, "output_words");
    assert_eq!(
        (&words["kind"], &words["verdict"]),
        (&json!("baseline"), &json!("wrong_way"))
    );
    assert_eq!(words["auc"]["value"], 0.0);
    assert_eq!(told(of_run, "traces")["verdict"], "nothing");
    let slices = of_run["slices"].as_array().unwrap();
    let releases: Vec<&Value> = slices
        .iter()
        .filter(|slice| slice["column"] == "release")
        .collect();
    assert_eq!(releases.len(), 2, "{slices:?}");
    assert_eq!(
        (&releases[0]["sessions"], &releases[0]["bad"]),
        (&json!(50), &json!(20))
    );
    // As text it says the same, and what tells nothing.
    let text = validate(&[&run], &["--good", "1"]);
    assert_eq!(text.code, Some(0), "{text:?}");
    let line = |name: &str| {
        text.stdout
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap()
    };
    assert!(
        line("failed_calls").contains("0.88 (")
            && line("failed_calls").contains("more than any baseline")
    );
    assert!(line("traces").ends_with("tells nothing"), "{}", text.stdout);
    // And as a page without outside resources.
    let page = validate(&[&run], &["--bad", "<0.5", "--format", "html"]);
    assert!(
        page.stdout.contains("<svg") && !page.stdout.contains("http://"),
        "{page:?}"
    );
    assert!(!page.stdout.contains("https://"));
}

#[test]
fn the_order_of_rows_files_and_buckets_changes_no_figure() {
    let place = Place::new();
    let mut rows = warehouse(90);
    let file = place.write("traces.jsonl", &rows);
    place.score(&file, "one", &["--metrics", "attention"]);
    rows.reverse();
    let labels: Vec<Value> = rows
        .iter()
        .map(|row| json!({ "session_id": row["session_id"], "went_well": row["went_well"], "job": row["job"] }))
        .collect();
    let labels = place.write("labels.jsonl", &labels);
    std::fs::create_dir(place.path("split")).unwrap();
    place.write("split/b.jsonl", &rows[..50]);
    place.write("split/a.jsonl", &rows[50..]);
    let split = place.shown("split");
    place.score(&split, "two", &["--metrics", "attention", "--buckets", "3"]);
    let asked = [
        "--bad", "0", "--task", "job", "--format", "json", "--labels", &labels,
    ];
    let [one, two] = ["one", "two"].map(|run| {
        let mut found = read(&validate(&[&place.shown(run)], &asked));
        let run = found["runs"][0].take();
        // One file against two: that slice is another one.
        let slices = run["slices"].as_array().unwrap().iter();
        let slices: Vec<Value> = slices
            .filter(|of| of["column"] != "file")
            .cloned()
            .collect();
        (run["told"].clone(), slices)
    });
    assert_eq!(one, two);
}

#[test]
fn what_can_be_misread_is_refused() {
    let place = Place::new();
    let file = place.write("traces.jsonl", &warehouse(40));
    place.score(&file, "run", &["--metrics", "attention"]);
    let run = place.shown("run");
    let refused = |more: &[&str], with: &str| {
        let ran = validate(&[&run], more);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(with), "{}", ran.stderr);
    };
    refused(&[], "which labels are bad? `went_well` is `1` in");
    refused(&["--bad", "no"], "every session is good, where bad is `no`");
    refused(&["--bad", "<x"], "a number must follow `<`");
    refused(&["--bad", "0", "--good", "1"], "cannot be used with");
    refused(&["--bad", "0", "--task", "jobs"], "no column `jobs`");
    refused(
        &["--bad", "0", "--task", "release"],
        "--task release: there are 2 tasks",
    );
    let csv = place.shown("labels.csv");
    std::fs::write(&csv, "session_id,went_well\nelsewhere,0\nother,1\n").unwrap();
    refused(
        &["--bad", "0", "--labels", &csv],
        "none of the 2 labelled sessions is in",
    );
    std::fs::write(&csv, "session,went_well\ns000,0\n").unwrap();
    refused(
        &["--bad", "0", "--labels", &csv],
        "it has no column `session_id`, but `session`, `went_well`",
    );
    // Few labels tell nothing, and say so.
    std::fs::write(&csv, "session_id,went_well\ns000,0\ns002,1\n").unwrap();
    let few = read(&validate(
        &[&run],
        &["--bad", "0", "--labels", &csv, "--format", "json"],
    ));
    assert_eq!(told(&few["runs"][0], "attention")["verdict"], "too_few");
    // A session id of two projects needs labels that name them.
    let mut rows = warehouse(40);
    for (nth, row) in rows.iter_mut().enumerate() {
        row["project_id"] = json!(format!("p{}", nth % 2));
    }
    let file = place.write("projects.jsonl", &rows);
    place.score(&file, "projects", &["--metrics", "attention"]);
    std::fs::write(&csv, "session_id,went_well\ns001,0\ns002,1\n").unwrap();
    let ran = validate(
        &[&place.shown("projects")],
        &["--bad", "0", "--labels", &csv],
    );
    assert!(
        ran.code == Some(2) && ran.stderr.contains("in two projects"),
        "{ran:?}"
    );
}

#[test]
fn several_runs_stand_side_by_side_and_together() {
    let place = Place::new();
    for run in ["one", "two"] {
        let mut rows = warehouse(60);
        for row in &mut rows {
            row["session_id"] = json!(format!("{run}-{}", row["session_id"].as_str().unwrap()));
        }
        let file = place.write(&format!("{run}.jsonl"), &rows);
        place.score(&file, &format!("runs/{run}"), &["--metrics", "attention"]);
    }
    let found = read(&validate(
        &[&place.shown("runs")],
        &["--bad", "0", "--format", "json"],
    ));
    assert_eq!(found["runs"].as_array().unwrap().len(), 2);
    let mean = found["together"].as_array().unwrap().iter();
    let mean = mean
        .clone()
        .find(|told| told["name"] == "failed_calls")
        .unwrap();
    assert_eq!(mean["auc"]["value"], 0.875);
    assert_eq!(mean["range"], json!([0.875, 0.875]));
    // Runs of the same sessions are no further evidence.
    let file = place.write("again.jsonl", &warehouse(60));
    for run in ["a", "b"] {
        place.score(&file, &format!("twice/{run}"), &["--metrics", "attention"]);
    }
    let asked = ["--bad", "0", "--format", "json"];
    let twice = read(&validate(&[&place.shown("twice")], &asked));
    assert_eq!(twice["together"], json!([]));
    let fit = place.path("fit.toml");
    let labels = ["--label", "went_well", "--bad", "0"];
    let ran = calibrate(&[&place.shown("twice")], &fit, &labels);
    assert!(
        ran.code == Some(2) && ran.stderr.contains("is in two of these runs"),
        "{ran:?}"
    );
    // A table that lacks a file is no smaller table.
    std::fs::remove_file(place.path("twice/a/attention/part-00000.parquet")).unwrap();
    let ran = validate(&[&place.shown("twice/a")], &["--bad", "0"]);
    assert!(
        ran.code == Some(2) && ran.stderr.contains("the file is not there"),
        "{ran:?}"
    );
}

fn calibrate(runs: &[&str], out: &Path, more: &[&str]) -> Ran {
    let out = out.display().to_string();
    nightmill([&["calibrate"], runs, &["--out", &out], more].concat())
}

fn manifest(run: &Path) -> Value {
    let text = std::fs::read_to_string(run.join("manifest.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn thresholds_fit_the_warehouse_and_the_manifest_says_where_they_come_from() {
    let place = Place::new();
    let file = place.write("traces.jsonl", &warehouse(40));
    place.score(&file, "run", &[]);
    let (run, out) = (place.shown("run"), place.path("fit.toml"));
    let ran = calibrate(&[&run], &out, &["--below", "0.1"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let again = calibrate(&[&run], &out, &[]);
    assert!(
        again.code == Some(2) && again.stderr.contains("fit.toml"),
        "{again:?}"
    );
    let fit = out.display().to_string();
    place.score(&file, "fitted", &["--calibration", &fit]);
    let fitted = summary(&place.path("fitted"));
    let coherence = fitted["metrics"].as_array().unwrap();
    let coherence = coherence
        .iter()
        .find(|metric| metric["name"] == "coherence")
        .unwrap();
    let (all, passed) = (
        coherence["count"].as_u64().unwrap(),
        coherence["passed"].as_u64().unwrap(),
    );
    assert!(
        passed < all && (all - passed) as f64 <= 0.1 * all as f64,
        "{coherence}"
    );
    let origin = &manifest(&place.path("fitted"))["calibration"];
    assert_eq!(
        (&origin["file"], &origin["origin"]["runs"]),
        (&json!(fit), &json!(["run"]))
    );
    // What is given on the command line goes before.
    place.score(
        &file,
        "given",
        &["--calibration", &fit, "--threshold", "coherence=0.99"],
    );
    let rules = &manifest(&place.path("given"))["rules"]["thresholds"];
    assert_eq!(rules["coherence"], 0.99);
    // It is for scores of one model and text mode.
    let out = place.shown("other");
    let other = nightmill([
        "score",
        &file,
        "--out",
        &out,
        "--calibration",
        &fit,
        "--precision",
        "int8",
    ]);
    assert_eq!(other.code, Some(2), "{other:?}");
    assert!(
        other.stderr.contains("it is for precision"),
        "{}",
        other.stderr
    );
    assert!(!place.path("other").exists());
    let mode = nightmill([
        "score",
        &file,
        "--out",
        &out,
        "--calibration",
        &fit,
        "--text-mode",
        "content",
    ]);
    assert!(
        mode.code == Some(2) && mode.stderr.contains("text mode compat"),
        "{mode:?}"
    );
    std::fs::write(&fit, "[origin]\ncreated = 1\n").unwrap();
    let damaged = nightmill(["score", &file, "--out", &out, "--calibration", &fit]);
    assert!(
        damaged.code == Some(2) && damaged.stderr.contains("fit.toml"),
        "{damaged:?}"
    );
}

#[test]
fn an_order_is_learnt_where_it_beats_the_default_on_sessions_held_out() {
    let place = Place::new();
    let file = place.write("traces.jsonl", &warehouse(200));
    place.score(&file, "run", &["--metrics", "attention"]);
    let (run, out) = (place.shown("run"), place.path("fit.toml"));
    let labels = ["--label", "went_well", "--bad", "0", "--task", "job"];
    // Without labels there is nothing to learn from, and the order has no threshold.
    let none = calibrate(&[&run], &out, &[]);
    assert!(
        none.code == Some(2) && none.stderr.contains("no score of these runs"),
        "{none:?}"
    );
    let ran = calibrate(&[&run], &out, &labels);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let fit: toml::Value = toml::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    let learnt = &fit["attention"];
    let auc = |of: &str| learnt[of].as_array().unwrap()[0].as_float().unwrap();
    assert!(auc("held_out_auc") > auc("default_auc") + 0.1, "{fit}");
    assert_eq!(
        learnt["held_out"].as_str(),
        Some("5 parts of whole tasks, by job")
    );
    let weights = learnt["weights"].as_table().unwrap();
    assert!(
        weights.contains_key("failed_calls") && !weights.contains_key("output_words"),
        "{fit}"
    );
    assert_eq!(fit["origin"]["bad"].as_integer(), Some(80));
    let calibration = out.display().to_string();
    place.score(
        &file,
        "learnt",
        &["--metrics", "attention", "--calibration", &calibration],
    );
    assert_eq!(
        summary(&place.path("learnt"))["attention"]["model"],
        calibration.as_str()
    );
    let asked = ["--bad", "0", "--format", "json"];
    let [before, after] = ["run", "learnt"].map(|run| {
        let found = read(&validate(&[&place.shown(run)], &asked));
        let auc = told(&found["runs"][0], "attention")["auc"]["value"]
            .as_f64()
            .unwrap();
        (auc, found["runs"][0]["notes"].clone())
    });
    assert!(after.0 > before.0 + 0.1, "{before:?} {after:?}");
    assert!(after.1.to_string().contains("not held out"), "{after:?}");
    // By chance alone nothing is learnt.
    let mut rows = warehouse(200);
    for (nth, row) in rows.iter_mut().enumerate() {
        let session: usize = row["session_id"].as_str().unwrap()[1..].parse().unwrap();
        row["went_well"] = json!((session * 7919 + 13) % 11 % 2);
        row["trace_id"] = json!(format!("r{nth}"));
    }
    let file = place.write("random.jsonl", &rows);
    place.score(&file, "random", &["--metrics", "attention,tool_error_rate"]);
    let ran = calibrate(
        &[&place.shown("random")],
        &place.path("none.toml"),
        &labels[..4],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stdout.contains("the default one stays"),
        "{}",
        ran.stdout
    );
    let text = std::fs::read_to_string(place.path("none.toml")).unwrap();
    assert!(!text.contains("[attention"), "{text}");
}
