//! Devices, and linear layers on them.

use candle_core::{D, DType, Device, Result, Tensor};

use super::failed;
use crate::encoder::EncodeError;

/// Tokens of a batch where the free memory is not known.
const TOKENS_UNKNOWN: usize = 1 << 14;
/// On the CPU: enough for its products to be efficient.
const TOKENS_CPU: usize = 1 << 11;
const LEAST_TOKENS: usize = 1 << 10;
const MOST_TOKENS: usize = 1 << 17;

/// A device, and what is computed in there.
#[derive(Clone, Debug)]
pub struct CandleDevice {
    pub(super) device: Device,
    pub(super) dtype: DType,
    name: String,
}

/// A linear layer `y = x W^T + b` on a device.
#[derive(Debug)]
pub struct CandleLinear {
    /// (inputs, outputs)
    weight: Tensor,
    bias: Tensor,
}

impl CandleLinear {
    /// Of rows (.., inputs), as rows (.., outputs).
    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let mut shape = x.dims().to_vec();
        let inputs = x.dim(D::Minus1)?;
        let y = x.reshape(((), inputs))?.matmul(&self.weight)?;
        if let Some(last) = shape.last_mut() {
            *last = self.bias.dim(0)?;
        }
        y.broadcast_add(&self.bias)?.reshape(shape)
    }
}

impl CandleDevice {
    /// The CPU, at f32.
    pub fn cpu() -> Self {
        Self {
            device: Device::Cpu,
            dtype: DType::F32,
            name: "candle cpu".into(),
        }
    }

    /// The CUDA device of this number, at f16, or at f32 if `exact`.
    ///
    /// # Errors
    /// If this build has no CUDA or the machine has no such device.
    pub fn cuda(number: usize, exact: bool) -> std::result::Result<Self, EncodeError> {
        let device = Device::new_cuda(number).map_err(failed)?;
        let name = format!("cuda:{number}{}", kind_of(&device));
        Ok(Self::gpu(device, exact, name))
    }

    /// The Metal device of this number, at f16, or at f32 if `exact`.
    ///
    /// # Errors
    /// If this build has no Metal or the machine has no such device.
    pub fn metal(number: usize, exact: bool) -> std::result::Result<Self, EncodeError> {
        let device = Device::new_metal(number).map_err(failed)?;
        Ok(Self::gpu(device, exact, format!("metal:{number}")))
    }

    fn gpu(device: Device, exact: bool, name: String) -> Self {
        let dtype = match exact {
            true => DType::F32,
            false => DType::F16,
        };
        Self {
            device,
            dtype,
            name,
        }
    }

    /// For the manifest: `cuda:0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Puts a linear layer on the device: a weight of shape (outputs, inputs) and a bias of `outputs` elements.
    ///
    /// # Errors
    /// If the device has no room for it.
    pub fn linear(
        &self,
        weight: Vec<f32>,
        bias: Vec<f32>,
    ) -> std::result::Result<CandleLinear, EncodeError> {
        let (outputs, inputs) = (bias.len(), weight.len() / bias.len().max(1));
        let place = || {
            let weight = self.tensor(weight, (outputs, inputs))?;
            Ok(CandleLinear {
                weight: weight.t()?.contiguous()?,
                bias: self.tensor(bias, outputs)?,
            })
        };
        place().map_err(failed)
    }

    pub(super) fn tensor<S: Into<candle_core::Shape>>(
        &self,
        values: Vec<f32>,
        shape: S,
    ) -> Result<Tensor> {
        Tensor::from_vec(values, shape.into(), &self.device)?.to_dtype(self.dtype)
    }

    /// Tokens of a batch, if each takes `bytes` of the device's memory: half of what is free.
    pub(super) fn tokens_for(&self, bytes: usize) -> usize {
        let tokens = match (&self.device, self.free_bytes()) {
            (Device::Cpu, _) => TOKENS_CPU,
            (_, Some(free)) => free / 2 / bytes.max(1),
            (_, None) => TOKENS_UNKNOWN,
        };
        tokens.clamp(LEAST_TOKENS, MOST_TOKENS)
    }

    #[cfg(feature = "cuda")]
    fn free_bytes(&self) -> Option<usize> {
        let cuda = self.device.as_cuda_device().ok()?;
        let (free, _) = cuda.cuda_stream().context().mem_get_info().ok()?;
        Some(free)
    }

    #[cfg(not(feature = "cuda"))]
    fn free_bytes(&self) -> Option<usize> {
        None
    }
}

/// Which GPU it is: another one may round otherwise.
#[cfg(feature = "cuda")]
fn kind_of(device: &Device) -> String {
    let cuda = device.as_cuda_device().ok();
    let name = cuda.and_then(|cuda| cuda.cuda_stream().context().name().ok());
    name.map_or_else(String::new, |name| format!(" ({name})"))
}

#[cfg(not(feature = "cuda"))]
fn kind_of(_: &Device) -> String {
    String::new()
}

/// Whether a device says that its memory is used up. Libraries say so in words only.
pub(super) fn is_out_of_memory(message: &str) -> bool {
    let message = message.to_lowercase();
    [
        "out of memory",
        "out_of_memory",
        "alloc_failed",
        "failed to allocate",
    ]
    .iter()
    .any(|words| message.contains(words))
}
