//! A loop detection on its way from the window to the result files.

use crate::metric::loop_detection::LoopDetection;

/// One trace's loop detection, packed: score, strongest comparison and metadata in one binary cell.
/// Window functions return one scalar a row; a binary cell is the cheapest that holds it all.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopRecord<'a> {
    /// Unrounded score in [0, 1]; NaN if the metric failed.
    pub score_raw: f64,
    /// How many traces back the most similar output is, if anything was compared.
    pub strongest_back: Option<u8>,
    /// The metadata object, or the failure's reason.
    pub text: &'a str,
}

const HEAD: usize = 9;

impl<'a> LoopRecord<'a> {
    /// Packs a detection. `trace_id_back(n)` names the trace `n` places before this one.
    pub(super) fn pack<'t>(
        detection: &LoopDetection,
        trace_id_back: impl Fn(usize) -> Option<&'t str>,
    ) -> Vec<u8> {
        let mut metadata = String::with_capacity(512);
        detection.push_metadata(&mut metadata, trace_id_back);
        let back = detection
            .strongest()
            .map_or(0, |c| u8::try_from(c.back).unwrap_or(u8::MAX));
        Self::bytes(detection.score_raw(), back, &metadata)
    }

    /// Packs a failure.
    pub(super) fn pack_failure(reason: &str) -> Vec<u8> {
        Self::bytes(f64::NAN, 0, reason)
    }

    fn bytes(score: f64, back: u8, text: &str) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + text.len());
        bytes.extend(score.to_le_bytes());
        bytes.push(back);
        bytes.extend(text.as_bytes());
        bytes
    }

    /// Unpacks a cell; `None` if the bytes are no record.
    pub fn unpack(bytes: &'a [u8]) -> Option<Self> {
        let (score, rest) = bytes.split_first_chunk::<8>()?;
        let (back, text) = rest.split_first()?;
        Some(Self {
            score_raw: f64::from_le_bytes(*score),
            strongest_back: (*back > 0).then_some(*back),
            text: std::str::from_utf8(text).ok()?,
        })
    }
}
