//! How many tokens a second can the host hand to a device and write down? A device of no time at all stands in for a GPU: it
//! gives each text numbers that are made of its ids.
//!
//! Whatever is measured here is an upper bound of a run on a GPU, and no GPU can be faster than its host. Baselines: the
//! tokenizer alone, on as many threads; `embed` and `score` from Parquet files beside it.
//!
//! `cargo bench --bench feeder -- [TEXTS] [THREADS] [MILLISECONDS] [PARQUET COLUMN]`: generated texts of 100 tokens on average, or
//! those of a column; a device that takes so long for a slot shows what a host loses by waiting.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a failed test is a panic, and its output is for people"
)]

#[path = "made_texts/mod.rs"]
mod made_texts;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use made_texts::{texts, write};
use nightmill::encoder::cpu::Level;
use nightmill::encoder::{EncodeError, Encoder, Packed, Precision};
use nightmill::job::RequestRecord;
use nightmill::metric::{Rules, SignalWeights};
use nightmill::model::{Model, ModelFolder};
use nightmill::run::{
    CacheChoice, EmbedRequest, EngineRequest, Progress, ScoreRequest, embed, score,
};
use nightmill::text::TextMode;
use nightmill::trace::format::{Choice, found};
use nightmill::trace::{ColumnMap, OnBadFile};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// Takes slots of as many tokens as a GPU would, and no time of any core.
struct NoDevice {
    dim: usize,
    takes: Duration,
}

const SLOT: usize = 1 << 14;

impl Encoder for NoDevice {
    fn dim(&self) -> usize {
        self.dim
    }

    fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> Result<usize, EncodeError> {
        std::thread::sleep(self.takes);
        // Numbers that no compressor makes small.
        for span in batch.spans() {
            let mut state = batch.ids()[span]
                .iter()
                .fold(1u64, |all, id| all.wrapping_mul(31) + u64::from(*id));
            out.extend((0..self.dim).map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 40) as f32 / (1u64 << 28) as f32 - 0.03
            }));
        }
        Ok(0)
    }

    fn tokens_per_batch(&self) -> usize {
        SLOT
    }

    fn batches_at_once(&self) -> usize {
        2
    }

    fn has_threads_of_its_own(&self) -> bool {
        true
    }

    fn precision(&self) -> &'static str {
        "f32"
    }

    fn device(&self) -> String {
        "none".into()
    }
}

fn column(path: &Path, name: &str) -> Vec<String> {
    let file = std::fs::File::open(path).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .build()
        .unwrap();
    let mut all = Vec::new();
    for batch in reader {
        let batch = batch.unwrap();
        let column = batch.column_by_name(name).expect("the column");
        let column = arrow::compute::cast(column, &arrow::datatypes::DataType::Utf8).unwrap();
        all.extend(
            column
                .as_string::<i32>()
                .iter()
                .flatten()
                .map(str::to_owned),
        );
    }
    all
}

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let number =
        |at: usize, usual: usize| args.get(at).and_then(|a| a.parse().ok()).unwrap_or(usual);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (count, threads) = (number(0, 200_000), number(1, cores));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traces.parquet");
    let texts = match &args[..] {
        [_, _, _, file, name, ..] => column(Path::new(file), name),
        _ => texts(count),
    };
    write(&path, &texts);

    let model = Model::load(
        &ModelFolder::shipped().unwrap(),
        Level::choose().unwrap(),
        Precision::F32,
    );
    let mut model = model.unwrap();
    model.encoder = Box::new(NoDevice {
        dim: model.encoder.dim(),
        takes: Duration::from_millis(number(2, 0) as u64),
    });
    let model = Arc::new(model);

    let began = Instant::now();
    let tokens: usize = std::thread::scope(|scope| {
        let parts = texts.chunks(texts.len().div_ceil(threads));
        let parts: Vec<_> = parts
            .map(|part| {
                let tokenizer = &model.tokenizer;
                scope.spawn(move || -> usize {
                    part.iter()
                        .map(|text| tokenizer.ids(text).unwrap().len())
                        .sum()
                })
            })
            .collect();
        parts.into_iter().map(|part| part.join().unwrap()).sum()
    });
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} texts of {:.0} tokens, {threads} threads",
        texts.len(),
        tokens as f64 / texts.len() as f64
    );
    println!(
        "tokenizer alone: {:.2} M tokens/s",
        tokens as f64 / seconds / 1e6
    );

    let engine = EngineRequest {
        model: None,
        adjusted: Default::default(),
        device: "cpu".into(),
        gpu_graph: Default::default(),
        precision: "f32".into(),
        threads,
        memory_limit: 2 << 30,
        cache: CacheChoice::Off,
        cache_size: 0,
        loaded: Some(model),
    };
    for round in 0..3 {
        let began = Instant::now();
        let embedded = embed(&EmbedRequest {
            paths: vec![path.display().to_string()],
            columns: vec!["input".into(), "output".into()],
            out: folder.path().join("vectors.parquet"),
            overwrite: true,
            engine: engine.clone(),
        })
        .unwrap();
        report("embed", round, embedded.counts.tokens, began);
    }
    let rules = Rules {
        metrics: [
            "coherence",
            "loop_detection",
            "agent_reliability",
            "agent_consistency",
        ]
        .map(str::to_owned)
        .to_vec(),
        thresholds: Default::default(),
        window: 3,
        weights: SignalWeights::default(),
        text_mode: TextMode::Compat,
        null_without_evidence: false,
        gates: Vec::new(),
    };
    for round in 0..3 {
        let began = Instant::now();
        let out: PathBuf = folder.path().join("run");
        let request = ScoreRequest {
            continues: None,
            triage: None,
            exchange: None,
            buckets: None,
            resume: false,
            fail_on_drift: false,
            offline: true,
            name: None,
            monitor_id: None,
            metric_names: rules.metrics.clone(),
            found: found(&[path.display().to_string()], Choice::Auto, None, false).unwrap(),
            out,
            overwrite: true,
            map: ColumnMap::default(),
            on_bad_file: OnBadFile::Fail,
            signals: None,
            calibration: None,
            rules: rules.clone(),
            engine: engine.clone(),
            judge: None,
            targets: None,
            report: Some(nightmill::report::html),
            record: RequestRecord::default(),
        };
        let (summary, _) = score(&request, &Progress::default()).unwrap();
        report("score", round, summary.tokens, began);
    }
}

fn report(what: &str, round: usize, tokens: u64, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{what}, round {}: {:.2} M tokens/s, {seconds:.2} s",
        round + 1,
        tokens as f64 / seconds / 1e6
    );
}
