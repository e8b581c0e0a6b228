//! `agent_consistency`: how steady is the agent over a session? As in PandaProbe.
//!
//! Only traces with `confidence` count. Their lack of confidence is made heavier by loops, wrong
//! tools and incoherence (and by scores of spans that are given a weight), and taken as a root mean square over the
//! session.

use super::agent_reliability::Seen;
use super::signals::{Weights, compensated_sum};
use super::{Metadata, SessionSignals, SignalWeights, Signals, clamp01, round4};

/// What lists say of it.
pub(super) static INFO: super::MetricInfo = super::MetricInfo {
    name: "agent_consistency",
    level: super::Level::Session,
    method: super::Method::Aggregate,
    default_threshold: super::DEFAULT_THRESHOLD,
    inputs: &[
        "confidence",
        "loop_detection",
        "tool_correctness",
        "coherence",
    ],
    meaning: "How steady the agent's confidence is over the session, other signals added (1 = steady).",
    asks: None,
};

/// The consistency of one session.
#[derive(Clone, Debug, PartialEq)]
pub struct Consistency {
    /// Stored score: 4 decimals, in [0, 1].
    pub score: f64,
    /// Unrounded score in [0, 1].
    pub score_raw: f64,
    /// How many traces had `confidence`. 0 makes the score a score of nothing.
    pub evaluated_traces: usize,
    /// Metadata as JSON text.
    pub metadata: String,
    /// One line for a reader.
    pub reason: String,
}

/// Penalty of the other signals and the weighted uncertainty of a trace; `None` without confidence.
fn uncertainty(signals: &Signals, weights: &Weights) -> Option<(f64, f64)> {
    let [confidence, others @ ..] = signals.counted(weights);
    let lack = 1.0 - confidence?;
    let mut penalty = 0.0;
    for (signal, weight) in others.iter().zip(&weights[1..]) {
        if let Some(signal) = signal {
            penalty += weight * (1.0 - signal);
        }
    }
    Some((penalty, (1.0 + penalty) * (weights[0] * lack)))
}

/// Scores a session.
pub fn agent_consistency(session: SessionSignals<'_>, weights: &SignalWeights) -> Consistency {
    if session.is_empty() {
        return nothing(
            r#"{"note":"empty_session"}"#,
            "empty_session: no traces or signals to evaluate.",
        );
    }
    let by_signal = weights.in_order();
    let traces: Vec<Option<(f64, f64)>> = session
        .signals
        .iter()
        .map(|s| uncertainty(s, &by_signal))
        .collect();
    let mut squares: Vec<f64> = traces.iter().flatten().map(|(_, wu)| wu * wu).collect();
    let n = squares.len();
    if n == 0 {
        return nothing(
            "{}",
            "no_evaluable_traces: no trace has a confidence signal.",
        );
    }
    // Sorted, so that the result depends on the set of traces only, not on their order.
    squares.sort_unstable_by(f64::total_cmp);
    let rms = (compensated_sum(squares) / n as f64).sqrt();

    let mut metadata = String::new();
    let mut object = Metadata::object(&mut metadata);
    object
        .count("total_traces_in_session", session.trace_ids.len())
        .count("traces_evaluated", n)
        .rounded("raw_instability", rms);
    weights.push_metadata(&mut object);
    object.nested("per_trace_signals", |details| {
        let mut seen = Seen::default();
        for ((id, signals), trace) in session.trace_ids.iter().zip(session.signals).zip(&traces) {
            let (Some((penalty, weighted)), true) = (trace, seen.first_time(id)) else {
                continue;
            };
            details.nested(id, |detail| {
                signals.push_risks(&by_signal, detail);
                detail
                    .rounded("situational_penalty", *penalty)
                    .rounded("weighted_uncertainty", *weighted);
            });
        }
    });
    object.nested("aggregation", |aggregation| {
        aggregation
            .text("method", "weighted_rms")
            .rounded("rms_value", rms);
    });
    object.end();

    let score_raw = clamp01(1.0 - rms);
    let score = round4(score_raw);
    let reason = if score >= 0.8 {
        format!("Consistent over {n} traces.")
    } else if score >= 0.5 {
        format!("Moderate instability over {n} traces.")
    } else {
        format!("High instability over {n} traces: several signals add up.")
    };
    Consistency {
        score,
        score_raw,
        evaluated_traces: n,
        metadata,
        reason,
    }
}

fn nothing(metadata: &str, reason: &str) -> Consistency {
    Consistency {
        score: 1.0,
        score_raw: 1.0,
        evaluated_traces: 0,
        metadata: metadata.into(),
        reason: reason.into(),
    }
}
