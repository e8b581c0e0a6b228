//! What does a card make of the packed graph? A line of JSON a part, as soon as it is known: ceilings of the card in this sitting,
//! each launch with its share of them, tokens a second at three lengths for four models, and whether vectors are right and
//! independent of their neighbours. A part that fails says so, and costs no other one.
//!
//! Baselines: the padded graph on the same card, and the card's own ceilings (a large product, a copy). Weights of the larger
//! shapes are random, and so are all ids: zeros would be quicker than anything real.
//!
//! `cargo bench --bench gpu --features bench-gpu -- [SECONDS]`; scripts/gpu-kit.sh packs it for a machine that builds nothing.
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

use std::sync::Arc;
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use nightmill::encoder::candle::{CandleDevice, CandleTransformer};
use nightmill::encoder::cpu::Level;
use nightmill::encoder::gpu::{CudaTransformer, HostLinear};
use nightmill::encoder::{
    EncodeError, Encoder, Layer, Mask, Packed, Pooling, Precision, TextHead, TransformerShape,
    TransformerWeights,
};
use nightmill::job::GpuGraph;
use nightmill::model::{Model, ModelFolder};
use nightmill::run::{CacheChoice, EmbedRequest, EngineRequest, embed};
use serde_json::{Value, json};

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn many(&mut self, count: usize, most: f32) -> Vec<f32> {
        let number = |bits: u64| ((bits >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * most;
        (0..count).map(|_| number(self.next())).collect()
    }
}

const VOCABULARY: usize = 30_522;

fn head() -> TextHead {
    TextHead {
        pooling: Pooling::Mean,
        pool_from: 0,
        keep: None,
        normalise: true,
    }
}

/// Random weights of this shape; `linear` puts a layer where it belongs.
fn weights<L>(
    shape: TransformerShape,
    layers: usize,
    linear: &dyn Fn(Vec<f32>, Vec<f32>) -> L,
) -> TransformerWeights<L> {
    let mut chance = Chance(88_172_645_463_325_252);
    let hidden = shape.hidden;
    let layers = (0..layers).map(|_| {
        let mut one = |inputs: usize, outputs: usize| {
            let most = 1.7 / (inputs as f32).sqrt();
            linear(
                chance.many(inputs * outputs, most),
                chance.many(outputs, 0.1),
            )
        };
        let norm = || (vec![1.0; hidden], vec![0.0; hidden]);
        Layer {
            query_key_value: one(hidden, 3 * hidden),
            head_norms: None,
            turn: None,
            mask: Mask::All,
            attention_output: one(hidden, hidden),
            attention_norm: Some(norm()),
            intermediate: one(hidden, 4 * hidden),
            output: one(4 * hidden, hidden),
            output_norm: norm(),
        }
    });
    let layers = layers.collect();
    TransformerWeights {
        words: chance.many(VOCABULARY * hidden, 1.0),
        positions: Some(chance.many(512 * hidden, 0.1)),
        embedding_norm: Some((vec![1.0; hidden], vec![0.0; hidden])),
        offset_bias: None,
        layers,
        last_norm: None,
        dense: Vec::new(),
    }
}

fn packed(shape: TransformerShape, layers: usize) -> Result<CudaTransformer, EncodeError> {
    let device = CandleDevice::cuda(0, false)?;
    let host = |weight, bias| HostLinear { weight, bias };
    let never = || {
        Err(EncodeError::Device(
            "random weights left the range of f16".into(),
        ))
    };
    let weights = weights(shape, layers, &host);
    CudaTransformer::new(&device, shape, weights, head(), usize::MAX, Arc::new(never))
}

fn padded(shape: TransformerShape, layers: usize) -> Result<CandleTransformer, EncodeError> {
    let device = CandleDevice::cuda(0, false)?;
    let place = |weight, bias| device.linear(weight, bias).expect("room for weights");
    let weights = weights(shape, layers, &place);
    CandleTransformer::new(device.clone(), shape, weights, head(), false, None)
}

/// As long as texts of real agents: many of a few words, some as long as can be.
fn length(chance: &mut Chance, kind: &str) -> usize {
    match kind {
        "real" => {
            let at = (chance.next() % 1000) as f64 / 1000.0;
            (4.0 * 64f64.powf(at)) as usize
        }
        fixed => fixed.parse().unwrap_or(128),
    }
}

fn texts(kind: &str, tokens: usize) -> Vec<Vec<u32>> {
    let mut chance = Chance(7_777_777_777);
    let (mut all, mut count) = (Vec::new(), 0);
    while count < tokens {
        let length = length(&mut chance, kind);
        count += length;
        all.push(
            (0..length)
                .map(|_| (chance.next() % VOCABULARY as u64) as u32)
                .collect(),
        );
    }
    all
}

/// Texts that nearly fill so many slots, and no more.
fn filling(kind: &str, slots: usize, tokens: usize) -> Vec<Vec<u32>> {
    texts(kind, slots * (tokens - 512))
}

fn pack(texts: &[Vec<u32>]) -> Packed {
    let mut packed = Packed::default();
    texts.iter().for_each(|text| assert!(packed.push(text)));
    packed
}

/// Median of three of tokens a second, each over at least so many seconds.
fn speed(encoder: &dyn Encoder, batch: &Packed, seconds: f64) -> f64 {
    let mut out = Vec::new();
    encoder.encode(batch, &mut out).unwrap();
    let mut found: Vec<f64> = (0..3)
        .map(|_| {
            let (began, mut tokens) = (Instant::now(), 0);
            while began.elapsed().as_secs_f64() < seconds {
                out.clear();
                encoder.encode(batch, &mut out).unwrap();
                tokens += batch.tokens();
            }
            tokens as f64 / began.elapsed().as_secs_f64()
        })
        .collect();
    found.sort_by(f64::total_cmp);
    found[1]
}

/// A large product in operations a second, and a copy in bytes a second, both ways counted.
fn ceilings() -> Result<(f64, f64), candle_core::Error> {
    let device = Device::new_cuda_with_stream(0)?;
    let many =
        |rows, columns| Tensor::randn(0f32, 1.0, (rows, columns), &device)?.to_dtype(DType::F16);
    let (a, b) = (many(8192, 8192)?, many(8192, 8192)?);
    let timed = |work: &dyn Fn() -> Result<Tensor, candle_core::Error>| {
        work()?;
        device.synchronize()?;
        let (began, mut times) = (Instant::now(), 0);
        while began.elapsed().as_secs_f64() < 1.0 {
            let all: Vec<Tensor> = (0..8).map(|_| work()).collect::<Result<_, _>>()?;
            device.synchronize()?;
            times += all.len();
        }
        Ok::<f64, candle_core::Error>(f64::from(times as u32) / began.elapsed().as_secs_f64())
    };
    let products = timed(&|| a.matmul(&b))?;
    let copies = timed(&|| a.copy())?;
    Ok((
        products * 2.0 * 8192f64.powi(3),
        copies * 2.0 * 2.0 * 8192f64.powi(2),
    ))
}

/// Whether texts have the same bits alone, among others, and in another order.
fn independent(encoder: &dyn Encoder) -> bool {
    let texts = texts("real", 40_000);
    let vectors = |texts: &[Vec<u32>]| {
        let mut out = Vec::new();
        encoder.encode(&pack(texts), &mut out).unwrap();
        let bits = out.chunks_exact(encoder.dim());
        bits.map(|v| v.iter().map(|x| x.to_bits()).collect())
            .collect::<Vec<Vec<u32>>>()
    };
    let together = vectors(&texts);
    let backwards: Vec<Vec<u32>> = texts.iter().rev().cloned().collect();
    let mut turned = vectors(&backwards);
    turned.reverse();
    let alone = texts.iter().take(60).zip(&together);
    turned == together
        && alone
            .into_iter()
            .all(|(text, bits)| vectors(std::slice::from_ref(text))[0] == *bits)
}

/// Mean and least cosine of the shipped model's vectors to those of the CPU at f32.
fn fidelity() -> (f64, f64) {
    let folder = ModelFolder::shipped().expect("a model inside");
    let exact = Model::load(&folder, Level::choose().unwrap(), Precision::F32).unwrap();
    let device = CandleDevice::cuda(0, false).unwrap();
    let fast = Model::load_on_devices(&folder, &[device], true).unwrap();
    let texts = texts("real", 20_000);
    let vectors = |model: &Model| {
        let mut out = Vec::new();
        model.encoder.encode(&pack(&texts), &mut out).unwrap();
        out
    };
    let (a, b, dim) = (vectors(&exact), vectors(&fast), exact.encoder.dim());
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(x, y)| f64::from(*x) * f64::from(*y))
            .sum()
    };
    let pairs = a.chunks_exact(dim).zip(b.chunks_exact(dim));
    let cosines: Vec<f64> = pairs
        .map(|(a, b)| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt())
        .collect();
    let mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
    let least = match mean.is_nan() {
        true => f64::NAN,
        false => cosines.into_iter().fold(1.0, f64::min),
    };
    (mean, least)
}

