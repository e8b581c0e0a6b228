//! The whole summary on the terminal, with its tables; `answer.rs` has the short one.

use std::fmt::Write as _;

use super::paint::Paint;
use super::words::{brief, counted, drift, grouped, plain};
use crate::summary::Summary;

fn score(value: Option<f64>) -> String {
    value.map_or_else(|| "     –".into(), |v| format!("{v:.4}"))
}

/// The most reasons of failures that are shown.
const MOST_REASONS: usize = 5;

/// The whole summary as text, in lines of 80 characters where data allows it. Every number in it is in `summary.json` too.
pub fn text(summary: &Summary, paint: Paint) -> String {
    let mut out = String::new();
    // Writing to a String can't fail.
    let _ = write_counts(&mut out, summary);
    for note in &summary.input_notes {
        let _ = writeln!(out, "{note}");
    }
    let _ = write_metrics(&mut out, summary, paint);
    let _ = write_judges(&mut out, summary);
    let _ = write_conversations(&mut out, summary);
    let _ = write_batches(&mut out, summary);
    let _ = write_attention(&mut out, summary, paint);
    let _ = write_worst(&mut out, summary, paint);
    let _ = write_problems(&mut out, summary, paint);
    let _ = write_end(&mut out, summary, paint);
    out
}

/// What judges and batches did, as text; empty without judges.
pub fn judges(summary: &Summary) -> String {
    let mut out = String::new();
    // Writing to a String can't fail.
    let _ = write_judges(&mut out, summary);
    let _ = write_batches(&mut out, summary);
    out
}

fn write_counts(out: &mut String, s: &Summary) -> std::fmt::Result {
    writeln!(
        out,
        "{} in {}, from {} of {}",
        counted(s.traces, "trace", "traces"),
        counted(s.sessions, "session", "sessions"),
        counted(s.rows_read, "row", "rows"),
        counted(s.files, "file", "files")
    )?;
    let left_out = match s.rows_left_out {
        0 => String::new(),
        rows => format!(" + left out {}", grouped(rows)),
    };
    writeln!(
        out,
        "rows read {} = scored {} + merged duplicates {} + quarantined {}{left_out}",
        grouped(s.rows_read),
        grouped(s.traces),
        grouped(s.merged_duplicates),
        grouped(s.quarantined)
    )?;
    if let Some(buckets) = &s.buckets {
        let mut resumed = match buckets.resumed {
            0 => String::new(),
            count => format!(
                "; {} finished before the run was broken off",
                grouped(count)
            ),
        };
        if buckets.texts_left_out {
            resumed.push_str(", whose texts are not counted here");
        }
        writeln!(out, "{} buckets{resumed}", grouped(buckets.count.into()))?;
    }
    write_night(out, s)?;
    if s.texts > 0 {
        write!(
            out,
            "texts {}, distinct {} ({:.1} % deduplicated), ",
            grouped(s.texts),
            grouped(s.distinct_texts),
            100.0 * s.dedup_share.unwrap_or(0.0),
        )?;
        if s.cached_texts > 0 {
            write!(out, "{} of them cached, ", grouped(s.cached_texts))?;
        }
        if s.texts_made_again > 0 {
            let count = grouped(s.texts_made_again);
            write!(out, "{count} beyond the precision and encoded at f32, ")?;
        }
        match s.tokens_per_second {
            Some(speed) => writeln!(
                out,
                "{}, {} tokens/s",
                counted(s.tokens, "token", "tokens"),
                grouped(speed as u64)
            )?,
            None => writeln!(out, "nothing was encoded")?,
        }
    }
    if let Some(mode) = s.text_mode {
        writeln!(out, "text mode {}: {}", mode.name(), mode.meaning())?;
    }
    Ok(())
}

/// What a run took over from the nights before it.
pub(super) fn write_night(out: &mut String, s: &Summary) -> std::fmt::Result {
    if let Some(continued) = &s.continued {
        writeln!(
            out,
            "continues {}: night {}, {} of earlier nights go on, {} read again",
            continued.run,
            continued.night,
            counted(continued.sessions, "session", "sessions"),
            counted(continued.traces_read_again, "trace", "traces")
        )?;
        if continued.traces_kept > 0 {
            writeln!(
                out,
                "{} of earlier nights keep their scores: {} files are gone or changed",
                counted(continued.traces_kept, "trace", "traces"),
                grouped(continued.files_gone)
            )?;
            for gone in &continued.gone {
                writeln!(out, "  {gone}")?;
            }
        }
    }
    Ok(())
}

fn write_metrics(out: &mut String, s: &Summary, paint: Paint) -> std::fmt::Result {
    let header = format!(
        "{:<20} {:>10} {:>6} {:>6} {:>6} {:>6}  at or above",
        "metric", "scored", "mean", "p10", "median", "p90"
    );
    writeln!(out, "\n{}", paint.head(&header))?;
    for m in &s.metrics {
        writeln!(
            out,
            "{:<20} {:>10} {:>6} {:>6} {:>6} {:>6}  {} ≥ {}",
            m.name,
            grouped(m.count),
            score(m.mean).trim(),
            score(m.p10).trim(),
            score(m.median).trim(),
            score(m.p90).trim(),
            grouped(m.passed),
            m.threshold
        )?;
    }
    Ok(())
}

