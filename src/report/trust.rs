//! Whether the figures of a run can be trusted: what was read and what was not, in sentences.

use serde::Serialize;

use super::words::{brief, counted, grouped};
use crate::metric::{CONVERSATION, Method, Rules, find};
use crate::output::MetricSummary;
use crate::summary::Summary;

/// How many reasons of one kind are named.
const MOST_REASONS: usize = 3;
/// What an order is called that nobody has learnt.
const UNSUPERVISED: &str = "unsupervised";
/// With fewer sessions than this, a rank is hardly more than chance.
const FEW_SESSIONS: u64 = 20;

/// A sentence, with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    /// `good`, `bad` (the run failed at something) or `open` (to be known, and no failure).
    pub kind: &'static str,
    /// The sentence.
    pub text: String,
    /// What it rests on, a line each.
    pub more: Vec<String>,
}

fn line(kind: &'static str, text: String) -> Line {
    Line {
        kind,
        text,
        more: Vec::new(),
    }
}

fn with_more(kind: &'static str, text: String, mut more: Vec<String>) -> Line {
    let all = more.len();
    more.truncate(MOST_REASONS);
    if all > MOST_REASONS {
        let others = (all - MOST_REASONS) as u64;
        more.push(format!(
            "and {}",
            counted(others, "more reason", "more reasons")
        ));
    }
    Line { kind, text, more }
}

/// A metric's name in words.
fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// What to know of the figures of a run, the failures first after what was read.
pub(super) fn lines(summary: &Summary, rules: &Rules) -> Vec<Line> {
    let mut lines = vec![coverage(summary)];
    lines.extend(failures(summary));
    lines.extend(gaps(summary));
    lines.extend(bars(summary, rules));
    lines
}

/// That agents of so many names are in one order.
pub(super) fn of_several(names: usize) -> Option<Line> {
    let text = format!(
        "Sessions of {names} names are in one order, and what is usual for one agent may be unusual for another: filter the list \
         by name."
    );
    (names > 1).then(|| line("open", text))
}

/// What it comes to: whether anything failed, whether scores were held against labels, and whether there is enough.
pub(super) fn verdict(summary: &Summary, lines: &[Line]) -> String {
    let failed = lines.iter().any(|line| line.kind == "bad");
    let waiting = conversations_waiting(summary) + summary.pending_signals;
    let mut told = match (failed, waiting) {
        (true, _) => "Not whole: something failed.".to_owned(),
        (false, 1..) => "Not whole: scores wait for a judge.".to_owned(),
        (false, 0) => "What was read is scored.".to_owned(),
    };
    let learnt = summary.attention.as_ref().map(|order| order.model.as_str());
    let learnt = learnt.filter(|model| *model != UNSUPERVISED);
    if let Some(file) = learnt {
        let file = brief(file);
        told.push_str(&format!(
            " The order was learnt from labels: {file} says how well it did on others."
        ));
    } else if summary.metrics.iter().any(|metric| metric.count > 0) || summary.attention.is_some() {
        told.push_str(
            " Whether its scores tell good sessions from bad ones is not known here: nightmill \
             validate holds them against labels.",
        );
    }
    if (1..FEW_SESSIONS).contains(&summary.sessions) {
        let sessions = counted(summary.sessions, "session", "sessions");
        told.push_str(&format!(
            " An order of {sessions} says little: ranks need more."
        ));
    }
    told
}

fn coverage(s: &Summary) -> Line {
    if s.rows_read == s.traces {
        let all = counted(
            s.rows_read,
            "row that was read is",
            "rows that were read are",
        );
        return line("good", format!("All {all} scored, one trace each."));
    }
    let mut parts = vec![counted(s.traces, "trace scored", "traces scored")];
    for (count, one, many) in [
        (
            s.merged_duplicates,
            "row merged into another of its trace",
            "rows merged into others of their traces",
        ),
        (s.quarantined, "row quarantined", "rows quarantined"),
        (
            s.rows_left_out,
            "row left out, of no target of the run",
            "rows left out, of no target of the run",
        ),
    ] {
        if count > 0 {
            parts.push(counted(count, one, many));
        }
    }
    let read = counted(s.rows_read, "row read", "rows read");
    line("good", format!("{read}: {}.", parts.join(" + ")))
}

