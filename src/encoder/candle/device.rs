//! Devices, and linear layers on them.

use candle_core::{DType, Device, Result, Tensor};

use super::failed;
use crate::EncodeError;

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
    /// Which of the GPUs; none for the CPU.
    number: Option<usize>,
}

/// Columns of ones that inputs get: one for the bias, and as many as keep widths multiples of 8, which kernels want.
pub(super) const ONES: usize = 8;

/// A linear layer `y = x W^T + b` on a device. The bias is one more row of the weight, and inputs get a column of ones:
/// so the product adds it. Adding a row to rows takes a GPU longer than the product itself.
#[derive(Debug)]
pub struct CandleLinear {
    /// (inputs + ONES, outputs)
    weight: Tensor,
}

/// Rows (rows, inputs) that end in columns of ones: (rows, inputs + ONES).
pub(super) fn with_ones(columns: &[&Tensor]) -> Result<Tensor> {
    let Some(first) = columns.first() else {
        candle_core::bail!("no columns");
    };
    let ones = Tensor::ones((first.dim(0)?, ONES), first.dtype(), first.device())?;
    let mut all = columns.to_vec();
    all.push(&ones);
    Tensor::cat(&all, 1)
}

impl CandleLinear {
    /// Of rows (rows, inputs), as rows (rows, outputs).
    pub(super) fn apply(&self, x: &Tensor) -> Result<Tensor> {
        with_ones(&[x])?.matmul(&self.weight)
    }

    /// Of rows that [`with_ones`] has made.
    pub(super) fn apply_to_rows_with_ones(&self, x: &Tensor) -> Result<Tensor> {
        x.matmul(&self.weight)
    }

    /// The layer in `parts` layers of equal width: (parts, inputs + ONES, outputs / parts).
    pub(super) fn in_parts(&self, parts: usize) -> Result<Tensor> {
        let (inputs, outputs) = self.weight.dims2()?;
        self.weight
            .reshape((inputs, parts, outputs / parts))?
            .transpose(0, 1)?
            .contiguous()
    }
}

impl CandleDevice {
    /// The CPU, at f32.
    pub fn cpu() -> Self {
        Self {
            device: Device::Cpu,
            dtype: DType::F32,
            name: "candle cpu".into(),
            number: None,
        }
    }

    /// The CUDA device of this number, at f16, or at f32 if `exact`. It has a stream of its own.
    ///
    /// # Errors
    /// If this build has no CUDA or the machine has no such device.
    pub fn cuda(number: usize, exact: bool) -> std::result::Result<Self, EncodeError> {
        let device = Device::new_cuda_with_stream(number).map_err(failed)?;
        let name = format!("cuda:{number}{}", kind_of(&device));
        Ok(Self::gpu(device, exact, name, number))
    }

    /// The Metal device of this number, at f16, or at f32 if `exact`.
    ///
    /// # Errors
    /// If this build has no Metal or the machine has no such device.
    pub fn metal(number: usize, exact: bool) -> std::result::Result<Self, EncodeError> {
        let device = Device::new_metal(number).map_err(failed)?;
        Ok(Self::gpu(device, exact, format!("metal:{number}"), number))
    }

    /// The same device for one more lane: nothing that computes is shared with this one.
    ///
    /// # Errors
    /// If the device has no room for one.
    pub fn another_lane(&self) -> std::result::Result<Self, EncodeError> {
        match (&self.device, self.number) {
            (Device::Cuda(_), Some(number)) => Self::cuda(number, self.dtype == DType::F32),
            (Device::Metal(_), Some(number)) => Self::metal(number, self.dtype == DType::F32),
            _ => Ok(self.clone()),
        }
    }

    fn gpu(device: Device, exact: bool, name: String, number: usize) -> Self {
        let dtype = match exact {
            true => DType::F32,
            false => DType::F16,
        };
        Self {
            device,
            dtype,
            name,
            number: Some(number),
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
            let weight = self.tensor(weight, (outputs, inputs))?.t()?;
            let mut rows = bias;
            rows.resize(ONES * outputs, 0.0);
            let bias = self.tensor(rows, (ONES, outputs))?;
            Ok(CandleLinear {
                weight: Tensor::cat(&[&weight.contiguous()?, &bias], 0)?,
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

    /// Batches that are under way at once: a GPU computes one while another's vectors are copied back and kept.
    pub fn batches_at_once(&self) -> usize {
        match self.device {
            Device::Cuda(_) => 2,
            _ => 1,
        }
    }

    /// Tokens of a batch, if each takes `bytes` of the device's memory: all batches at once take half of what is free.
    pub(super) fn tokens_for(&self, bytes: usize) -> usize {
        let tokens = match (&self.device, self.free_bytes()) {
            (Device::Cpu, _) => TOKENS_CPU,
            (_, Some(free)) => free / 2 / self.batches_at_once() / bytes.max(1),
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