/// `embed` from a Parquet file into another with the shipped model, loaded before, median of three; what one lane alone makes
/// of texts as long, ids ready; and the share of the time in which an average lane was asked for something.
fn end_to_end(count: usize, seconds: f64) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traces.parquet");
    let texts = made_texts::texts(count);
    made_texts::write(&path, &texts);
    let shipped = ModelFolder::shipped().expect("a model inside");
    let devices = [CandleDevice::cuda(0, false).unwrap()];
    let model = Arc::new(Model::load_on_devices(&shipped, &devices, true).unwrap());
    let ids = texts.iter().take(20_000);
    let ids: Vec<Vec<u32>> = ids.map(|text| model.tokenizer.ids(text).unwrap()).collect();
    let alone = speed(model.encoder.as_ref(), &pack(&ids), seconds);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found: Vec<(f64, f64)> = (0..3)
        .map(|_| {
            let began = Instant::now();
            let embedded = embed(&EmbedRequest {
                paths: vec![path.display().to_string()],
                columns: vec!["input".into(), "output".into()],
                out: folder.path().join("vectors.parquet"),
                overwrite: true,
                engine: EngineRequest {
                    model: None,
                    adjusted: Default::default(),
                    device: "cuda".into(),
                    gpu_graph: GpuGraph::Packed,
                    precision: "f16".into(),
                    threads,
                    memory_limit: 4 << 30,
                    cache: CacheChoice::Off,
                    cache_size: 0,
                    loaded: Some(Arc::clone(&model)),
                },
            })
            .unwrap();
            let counts = embedded.counts;
            let rate = counts.tokens as f64 / began.elapsed().as_secs_f64();
            (rate, counts.encoding_seconds / counts.embed_seconds)
        })
        .collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (rate, asked) = found[1];
    json!({
        "tokens_per_second": rate.round(),
        "one_lane_alone_tokens_per_second": alone.round(),
        "share_of_one_lane_alone": rate / alone,
        "lanes_asked_share_of_time": asked,
        "threads": threads,
    })
}

