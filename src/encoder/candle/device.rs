//! Devices, and linear layers on them.

use std::sync::{Mutex, PoisonError};

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
    pub(crate) device: Device,
    pub(super) dtype: DType,
    name: String,
    /// What card it is; empty where that is not known.
    kind: String,
    /// Which of the GPUs; none for the CPU.
    number: Option<usize>,
}

/// Held while a CUDA device is opened and while launches are captured: opening one waits for all that its card does, which
/// breaks a capture that another thread has begun there.
pub(crate) static OPENING: Mutex<()> = Mutex::new(());

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
            kind: String::new(),
            number: None,
        }
    }

    /// The CPU, at f16: a GPU's numbers, for tests.
    #[cfg(test)]
    pub(crate) fn cpu_at_f16() -> Self {
        Self {
            dtype: DType::F16,
            ..Self::cpu()
        }
    }

    /// The CUDA device of this number, at f16, or at f32 if `exact`. It has a stream of its own.
    ///
    /// # Errors
    /// If this build has no CUDA or the machine has no such device.
    pub fn cuda(number: usize, exact: bool) -> std::result::Result<Self, EncodeError> {
        let opened = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        let device = Device::new_cuda_with_stream(number).map_err(failed)?;
        prepare(&device)?;
        drop(opened);
        let kind = kind_of(&device);
        let name = match kind.is_empty() {
            true => format!("cuda:{number}"),
            // Not the number: cards of one kind give the same vectors.
            false => format!("cuda ({kind})"),
        };
        Ok(Self::gpu(device, exact, name, kind, number))
    }

    /// How many CUDA devices there are.
    ///
    /// # Errors
    /// If this build has no CUDA or the machine has no driver.
    pub fn cuda_count() -> std::result::Result<usize, EncodeError> {
        count()
    }

    /// The Metal device of this number, at f16, or at f32 if `exact`.
    ///
    /// # Errors
    /// If this build has no Metal or the machine has no such device.
    pub fn metal(number: usize, exact: bool) -> std::result::Result<Self, EncodeError> {
        // A machine without Metal is a panic of candle's.
        let device = std::panic::catch_unwind(|| Device::new_metal(number));
        let device = device.map_err(|_| {
            EncodeError::Device(format!("this machine has no Metal device {number}"))
        })?;
        let device = device.map_err(failed)?;
        let kind = kind_of(&device);
        let name = match kind.is_empty() {
            true => format!("metal:{number}"),
            false => format!("metal ({kind})"),
        };
        Ok(Self::gpu(device, exact, name, kind, number))
    }

    /// The same device for one more lane: nothing that computes is shared with this one.
    ///
    /// # Errors
    /// If the device has no room for one.
    pub fn another_lane(&self) -> std::result::Result<Self, EncodeError> {
        match (&self.device, self.number) {
            (Device::Cuda(_), Some(number)) => Self::cuda(number, self.is_exact()),
            (Device::Metal(_), Some(number)) => Self::metal(number, self.is_exact()),
            _ => Ok(self.clone()),
        }
    }

    /// The same device, at f32, on a stream of its own.
    ///
    /// # Errors
    /// If the device has no room for one.
    pub fn exact(&self) -> std::result::Result<Self, EncodeError> {
        match (&self.device, self.number) {
            (Device::Cuda(_), Some(number)) => Self::cuda(number, true),
            (Device::Metal(_), Some(number)) => Self::metal(number, true),
            _ => Ok(self.clone()),
        }
    }

    /// Whether it computes at f32.
    pub fn is_exact(&self) -> bool {
        self.dtype == DType::F32
    }

    /// Whether it is an NVIDIA GPU.
    pub fn is_cuda(&self) -> bool {
        self.device.is_cuda()
    }

    /// What card it is, as its driver says; empty where that is not known.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    fn gpu(device: Device, exact: bool, name: String, kind: String, number: usize) -> Self {
        let dtype = match exact {
            true => DType::F32,
            false => DType::F16,
        };
        Self {
            device,
            dtype,
            name,
            kind,
            number: Some(number),
        }
    }

    /// For the manifest: `cuda (NVIDIA L4)`.
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
        Some(free + unused_of_pool(cuda.cuda_stream().context()))
    }

    #[cfg(not(feature = "cuda"))]
    fn free_bytes(&self) -> Option<usize> {
        None
    }
}

