//! One lane of the packed graph on a CUDA device: weights, one slot, and a captured graph of all launches.
#![allow(
    unsafe_code,
    reason = "kernels are launched with pointers of the device; every buffer is owned here, and made once with its full size"
)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::cuda_backend::cudarc::driver::sys::{
    CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode,
};
use candle_core::cuda_backend::cudarc::driver::{
    CudaFunction, CudaGraph, CudaSlice, CudaStream, DevicePtr, DeviceRepr, LaunchConfig,
    PinnedHostSlice, PushKernelArg,
};
use candle_core::cuda_backend::cudarc::nvrtc::Ptx;
use candle_core::{DType, Storage, Tensor};
use half::f16;

use super::exact::{Exact, again_at_f32};
use super::plan::{Buffer, NormOf, Plan, ProductOf, Step};
use super::products::{Product, ProductShape, Products, version};
use super::slot::{Slot, TILE};
use crate::block::Turns;
use crate::candle::CandleDevice;
use crate::{
    Activation, EncodeError, Encoder, Layer, Mask, Norm, NormKind, Packed, Pooling, TextHead,
    TransformerShape, TransformerWeights, Turn, check,
};

/// Kernels for the architectures that `build.rs` names.
const KERNELS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.fatbin"));

/// Threads of a block, and warps of it, in every kernel.
const THREADS: u32 = 128;
const WARPS: usize = 4;

/// Tokens of a slot: products of so many rows are as quick a row as any, and a slot takes a few milliseconds.
const TOKENS: usize = 1 << 14;

/// Part of the key of kept vectors, beside what is in the name of the device.
const REVISION: u32 = 1;

/// A linear layer as it is stored.
#[derive(Clone, Debug)]
pub struct HostLinear {
    /// (outputs, inputs)
    pub weight: Vec<f32>,
    /// (outputs)
    pub bias: Vec<f32>,
}

fn failed(error: impl std::fmt::Display) -> EncodeError {
    EncodeError::Device(error.to_string())
}

/// Pointers to the parts of a slot on the device, as kernels take them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct SlotArgument([u64; 5]);

// SAFETY: five pointers of 64 bits, as `Slot` in kernels.cu.
unsafe impl DeviceRepr for SlotArgument {}

/// A tensor of the device, and where it is.
#[derive(Debug)]
struct Held {
    pointer: u64,
    /// Keeps the memory.
    _tensor: Tensor,
}

/// A norm's gain and bias; the bias is 0 where there is none.
type HeldNorm = (Held, Option<Held>);

/// What a layer has on the device beside its products.
#[derive(Debug)]
struct HeldLayer {
    attention_norm: Option<HeldNorm>,
    output_norm: HeldNorm,
    head_norms: Option<(Held, Held)>,
    turn: Option<usize>,
    mask: Mask,
}

/// Functions of kernels.cu.
#[derive(Debug)]
struct Kernels {
    embed: CudaFunction,
    norm: CudaFunction,
    turn: CudaFunction,
    attend: CudaFunction,
    activate: CudaFunction,
    pool: CudaFunction,
}

/// Everything of a lane that lives on the device. One call at a time.
struct OnDevice {
    stream: Arc<CudaStream>,
    products: Products,
    kernels: Kernels,
    /// By the number of their step.
    planned: HashMap<usize, (Product, Held)>,
    /// Biases of products.
    _biases: Vec<Held>,
    buffers: HashMap<Buffer, Held>,
    words: Held,
    positions: Option<Held>,
    embedding_norm: Option<HeldNorm>,
    last_norm: Option<HeldNorm>,
    offsets: Option<Held>,
    turns: Vec<(Turn, Held, Held)>,
    layers: Vec<HeldLayer>,
    slot_memory: CudaSlice<u32>,
    /// 0, 1, 2 … as first tokens, where each text is one row.
    rows_of_texts: Held,
    vectors: CudaSlice<f32>,
    host_slot: PinnedHostSlice<u32>,
    host_vectors: PinnedHostSlice<f32>,
    graph: Option<CudaGraph>,
}

// SAFETY: handles of a context that every call binds to its thread; `CudaTransformer` lets one thread in at a time.
unsafe impl Send for OnDevice {}

/// What all passes of a lane have in common.
struct Pass {
    plan: Plan,
    slot: Slot,
    shape: TransformerShape,
    head: TextHead,
    dim: usize,
}

