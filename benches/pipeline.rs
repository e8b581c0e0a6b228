//! How many traces a second does everything but the encoder take?
//!
//! Texts repeat from a pool of 2,000, so that embedding is paid once and the rest of the run reads
//! cached vectors: reading, coherence, loop windows, session metrics, and (in the last row) writing
//! the run directory. The baseline of each row is the row before it: what does the next step cost?
//!
//! `cargo bench --bench pipeline -- [TRACES] [THREADS]`
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a failed test is a panic, and its output is for people"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use nightmill::embed::EmbeddingService;
use nightmill::engine::{
    EngineOptions, ScorePlan, SessionPlan, Tap, engine_session, for_each_batch, traces_table,
};
use nightmill::job::RequestRecord;
use nightmill::metric::{Rules, SignalWeights};
use nightmill::run::{CacheChoice, EngineRequest, Progress, ScoreRequest, load_service, score};
use nightmill::text::TextMode;
use nightmill::trace::format::{Choice, found};
use nightmill::trace::{
    BatchLimits, Buckets, ColumnMap, OnBadFile, ReadOptions, TraceColumns, TraceSource, discover,
};
use parquet::arrow::ArrowWriter;

const DISTINCT: u64 = 2000;

fn write_traces(path: &Path, traces: u64) {
    let words = [
        "order", "refund", "parcel", "late", "invoice", "shoe", "blue", "account", "login",
        "reset", "mail", "card",
    ];
    let pool: Vec<String> = (0..DISTINCT)
        .map(|i| {
            let mut state = i + 1;
            let mut text = format!("case {i}:");
            for _ in 0..12 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                text.push(' ');
                text.push_str(words[(state >> 33) as usize % words.len()]);
            }
            text
        })
        .collect();
    let mut writer: Option<ArrowWriter<std::fs::File>> = None;
    let rows: Vec<u64> = (0..traces).collect();
    for chunk in rows.chunks(20_000) {
        let pick = |i: u64, salt: u64| {
            pool[(i.wrapping_mul(2_654_435_761).wrapping_add(salt) >> 7) as usize % pool.len()]
                .as_str()
        };
        let columns: Vec<(&str, ArrayRef)> = vec![
            (
                "trace_id",
                Arc::new(
                    chunk
                        .iter()
                        .map(|i| Some(format!("{:032x}", i * 7919 + 12345)))
                        .collect::<StringArray>(),
                ),
            ),
            (
                "session_id",
                Arc::new(
                    chunk
                        .iter()
                        .map(|i| Some(format!("session-{:09}", i / 6)))
                        .collect::<StringArray>(),
                ),
            ),
            (
                "started_at",
                Arc::new(
                    chunk
                        .iter()
                        .map(|i| Some(1_767_225_600_000_000 + *i as i64 * 1_000_000))
                        .collect::<TimestampMicrosecondArray>()
                        .with_timezone("UTC"),
                ),
            ),
            (
                "input",
                Arc::new(
                    chunk
                        .iter()
                        .map(|i| Some(pick(*i, 1)))
                        .collect::<StringArray>(),
                ),
            ),
            (
                "output",
                Arc::new(
                    chunk
                        .iter()
                        .map(|i| Some(pick(*i, 77)))
                        .collect::<StringArray>(),
                ),
            ),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let writer = writer.get_or_insert_with(|| {
            ArrowWriter::try_new(std::fs::File::create(path).unwrap(), batch.schema(), None)
                .unwrap()
        });
        writer.write(&batch).unwrap();
        writer.flush().unwrap();
    }
    writer.unwrap().close().unwrap();
}

fn rules() -> Rules {
    Rules {
        metrics: nightmill::metric::of_traces_alone()
            .map(|m| m.name.to_owned())
            .collect(),
        thresholds: Default::default(),
        window: 3,
        weights: SignalWeights::default(),
        text_mode: TextMode::Compat,
        null_without_evidence: false,
        gates: Vec::new(),
    }
}

fn source(path: &Path) -> Arc<TraceSource> {
    let files = discover(&[path.display().to_string()], None).unwrap();
    let columns = TraceColumns {
        labels: true,
        input: true,
        output: true,
        compared: false,
        spans: false,
        spans_required: false,
        spans_strict: false,
        output_digest: false,
        session_required: true,
        signals: Vec::new(),
    };
    let options = ReadOptions {
        columns,
        map: ColumnMap::default(),
        text_mode: TextMode::Compat,
        on_bad_file: OnBadFile::Fail,
        limits: BatchLimits::default(),
    };
    Arc::new(TraceSource::open(files, options, Arc::default()).unwrap())
}

