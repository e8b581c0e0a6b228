//! What a metric found for one trace, as a row of `scores` and as a member of the trace's `details`.

use crate::metric::compared::Compared;
use crate::metric::{Metadata, NonFinite};
use crate::output::Status;
use crate::output::score_rows::{AUTOMATED, MadeBy, NO_EVIDENCE, ScoreRow, ScoreRows};

/// What names a trace in its scores.
#[derive(Clone, Copy)]
pub(super) struct Labels<'a> {
    /// As it was given.
    pub trace_id: &'a str,
    pub session_id: Option<&'a str>,
    pub project_id: Option<&'a str>,
    pub environment: Option<&'a str>,
}

/// What a metric that needs no judge came to.
pub(super) struct Scored {
    pub raw: Option<f64>,
    passed: Option<bool>,
    threshold: Option<f64>,
    reason: String,
}

impl Scored {
    /// A metric that compared something, or found nothing to compare: then nothing was passed.
    pub fn success(raw: f64, passed: Option<bool>, threshold: f64, reason: String) -> Self {
        Self {
            raw: Some(raw),
            passed,
            threshold: passed.map(|_| threshold),
            reason,
        }
    }

    pub fn failure(error: &NonFinite, metadata: &mut String) -> Self {
        let reason = error.to_string();
        push_failure(metadata, &reason);
        Self {
            raw: None,
            passed: None,
            threshold: None,
            reason,
        }
    }

    pub fn status(&self) -> Status {
        match self.raw {
            Some(_) => Status::Success,
            None => Status::Failed,
        }
    }

    pub fn push(&self, scores: &mut ScoreRows, metric: &str, trace: Labels<'_>, metadata: &str) {
        scores.push(&ScoreRow {
            target_type: "trace",
            target_id: trace.trace_id,
            session_id: trace.session_id,
            project_id: trace.project_id,
            metric,
            score_raw: self.raw,
            status: self.status().name(),
            threshold: self.threshold,
            passed: self.passed,
            reason: &self.reason,
            metadata: if self.raw.is_some() { metadata } else { "{}" },
            evaluated_traces: None,
            environment: trace.environment,
            source: AUTOMATED,
            made_by: MadeBy::LocalModel,
        });
    }
}

/// The score of a metric that compares texts, or why there is none.
pub(super) fn push_compared(
    scores: &mut ScoreRows,
    metric: &str,
    compared: Option<&Compared>,
    threshold: f64,
    trace: Labels<'_>,
    metadata: &str,
) {
    let reason = compared.map_or_else(
        || "The trace has no expected text.".to_owned(),
        |compared| compared.reason(threshold),
    );
    scores.push(&ScoreRow {
        target_type: "trace",
        target_id: trace.trace_id,
        session_id: trace.session_id,
        project_id: trace.project_id,
        metric,
        score_raw: compared.map(Compared::score),
        status: match compared {
            Some(_) => Status::Success.name(),
            None => NO_EVIDENCE,
        },
        threshold: compared.map(|_| threshold),
        passed: compared.map(|compared| compared.score() >= threshold),
        reason: &reason,
        metadata,
        evaluated_traces: None,
        environment: trace.environment,
        source: AUTOMATED,
        made_by: MadeBy::Nothing,
    });
}

/// Adds a member to an object that was begun.
pub(super) fn push_member(object: &mut String, key: &str, value: &str) {
    if object.len() > 1 {
        object.push(',');
    }
    crate::text::push_json_string(object, key);
    object.push(':');
    object.push_str(value);
}

/// The member of a signal that was given.
pub(super) fn push_reused(object: &mut String, key: &str) {
    push_member(object, key, r#"{"note":"given"}"#);
}

fn push_failure(metadata: &mut String, reason: &str) {
    let mut object = Metadata::object(metadata);
    object.text("error", reason);
    object.end();
}
