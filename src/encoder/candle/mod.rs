//! The device path: the same models as a candle graph, on CUDA, Metal, or the CPU.
//!
//! On a GPU it computes at f16. On the CPU it computes at f32 and is the oracle that the packed encoder is compared
//! with. Texts are padded to the longest of their bucket; what is padded gets no attention and is not pooled.

mod bert;
mod device;

pub use bert::CandleBert;
pub use device::{CandleDevice, CandleLinear};

use super::EncodeError;

fn failed(error: candle_core::Error) -> EncodeError {
    EncodeError::Device(error.to_string())
}
