//! What changed since last night, on the page of the night itself, and as a gate.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::browser::Browser;
use crate::support::{Ran, TraceRow, nightmill, read_parquet, summary, traces, write_parquet};

/// Traces of a night: sessions of two traces each, whose answers are about what was asked, or about something else.
fn file_of(folder: &Path, night: i64, sessions: i64, astray: bool) -> PathBuf {
    let things = ["router", "printer", "phone", "camera", "lamp", "scale"];
    let rows: Vec<[String; 4]> = (0..sessions * 2)
        .map(|at| {
            let thing = things[(at + night) as usize % things.len()];
            let answer = match astray {
                false => format!("To reset the {thing}, hold its button for {at} seconds."),
                true => format!("Whales sing below {at} metres of water."),
            };
            [
                format!("t{night}-{at}"),
                format!("s{night}-{}", at / 2),
                format!("How do I reset my {thing} number {at}?"),
                answer,
            ]
        })
        .collect();
    let rows: Vec<TraceRow<'_>> = rows
        .iter()
        .zip(0..)
        .map(|([id, session, input, output], at)| {
            let second = night * 100_000 + at;
            (
                Some(id.as_str()),
                Some(session.as_str()),
                Some(second),
                Some(input.as_str()),
                Some(output.as_str()),
            )
        })
        .collect();
    let file = folder.join(format!("night-{night}.parquet"));
    write_parquet(&file, &[traces(&rows)], 100);
    file
}

/// Nights that go on with one another, each from its file.
struct Nights {
    folder: tempfile::TempDir,
    runs: Vec<PathBuf>,
}

impl Nights {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            runs: Vec::new(),
        }
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("runs")
    }

    /// Scores a file as the next night.
    fn score(&mut self, file: &Path, more: &[&str]) -> Ran {
        let out = self.place().join(format!("night-{}", self.runs.len() + 1));
        let (file, shown) = (file.display().to_string(), out.display().to_string());
        let place = self.place().display().to_string();
        let mut args = vec!["score", &file, "--out", &shown, "--metrics"];
        args.push("coherence,agent_reliability");
        if !self.runs.is_empty() {
            args.extend(["--continue", &place]);
        }
        args.extend(more);
        let ran = nightmill(args);
        self.runs.push(out);
        ran
    }

    /// The same with as many sessions as asked.
    #[track_caller]
    fn night(&mut self, code: i32, astray: bool, more: &[&str]) -> Ran {
        let night = self.runs.len() as i64 + 1;
        let file = file_of(self.folder.path(), night, 12, astray);
        let ran = self.score(&file, more);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        ran
    }

    fn last(&self) -> &Path {
        self.runs.last().unwrap()
    }
}

fn page(run: &Path) -> String {
    std::fs::read_to_string(run.join("report.html")).unwrap()
}