/// What a part found, or how it failed, as a line.
fn part(name: &str, found: impl FnOnce() -> Value) -> Value {
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(found));
    let mut found = found.unwrap_or_else(|problem| {
        let said = problem.downcast_ref::<String>().cloned();
        let said = said.or_else(|| {
            problem
                .downcast_ref::<&str>()
                .map(|said| (*said).to_owned())
        });
        json!({"failed": said.unwrap_or_else(|| "for no reason that it gave".to_owned())})
    });
    found["part"] = name.into();
    println!("{found}");
    found
}

/// Speeds, launches and bits of a model of this shape; shares are of the card's ceilings.
fn model(
    name: &str,
    hidden: usize,
    layers: usize,
    brief: bool,
    seconds: f64,
    card: &Value,
) -> Value {
    let heads = if hidden == 384 { 12 } else { hidden / 64 };
    let shape = TransformerShape::of_bert(hidden, heads, VOCABULARY, 512);
    let encoder = packed(shape, layers).unwrap();
    let tokens = encoder.slot_tokens();
    let lengths: Vec<Value> = ["real", "128", "256"]
        .into_iter()
        .map(|kind| {
            let rate = speed(&encoder, &pack(&filling(kind, 4, tokens)), seconds);
            json!({"length": kind, "tokens_per_second": rate.round()})
        })
        .collect();
    let inputs = filling("real", 1, tokens);
    let inputs: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
    let share = |rate: f64, ceiling: &str| Some(rate / 1e12 / card[ceiling].as_f64()?);
    let launches: Vec<Value> = encoder
        .measure(&inputs, if brief { 1 } else { 5 })
        .unwrap()
        .into_iter()
        .map(|step| {
            json!({
                "step": format!("{:?}", step.step),
                "microseconds": (step.seconds * 1e7).round() / 10.0,
                "bytes": step.bytes,
                "operations": step.operations,
                "share_of_copy": share(step.bytes as f64 / step.seconds, "copy_terabytes_per_second"),
                "share_of_product": share(step.operations as f64 / step.seconds, "product_tflops"),
            })
        })
        .collect();
    let is_independent = independent(&encoder);
    let device = encoder.device();
    drop(encoder);
    let before = padded(shape, layers).unwrap();
    let before = speed(&before, &pack(&filling("real", 8, tokens)), seconds);
    let mut found = json!({
        "model": name,
        "device": device,
        "lengths": lengths,
        "padded_tokens_per_second": before.round(),
        "same_bits_whatever_stands_beside": is_independent,
        "launches": launches,
    });
    if !is_independent {
        found["failed"] = "a vector depends on what stands beside its text".into();
    }
    found
}

