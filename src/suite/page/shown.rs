//! As much of an outcome as a page shows.

use serde::Serialize;

use super::room::{Few, Room, Text, Texts, beginning, short};
use crate::suite::outcome::{
    CaseOutcome, CheckOutcome, GateOutcome, JudgingOutcome, MetricOutcome, PartOutcome, Verdict,
};

/// The most cases that did not pass, and that are shown with all that was found.
const MOST_OPEN: usize = 1_000;
/// The most cases that passed, a line each.
const MOST_PASSED: usize = 1_000;
/// The most checks of a case: those that did not pass, and as many that did.
const MOST_CHECKS: usize = 30;
/// The most parts of a check.
const MOST_PARTS: usize = 30;
/// The most metrics and gates in a table.
const MOST_ROWS: usize = 300;
/// The most models that are named.
const MOST_MODELS: usize = 50;
/// The most characters of a line of a list.
const MOST_LINE: usize = 1_000;

/// The first lines of a list.
pub(super) fn few(lines: &[String], most: usize) -> Few<String> {
    Few::of(lines, most, |line| beginning(line, MOST_LINE))
}

/// Gates as they are shown.
pub(super) fn gates(gates: &[GateOutcome]) -> Few<GateOutcome> {
    Few::of(gates, MOST_ROWS, |gate| GateOutcome {
        name: short(&gate.name),
        passed: gate.passed,
        found: short(&gate.found),
    })
}

/// Metrics as they are shown.
pub(super) fn metrics(metrics: &[MetricOutcome]) -> Few<MetricOutcome> {
    Few::of(metrics, MOST_ROWS, |metric| MetricOutcome {
        name: short(&metric.name),
        ..metric.clone()
    })
}

/// What was asked, with models as they are shown.
pub(super) fn judging(judging: &JudgingOutcome) -> JudgingOutcome {
    let models = judging.models.iter().take(MOST_MODELS);
    JudgingOutcome {
        models: models.map(|model| short(model)).collect(),
        ..judging.clone()
    }
}