/// Runs the plan with nobody writing; returns the number of session rows.
fn plan(
    path: &Path,
    service: &Arc<EmbeddingService>,
    engine: &EngineRequest,
    sessions: bool,
) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(engine.threads)
        .build()
        .unwrap();
    runtime.block_on(async {
        let context = engine_session(&EngineOptions {
            threads: engine.threads,
            memory: engine.plan_memory(),
            spill_folder: folder.path().to_owned(),
            embedding: Some(Arc::clone(service)),
            triage: None,
            window: 3,
            weights: SignalWeights::default(),
            text_mode: TextMode::Compat,
        })
        .unwrap();
        context
            .register_table(
                "traces",
                Arc::new(traces_table(source(path), engine.threads).unwrap()),
            )
            .unwrap();
        let plan = ScorePlan {
            merge_repeated: false,
            given_signals: Vec::new(),
            coherence: true,
            comparing: [None; 3],
            digests: nightmill::engine::Digests::default(),
            loop_detection: true,
            triage: false,
            span_signals: Vec::new(),
            buckets: Buckets::ONE,
            done: Vec::new(),
        };
        let frame = plan.scored(&context).await.unwrap();
        let mut rows = 0;
        if sessions {
            let scored = frame.create_physical_plan().await.unwrap();
            let plan = SessionPlan {
                reliability: true,
                consistency: true,
                expected: Vec::new(),
                span_signals: Vec::new(),
                labels: true,
                session_signals: false,
            };
            let frame = plan
                .sessions(&context, Arc::new(Tap::new(scored, |_| Ok(()))))
                .await
                .unwrap();
            for_each_batch(frame, |batch| {
                rows += batch.num_rows();
                Ok(())
            })
            .await
            .unwrap();
        } else {
            for_each_batch(frame, |batch| {
                rows += batch.num_rows();
                Ok(())
            })
            .await
            .unwrap();
        }
        rows
    })
}

fn main() {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let traces = numbers.first().copied().unwrap_or(600_000);
    let threads = numbers.get(1).copied().unwrap_or(2) as usize;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traces.parquet");
    write_traces(&path, traces);
    let engine = EngineRequest {
        model: None,
        adjusted: Default::default(),
        device: "auto".into(),
        gpu_graph: Default::default(),
        precision: "auto".into(),
        threads,
        memory_limit: 2 << 30,
        cache: CacheChoice::Off,
        cache_size: 0,
        loaded: None,
    };
    let service = load_service(&engine, folder.path()).unwrap();
    plan(&path, &service, &engine, false); // embeds the pool and warms the page cache

    let report = |what: &str, run: &mut dyn FnMut()| {
        let mut seconds: Vec<f64> = (0..3)
            .map(|_| {
                let started = Instant::now();
                run();
                started.elapsed().as_secs_f64()
            })
            .collect();
        seconds.sort_by(f64::total_cmp);
        println!(
            "{what:<52} {:>9.0} traces/s  ({:.2} s, median of 3)",
            traces as f64 / seconds[1],
            seconds[1]
        );
    };
    println!("{traces} traces, {DISTINCT} distinct texts, {threads} threads");
    report("read, coherence, loop windows", &mut || {
        assert_eq!(plan(&path, &service, &engine, false) as u64, traces);
    });
    report("  + both session metrics", &mut || {
        assert_eq!(
            plan(&path, &service, &engine, true) as u64,
            traces.div_ceil(6)
        );
    });
    let request = |buckets| ScoreRequest {
        continues: None,
        triage: None,
        exchange: None,
        buckets: Buckets::new(buckets),
        resume: false,
        fail_on_drift: false,
        offline: true,
        name: None,
        monitor_id: None,
        metric_names: rules().metrics,
        found: found(&[path.display().to_string()], Choice::Auto, None, false)
            .expect("the bench's own file"),
        out: folder.path().join("run"),
        overwrite: true,
        map: ColumnMap::default(),
        on_bad_file: OnBadFile::Fail,
        signals: None,
        calibration: None,
        rules: rules(),
        engine: engine.clone(),
        judge: None,
        targets: None,
        report: Some(nightmill::report::html),
        record: RequestRecord::default(),
    };
    report(
        "whole run: + embedding the pool, writing, report",
        &mut || {
            score(&request(1), &Progress::default()).unwrap();
        },
    );
    report("  the same in 8 buckets", &mut || {
        score(&request(8), &Progress::default()).unwrap();
    });
}