/// A launch of a pass, measured.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredStep {
    /// What is launched.
    pub step: Step,
    /// Seconds on the device.
    pub seconds: f64,
    /// Bytes that it reads and writes beside weights, see [`Plan::bytes_a_token`].
    pub bytes: usize,
    /// Operations, see [`Plan::operations_a_token`].
    pub operations: usize,
}

/// A transformer sentence encoder as a packed graph on a CUDA device, at f16. Compiled and emulated; not yet measured.
pub struct CudaTransformer {
    pass: Pass,
    name: String,
    exact: Exact,
    device: Mutex<OnDevice>,
}

impl std::fmt::Debug for CudaTransformer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaTransformer")
            .field("name", &self.name)
            .field("shape", &self.pass.shape)
            .finish_non_exhaustive()
    }
}

/// Puts things on a device.
struct Place<'d> {
    device: &'d CandleDevice,
    stream: &'d Arc<CudaStream>,
}

impl Place<'_> {
    fn held(&self, tensor: Tensor) -> Result<Held, EncodeError> {
        let pointer = {
            let (storage, _) = tensor.storage_and_layout();
            let Storage::Cuda(storage) = &*storage else {
                return Err(failed("a tensor is not on the device"));
            };
            match tensor.dtype() {
                DType::F16 => {
                    let slice = storage.as_cuda_slice::<f16>().map_err(failed)?;
                    slice.device_ptr(self.stream).0
                }
                DType::F32 => {
                    let slice = storage.as_cuda_slice::<f32>().map_err(failed)?;
                    slice.device_ptr(self.stream).0
                }
                _ => {
                    let slice = storage.as_cuda_slice::<u32>().map_err(failed)?;
                    slice.device_ptr(self.stream).0
                }
            }
        };
        Ok(Held {
            pointer,
            _tensor: tensor,
        })
    }

    fn put(&self, values: Vec<f32>, dtype: DType) -> Result<Held, EncodeError> {
        let count = values.len();
        let device = &self.device.device;
        let tensor = Tensor::from_vec(values, count, device).and_then(|x| x.to_dtype(dtype));
        self.held(tensor.map_err(failed)?)
    }

    fn half(&self, values: Vec<f32>) -> Result<Held, EncodeError> {
        self.put(values, DType::F16)
    }

    fn norm(&self, (gain, bias): Norm) -> Result<HeldNorm, EncodeError> {
        let bias = (!bias.is_empty()).then(|| self.half(bias));
        Ok((self.half(gain)?, bias.transpose()?))
    }

    /// Rows for a slot and one tile behind it, which attention reads and nobody uses; zeros.
    fn rows(&self, rows: usize, width: usize) -> Result<Held, EncodeError> {
        let tensor = Tensor::zeros((rows + TILE, width), DType::F16, &self.device.device);
        self.held(tensor.map_err(failed)?)
    }
}

/// The functions of kernels.cu, for heads of this size.
fn kernels(stream: &Arc<CudaStream>, head_size: usize) -> Result<Kernels, EncodeError> {
    let module = stream
        .context()
        .load_module(Ptx::from_binary(KERNELS.to_vec()));
    let module = module.map_err(failed)?;
    let function = |name: &str| module.load_function(name).map_err(failed);
    Ok(Kernels {
        embed: function("embed_tokens")?,
        norm: function("norm_rows")?,
        turn: function("turn_heads")?,
        attend: function(&format!("attend_{head_size}"))?,
        activate: function("activate_rows")?,
        pool: function("pool_texts")?,
    })
}

