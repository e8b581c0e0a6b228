//! `unfinished`: how seldom sessions of this warehouse end with the step that this one ended with.
//!
//! A step of a trace is its last tool call, or no call at all. Of all traces of the warehouse whose step is that of the
//! session's last trace, the share after which the session went on: near 1, the session stopped where others go on (it ran
//! out of steps, was cut off, or was given up); near 0, it ended as sessions end (`Finish`, `Buy now`, a last answer).
//! Calls are told apart by their names, and those that end at least ten sessions with the very same arguments by these too.
//!
//! Null where no session has a tool call: then all end alike. It needs no language. It can't see a session that
//! ended as usual and did nothing, and where most sessions are cut off, being cut off is usual.

use std::collections::HashMap;

use super::{SessionFacts, SessionSignal, Step, share};

pub(super) const SIGNAL: SessionSignal = share(
    "unfinished",
    3.0,
    "of steps like its last one are followed by another",
);

/// Sessions that a call must end with its arguments, to be told from others of its name.
const OFTEN: u32 = 10;

/// How often each step ends sessions of a warehouse. Sessions are shown to it twice, in any order.
#[derive(Clone, Debug, Default)]
pub struct LastSteps {
    /// Sessions that a call ends, by its hash; after the first round only those that end many.
    ends_of_calls: HashMap<u32, u32>,
    any_call: bool,
    /// Ends and occurrences of each kind of step.
    kinds: HashMap<(bool, u32), (u64, u64)>,
}

impl LastSteps {
    /// Shows a session for the first time.
    pub fn see_end(&mut self, session: &SessionFacts) {
        self.any_call |= session.steps.iter().any(|step| step.call.is_some());
        if let Some(call) = session.steps.last().and_then(|step| step.call) {
            *self.ends_of_calls.entry(call).or_default() += 1;
        }
    }

    /// All sessions were shown once.
    pub fn end_of_first_round(&mut self) {
        self.ends_of_calls.retain(|_, sessions| *sessions >= OFTEN);
    }

    /// Shows a session for the second time.
    pub fn see_steps(&mut self, session: &SessionFacts) {
        let last = session.steps.len();
        for (at, step) in session.steps.iter().enumerate() {
            let (ends, all) = self.kinds.entry(self.kind(*step)).or_default();
            *ends += u64::from(at + 1 == last);
            *all += 1;
        }
    }

    fn kind(&self, step: Step) -> (bool, u32) {
        match step.call {
            Some(call) if self.ends_of_calls.contains_key(&call) => (true, call),
            _ => (false, step.name),
        }
    }
}

/// How seldom sessions end with the last step of this one, in [0, 1]; none where nobody can tell.
pub fn unfinished(session: &SessionFacts, warehouse: &LastSteps) -> Option<f64> {
    let last = session.steps.last().filter(|_| warehouse.any_call)?;
    let (ends, all) = warehouse.kinds.get(&warehouse.kind(*last))?;
    Some(1.0 - *ends as f64 / *all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(steps: &[(u32, Option<u32>)]) -> SessionFacts {
        let steps = steps.iter().map(|(name, call)| Step {
            name: *name,
            call: *call,
        });
        SessionFacts {
            steps: steps.collect(),
            ..SessionFacts::default()
        }
    }

    fn values(sessions: &[SessionFacts]) -> Vec<Option<f64>> {
        let mut steps = LastSteps::default();
        sessions.iter().for_each(|session| steps.see_end(session));
        steps.end_of_first_round();
        sessions.iter().for_each(|session| steps.see_steps(session));
        let value = |session| unfinished(session, &steps);
        sessions.iter().map(value).collect()
    }

    #[test]
    fn a_session_that_stops_where_others_go_on_is_unfinished() {
        // Search, search, finish; search, finish; search, search.
        let (search, finish) = ((1, Some(10)), (2, Some(20)));
        let found = values(&[
            session(&[search, search, finish]),
            session(&[search, finish]),
            session(&[search, search]),
        ]);
        // One of five searches ends a session.
        assert_eq!(found, [Some(0.0), Some(0.0), Some(0.8)]);
    }

    #[test]
    fn calls_that_often_end_sessions_are_told_apart_by_their_arguments() {
        let bought: Vec<SessionFacts> = (0..10)
            .map(|n| session(&[(1, Some(100 + n)), (1, Some(7))]))
            .collect();
        let halted = session(&[(1, Some(200)), (1, Some(201))]);
        let found = values(&[&bought[..], &[halted]].concat());
        assert_eq!(found[0], Some(0.0));
        assert_eq!(found[10], Some(1.0 - 1.0 / 12.0));
    }

    #[test]
    fn without_calls_nobody_can_tell() {
        assert_eq!(values(&[session(&[(0, None)])]), [None]);
        assert_eq!(values(&[session(&[])]), [None]);
    }
}
