//! `disagreement`: how many of the other sessions that began alike ended in another answer.
//!
//! Sessions of a project begin alike if the first inputs that say anything are equal texts. The answer is the last number
//! of the last output that says anything; sessions without one have no part. Of the other sessions that began alike, the
//! share whose answer is another number, in [0, 1]: 0.75 where one of four others agrees. A task that is run several times
//! and comes to different ends is wrong at least some of the time, and the odd one out is wrong most often.
//!
//! Null where no other session began alike. It needs no language. It can't see answers in words, nor that all are wrong in
//! the same way, and the same question asked on two days may rightly have two answers.

use std::collections::HashMap;

use super::{SessionFacts, SessionSignal, share};

pub(super) const SIGNAL: SessionSignal = share(
    "disagreement",
    3.0,
    "of sessions that began alike ended in another answer",
);

/// What sessions that began alike ended in. Each session is shown to it once, in any order.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// Sessions that began with a text and have an answer.
    began: HashMap<u64, u32>,
    /// Those that ended in an answer.
    ended: HashMap<(u64, u64), u32>,
}

impl Answers {
    /// Shows a session.
    pub fn see(&mut self, session: &SessionFacts) {
        if let (Some(input), Some(answer)) = (session.first_input, session.answer) {
            *self.began.entry(input).or_default() += 1;
            *self.ended.entry((input, answer)).or_default() += 1;
        }
    }
}

/// The share of the other sessions that began alike and ended in another answer; none where there is no other.
pub fn disagreement(session: &SessionFacts, all: &Answers) -> Option<f64> {
    let (input, answer) = (session.first_input?, session.answer?);
    let others = all.began.get(&input)?.checked_sub(1)?;
    let same = all.ended.get(&(input, answer))?.checked_sub(1)?;
    (others > 0).then(|| 1.0 - f64::from(same) / f64::from(others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_one_out_disagrees_with_all_others() {
        let session = |input, answer| SessionFacts {
            first_input: Some(input),
            answer,
            ..SessionFacts::default()
        };
        let sessions = [
            session(1, Some(20)),
            session(1, Some(20)),
            session(1, Some(30)),
            session(1, None),
            session(2, Some(20)),
        ];
        let mut answers = Answers::default();
        sessions.iter().for_each(|session| answers.see(session));
        let found = sessions.map(|session| disagreement(&session, &answers));
        assert_eq!(found, [Some(0.5), Some(0.5), Some(1.0), None, None]);
    }
}