impl CudaTransformer {
    /// A lane for this model; `exact` makes an encoder at f32 when it is needed.
    ///
    /// # Errors
    /// [`EncodeError::Device`] if there are no kernels for heads of this size or for the device, or if it has no room. Where
    /// the memory is short, smaller slots are tried first.
    pub fn new(
        device: &CandleDevice,
        shape: TransformerShape,
        weights: TransformerWeights<HostLinear>,
        head: TextHead,
        exact: Exact,
    ) -> Result<Self, EncodeError> {
        if ![32, 64, 128].contains(&shape.head_size) || !shape.hidden.is_multiple_of(8) {
            return Err(failed(format!(
                "the packed graph has heads of 32, 64 and 128 components, and this model has {}",
                shape.head_size
            )));
        }
        let cuda = device.device.as_cuda_device().map_err(failed)?;
        let stream = cuda.cuda_stream();
        let outputs = |linear: &HostLinear| linear.bias.len();
        let whole = weights
            .dense
            .last()
            .map_or(shape.hidden, |(l, _)| outputs(l));
        let mut pass = Pass {
            plan: Plan::of(shape, &weights, outputs, true),
            slot: Slot::of(TOKENS.max(shape.positions)),
            shape,
            dim: head.keep.map_or(whole, |keep| keep.min(whole)),
            head,
        };
        loop {
            match OnDevice::new(device, &stream, &weights, &pass) {
                Ok(mut on_device) => {
                    on_device.prepare(&pass)?;
                    return Ok(Self {
                        name: on_device.name(device.kind(), pass.slot),
                        pass,
                        exact,
                        device: Mutex::new(on_device),
                    });
                }
                Err(error) => {
                    let half = pass.slot.tokens() / 2;
                    let short = crate::candle::is_out_of_memory(&error.to_string());
                    if !short || half < shape.positions {
                        return Err(error);
                    }
                    tracing::warn!(
                        tokens = half,
                        "the device is out of memory; a smaller slot is tried"
                    );
                    pass.slot = Slot::of(half);
                }
            }
        }
    }

    /// What is launched.
    pub fn plan(&self) -> &Plan {
        &self.pass.plan
    }

    /// Tokens of a slot.
    pub fn slot_tokens(&self) -> usize {
        self.pass.slot.tokens()
    }

    /// Measures each launch on its own over texts that fill a slot as far as they do; the shortest of so many passes.
    ///
    /// # Errors
    /// [`EncodeError`] if the device fails.
    pub fn measure(
        &self,
        texts: &[&[u32]],
        passes: usize,
    ) -> Result<Vec<MeasuredStep>, EncodeError> {
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        let mut vectors = Vec::new();
        let count = device.pass(&self.pass, texts.iter().copied(), &mut vectors)?;
        let lengths = texts.iter().take(count).map(|text| text.len());
        let tokens: usize = lengths.clone().sum();
        let squares: usize = lengths.map(|tokens| tokens * tokens).sum();
        let plan = &self.pass.plan;
        let mut measured = Vec::new();
        for (number, step) in plan.steps.iter().enumerate() {
            let mut least = f32::INFINITY;
            for _ in 0..passes.max(1) {
                least = least.min(device.time(&self.pass, number)?);
            }
            let operations = plan.operations_a_token(*step, 0) * tokens;
            let of_attention =
                plan.operations_a_token(*step, 1) - plan.operations_a_token(*step, 0);
            measured.push(MeasuredStep {
                step: *step,
                seconds: f64::from(least) / 1e3,
                bytes: plan.bytes_a_token(*step) * tokens,
                operations: operations + of_attention * squares,
            });
        }
        Ok(measured)
    }
}

