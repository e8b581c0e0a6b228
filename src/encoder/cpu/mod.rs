//! The packed CPU encoder: transformers without padding, at f32, bf16 or int8.
//!
//! Texts lie end to end; the linear layers run over all tokens at once, attention over one text at
//! a time. Every output element is one sum in one fixed order, whatever else is in the batch, so
//! that a text's vector is the same to the bit in any packing and on any number of threads.

mod attention;
#[allow(
    unsafe_code,
    reason = "instructions found at run time can only be called in unsafe blocks"
)]
mod ceiling;
#[allow(
    unsafe_code,
    reason = "instructions found at run time can only be called in unsafe blocks"
)]
mod columns;
#[allow(
    unsafe_code,
    reason = "instructions found at run time can only be called in unsafe blocks"
)]
mod finish;
#[allow(
    unsafe_code,
    reason = "instructions found at run time can only be called in unsafe blocks"
)]
mod kernels;
mod level;
mod linear;
#[allow(
    unsafe_code,
    reason = "instructions found at run time can only be called in unsafe blocks"
)]
mod narrow;
mod scalar_math;
#[allow(
    unsafe_code,
    reason = "instructions found at run time can only be called in unsafe blocks"
)]
mod softmax;
mod stages;
#[allow(
    unsafe_code,
    reason = "instructions found at run time can only be called in unsafe blocks"
)]
mod tile;
mod transformer;
mod words;

pub use ceiling::ceiling;
pub use level::Level;
pub use linear::Linear;
pub use stages::{Stage, stages};
pub use transformer::CpuTransformer;
pub(crate) use transformer::normalise;
