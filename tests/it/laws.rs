//! Laws: what must not change a result, to the byte.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use crate::support::{nightmill, program, read_parquet, traces, write_parquet};

/// The bytes of every Parquet file of a run's tables, but for those that say in which files rows are.
fn tables(run: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in walkdir::WalkDir::new(run) {
        let path = entry.unwrap().into_path();
        if path.extension().is_some_and(|e| e == "parquet")
            && !path.starts_with(run.join("quarantine"))
            && !path.starts_with(run.join("carried"))
        {
            files.insert(
                path.strip_prefix(run).unwrap().display().to_string(),
                std::fs::read(&path).unwrap(),
            );
        }
    }
    assert!(files.len() >= 4, "{files:?}");
    files
}

fn score(paths: &[String], metrics: &str, run: &Path, threads: &str) -> BTreeMap<String, Vec<u8>> {
    let mut args: Vec<String> = vec!["score".into()];
    args.extend(paths.iter().cloned());
    args.extend([
        "--metrics".into(),
        metrics.into(),
        "--out".into(),
        run.display().to_string(),
        "--threads".into(),
        threads.into(),
        "--no-report".into(),
    ]);
    let ran = nightmill(&args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    tables(run)
}

#[test]
fn threads_files_row_groups_and_order_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let words = ["refund", "parcel", "late", "shoe", "card", "login", "blue"];
    let texts: Vec<[String; 4]> = (0..90usize)
        .map(|i| {
            let text = |k: usize| {
                (0..3 + (i * k) % 40)
                    .map(|j| words[(i * k + j * j) % 7])
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            [
                format!("{:032x}", i * 7919 + 1),
                format!("s{}", i % 11),
                text(3),
                if i.is_multiple_of(13) {
                    String::new()
                } else {
                    text(5)
                },
            ]
        })
        .collect();
    let row = |i: usize| {
        let [trace, session, input, output] = &texts[i];
        let session = (!i.is_multiple_of(17)).then_some(session.as_str());
        // Some equal times, so that the trace id decides.
        (
            Some(trace.as_str()),
            session,
            Some((i / 3) as i64),
            Some(input.as_str()),
            Some(output.as_str()),
        )
    };
    let all: Vec<_> = (0..90).map(row).collect();
    write_parquet(&at("one.parquet"), &[traces(&all)], 1000);
    // Reversed rows, small row groups, three files given in the wrong order, more threads.
    let mut reversed = all.clone();
    reversed.reverse();
    for (part, rows) in reversed.chunks(30).enumerate() {
        write_parquet(&at(&format!("part-{part}.parquet")), &[traces(rows)], 7);
    }
    let parts: Vec<String> = [2, 0, 1]
        .map(|p| at(&format!("part-{p}.parquet")).display().to_string())
        .to_vec();
    let one = [at("one.parquet").display().to_string()];
    // Each metric asks the plan for another order of rows, or for none.
    for metrics in [
        "coherence,loop_detection,agent_reliability,agent_consistency",
        "coherence",
        "loop_detection",
        "coherence,agent_consistency",
    ] {
        let expected = score(&one, metrics, &at("expected"), "1");
        for threads in ["2", "5"] {
            let got = score(&parts, metrics, &at("got"), threads);
            assert_eq!(
                got.keys().collect::<Vec<_>>(),
                expected.keys().collect::<Vec<_>>()
            );
            for (file, bytes) in &got {
                assert!(
                    *bytes == expected[file],
                    "{file} differs with {threads} threads and three files: {metrics}"
                );
            }
            std::fs::remove_dir_all(at("got")).unwrap();
        }
        std::fs::remove_dir_all(at("expected")).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn session_scores_do_not_depend_on_the_order_of_traces(
        signals in prop::collection::vec((prop::option::of(0.0..1.0f64), prop::option::of(0.0..1.0f64), prop::option::of(0.0..1.0f64), prop::option::of(0.0..1.0f64)), 1..40),
        turn in 0usize..40,
        stuck in prop_oneof![Just(0.0), 0.0..2.0f64],
    ) {
        use nightmill::metric::{SessionSignals, SignalWeights, Signals};
        let ids: Vec<String> = (0..signals.len()).map(|i| i.to_string()).collect();
        let mut ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut signals: Vec<Signals> = signals
            .into_iter()
            .map(|(confidence, loop_detection, tool_correctness, coherence)| Signals {
                confidence, loop_detection, tool_correctness, coherence,
                of_spans: [tool_correctness, None, coherence, None, loop_detection],
            })
            .collect();
        let weights = SignalWeights::with(&[("stuck".to_owned(), stuck), ("tool_error_rate".to_owned(), 0.7)]).unwrap();
        let both = |ids: &[&str], signals: &[Signals]| {
            let session = SessionSignals { trace_ids: ids, signals, any_source: true };
            let reliability = nightmill::metric::agent_reliability::agent_reliability(session, &weights);
            let consistency = nightmill::metric::agent_consistency::agent_consistency(session, &weights);
            (reliability.score_raw.to_bits(), consistency.score_raw.to_bits(), consistency.score)
        };
        let before = both(&ids, &signals);
        let turn = turn % signals.len();
        signals.rotate_left(turn);
        ids.rotate_left(turn);
        signals.reverse();
        ids.reverse();
        prop_assert_eq!(both(&ids, &signals), before);
        // A perfect trace more never makes a session less consistent.
        signals.push(Signals { confidence: Some(1.0), loop_detection: Some(1.0), tool_correctness: Some(1.0), coherence: Some(1.0), of_spans: [Some(1.0); 5] });
        ids.push("perfect");
        prop_assert!(both(&ids, &signals).2 >= before.2);
    }
}

#[test]
fn a_session_belongs_to_its_project() {
    let folder = tempfile::tempdir().unwrap();
    let line = |trace: &str, project: &str, second: u32, output: &str| {
        format!(
            "{{\"trace_id\":\"{trace}\",\"session_id\":\"s\",{project}\"started_at\":\"2026-01-01T00:00:{second:02}Z\",\"input\":\"q\",\"output\":\"{output}\"}}\n"
        )
    };
    let (one, two) = ("\"project_id\":\"one\",", "\"project_id\":\"two\",");
    let lines = [
        line("a", one, 1, "the parcel is late"),
        line("b", two, 2, "the parcel is late"),
        line("c", "", 3, "the parcel is late"),
        line("d", one, 4, "the parcel is late"),
    ];
    let (file, run) = (folder.path().join("t.jsonl"), folder.path().join("run"));
    std::fs::write(&file, lines.concat()).unwrap();
    let ran = nightmill([
        "score",
        file.to_str().unwrap(),
        "--out",
        run.to_str().unwrap(),
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = |batch: &arrow::array::RecordBatch, name: &str| -> Vec<Option<String>> {
        let column = batch.column_by_name(name).unwrap();
        let column = arrow::array::AsArray::as_string::<i32>(column.as_ref());
        column.iter().map(|v| v.map(str::to_owned)).collect()
    };
    let known = |names: &[&str]| -> Vec<Option<String>> {
        let known = names.iter().map(|n| Some((*n).to_owned()));
        known.chain([None]).collect()
    };
    let sessions = read_parquet(&run.join("sessions"));
    assert_eq!(text(&sessions, "project_id"), known(&["one", "two"]));
    // Only `d` repeats an output of its own session.
    let traces = read_parquet(&run.join("traces"));
    assert_eq!(text(&traces, "project_id"), known(&["one", "one", "two"]));
    let loops = traces.column_by_name("loop_detection").unwrap();
    let loops: &arrow::array::Float64Array = arrow::array::AsArray::as_primitive(loops.as_ref());
    assert_eq!(loops.values(), &[1.0, 0.0, 1.0, 1.0]);
}

#[test]
fn callers_that_share_texts_read_whole_vectors_even_when_the_queue_is_full() {
    use nightmill::embed::{EmbeddingMemory, EmbeddingService, RecentRecords, TextRecord};
    let load = || {
        let folder = crate::support::root().join("tests/golden/sentence-transformers/mean");
        let folder = nightmill::model::ModelFolder::open(&folder).unwrap();
        let level = nightmill::encoder::cpu::Level::choose().unwrap();
        nightmill::model::Model::load(&folder, level, nightmill::encoder::Precision::F32).unwrap()
    };
    let texts: Vec<String> = (0..400)
        .map(|i| format!("text number {i} of many"))
        .collect();
    let model = load();
    let expected: Vec<Vec<f32>> = texts
        .iter()
        .map(|text| crate::support::vector(&model, text))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    // Room for one text at a time: callers are always waiting.
    let memory = EmbeddingMemory {
        index: 1 << 20,
        queue: 1,
        keep_texts: false,
    };
    let service = EmbeddingService::new(load(), None, 2, folder.path(), memory).unwrap();
    let service = std::sync::Arc::new(service);
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let (service, texts, expected) = (&service, &texts, &expected);
            scope.spawn(move || {
                let order: Vec<usize> = (0..texts.len())
                    .map(|i| (i + caller * 100) % texts.len())
                    .collect();
                let asked: Vec<&str> = order.iter().map(|&i| texts[i].as_str()).collect();
                let mut record = TextRecord::default();
                let mut all = Vec::new();
                for (place, i) in service.embed(&asked).unwrap().into_iter().zip(order) {
                    service.read(place, &mut record).unwrap();
                    assert_eq!(record.vector, expected[i], "text {i}");
                    all.push((place, i));
                }
                // A memory of some, of all, and of none.
                for memory in [16 << 10, 16 << 20, 0] {
                    let mut recent = RecentRecords::new(std::sync::Arc::clone(service), memory);
                    for (place, i) in all.iter().chain(&all[..50]) {
                        let record = recent.read(*place).unwrap().unwrap();
                        assert_eq!(record.vector, expected[*i], "text {i} of {memory} bytes");
                    }
                    assert!(
                        recent
                            .read(nightmill::embed::TextRef::EMPTY)
                            .unwrap()
                            .is_none()
                    );
                }
            });
        }
    });
    let counts = service.counts();
    assert_eq!((counts.texts, counts.distinct_texts), (1600, 400));
    assert_eq!(counts.encoded_texts, 400);
}

/// The largest number of bytes that lay in spill files of a run while it went on.
fn most_spilled(folder: &Path, run: &mut std::process::Child) -> u64 {
    let mut most = 0;
    loop {
        let ended = run.try_wait().unwrap();
        let entries = walkdir::WalkDir::new(folder).into_iter().flatten();
        let spilled = entries.filter(|entry| {
            let path = entry.path().to_string_lossy();
            entry.file_type().is_file()
                && path.contains("nightmill-partial-")
                && path.contains("datafusion-")
        });
        // A file may vanish between the listing and the look at it.
        let bytes = spilled.filter_map(|entry| Some(entry.metadata().ok()?.len()));
        most = most.max(bytes.sum());
        match ended {
            Some(status) => {
                assert!(status.success());
                return most;
            }
            None => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
}

/// The memory limit decides where rows wait, and nothing else: far more rows than fit, spilled and merged, give equal bytes.
#[test]
fn what_is_spilled_comes_back_in_order() {
    const ROWS: usize = 200_000;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // Long ids, so that the rows to sort take several times the memory that the least limit leaves to the plan.
    let ids: Vec<String> = (0..ROWS)
        .map(|i| format!("{:0>300}", (i * 7919) % ROWS))
        .collect();
    let sessions: Vec<String> = (0..500).map(|i| format!("session {i}")).collect();
    let said = [
        "where is my parcel",
        "it is on its way",
        "pay me back",
        "done",
        "",
    ];
    let rows: Vec<_> = (0..ROWS)
        .map(|i| {
            let session = sessions[i % sessions.len()].as_str();
            let time = ((i * 31) % 100_000) as i64;
            (
                Some(ids[i].as_str()),
                Some(session),
                Some(time),
                Some(said[i % 5]),
                Some(said[(i / 5) % 5]),
            )
        })
        .collect();
    write_parquet(&at("traces.parquet"), &[traces(&rows)], 20_000);
    let score = |out: &str, limit: &str| {
        let mut command = program();
        command.arg("score").arg(at("traces.parquet"));
        command.arg("--out").arg(at(out));
        command.args(["--no-report", "--json", "--memory-limit", limit]);
        command.stdout(std::process::Stdio::null());
        let spilled = most_spilled(folder.path(), &mut command.spawn().unwrap());
        (tables(&at(out)), spilled)
    };
    let (expected, spilled) = score("large", "8G");
    assert_eq!(spilled, 0, "8G should hold everything");
    let (got, spilled) = score("small", "128M");
    assert!(spilled > 10 << 20, "only {spilled} bytes were spilled");
    for (file, bytes) in &expected {
        assert!(got.get(file) == Some(bytes), "{file} differs");
    }
}
