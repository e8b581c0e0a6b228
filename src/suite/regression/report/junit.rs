//! Runs as JUnit XML, which build systems read.

use std::io;

use quick_xml::events::{BytesDecl, BytesText, Event};
use quick_xml::writer::Writer;

use crate::metric::checked::Checked;
use crate::suite::regression::gates::GateResult;
use crate::suite::regression::record::{CaseRecord, RunRecord, RunStatus};
use crate::text::format_instant;

/// The report of runs: a suite each, a case each, and a failure for each failed metric of a case.
///
/// # Errors
/// None in practice: it is written to memory.
pub fn junit_report(records: &[RunRecord]) -> io::Result<String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    let declaration = BytesDecl::new("1.0", Some("UTF-8"), None);
    writer.write_event(Event::Decl(declaration))?;
    let cases = records.iter().map(entries).sum();
    let skips = records.iter().map(skipped).sum();
    let failed = records.iter().map(failures).sum();
    let errors = records.iter().map(errors).sum();
    let milliseconds = records.iter().map(|record| record.head.duration_ms);
    let milliseconds = milliseconds.fold(0, u64::saturating_add);
    let attributes = counts(cases, [failed, errors, skips], milliseconds);
    let suites = writer.create_element("testsuites");
    let suites = suites.with_attributes(pairs(&attributes));
    suites.write_inner_content(|writer| {
        for record in records {
            write_suite(writer, record)?;
        }
        Ok(())
    })?;
    let mut xml = writer.into_inner();
    xml.push(b'\n');
    String::from_utf8(xml).map_err(io::Error::other)
}

fn failures(record: &RunRecord) -> usize {
    record.cases.len() - record.passed_cases() + failed_gates(record).count()
}

/// The gates that do not hold: each is an entry of its own, since build systems look at entries alone.
fn failed_gates(record: &RunRecord) -> impl Iterator<Item = (&str, &GateResult)> {
    let gates = record.gates.iter().flat_map(|gates| gates.gates.iter());
    gates.filter(|(_, gate)| !gate.passed)
}

/// Cases of which nothing was evaluated.
fn skipped(record: &RunRecord) -> usize {
    let cases = record.cases.iter();
    cases.filter(|of| of.case.results.is_empty()).count()
}

/// 1 for a suite that broke down, or was not evaluated as a whole: an entry of its own says so.
fn errors(record: &RunRecord) -> usize {
    usize::from(record.head.status == RunStatus::Errored)
}

/// Cases, and gates that do not hold.
fn entries(record: &RunRecord) -> usize {
    record.cases.len() + failed_gates(record).count()
}

fn counts(
    entries: usize,
    [failed, errors, skipped]: [usize; 3],
    milliseconds: u64,
) -> Vec<(&'static str, String)> {
    let (seconds, rest) = (milliseconds / 1000, milliseconds % 1000);
    vec![
        ("tests", (entries + errors).to_string()),
        ("failures", failed.to_string()),
        ("errors", errors.to_string()),
        ("skipped", skipped.to_string()),
        ("time", format!("{seconds}.{rest:03}")),
    ]
}