fn failures(s: &Summary) -> Vec<Line> {
    let mut lines = Vec::new();
    if s.unreadable_files > 0 {
        let files = counted(
            s.unreadable_files,
            "file, or part of one,",
            "files, or parts of them,",
        );
        lines.push(line("bad", format!("{files} could not be read.")));
    }
    if s.quarantined > 0 {
        let reasons = s.quarantine.iter();
        let reasons = reasons.map(|q| format!("{}: {}", q.code, grouped(q.rows)));
        let text = counted(s.quarantined, "row is quarantined", "rows are quarantined");
        let text = format!("{text} and in no figure of this page.");
        lines.push(with_more("bad", text, reasons.collect()));
    }
    if s.failed_signals > 0 {
        let reasons = s.failures.iter().map(|f| {
            format!(
                "{}, {}: {}",
                words(&f.metric),
                grouped(f.count),
                brief(&f.reason)
            )
        });
        let text = counted(
            s.failed_signals,
            "score of a trace failed.",
            "scores of traces failed.",
        );
        lines.push(with_more("bad", text, reasons.collect()));
    }
    let conversations = s.judge.as_ref().and_then(|j| j.conversations.as_ref());
    if let Some(failed @ 1..) = conversations.map(|c| c.failed) {
        let text = counted(failed, "conversation has", "conversations have");
        lines.push(line("bad", format!("{text} no verdict: judging failed.")));
    }
    lines
}

fn gaps(s: &Summary) -> Vec<Line> {
    let mut lines = Vec::new();
    let waiting = conversations_waiting(s) + s.pending_signals;
    if waiting > 0 {
        let text = counted(waiting, "score waits", "scores wait");
        lines.push(line(
            "open",
            format!("{text} for a judge: nightmill runs retry asks again."),
        ));
    }
    for (metric, count) in &s.sessions_without_evidence {
        let text = counted(*count, "session has", "sessions have");
        let metric = words(metric);
        let what = match s.evidence_required {
            true => format!("no score of {metric}"),
            false => format!("1.0 for {metric}, as in PandaProbe"),
        };
        let why = "none of their traces says anything of it";
        lines.push(line("open", format!("{text} {what}: {why}.")));
    }
    for (count, one, many) in [
        (
            s.traces_without_session,
            "trace belongs to no session: it is not in the list.",
            "traces belong to no session: they are not in the list.",
        ),
        (
            s.empty_session_ids,
            "row has an empty session id, and stands alone.",
            "rows have an empty session id, and stand alone.",
        ),
        (
            s.traces_without_spans,
            "trace has no spans: metrics of spans say nothing of it.",
            "traces have no spans: metrics of spans say nothing of them.",
        ),
        (
            s.traces_without_expected,
            "trace has no expected text: it is compared with nothing.",
            "traces have no expected text: they are compared with nothing.",
        ),
        (
            s.unmatched_signals,
            "given signal is of no trace of the run.",
            "given signals are of no trace of the run.",
        ),
        (
            s.non_finite_signals,
            "given signal is no number, and read as missing.",
            "given signals are no numbers, and read as missing.",
        ),
        (
            s.continued.as_ref().map_or(0, |c| c.traces_kept),
            "trace keeps its scores of an earlier night: its file is gone or changed.",
            "traces keep their scores of earlier nights: their files are gone or changed.",
        ),
    ] {
        if count > 0 {
            lines.push(line("open", counted(count, one, many)));
        }
    }
    lines
}

fn conversations_waiting(s: &Summary) -> u64 {
    let conversations = s.judge.as_ref().and_then(|j| j.conversations.as_ref());
    conversations.map_or(0, |c| c.pending)
}

/// Whose a threshold is.
pub(super) fn whose(metric: &str, rules: &Rules) -> &'static str {
    let given = rules.thresholds.contains_key(metric);
    match find(metric).map(|metric| metric.method) {
        _ if metric == CONVERSATION => "the pass threshold of its judge",
        _ if given => "the threshold that this run was given",
        Some(Method::Comparison) => "the default threshold of Regtrace",
        Some(Method::Spans | Method::Measure | Method::Signals) | None => "the default threshold",
        Some(_) => "the default threshold of PandaProbe",
    }
}

