//! Everything of a lane that lives on a CUDA device: weights, one slot, and a captured graph of all launches.
#![allow(
    unsafe_code,
    reason = "kernels are launched with pointers of the device; every buffer is owned here, and made once with its full size"
)]

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

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

use super::cuda::HostLinear;
use super::launches::{Argument, Launch, Pass, Pointer, THREADS, kernels};
use super::plan::{Buffer, NormOf, ProductOf, Step};
use super::products::{Product, ProductShape, Products, version};
use super::slot::{Slot, TILE};
use crate::block::Turns;
use crate::candle::{CandleDevice, OPENING, with_advice};
use crate::{EncodeError, Layer, Norm, TransformerWeights, Turn};

/// Kernels for the architectures that `build.rs` names.
const KERNELS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.fatbin"));

pub(super) fn failed(error: impl std::fmt::Display) -> EncodeError {
    EncodeError::Device(with_advice(error.to_string()))
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
}

/// Everything of a lane that lives on the device. One call at a time.
pub(super) struct OnDevice {
    /// Dropped first: it names everything else.
    graph: Option<CudaGraph>,
    stream: Arc<CudaStream>,
    products: Products,
    kernels: HashMap<&'static str, CudaFunction>,
    /// By the number of their step, with their weights.
    planned: HashMap<usize, (Product, Held)>,
    /// Of products, which know where they are.
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
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        // A graph is destroyed where its card is the current one; an earlier fault, kept by the context, would prevent that.
        let _ = self.stream.context().check_err();
        let _ = self.stream.context().bind_to_thread();
    }
}

// SAFETY: handles of a context that every call binds to its thread; its owner lets one thread in at a time.
unsafe impl Send for OnDevice {}

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

    fn whole(&self, values: Vec<f32>) -> Result<Held, EncodeError> {
        let count = values.len();
        self.held(Tensor::from_vec(values, count, &self.device.device).map_err(failed)?)
    }

    /// Rounded here: candle's own kernels are made for one kind of card.
    fn half(&self, values: Vec<f32>) -> Result<Held, EncodeError> {
        let values: Vec<f16> = values.into_iter().map(f16::from_f32).collect();
        let count = values.len();
        self.held(Tensor::from_vec(values, count, &self.device.device).map_err(failed)?)
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

/// The functions of kernels.cu that a model needs.
fn functions(
    stream: &Arc<CudaStream>,
    head_size: usize,
) -> Result<HashMap<&'static str, CudaFunction>, EncodeError> {
    let module = stream
        .context()
        .load_module(Ptx::from_binary(KERNELS.to_vec()));
    let module = module.map_err(failed)?;
    let functions = kernels(head_size).into_iter();
    let functions = functions.map(|name| Ok((name, module.load_function(name).map_err(failed)?)));
    functions.collect()
}

