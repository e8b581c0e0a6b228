//! The traces of a session, one after the other, folded into its signals.

use std::collections::{HashSet, VecDeque};

use super::again::{Again, Repeats};
use super::{InputFacts, OutputFacts, SessionFacts, Step};
use super::{misalignment, stagnation, vocabulary_richness::vocabulary_richness};
use crate::text::WordSketch;
use crate::trace::SpanDigest;

/// What a session comes to so far.
#[derive(Clone, Debug, Default)]
pub struct SessionFold {
    traces: u32,
    words: u64,
    longest: u32,
    /// Hashes of all words of outputs.
    distinct: HashSet<u32>,
    /// Outputs with words.
    outputs: u32,
    repeated_outputs: u32,
    recent_outputs: VecDeque<WordSketch>,
    first_input: Option<u64>,
    /// Inputs that say anything.
    turns: u32,
    corrections: u32,
    given_up: u32,
    thanks: u32,
    recent_inputs: VecDeque<WordSketch>,
    answer: Option<u64>,
    has_spans: bool,
    calls: u64,
    failed_calls: u64,
    repeated_calls: u64,
    seen_calls: HashSet<u64>,
    at_limits: u32,
    steps: Vec<Step>,
    asked: Repeats,
    said: Repeats,
}

fn remember(recent: &mut VecDeque<WordSketch>, words: WordSketch, most: usize) {
    if recent.len() == most {
        recent.pop_front();
    }
    recent.push_back(words);
}

impl SessionFold {
    /// The next trace, in session order; none is what the trace does not have.
    pub fn push(
        &mut self,
        input: Option<&InputFacts>,
        output: Option<&OutputFacts>,
        spans: Option<&SpanDigest>,
        again: Again,
    ) {
        self.asked.push(again.asked);
        self.said.push(again.said);
        self.traces += 1;
        if let Some(input) = input.filter(|input| input.text.is_some()) {
            self.push_input(input);
        }
        if let Some(output) = output {
            self.push_output(output);
        }
        let cut_off = spans.is_some_and(|spans| spans.truncated > 0);
        let says = output.is_some_and(|output| output.speaks_of_limit);
        self.at_limits += u32::from(cut_off || says);
        if let Some(spans) = spans {
            self.has_spans = true;
            self.calls += spans.calls.len() as u64;
            self.failed_calls += u64::from(spans.failed_calls);
            for call in &spans.calls {
                self.repeated_calls += u64::from(!self.seen_calls.insert(*call));
            }
        }
        let last = spans.and_then(|spans| Some((spans.last_name?, spans.calls.last()?)));
        self.steps.push(match last {
            None => Step {
                name: 0,
                call: None,
            },
            Some((name, call)) => Step {
                name,
                // One of the numbers stands for no call.
                call: Some(((call >> 32) as u32).min(u32::MAX - 1)),
            },
        });
    }

    fn push_input(&mut self, input: &InputFacts) {
        self.turns += 1;
        if self.turns == 1 {
            self.first_input = input.text;
        } else {
            let asked = |earlier| misalignment::asks_again(&input.words, earlier);
            let again = self.recent_inputs.iter().any(asked);
            self.corrections += u32::from(input.corrects || again);
            self.given_up += u32::from(input.gives_up);
            self.thanks += u32::from(input.thanks);
        }
        let (recent, most) = (&mut self.recent_inputs, misalignment::LOOKED_BACK);
        remember(recent, input.words.clone(), most);
    }

    fn push_output(&mut self, output: &OutputFacts) {
        if output.says {
            self.answer = output.last_number;
        }
        if output.words == 0 {
            return;
        }
        self.words += u64::from(output.words);
        self.longest = self.longest.max(output.words);
        self.distinct.extend(&output.distinct);
        let words = output.sketch();
        self.outputs += 1;
        let said = |earlier| stagnation::says_again(&words, earlier);
        self.repeated_outputs += u32::from(self.recent_outputs.iter().any(said));
        remember(&mut self.recent_outputs, words, stagnation::LOOKED_BACK);
    }

