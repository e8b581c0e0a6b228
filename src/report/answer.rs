//! What a run came to, in about ten lines of 80 columns: what was scored, where to look first and why, and the verdict.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr as _;

use super::first_sessions::{FirstSession, first_sessions};
use super::paint::Paint;
use super::terminal::{notes, write_batches, write_conversations, write_night, write_verdicts};
use super::words::{brief, counted, cut, grouped, in_lines, plain};
use crate::summary::Summary;

/// Columns of a terminal of the usual width.
const COLUMNS: usize = 80;
/// So many sessions are named.
const MOST_SESSIONS: usize = 5;
/// An id of this width is shown whole: a UUID.
const ID: usize = 36;
/// Most lines of means.
const MOST_LINES: usize = 3;

/// The answer as text, with where the run is: its directory, and its report if it has one.
pub fn answer(summary: &Summary, paint: Paint, results: &str, report: Option<&str>) -> String {
    let mut out = String::new();
    // Writing to a String can't fail.
    let _ = write_counts(&mut out, summary, paint);
    let _ = write_night(&mut out, summary);
    for note in &summary.input_notes {
        let _ = writeln!(out, "{}", plain(note));
    }
    if let Some(mode) = summary.text_mode {
        let _ = writeln!(out, "text mode {}: {}", mode.name(), mode.meaning());
    }
    let _ = write_means(&mut out, summary);
    let _ = write_judges(&mut out, summary);
    for write in [write_conversations, write_batches] {
        let mut part = String::new();
        let _ = write(&mut part, summary);
        out.push_str(part.trim_start());
    }
    let _ = write_first(&mut out, summary, paint);
    for note in notes(summary) {
        let _ = writeln!(out, "{} {note}", paint.odd("note:"));
    }
    if let Some(report) = report {
        let _ = writeln!(out, "report:  {}", plain(report));
    }
    let _ = writeln!(out, "results: {}", plain(results));
    let _ = writeln!(out, "more:    nightmill runs show {}", for_shell(results));
    let _ = write_verdicts(&mut out, summary, paint);
    out
}

fn write_counts(out: &mut String, s: &Summary, paint: Paint) -> std::fmt::Result {
    let conversations = s.judge.as_ref().and_then(|j| j.conversations.as_ref());
    let (failed, pending) = conversations.map_or((0, 0), |c| (c.failed, c.pending));
    let mut counts = vec![format!(
        "{} in {}, from {}",
        counted(s.traces, "trace", "traces"),
        counted(s.sessions, "session", "sessions"),
        counted(s.files, "file", "files")
    )];
    let mut odd = Vec::new();
    for (count, one, many, is_odd) in [
        (s.merged_duplicates, "row merged", "rows merged", false),
        (s.rows_left_out, "row left out", "rows left out", false),
        (s.quarantined, "row quarantined", "rows quarantined", true),
        (
            s.unreadable_files,
            "file unreadable",
            "files unreadable",
            true,
        ),
        (
            s.failed_signals + failed,
            "score failed",
            "scores failed",
            true,
        ),
        (
            s.pending_signals + pending,
            "score pending",
            "scores pending",
            true,
        ),
    ] {
        if count > 0 {
            let told = counted(count, one, many);
            if is_odd {
                odd.push(told.clone());
            }
            counts.push(told);
        }
    }
    for line in in_lines(&counts, COLUMNS, usize::MAX) {
        // Painted when its width is known.
        let painted = odd
            .iter()
            .fold(line, |line, odd| line.replace(odd, &paint.odd(odd)));
        writeln!(out, "{painted}")?;
    }
    if let Some(buckets) = s.buckets.filter(|buckets| buckets.resumed > 0) {
        let texts = match buckets.texts_left_out {
            true => ", whose texts are counted nowhere here",
            false => "",
        };
        writeln!(
            out,
            "{} of {} buckets finished before the run was broken off{texts}",
            grouped(buckets.resumed),
            grouped(buckets.count.into())
        )?;
    }
    Ok(())
}

fn write_means(out: &mut String, s: &Summary) -> std::fmt::Result {
    const NAME: &str = "means: ";
    let scored = s.metrics.iter();
    let means: Vec<String> = scored
        .filter_map(|metric| Some(format!("{} {:.4}", metric.name, metric.mean?)))
        .collect();
    let lines = in_lines(&means, COLUMNS - NAME.len(), MOST_LINES);
    for (at, line) in lines.into_iter().enumerate() {
        let name = if at == 0 { NAME } else { "       " };
        writeln!(out, "{name}{line}")?;
    }
    Ok(())
}

fn write_judges(out: &mut String, s: &Summary) -> std::fmt::Result {
    let Some(judge) = &s.judge else {
        return Ok(());
    };
    let (cost, unpriced) = judge
        .spend
        .iter()
        .filter(|spend| spend.attempts > 0)
        .fold((0.0, 0), |(cost, unpriced), spend| {
            (cost + spend.cost, unpriced + spend.unpriced)
        });
    let unpriced = match unpriced {
        0 => String::new(),
        n => format!(", {} without a known price", grouped(n)),
    };
    writeln!(
        out,
        "judges: {}, {} sent, {cost:.4} dollars{unpriced}",
        counted(judge.calls.asked, "question", "questions"),
        grouped(judge.calls.sent)
    )
}

