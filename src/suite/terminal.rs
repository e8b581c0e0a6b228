//! What a suite came to, as text for the terminal.

mod columns;
mod failures;

use std::fmt::Write as _;

use crate::report::Paint;
use crate::report::brief;
use crate::report::counted;

use super::flakiness;
use super::outcome::{GateOutcome, JudgingOutcome, MetricOutcome, SuiteOutcome, Verdict};
use columns::{fitted, folded, width_of};

/// The narrowest and the widest lines that are written, whatever the terminal's width is.
const WIDTHS: (usize, usize) = (60, 120);
/// Widths of the columns after the name in the table of metrics, with the spaces between them.
const COLUMNS: usize = 48;
/// The most changes, notes and files that are listed, each.
const MOST_LINES: usize = 20;

/// What a suite came to, as text in lines of at most `width` columns, held between 60 and 120; paths may be longer. The
/// first 20 checks that did not pass are shown with their difference; the rest is counted.
pub fn text(outcome: &SuiteOutcome, paint: Paint, width: usize) -> String {
    let width = width.clamp(WIDTHS.0, WIDTHS.1);
    let mut out = String::new();
    // Writing to a String can't fail.
    let _ = write_head(&mut out, outcome, paint, width);
    let _ = write_metrics(&mut out, &outcome.metrics, paint, width);
    let _ = write_gates(&mut out, &outcome.gates, paint, width);
    if let Some(found) = &outcome.flakiness {
        let head = paint.head(&flakiness::head(found));
        let _ = write_list(&mut out, &head, &flakiness::lines(found), width);
    }
    let _ = failures::write(&mut out, outcome, paint, width);
    let _ = write_list(
        &mut out,
        &paint.head("against the earlier run"),
        &outcome.changes,
        width,
    );
    let _ = write_list(&mut out, &paint.odd("notes"), &outcome.notes, width);
    let _ = write_end(&mut out, outcome, width);
    out
}

/// How lines look: painted or not, and how wide.
#[derive(Clone, Copy)]
struct Layout {
    paint: Paint,
    width: usize,
}

impl Layout {
    /// A head of data, folded, with what was found at its end.
    fn head(
        self,
        out: &mut String,
        indent: usize,
        head: &str,
        painted: impl Fn(Paint, &str) -> String,
        found: impl Fn(Paint) -> String,
    ) -> std::fmt::Result {
        let end = width_of(&found(Paint::default()));
        let room = self.width.saturating_sub(indent + 4 + end).max(20);
        let lines = folded(head, room, usize::MAX);
        for (at, line) in lines.iter().enumerate() {
            let indent = if at == 0 { indent } else { indent + 4 };
            let end = match at + 1 == lines.len() {
                true => found(self.paint),
                false => String::new(),
            };
            writeln!(out, "{:indent$}{}{end}", "", painted(self.paint, line))?;
        }
        Ok(())
    }
}

/// The verdict as a word, painted.
fn verdict(verdict: Verdict, paint: Paint) -> String {
    match verdict {
        Verdict::Passed => paint.good("passed"),
        Verdict::Failed => paint.bad("FAILED"),
        Verdict::NotEvaluated => paint.odd("not evaluated"),
    }
}

/// A score with 4 decimals, or a dash.
fn score(score: Option<f64>) -> String {
    let number = score.filter(|score| score.is_finite());
    number.map_or_else(|| "–".into(), |score| format!("{score:.4}"))
}

fn write_head(
    out: &mut String,
    outcome: &SuiteOutcome,
    paint: Paint,
    width: usize,
) -> std::fmt::Result {
    let kind = match outcome.kind {
        "evalset" => "evaluation set",
        "regression" => "golden set",
        other => other,
    };
    let of = match (outcome.kind, outcome.of.as_str()) {
        (_, "") => String::new(),
        ("regression", version) => format!(", version {}", brief(version)),
        (_, of) => format!(" of {}", brief(of)),
    };
    let total = match outcome.score {
        Some(_) => format!(", score {}", score(outcome.score)),
        None => String::new(),
    };
    let head = format!("{kind} {}{of}", brief(&outcome.name));
    // What passed as far as somebody looked is not what passed.
    let found = |paint: Paint| match outcome.is_partial() {
        true => format!(
            ": {}{total}",
            paint.odd("passed as far as it was evaluated")
        ),
        false => format!(": {}{total}", verdict(outcome.verdict, paint)),
    };
    Layout { paint, width }.head(out, 0, &head, Paint::head, found)?;
    let count = |wanted| {
        let cases = outcome.cases.iter();
        cases.filter(|case| case.verdict == wanted).count()
    };
    let cases = outcome.cases.len() as u64;
    let cases = match outcome.runs {
        0 | 1 => counted(cases, "case", "cases"),
        runs => format!(
            "{} in {runs} passes",
            counted(cases, "case run", "case runs")
        ),
    };
    writeln!(
        out,
        "{cases}: {} passed, {} failed, {} not evaluated",
        count(Verdict::Passed),
        count(Verdict::Failed),
        count(Verdict::NotEvaluated)
    )
}

