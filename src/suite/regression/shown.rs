//! The record of a run as readers are shown it.

use std::collections::HashMap;

use super::compare::{CaseStatus, RegressionStatus};
use super::golden_set::{GoldenSet, TestCase};
use super::record::{CaseRecord, RunRecord, RunStatus};
use crate::metric::checked::{Checked, Detail};
use crate::metric::factuality::FACTUALITY;
use crate::metric::format::FORMAT;
use crate::metric::tone::TONE;
use crate::suite::outcome::{
    CaseOutcome, CheckOutcome, GateOutcome, MetricOutcome, PartOutcome, SuiteOutcome, Verdict,
};
use crate::text::format_instant;

/// Most characters of what was asked that a case shows.
const MOST_INPUT: usize = 200;

/// What a run came to. Records do not hold what was expected: `set` is the suite, where it is at hand.
pub fn record_outcome(record: &RunRecord, set: Option<&GoldenSet>) -> SuiteOutcome {
    let head = &record.head;
    let expected: HashMap<&str, &TestCase> = set
        .into_iter()
        .flat_map(|set| &set.cases)
        .map(|case| (case.id.as_str(), case))
        .collect();
    let deltas = record.regression.comparison.case_deltas.iter();
    let deltas: HashMap<&str, &'static str> = deltas
        .map(|of| (of.id.as_str(), of.status.name()))
        .collect();
    // Without a baseline, that every case is new says nothing.
    let has_baseline = record.regression.baseline_run_id.is_some();
    let cases = record.cases.iter().map(|case| {
        let id = case.case.id.as_str();
        let change = deltas.get(id).copied().filter(|_| has_baseline);
        case_outcome(case, expected.get(id).copied(), change)
    });
    let gates = record.gates.iter().flat_map(|gates| gates.gates.iter());
    SuiteOutcome {
        kind: "regression",
        name: head.golden_set_name.clone(),
        of: head.golden_set_version.clone(),
        verdict: match head.status {
            RunStatus::Passed => Verdict::Passed,
            RunStatus::Failed => Verdict::Failed,
            RunStatus::Errored => Verdict::NotEvaluated,
        },
        score: (!record.cases.is_empty()).then_some(head.suite_score),
        runs: 1,
        metrics: metric_outcomes(record),
        gates: gates
            .map(|(name, gate)| GateOutcome {
                name: name.to_owned(),
                passed: gate.passed,
                found: gate.message.clone(),
            })
            .collect(),
        cases: cases.collect(),
        changes: changes(record),
        notes: notes(record),
        flakiness: None,
        judging: None,
        files: Vec::new(),
        seconds: head.duration_ms as f64 / 1000.0,
    }
}

fn metric_outcomes(record: &RunRecord) -> Vec<MetricOutcome> {
    let summary = record.head.metric_summary.iter();
    let outcomes = summary.map(|(name, summary)| {
        let results = record.cases.iter();
        let results: Vec<&Checked> = results.filter_map(|of| of.case.results.get(name)).collect();
        let first = results.first().map(|of| of.threshold);
        let same = |bar: &f64| results.iter().all(|of| of.threshold == *bar);
        let passed = results.iter().filter(|of| of.passed).count();
        MetricOutcome {
            name: name.to_owned(),
            mean: (!results.is_empty()).then_some(summary.score),
            threshold: first.filter(same),
            passed,
            failed: results.len() - passed,
            not_evaluated: 0,
            judged: results.iter().any(|of| of.judged),
        }
    });
    outcomes.collect()
}

fn case_outcome(
    of: &CaseRecord,
    expected: Option<&TestCase>,
    change: Option<&'static str>,
) -> CaseOutcome {
    let case = &of.case;
    // The texts stand at one of the failed metrics that read them: they are the same for all.
    let readers = [FACTUALITY, FORMAT, TONE];
    let failed = |name: &&&str| case.results.get(name).is_some_and(|of| !of.passed);
    let shown_at = readers.iter().find(failed).copied();
    let checks = case.results.iter().map(|(name, result)| {
        let is_shown = shown_at == Some(name);
        CheckOutcome {
            metric: name.to_owned(),
            verdict: verdict(result.passed),
            score: result.score,
            threshold: result.threshold,
            reason: result.explanation.clone(),
            expected: expected
                .filter(|_| is_shown)
                .map(|case| case.expected_output.clone()),
            actual: is_shown.then(|| case.actual_output.clone()),
            judged: result.judged,
            parts: result.details.iter().map(part).collect(),
            ..CheckOutcome::default()
        }
    });
    CaseOutcome {
        id: case.id.clone(),
        run: 1,
        verdict: match case.results.is_empty() {
            true => Verdict::NotEvaluated,
            false => verdict(of.figures.passed),
        },
        score: (!case.results.is_empty()).then_some(of.figures.score),
        error: case
            .results
            .is_empty()
            .then(|| "no metric of the case is enabled".to_owned()),
        change,
        input: case.input.chars().take(MOST_INPUT).collect(),
        checks: checks.collect(),
    }
}

fn verdict(passed: bool) -> Verdict {
    match passed {
        true => Verdict::Passed,
        false => Verdict::Failed,
    }
}