fn write_first(out: &mut String, s: &Summary, paint: Paint) -> std::fmt::Result {
    let first = first_sessions(s, MOST_SESSIONS);
    if first.is_empty() {
        return Ok(());
    }
    let head = match s.attention {
        Some(_) => "first to look at",
        None => "worst sessions",
    };
    writeln!(out, "{}", paint.head(head))?;
    let ids: Vec<String> = first.iter().map(named).collect();
    let widest = ids.iter().map(|id| id.width()).max().unwrap_or_default();
    for (session, id) in first.iter().zip(ids) {
        let gap = " ".repeat(widest - id.width());
        let place = session.place;
        let before = format!("{place:>3}  {id}{gap}  ");
        let why = in_columns(&session.why, COLUMNS.saturating_sub(before.width()));
        writeln!(out, "{before}{why}")?;
    }
    Ok(())
}

/// The id of a session, with its project where it has one.
fn named(session: &FirstSession) -> String {
    let id = cut(&session.session_id, ID);
    match &session.project_id {
        None => id,
        Some(project) => cut(&format!("{id} in {}", brief(project)), ID + 4),
    }
}

/// Reasons in so many columns: where they don't fit, without how usual they are, and then cut.
fn in_columns(why: &str, columns: usize) -> String {
    let whole = brief(why);
    if whole.width() <= columns {
        return whole;
    }
    let mut short = String::new();
    let mut rest = why;
    while let Some((before, after)) = rest.split_once(" (more than ") {
        short.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    short.push_str(rest);
    cut(&short, columns)
}

/// A path as a word of a shell.
fn for_shell(path: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || "/._-:=+@%,".contains(c);
    match path.chars().all(is_word) && !path.is_empty() {
        true => path.to_owned(),
        false => format!("'{}'", plain(path).replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Distribution, GateResult};
    use crate::summary::{AttentionSession, AttentionSummary};

    fn session(place: u64, id: &str, why: &str) -> AttentionSession {
        AttentionSession {
            session_id: id.into(),
            project_id: None,
            place,
            attention: 0.9,
            traces: 3,
            parts: Vec::new(),
            why: why.into(),
        }
    }

    fn summary() -> Summary {
        let whys = [
            "failed tool calls: 4 (more than 97 % of sessions); said again in other words: 3 (more than 96 % of sessions)",
            "ended early",
        ];
        let sessions = (1..=7).map(|n| {
            let id = format!("chat-{n:04}-28c7706c-1f2e-4a5b-9c0d-aabbccddeeff-and-more");
            session(n, &id[..8 + n as usize * 6], whys[n as usize % 2])
        });
        let mut scores = Distribution::default();
        scores.add(0.25, 0.5);
        let names = [
            "coherence",
            "loop_detection",
            "agent_reliability",
            "agent_consistency",
        ];
        let metrics = names.map(|name| {
            let metric = crate::metric::find(name).unwrap();
            scores.summarise(metric, 0.5)
        });
        Summary {
            traces: 1_234_567,
            sessions: 120,
            files: 2,
            quarantined: 1,
            failed_signals: 3,
            metrics: metrics.to_vec(),
            attention: Some(AttentionSummary {
                first: sessions.collect(),
                ..AttentionSummary::default()
            }),
            gates: vec![GateResult {
                metric: "coherence".into(),
                minimum: 0.5,
                value: Some(0.25),
                passed: false,
            }],
            ..Summary::default()
        }
    }

    #[test]
    fn an_answer_has_about_ten_lines_of_eighty_columns() {
        let text = answer(
            &summary(),
            Paint::default(),
            "runs/a b",
            Some("runs/a b/report.html"),
        );
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.width() <= COLUMNS), "{text}");
        assert_eq!(lines.len(), 15, "{text}");
        assert_eq!(
            lines[0],
            "1,234,567 traces in 120 sessions, from 2 files, 1 row quarantined,"
        );
        assert_eq!(lines[1], "3 scores failed");
        assert!(lines[2].starts_with("means: coherence 0.2500, loop_detection 0.2500,"));
        assert_eq!(lines[4], "first to look at");
        assert!(lines[5].contains("ended early"), "{text}");
        // Without how usual they are, both reasons have room.
        assert!(
            lines[6].contains("  failed tool calls: 4; said again in"),
            "{text}"
        );
        assert!(
            text.contains("more:    nightmill runs show 'runs/a b'\n"),
            "{text}"
        );
        assert!(text.ends_with("gate FAILED: mean coherence 0.2500 (at least 0.5)\n"));
    }

    #[test]
    fn only_what_is_odd_is_painted_so() {
        let text = answer(&summary(), Paint::everywhere(), "runs/x", None);
        assert!(
            text.contains("from 2 files, \u{1b}[33m1 row quarantined\u{1b}[0m,"),
            "{text:?}"
        );
        assert!(!text.contains("report:"), "{text}");
    }

    #[test]
    fn without_an_order_the_worst_sessions_are_named_so() {
        let none = Summary::default();
        let text = answer(&none, Paint::default(), "runs/x", None);
        assert_eq!(
            text,
            "0 traces in 0 sessions, from 0 files\nresults: runs/x\nmore:    nightmill runs show runs/x\n"
        );
    }
}
