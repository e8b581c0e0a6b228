//! What the session so far says of a trace, on its way from the window to the result files: a cell of three numbers.

use crate::metric::stuck::Stuck;

/// What the steps of a session come to at a trace of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StuckRecord {
    /// How stuck the session is; none before there are two steps.
    pub stuck: Option<Stuck>,
    /// Tool calls of the trace that the session has seen before.
    pub repeated_calls: usize,
}

/// Packs a record.
pub(super) fn pack_stuck_record(record: &StuckRecord) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(12);
    let repeated = u64::try_from(record.repeated_calls).unwrap_or(u64::MAX);
    bytes.extend(repeated.to_le_bytes());
    if let Some(stuck) = record.stuck {
        bytes.extend(stuck.score.to_le_bytes());
        for count in [stuck.period, stuck.steps] {
            // At most as many as the steps that are looked at.
            bytes.extend(u16::try_from(count).unwrap_or(u16::MAX).to_le_bytes());
        }
    }
    bytes
}

/// Unpacks a cell of the plan's `stuck_record` column; none if the bytes are no record.
pub(super) fn unpack_stuck_record(bytes: &[u8]) -> Option<StuckRecord> {
    let (repeated, rest) = bytes.split_first_chunk::<8>()?;
    let repeated_calls = usize::try_from(u64::from_le_bytes(*repeated)).ok()?;
    if rest.is_empty() {
        return Some(StuckRecord {
            stuck: None,
            repeated_calls,
        });
    }
    let (score, rest) = rest.split_first_chunk::<8>()?;
    let (period, rest) = rest.split_first_chunk::<2>()?;
    let steps: [u8; 2] = rest.try_into().ok()?;
    Some(StuckRecord {
        stuck: Some(Stuck {
            score: f64::from_le_bytes(*score),
            period: u16::from_le_bytes(*period).into(),
            steps: u16::from_le_bytes(steps).into(),
        }),
        repeated_calls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let stuck = Stuck {
            score: 0.1 + 0.2,
            period: 63,
            steps: 64,
        };
        for stuck in [None, Some(stuck)] {
            let record = StuckRecord {
                stuck,
                repeated_calls: 7,
            };
            let bytes = pack_stuck_record(&record);
            assert_eq!(unpack_stuck_record(&bytes), Some(record));
            assert_eq!(unpack_stuck_record(&bytes[1..]), None);
        }
    }
}
