//! What the comparing metrics came to for a row, on its way from its texts to the result files.
//!
//! Texts stop where they are compared: what is sorted and copied with the row is a cell of a few numbers, and reasons
//! and metadata are written only where the row ends.

use crate::metric::compared::Compared;
use crate::metric::factuality::Path;

const FACTUALITY: u8 = 0;
const FORMAT: u8 = 1;
const TONE: u8 = 2;

/// Adds what a metric came to.
pub(super) fn pack_comparison(compared: &Compared, into: &mut Vec<u8>) {
    let (kind, score) = match compared {
        Compared::Factuality { score, .. } => (FACTUALITY, score),
        Compared::Format { score, .. } => (FORMAT, score),
        Compared::Tone { score, .. } => (TONE, score),
    };
    into.push(kind);
    into.extend(score.to_le_bytes());
    match compared {
        Compared::Factuality { path, .. } => {
            let place = Path::ALL.iter().position(|other| other == path);
            into.push(
                place
                    .and_then(|at| u8::try_from(at).ok())
                    .unwrap_or(u8::MAX),
            );
        }
        Compared::Format { passed, .. } => into.extend(passed.map(|passed| match passed {
            None => 2,
            Some(passed) => u8::from(passed),
        })),
        Compared::Tone { dimensions, .. } => {
            // No value is NaN: those are shares.
            let values = dimensions.map(|value| value.unwrap_or(f64::NAN).to_le_bytes());
            into.extend(values.as_flattened());
        }
    }
}

/// Unpacks a cell of the plan's `comparison_record` column; `None` if the bytes are no record.
pub fn unpack_comparison_record(mut bytes: &[u8]) -> Option<Vec<Compared>> {
    let mut all = Vec::with_capacity(3);
    while let Some((kind, rest)) = bytes.split_first() {
        let (score, rest) = rest.split_first_chunk()?;
        let score = f64::from_le_bytes(*score);
        let (compared, rest) = match *kind {
            FACTUALITY => {
                let (place, rest) = rest.split_first()?;
                let path = *Path::ALL.get(usize::from(*place))?;
                (Compared::Factuality { score, path }, rest)
            }
            FORMAT => {
                let (marks, rest) = rest.split_first_chunk::<7>()?;
                let passed = marks.map(|mark| (mark < 2).then_some(mark == 1));
                (Compared::Format { score, passed }, rest)
            }
            TONE => {
                let (values, rest) = rest.split_first_chunk::<40>()?;
                let (values, _) = values.as_chunks::<8>();
                let mut dimensions = [None; 5];
                for (dimension, value) in dimensions.iter_mut().zip(values) {
                    *dimension = Some(f64::from_le_bytes(*value)).filter(|value| !value.is_nan());
                }
                (Compared::Tone { score, dimensions }, rest)
            }
            _ => return None,
        };
        all.push(compared);
        bytes = rest;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let all = [
            Compared::Factuality {
                score: 0.1 + 0.2,
                path: Path::Ngram,
            },
            Compared::Format {
                score: 1.0 / 7.0,
                passed: [Some(true), Some(false), None, None, None, Some(false), None],
            },
            Compared::Tone {
                score: 0.5,
                dimensions: [Some(0.0), None, Some(1.0), Some(1.0 / 3.0), None],
            },
        ];
        let mut bytes = Vec::new();
        all.iter().for_each(|one| pack_comparison(one, &mut bytes));
        assert_eq!(unpack_comparison_record(&bytes).unwrap(), all);
        assert_eq!(unpack_comparison_record(&[]).unwrap(), []);
        for length in [1, 9, 10 + 3, bytes.len() - 1] {
            assert!(
                unpack_comparison_record(&bytes[..length]).is_none(),
                "{length}"
            );
        }
        bytes[0] = 9;
        assert!(unpack_comparison_record(&bytes).is_none());
    }
}