/// How many sessions are below bars that nobody has set for these agents, and below those that somebody has.
fn bars(summary: &Summary, rules: &Rules) -> Vec<Line> {
    let is_set =
        |m: &&MetricSummary| rules.thresholds.contains_key(&m.name) || m.name == CONVERSATION;
    let of_sessions = summary.metrics.iter().filter(|m| m.level == "session");
    let (set, unset): (Vec<_>, Vec<_>) = of_sessions.partition(is_set);
    let told = |metrics: Vec<&MetricSummary>, text: &str| {
        let more: Vec<String> = metrics.into_iter().filter_map(|m| bar(m, rules)).collect();
        (!more.is_empty()).then(|| with_more("open", text.into(), more))
    };
    let unset = told(
        unset,
        "Look at the order, not at thresholds: nobody has set them for these agents.",
    );
    unset
        .into_iter()
        .chain(told(set, "Sessions below their thresholds:"))
        .collect()
}

/// How many sessions are below the bar of a metric.
fn bar(metric: &MetricSummary, rules: &Rules) -> Option<String> {
    let median = metric.median?;
    let below = metric.count - metric.passed;
    let share = 100.0 * below as f64 / metric.count as f64;
    Some(format!(
        "{}: {} of {} ({share:.0} %) below {}, {}; half have at most {median:.2}",
        words(&metric.name),
        grouped(below),
        grouped(metric.count),
        metric.threshold,
        whose(&metric.name, rules),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::QuarantineSummary;

    fn told(summary: &Summary) -> Vec<String> {
        let mut lines = vec![coverage(summary)];
        lines.extend(failures(summary));
        lines.extend(gaps(summary));
        let line = |line: Line| format!("{} {} {:?}", line.kind, line.text, line.more);
        lines.into_iter().map(line).collect()
    }

    #[test]
    fn agents_of_several_names_in_one_order_are_said() {
        assert_eq!(of_several(1), None);
        let line = of_several(3).unwrap();
        assert!(
            line.kind == "open" && line.text.contains("3 names"),
            "{}",
            line.text
        );
    }

    #[test]
    fn a_verdict_says_what_failed_what_is_not_known_and_whether_there_is_enough() {
        let of = |summary: &Summary| verdict(summary, &failures(summary));
        let mut summary = Summary {
            sessions: 2,
            attention: Some(crate::summary::AttentionSummary {
                model: UNSUPERVISED.into(),
                ..Default::default()
            }),
            ..Summary::default()
        };
        let told = of(&summary);
        assert!(told.starts_with("What was read is scored."), "{told}");
        assert!(told.contains("is not known here"), "{told}");
        assert!(
            told.contains("An order of 2 sessions says little"),
            "{told}"
        );
        summary.pending_signals = 1;
        assert!(of(&summary).starts_with("Not whole: scores wait"));
        summary.sessions = FEW_SESSIONS;
        summary.quarantined = 1;
        if let Some(order) = &mut summary.attention {
            order.model = "fit.toml".into();
        }
        let told = of(&summary);
        let expected = "Not whole: something failed. The order was learnt from labels: fit.toml says how \
                        well it did on others.";
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_missing_is_counted_and_nothing_else_is_said() {
        let whole = Summary {
            rows_read: 1,
            traces: 1,
            ..Summary::default()
        };
        assert_eq!(
            told(&whole),
            ["good All 1 row that was read is scored, one trace each. []"]
        );
        let parts = Summary {
            rows_read: 1012,
            traces: 1000,
            merged_duplicates: 3,
            quarantined: 8,
            rows_left_out: 1,
            pending_signals: 2,
            quarantine: ["a", "b", "c", "d"]
                .map(|code| QuarantineSummary {
                    code: code.into(),
                    rows: 2,
                    example: String::new(),
                })
                .into(),
            sessions_without_evidence: [("agent_consistency".to_owned(), 4)].into(),
            ..Summary::default()
        };
        let found = told(&parts);
        assert_eq!(
            found[0],
            "good 1,012 rows read: 1,000 traces scored + 3 rows merged into others of their traces + 8 rows \
             quarantined + 1 row left out, of no target of the run. []"
        );
        assert_eq!(
            found[1],
            "bad 8 rows are quarantined and in no figure of this page. [\"a: 2\", \"b: 2\", \"c: 2\", \"and 1 more reason\"]"
        );
        assert!(found[2].contains("2 scores wait for a judge"), "{found:?}");
        assert!(
            found[3].contains("have 1.0 for agent consistency, as in PandaProbe"),
            "{found:?}"
        );
        assert_eq!(found.len(), 4);
    }
}
