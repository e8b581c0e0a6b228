//! `nightmill runs changes`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::hand_made_runs::{HandMade, Session, three_nights};
use crate::support::{Ran, nightmill};

#[track_caller]
pub fn ended(code: i32, args: &[&str]) -> Ran {
    let ran = nightmill(args);
    assert_eq!(ran.code, Some(code), "{args:?}: {ran:?}");
    ran
}

#[track_caller]
fn changes(code: i32, run: &Path, more: &[&str]) -> Value {
    let run = run.display().to_string();
    let args = [&["runs", "changes", &run, "--format", "json"][..], more].concat();
    serde_json::from_str(&ended(code, &args).stdout).unwrap()
}

pub fn of<'v>(list: &'v Value, metric: &str) -> &'v Value {
    let mut list = list.as_array().unwrap().iter();
    list.find(|row| row["metric"] == metric).unwrap()
}

/// A number from 0 to 1 that looks drawn by chance.
pub fn drawn(seed: u64) -> f64 {
    let mixed = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 40) as f64 / (1u64 << 24) as f64
}

/// Nights of a chain, each with new sessions of two traces, whose coherence is `mean` of the night, more or less.
fn nights(folder: &Path, means: &[f64], sessions: &[u64]) -> Vec<PathBuf> {
    let nights = means.iter().zip(sessions).zip(1u64..);
    let written = nights.map(|((mean, sessions), night)| {
        let score = |at: u64| ((mean + 0.2 * (drawn(night * 1000 + at) - 0.5)) * 1e4).round() / 1e4;
        let session = |at: u64| {
            let ids = [0, 1].map(|part| format!("t{night}-{at}-{part}"));
            let hour = night as i64 * 24;
            Session::new(
                &format!("s{night}-{at}"),
                score(at),
                &[
                    (&ids[0], hour, score(at * 2)),
                    (&ids[1], hour + 1, score(at * 2 + 1)),
                ],
            )
        };
        let run = HandMade {
            night,
            continues: (night > 1).then(|| format!("night-{:02}", night - 1)),
            sessions: (0..*sessions).map(session).collect(),
            ..HandMade::new(&format!("night-{night:02}"), night as i64 * 24 + 3)
        };
        run.write(folder)
    });
    written.collect()
}

#[test]
fn a_night_is_held_against_the_nights_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let [_, _, third] = three_nights(folder.path());
    let told = changes(0, &third, &["--fail-on-drift"]);
    assert_eq!(
        (&told["run"], &told["night"]),
        (&Value::from("night-3"), &Value::from(3))
    );
    assert_eq!(told["before"], serde_json::json!(["night-2", "night-1"]));
    let sessions = of(&told["sessions"], "agent_reliability");
    assert_eq!(
        ["newly_bad", "still_bad", "recovered", "new_and_bad"]
            .map(|state| sessions[state].as_u64().unwrap()),
        [1, 1, 1, 0]
    );
    let rows: Vec<String> = sessions["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            format!(
                "{} {} {} {} {}",
                row["session_id"], row["state"], row["before"], row["after"], row["bad_nights"]
            )
        })
        .collect();
    // `c` is bad since the second night.
    assert_eq!(
        rows,
        [
            r#""a" "newly_bad" 0.75 0.25 null"#,
            r#""c" "still_bad" 0.25 0.2 2"#,
            r#""b" "recovered" 0.25 0.75 null"#
        ]
    );
    // The page has them too, those without a count of nights among them.
    let shown = third.display().to_string();
    let page = ended(0, &["runs", "changes", &shown, "--format", "html"]).stdout;
    for words in [
        "<td>newly bad</td>",
        "<td>still bad, 2 nights</td>",
        "<td>recovered</td>",
    ] {
        assert!(page.contains(words), "{words}");
    }
    // Of traces those that no night before had: a3, b3 and c2; the lone one is told again.
    let coherence = of(&told["metrics"], "coherence");
    assert_eq!(coherence["now"]["count"], 3);
    assert_eq!(coherence["now"]["mean"], 0.45);
    // Before: each trace once, as the nights before left it: a1 a2 b1 b2 c1 d1 x y.
    assert_eq!(coherence["before"]["count"], 8);
    assert_eq!(coherence["before"]["mean"], 0.6125);
    assert_eq!(coherence["verdict"], "too_few");
    // Three sessions went on, none is new; three new traces.
    let volume = |of: usize| told["volume"][of]["now"].as_u64().unwrap();
    assert_eq!((volume(0), volume(1)), (3, 0));

    // Since the first night: the second counts as now.
    let told = changes(
        0,
        &third,
        &[
            "--since",
            &folder.path().join("night-1").display().to_string(),
        ],
    );
    assert_eq!(told["nights"], serde_json::json!(["night-3", "night-2"]));
    let sessions = of(&told["sessions"], "agent_reliability");
    assert_eq!(
        (&sessions["newly_bad"], &sessions["new_and_bad"]),
        (&Value::from(1), &Value::from(1))
    );
    assert_eq!(of(&told["metrics"], "coherence")["now"]["count"], 5);

    // A night whose earlier ones are gone is held against those that are there.
    std::fs::remove_dir_all(folder.path().join("night-1")).unwrap();
    let told = changes(0, &third, &[]);
    assert_eq!(
        (&told["missing"], &told["before"]),
        (&Value::from("night-1"), &serde_json::json!(["night-2"]))
    );
}