fn main() {
    let brief = std::env::args().any(|argument| argument == "brief");
    let seconds = std::env::args()
        .skip(1)
        .find_map(|a| a.parse().ok())
        .unwrap_or(2.0);
    let card = part("card", || {
        let kind = CandleDevice::cuda(0, false).unwrap().kind().to_owned();
        // Brief is for sanitizers, under which everything takes a hundred times as long.
        if brief {
            return json!({"card": kind});
        }
        let (operations, bytes) = ceilings().unwrap();
        json!({
            "card": kind,
            "product_tflops": operations / 1e12,
            "copy_terabytes_per_second": bytes / 1e12,
        })
    });
    let mut found = vec![part("cosine_to_cpu_f32", || {
        let (mean, least) = fidelity();
        let mut found = json!({"mean": mean, "least": least});
        if !(mean >= 0.9999 && least >= 0.9995) {
            found["failed"] = "too far from the CPU at f32".into();
        }
        found
    })];
    for (name, hidden, layers) in [
        ("as all-MiniLM-L6", 384, 6),
        ("as bge-small", 384, 12),
        ("as bge-base", 768, 12),
        ("as bge-large", 1024, 24),
    ] {
        if brief && layers > 6 {
            continue;
        }
        found.push(part("model", || {
            model(name, hidden, layers, brief, seconds, &card)
        }));
        if layers == 6 {
            found.push(part("parquet_to_parquet", || {
                end_to_end(if brief { 2000 } else { 400_000 }, seconds)
            }));
        }
    }
    found.push(card);
    if found.iter().any(|found| found.get("failed").is_some()) {
        std::process::exit(1);
    }
}
