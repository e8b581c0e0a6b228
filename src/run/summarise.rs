//! The summary of a scoring run, as far as its counts tell it.

use super::ScoreRequest;
use super::bucket::{SessionCounts, TraceCounts};
use crate::embed::EmbeddingCounts;
use crate::metric::ALL;
use crate::output::{Distributions, RunError};
use crate::summary::Summary;
use crate::text::TextMode;
use crate::trace::TraceSource;

/// Puts together what was counted; rows that were set aside, and whether traces have several rows, come as a pair.
///
/// # Errors
/// [`RunError::Plan`] if the rows do not add up.
pub(super) fn summarise(
    request: &ScoreRequest,
    source: &TraceSource,
    (quarantined, repeats): (u64, bool),
    traces: TraceCounts,
    sessions: &SessionCounts,
    distributions: &Distributions,
    embedding: EmbeddingCounts,
) -> Result<Summary, RunError> {
    let rules = &request.rules;
    let rows_read = source.rows_read();
    let left_out = source.rows_left_out();
    let kept = rows_read.checked_sub(quarantined + left_out);
    let merged = kept.and_then(|kept| kept.checked_sub(traces.traces))
        .filter(|merged| *merged == 0 || repeats).ok_or_else(|| {
        RunError::Plan(format!(
            "rows don't add up: {rows_read} read, {quarantined} quarantined, {left_out} left out, {} scored; nothing was written",
            traces.traces
        ))
    })?;
    let computed = ALL
        .iter()
        .filter(|m| m.has_scores() && rules.computes(m.name));
    let share = |part: u64, whole: u64| {
        (whole > 0).then(|| crate::metric::round4(part as f64 / whole as f64))
    };
    Ok(Summary {
        files: source.files().count() as u64,
        rows_read,
        traces: traces.traces,
        sessions: sessions.sessions,
        traces_without_session: traces.without_session,
        empty_session_ids: source.empty_session_ids(),
        merged_duplicates: merged,
        rows_left_out: left_out,
        failed_signals: traces.failed_signals,
        pending_signals: traces.pending_signals,
        traces_without_expected: traces.without_expected,
        traces_without_spans: traces.without_spans,
        sessions_without_evidence: sessions.without_evidence.clone(),
        evidence_required: rules.null_without_evidence,
        text_mode: (embedding.texts > 0
            && (rules.text_mode == TextMode::Content || source.has_documents()))
        .then_some(rules.text_mode),
        texts: embedding.texts,
        distinct_texts: embedding.distinct_texts,
        cached_texts: embedding.cache.found,
        texts_made_again: embedding.made_again,
        dedup_share: share(
            embedding.texts.saturating_sub(embedding.distinct_texts),
            embedding.texts,
        ),
        tokens: embedding.tokens,
        tokens_per_second: (embedding.tokens > 0)
            .then(|| (embedding.tokens as f64 / embedding.embed_seconds).round()),
        metrics: distributions.summaries(computed, rules),
        gates: distributions.gates(rules),
        failures: traces.failures(),
        worst_sessions: sessions.worst_sessions(),
        ..Summary::default()
    })
}