impl OnDevice {
    fn new(
        device: &CandleDevice,
        stream: &Arc<CudaStream>,
        weights: &TransformerWeights<HostLinear>,
        pass: &Pass,
    ) -> Result<Self, EncodeError> {
        let (plan, slot, shape, dim) = (&pass.plan, pass.slot, pass.shape, pass.dim);
        let place = Place { device, stream };
        let products = Products::new(Arc::clone(stream))?;
        let mut buffers = HashMap::new();
        for buffer in plan.buffers() {
            let rows = match buffer {
                Buffer::Pooled | Buffer::Dense(_) => slot.texts(),
                _ => slot.tokens(),
            };
            buffers.insert(buffer, place.rows(rows, plan.width(buffer))?);
        }
        let (mut planned, mut biases) = (HashMap::new(), Vec::new());
        for (at, step) in plan.steps.iter().enumerate() {
            let Step::Product {
                of,
                from,
                to,
                added,
                activation,
            } = *step
            else {
                continue;
            };
            let linear = linear(weights, of).ok_or_else(|| failed("a layer is not there"))?;
            let bias = place.half(linear.bias.clone())?;
            let rows = match to {
                Buffer::Dense(_) => slot.texts(),
                _ => slot.tokens(),
            };
            let shape = ProductShape {
                rows,
                inputs: plan.width(from),
                outputs: plan.width(to),
                added,
                activation,
            };
            let product = products.plan(shape, bias.pointer)?;
            planned.insert(at, (product, place.half(linear.weight.clone())?));
            biases.push(bias);
        }
        let mut turns: Vec<(Turn, Held, Held)> = Vec::new();
        for turn in weights.layers.iter().filter_map(|layer| layer.turn) {
            if turns.iter().all(|(known, ..)| *known != turn) {
                let of = Turns::of(turn, shape.head_size, shape.positions);
                let cosines = place.put(of.cosines, DType::F32)?;
                turns.push((turn, cosines, place.put(of.sines, DType::F32)?));
            }
        }
        let layer = |layer: &Layer<HostLinear>| {
            let head_norms = layer
                .head_norms
                .clone()
                .map(|(query, key)| Ok::<_, EncodeError>((place.half(query)?, place.half(key)?)));
            Ok(HeldLayer {
                attention_norm: layer
                    .attention_norm
                    .clone()
                    .map(|n| place.norm(n))
                    .transpose()?,
                output_norm: place.norm(layer.output_norm.clone())?,
                head_norms: head_norms.transpose()?,
                turn: turns
                    .iter()
                    .position(|(turn, ..)| Some(*turn) == layer.turn),
                mask: layer.mask,
            })
        };
        let layers = weights
            .layers
            .iter()
            .map(layer)
            .collect::<Result<_, EncodeError>>()?;
        let norm = |norm: &Option<Norm>| norm.clone().map(|n| place.norm(n)).transpose();
        let halves = |values: &Option<Vec<f32>>| values.clone().map(|v| place.half(v)).transpose();
        let offsets = weights.offset_bias.clone();
        let offsets = offsets
            .map(|values| place.put(values, DType::F32))
            .transpose()?;
        let rows_of_texts: Vec<u32> = (0..=slot.texts() as u32).collect();
        let count = rows_of_texts.len();
        let rows_of_texts =
            Tensor::from_vec(rows_of_texts, count, &device.device).map_err(failed)?;
        let context = stream.context();
        // SAFETY: memory that is not set; both are written before they are read, the slot by `Slot::fill`, vectors by a copy.
        let (host_slot, host_vectors) = unsafe {
            // Not combined in writing: vectors are read by the CPU, and a slot's counts are written twice.
            let slot = context
                .alloc_pinned_with_flags(slot.numbers(), 0)
                .map_err(failed)?;
            (
                slot,
                context
                    .alloc_pinned_with_flags(count * dim, 0)
                    .map_err(failed)?,
            )
        };
        let made = Self {
            kernels: kernels(stream, shape.head_size)?,
            products,
            planned,
            _biases: biases,
            buffers,
            words: place.half(weights.words.clone())?,
            positions: halves(&weights.positions)?,
            embedding_norm: norm(&weights.embedding_norm)?,
            last_norm: norm(&weights.last_norm)?,
            offsets,
            layers,
            turns,
            slot_memory: stream.alloc_zeros(slot.numbers()).map_err(failed)?,
            rows_of_texts: place.held(rows_of_texts)?,
            vectors: stream.alloc_zeros(count * dim).map_err(failed)?,
            host_slot,
            host_vectors,
            graph: None,
            stream: Arc::clone(stream),
        };
        // What is uploaded is there before anything computes with it.
        stream.synchronize().map_err(failed)?;
        Ok(made)
    }

    /// Runs the plan once, over nothing, and captures it.
    fn prepare(&mut self, pass: &Pass) -> Result<(), EncodeError> {
        self.launch_all(pass)?;
        self.stream.synchronize().map_err(failed)?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(failed)?;
        let launched = self.launch_all(pass);
        // A capture is ended whatever became of it.
        let graph = self
            .stream
            .end_capture(CUgraphInstantiate_flags(0))
            .map_err(failed);
        launched?;
        self.graph = graph?;
        match &self.graph {
            Some(graph) => graph.upload().map_err(failed),
            None => Err(failed("the launches could not be captured")),
        }
    }

    /// What decides a bit of a vector: the card, the size of a slot, the library and what it chose.
    fn name(&self, kind: &str, slot: Slot) -> String {
        let mut chosen: Vec<&str> = self
            .planned
            .values()
            .map(|(p, _)| p.name.as_str())
            .collect();
        chosen.sort_unstable();
        chosen.dedup();
        format!(
            "cuda ({kind}), packed by {}, cuBLASLt {} ({})",
            slot.tokens(),
            version(),
            chosen.join(" ")
        )
    }

