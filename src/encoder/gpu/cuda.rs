//! A transformer as a packed graph on a CUDA device: one lane, which takes one batch at a time.

use std::sync::{Mutex, PoisonError};

use super::launches::{Pass, attention_kernel};
use super::on_device::{OnDevice, failed};
use super::plan::{Plan, Step};
use super::slot::Slot;
use crate::candle::{CandleDevice, empty_pool, is_out_of_memory};
use crate::exact::{Exact, again_at_f32};
use crate::{EncodeError, Encoder, Packed, TextHead, TransformerShape, TransformerWeights, check};

/// Tokens of a slot: products of so many rows are as quick a row as any, and a slot takes a few milliseconds.
const TOKENS: usize = 1 << 14;

/// Of the oldest cards that there are kernels for, see build.rs.
const LEAST_CAPABILITY: (i32, i32) = (8, 0);

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
    /// Before what is at f32: dropping it makes its card the current one.
    device: Mutex<OnDevice>,
    exact: Exact,
}

impl std::fmt::Debug for CudaTransformer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaTransformer")
            .field("name", &self.name)
            .field("shape", &self.pass.shape)
            .finish_non_exhaustive()
    }
}

impl CudaTransformer {
    /// A lane for this model, with slots of at most `most_tokens`; `exact` makes an encoder at f32 when it is needed.
    ///
    /// # Errors
    /// [`EncodeError::Device`] if there are no kernels for the model's widths or for the device, or if it has no room. Where
    /// the memory is short, smaller slots are tried first.
    pub fn new(
        device: &CandleDevice,
        shape: TransformerShape,
        weights: TransformerWeights<HostLinear>,
        head: TextHead,
        most_tokens: usize,
        exact: Exact,
    ) -> Result<Self, EncodeError> {
        if attention_kernel(shape.head_size).is_none() {
            return Err(failed(format!(
                "the packed graph has heads of 32, 64 and 128 components, and this model has {}",
                shape.head_size
            )));
        }
        let cuda = device.device.as_cuda_device().map_err(failed)?;
        let stream = cuda.cuda_stream();
        let capability = stream.context().compute_capability().map_err(failed)?;
        if capability < LEAST_CAPABILITY {
            return Err(failed(format!(
                "the packed graph is for cards of compute capability 8.0 and more, and this one has {}.{}; use \
                 --gpu-graph padded",
                capability.0, capability.1
            )));
        }
        let outputs = |linear: &HostLinear| linear.bias.len();
        let whole = weights
            .dense
            .last()
            .map_or(shape.hidden, |(l, _)| outputs(l));
        let mut pass = Pass {
            plan: Plan::of(shape, &weights, outputs, true),
            slot: Slot::of(most_tokens.min(TOKENS).max(shape.positions)),
            shape,
            dim: head.keep.map_or(whole, |keep| keep.min(whole)),
            head,
            masks: weights.layers.iter().map(|layer| layer.mask).collect(),
        };
        for buffer in pass.plan.buffers() {
            let width = pass.plan.width(buffer);
            if !width.is_multiple_of(8) {
                return Err(failed(format!(
                    "the packed graph has rows of a multiple of 8 numbers, and this model's {buffer:?} has {width}"
                )));
            }
        }
        loop {
            let made = OnDevice::new(device, &stream, &weights, &pass).and_then(|mut made| {
                made.prepare(&pass)?;
                Ok(made)
            });
            match made {
                Ok(on_device) => {
                    return Ok(Self {
                        name: on_device.name(device.kind(), pass.slot),
                        pass,
                        exact,
                        device: Mutex::new(on_device),
                    });
                }
                Err(error) => {
                    let half = pass.slot.tokens() / 2;
                    if !may_be_short_of_memory(&error.to_string()) || half < shape.positions {
                        return Err(error);
                    }
                    tracing::warn!(tokens = half, "{error}; a smaller slot is tried");
                    // What the failed one took lies in the pool, which libraries and modules take nothing from.
                    empty_pool(stream.context());
                    pass.slot = Slot::of(half);
                }
            }
        }
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

/// Whether less memory may help: cuBLASLt has other words where it is short while its kernels are loaded.
fn may_be_short_of_memory(message: &str) -> bool {
    let of_the_library = ["NOT_INITIALIZED", "INTERNAL_ERROR", "EXECUTION_FAILED"];
    is_out_of_memory(message)
        || message.contains("cuBLASLt") && of_the_library.iter().any(|word| message.contains(word))
}

impl Encoder for CudaTransformer {
    fn dim(&self) -> usize {
        self.pass.dim
    }

    fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> Result<usize, EncodeError> {
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
        let again = again_at_f32(&texts, dim, &mut vectors, &self.exact)?;
        out.append(&mut vectors);
        Ok(again)
    }

    fn tokens_per_batch(&self) -> usize {
        self.pass.slot.tokens()
    }

    /// One: see [`crate::candle::Lanes`].
    fn batches_at_once(&self) -> usize {
        1
    }

    fn has_threads_of_its_own(&self) -> bool {
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