impl OnDevice {
    pub fn new(
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
                let cosines = place.whole(of.cosines)?;
                turns.push((turn, cosines, place.whole(of.sines)?));
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
        let offsets = offsets.map(|values| place.whole(values)).transpose()?;
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
            kernels: functions(stream, shape.head_size)?,
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

    /// Runs the plan once, over nothing, and captures it. Where that can't be, launches are made one by one in each pass: slower,
    /// and the same bits.
    pub fn prepare(&mut self, pass: &Pass) -> Result<(), EncodeError> {
        self.launch_all(pass)?;
        self.stream.synchronize().map_err(failed)?;
        // Whoever closes a device while this one captures ends the capture.
        let captured = self.capture(pass).or_else(|_| self.capture(pass));
        if let Err(error) = captured {
            tracing::warn!("the launches of a pass are not captured: {error}");
            self.stream.synchronize().map_err(failed)?;
        }
        Ok(())
    }

    fn capture(&mut self, pass: &Pass) -> Result<(), EncodeError> {
        let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(failed)?;
        let launched = self.launch_all(pass);
        // A capture is ended whatever became of it.
        let graph = self
            .stream
            .end_capture(CUgraphInstantiate_flags(0))
            .map_err(failed);
        launched?;
        let graph = graph?.ok_or_else(|| failed("the capture holds nothing"))?;
        graph.upload().map_err(failed)?;
        self.graph = Some(graph);
        Ok(())
    }

    /// What decides a bit of a vector: the card, the size of a slot, the library and what it chose.
    pub fn name(&self, kind: &str, slot: Slot) -> String {
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

    /// Where something is; 0 where a model has none.
    fn pointer(&self, of: Pointer) -> Result<u64, EncodeError> {
        let gain = |norm: Option<&HeldNorm>| norm.map(|(gain, _)| gain.pointer);
        let bias =
            |norm: Option<&HeldNorm>| norm.and_then(|(_, bias)| Some(bias.as_ref()?.pointer));
        let layer = |at: usize| self.layers.get(at);
        let norm = |of: NormOf| match of {
            NormOf::Attention(at) => layer(at).and_then(|layer| layer.attention_norm.as_ref()),
            NormOf::Output(at) => layer(at).map(|layer| &layer.output_norm),
            NormOf::Last => self.last_norm.as_ref(),
        };
        let turn = |at: usize| layer(at).and_then(|layer| self.turns.get(layer.turn?));
        let heads = |at: usize| layer(at).and_then(|layer| layer.head_norms.as_ref());
        let held = |held: Option<&Held>| held.map(|held| held.pointer);
        let found = match of {
            Pointer::Null => None,
            Pointer::Rows(buffer) => {
                let rows = self.buffers.get(&buffer);
                Some(
                    rows.ok_or_else(|| failed(format!("no buffer {buffer:?}")))?
                        .pointer,
                )
            }
            Pointer::Vectors => Some(self.vectors.device_ptr(&self.stream).0),
            Pointer::Words => Some(self.words.pointer),
            Pointer::Positions => held(self.positions.as_ref()),
            Pointer::EmbeddingGain => gain(self.embedding_norm.as_ref()),
            Pointer::EmbeddingBias => bias(self.embedding_norm.as_ref()),
            Pointer::Gain(of) => gain(norm(of)),
            Pointer::Bias(of) => bias(norm(of)),
            Pointer::QueryGain(at) => heads(at).map(|(query, _)| query.pointer),
            Pointer::KeyGain(at) => heads(at).map(|(_, key)| key.pointer),
            Pointer::Cosines(at) => turn(at).map(|(_, cosines, _)| cosines.pointer),
            Pointer::Sines(at) => turn(at).map(|(_, _, sines)| sines.pointer),
            Pointer::Offsets => held(self.offsets.as_ref()),
        };
        Ok(found.unwrap_or(0))
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
    pub fn time(&mut self, pass: &Pass, number: usize) -> Result<f32, EncodeError> {
        let event = || {
            let flags = CUevent_flags::CU_EVENT_DEFAULT;
            self.stream.record_event(Some(flags)).map_err(failed)
        };
        // While the device is at something, the host puts all three on the stream: so its own time is not measured.
        self.launch_graph(pass)?;
        let before = event()?;
        self.launch(pass, number)?;
        let after = event()?;
        self.stream.synchronize().map_err(failed)?;
        before.elapsed_ms(&after).map_err(failed)
    }

    /// Puts a step on the stream.
    fn launch(&self, pass: &Pass, number: usize) -> Result<(), EncodeError> {
        let Some(step) = pass.plan.steps.get(number) else {
            return Ok(());
        };
        if let Step::Product { from, to, .. } = *step {
            let planned = self.planned.get(&number);
            let (product, weight) = planned.ok_or_else(|| failed("a product has no plan"))?;
            let from = self.pointer(Pointer::Rows(from))?;
            let to = self.pointer(Pointer::Rows(to))?;
            // SAFETY: weights and buffers live as long as `self`, and this stream alone uses them.
            return unsafe { self.products.run(product, weight.pointer, from, to) };
        }
        let launch = pass.launch(*step);
        let Launch {
            kernel,
            blocks,
            arguments,
        } = launch.ok_or_else(|| failed("a step has no kernel"))?;
        let function = self.kernels.get(kernel);
        let function = function.ok_or_else(|| failed(format!("no kernel {kernel}")))?;
        // Arguments are passed by where they are: they stay there until the launch.
        enum Value {
            Slot(SlotArgument),
            Pointer(u64),
            Whole(i32),
            Real(f32),
        }
        let values = arguments.into_iter().map(|argument| {
            Ok(match argument {
                Argument::Slot { of_texts } => Value::Slot(self.slot(pass.slot, of_texts)),
                Argument::Pointer(of) => Value::Pointer(self.pointer(of)?),
                Argument::Whole(_, number) => Value::Whole(number),
                Argument::Real(number) => Value::Real(number),
            })
        });
        let values = values.collect::<Result<Vec<_>, EncodeError>>()?;
        let mut launch = self.stream.launch_builder(function);
        for value in &values {
            match value {
                Value::Slot(slot) => launch.arg(slot),
                Value::Pointer(pointer) => launch.arg(pointer),
                Value::Whole(number) => launch.arg(number),
                Value::Real(number) => launch.arg(number),
            };
        }
        let config = LaunchConfig {
            grid_dim: (blocks.0 as u32, blocks.1 as u32, 1),
            block_dim: (THREADS as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: arguments have the kinds and the order that the kernel's parameters have (tested in launches.rs), and every
        // buffer has a row for each token, or text, of a full slot, and a tile of rows behind.
        unsafe { launch.launch(config) }.map_err(failed)?;
        Ok(())
    }

    /// Vectors of the first of these texts, as many as a slot takes; returns how many.
    pub fn pass<'t>(
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
        let done = self.there_and_back(pass, filled.texts * pass.dim);
        // Without events of their own, pinned buffers wait for nobody: the stream must be through before they are touched.
        let through = self.wait();
        done.and(through)?;
        let vectors = self.host_vectors.as_slice().map_err(failed)?;
        out.extend_from_slice(&vectors[..filled.texts * pass.dim]);
        Ok(filled.texts)
    }

    /// Puts the slot, all launches and the way back of so many numbers of vectors on the stream.
    fn there_and_back(&mut self, pass: &Pass, numbers: usize) -> Result<(), EncodeError> {
        let (slot, memory) = (&self.host_slot, &mut self.slot_memory);
        self.stream.memcpy_htod(slot, memory).map_err(failed)?;
        self.launch_graph(pass)?;
        let vectors = self.vectors.slice(..numbers);
        let memory = self.host_vectors.as_mut_slice().map_err(failed)?;
        let copied = self.stream.memcpy_dtoh(&vectors, &mut memory[..numbers]);
        copied.map_err(failed)
    }

    /// Waits until the stream is through, asleep: a core that keeps looking would be missing where texts become tokens.
    fn wait(&self) -> Result<(), EncodeError> {
        let asleep = Some(CUevent_flags::CU_EVENT_BLOCKING_SYNC);
        let waited = self
            .stream
            .record_event(asleep)
            .and_then(|event| event.synchronize());
        waited
            .or_else(|_| self.stream.synchronize())
            .map_err(failed)
    }

    /// Puts all launches on the stream, by the graph if there is one.
    fn launch_graph(&self, pass: &Pass) -> Result<(), EncodeError> {
        match &self.graph {
            Some(graph) => graph.launch().map_err(failed),
            None => self.launch_all(pass),
        }
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
