//! How stable cases are over several runs, in lines for readers.

use super::outcome::{Chance, FlakinessOutcome, PassFigures};
use crate::report::counted;

/// What the lines are of.
pub(super) fn head(found: &FlakinessOutcome) -> String {
    format!(
        "flakiness over {}, with 95 % intervals",
        counted(u64::from(found.runs), "run", "runs")
    )
}

/// The figures over cases and over runs as a whole, what is missing, and a line for each flaky case.
pub(super) fn lines(found: &FlakinessOutcome) -> Vec<String> {
    let cases = |count: usize| counted(count as u64, "case", "cases");
    let mut lines = Vec::new();
    if let Some(mean) = &found.mean {
        let figures = figures(mean, found.k);
        lines.push(format!("mean over {}: {figures}", cases(found.cases.len())));
    }
    if let Some(whole) = &found.whole_runs {
        lines.push(format!(
            "all cases at once, which {} of {} runs passed: {}",
            whole.passed,
            whole.of,
            figures(whole, found.k)
        ));
    }
    if found.left_out > 0 {
        lines.push(format!(
            "{} in no figure: not evaluated in every run",
            cases(found.left_out)
        ));
    }
    lines.push(match found.flaky {
        0 => "no case is flaky: each passed in all runs or in none".to_owned(),
        flaky => format!("{} passed in some runs and failed in others", cases(flaky)),
    });
    for case in found.cases.iter().filter(|case| case.flaky) {
        let passed = case.figures.passed;
        lines.push(format!(
            "flaky: {} passed in {passed} of {} runs: {}",
            case.id,
            case.figures.of,
            figures(&case.figures, found.k)
        ));
    }
    lines
}

fn figures(found: &PassFigures, k: u32) -> String {
    let shown = |chance: Chance| {
        format!(
            "{:.4} ({:.4} to {:.4})",
            chance.value, chance.low, chance.high
        )
    };
    let (all, one) = (shown(found.pass_hat_k), shown(found.pass_at_k));
    format!("pass^{k} {all}, pass@{k} {one}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::outcome::CaseFlakiness;

    #[test]
    fn each_flaky_case_has_a_line() {
        let figures = PassFigures {
            of: 3,
            passed: 2,
            pass_hat_k: Chance {
                value: 8.0 / 27.0,
                low: 0.01,
                high: 0.8,
            },
            ..PassFigures::default()
        };
        let found = FlakinessOutcome {
            runs: 3,
            k: 3,
            flaky: 1,
            left_out: 2,
            cases: vec![
                CaseFlakiness {
                    id: "a".into(),
                    flaky: true,
                    figures,
                },
                CaseFlakiness::default(),
            ],
            ..FlakinessOutcome::default()
        };
        assert_eq!(head(&found), "flakiness over 3 runs, with 95 % intervals");
        assert_eq!(
            lines(&found),
            [
                "2 cases in no figure: not evaluated in every run",
                "1 case passed in some runs and failed in others",
                "flaky: a passed in 2 of 3 runs: pass^3 0.2963 (0.0100 to 0.8000), pass@3 0.0000 (0.0000 to 0.0000)",
            ]
        );
    }
}
