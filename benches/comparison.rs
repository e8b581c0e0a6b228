//! How many rows a second do the metrics that compare an output with an expected text take?
//!
//! Three kinds of texts of about 500 characters, made with a fixed seed: prose, JSON and Markdown. An expected text
//! differs from its output in a part of its words and values. First the SQL functions over Arrow batches, each alone
//! and one after the other; then the whole program, from a Parquet file to the run directory.
//!
//! `cargo bench --bench comparison -- [ROWS] [THREADS]`
//!
//! The time of the processor is counted too, since other programs may take a part of the cores: rows a second of it,
//! times the threads, is what an idle machine with so many cores gives.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a failed test is a panic, and its output is for people"
)]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use arrow::array::{
    ArrayRef, RecordBatch, StringArray, StringViewArray, TimestampMicrosecondArray,
};
use datafusion::datasource::MemTable;
use nightmill::engine::{EngineOptions, engine_session};
use nightmill::metric::SignalWeights;
use nightmill::text::TextMode;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

/// Pairs of texts that differ; they repeat from there on.
const DISTINCT: usize = 20_000;
const CHARACTERS: usize = 500;
const BATCH: usize = 8192;

static WORDS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    "the order refund parcel was late and invoice shoe blue your account login reset mail card we will send it to \
     address within three days please confirm that good however therefore maybe delivery customer support number is a \
     very important"
        .split(' ')
        .collect()
});

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }
}

/// Text after text of a kind. `facts` decides what they are about, and is the same for both texts of a pair; `own`
/// changes a part of it.
type Kind = fn(facts: &mut Random, own: &mut Random) -> String;

fn word(facts: &mut Random, own: &mut Random) -> &'static str {
    let (shared, changed) = (facts.word(), own.word());
    if own.below(4) == 0 { changed } else { shared }
}

fn sentence(facts: &mut Random, own: &mut Random, out: &mut String) {
    for at in 0..6 + facts.below(9) {
        let word = word(facts, own);
        match at {
            0 => out.push_str(&(word[..1].to_uppercase() + &word[1..])),
            _ => {
                out.push(' ');
                out.push_str(word);
            }
        }
    }
    out.push('.');
}

fn prose(facts: &mut Random, own: &mut Random) -> String {
    let mut text = String::new();
    while text.len() < CHARACTERS - 40 {
        sentence(facts, own, &mut text);
        text.push(' ');
    }
    text.truncate(text.trim_end().len());
    text
}

fn number(facts: &mut Random, own: &mut Random, bound: usize) -> usize {
    let (shared, changed) = (facts.below(bound), own.below(bound));
    if own.below(8) == 0 { changed } else { shared }
}

fn json(facts: &mut Random, own: &mut Random) -> String {
    let mut text = format!(
        "{{\"order_id\": \"A-{}\", \"customer\": {{\"name\": \"{} {}\", \"email\": \"{}@example.com\", \"vip\": {}}}, \"items\": [",
        number(facts, own, 100_000),
        word(facts, own),
        word(facts, own),
        word(facts, own),
        number(facts, own, 2) == 0,
    );
    let mut more = "";
    while text.len() < CHARACTERS - 110 {
        write!(
            text,
            "{more}{{\"sku\": \"{}-{}\", \"qty\": {}, \"price\": {}.{:02}, \"tags\": [\"{}\", \"{}\"]}}",
            word(facts, own),
            number(facts, own, 1000),
            number(facts, own, 9),
            number(facts, own, 200),
            number(facts, own, 100),
            word(facts, own),
            word(facts, own),
        )
        .unwrap();
        more = ", ";
    }
    write!(
        text,
        "], \"note\": \"{} {} {} {}\", \"total\": {}, \"paid\": null}}",
        word(facts, own),
        word(facts, own),
        word(facts, own),
        word(facts, own),
        number(facts, own, 2000),
    )
    .unwrap();
    text
}

fn markdown(facts: &mut Random, own: &mut Random) -> String {
    let mut text = format!("# {} {}\n\n", word(facts, own), word(facts, own));
    while text.len() < CHARACTERS - 120 {
        sentence(facts, own, &mut text);
        write!(text, "\n\n## {}\n\n", word(facts, own)).unwrap();
        for _ in 0..2 + facts.below(3) {
            writeln!(
                text,
                "- **{}**: {} {}",
                word(facts, own),
                word(facts, own),
                word(facts, own)
            )
            .unwrap();
        }
        text.push('\n');
    }
    sentence(facts, own, &mut text);
    text
}

const KINDS: [(&str, Kind); 3] = [("prose", prose), ("JSON", json), ("Markdown", markdown)];

fn pairs(kind: Kind, count: usize) -> Vec<[String; 2]> {
    let one = |row: usize, side: u64| {
        let (row, seed) = (row as u64, 0x9e37_79b9_7f4a_7c15_u64);
        let mut facts = Random(row.wrapping_mul(seed));
        let mut own =
            Random(row.wrapping_mul(seed) ^ (side + 1).wrapping_mul(0xd1b5_4a32_d192_ed03));
        kind(&mut facts, &mut own)
    };
    (0..count).map(|row| [one(row, 0), one(row, 1)]).collect()
}

/// Seconds of the processor that this process and its children took.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    (12..16).filter_map(ticks).sum::<f64>() / 100.0
}

