//! What does a night cost beside scoring everything anew?
//!
//! A warehouse of some nights, each of which continues the one before it, and then one more night with 5 % new traces. Its
//! time is held against that of one run over all files, new ones among them. Two in a hundred new traces go on with a session
//! of the night before, of six traces. Texts repeat from a pool of 2,000 and are in the cache, so that what is measured is
//! what grows with the history; a run over the new traces alone shows what does not. Each run is a process of its own, so
//! that its peak memory is its own; its time begins when the request is there. A night's memory is flat if the last one of
//! the history takes what the second one took: both have as many new traces.
//!
//! `cargo bench --bench nights -- [TRACES] [NIGHTS] [THREADS]`
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a bench is for people, and a failed one is a panic"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch, StringArray, TimestampMicrosecondArray};
use nightmill::job::RequestRecord;
use nightmill::metric::{Rules, SignalWeights};
use nightmill::run::{CacheChoice, EngineRequest, Progress, ScoreRequest, score};
use nightmill::text::TextMode;
use nightmill::trace::format::{Choice, found};
use nightmill::trace::{ColumnMap, OnBadFile};
use parquet::arrow::ArrowWriter;

const DISTINCT: usize = 2000;
/// Traces of a session.
const TURNS: u64 = 6;
/// One of so many new traces belongs to a session of the night before.
const GOES_ON: u64 = 50;
/// The share of the time of everything that a night should take no more than.
const GOAL: f64 = 0.08;

/// The word by which this program starts itself to carry out one run.
const ONE_RUN: &str = "one-run";

fn pool() -> Vec<String> {
    let words = [
        "order", "refund", "parcel", "late", "invoice", "shoe", "blue", "account", "login",
        "reset", "mail", "card",
    ];
    let text = |number: usize| {
        let mut state = number as u64 + 1;
        let mut text = format!("case {number}:");
        for _ in 0..12 {
            state = mixed(state);
            text.push(' ');
            text.push_str(words[(state >> 33) as usize % words.len()]);
        }
        text
    };
    (0..DISTINCT).map(text).collect()
}

fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Writes the traces `from..to` as a night; `before` is the first trace of the night before, if there is one.
fn write_night(path: &Path, pool: &[String], (from, to): (u64, u64), before: Option<u64>) {
    let session = |trace: u64| match before {
        Some(before) if trace.is_multiple_of(GOES_ON) => {
            let sessions = (from - before).div_ceil(TURNS);
            before / TURNS + mixed(trace) % sessions
        }
        _ => trace / TURNS,
    };
    let text = |trace: u64, salt: u64| pool[mixed(trace * 2 + salt) as usize % pool.len()].as_str();
    let mut writer: Option<ArrowWriter<std::fs::File>> = None;
    let all: Vec<u64> = (from..to).collect();
    for chunk in all.chunks(20_000) {
        let texts = |of: &dyn Fn(u64) -> String| -> ArrayRef {
            let cells = chunk.iter().map(|trace| Some(of(*trace)));
            Arc::new(cells.collect::<StringArray>())
        };
        let times = chunk
            .iter()
            .map(|trace| Some(1_767_225_600_000_000 + *trace as i64 * 1_000_000));
        let times = times.collect::<TimestampMicrosecondArray>();
        let batch = RecordBatch::try_from_iter([
            (
                "trace_id",
                texts(&|trace| format!("{:016x}{:016x}", mixed(trace), mixed(!trace))),
            ),
            (
                "session_id",
                texts(&|trace| format!("session-{:016x}", mixed(session(trace)))),
            ),
            (
                "started_at",
                Arc::new(times.with_timezone("UTC")) as ArrayRef,
            ),
            ("input", texts(&|trace| text(trace, 0).to_owned())),
            ("output", texts(&|trace| text(trace, 1).to_owned())),
        ]);
        let batch = batch.unwrap();
        let writer = writer.get_or_insert_with(|| {
            let file = std::fs::File::create(path).unwrap();
            ArrowWriter::try_new(file, batch.schema(), None).unwrap()
        });
        writer.write(&batch).unwrap();
        writer.flush().unwrap();
    }
    writer.unwrap().close().unwrap();
}

/// What a run came to.
struct Ran {
    seconds: f64,
    /// Of all threads; other programs of the machine change it less.
    of_cpu: f64,
    /// Mebibytes.
    peak: u64,
    rows: u64,
    /// Of earlier nights.
    read_again: u64,
}

/// Carries out a run in a process of its own.
fn ran(files: &[PathBuf], out: &Path, continues: Option<&Path>, threads: u64, cache: &Path) -> Ran {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .arg(ONE_RUN)
        .arg(threads.to_string())
        .arg(out)
        .arg(cache);
    command.arg(continues.unwrap_or(Path::new("-"))).args(files);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |name: &str| told[name].as_u64().unwrap_or_default();
    Ran {
        seconds: told["seconds"].as_f64().unwrap(),
        of_cpu: told["of_cpu"].as_f64().unwrap(),
        peak: number("peak"),
        rows: number("rows"),
        read_again: number("read_again"),
    }
}

