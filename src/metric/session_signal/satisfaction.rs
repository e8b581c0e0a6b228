//! `satisfaction`: the share of inputs that thank or praise.
//!
//! Looked at are the inputs after the first of a session that say anything. One counts if it has one of the phrases below
//! as whole words in any case. It is shown and counts for nothing in the order of sessions: people thank out of courtesy,
//! and on labelled sessions it tells success from failure no better than chance.
//!
//! Languages: English. It can't see irony.

use super::{SessionSignal, Worse, share};

pub(super) const SIGNAL: SessionSignal = SessionSignal {
    worse: Worse::Less,
    ..share("satisfaction", 0.0, "of inputs thank or praise")
};

/// Phrases of a user who is content.
pub(super) const PHRASES: [&str; 17] = [
    "thank you",
    "thanks",
    "thank",
    "thx",
    "perfect",
    "awesome",
    "wonderful",
    "excellent",
    "that works",
    "that worked",
    "it works now",
    "works great",
    "that's great",
    "that helps",
    "appreciate it",
    "i appreciate",
    "love it",
];
