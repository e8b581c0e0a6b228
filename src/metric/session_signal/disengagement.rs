//! `disengagement`: the share of inputs that give up or ask for a person.
//!
//! Looked at are the inputs after the first of a session that say anything. One counts if it has one of the phrases below
//! as whole words in any case.
//!
//! Languages: English. It can't see a user who leaves without a word, which is the most common way to give up.

use super::{SessionSignal, share};

pub(super) const SIGNAL: SessionSignal = share("disengagement", 1.0, "of inputs give up");

/// Phrases of a user who gives up.
pub(super) const PHRASES: [&str; 23] = [
    "forget it",
    "forget about it",
    "never mind",
    "nevermind",
    "i give up",
    "i'm done",
    "i am done",
    "this is useless",
    "you're useless",
    "you are useless",
    "not helpful",
    "waste of time",
    "waste of my time",
    "human agent",
    "live agent",
    "real person",
    "real human",
    "talk to a human",
    "speak to a human",
    "talk to someone",
    "speak to someone",
    "speak to a manager",
    "speak with a manager",
];
