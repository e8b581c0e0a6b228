//! How close is the encoder to what the instructions of this machine allow?
//!
//! First the ceiling: dot products on registers alone, on as many threads as the encoder has. Then the
//! shipped model on texts of one length at a time: tokens a second, operations a second (linear layers and
//! attention, two for each product), and their share of the ceiling. Last where the time goes, stage by stage, on
//! one thread, each stage alone; and what the encoder holds in memory beside its weights.
//!
//! `cargo bench --bench roofline -- [THREADS]`
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed bench is a panic, and its output is for people"
)]

use std::time::Instant;

use nightmill::encoder::cpu::{Level, ceiling, stages};
use nightmill::encoder::{Packed, Precision, TransformerShape};
use nightmill::model::{Model, ModelFolder};

/// Of the shipped model: layers, components of a token, of the layer between.
const SHAPE: (usize, usize, usize) = (6, 384, 1536);

/// Runs `work` on every thread for about `seconds`; the sum of what each says it did, per second.
fn on_threads(threads: usize, seconds: f64, work: impl Fn() -> f64 + Sync) -> f64 {
    let started = Instant::now();
    let done: f64 = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut done = 0.0;
                    while started.elapsed().as_secs_f64() < seconds {
                        done += work();
                    }
                    done
                })
            })
            .collect();
        running.into_iter().map(|t| t.join().unwrap()).sum()
    });
    done / started.elapsed().as_secs_f64()
}

fn main() {
    let threads = std::env::args()
        .skip(1)
        .find_map(|a| a.parse().ok())
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let level = Level::choose().unwrap();
    let folder = ModelFolder::shipped().unwrap();
    println!("level {}, {threads} threads", level.name());
    for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
        let most = ceiling(level, precision, 0.01).map(|_| {
            std::thread::scope(|scope| {
                let running: Vec<_> = (0..threads)
                    .map(|_| scope.spawn(|| ceiling(level, precision, 1.0).unwrap()))
                    .collect();
                running.into_iter().map(|t| t.join().unwrap()).sum::<f64>()
            })
        });
        match most {
            Some(most) => println!("{}: ceiling {:.0} Gop/s", precision.name(), most / 1e9),
            None => println!("{}: no ceiling is measured at this level", precision.name()),
        }
        let loading = Instant::now();
        let model = Model::load(&folder, level, precision).unwrap();
        let loaded = loading.elapsed();
        let mut out = Vec::new();
        let mut first = Packed::default();
        first.push(&model.tokenizer.ids("The first vector.").unwrap());
        model.encoder.encode(&first, &mut out).unwrap();
        println!(
            "  load {:.0} ms, first vector after {:.0} ms",
            loaded.as_secs_f64() * 1e3,
            loading.elapsed().as_secs_f64() * 1e3
        );
        let (layers, hidden, wide) = SHAPE;
        let tokens_per_batch = model.encoder.tokens_per_batch();
        let before = resident();
        for length in [16, 64, 128, 256] {
            let mut batch = Packed::default();
            for text in 0..tokens_per_batch / length {
                let ids: Vec<u32> = (0..length).map(|i| (2000 + i * 7 + text) as u32).collect();
                batch.push(&ids);
            }
            let tokens = on_threads(threads, 2.0, || {
                model.encoder.encode(&batch, &mut Vec::new()).unwrap();
                batch.tokens() as f64
            });
            let per_token = layers * (2 * hidden * (4 * hidden + 2 * wide) + 4 * length * hidden);
            let operations = tokens * per_token as f64;
            let share = most.map_or_else(String::new, |most| {
                format!(", {:.0} % of the ceiling", 100.0 * operations / most)
            });
            println!(
                "  {length:>3} tokens a text: {tokens:>7.0} tokens/s, {:>4.0} Gop/s{share}",
                operations / 1e9
            );
        }
        if let (Some(before), Some(after)) = (before, resident()) {
            println!(
                "  memory beside model and weights after this: {} MB",
                after.saturating_sub(before) >> 20
            );
        }
        print_stages(level, precision, &model);
    }
}

/// Bytes of memory that this process holds, where the system says so.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

fn print_stages(level: Level, precision: Precision, model: &Model) {
    let (layers, hidden, wide) = SHAPE;
    let shape = TransformerShape::of_bert(hidden, 12, 1, 512);
    let word = "tokens ";
    let text = word.repeat(128);
    let started = Instant::now();
    let mut tokens = 0;
    while started.elapsed().as_secs_f64() < 0.5 {
        tokens += model.tokenizer.ids(&text).unwrap().len();
    }
    let tokenising = started.elapsed().as_secs_f64() / tokens as f64;
    for length in [16, 128, 256] {
        let batch = (model.encoder.tokens_per_batch() / length, length);
        let mut rows = vec![("tokenising", tokenising)];
        for stage in stages(level, precision, shape, wide, batch, 0.3) {
            let times = if stage.every_layer { layers } else { 1 };
            rows.push((stage.name, stage.seconds * times as f64));
        }
        let whole: f64 = rows.iter().map(|(_, seconds)| seconds).sum();
        let shares: Vec<String> = rows
            .iter()
            .map(|(name, seconds)| format!("{name} {:.1} %", 100.0 * seconds / whole))
            .collect();
        println!(
            "  {length:>3} tokens a text, {:.1} µs a token on one thread: {}",
            whole * 1e6,
            shares.join(", ")
        );
    }
}