    fn at(&self, buffer: Buffer) -> Result<u64, EncodeError> {
        let held = self.buffers.get(&buffer).map(|held| held.pointer);
        held.ok_or_else(|| failed(format!("no buffer {buffer:?}")))
    }

    /// Pointers to a slot's parts: of its tokens, or of its texts as if they were tokens.
    fn slot(&self, slot: Slot, of_texts: bool) -> SlotArgument {
        let start = self.slot_memory.device_ptr(&self.stream).0;
        let at = |number: usize| start + 4 * number as u64;
        let counts = slot.counts().start + if of_texts { 4 } else { 0 };
        let starts = match of_texts {
            true => self.rows_of_texts.pointer,
            false => at(slot.starts().start),
        };
        SlotArgument([
            at(counts),
            at(slot.ids().start),
            at(slot.places().start),
            starts,
            at(slot.tiles_at().start),
        ])
    }

    /// Puts all steps on the stream.
    fn launch_all(&self, pass: &Pass) -> Result<(), EncodeError> {
        (0..pass.plan.steps.len()).try_for_each(|number| self.launch(pass, number))
    }

    /// Milliseconds of a step on the device.
    fn time(&mut self, pass: &Pass, number: usize) -> Result<f32, EncodeError> {
        let event = || {
            let flags = CUevent_flags::CU_EVENT_DEFAULT;
            self.stream.record_event(Some(flags)).map_err(failed)
        };
        let before = event()?;
        self.launch(pass, number)?;
        let after = event()?;
        self.stream.synchronize().map_err(failed)?;
        before.elapsed_ms(&after).map_err(failed)
    }