fn one_run(args: &[String]) {
    let [threads, out, cache, continues, files @ ..] = args else {
        panic!("{args:?}")
    };
    let threads = threads.parse().unwrap();
    let request = ScoreRequest {
        triage: None,
        exchange: None,
        buckets: None,
        resume: false,
        fail_on_drift: false,
        continues: (continues != "-").then(|| PathBuf::from(continues)),
        offline: true,
        name: None,
        monitor_id: None,
        metric_names: rules().metrics,
        found: found(files, Choice::Auto, None, false).unwrap(),
        out: PathBuf::from(out),
        overwrite: true,
        map: ColumnMap::default(),
        on_bad_file: OnBadFile::Fail,
        signals: None,
        calibration: None,
        rules: rules(),
        engine: EngineRequest {
            model: None,
            adjusted: Default::default(),
            device: "auto".into(),
            gpu_graph: Default::default(),
            precision: "auto".into(),
            threads,
            memory_limit: 2 << 30,
            cache: CacheChoice::Folder(PathBuf::from(cache)),
            cache_size: 1 << 30,
            loaded: None,
        },
        judge: None,
        targets: None,
        report: None,
        record: RequestRecord::default(),
    };
    let started = Instant::now();
    let (summary, _) = score(&request, &Progress::default()).unwrap();
    let seconds = started.elapsed().as_secs_f64();
    let continued = serde_json::json!(summary)["continued"].take();
    let told = serde_json::json!({
        "seconds": seconds, "of_cpu": cpu_seconds(), "peak": peak_memory(), "rows": summary.rows_read,
        "read_again": continued["traces_read_again"],
    });
    println!("{told}");
}

fn rules() -> Rules {
    let metrics = nightmill::metric::of_traces_alone();
    Rules {
        metrics: metrics.map(|metric| metric.name.to_owned()).collect(),
        thresholds: Default::default(),
        window: 3,
        weights: SignalWeights::default(),
        text_mode: TextMode::Compat,
        null_without_evidence: false,
        gates: Vec::new(),
    }
}

/// The most memory that this process has held, in mebibytes; 0 where the system doesn't tell.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kibibytes.unwrap_or(0u64) / 1024
}

/// What all threads of this process have computed; 0 where the system doesn't tell.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold spaces: user and system time, in hundredths.
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let times = fields
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok());
    times.sum::<f64>() / 100.0
}

/// The run of the median time of three.
fn median(mut run: impl FnMut() -> Ran) -> Ran {
    let mut runs = [run(), run(), run()];
    runs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let [_, middle, _] = runs;
    middle
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == ONE_RUN) {
        return one_run(&args[1..]);
    }
    let numbers: Vec<u64> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let number = |at: usize, default: u64| numbers.get(at).copied().unwrap_or(default);
    let (traces, nights, threads) = (number(0, 1_500_000), number(1, 30), number(2, 2));
    let folder = tempfile::tempdir().unwrap();
    let at = |name: String| folder.path().join(name);
    let (runs, cache) = (at("runs".into()), at("cache".into()));
    let pool = pool();
    let size = (traces / nights).max(TURNS);
    let start = |night: u64| night * size;
    let file = |night: u64| at(format!("night-{night:03}.parquet"));
    for night in 0..nights {
        let before = night.checked_sub(1).map(start);
        write_night(
            &file(night),
            &pool,
            (start(night), start(night + 1)),
            before,
        );
    }
    let new = (size * nights).div_ceil(20);
    let end = start(nights) + new;
    write_night(
        &file(nights),
        &pool,
        (start(nights), end),
        Some(start(nights - 1)),
    );
    let files: Vec<PathBuf> = (0..=nights).map(file).collect();

    println!("{traces} traces in {nights} nights, {new} new ones, {threads} threads");
    let out = |night: u64| runs.join(format!("{night:03}"));
    let line = |what: &str, ran: &Ran| {
        println!(
            "{what:<36} {:>8.2} s {:>7.2} s of CPU {:>9} rows read, {:>7} of earlier nights {:>6} MiB",
            ran.seconds, ran.of_cpu, ran.rows, ran.read_again, ran.peak
        );
    };
    let mut of_history = Vec::new();
    for night in 0..nights {
        let before = night.checked_sub(1).map(out);
        let files = [file(night)];
        of_history.push(ran(&files, &out(night), before.as_deref(), threads, &cache));
    }
    for (night, ran) in of_history
        .iter()
        .enumerate()
        .filter(|(night, _)| [1, of_history.len() - 1].contains(night))
    {
        line(&format!("night {} of the history", night + 1), ran);
    }
    let last = out(nights - 1);
    let night = median(|| {
        ran(
            &files[nights as usize..],
            &out(nights),
            Some(&last),
            threads,
            &cache,
        )
    });
    line("the night with 5 % new traces", &night);
    let alone = median(|| {
        ran(
            &files[nights as usize..],
            &at("alone".into()),
            None,
            threads,
            &cache,
        )
    });
    line("the new traces alone, no history", &alone);
    let whole = median(|| ran(&files, &at("whole".into()), None, threads, &cache));
    line("everything anew", &whole);
    let ratio = night.seconds / whole.seconds;
    println!(
        "a night takes {:.1} % of the time of everything, {:.1} % of its CPU time (goal: {:.0} %; medians of 3)",
        100.0 * ratio,
        100.0 * night.of_cpu / whole.of_cpu,
        100.0 * GOAL
    );
}
