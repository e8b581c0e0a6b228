//! Signals of whole sessions, without judge and model: plain numbers of what was said and done, for the order of sessions
//! in the morning. `--metrics attention` names them all.
//!
//! No signal is a score: none has a threshold, and none has a part in the scores of other systems. Each is a column of the
//! table `sessions`, null where a session has nothing to measure; the two that only the whole warehouse tells are columns
//! of the table `attention`. A file says what is counted, in which languages, and what it can't see. The families are
//! those of "Signals: Trajectory Sampling and Triage for Agentic Interactions" (arXiv 2604.00356).

pub mod again;
mod calls;
mod disagreement;
mod disengagement;
mod exhaustion;
mod fold;
mod misalignment;
mod output_words;
mod said;
mod satisfaction;
mod session_facts;
mod stagnation;
mod unfinished;
mod vocabulary_richness;

pub use again::Again;
pub use disagreement::{Answers, disagreement};
pub use fold::SessionFold;
pub use said::{InputFacts, OutputFacts};
pub use session_facts::{SessionFacts, Step};
pub use stagnation::{LOOKED_BACK as OUTPUTS_LOOKED_BACK, SAME as SAME_OUTPUT};
pub use unfinished::{LastSteps, unfinished};

use super::{Level, Method, MetricInfo};

/// The name of the order of sessions, which stands for all signals of sessions.
pub const ATTENTION: &str = "attention";

pub(super) static INFO: MetricInfo = MetricInfo {
    name: ATTENTION,
    level: Level::Session,
    method: Method::Signals,
    default_threshold: super::DEFAULT_THRESHOLD,
    inputs: &["input", "output", "spans"],
    meaning: "The order in which to look at sessions: how unusual their signals are among all sessions (1 = look first); no score, and no threshold.",
    asks: None,
};

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
    /// What it counts for in the order of sessions where no model was learnt; 0 for nothing.
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

/// How many signals are columns of `sessions`.
pub const SIGNAL_COUNT: usize = 13;

/// All signals that are columns of `sessions`, in their order there.
pub static SESSION_SIGNALS: [SessionSignal; SIGNAL_COUNT] = [
    output_words::OUTPUT_WORDS,
    output_words::LONGEST_OUTPUT,
    vocabulary_richness::SIGNAL,
    calls::TOOL_CALLS,
    calls::FAILED_CALLS,
    calls::REPEATED_CALLS,
    misalignment::SIGNAL,
    stagnation::SIGNAL,
    disengagement::SIGNAL,
    satisfaction::SIGNAL,
    exhaustion::SIGNAL,
    again::ASKED_AGAIN,
    again::SAID_AGAIN,
];

/// Signals that only the whole warehouse tells; columns of the table `attention`.
pub static WAREHOUSE_SIGNALS: [SessionSignal; 2] = [unfinished::SIGNAL, disagreement::SIGNAL];

/// The traces of a session: what a learnt model may look at beside the signals.
pub static TRACES: SessionSignal = count("traces", 0.0, "traces");

/// All that the order of sessions may be learnt from.
pub fn learnable() -> impl Iterator<Item = &'static SessionSignal> {
    let of_tables = SESSION_SIGNALS.iter().chain([&TRACES]);
    of_tables.chain(&WAREHOUSE_SIGNALS)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_signal_has_a_name_of_its_own() {
        let all = SESSION_SIGNALS.iter().chain(&WAREHOUSE_SIGNALS);
        let names: HashSet<&str> = all.map(|signal| signal.name).collect();
        assert_eq!(names.len(), SIGNAL_COUNT + 2);
        let metrics = crate::metric::ALL.iter();
        assert!(metrics.filter(|m| names.contains(m.name)).count() == 0);
    }
}
