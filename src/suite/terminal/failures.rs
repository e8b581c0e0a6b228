//! Cases that did not pass, with what was expected and what was there.

use std::fmt::{Result, Write as _};

use crate::report::Paint;
use crate::report::brief;
use crate::report::counted;

use super::columns::{folded, rows};
use super::{Layout, score, verdict};
use crate::suite::difference::{Bounds, Difference, Kind, Line, Sign, difference};
use crate::suite::outcome::{CaseOutcome, CheckOutcome, PartOutcome, SuiteOutcome, Verdict};

/// The most checks that are shown in full, over all cases.
const MOST_CHECKS: usize = 20;
/// The most checks of a case that are shown in full.
const MOST_OF_CASE: usize = 5;
/// The most parts of a check that are shown.
const MOST_PARTS: usize = 8;
/// The most lines of a difference.
const MOST_LINES: usize = 24;
/// A line of a difference goes over at most so many rows, and so do a reason and an input.
const MOST_ROWS: usize = 3;
/// The most rows of what a judge said.
const MOST_WORDS: usize = 6;

/// The cases that failed, then those that were not evaluated, in the order of the suite.
pub(super) fn write(
    out: &mut String,
    outcome: &SuiteOutcome,
    paint: Paint,
    width: usize,
) -> Result {
    let of = |wanted| {
        outcome
            .cases
            .iter()
            .filter(move |case| case.verdict == wanted)
    };
    let mut left = MOST_CHECKS;
    let mut hidden = 0;
    for case in of(Verdict::Failed).chain(of(Verdict::NotEvaluated)) {
        if left == 0 {
            hidden += 1;
            continue;
        }
        writeln!(out)?;
        let shown = left.min(MOST_OF_CASE);
        let written = Layout { paint, width }.case(out, case, outcome.runs > 1, shown)?;
        left -= written.max(1).min(left);
    }
    if hidden > 0 {
        let page = outcome.files.iter().find(|file| file.ends_with(".html"));
        writeln!(
            out,
            "\n+ {} that did not pass; {}",
            counted(hidden, "more case", "more cases"),
            match page {
                Some(_) => "the page and --json have them",
                None => "--json has them",
            }
        )?;
    }
    Ok(())
}

impl Layout {
    /// Writes a case with at most so many of its checks, and says how many.
    fn case(
        self,
        out: &mut String,
        case: &CaseOutcome,
        several_runs: bool,
        most: usize,
    ) -> std::result::Result<usize, std::fmt::Error> {
        let run = match several_runs {
            true => format!(", run {}", case.run),
            false => String::new(),
        };
        let mut tail = String::new();
        if case.score.is_some() {
            write!(tail, ", score {}", score(case.score))?;
        }
        if let Some(change) = case.change {
            write!(tail, ", {change}")?;
        }
        let head = format!("case {}{run}", brief(&case.id));
        let found = |paint| format!(": {}{tail}", verdict(case.verdict, paint));
        self.head(out, 0, &head, Paint::head, found)?;
        self.said(out, 2, "asked: ", &case.input, MOST_ROWS)?;
        if let Some(error) = &case.error {
            self.said(out, 2, "error: ", error, MOST_ROWS)?;
        }
        let checks: Vec<_> = case
            .checks
            .iter()
            .filter(|check| check.verdict != Verdict::Passed)
            .collect();
        for check in checks.iter().take(most) {
            self.check(out, check)?;
        }
        if let Some(more @ 1..) = checks.len().checked_sub(most) {
            let more = counted(more as u64, "more check", "more checks");
            writeln!(out, "  + {more} of this case")?;
        }
        Ok(checks.len().min(most))
    }

    fn check(self, out: &mut String, check: &CheckOutcome) -> Result {
        let turn = match check.invocation.as_str() {
            "" => String::new(),
            turn => format!("turn {}, ", brief(turn)),
        };
        let criterion = match check.criterion.as_str() {
            "" => String::new(),
            criterion => format!(" ({})", brief(criterion)),
        };
        let head = format!("{turn}{}{criterion}", brief(&check.metric));
        let found = |paint: Paint| match check.verdict {
            Verdict::NotEvaluated => format!(": {}", verdict(check.verdict, paint)),
            _ => {
                let found = score(Some(check.score));
                format!(": {}, the bar is {}", paint.bad(&found), check.threshold)
            }
        };
        self.head(out, 2, &head, |_, text| text.to_owned(), found)?;
        match check.judged {
            true => self.said(out, 4, "the judge: ", &quoted(&check.reason), MOST_WORDS)?,
            false => self.said(out, 4, "", &check.reason, MOST_ROWS)?,
        }
        let parts: Vec<_> = check.parts.iter().filter(|part| !part.passed).collect();
        for part in parts.iter().take(MOST_PARTS) {
            self.part(out, part, check.judged)?;
        }
        if let Some(more @ 1..) = parts.len().checked_sub(MOST_PARTS) {
            writeln!(out, "    + {more} more that do not hold")?;
        }
        self.texts(out, 4, check.expected.as_deref(), check.actual.as_deref())
    }