/// Which GPU it is: another one may round otherwise.
fn kind_of(device: &Device) -> String {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(cuda) => cuda.cuda_stream().context().name().unwrap_or_default(),
        #[cfg(feature = "metal")]
        Device::Metal(metal) => metal.metal_device().architecture_name(),
        _ => String::new(),
    }
}

#[cfg(feature = "cuda")]
fn count() -> std::result::Result<usize, EncodeError> {
    let count = candle_core::cuda_backend::cudarc::driver::CudaContext::device_count();
    let count = count.map_err(|e| EncodeError::Device(e.to_string()))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

#[cfg(not(feature = "cuda"))]
fn count() -> std::result::Result<usize, EncodeError> {
    Err(EncodeError::Device("this build has no CUDA".into()))
}

/// Makes a lane's allocations cheap: memory that is freed stays with the process instead of going back to the driver at every
/// synchronisation, and no event is made for each of them, since nothing of a lane is used on another stream.
#[cfg(feature = "cuda")]
#[allow(
    unsafe_code,
    reason = "candle and cudarc leave both to their callers' care"
)]
fn prepare(device: &Device) -> std::result::Result<(), EncodeError> {
    use candle_core::cuda_backend::cudarc::driver::{result, sys};
    let cuda = device.as_cuda_device().map_err(failed)?;
    let context = std::sync::Arc::clone(cuda.cuda_stream().context());
    let bound = context.bind_to_thread();
    bound.map_err(|e| EncodeError::Device(e.to_string()))?;
    if !context.has_async_alloc() {
        // There are no pools, and nothing is kept from anybody.
        // SAFETY: as below.
        unsafe { cuda.disable_event_tracking() };
        return Ok(());
    }
    let mut all = u64::MAX;
    // SAFETY: every tensor of a lane is made, used and dropped on the lane's own stream (`Lanes`); the pool is that of a device
    // which the context holds, and the attribute is a number of 64 bits that is read before the call returns.
    let set = unsafe {
        cuda.disable_event_tracking();
        result::device::get_default_mem_pool(context.cu_device()).and_then(|pool| {
            let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            result::mem_pool::set_attribute(pool, threshold, (&raw mut all).cast())
        })
    };
    set.map_err(|e| EncodeError::Device(e.to_string()))
}

/// Bytes that the pool keeps and nobody uses: the driver counts them as taken.
#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "cudarc leaves pools to their callers' care")]
fn unused_of_pool(context: &candle_core::cuda_backend::cudarc::driver::CudaContext) -> usize {
    use candle_core::cuda_backend::cudarc::driver::{result, sys};
    if !context.has_async_alloc() {
        return 0;
    }
    let figure = |attribute| {
        let mut bytes = 0u64;
        // SAFETY: the pool is that of a device which the context holds; the attribute is a number of 64 bits.
        let got = unsafe {
            result::device::get_default_mem_pool(context.cu_device()).and_then(|pool| {
                result::mem_pool::get_attribute(pool, attribute, (&raw mut bytes).cast())
            })
        };
        got.map_or(0, |()| usize::try_from(bytes).unwrap_or(0))
    };
    let kept = figure(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    kept.saturating_sub(figure(
        sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
    ))
}

/// Gives the driver back what the pool keeps and nobody uses: modules, graphs and libraries take memory beside the pool.
#[cfg(feature = "cuda")]
#[allow(unsafe_code, reason = "cudarc leaves pools to their callers' care")]
pub(crate) fn empty_pool(context: &candle_core::cuda_backend::cudarc::driver::CudaContext) {
    use candle_core::cuda_backend::cudarc::driver::result;
    if !context.has_async_alloc() || context.synchronize().is_err() {
        return;
    }
    // SAFETY: the pool is that of a device which the context holds. What fails leaves it as it is.
    let _ = unsafe {
        result::device::get_default_mem_pool(context.cu_device())
            .and_then(|pool| result::mem_pool::trim_to(pool, 0))
    };
}

#[cfg(not(feature = "cuda"))]
fn prepare(_: &Device) -> std::result::Result<(), EncodeError> {
    Ok(())
}

/// Whether a device says that its memory is used up. Libraries say so in words only.
pub(crate) fn is_out_of_memory(message: &str) -> bool {
    let message = message.to_lowercase();
    [
        "out of memory",
        "out_of_memory",
        "alloc_failed",
        // Metal's, and those of candle for it.
        "insufficient memory",
        "outofmemory",
        "failed to create metal resource",
    ]
    .iter()
    .any(|words| message.contains(words))
}