#[test]
fn a_fall_beyond_chance_is_told_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let means = [0.7, 0.705, 0.695, 0.7, 0.71, 0.7, 0.705, 0.6];
    let runs = nights(folder.path(), &means, &[40, 30, 31, 29, 30, 32, 30, 31]);
    let last = runs.last().unwrap();
    let told = changes(0, last, &[]);
    let coherence = of(&told["metrics"], "coherence");
    assert_eq!(coherence["verdict"], "fell");
    let sentence = coherence["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("coherence fell by 0."), "{sentence}");
    assert!(
        sentence.ends_with(" from the mean of the last 7 nights, more than chance"),
        "{sentence}"
    );
    let by = coherence["difference"].as_f64().unwrap();
    assert!((-0.13..-0.07).contains(&by), "{by}");
    assert_eq!(coherence["trend"].as_array().unwrap().len(), 8);
    assert_eq!(coherence["now"]["bins"].as_array().unwrap().len(), 20);
    assert!(!told["volume"][0]["drifted"].as_bool().unwrap(), "{told}");
    // The same by the names of traces.
    let slices = told["slices"].as_array().unwrap();
    let names: Vec<&str> = slices
        .iter()
        .filter(|s| s["verdict"] == "fell")
        .map(|s| s["value"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["chat", "search"]);
    assert_eq!(told, changes(1, last, &["--fail-on-drift"]));
    changes(0, last, &["--fail-on-drift", "--least-change", "0.5"]);
    let shown = ended(
        1,
        &[
            "runs",
            "changes",
            &last.display().to_string(),
            "--fail-on-drift",
        ],
    );
    assert!(
        shown.stdout.contains("coherence fell by") && shown.stdout.contains("by slice"),
        "{shown:?}"
    );

    // The page draws each metric, night by night and as a spread, and loads nothing.
    let page = ended(
        0,
        &[
            "runs",
            "changes",
            &last.display().to_string(),
            "--format",
            "html",
        ],
    )
    .stdout;
    for metric in ["coherence", "agent_reliability"] {
        for chart in ["trend", "spread"] {
            let drawn = format!(r#"<svg class="chart {chart}" data-metric="{metric}""#);
            assert_eq!(page.matches(&drawn).count(), 1, "{drawn}");
        }
    }
    assert_eq!(page.matches("<circle").count(), 16);
    assert!(
        page.contains("from the mean of the last 7 nights, more than chance")
            && !page.contains("NaN")
    );
    let text = &shown.stdout;
    assert!(
        text.contains("by slice: of 2 means, one in a hundred moves by chance"),
        "{text}"
    );
    for outside in ["src=", "href=", "url(", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }

    // The night before is like those before it.
    let told = changes(0, &runs[6], &["--fail-on-drift"]);
    let sentence = of(&told["metrics"], "coherence")["sentence"]
        .as_str()
        .unwrap();
    assert_eq!(
        sentence,
        "coherence: no change of the mean beyond chance from that of the last 6 nights"
    );
}

#[test]
fn missing_traces_unreadable_rows_and_empty_texts_are_drift() {
    let folder = tempfile::tempdir().unwrap();
    let mut sizes = vec![200; 8];
    sizes.push(20);
    let runs = nights(folder.path(), &[0.7; 9], &sizes);
    let told = changes(1, &runs[8], &["--fail-on-drift"]);
    let volume = told["volume"][0]["sentence"].as_str().unwrap();
    assert!(
        volume.starts_with("40 traces, fewer than the usual "),
        "{volume}"
    );
    changes(0, &runs[7], &["--fail-on-drift"]);

    // 40 of 440 rows can't be read, and each fourth trace has an empty text.
    let empty = |at: u64| if at.is_multiple_of(4) { f64::NAN } else { 0.7 };
    let bad = HandMade {
        night: 9,
        continues: Some("night-08".into()),
        sessions: (0..200)
            .map(|at| {
                let ids = [0, 1].map(|part| format!("t9-{at}-{part}"));
                Session::new(
                    &format!("s9-{at}"),
                    0.7,
                    &[(&ids[0], 216, empty(at)), (&ids[1], 217, 0.7)],
                )
            })
            .collect(),
        quarantined: 40,
        ..HandMade::new("night-09", 219)
    };
    std::fs::remove_dir_all(&runs[8]).unwrap();
    let told = changes(1, &bad.write(folder.path()), &["--fail-on-drift"]);
    for (share, mean) in [
        ("share of quarantined rows", 0.0909),
        ("share of empty texts", 0.125),
    ] {
        let share = of(&told["faults"], share);
        assert_eq!(
            (&share["verdict"], &share["worse"]),
            (&Value::from("rose"), &Value::from(true))
        );
        assert_eq!(share["now"]["mean"].as_f64(), Some(mean));
    }
}

#[test]
fn what_cannot_be_held_against_anything_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, _] = three_nights(folder.path());
    let first = first.display().to_string();
    let alone = ended(2, &["runs", "changes", &first]);
    assert!(alone.stderr.contains("--since"), "{alone:?}");
    let itself = ended(2, &["runs", "changes", &first, "--since", &first]);
    assert!(itself.stderr.contains("itself"), "{itself:?}");
    // The other way round: the run is among the nights of what it is held against.
    let third = folder.path().join("night-3").display().to_string();
    let later = ended(2, &["runs", "changes", &first, "--since", &third]);
    assert!(
        later
            .stderr
            .contains("`night-3`, a later night of the chain of `night-1`"),
        "{later:?}"
    );
    // Scores of two models are told, and not held against each other.
    let other = HandMade {
        model: Some("large".into()),
        sessions: vec![Session::new("a", 0.1, &[("a1", 1, 0.1)])],
        ..HandMade::new("other", 60)
    };
    let other = other.write(folder.path());
    let told = changes(0, &other, &["--since", &second.display().to_string()]);
    let coherence = of(&told["metrics"], "coherence");
    assert_eq!(coherence["verdict"], "not_comparable");
    let sentence = coherence["sentence"].as_str().unwrap();
    assert!(sentence.contains("large f32, mini f32"), "{sentence}");
    // A changed file is no night to trust.
    let manifest = second.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let listed = text.replacen(
        '{',
        r#"{"files":{"scores/part-00000.parquet":{"bytes":1,"blake3":"0"}},"#,
        1,
    );
    std::fs::write(&manifest, listed).unwrap();
    let damaged = ended(2, &["runs", "changes", &second.display().to_string()]);
    assert!(
        damaged.stderr.contains("night-2") && damaged.stderr.contains("damaged"),
        "{damaged:?}"
    );
}

