//! From verdicts to the figures of a run, and from two runs to a comparison.

pub(in crate::conversation) mod aggregate;
pub(in crate::conversation) mod breakdown;
pub(in crate::conversation) mod compare;
pub(in crate::conversation) mod diff;
pub(in crate::conversation) mod differences;
pub(in crate::conversation) mod explain;
pub(in crate::conversation) mod numbers;
pub(in crate::conversation) mod repetitions;
