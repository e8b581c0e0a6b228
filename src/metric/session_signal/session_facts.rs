//! What a session comes to: its signals, and what the warehouse needs to know of it.

#[cfg(doc)]
use super::{SESSION_SIGNALS, WAREHOUSE_SIGNALS};
use super::{SIGNAL_COUNT, SessionSignal};

/// The step of a trace: its last tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// A hash of the name; 0 where the trace has no call.
    pub name: u32,
    /// A hash of name and arguments.
    pub call: Option<u32>,
}

/// What a session comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionFacts {
    /// In the order of [`SESSION_SIGNALS`]; none where there is nothing to measure.
    pub values: [Option<f64>; SIGNAL_COUNT],
    /// A hash of the project and the first input that says anything, for [`WAREHOUSE_SIGNALS`].
    pub first_input: Option<u64>,
    /// The last number of the last output that says anything, as its bits.
    pub answer: Option<u64>,
    /// The steps of its traces.
    pub steps: Vec<Step>,
}

const NONE: u64 = u64::MAX;
const NO_CALL: u32 = u32::MAX;

impl SessionFacts {
    /// The facts as a cell.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(8 * (SIGNAL_COUNT + 2) + 8 * self.steps.len());
        for value in self.values {
            bytes.extend(value.unwrap_or(f64::NAN).to_le_bytes());
        }
        for hash in [self.first_input, self.answer] {
            bytes.extend(hash.unwrap_or(NONE).to_le_bytes());
        }
        for step in &self.steps {
            bytes.extend(step.name.to_le_bytes());
            bytes.extend(step.call.unwrap_or(NO_CALL).to_le_bytes());
        }
        bytes
    }

    /// Reads a cell; none if it holds no facts.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (values, rest) = bytes.split_first_chunk::<{ 8 * SIGNAL_COUNT }>()?;
        let mut facts = Self::default();
        let (values, _) = values.as_chunks::<8>();
        for (into, value) in facts.values.iter_mut().zip(values) {
            *into = Some(f64::from_le_bytes(*value)).filter(|value| !value.is_nan());
        }
        let (first, rest) = rest.split_first_chunk::<8>()?;
        let (answer, rest) = rest.split_first_chunk::<8>()?;
        let some = |hash: &[u8; 8]| Some(u64::from_le_bytes(*hash)).filter(|hash| *hash != NONE);
        (facts.first_input, facts.answer) = (some(first), some(answer));
        let (steps, after) = rest.as_chunks::<8>();
        let half = |step: &[u8; 8], at: usize| {
            let half = step.get(at..at + 4).and_then(|half| half.try_into().ok());
            half.map_or(0, u32::from_le_bytes)
        };
        facts.steps = steps
            .iter()
            .map(|step| Step {
                name: half(step, 0),
                call: Some(half(step, 4)).filter(|call| *call != NO_CALL),
            })
            .collect();
        after.is_empty().then_some(facts)
    }

    /// The value of a signal by its place in [`SESSION_SIGNALS`].
    pub fn value(&self, signals: &[SessionSignal], name: &str) -> Option<f64> {
        let at = signals.iter().position(|signal| signal.name == name)?;
        self.values.get(at).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_back() {
        let mut facts = SessionFacts {
            first_input: Some(7),
            steps: vec![
                Step {
                    name: 0,
                    call: None,
                },
                Step {
                    name: 3,
                    call: Some(9),
                },
            ],
            ..SessionFacts::default()
        };
        facts.values[3] = Some(2.0);
        let bytes = facts.to_bytes();
        assert_eq!(SessionFacts::from_bytes(&bytes), Some(facts));
        assert_eq!(SessionFacts::from_bytes(&bytes[1..]), None);
        assert_eq!(SessionFacts::from_bytes(&[]), None);
    }
}
