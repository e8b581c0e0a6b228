//! Metrics that need nothing but spans and outputs: no model, no judge, no expected text. `--metrics spans` names them all.
//!
//! Scores are as everywhere from 0 to 1, and higher is better, also where the name is that of a fault. `latency` and `tokens` are
//! plain numbers: there is no scale on which they would be good or bad by themselves, so that they have a column and neither a score nor
//! a threshold. Scores, but not those numbers, are signals of the session metrics where they are given a weight.

use super::stuck::Stuck;
use super::{Metadata, MetricInfo};
use crate::trace::{OutputDigest, SpanDigest};

/// The name that stands for all of these metrics.
pub const SPANS: &str = "spans";

pub(super) static TOOL_ERROR_RATE: MetricInfo = MetricInfo::of_spans(
    "tool_error_rate",
    &["spans"],
    "The share of tool calls that did not fail: 1 minus the error rate (1 = no call failed).",
);
pub(super) static REPEATED_TOOL_CALLS: MetricInfo = MetricInfo::of_spans(
    "repeated_tool_calls",
    &["spans"],
    "The share of tool calls that the session has not seen before with the same name and arguments (1 = none is repeated).",
);
pub(super) static EMPTY_OUTPUT: MetricInfo = MetricInfo::of_spans(
    "empty_output",
    &["output"],
    "Whether the output says anything (1 = it does, 0 = it is empty).",
);
pub(super) static OUTPUT_TRUNCATED: MetricInfo = MetricInfo::of_spans(
    "output_truncated",
    &["spans"],
    "The share of model answers that were not cut off at a limit of length, by their finish reason (1 = none was cut off).",
);
pub(super) static LATENCY: MetricInfo = MetricInfo::measure(
    "latency",
    "Seconds from the first start to the last end of the spans; a plain number without score and threshold.",
);
pub(super) static TOKENS: MetricInfo = MetricInfo::measure(
    "tokens",
    "Prompt and completion tokens of all model calls; a plain number without score and threshold.",
);

/// A metric of spans and outputs with a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OfSpans {
    /// Which tool calls failed?
    ToolErrorRate,
    /// Which were made before?
    RepeatedToolCalls,
    /// Does the output say anything?
    EmptyOutput,
    /// Were answers cut off?
    OutputTruncated,
    /// Does the agent go round in circles?
    Stuck,
}

/// A number of the spans that is no score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// In seconds.
    Latency,
    /// Of prompts and completions.
    Tokens,
}

/// What is known of a trace.
#[derive(Clone, Debug, Default)]
pub struct SpanFacts {
    /// Of its spans; none where it has none.
    pub spans: Option<SpanDigest>,
    /// Of its output; none where that is null.
    pub output: Option<OutputDigest>,
    /// How stuck its session is by then.
    pub stuck: Option<Stuck>,
    /// Tool calls of it that its session has seen before.
    pub repeated_calls: usize,
}

/// A score and what it is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Unrounded, in [0, 1].
    pub score: f64,
    /// One line for a reader.
    pub reason: String,
    /// The metadata object but its end: threshold and success follow.
    counts: Vec<(&'static str, f64)>,
}

impl Found {
    /// Appends the metadata object.
    pub fn push_metadata(&self, threshold: f64, out: &mut String) {
        let mut metadata = Metadata::object(out);
        for (name, value) in &self.counts {
            match value.fract() == 0.0 && *value >= 0.0 {
                true => metadata.count(name, *value as usize),
                false => metadata.rounded(name, *value),
            };
        }
        metadata
            .number("threshold", threshold)
            .flag("success", self.score >= threshold);
        metadata.end();
    }
}

impl OfSpans {
    /// All of them, in the order of the registry.
    pub const ALL: [Self; 5] = [
        Self::ToolErrorRate,
        Self::RepeatedToolCalls,
        Self::EmptyOutput,
        Self::OutputTruncated,
        Self::Stuck,
    ];