#[test]
fn a_night_whose_earlier_run_has_another_name_says_which() {
    let folder = tempfile::tempdir().unwrap();
    let [first, second, third] = three_nights(folder.path());
    let refused = |run: &Path| ended(2, &["runs", "changes", &run.display().to_string()]).stderr;
    // Renamed: it is found by its identity, and named.
    let renamed = folder.path().join("renamed");
    std::fs::rename(&first, &renamed).unwrap();
    let told = refused(&second);
    assert!(
        told.contains("continues the run `night-1`, which is now called `renamed`")
            && told.contains("--since"),
        "{told}"
    );
    let text = ended(0, &["runs", "changes", &third.display().to_string()]).stdout;
    assert!(
        text.contains(
            "nothing before counts: it continues the run `night-1`, which is now called `renamed`"
        ),
        "{text}"
    );
    // What is asked for by name is taken, whatever it is called.
    let since = renamed.display().to_string();
    changes(0, &second, &["--since", &since]);
    // Another run under its name is not taken for it.
    let other = HandMade {
        sessions: vec![Session::new("z", 0.5, &[("z1", 1, 0.5)])],
        ..HandMade::new("other", 1)
    };
    std::fs::rename(other.write(folder.path()), &first).unwrap();
    std::fs::rename(&renamed, tempfile::tempdir().unwrap().keep().join("away")).unwrap();
    let told = refused(&second);
    assert!(
        told.contains("which is neither at") && told.contains("is another run of that name"),
        "{told}"
    );
}
