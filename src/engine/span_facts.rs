//! What the cells of the plan say of a trace's spans, for metrics of spans.

use super::stuck_record::unpack_stuck_record;
use crate::metric::spans::SpanFacts;
use crate::trace::{OutputDigest, SpanDigest};

/// Reads the digests of spans and output, and what the session so far says; none where there is no such cell. None at all
/// if a cell is unreadable.
pub fn span_facts(
    spans: Option<&[u8]>,
    output: Option<&[u8]>,
    record: Option<&[u8]>,
) -> Option<SpanFacts> {
    let spans = match spans {
        None => None,
        Some(bytes) => Some(SpanDigest::from_bytes(bytes)?),
    };
    let output = match output {
        None => None,
        Some(bytes) => Some(OutputDigest::from_bytes(bytes)?),
    };
    let record = match record {
        None => Default::default(),
        Some(bytes) => unpack_stuck_record(bytes)?,
    };
    Some(SpanFacts {
        spans,
        output,
        stuck: record.stuck,
        repeated_calls: record.repeated_calls,
    })
}