fn write_metrics(
    out: &mut String,
    metrics: &[MetricOutcome],
    paint: Paint,
    width: usize,
) -> std::fmt::Result {
    if metrics.is_empty() {
        return Ok(());
    }
    let name = |metric: &MetricOutcome| {
        let asked = if metric.judged { " *" } else { "" };
        format!("{}{asked}", brief(&metric.name))
    };
    let longest = metrics.iter().map(|metric| width_of(&name(metric))).max();
    let room = longest.unwrap_or(0).max(6).min(width - COLUMNS);
    let header = format!(
        "{}  {:>6}  {:>6}  {:>6}  {:>6}  {:>13}",
        fitted("metric", room),
        "mean",
        "bar",
        "passed",
        "failed",
        "not evaluated"
    );
    writeln!(out, "\n{}", paint.head(&header))?;
    for metric in metrics {
        let failed = format!("{:>6}", metric.failed);
        let missing = format!("{:>13}", metric.not_evaluated);
        writeln!(
            out,
            "{}  {:>6}  {:>6}  {:>6}  {}  {}",
            fitted(&name(metric), room),
            score(metric.mean),
            score(metric.threshold),
            metric.passed,
            match metric.failed {
                0 => failed,
                _ => paint.bad(&failed),
            },
            match metric.not_evaluated {
                0 => missing,
                _ => paint.odd(&missing),
            },
        )?;
    }
    match metrics.iter().any(|metric| metric.judged) {
        true => writeln!(out, "* a judge decides"),
        false => Ok(()),
    }
}

fn write_gates(
    out: &mut String,
    gates: &[GateOutcome],
    paint: Paint,
    width: usize,
) -> std::fmt::Result {
    if !gates.is_empty() {
        writeln!(out)?;
    }
    for gate in gates {
        let found = match gate.found.as_str() {
            "" => String::new(),
            found => format!(": {}", brief(found)),
        };
        let said = format!("{}{found}", brief(&gate.name));
        let (word, verdict) = match gate.passed {
            true => ("passed", Verdict::Passed),
            false => ("FAILED", Verdict::Failed),
        };
        let mut lines = folded(&said, width - word.len() - 6, usize::MAX).into_iter();
        let first = lines.next().unwrap_or_default();
        writeln!(out, "gate {} {first}", self::verdict(verdict, paint))?;
        lines.try_for_each(|line| writeln!(out, "            {line}"))?;
    }
    Ok(())
}

fn write_list(out: &mut String, head: &str, lines: &[String], width: usize) -> std::fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{head}")?;
    for line in lines.iter().take(MOST_LINES) {
        for (at, row) in folded(line, width - 4, 4).iter().enumerate() {
            writeln!(out, "{}{row}", if at == 0 { "  " } else { "    " })?;
        }
    }
    match lines.len().saturating_sub(MOST_LINES) {
        0 => Ok(()),
        more => writeln!(out, "  + {more} more"),
    }
}

fn write_end(out: &mut String, outcome: &SuiteOutcome, width: usize) -> std::fmt::Result {
    writeln!(out)?;
    if let Some(judging) = &outcome.judging {
        for (at, line) in folded(&judges(judging), width - 2, 6).iter().enumerate() {
            writeln!(out, "{}{line}", if at == 0 { "" } else { "  " })?;
        }
    }
    for file in outcome.files.iter().take(MOST_LINES) {
        // Never folded: paths are for copying.
        writeln!(out, "wrote {}", crate::report::plain(file))?;
    }
    if let Some(more @ 1..) = outcome.files.len().checked_sub(MOST_LINES) {
        writeln!(out, "wrote {more} more")?;
    }
    match outcome.files.is_empty() {
        true => Ok(()),
        false => writeln!(out, "time: {:.1} s", outcome.seconds),
    }
}

fn judges(judging: &JudgingOutcome) -> String {
    let models: Vec<String> = judging.models.iter().map(|model| brief(model)).collect();
    let models = match models.is_empty() {
        true => String::new(),
        false => format!(" ({})", models.join(", ")),
    };
    let cost = match judging.cost {
        Some(cost) => format!("{cost:.4} dollars"),
        None => "at a price that is not known".into(),
    };
    format!(
        "judges{models}: {}, {} from the ledger, {} sent, {cost}",
        counted(judging.questions, "question", "questions"),
        judging.known,
        judging.sent
    )
}

#[cfg(test)]
mod tests;