fn pairs<'a>(attributes: &'a [(&'a str, String)]) -> impl Iterator<Item = (&'a str, &'a str)> {
    attributes
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
}

fn write_suite(writer: &mut Writer<Vec<u8>>, record: &RunRecord) -> io::Result<()> {
    let head = &record.head;
    let mut attributes = vec![("name", allowed(&head.golden_set_name))];
    attributes.extend(counts(
        entries(record),
        [failures(record), errors(record), skipped(record)],
        head.duration_ms,
    ));
    attributes.push(("timestamp", format_instant(head.timestamp)));
    let gates = record.gates.as_ref();
    let properties = [
        ("run_id", Some(allowed(&head.run_id))),
        ("version", Some(allowed(&head.golden_set_version))),
        ("status", Some(head.status.name().to_owned())),
        ("suite_score", Some(head.suite_score.to_string())),
        (
            "regression_status",
            Some(record.regression.comparison.status.name().to_owned()),
        ),
        ("gates_passed", gates.map(|gates| gates.passed.to_string())),
    ];
    let suite = writer.create_element("testsuite");
    let suite = suite.with_attributes(pairs(&attributes));
    suite.write_inner_content(|writer| {
        let block = writer.create_element("properties");
        block.write_inner_content(|writer| {
            for (name, value) in &properties {
                if let Some(value) = value {
                    let property = writer.create_element("property");
                    let values = [("name", *name), ("value", value)];
                    property.with_attributes(values).write_empty()?;
                }
            }
            Ok(())
        })?;
        for case in &record.cases {
            write_case(writer, &head.golden_set_name, case)?;
        }
        for (name, gate) in failed_gates(record) {
            write_gate(writer, &head.golden_set_name, (name, gate))?;
        }
        if errors(record) > 0 {
            write_error(writer, &head.golden_set_name)?;
        }
        Ok(())
    })?;
    Ok(())
}

fn write_gate(
    writer: &mut Writer<Vec<u8>>,
    suite: &str,
    (name, gate): (&str, &GateResult),
) -> io::Result<()> {
    let attributes = [
        ("name", allowed(&format!("gate {name}"))),
        ("classname", allowed(suite)),
    ];
    let case = writer.create_element("testcase");
    let case = case.with_attributes(pairs(&attributes));
    case.write_inner_content(|writer| {
        let attributes = [
            ("message", allowed(&gate.message)),
            ("type", "gate".to_owned()),
        ];
        let failure = writer.create_element("failure");
        failure.with_attributes(pairs(&attributes)).write_empty()?;
        Ok(())
    })?;
    Ok(())
}

/// A suite without a verdict must not look like one that passed.
fn write_error(writer: &mut Writer<Vec<u8>>, suite: &str) -> io::Result<()> {
    let suite = allowed(suite);
    let attributes = [("name", "the suite as a whole"), ("classname", &suite)];
    let case = writer.create_element("testcase");
    let case = case.with_attributes(attributes);
    case.write_inner_content(|writer| {
        let message = "the suite broke down, or was not evaluated as a whole";
        let error = writer.create_element("error");
        let error = error.with_attributes([("message", message), ("type", "errored")]);
        error.write_empty()?;
        Ok(())
    })?;
    Ok(())
}

fn write_case(writer: &mut Writer<Vec<u8>>, suite: &str, of: &CaseRecord) -> io::Result<()> {
    let attributes = [
        ("name", allowed(&of.case.id)),
        ("classname", allowed(suite)),
    ];
    let case = writer.create_element("testcase");
    let case = case.with_attributes(pairs(&attributes));
    let failed = of.case.results.iter().filter(|(_, result)| !result.passed);
    let failed: Vec<(&str, &Checked)> = failed.collect();
    if of.case.results.is_empty() {
        case.write_inner_content(|writer| {
            let skipped = writer.create_element("skipped");
            let message = [("message", "none of its metrics is enabled")];
            skipped.with_attributes(message).write_empty()?;
            Ok(())
        })?;
        return Ok(());
    }
    if failed.is_empty() {
        case.write_empty()?;
        return Ok(());
    }
    case.write_inner_content(|writer| {
        for (metric, result) in failed {
            let (score, threshold) = (result.score, result.threshold);
            let message = format!("{metric}: {score:.3}, threshold {threshold}");
            let attributes = [("message", allowed(&message)), ("type", allowed(metric))];
            let failure = writer.create_element("failure");
            let failure = failure.with_attributes(pairs(&attributes));
            let text = allowed(&failure_text(result));
            failure.write_text_content(BytesText::new(&text))?;
        }
        Ok(())
    })?;
    Ok(())
}

fn failure_text(result: &Checked) -> String {
    let mut lines = vec![result.explanation.clone()];
    for detail in result.details.iter().filter(|detail| !detail.passed) {
        let mut line = detail.check.clone();
        let texts = [
            (": expected ", &detail.expected),
            (", actual ", &detail.actual),
            (": ", &detail.message),
        ];
        for (before, text) in texts {
            if let Some(text) = text {
                line.push_str(before);
                line.push_str(text);
            }
        }
        lines.push(line);
    }
    lines.join("\n")
}

/// The text with every character that XML 1.0 can't hold, not even escaped, replaced by U+FFFD.
fn allowed(text: &str) -> String {
    let is_blank = |of: char| matches!(of, '\t' | '\n' | '\r');
    let is_shown = |of: char| matches!(of, ' '..='\u{fffd}' | '\u{10000}'..);
    let is_allowed = |of: char| is_blank(of) || is_shown(of);
    let characters = text.chars();
    characters
        .map(|of| if is_allowed(of) { of } else { '\u{fffd}' })
        .collect()
}