/// Runs it three times and prints the middle one.
fn report(what: &str, rows: usize, threads: usize, rounds: usize, mut run: impl FnMut()) {
    let mut times: Vec<(f64, f64)> = (0..rounds)
        .map(|_| {
            let (begin, processor) = (Instant::now(), processor_seconds());
            run();
            (
                begin.elapsed().as_secs_f64(),
                processor_seconds() - processor,
            )
        })
        .collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (seconds, _) = times[times.len() / 2];
    times.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (_, processor) = times[times.len() / 2];
    println!(
        "{what:<36} {:>9.0} rows/s  {:>9.0} by processor time  ({seconds:.2} s, median of {rounds})",
        rows as f64 / seconds,
        rows as f64 / processor * threads as f64,
    );
}

fn functions(texts: &[[String; 2]], rows: usize, threads: usize, name: &str) {
    let batches: Vec<RecordBatch> = texts
        .chunks(BATCH)
        .map(|texts| {
            let column = |side: usize| -> ArrayRef {
                Arc::new(
                    texts
                        .iter()
                        .map(|pair| Some(&*pair[side]))
                        .collect::<StringViewArray>(),
                )
            };
            RecordBatch::try_from_iter([("output", column(0)), ("expected", column(1))]).unwrap()
        })
        .collect();
    let mut partitions = vec![Vec::new(); threads];
    let mut left = rows;
    for (at, batch) in batches.iter().cycle().enumerate() {
        let count = batch.num_rows().min(left);
        partitions[at % threads].push(batch.slice(0, count));
        left -= count;
        if left == 0 {
            break;
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let context = engine_session(&EngineOptions {
        threads,
        memory: 256 << 20,
        spill_folder: folder.path().to_owned(),
        embedding: None,
        triage: None,
        window: 3,
        weights: SignalWeights::default(),
        text_mode: TextMode::Compat,
    })
    .unwrap();
    let table = MemTable::try_new(batches[0].schema(), partitions).unwrap();
    context.register_table("texts", Arc::new(table)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .build()
        .unwrap();
    for (what, sql) in [
        (
            "factuality",
            "SELECT sum(factuality(output, expected)) FROM texts",
        ),
        ("format", "SELECT sum(format(output, expected)) FROM texts"),
        ("tone", "SELECT sum(tone(output, expected)) FROM texts"),
        (
            "one after the other",
            "SELECT sum(factuality(output, expected)), sum(format(output, expected)), sum(tone(output, expected)) FROM texts",
        ),
    ] {
        report(&format!("{name}: {what}"), rows, threads, 3, || {
            runtime.block_on(async { context.sql(sql).await.unwrap().collect().await.unwrap() });
        });
    }
}

fn write_traces(path: &Path, texts: &[[String; 2]], rows: usize) {
    let mut writer: Option<ArrowWriter<std::fs::File>> = None;
    let all: Vec<usize> = (0..rows).collect();
    for chunk in all.chunks(DISTINCT) {
        let column = |of: &dyn Fn(usize) -> String| -> ArrayRef {
            Arc::new(
                chunk
                    .iter()
                    .map(|row| Some(of(*row)))
                    .collect::<StringArray>(),
            )
        };
        let times: TimestampMicrosecondArray = chunk
            .iter()
            .map(|row| Some(*row as i64 * 1_000_000))
            .collect();
        let batch = RecordBatch::try_from_iter([
            (
                "trace_id",
                column(&|row| format!("{:032x}", row * 7919 + 12345)),
            ),
            (
                "session_id",
                column(&|row| format!("session-{:09}", row / 6)),
            ),
            (
                "started_at",
                Arc::new(times.with_timezone("UTC")) as ArrayRef,
            ),
            ("output", column(&|row| texts[row % texts.len()][0].clone())),
            (
                "expected",
                column(&|row| texts[row % texts.len()][1].clone()),
            ),
        ])
        .unwrap();
        // Real texts rarely repeat, so that a dictionary would make reading too cheap.
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .build();
        let writer = writer.get_or_insert_with(|| {
            let file = std::fs::File::create(path).unwrap();
            ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap()
        });
        writer.write(&batch).unwrap();
        writer.flush().unwrap();
    }
    writer.unwrap().close().unwrap();
}

fn program(texts: &[[String; 2]], rows: usize, threads: usize, name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traces.parquet");
    write_traces(&path, texts, rows);
    report(
        &format!("{name}: nightmill score"),
        rows,
        threads,
        1,
        || {
            let ran = std::process::Command::new(env!("CARGO_BIN_EXE_nightmill"))
                .arg("score")
                .arg(&path)
                .args([
                    "--metrics",
                    "factuality,format,tone",
                    "--overwrite",
                    "--threads",
                ])
                .arg(threads.to_string())
                .arg("--out")
                .arg(folder.path().join("run"))
                .output()
                .unwrap();
            assert!(ran.status.success(), "{ran:?}");
        },
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let mut argument = |usual: usize| arguments.next().map_or(usual, |a| a.parse().unwrap());
    let rows = argument(1_000_000);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = argument(cores);
    println!("{rows} rows, {threads} threads");
    for (name, kind) in KINDS {
        let texts = pairs(kind, DISTINCT.min(rows));
        let characters: usize = texts.iter().flatten().map(String::len).sum();
        println!("{name}: {} characters a text", characters / texts.len() / 2);
        functions(&texts, rows, threads, name);
        program(&texts, rows, threads, name);
    }
}