    /// What the session comes to.
    pub fn finish(self) -> SessionFacts {
        let share = |part: u32, whole: u32| (whole > 0).then(|| f64::from(part) / f64::from(whole));
        let of_turns = |part| share(part, self.turns.saturating_sub(1));
        let of_spans = |count: u64| self.has_spans.then_some(count as f64);
        SessionFacts {
            values: [
                Some(self.words as f64),
                Some(f64::from(self.longest)),
                vocabulary_richness(self.distinct.len(), self.words),
                of_spans(self.calls),
                of_spans(self.failed_calls),
                of_spans(self.repeated_calls),
                of_turns(self.corrections),
                share(self.repeated_outputs, self.outputs.saturating_sub(1)),
                of_turns(self.given_up),
                of_turns(self.thanks),
                share(self.at_limits, self.traces),
                self.asked.share(),
                self.said.share(),
            ],
            first_input: self.first_input,
            answer: self.answer,
            steps: self.steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SESSION_SIGNALS;
    use super::*;

    fn facts(turns: &[(&str, &str)], spans: &[SpanDigest]) -> SessionFacts {
        let mut fold = SessionFold::default();
        for (at, (input, output)) in turns.iter().enumerate() {
            let (input, output) = (InputFacts::of(input), OutputFacts::of(output));
            let again = Again {
                asked: (at > 0).then_some(0.95),
                said: None,
            };
            fold.push(Some(&input), Some(&output), spans.get(at), again);
        }
        fold.finish()
    }

    #[test]
    fn signals_are_those_counted_by_hand() {
        let spans = [
            SpanDigest {
                calls: vec![1 << 40, 2 << 40],
                failed_calls: 1,
                last_name: Some(5),
                ..SpanDigest::default()
            },
            SpanDigest {
                calls: vec![1 << 40],
                last_name: Some(4),
                truncated: 1,
                answers: 1,
                ..SpanDigest::default()
            },
        ];
        let session = facts(
            &[
                ("where is my red parcel", "It is on the way to you"),
                ("where is my red parcel?", "On the way: it is, to you."),
                ("no, I said the blue one", "The blue one came at 5"),
                ("thanks", ""),
                ("forget it", "Sorry."),
            ],
            &spans,
        );
        let value = |name| session.value(&SESSION_SIGNALS, name);
        assert_eq!(value("output_words"), Some(21.0));
        assert_eq!(value("longest_output"), Some(7.0));
        // it is on the way to you; blue one came at 5; sorry.
        assert_eq!(value("vocabulary_richness"), Some(13.0 / 21.0));
        assert_eq!(value("tool_calls"), Some(3.0));
        assert_eq!(value("failed_calls"), Some(1.0));
        assert_eq!(value("repeated_calls"), Some(1.0));
        assert_eq!(value("misalignment"), Some(0.5));
        assert_eq!(value("stagnation"), Some(1.0 / 3.0));
        assert_eq!(value("disengagement"), Some(0.25));
        assert_eq!(value("satisfaction"), Some(0.25));
        assert_eq!(value("exhaustion"), Some(0.2));
        assert_eq!(
            (value("asked_again"), value("said_again")),
            (Some(1.0), None)
        );
        // The last output that says anything has no number.
        assert_eq!(session.answer, None);
        assert_eq!(session.steps.len(), 5);
        assert_eq!(session.steps[0].name, 5);
    }

    #[test]
    fn what_is_not_there_is_not_measured() {
        let session = facts(&[("hello", "")], &[]);
        let value = |name| session.value(&SESSION_SIGNALS, name);
        assert_eq!(value("output_words"), Some(0.0));
        for name in [
            "vocabulary_richness",
            "tool_calls",
            "misalignment",
            "stagnation",
        ] {
            assert_eq!(value(name), None, "{name}");
        }
        assert_eq!(
            SessionFold::default()
                .finish()
                .value(&SESSION_SIGNALS, "exhaustion"),
            None
        );
    }
}
