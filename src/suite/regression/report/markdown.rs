//! A run as Markdown (as in Regtrace).

use std::fmt::Write;

use crate::metric::checked::{Checked, cut};
use crate::suite::regression::cascade::Severity;
use crate::suite::regression::compare::CaseStatus;
use crate::suite::regression::record::{CaseRecord, RunRecord, evaluation_type};
use crate::text::format_instant;

/// The report of a run of one suite.
pub fn markdown_report(record: &RunRecord) -> String {
    let mut out = String::new();
    // Writing to a text does not fail.
    let _ = write_report(&mut out, record);
    out
}

fn write_report(out: &mut String, record: &RunRecord) -> std::fmt::Result {
    let head = &record.head;
    writeln!(
        out,
        "# Regression report: {}\n",
        shown(&head.golden_set_name)
    )?;
    writeln!(out, "- **Version:** {}", shown(&head.golden_set_version))?;
    writeln!(out, "- **Run:** {}", shown(&head.run_id))?;
    writeln!(out, "- **Time:** {}", format_instant(head.timestamp))?;
    writeln!(out, "- **Duration:** {} ms", head.duration_ms)?;
    writeln!(out, "- **Trigger:** {}", head.trigger.name())?;
    if let Some(branch) = &head.branch {
        writeln!(out, "- **Branch:** {}", shown(branch))?;
    }
    if let Some(judge) = &head.judge {
        let name = format!("{} / {}", judge.provider, judge.model);
        writeln!(out, "- **Judge:** {}", shown(&name))?;
    }
    write_summary(out, record)?;
    if record.regression.baseline_run_id.is_some() {
        write_regression(out, record)?;
    }
    if let Some(gates) = &record.gates {
        writeln!(out, "\n## Quality gates\n")?;
        writeln!(out, "| Gate | Result | Measured |\n| --- | --- | --- |")?;
        for (name, gate) in gates.gates.iter() {
            let verdict = verdict(gate.passed);
            writeln!(out, "| {name} | {verdict} | {} |", shown(&gate.message))?;
        }
    }
    writeln!(out, "\n## Test cases")?;
    for case in &record.cases {
        write_case(out, case)?;
    }
    Ok(())
}

fn write_summary(out: &mut String, record: &RunRecord) -> std::fmt::Result {
    let counts = record.severity_counts();
    writeln!(out, "\n## Summary\n")?;
    writeln!(
        out,
        "| Status | Suite score | Cases | Pass | Warn | Fail |\n| --- | --- | --- | --- | --- | --- |"
    )?;
    writeln!(
        out,
        "| {} | {} | {} | {} | {} | {} |",
        record.head.status.name(),
        percent(record.head.suite_score),
        record.cases.len(),
        counts.pass,
        counts.warn,
        counts.fail
    )?;
    writeln!(out, "\n## Metrics\n")?;
    writeln!(out, "| Metric | Score | Pass rate |\n| --- | --- | --- |")?;
    for (name, of) in record.head.metric_summary.iter() {
        let (score, rate) = (percent(of.score), percent(of.pass_rate));
        writeln!(out, "| {} | {score} | {rate} |", shown(name))?;
    }
    Ok(())
}

fn write_regression(out: &mut String, record: &RunRecord) -> std::fmt::Result {
    let of = &record.regression;
    let comparison = &of.comparison;
    let baseline = of.baseline_run_id.as_deref().unwrap_or_default();
    writeln!(out, "\n## Regression\n")?;
    writeln!(out, "- **Baseline:** {}", shown(baseline))?;
    writeln!(out, "- **Status:** {}", comparison.status.name())?;
    writeln!(out, "- **Suite:** {}", change(comparison.suite_delta))?;
    if comparison.version_change_detected {
        let then = of
            .baseline_golden_set_version
            .as_deref()
            .unwrap_or_default();
        let now = shown(&record.head.golden_set_version);
        writeln!(
            out,
            "- **Version of the suite:** {now} after {}",
            shown(then)
        )?;
    }
    let excluded = &comparison.test_cases_excluded;
    if !excluded.is_empty() {
        writeln!(
            out,
            "- **Left out as new:** {}",
            shown(&excluded.join(", "))
        )?;
    }
    if !comparison.metric_deltas.is_empty() {
        writeln!(out, "\n| Metric | Change |\n| --- | --- |")?;
        for (name, delta) in comparison.metric_deltas.iter() {
            writeln!(out, "| {} | {} |", shown(name), change(*delta))?;
        }
    }
    let changed = comparison.case_deltas.iter();
    let mut changed = changed
        .filter(|of| of.status != CaseStatus::Unchanged)
        .peekable();
    if changed.peek().is_some() {
        writeln!(out, "\n| Case | Became | Score |\n| --- | --- | --- |")?;
    }
    for of in changed {
        // Points of a hundred, not a share of the earlier score.
        let delta = of.delta.map(|delta| format!("{:+.1}", points(delta)));
        let (id, status) = (shown(&of.id), of.status.name());
        writeln!(out, "| {id} | {status} | {} |", delta.unwrap_or_default())?;
    }
    Ok(())
}

fn write_case(out: &mut String, of: &CaseRecord) -> std::fmt::Result {
    let icon = match of.figures.severity {
        Severity::Pass => "✅",
        Severity::Warn => "⚠️",
        Severity::Fail => "❌",
    };
    let score = percent(of.figures.score);
    writeln!(out, "\n### {icon} {} ({score})\n", shown(&of.case.id))?;
    let short = |text: &str| shown(&cut(text).unwrap_or_default());
    writeln!(out, "- **Input:** {}", short(&of.case.input))?;
    writeln!(out, "- **Output:** {}", short(&of.case.actual_output))?;
    writeln!(
        out,
        "\n| Metric | Score | Threshold | Result | Confidence | How |\n| --- | --- | --- | --- | --- | --- |"
    )?;
    for (name, result) in of.case.results.iter() {
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            shown(name),
            percent(result.score),
            percent(result.threshold),
            verdict(result.passed),
            percent(result.confidence),
            evaluation_type(result)
        )?;
    }
    for (name, result) in of.case.results.iter() {
        write_failures(out, name, result)?;
    }
    Ok(())
}

fn write_failures(out: &mut String, metric: &str, result: &Checked) -> std::fmt::Result {
    let failed = result.details.iter().filter(|detail| !detail.passed);
    let count = failed.clone().count();
    if count == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "\n<details>\n<summary>{count} failure(s) in {}</summary>\n",
        shown(metric)
    )?;
    writeln!(out, "| Check | Expected | Actual |\n| --- | --- | --- |")?;
    for detail in failed {
        let text = |of: &Option<String>| shown(of.as_deref().unwrap_or_default());
        let actual = match (&detail.expected, &detail.actual) {
            // How many more there are has neither.
            (None, None) => text(&detail.message),
            _ => text(&detail.actual),
        };
        let (check, expected) = (shown(&detail.check), text(&detail.expected));
        writeln!(out, "| {check} | {expected} | {actual} |")?;
    }
    writeln!(out, "\n</details>")
}

fn verdict(passed: bool) -> &'static str {
    match passed {
        true => "pass",
        false => "fail",
    }
}

/// In points of a hundred, and never a negative zero.
fn points(share: f64) -> f64 {
    let rounded = (share * 1000.0).round() / 10.0;
    rounded + 0.0
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn change(delta: f64) -> String {
    format!("{:+.1}%", points(delta))
}

/// A text in a line or a cell: nothing in it ends the cell, begins code, or is HTML.
fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '|' | '`' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            _ => out.push(character),
        }
    }
    out
}
