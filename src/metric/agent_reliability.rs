//! `agent_reliability`: how bad are the worst steps of a session? As in PandaProbe.
//!
//! A step is as risky as its worst weighted signal; the score is one minus the mean risk of the
//! riskiest 15 % of steps, with a tenth of weight on the single worst.
//!
//! Scores of spans (`stuck` and others) are signals too where they are given a weight, which PandaProbe does not know.

use super::signals::compensated_sum;
use super::{Metadata, SessionSignals, SignalWeights, Signals, clamp01, round4};

/// What lists say of it.
pub(super) static INFO: super::MetricInfo = super::MetricInfo {
    name: "agent_reliability",
    level: super::Level::Session,
    method: super::Method::Aggregate,
    default_threshold: super::DEFAULT_THRESHOLD,
    inputs: &[
        "confidence",
        "loop_detection",
        "tool_correctness",
        "coherence",
    ],
    meaning: "How bad the worst steps of the session are (1 = no risky step, 0 = the worst steps failed).",
    asks: None,
};

const TOP_SHARE: f64 = 0.15;
const WEIGHT_OF_MAX: f64 = 0.1;
/// A step riskier than this is flagged (weighted, unrounded, strict).
pub const FLAG_ABOVE: f64 = 0.5;

/// The reliability of one session.
#[derive(Clone, Debug, PartialEq)]
pub struct Reliability {
    /// Stored score: 4 decimals, in [0, 1].
    pub score: f64,
    /// Unrounded score in [0, 1].
    pub score_raw: f64,
    /// How many traces had a signal. 0 makes the score a score of nothing.
    pub evaluated_traces: usize,
    /// Positions (in session order) of traces whose step risk exceeds 0.5.
    pub flagged: Vec<usize>,
    /// Metadata as JSON text.
    pub metadata: String,
    /// One line for a reader.
    pub reason: String,
}

/// The weighted risk of a trace: its worst signal. `None` if it has no signal.
pub fn step_risk(signals: &Signals, weights: &SignalWeights) -> Option<f64> {
    let weights = weights.in_order();
    signals
        .counted(&weights)
        .iter()
        .zip(weights)
        .filter_map(|(signal, weight)| signal.map(|s| weight * (1.0 - s)))
        .reduce(f64::max)
}

/// Scores a session.
pub fn agent_reliability(session: SessionSignals<'_>, weights: &SignalWeights) -> Reliability {
    if session.is_empty() {
        return nothing(
            r#"{"note":"empty_session"}"#,
            "empty_session: no traces or signals to evaluate.",
        );
    }
    let by_signal = weights.in_order();
    let steps: Vec<Option<f64>> = session
        .signals
        .iter()
        .map(|s| step_risk(s, weights))
        .collect();
    let mut risks: Vec<f64> = steps.iter().copied().flatten().collect();
    let n = risks.len();
    if n == 0 {
        return nothing("{}", "no_evaluable_traces: no trace has a signal.");
    }
    risks.sort_unstable_by(|a, b| b.total_cmp(a));
    let k = ((n as f64 * TOP_SHARE).ceil() as usize).max(1);
    let mean_top_k = compensated_sum(risks.iter().take(k).copied()) / k as f64;
    let max_risk = risks[0];
    let raw = (1.0 - WEIGHT_OF_MAX) * mean_top_k + WEIGHT_OF_MAX * max_risk;
    let flagged: Vec<usize> = (0..steps.len())
        .filter(|&i| steps[i].is_some_and(|risk| risk > FLAG_ABOVE))
        .collect();

    let mut metadata = String::new();
    let mut object = Metadata::object(&mut metadata);
    object
        .count("total_traces_in_session", session.trace_ids.len())
        .count("traces_evaluated", n)
        .rounded("raw_risk", raw);
    weights.push_metadata(&mut object);
    object.nested("per_trace_signals", |details| {
        let mut seen = Seen::default();
        for ((id, signals), step) in session.trace_ids.iter().zip(session.signals).zip(&steps) {
            let (Some(step), true) = (step, seen.first_time(id)) else {
                continue;
            };
            details.nested(id, |detail| {
                signals.push_risks(&by_signal, detail);
                detail.rounded("step_risk", *step);
            });
        }
    });
    object
        .texts(
            "flagged_traces",
            flagged.iter().map(|&i| session.trace_ids[i]),
        )
        .nested("aggregation", |aggregation| {
            aggregation
                .text("method", "max_compose_top_k")
                .number("top_k_percentile", TOP_SHARE)
                .number("ensemble_weight", WEIGHT_OF_MAX)
                .rounded("mean_top_k_risk", mean_top_k)
                .rounded("max_risk", max_risk);
        });
    object.end();

    let reason = match flagged.len() {
        0 => format!("No elevated risk across {n} traces."),
        flagged => format!("Elevated risk in {flagged} of {n} traces."),
    };
    let score_raw = clamp01(1.0 - raw);
    Reliability {
        score: round4(score_raw),
        score_raw,
        evaluated_traces: n,
        flagged,
        metadata,
        reason,
    }
}

fn nothing(metadata: &str, reason: &str) -> Reliability {
    Reliability {
        score: 1.0,
        score_raw: 1.0,
        evaluated_traces: 0,
        flagged: Vec::new(),
        metadata: metadata.into(),
        reason: reason.into(),
    }
}

/// A trace id listed twice counts twice, but has one entry in the details.
#[derive(Default)]
pub(super) struct Seen<'a>(std::collections::HashSet<&'a str>);

impl<'a> Seen<'a> {
    pub(super) fn first_time(&mut self, id: &'a str) -> bool {
        self.0.insert(id)
    }
}
