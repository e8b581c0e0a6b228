//! The sessions that a morning should begin with.

use serde::{Deserialize, Serialize};

/// A session and its place in the order of all sessions of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionSession {
    /// As in the table `sessions`.
    pub session_id: String,
    /// As there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub project_id: Option<String>,
    /// 1 comes first.
    pub place: u64,
    /// In [0, 1]; 1 is the most unusual, on the bad side, in all its signals.
    pub attention: f64,
    /// Its traces.
    pub traces: u64,
    /// The two signals that count most in it, the larger first; fewer where fewer are unusual at all.
    pub parts: Vec<AttentionPart>,
    /// The same in words: `failed tool calls: 4 (more than 97 % of sessions); …`.
    pub why: String,
}

/// What a signal counts for in the place of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionPart {
    /// The name of the signal.
    pub signal: String,
    /// Its number.
    pub value: f64,
    /// The share of sessions where it is less bad, in [0, 1).
    pub rank: f64,
}

/// How the order of sessions came about.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttentionSummary {
    /// Sessions that have a place.
    pub sessions: u64,
    /// `unsupervised`, or the name of the file of a learnt model.
    pub model: String,
    /// The first ones, at most ten.
    pub first: Vec<AttentionSession>,
}