    fn part(self, out: &mut String, part: &PartOutcome, judged: bool) -> Result {
        let name = format!("{}: ", brief(&part.name));
        let reason = match judged {
            true => quoted(&part.reason),
            false => part.reason.clone(),
        };
        let reason = match reason.as_str() {
            "" => "does not hold",
            reason => reason,
        };
        self.said(out, 4, &format!("✗ {name}"), reason, MOST_ROWS)?;
        self.texts(out, 6, part.expected.as_deref(), part.actual.as_deref())
    }

    /// A text of data after a label, folded below it; nothing for an empty text.
    fn said(self, out: &mut String, indent: usize, label: &str, text: &str, most: usize) -> Result {
        if text.trim().is_empty() {
            return Ok(());
        }
        let lines = folded(&format!("{label}{text}"), self.width - indent - 2, most);
        for (at, line) in lines.iter().enumerate() {
            let indent = if at == 0 { indent } else { indent + 2 };
            writeln!(out, "{:indent$}{line}", "")?;
        }
        Ok(())
    }

    fn texts(
        self,
        out: &mut String,
        indent: usize,
        expected: Option<&str>,
        actual: Option<&str>,
    ) -> Result {
        let room = self.width - indent - 2;
        let bounds = Bounds {
            lines: MOST_LINES,
            line: room * MOST_ROWS,
            characters: room * MOST_LINES,
        };
        let Some(found) = difference(expected, actual, bounds) else {
            return Ok(());
        };
        writeln!(
            out,
            "{:indent$}{}",
            "",
            self.title(&found, expected, actual)
        )?;
        for line in &found.lines {
            self.line(out, indent, line, room)?;
        }
        Ok(())
    }

    fn title(self, found: &Difference, expected: Option<&str>, actual: Option<&str>) -> String {
        let empty = |text: Option<&str>| text.is_some_and(str::is_empty);
        match found.kind {
            Kind::Different if empty(expected) => "expected an empty text, found:".into(),
            Kind::Different if empty(actual) => "found an empty text, expected:".into(),
            Kind::Different => {
                let signs = [self.paint.bad("- expected"), self.paint.good("+ actual")];
                signs.join("  ")
            }
            Kind::Same if empty(expected) => "expected and actual are empty".into(),
            Kind::Same => "expected and actual are the same:".into(),
            Kind::SameJson => "expected and actual are the same JSON:".into(),
            Kind::OnlyExpected if empty(expected) => "expected an empty text".into(),
            Kind::OnlyExpected => "expected:".into(),
            Kind::OnlyActual if empty(actual) => "actual is empty".into(),
            Kind::OnlyActual => "actual:".into(),
        }
    }

    fn line(self, out: &mut String, indent: usize, line: &Line, room: usize) -> Result {
        let sign = match line.sign {
            Sign::Both => " ",
            Sign::Expected => "-",
            Sign::Actual => "+",
            Sign::Gap => "~",
        };
        let marked = line.pieces.iter().any(|piece| piece.differs);
        for (at, row) in rows(&line.pieces, room, MOST_ROWS).iter().enumerate() {
            let words = row.iter().map(|piece| match piece.differs || !marked {
                true => self.signed(line.sign, &piece.text),
                false => piece.text.clone(),
            });
            let words: String = words.collect();
            // What a line goes on with stands below it, without a sign of its own.
            let sign = if at == 0 { sign } else { " " };
            let row = format!("{:indent$}{} {words}", "", self.signed(line.sign, sign));
            writeln!(out, "{}", row.trim_end())?;
        }
        Ok(())
    }

    fn signed(self, sign: Sign, text: &str) -> String {
        match sign {
            Sign::Expected => self.paint.bad(text),
            Sign::Actual => self.paint.good(text),
            Sign::Both | Sign::Gap => text.to_owned(),
        }
    }
}

fn quoted(words: &str) -> String {
    match words.trim() {
        "" => String::new(),
        words => format!("“{words}”"),
    }
}