    /// The registered name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ToolErrorRate => TOOL_ERROR_RATE.name,
            Self::RepeatedToolCalls => REPEATED_TOOL_CALLS.name,
            Self::EmptyOutput => EMPTY_OUTPUT.name,
            Self::OutputTruncated => OUTPUT_TRUNCATED.name,
            Self::Stuck => super::stuck::INFO.name,
        }
    }

    /// Whether it looks at the traces of the session that came before.
    pub fn is_of_sessions(self) -> bool {
        matches!(self, Self::RepeatedToolCalls | Self::Stuck)
    }

    /// The score of a trace.
    ///
    /// # Errors
    /// Why there is nothing to score.
    pub fn score(self, facts: &SpanFacts) -> Result<Found, &'static str> {
        const NO_SPANS: &str = "The trace has no spans.";
        const NO_CALLS: &str = "The trace has no tool call.";
        let share = |part: usize, whole: usize| 1.0 - part as f64 / whole as f64;
        let spans = facts.spans.as_ref().ok_or(NO_SPANS);
        match self {
            Self::ToolErrorRate => {
                let spans = spans?;
                let (failed, calls) = (spans.failed_calls as usize, spans.calls.len());
                if calls == 0 {
                    return Err(NO_CALLS);
                }
                Ok(Found {
                    score: share(failed, calls),
                    reason: format!("{failed} of {} failed.", counted(calls, "tool call")),
                    counts: vec![("tool_calls", calls as f64), ("failed", failed as f64)],
                })
            }
            Self::RepeatedToolCalls => {
                let (calls, repeated) = (spans?.calls.len(), facts.repeated_calls);
                if calls == 0 {
                    return Err(NO_CALLS);
                }
                Ok(Found {
                    score: share(repeated, calls),
                    reason: format!(
                        "{repeated} of {} made before in the session.",
                        counted(calls, "tool call")
                    ),
                    counts: vec![("tool_calls", calls as f64), ("repeated", repeated as f64)],
                })
            }
            Self::EmptyOutput => {
                let empty = facts.output.as_ref().is_none_or(OutputDigest::is_empty);
                let reason = match empty {
                    true => "The output is empty.",
                    false => "The output is not empty.",
                };
                Ok(Found {
                    score: if empty { 0.0 } else { 1.0 },
                    reason: reason.into(),
                    counts: Vec::new(),
                })
            }
            Self::OutputTruncated => {
                let spans = spans?;
                let (cut, answers) = (spans.truncated as usize, spans.answers as usize);
                if answers == 0 {
                    return Err("No span of a model call has a finish reason.");
                }
                Ok(Found {
                    score: share(cut, answers),
                    reason: format!("{cut} of {} cut off.", counted(answers, "model answer")),
                    counts: vec![("answers", answers as f64), ("truncated", cut as f64)],
                })
            }
            Self::Stuck => {
                let says = facts
                    .output
                    .as_ref()
                    .is_some_and(|output| !output.is_empty());
                let calls = facts
                    .spans
                    .as_ref()
                    .is_some_and(|spans| !spans.calls.is_empty());
                if !says && !calls {
                    return Err("The trace has neither an output nor a tool call.");
                }
                let stuck = facts.stuck.ok_or("There is nothing before it to repeat.")?;
                let Stuck {
                    score,
                    period,
                    steps,
                } = stuck;
                Ok(Found {
                    score,
                    reason: format!(
                        "A repetition every {} explains {:.0} % of the last {steps}.",
                        counted(period, "step"),
                        100.0 * (1.0 - score)
                    ),
                    counts: vec![
                        ("steps", steps as f64),
                        ("period", period as f64),
                        ("explained", 1.0 - score),
                    ],
                })
            }
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

impl Measure {
    /// All of them, in the order of the registry.
    pub const ALL: [Self; 2] = [Self::Latency, Self::Tokens];

    /// The registered name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => LATENCY.name,
            Self::Tokens => TOKENS.name,
        }
    }

    /// The number of a trace; none where its spans don't say.
    pub fn of(self, facts: &SpanFacts) -> Option<f64> {
        let spans = facts.spans.as_ref()?;
        match self {
            Self::Latency => spans.latency,
            Self::Tokens => spans.tokens.map(|tokens| tokens as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> SpanFacts {
        SpanFacts {
            spans: Some(SpanDigest {
                spans: 6,
                failed_calls: 1,
                calls: vec![1, 2, 1, 3],
                answers: 2,
                truncated: 1,
                tokens: Some(12),
                latency: Some(2.5),
                ..SpanDigest::default()
            }),
            output: Some(OutputDigest::of("yes")),
            stuck: Some(Stuck {
                score: 0.25,
                period: 2,
                steps: 8,
            }),
            repeated_calls: 2,
        }
    }

    #[test]
    fn higher_is_better_for_all_of_them() {
        let scores = OfSpans::ALL.map(|metric| metric.score(&facts()).unwrap().score);
        assert_eq!(scores, [0.75, 0.5, 1.0, 0.5, 0.25]);
        assert_eq!(
            Measure::ALL.map(|m| m.of(&facts())),
            [Some(2.5), Some(12.0)]
        );
        let found = OfSpans::Stuck.score(&facts()).unwrap();
        assert_eq!(
            found.reason,
            "A repetition every 2 steps explains 75 % of the last 8."
        );
        let mut metadata = String::new();
        found.push_metadata(0.5, &mut metadata);
        assert_eq!(
            metadata,
            r#"{"steps":8,"period":2,"explained":0.75,"threshold":0.5,"success":false}"#
        );
    }

    #[test]
    fn what_is_not_there_is_no_score() {
        let nothing = SpanFacts::default();
        for metric in OfSpans::ALL {
            let score = metric.score(&nothing).map(|found| found.score);
            // Only the emptiness of an output is known without spans.
            match metric {
                OfSpans::EmptyOutput => assert_eq!(score, Ok(0.0)),
                _ => assert!(score.is_err(), "{metric:?}"),
            }
        }
        assert_eq!(Measure::ALL.map(|m| m.of(&nothing)), [None, None]);
        let without_calls = SpanFacts {
            spans: Some(SpanDigest {
                spans: 1,
                ..SpanDigest::default()
            }),
            ..SpanFacts::default()
        };
        for metric in [
            OfSpans::ToolErrorRate,
            OfSpans::RepeatedToolCalls,
            OfSpans::OutputTruncated,
        ] {
            assert!(metric.score(&without_calls).is_err(), "{metric:?}");
        }
    }

    #[test]
    fn names_are_those_of_the_registry() {
        use crate::metric::{Method, find};
        for metric in OfSpans::ALL {
            assert_eq!(find(metric.name()).unwrap().method, Method::Spans);
        }
        for measure in Measure::ALL {
            assert_eq!(find(measure.name()).unwrap().method, Method::Measure);
        }
    }
}
