//! What is more than chance: sums over the scores of sessions, and intervals of their means.

mod student;
mod sums;

pub(crate) use student::quantile;
pub(crate) use sums::{
    Difference, LEAST_NIGHTS, LEAST_SESSIONS, STEPS, Sums, difference, mean_interval,
};
