//! The engine's plans for a run, from its rules.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::prelude::SessionContext;

use super::EngineRequest;
use crate::embed::{EmbeddingService, Triage};
use crate::engine::{Digests, EngineOptions, ScorePlan, SessionPlan, engine_session};
use crate::metric::compared::Comparing;
use crate::metric::session_signal::ATTENTION;
use crate::metric::spans::OfSpans;
use crate::metric::{Rules, SIGNALS};
use crate::output::RunError;
use crate::trace::{Buckets, TraceColumns};

/// The columns of traces that rules read; a signal that a condition names is computed too.
pub(super) fn columns(rules: &Rules, condition: Option<&str>) -> TraceColumns {
    let (coherence, loops) = (
        names(condition, "coherence"),
        names(condition, "loop_detection"),
    );
    TraceColumns {
        labels: true,
        input: rules.computes("coherence") || coherence || rules.wants(ATTENTION),
        // A document that is only compared is read as it is.
        output: rules.reads_output() || coherence || loops,
        compared: rules.compares(),
        spans: rules.reads_spans(),
        spans_required: rules.requires_spans(),
        spans_strict: rules.scores_spans(),
        output_digest: rules.digests_output(),
        session_required: rules.wants("loop_detection")
            || rules.of_spans().any(OfSpans::is_of_sessions)
            || rules.wants_sessions()
            || rules.wants(crate::metric::CONVERSATION),
        signals: Vec::new(),
    }
}

fn names(condition: Option<&str>, signal: &str) -> bool {
    condition.is_some_and(|condition| condition.contains(signal))
}

/// What decides the plans beside the rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanFacts<'f> {
    /// Names of given signals.
    pub given: &'f [String],
    /// Whether several rows make one trace.
    pub repeats: bool,
    /// Whether a quick model goes before the model.
    pub triage: bool,
    /// The buckets of the sessions, and those that are scored already.
    pub buckets: (Buckets, &'f [u32]),
}

/// The plan of the traces that rules ask for; a signal that the condition names is computed too.
pub(super) fn trace_plan(
    rules: &Rules,
    facts: PlanFacts<'_>,
    condition: Option<&str>,
) -> ScorePlan {
    let needs = |signal: &str| rules.computes(signal) || names(condition, signal);
    ScorePlan {
        merge_repeated: facts.repeats,
        given_signals: facts.given.to_vec(),
        coherence: needs("coherence"),
        loop_detection: needs("loop_detection"),
        triage: facts.triage,
        comparing: Comparing::ALL.map(|metric| {
            let name = metric.name();
            rules.wants(name).then(|| rules.threshold(name))
        }),
        digests: Digests {
            spans: rules.reads_spans(),
            output: rules.digests_output(),
            of_sessions: rules.of_spans().any(OfSpans::is_of_sessions),
            said: rules.wants(ATTENTION),
        },
        span_signals: rules.span_signals(),
        buckets: facts.buckets.0,
        done: facts.buckets.1.to_vec(),
    }
}

/// The plan of sessions, with the signals that every trace should have: those that are computed, given or `judged`.
pub(super) fn session_plan(
    rules: &Rules,
    given: &[String],
    judged: impl Fn(&str) -> bool,
) -> SessionPlan {
    let expected = SIGNALS.iter().map(|(name, _)| *name).filter(|name| {
        rules.computes(name) || given.iter().any(|given| given == name) || judged(name)
    });
    let expected = expected.chain(rules.span_signals());
    SessionPlan {
        reliability: rules.wants("agent_reliability"),
        consistency: rules.wants("agent_consistency"),
        expected: expected.map(str::to_owned).collect(),
        span_signals: rules.span_signals(),
        labels: true,
        session_signals: rules.wants(ATTENTION),
    }
}

/// A session of the engine for these plans, which spills into `folder`.
pub(super) fn plan_session(
    engine: &EngineRequest,
    rules: &Rules,
    embedding: Option<Arc<EmbeddingService>>,
    triage: Option<Arc<Triage>>,
    folder: PathBuf,
) -> Result<SessionContext, RunError> {
    Ok(engine_session(&EngineOptions {
        threads: engine.threads,
        memory: engine.plan_memory(),
        spill_folder: folder,
        embedding,
        triage,
        window: rules.window,
        weights: rules.weights.clone(),
        text_mode: rules.text_mode,
    })?)
}