/// The section of a page.
fn section(html: &str) -> Option<&str> {
    let (_, rest) = html.split_once(r#"<section class="changes""#)?;
    Some(rest.split_once("</section>")?.0)
}

#[track_caller]
fn ended(code: i32, args: &[&str]) -> Ran {
    let ran = nightmill(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
    ran
}

#[track_caller]
fn changes_page(run: &Path) -> String {
    let run = run.display().to_string();
    ended(0, &["runs", "changes", &run, "--format", "html"]).stdout
}

#[test]
fn the_report_of_a_night_shows_what_runs_changes_shows() {
    let mut nights = Nights::new();
    nights.night(0, false, &[]);
    assert!(!page(nights.last()).contains("What changed"), "a first run");
    nights.night(0, false, &[]);
    nights.night(0, false, &[]);
    nights.night(0, true, &[]);
    for (run, before) in nights.runs.iter().zip(0..).skip(1) {
        let html = page(run);
        let shown = section(&html).unwrap();
        // The run of the page was not there yet when the page was made; the figures are those of now.
        assert_eq!(Some(shown), section(&changes_page(run)));
        let name = run.file_name().unwrap().to_string_lossy().into_owned();
        assert!(shown.contains(&format!("<bdi>{name}</bdi>")), "{name}");
        assert!(!html.contains("nightmill-partial"));
        assert!(html.len() < 400_000, "{} bytes", html.len());
        for outside in ["src=", "href=\"h", "url(", "<script s"] {
            assert!(!html.contains(outside), "{outside}");
        }
        // Everything of the run, the page too, is as its manifest says.
        ended(0, &["runs", "verify", &run.display().to_string()]);
        let told = &summary(run)["continued"]["drift"];
        assert_eq!(told["is_gate"], false);
        assert_eq!(told["found"].as_array().unwrap().is_empty(), before < 3);
        let stages = summary(run)["stages"].to_string();
        assert!(stages.contains("compare with earlier nights"), "{stages}");
    }
    // Where nobody reads it, nobody looks.
    let ran = nights.night(0, false, &["--no-report"]);
    assert!(!ran.stdout.contains("drift"), "{ran:?}");
    assert!(summary(nights.last())["continued"]["drift"].is_null());
}

/// Runs of one name are told by their paths, and that of the page is the one that it will have.
#[test]
fn nights_of_one_name_are_told_by_their_paths() {
    let folder = tempfile::tempdir().unwrap();
    let files = [1, 2].map(|night| file_of(folder.path(), night, 6, false));
    let [first, second] = ["a", "b"].map(|part| folder.path().join(part).join("night"));
    let score = |file: &Path, out: &Path, more: &[&str]| {
        let [file, out] = [file, out].map(|path| path.display().to_string());
        let args = ["score", &file, "--metrics", "coherence", "--out", &out];
        ended(0, &[&args[..], more].concat());
    };
    score(&files[0], &first, &[]);
    score(
        &files[1],
        &second,
        &["--continue", &first.display().to_string()],
    );
    let html = page(&second);
    assert_eq!(section(&html), section(&changes_page(&second)));
    assert!(section(&html).unwrap().contains("&#x2f;a&#x2f;night") && !html.contains("partial"));
}

#[test]
fn drift_fails_a_night_that_asks_for_it() {
    let mut nights = Nights::new();
    nights.night(0, false, &[]);
    const GATE: &str = "--fail-on-drift";
    nights.night(0, false, &[]);
    let ran = nights.night(0, false, &[GATE, "--no-report"]);
    assert!(ran.stdout.ends_with("no drift\n") || ran.stdout.contains("no drift\n"));
    assert!(!nights.last().join("report.html").exists());
    let ran = nights.night(1, true, &[GATE]);
    // In the words of `runs changes`, and the run is there, whole.
    let run = nights.last().display().to_string();
    let asked = ended(1, &["runs", "changes", &run, GATE]).stdout;
    let words = asked.split_once("drift:\n").unwrap().1;
    let words = words.split_once("\n\n").unwrap().0;
    assert!(words.contains("coherence fell by 0."), "{words}");
    assert!(
        ran.stdout.contains(&format!("drift:\n{words}\n")),
        "{ran:?}"
    );
    ended(0, &["runs", "verify", &run]);
    let html = page(nights.last());
    assert!(html.contains("✗ Failed: the run drifted from the nights before it"));
    // As JSON, and for a night that rose again: that is no drift.
    let ran = nights.night(0, false, &[GATE, "--json"]);
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    let drift = &told["continued"]["drift"];
    assert_eq!(
        (&drift["is_gate"], &drift["found"]),
        (&Value::from(true), &Value::from(Vec::<Value>::new()))
    );
    assert!(page(nights.last()).contains("✓ Passed: no drift from the nights before"));
}

#[test]
fn a_gate_on_drift_without_earlier_nights_is_refused() {
    let data = "datasets/chats.jsonl";
    let ran = ended(
        2,
        &["score", data, "--out", "/nowhere/x", "--fail-on-drift"],
    );
    assert!(
        ran.stderr
            .contains("--fail-on-drift: this run continues no other")
            && ran.stderr.contains("--continue"),
        "{ran:?}"
    );
    let ran = ended(
        2,
        &[
            "plan",
            data,
            "--fail-on-drift",
            "--judge",
            "openai/x",
            "--metrics",
            "confidence",
        ],
    );
    assert!(
        ran.stderr.contains("--fail-on-drift: a plan makes no run"),
        "{ran:?}"
    );
    let ran = ended(
        2,
        &[
            "aggregate",
            "runs",
            "--out",
            "/nowhere/x",
            "--fail-on-drift",
        ],
    );
    assert!(
        ran.stderr
            .contains("--fail-on-drift: aggregate continues no run"),
        "{ran:?}"
    );
    // A settings file may mean it for other runs.
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("nightmill.toml");
    std::fs::write(&config, "fail_on_drift = true\n").unwrap();
    let file = file_of(folder.path(), 1, 2, false).display().to_string();
    let out = folder.path().join("run").display().to_string();
    let config = config.display().to_string();
    ended(0, &["score", &file, "--config", &config, "--out", &out]);
}

/// Whatever is in the way of the section costs the section, not the night.
#[test]
fn a_night_that_can_not_be_held_against_the_others_is_kept() {
    let mut nights = Nights::new();
    nights.night(0, false, &[]);
    nights.night(0, false, &[]);
    // The table of scores is no part of what a night goes on with.
    let scores = nights.runs[0].join("scores/part-00000.parquet");
    let whole = std::fs::read(&scores).unwrap();
    let mut bytes = whole.clone();
    bytes[40] ^= 1;
    std::fs::write(&scores, bytes).unwrap();
    let ran = nights.night(0, false, &[]);
    assert!(
        ran.stderr.contains("could not be found out") && ran.stderr.contains("night-1"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("drift: not known: "), "{ran:?}");
    let html = page(nights.last());
    assert!(section(&html).is_none());
    assert!(html.contains("It could not be found out: ") && html.contains("is damaged"));
    assert!(!html.contains("nightmill-partial"));
    ended(0, &["runs", "verify", &nights.last().display().to_string()]);
    // A gate that can't be told is not passed.
    nights.night(3, false, &["--fail-on-drift"]);
    assert!(
        page(nights.last())
            .contains("Whether the run drifted from the nights before it is not known")
    );
    std::fs::write(&scores, whole).unwrap();
    nights.night(0, false, &["--fail-on-drift"]);
}

#[test]
fn drift_fails_the_run_of_a_monitor() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let show = |name: &str| folder.path().join(name).display().to_string();
    let (paths, out, monitors) = (show("data"), show("runs"), show("monitors"));
    let monitor = |code: i32, args: &[&str]| {
        ended(
            code,
            &[&["monitor"], args, &["--monitors", &monitors]].concat(),
        )
    };
    let add = [
        "add",
        "m",
        &paths,
        "--target",
        "trace",
        "--metrics",
        "coherence",
        "--cadence",
        "daily",
    ];
    let own = ["--out", &out, "--set", "fail-on-drift=true"];
    let refused = monitor(2, &[&add[..], &own, &["--sample", "0.5"]].concat());
    assert!(refused.stderr.contains("chooses targets"), "{refused:?}");
    monitor(0, &[&add[..], &own].concat());
    for night in 1..5 {
        let code = i32::from(night == 4);
        file_of(&data, night, 12, night == 4);
        let now = format!("2027-01-0{night}T00:00:00Z");
        let ran = monitor(code, &["trigger", "m", "--now", &now]);
        let drift = ran.stderr.contains("drift: coherence fell by 0.");
        assert_eq!(drift, night == 4, "{ran:?}");
    }
}

#[test]
fn a_browser_shows_what_changed() {
    let Some(browser) = Browser::find() else {
        return;
    };
    let mut nights = Nights::new();
    for _ in 0..4 {
        nights.night(0, false, &[]);
    }
    nights.night(1, true, &["--fail-on-drift"]);
    // Three metrics, each as a trend and as a spread.
    let report = nights.last().join("report.html");
    browser.assert_readable(&report, 6);
    let alone = nights.folder.path().join("changes.html");
    std::fs::write(&alone, changes_page(nights.last())).unwrap();
    browser.assert_readable(&alone, 6);
    // The first night that continues another: no trend to speak of, and still a page.
    browser.assert_readable(&nights.runs[1].join("report.html"), 6);
    for page in [&report, &alone] {
        let picture = nights.folder.path().join("picture.png");
        browser.open(page, &[&format!("--screenshot={}", picture.display())]);
        let size = std::fs::metadata(&picture).unwrap().len();
        assert!(size > 30_000, "a picture of {size} bytes is blank");
    }
}

/// Sessions of real agents in seven nights, some late and some going on for nights.
#[test]
fn seven_nights_of_real_sessions_show_what_changed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared/data/sessions/tau_airline_gpt4o.parquet");
    if !source.exists() {
        eprintln!("no real sessions here");
        return;
    }
    let all = read_parquet(&source);
    let night_of = |row: usize| (row / 3 + if row.is_multiple_of(9) { 5 } else { 0 }) % 7;
    let mut nights = Nights::new();
    for night in 0..7 {
        let rows = (0..all.num_rows()).filter(|row| night_of(*row) == night);
        let rows: arrow::array::UInt64Array = rows.map(|row| row as u64).collect();
        let rows = arrow::compute::take_record_batch(&all, &rows).unwrap();
        let file = nights.folder.path().join(format!("night-{night}.parquet"));
        write_parquet(&file, &[rows], 100);
        let ran = nights.score(&file, &[]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let html = page(nights.last());
    let shown = section(&html).unwrap();
    assert_eq!(Some(shown), section(&changes_page(nights.last())));
    assert!(
        shown.contains("against the 6 nights before it") && !shown.contains("NaN"),
        "{shown}"
    );
    assert!(html.len() < 1_000_000, "{} bytes", html.len());
    if let Some(browser) = Browser::find() {
        browser.assert_readable(&nights.last().join("report.html"), 6);
    }
}
