//! A loop detection on its way from the window to the result files.
//!
//! Window functions return one scalar a row. A binary cell with nothing but the numbers is the cheapest
//! that holds a whole detection: it is merged and copied with its row, so metadata and reasons are
//! written only where the row ends.

use crate::metric::NonFinite;
use crate::metric::loop_detection::{Comparison, LoopDetection};

const NO_CONTEXT: u8 = 0;
const EMPTY_OUTPUT: u8 = 1;
const NO_PREVIOUS_OUTPUTS: u8 = 2;
const COMPARED: u8 = 3;
const NON_FINITE: u8 = 4;

/// Bytes of a comparison: how far back, cosine, word overlap.
const COMPARISON: usize = 2 + 8 + 8;

/// Packs a detection or its failure.
pub(super) fn pack_loop_record(detection: &Result<LoopDetection, NonFinite>) -> Vec<u8> {
    match detection {
        Err(NonFinite) => vec![NON_FINITE],
        Ok(LoopDetection::NoContext) => vec![NO_CONTEXT],
        Ok(LoopDetection::EmptyOutput) => vec![EMPTY_OUTPUT],
        Ok(LoopDetection::NoPreviousOutputs) => vec![NO_PREVIOUS_OUTPUTS],
        Ok(LoopDetection::Compared {
            comparisons,
            earlier,
            threshold: _,
        }) => {
            let mut bytes = Vec::with_capacity(1 + 8 + comparisons.len() * COMPARISON);
            bytes.push(COMPARED);
            bytes.extend((*earlier as u64).to_le_bytes());
            for comparison in comparisons {
                // Windows have at most 1,000 traces.
                let back = u16::try_from(comparison.back).unwrap_or(u16::MAX);
                bytes.extend(back.to_le_bytes());
                bytes.extend(comparison.cosine.to_le_bytes());
                bytes.extend(comparison.jaccard.to_le_bytes());
            }
            bytes
        }
    }
}

/// Unpacks a cell of the plan's `loop_record` column, with the threshold in force; `None` if the bytes
/// are no record.
pub fn unpack_loop_record(
    bytes: &[u8],
    threshold: f64,
) -> Option<Result<LoopDetection, NonFinite>> {
    let (kind, rest) = bytes.split_first()?;
    Some(match *kind {
        NON_FINITE => Err(NonFinite),
        NO_CONTEXT => Ok(LoopDetection::NoContext),
        EMPTY_OUTPUT => Ok(LoopDetection::EmptyOutput),
        NO_PREVIOUS_OUTPUTS => Ok(LoopDetection::NoPreviousOutputs),
        COMPARED => {
            let (earlier, rest) = rest.split_first_chunk::<8>()?;
            Ok(LoopDetection::Compared {
                comparisons: rest
                    .chunks(COMPARISON)
                    .map(comparison)
                    .collect::<Option<_>>()?,
                earlier: usize::try_from(u64::from_le_bytes(*earlier)).ok()?,
                threshold,
            })
        }
        _ => return None,
    })
}

fn comparison(bytes: &[u8]) -> Option<Comparison> {
    let (back, rest) = bytes.split_first_chunk::<2>()?;
    let (cosine, rest) = rest.split_first_chunk::<8>()?;
    Some(Comparison {
        back: u16::from_le_bytes(*back).into(),
        cosine: f64::from_le_bytes(*cosine),
        jaccard: f64::from_le_bytes(rest.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn detections() -> impl Strategy<Value = Result<LoopDetection, NonFinite>> {
        let comparison =
            (1usize..1001, 0.0..1.0f64, 0.0..1.0f64).prop_map(|(back, cosine, jaccard)| {
                Comparison {
                    back,
                    cosine,
                    jaccard,
                }
            });
        prop_oneof![
            Just(Err(NonFinite)),
            Just(Ok(LoopDetection::NoContext)),
            Just(Ok(LoopDetection::EmptyOutput)),
            Just(Ok(LoopDetection::NoPreviousOutputs)),
            (prop::collection::vec(comparison, 1..5), any::<usize>()).prop_map(
                |(comparisons, earlier)| Ok(LoopDetection::Compared {
                    comparisons,
                    earlier,
                    threshold: 0.5
                })
            ),
        ]
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_out_again(detection in detections()) {
            prop_assert_eq!(unpack_loop_record(&pack_loop_record(&detection), 0.5), Some(detection));
        }
    }
}
