//! Signals of whole sessions, without judge and model: plain numbers of what was said and done, for the order of sessions
//! in the morning. No signal is a score: none has a threshold, and none has a part in the scores of other systems.
//!
//! Each is a column of the table `sessions`, null where a session has nothing to measure. A signal file says what is
//! counted, in which languages, and what it can't see.

/// The way in which a signal is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    /// More of it is worse.
    More,
    /// Less of it is worse.
    Less,
}

/// A signal of sessions.
#[derive(Clone, Copy, Debug)]
pub struct SessionSignal {
    /// The registered name, and the column.
    pub name: &'static str,
    /// The way in which it is worse.
    pub worse: Worse,
    /// What it counts for in the order of sessions, 0 for nothing.
    pub weight: f64,
    /// What the number counts, for a sentence: `failed tool calls`.
    pub counts: &'static str,
    /// Whether it is a share, from 0 to 1, and not a count.
    pub is_share: bool,
}

const fn count(name: &'static str, weight: f64, counts: &'static str) -> SessionSignal {
    SessionSignal {
        name,
        worse: Worse::More,
        weight,
        counts,
        is_share: false,
    }
}

const fn share(name: &'static str, weight: f64, counts: &'static str) -> SessionSignal {
    SessionSignal {
        is_share: true,
        ..count(name, weight, counts)
    }
}

/// All signals that are columns of `sessions`, in their order there.
pub static SESSION_SIGNALS: [SessionSignal; 11] = [
    count("output_words", 1.0, "words in outputs"),
    count("longest_output", 1.0, "words in the longest output"),
    SessionSignal {
        worse: Worse::Less,
        ..share(
            "vocabulary_richness",
            0.0,
            "distinct words of all words in outputs",
        )
    },
    count("tool_calls", 1.0, "tool calls"),
    count("failed_calls", 1.0, "failed tool calls"),
    count(
        "repeated_calls",
        1.0,
        "tool calls made before in the session",
    ),
    share(
        "misalignment",
        1.0,
        "of the user's turns correct the agent or ask again",
    ),
    share("stagnation", 1.0, "of outputs repeat an earlier one"),
    share("disengagement", 1.0, "of the user's turns give up"),
    SessionSignal {
        worse: Worse::Less,
        ..share("satisfaction", 0.0, "of the user's turns thank or praise")
    },
    share(
        "exhaustion",
        1.0,
        "of outputs were cut off or speak of a limit",
    ),
];

/// Signals that only the whole warehouse tells; columns of the table `attention`.
pub static WAREHOUSE_SIGNALS: [SessionSignal; 2] = [
    share(
        "unfinished",
        1.0,
        "of sessions go on after such a last step",
    ),
    share(
        "disagreement",
        3.0,
        "of sessions that began alike ended in another answer",
    ),
];
