//! The packed graph for GPUs: texts end to end in slots of fixed size, a row a token and no padding, as few launches as
//! products and norms allow.
//!
//! [`Slot`] lays texts out, [`Plan`] says what is launched, in plain data; `kernels.cu` holds what cuBLASLt has no product
//! for. All of it is held against the CPU without a GPU: kernels against f64 (`emulated/`), the plan
//! against the packed encoder.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod emulated;
#[cfg(any(test, feature = "cuda"))]
mod launches;
#[cfg(feature = "cuda")]
mod on_device;
mod plan;
#[cfg(feature = "cuda")]
mod products;
mod slot;

#[cfg(feature = "cuda")]
pub use cuda::{CudaTransformer, HostLinear, MeasuredStep};
pub use plan::{Buffer, NormOf, Plan, ProductOf, Step};
pub use slot::{Filled, Slot};
