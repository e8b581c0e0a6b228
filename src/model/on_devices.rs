//! From safetensors to lanes of GPUs.

use std::sync::{Arc, Mutex, PoisonError};

use super::spec::TransformerSpec;
use super::weights::{Raw, head, load};
use super::{Loaded, ModelError, ModelFolder, TextTokenizer};
use crate::encoder::candle::{CandleDevice, CandleTransformer, Lanes};
use crate::encoder::{EncodeError, Encoder, Exact};

/// What each lane is made of.
struct Source<'a> {
    folder: &'a ModelFolder,
    spec: &'a TransformerSpec,
    tokenizer: &'a TextTokenizer,
}

/// Loads the encoder for devices, once for each of their lanes, as packed or as padded graphs; also says how its weights are
/// stored.
pub(super) fn load_for_devices(
    folder: &ModelFolder,
    spec: &TransformerSpec,
    tokenizer: &TextTokenizer,
    devices: &[CandleDevice],
    packed: bool,
) -> Result<(Lanes, &'static str), ModelError> {
    let none = || folder.unsupported("no device was given");
    let source = Source {
        folder,
        spec,
        tokenizer,
    };
    let mut most_tokens = usize::MAX;
    loop {
        let mut lanes: Vec<Box<dyn Encoder>> = Vec::new();
        let mut stored = "f32";
        // First lanes of all devices come first: so no device waits while another one has two batches.
        for lane_number in 0..devices.first().map_or(0, CandleDevice::batches_at_once) {
            for device in devices {
                let device = match lane_number {
                    0 => Ok(device.clone()),
                    _ => device.another_lane(),
                };
                let device = device.map_err(|e| folder.unsupported(e.to_string()))?;
                let exact = (!device.is_exact()).then(|| source.exact(&device));
                let loaded = match packed {
                    true => source.packed(device, most_tokens, exact)?,
                    false => source.candle(device, false, exact)?,
                };
                lanes.push(loaded.0);
                stored = loaded.1;
            }
        }
        // Where memory is short, one lane may have smaller slots than another; their vectors need not be alike.
        let sizes: Vec<usize> = lanes.iter().map(|lane| lane.tokens_per_batch()).collect();
        let least = sizes.iter().copied().min().ok_or_else(none)?;
        if packed && sizes.iter().any(|size| *size != least) && least < most_tokens {
            most_tokens = least;
            continue;
        }
        let name = lanes.first().map(|lane| lane.device());
        if lanes.iter().any(|lane| Some(lane.device()) != name) {
            return Err(folder.unsupported(
                "devices of one kind chose different algorithms, so that vectors would depend on chance; name one of them",
            ));
        }
        return Ok((Lanes::new(lanes).ok_or_else(none)?, stored));
    }
}

impl Source<'_> {
    fn failed(&self, error: EncodeError) -> ModelError {
        self.folder.unsupported(error.to_string())
    }

    /// An encoder as a candle graph.
    fn candle(
        &self,
        device: CandleDevice,
        packed: bool,
        exact: Option<Exact>,
    ) -> Result<Loaded, ModelError> {
        let place = |raw: Raw| {
            let linear = device.linear(raw.weight, raw.bias);
            linear.map_err(|e| self.failed(e))
        };
        let (weights, stored) = load(self.folder, self.spec, &place, &place)?;
        let (shape, head) = (self.spec.plan.shape, head(self.spec, self.tokenizer));
        let encoder = CandleTransformer::new(device.clone(), shape, weights, head, packed, exact);
        Ok((Box::new(encoder.map_err(|e| self.failed(e))?), stored))
    }

    /// An encoder as a packed graph: of kernels and products of its own on CUDA, else of candle's.
    #[cfg_attr(
        not(feature = "cuda"),
        allow(unused_variables, reason = "only CUDA has several lanes")
    )]
    fn packed(
        &self,
        device: CandleDevice,
        most_tokens: usize,
        exact: Option<Exact>,
    ) -> Result<Loaded, ModelError> {
        #[cfg(feature = "cuda")]
        if device.is_cuda() {
            use crate::encoder::gpu::{CudaTransformer, HostLinear};
            let host = |raw: Raw| {
                Ok(HostLinear {
                    weight: raw.weight,
                    bias: raw.bias,
                })
            };
            let (weights, stored) = load(self.folder, self.spec, &host, &host)?;
            let (shape, head) = (self.spec.plan.shape, head(self.spec, self.tokenizer));
            let Some(exact) = exact else {
                let message = "the packed graph of CUDA computes at f16";
                return Err(self.folder.unsupported(message));
            };
            let encoder = CudaTransformer::new(&device, shape, weights, head, most_tokens, exact);
            return Ok((Box::new(encoder.map_err(|e| self.failed(e))?), stored));
        }
        self.candle(device, true, exact)
    }

    /// Makes the same encoder at f32, once, when it is asked for.
    fn exact(&self, device: &CandleDevice) -> Exact {
        let folder = self.folder.clone();
        let (spec, tokenizer) = (self.spec.clone(), self.tokenizer.clone());
        let device = device.clone();
        let kept: Mutex<Option<Arc<dyn Encoder>>> = Mutex::default();
        Arc::new(move || {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(exact) = &*kept {
                return Ok(Arc::clone(exact));
            }
            let source = Source {
                folder: &folder,
                spec: &spec,
                tokenizer: &tokenizer,
            };
            let loaded = source.candle(device.exact()?, false, None);
            let loaded = loaded.map_err(|e| EncodeError::Device(e.to_string()))?;
            let exact: Arc<dyn Encoder> = Arc::from(loaded.0);
            *kept = Some(Arc::clone(&exact));
            Ok(exact)
        })
    }
}
