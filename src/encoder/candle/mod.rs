//! The device path: the same models as a candle graph, on CUDA, Metal, or the CPU.
//!
//! On a GPU it computes at f16. On the CPU it computes at f32 and is the oracle that the packed encoder is compared
//! with. Texts are padded to the longest that they go with; what is padded gets no attention and is not pooled. Or they lie end
//! to end, see [`CandleTransformer`].

mod device;
mod lanes;
mod transformer;

pub use device::{CandleDevice, CandleLinear};
#[cfg(feature = "cuda")]
pub(crate) use device::{OPENING, empty_pool, is_out_of_memory};
pub use lanes::Lanes;
pub use transformer::CandleTransformer;

/// As [`crate::REVISION`], for vectors of this path.
pub const REVISION: u32 = 3;

use super::EncodeError;

fn failed(error: candle_core::Error) -> EncodeError {
    EncodeError::Device(said(&error))
}

/// What a device says, without the addresses of a stack, and what to do where that is known.
fn said(error: &candle_core::Error) -> String {
    let mut error = error;
    while let candle_core::Error::WithBacktrace { inner, .. } = error {
        error = inner;
    }
    with_advice(error.to_string())
}

/// What a device says, and what to do where that is known.
pub(crate) fn with_advice(mut said: String) -> String {
    if said.contains("UNSUPPORTED_PTX_VERSION") {
        said += "; this program was built with a newer CUDA than the driver knows: build it with the CUDA version \
                 that nvidia-smi shows, or update the driver";
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_quoted_without_a_stack_and_with_what_to_do() {
        let inner = || Box::new(candle_core::Error::Msg("UNSUPPORTED_PTX_VERSION".into()));
        let traced = candle_core::Error::WithBacktrace {
            inner: inner(),
            backtrace: Box::new(std::backtrace::Backtrace::force_capture()),
        };
        let message = failed(traced).to_string();
        assert_eq!(message, failed(*inner()).to_string());
        assert!(
            message.contains("UNSUPPORTED_PTX_VERSION") && message.contains("nvidia-smi"),
            "{message}"
        );
    }
}