/// The cases of a page: failed ones, then those not evaluated, then passed ones, each in the order of the suite.
#[derive(Debug, Serialize)]
pub(super) struct CaseList {
    total: usize,
    passed: usize,
    failed: usize,
    not_evaluated: usize,
    /// Words that name a change against an earlier run, with the number of cases.
    changes: Vec<(&'static str, usize)>,
    open: Vec<OpenCase>,
    /// Cases that did not pass and are not shown.
    open_hidden: usize,
    rows: Vec<CaseRow>,
    /// Cases that passed and are not shown.
    rows_hidden: usize,
}

impl CaseList {
    pub fn of(cases: &[CaseOutcome], several_runs: bool) -> Self {
        let of = |wanted| cases.iter().filter(move |case| case.verdict == wanted);
        let (failed, not_evaluated) = (
            of(Verdict::Failed).count(),
            of(Verdict::NotEvaluated).count(),
        );
        let passed = of(Verdict::Passed).count();
        let changed = |change| {
            cases
                .iter()
                .filter(move |c| c.change == Some(change))
                .count()
        };
        let changes = ["regressed", "improved", "unchanged", "new", "removed"];
        let changes = changes.map(|change| (change, changed(change)));
        let (mut room, mut room_of_passed) = (Room::of_open(), Room::of_passed());
        let open = of(Verdict::Failed).chain(of(Verdict::NotEvaluated));
        let open = open.take(MOST_OPEN);
        let rows = of(Verdict::Passed).take(MOST_PASSED);
        Self {
            total: cases.len(),
            passed,
            failed,
            not_evaluated,
            changes: changes.into_iter().filter(|change| change.1 > 0).collect(),
            open: open
                .map(|case| OpenCase::of(case, several_runs, &mut room))
                .collect(),
            open_hidden: (failed + not_evaluated).saturating_sub(MOST_OPEN),
            rows: rows
                .map(|case| {
                    let checks: Vec<_> = case.checks.iter().collect();
                    CaseRow::of(case, several_runs, &checks, &mut room_of_passed)
                })
                .collect(),
            rows_hidden: passed.saturating_sub(MOST_PASSED),
        }
    }
}

/// What a line for a case shows.
#[derive(Debug, Serialize)]
struct CaseRow {
    id: String,
    run: Option<u32>,
    score: Option<f64>,
    change: Option<&'static str>,
    input: Text,
    checks: Few<CheckRow>,
}

impl CaseRow {
    fn of(
        case: &CaseOutcome,
        several_runs: bool,
        checks: &[&CheckOutcome],
        room: &mut Room,
    ) -> Self {
        Self {
            id: room.name(&case.id),
            run: several_runs.then_some(case.run),
            score: case.score,
            change: case.change,
            input: room.words(&case.input),
            checks: Few::within(room, checks, MOST_CHECKS, |check, room| {
                CheckRow::of(check, room)
            }),
        }
    }
}

/// A case that did not pass.
#[derive(Debug, Serialize)]
struct OpenCase {
    verdict: Verdict,
    row: CaseRow,
    /// What was asked, at more length than in the row.
    input: Text,
    error: Option<Text>,
    checks: Few<OpenCheck>,
}

impl OpenCase {
    fn of(case: &CaseOutcome, several_runs: bool, room: &mut Room) -> Self {
        let (passed, open): (Vec<_>, Vec<_>) = case
            .checks
            .iter()
            .partition(|check| check.verdict == Verdict::Passed);
        Self {
            verdict: case.verdict,
            input: room.text(&case.input),
            error: case.error.as_deref().map(|error| room.text(error)),
            checks: Few::within(room, &open, MOST_CHECKS, |check, room| {
                OpenCheck::of(check, room)
            }),
            row: CaseRow::of(case, several_runs, &passed, room),
        }
    }
}

/// A check as a row of a table.
#[derive(Debug, Serialize)]
struct CheckRow {
    invocation: String,
    metric: String,
    verdict: Verdict,
    score: f64,
    threshold: f64,
    reason: Text,
    judged: bool,
}

impl CheckRow {
    fn of(check: &CheckOutcome, room: &mut Room) -> Self {
        Self {
            invocation: room.name(&check.invocation),
            metric: room.name(&check.metric),
            verdict: check.verdict,
            score: check.score,
            threshold: check.threshold,
            reason: room.words(&check.reason),
            judged: check.judged,
        }
    }
}

/// A check that did not pass.
#[derive(Debug, Serialize)]
struct OpenCheck {
    invocation: String,
    metric: String,
    criterion: String,
    verdict: Verdict,
    score: f64,
    threshold: f64,
    reason: Text,
    judged: bool,
    texts: Texts,
    parts: Few<Part>,
}

impl OpenCheck {
    fn of(check: &CheckOutcome, room: &mut Room) -> Self {
        // What does not hold comes first.
        let (holding, failing): (Vec<_>, Vec<_>) = check.parts.iter().partition(|part| part.passed);
        let parts = [failing, holding].concat();
        Self {
            invocation: room.name(&check.invocation),
            metric: room.name(&check.metric),
            criterion: room.name(&check.criterion),
            verdict: check.verdict,
            score: check.score,
            threshold: check.threshold,
            reason: room.text(&check.reason),
            judged: check.judged,
            texts: room.texts(check.expected.as_deref(), check.actual.as_deref()),
            parts: Few::within(room, &parts, MOST_PARTS, |part, room| Part::of(part, room)),
        }
    }
}

/// A part of a check: what it came to, and its texts where it does not hold.
#[derive(Debug, Serialize)]
struct Part {
    name: String,
    passed: bool,
    reason: Text,
    texts: Texts,
}

impl Part {
    fn of(part: &PartOutcome, room: &mut Room) -> Self {
        Self {
            name: room.name(&part.name),
            passed: part.passed,
            reason: room.text(&part.reason),
            texts: match part.passed {
                true => Texts::default(),
                false => room.texts(part.expected.as_deref(), part.actual.as_deref()),
            },
        }
    }
}