    /// Puts a step on the stream.
    fn launch(&self, pass: &Pass, number: usize) -> Result<(), EncodeError> {
        let Pass {
            plan,
            slot,
            shape,
            head,
            ..
        } = pass;
        let slot = *slot;
        let Some(step) = plan.steps.get(number) else {
            return Ok(());
        };
        let whole = |number: usize| LaunchConfig {
            grid_dim: (number.div_ceil(WARPS) as u32, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        let tokens = self.slot(slot, false);
        let root = i32::from(shape.norm == NormKind::RootMeanSquare);
        let (hidden, epsilon, none) = (shape.hidden as i32, shape.epsilon, 0u64);
        let (heads, key_heads) = (shape.heads as i32, shape.key_heads as i32);
        let gains = |norm: Option<&HeldNorm>| match norm {
            None => (0, 0),
            Some((gain, bias)) => (gain.pointer, bias.as_ref().map_or(0, |bias| bias.pointer)),
        };
        let vectors = self.vectors.device_ptr(&self.stream).0;
        match *step {
            Step::Embed => {
                let (gain, bias) = gains(self.embedding_norm.as_ref());
                let positions = self.positions.as_ref().map_or(0, |held| held.pointer);
                let to = self.at(Buffer::Hidden)?;
                let mut launch = self.stream.launch_builder(&self.kernels.embed);
                launch.arg(&tokens).arg(&self.words.pointer).arg(&positions);
                launch
                    .arg(&gain)
                    .arg(&bias)
                    .arg(&hidden)
                    .arg(&root)
                    .arg(&epsilon)
                    .arg(&to);
                // SAFETY: arguments are those of `embed_tokens`; buffers have a row for each token of a full slot.
                unsafe { launch.launch(whole(slot.tokens())) }.map_err(failed)?;
            }
            Step::Norm { of, from, to } => {
                let norm = match of {
                    NormOf::Attention(at) => {
                        self.layers.get(at).and_then(|l| l.attention_norm.as_ref())
                    }
                    NormOf::Output(at) => self.layers.get(at).map(|l| &l.output_norm),
                    NormOf::Last => self.last_norm.as_ref(),
                };
                let (gain, bias) = gains(norm);
                let (from, to) = (self.at(from)?, self.at(to)?);
                let mut launch = self.stream.launch_builder(&self.kernels.norm);
                launch.arg(&tokens).arg(&from).arg(&gain).arg(&bias);
                launch.arg(&hidden).arg(&root).arg(&epsilon).arg(&to);
                // SAFETY: arguments are those of `norm_rows`, buffers as above.
                unsafe { launch.launch(whole(slot.tokens())) }.map_err(failed)?;
            }
            Step::Product { from, to, .. } => {
                let planned = self.planned.get(&number);
                let (product, weight) = planned.ok_or_else(|| failed("a product has no plan"))?;
                let (from, to) = (self.at(from)?, self.at(to)?);
                // SAFETY: weights and buffers live as long as `self`, and this stream alone uses them.
                unsafe { self.products.run(product, weight.pointer, from, to) }?;
            }
            Step::Turn(at) => {
                let layer = self.layers.get(at).ok_or_else(|| failed("no such layer"))?;
                let (query, key) = match &layer.head_norms {
                    Some((query, key)) => (query.pointer, key.pointer),
                    None => (0, 0),
                };
                let turn = layer.turn.and_then(|turn| self.turns.get(turn));
                let (cosines, sines) = turn.map_or((0, 0), |(_, c, s)| (c.pointer, s.pointer));
                let rows = self.at(Buffer::Heads)?;
                let size = shape.head_size as i32;
                let mut launch = self.stream.launch_builder(&self.kernels.turn);
                launch
                    .arg(&tokens)
                    .arg(&rows)
                    .arg(&query)
                    .arg(&key)
                    .arg(&epsilon);
                launch
                    .arg(&cosines)
                    .arg(&sines)
                    .arg(&heads)
                    .arg(&key_heads)
                    .arg(&size);
                let warps = slot.tokens() * (shape.heads + shape.key_heads);
                // SAFETY: arguments are those of `turn_heads`; angles are there for every place that a text can have.
                unsafe { launch.launch(whole(warps)) }.map_err(failed)?;
            }
            Step::Attend(at) => {
                let layer = self.layers.get(at).ok_or_else(|| failed("no such layer"))?;
                let mask = match layer.mask {
                    Mask::All => -1,
                    Mask::Causal => -2,
                    Mask::Near(most) => i32::try_from(most).unwrap_or(i32::MAX / 2),
                };
                let (rows, to) = (self.at(Buffer::Heads)?, self.at(Buffer::Context)?);
                let offsets = self.offsets.as_ref().map_or(0, |held| held.pointer);
                let positions = shape.positions as i32;
                let mut launch = self.stream.launch_builder(&self.kernels.attend);
                launch.arg(&tokens).arg(&rows).arg(&offsets).arg(&positions);
                launch.arg(&heads).arg(&key_heads).arg(&mask).arg(&to);
                let mut config = whole(slot.tiles());
                config.grid_dim.1 = shape.heads as u32;
                // SAFETY: arguments are those of `attend_*`; a tile of rows is behind the last one.
                unsafe { launch.launch(config) }.map_err(failed)?;
            }
            Step::Activate {
                activation,
                from,
                to,
            } => {
                let of_texts = matches!(to, Buffer::Dense(_));
                let rows = self.slot(slot, of_texts);
                let gated = i32::from(from != to);
                let (width, kind) = (plan.width(to) as i32, number_of(activation));
                let (from, to) = (self.at(from)?, self.at(to)?);
                let mut launch = self.stream.launch_builder(&self.kernels.activate);
                launch
                    .arg(&rows)
                    .arg(&from)
                    .arg(&width)
                    .arg(&kind)
                    .arg(&gated)
                    .arg(&to);
                let count = if of_texts {
                    slot.texts()
                } else {
                    slot.tokens()
                };
                // SAFETY: arguments are those of `activate_rows`, buffers as above.
                unsafe { launch.launch(whole(count)) }.map_err(failed)?;
            }
            Step::Pool | Step::Finish => {
                let last = plan.dense_layers().checked_sub(1).map(Buffer::Dense);
                let ends = *step == Step::Finish || last.is_none();
                let (rows, from, pooling, from_token) = match (*step, last) {
                    (Step::Finish, Some(last)) => {
                        // Each text is one row by now.
                        (
                            self.slot(slot, true),
                            last,
                            number_of_pooling(Pooling::Cls),
                            0,
                        )
                    }
                    _ => {
                        let from = i32::try_from(head.pool_from).unwrap_or(i32::MAX);
                        (
                            tokens,
                            Buffer::Hidden,
                            number_of_pooling(head.pooling),
                            from,
                        )
                    }
                };
                let width = plan.width(from);
                let keep = match ends {
                    true => head.keep.map_or(width, |keep| keep.min(width)) as i32,
                    false => width as i32,
                };
                let normalise = i32::from(ends && head.normalise);
                let (out, narrow) = match ends {
                    true => (vectors, none),
                    false => (none, self.at(Buffer::Pooled)?),
                };
                let (from, width) = (self.at(from)?, width as i32);
                let mut launch = self.stream.launch_builder(&self.kernels.pool);
                launch
                    .arg(&rows)
                    .arg(&from)
                    .arg(&width)
                    .arg(&pooling)
                    .arg(&from_token);
                launch.arg(&keep).arg(&normalise).arg(&out).arg(&narrow);
                let config = LaunchConfig {
                    grid_dim: (slot.texts() as u32, 1, 1),
                    block_dim: (THREADS, 1, 1),
                    shared_mem_bytes: 0,
                };
                // SAFETY: arguments are those of `pool_texts`; there is a row of vectors for every text of a full slot.
                unsafe { launch.launch(config) }.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Vectors of the first of these texts, as many as a slot takes; returns how many.
    fn pass<'t>(
        &mut self,
        pass: &Pass,
        texts: impl IntoIterator<Item = &'t [u32]>,
        out: &mut Vec<f32>,
    ) -> Result<usize, EncodeError> {
        let memory = self.host_slot.as_mut_slice().map_err(failed)?;
        let filled = pass.slot.fill(memory, texts);
        if filled.texts == 0 {
            return Err(failed("a text is longer than a slot"));
        }
        let sent = self
            .stream
            .memcpy_htod(&self.host_slot, &mut self.slot_memory);
        sent.map_err(failed)?;
        let graph = self
            .graph
            .as_ref()
            .ok_or_else(|| failed("nothing was captured"))?;
        graph.launch().map_err(failed)?;
        let back = self
            .stream
            .memcpy_dtoh(&self.vectors, &mut self.host_vectors);
        back.map_err(failed)?;
        self.stream.synchronize().map_err(failed)?;
        let vectors = self.host_vectors.as_slice().map_err(failed)?;
        out.extend_from_slice(&vectors[..filled.texts * pass.dim]);
        Ok(filled.texts)
    }
}

fn linear(weights: &TransformerWeights<HostLinear>, of: ProductOf) -> Option<&HostLinear> {
    let layer = |at: usize| weights.layers.get(at);
    match of {
        ProductOf::QueryKeyValue(at) => layer(at).map(|layer| &layer.query_key_value),
        ProductOf::AttentionOutput(at) => layer(at).map(|layer| &layer.attention_output),
        ProductOf::Intermediate(at) => layer(at).map(|layer| &layer.intermediate),
        ProductOf::Output(at) => layer(at).map(|layer| &layer.output),
        ProductOf::Dense(at) => weights.dense.get(at).map(|(linear, _)| linear),
    }
}

/// As `Activation` of kernels.cu.
fn number_of(activation: Activation) -> i32 {
    match activation {
        Activation::None => 0,
        Activation::Gelu => 1,
        Activation::GeluTanh => 2,
        Activation::Relu => 3,
        Activation::Silu => 4,
        Activation::Tanh => 5,
    }
}

/// As `Pooling` of kernels.cu.
fn number_of_pooling(pooling: Pooling) -> i32 {
    match pooling {
        Pooling::Mean => 0,
        Pooling::Cls => 1,
        Pooling::Max => 2,
        Pooling::MeanSqrtLen => 3,
        Pooling::WeightedMean => 4,
        Pooling::LastToken => 5,
    }
}

impl Encoder for CudaTransformer {
    fn dim(&self) -> usize {
        self.pass.dim
    }

    fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> Result<(), EncodeError> {
        check(&self.pass.shape, batch)?;
        let dim = self.pass.dim;
        let texts: Vec<&[u32]> = batch.spans().map(|span| &batch.ids()[span]).collect();
        let mut vectors = Vec::with_capacity(texts.len() * dim);
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < texts.len() {
            let rest = texts[done..].iter().copied();
            done += device.pass(&self.pass, rest, &mut vectors)?;
        }
        drop(device);
        again_at_f32(&texts, dim, &mut vectors, &self.exact)?;
        out.append(&mut vectors);
        Ok(())
    }

    fn tokens_per_batch(&self) -> usize {
        self.pass.slot.tokens()
    }

    /// One: see [`crate::candle::Lanes`].
    fn batches_at_once(&self) -> usize {
        1
    }

    fn is_fed_first(&self) -> bool {
        true
    }

    fn precision(&self) -> &'static str {
        "f16"
    }

    fn device(&self) -> String {
        self.name.clone()
    }

    fn revision(&self) -> u32 {
        REVISION
    }
}