fn write_judges(out: &mut String, s: &Summary) -> std::fmt::Result {
    let Some(judge) = &s.judge else {
        return Ok(());
    };
    writeln!(
        out,
        "\njudges: {} asked, {} from the ledger, {} sent, {} answered, {} failed, {} held back",
        counted(judge.calls.asked, "question", "questions"),
        grouped(judge.calls.from_ledger),
        grouped(judge.calls.sent),
        grouped(judge.calls.answered),
        grouped(judge.calls.failed),
        grouped(judge.calls.withheld)
    )?;
    for m in &judge.metrics {
        if m.failed + m.pending > 0 {
            writeln!(
                out,
                "  {} by {}: {} judged, {} failed, {} pending",
                m.name,
                brief(&m.model),
                grouped(m.judged),
                grouped(m.failed),
                grouped(m.pending)
            )?;
        }
    }
    for spend in judge.spend.iter().filter(|spend| spend.attempts > 0) {
        let unpriced = match spend.unpriced {
            0 => String::new(),
            n => format!(", {} without a known price", grouped(n)),
        };
        writeln!(
            out,
            "  spent on {}: {} and {} in {}, {:.4} dollars{unpriced}",
            spend.metric,
            grouped(spend.prompt_tokens),
            counted(spend.completion_tokens, "token", "tokens"),
            counted(spend.attempts, "call", "calls"),
            spend.cost
        )?;
    }
    Ok(())
}

pub(super) fn write_batches(out: &mut String, s: &Summary) -> std::fmt::Result {
    let Some(b) = s.judge.as_ref().and_then(|j| j.batches.as_ref()) else {
        return Ok(());
    };
    writeln!(
        out,
        "\nbatches: {} submitted with {}; {} ended: {} answered, {} failed, {} to be asked again; {} waiting{}",
        grouped(b.submitted),
        counted(b.requests, "question", "questions"),
        grouped(b.collected.ended),
        grouped(b.collected.answered),
        grouped(b.collected.failed),
        grouped(b.collected.again),
        grouped(b.waiting),
        match b.waiting {
            0 => "",
            _ => "; run again later to go on",
        }
    )
}

pub(super) fn write_conversations(out: &mut String, s: &Summary) -> std::fmt::Result {
    let Some(c) = s.judge.as_ref().and_then(|j| j.conversations.as_ref()) else {
        return Ok(());
    };
    writeln!(
        out,
        "\n{} of {} judged, {} passed (at least {} of 100), average {}; {} failed, {} pending",
        grouped(c.judged),
        counted(c.conversations, "conversation", "conversations"),
        grouped(c.passed),
        c.run.pass_threshold,
        c.average.map_or_else(|| "–".into(), |v| format!("{v:.2}")),
        grouped(c.failed),
        grouped(c.pending)
    )?;
    for (reason, count) in &c.without_score {
        writeln!(
            out,
            "  {} without score: {}",
            grouped(*count),
            brief(reason)
        )?;
    }
    if !c.metrics.is_empty() {
        let mut metrics: Vec<_> = c.metrics.iter().collect();
        metrics.sort_by(|a, b| a.average_score.total_cmp(&b.average_score));
        let metrics: Vec<String> = metrics
            .iter()
            .map(|m| {
                let name = brief(m.metric.as_deref().unwrap_or_default());
                format!("{name} {:.2}", m.average_score)
            })
            .collect();
        writeln!(out, "averages of 5, lowest first: {}", metrics.join(", "))?;
    }
    Ok(())
}

fn write_attention(out: &mut String, s: &Summary, paint: Paint) -> std::fmt::Result {
    let Some(attention) = s.attention.as_ref().filter(|a| !a.first.is_empty()) else {
        return Ok(());
    };
    writeln!(out, "\n{}", paint.head("first to look at, and why"))?;
    for session in &attention.first {
        let project = match &session.project_id {
            Some(project) => format!(" (project {})", brief(project)),
            None => String::new(),
        };
        let id = brief(&session.session_id);
        writeln!(out, "{:>3}  {id}{project}", session.place)?;
        writeln!(out, "     {}", plain(&session.why))?;
    }
    Ok(())
}