fn part(detail: &Detail) -> PartOutcome {
    let words = [detail.kind, detail.message.as_deref()];
    PartOutcome {
        name: detail.check.clone(),
        passed: detail.passed,
        reason: words.into_iter().flatten().collect::<Vec<_>>().join(": "),
        expected: detail.expected.clone(),
        actual: detail.actual.clone(),
    }
}

fn percent(share: f64) -> String {
    // Never a negative zero.
    let points = (share * 1000.0).round() / 10.0 + 0.0;
    format!("{points:+.1} %")
}

/// What changed against the baseline, in one line each.
fn changes(record: &RunRecord) -> Vec<String> {
    let of = &record.regression;
    let comparison = &of.comparison;
    let Some(baseline) = &of.baseline_run_id else {
        return match record.cases.is_empty() {
            true => Vec::new(),
            false => vec!["there is no run to compare with".to_owned()],
        };
    };
    let mut lines = vec![match comparison.status {
        RegressionStatus::New => {
            format!("no case is also in the run {baseline}: nothing is compared")
        }
        status => format!(
            "{} against the run {baseline}: the suite {}",
            status.name(),
            percent(comparison.suite_delta)
        ),
    }];
    let deltas = comparison.metric_deltas.iter();
    let deltas: Vec<String> = deltas
        .filter(|(_, delta)| **delta != 0.0)
        .map(|(name, delta)| format!("{name} {}", percent(*delta)))
        .collect();
    if !deltas.is_empty() {
        lines.push(format!("metrics: {}", deltas.join(", ")));
    }
    let count = |status: CaseStatus| {
        let cases = comparison.case_deltas.iter();
        cases.filter(|of| of.status == status).count()
    };
    let counts = CaseStatus::ALL.map(|status| (count(status), status.name()));
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    if !counts.is_empty() {
        lines.push(format!("cases: {}", counts.join(", ")));
    }
    let excluded = &comparison.test_cases_excluded;
    if !excluded.is_empty() {
        lines.push(format!(
            "not compared, as the run {baseline} lacks them: {}",
            few(excluded)
        ));
    }
    let removed = comparison.case_deltas.iter();
    let removed: Vec<String> = removed
        .filter(|of| of.status == CaseStatus::Removed)
        .map(|of| of.id.clone())
        .collect();
    if !removed.is_empty() {
        lines.push(format!("no more in the suite: {}", few(&removed)));
    }
    if comparison.version_change_detected {
        let then = of.baseline_golden_set_version.as_deref();
        lines.push(format!(
            "the suite is of version {}, and was of version {}",
            record.head.golden_set_version,
            then.unwrap_or_default()
        ));
    }
    lines
}

/// Some names, and how many more there are.
fn few(names: &[String]) -> String {
    const MOST: usize = 10;
    let shown: Vec<&str> = names.iter().take(MOST).map(String::as_str).collect();
    match names.len().checked_sub(MOST) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

fn notes(record: &RunRecord) -> Vec<String> {
    let counts = record.severity_counts();
    let mut notes = Vec::new();
    if counts.warn + counts.fail > 0 {
        notes.push(format!(
            "cases by severity: {} pass, {} warn, {} fail (a failed metric below 0.3)",
            counts.pass, counts.warn, counts.fail
        ));
    }
    let unpriced = record.cases.iter().flat_map(|of| of.case.results.values());
    let unpriced = unpriced.filter(|of| of.token_cost.is_none()).count();
    if unpriced > 0 {
        notes.push(format!(
            "the cost of {unpriced} judged results is not known; give the price of the model with --price"
        ));
    }
    notes
}

/// Where a run stands, for lists of runs.
pub fn head_line(head: &super::record::RunHead) -> String {
    format!(
        "{}  {}  {:<7}  {:.4}  {}{}",
        head.run_id,
        format_instant(head.timestamp),
        head.status.name(),
        head.suite_score,
        head.golden_set_name,
        match &head.branch {
            Some(branch) => format!("  ({branch})"),
            None => String::new(),
        }
    )
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{against, record};
    use super::*;

    #[test]
    fn a_record_is_shown_with_what_changed() {
        let first = record("run_20260601_aaaaaa", &[("a", 0.9), ("gone", 0.9)]);
        let cases = [("a", 0.2), ("fresh", 0.9)];
        let second = against(Some(&first), "run_20260602_bbbbbb", &cases);
        let shown = record_outcome(&second, None);
        assert_eq!(shown.verdict, Verdict::Failed);
        let changes: Vec<_> = shown.cases.iter().map(|of| of.change).collect();
        assert_eq!(changes, [Some("regressed"), Some("new")]);
        let told = shown.changes.join("\n");
        for words in [
            "critical against the run run_20260601_aaaaaa",
            "-77.8 %",
            "lacks them: fresh",
            "no more in the suite: gone",
        ] {
            assert!(told.contains(words), "{words} is not in {told}");
        }
        assert!(
            shown.notes[0].contains("1 pass, 0 warn, 1 fail"),
            "{:?}",
            shown.notes
        );
        let alone = record_outcome(&first, None);
        assert_eq!(alone.cases[0].change, None);
        assert_eq!(alone.changes, ["there is no run to compare with"]);
    }
}
