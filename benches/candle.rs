//! How much faster is the packed encoder than candle-transformers' BERT on the same CPU?
//!
//! Both get the same token ids: texts cut at the model's limit, longest first. candle-transformers gets batches of 16,
//! padded to their longest text, and its vectors are pooled with tensors; it uses all cores by itself. The packed
//! encoder gets packed batches on as many threads. Rounds take turns; printed are medians and their ratio.
//!
//! `cargo bench --bench candle --features bench-candle -- TEXTS MODEL [ROUNDS] [SHARE]`: a file with one JSON string a line, a
//! model folder with f32 weights, and which share of the texts to take (every SHAREth).
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed bench is a panic, and its output is for people"
)]

use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use nightmill::encoder::cpu::Level;
use nightmill::encoder::{Encoder, Packed, Precision};
use nightmill::model::{Model, ModelFolder};

const BATCH: usize = 16;

fn candle(model: &BertModel, texts: &[Vec<u32>]) -> Vec<Vec<f32>> {
    let mut out = Vec::new();
    for batch in texts.chunks(BATCH) {
        let (count, longest) = (batch.len(), batch.iter().map(Vec::len).max().unwrap());
        let (mut ids, mut mask) = (vec![0u32; count * longest], vec![0u32; count * longest]);
        for (at, text) in batch.iter().enumerate() {
            ids[at * longest..][..text.len()].copy_from_slice(text);
            mask[at * longest..][..text.len()].fill(1);
        }
        let ids = Tensor::from_vec(ids, (count, longest), &Device::Cpu).unwrap();
        let mask = Tensor::from_vec(mask, (count, longest), &Device::Cpu).unwrap();
        let types = ids.zeros_like().unwrap();
        let hidden = model.forward(&ids, &types, Some(&mask)).unwrap();
        let mask = mask.to_dtype(DType::F32).unwrap().unsqueeze(2).unwrap();
        let sum = hidden.broadcast_mul(&mask).unwrap().sum(1).unwrap();
        let mean = sum.broadcast_div(&mask.sum(1).unwrap()).unwrap();
        let length = mean.sqr().unwrap().sum_keepdim(1).unwrap().sqrt().unwrap();
        out.extend(
            mean.broadcast_div(&length)
                .unwrap()
                .to_vec2::<f32>()
                .unwrap(),
        );
    }
    out
}

fn packed(encoder: &dyn Encoder, texts: &[Vec<u32>], threads: usize) -> Vec<Vec<f32>> {
    let mut batches = vec![Packed::default()];
    for text in texts {
        let full = batches.last().unwrap().tokens() + text.len() > encoder.tokens_per_batch();
        if full && batches.last().unwrap().texts() > 0 {
            batches.push(Packed::default());
        }
        batches.last_mut().unwrap().push(text);
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let mut done: Vec<(usize, Vec<f32>)> = std::thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let Some(batch) = batches.get(at) else {
                    return done;
                };
                let mut out = Vec::new();
                encoder.encode(batch, &mut out).unwrap();
                done.push((at, out));
            }
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect()
    });
    done.sort_by_key(|(at, _)| *at);
    let all: Vec<f32> = done.into_iter().flat_map(|(_, out)| out).collect();
    all.chunks(encoder.dim()).map(<[f32]>::to_vec).collect()
}

fn median(mut speeds: Vec<f64>) -> f64 {
    speeds.sort_by(f64::total_cmp);
    speeds[speeds.len() / 2]
}

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let [file, folder, ..] = &args[..] else {
        println!(
            "usage: cargo bench --bench candle --features bench-candle -- TEXTS MODEL [ROUNDS] [SHARE]"
        );
        return;
    };
    let number = |at: usize, default: usize| args.get(at).map_or(default, |n| n.parse().unwrap());
    let (rounds, share) = (number(2, 5), number(3, 1));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let models = ModelFolder::open(folder.as_ref()).unwrap();
    let level = Level::choose().unwrap();
    let precisions = [Precision::F32, Precision::Bf16, Precision::Int8];
    let ours = precisions.map(|p| Model::load(&models, level, p).unwrap());
    let lines = std::fs::read_to_string(file).unwrap();
    let mut texts: Vec<Vec<u32>> = lines
        .lines()
        .step_by(share)
        .map(|line| serde_json::from_str::<String>(line).unwrap())
        .map(|text| ours[0].tokenizer.ids(&text).unwrap())
        .collect();
    texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    let tokens = texts.iter().map(Vec::len).sum::<usize>() as f64;

    let config = std::fs::read_to_string(format!("{folder}/config.json")).unwrap();
    let config: Config = serde_json::from_str(&config).unwrap();
    let weights = std::fs::read(format!("{folder}/model.safetensors")).unwrap();
    let weights = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu).unwrap();
    let theirs = BertModel::load(weights, &config).unwrap();

    let mut speeds = vec![Vec::new(); 4];
    let mut exact = Vec::new();
    for _ in 0..rounds {
        let started = Instant::now();
        exact = candle(&theirs, &texts);
        speeds[0].push(tokens / started.elapsed().as_secs_f64());
        for (model, speeds) in ours.iter().zip(&mut speeds[1..]) {
            let started = Instant::now();
            packed(model.encoder.as_ref(), &texts, threads);
            speeds.push(tokens / started.elapsed().as_secs_f64());
        }
    }
    let base = median(speeds[0].clone());
    println!(
        "{} texts, {tokens} tokens, {threads} threads, {rounds} rounds",
        texts.len()
    );
    println!("candle-transformers f32: {base:.0} tokens/s");
    for (model, speeds) in ours.iter().zip(&speeds[1..]) {
        let got = packed(model.encoder.as_ref(), &texts, threads);
        let cosine = |(a, b): (&Vec<f32>, &Vec<f32>)| -> f64 {
            a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum()
        };
        let least = exact.iter().zip(&got).map(cosine).fold(1.0, f64::min);
        let speed = median(speeds.clone());
        println!(
            "nightmill {} ({}): {speed:.0} tokens/s, {:.1} times as fast; least cosine {least:.6}",
            model.encoder.precision(),
            level.name(),
            speed / base
        );
    }
}