fn write_worst(out: &mut String, s: &Summary, paint: Paint) -> std::fmt::Result {
    if s.worst_sessions.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", paint.head("worst sessions"))?;
    writeln!(
        out,
        "{:>11} {:>11} {:>7}  session, and its worst step",
        "reliability", "consistency", "traces"
    )?;
    for w in &s.worst_sessions {
        writeln!(
            out,
            "{:>11} {:>11} {:>7}  {}{}",
            score(w.agent_reliability).trim(),
            score(w.agent_consistency).trim(),
            grouped(w.traces),
            brief(&w.session_id),
            match &w.project_id {
                Some(project) => format!(" (project {})", brief(project)),
                None => String::new(),
            }
        )?;
        if let Some(step) = &w.worst_step {
            let flagged = match w.flagged_traces.len() {
                0 | 1 => String::new(),
                more => format!(", {more} flagged"),
            };
            let found = format!("{} {:.4}", step.signal, step.value);
            writeln!(
                out,
                "    {} in {}{flagged}",
                paint.odd(&found),
                brief(&step.trace_id)
            )?;
        }
    }
    Ok(())
}

/// What a reader must know to misread no number, a line each.
pub(super) fn notes(s: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    for q in &s.quarantine {
        lines.push(format!(
            "{} quarantined: {}, first {}",
            counted(q.rows, "row", "rows"),
            q.code,
            brief(&q.example)
        ));
    }
    for failure in s.failures.iter().take(MOST_REASONS) {
        lines.push(format!(
            "{} of {} failed: {}",
            grouped(failure.count),
            failure.metric,
            brief(&failure.reason)
        ));
    }
    for (count, one, many) in [
        (
            s.failed_signals,
            "score of a trace failed (status FAILED); the reason is in `scores`",
            "scores of traces failed (status FAILED); the reasons are in `scores`",
        ),
        (
            s.pending_signals,
            "score of a trace was not asked for yet (status PENDING); the reason is in `scores`",
            "scores of traces were not asked for yet (status PENDING); the reasons are in `scores`",
        ),
        (
            s.non_finite_signals,
            "given signal was NaN or infinite and counts as missing",
            "given signals were NaN or infinite and count as missing",
        ),
        (
            s.unmatched_signals,
            "row of the signals file belongs to no trace",
            "rows of the signals file belong to no trace",
        ),
        (
            s.empty_session_ids,
            "row has an empty session id and stands alone",
            "rows have an empty session id and stand alone",
        ),
        (
            s.traces_without_session,
            "trace belongs to no session and has trace metrics only",
            "traces belong to no session and have trace metrics only",
        ),
    ] {
        if count > 0 {
            lines.push(counted(count, one, many));
        }
    }
    let stopped = s.judge.iter().flat_map(|judge| &judge.stopped);
    lines.extend(stopped.map(|why| brief(why)));
    let flags = s.judge.as_ref().and_then(|j| j.passed_by_none.as_ref());
    lines
        .extend(flags.map(|flags| format!("nothing was judged: no trace passes {}", brief(flags))));
    if s.traces_without_expected > 0 {
        let compared = crate::metric::comparing().map(|metric| metric.name);
        let compared = compared.filter(|name| s.metrics.iter().any(|m| m.name == *name));
        lines.push(format!(
            "{} no expected text: no {}, and in no mean",
            counted(s.traces_without_expected, "trace has", "traces have"),
            compared.collect::<Vec<_>>().join(", no "),
        ));
    }
    if s.traces_without_spans > 0 {
        lines.push(format!(
            "{} no spans: what metrics need of them is null, and in no mean",
            counted(s.traces_without_spans, "trace has", "traces have"),
        ));
    }
    for (metric, count) in &s.sessions_without_evidence {
        lines.push(format!(
            "{metric} of {} rests on nothing: {}",
            counted(*count, "session", "sessions"),
            match s.evidence_required {
                true => "no score, in no mean",
                false => "1.0 by --on-no-evaluable one, and in the mean",
            }
        ));
    }
    lines
}

fn write_problems(out: &mut String, s: &Summary, paint: Paint) -> std::fmt::Result {
    let lines = notes(s);
    if !lines.is_empty() {
        writeln!(out, "\n{}", paint.odd("notes"))?;
        lines
            .iter()
            .try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    Ok(())
}

/// Gates, and what the night drifted in.
pub(super) fn write_verdicts(out: &mut String, s: &Summary, paint: Paint) -> std::fmt::Result {
    for gate in &s.gates {
        let verdict = match gate.passed {
            true => paint.good("passed"),
            false => paint.bad("FAILED"),
        };
        writeln!(
            out,
            "gate {verdict}: mean {} {} (at least {})",
            gate.metric,
            score(gate.value).trim(),
            gate.minimum
        )?;
    }
    if let Some(told) = s.continued.as_ref().and_then(|of| of.drift.as_ref()) {
        match &told.problem {
            None => out.push_str(&drift(&told.found, &told.untold)),
            Some(problem) => writeln!(out, "drift: not known: {}", plain(problem))?,
        }
    }
    Ok(())
}

fn write_end(out: &mut String, s: &Summary, paint: Paint) -> std::fmt::Result {
    let stages: Vec<String> = s
        .stages
        .iter()
        .map(|(name, seconds)| format!("{name} {seconds:.1} s"))
        .collect();
    writeln!(out, "\ntime: {}", stages.join(", "))?;
    write_verdicts(out, s, paint)
}
