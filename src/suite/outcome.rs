//! What a suite came to, as plain figures and texts: whatever kind of suite it was, the terminal, the page and `--json`
//! show this.

use serde::Serialize;

/// How a case, a metric or a suite ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything that was asked of it holds.
    Passed,
    /// Something does not hold, or broke down.
    Failed,
    /// Nobody could say.
    #[default]
    NotEvaluated,
}

impl Verdict {
    /// `passed`, `failed` or `not_evaluated`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotEvaluated => "not_evaluated",
        }
    }
}

/// A suite that was run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SuiteOutcome {
    /// `evalset` or `regression`.
    pub kind: &'static str,
    /// Its name: the id of the set, or the name of the golden set.
    pub name: String,
    /// The application, or the version of the suite; empty if there is none.
    pub of: String,
    /// All in all.
    pub verdict: Verdict,
    /// The score of the whole, 0 to 1, where the suite has one.
    pub score: Option<f64>,
    /// Passes over all cases.
    pub runs: u32,
    /// By metric, in the order of the suite.
    pub metrics: Vec<MetricOutcome>,
    /// What the suite as a whole must hold to, in order.
    pub gates: Vec<GateOutcome>,
    /// Case by case, in the order of the suite; run by run where there are several.
    pub cases: Vec<CaseOutcome>,
    /// How stable cases are over several runs; none where there is one.
    pub flakiness: Option<FlakinessOutcome>,
    /// What changed against an earlier run, in one line each.
    pub changes: Vec<String>,
    /// What a reader must know: warnings, one line each.
    pub notes: Vec<String>,
    /// What judges were asked, if any were.
    pub judging: Option<JudgingOutcome>,
    /// Files that were written.
    pub files: Vec<String>,
    /// Wall time in seconds.
    pub seconds: f64,
}

impl SuiteOutcome {
    /// Whether it passed although some case or metric was not evaluated.
    pub fn is_partial(&self) -> bool {
        let mut cases = self.cases.iter();
        let mut metrics = self.metrics.iter();
        self.verdict == Verdict::Passed
            && (cases.any(|case| case.verdict == Verdict::NotEvaluated)
                || metrics.any(|metric| metric.not_evaluated > 0))
    }
}

/// How stable cases are over several runs: pass^k, the chance that `k` runs in a row pass, and pass@k, the chance that
/// at least one of `k` does.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FlakinessOutcome {
    /// Runs of each case.
    pub runs: u32,
    /// The k of all figures, from 1 to `runs`.
    pub k: u32,
    /// The means over `cases`; none where there are none.
    pub mean: Option<PassFigures>,
    /// The runs as a whole: one passes if all cases do. None where something was not evaluated.
    pub whole_runs: Option<PassFigures>,
    /// Cases that passed in some runs and failed in others.
    pub flaky: usize,
    /// Cases that are in no figure, since some run lacks them or did not evaluate them.
    pub left_out: usize,
    /// Case by case, in the order of the suite.
    pub cases: Vec<CaseFlakiness>,
}

/// A case over several runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CaseFlakiness {
    /// Its id.
    pub id: String,
    /// Whether it passed in some runs and failed in others.
    pub flaky: bool,
    /// Of the runs of the case.
    #[serde(flatten)]
    pub figures: PassFigures,
}

/// pass^k and pass@k of a case, of all runs, or over cases.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PassFigures {
    /// Runs; over cases, the number of cases.
    pub of: u32,
    /// Those that passed; over cases, those that passed in every run.
    pub passed: u32,
    /// All of k pass.
    pub pass_hat_k: Chance,
    /// At least one of k passes.
    pub pass_at_k: Chance,
}

/// A chance with its interval, each 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Chance {
    /// What was found.
    pub value: f64,
    /// The ends of the 95 % interval, which holds `value`.
    pub low: f64,
    /// See `low`.
    pub high: f64,
}

/// A metric over all cases.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MetricOutcome {
    /// Its name.
    pub name: String,
    /// Mean score over what was evaluated; none if nothing was.
    pub mean: Option<f64>,
    /// The bar, where all cases have the same.
    pub threshold: Option<f64>,
    /// Cases (and runs) that passed.
    pub passed: usize,
    /// That failed.
    pub failed: usize,
    /// That nobody could judge.
    pub not_evaluated: usize,
    /// Whether a judge was asked.
    pub judged: bool,
}

/// Something that the suite as a whole must hold to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GateOutcome {
    /// Its name.
    pub name: String,
    /// Whether it holds.
    pub passed: bool,
    /// What was found against what is asked.
    pub found: String,
}

/// A case in one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CaseOutcome {
    /// Its id.
    pub id: String,
    /// Which pass over the suite, from 1.
    pub run: u32,
    /// How it ended.
    pub verdict: Verdict,
    /// 0 to 1, where the suite scores cases.
    pub score: Option<f64>,
    /// What broke down, if the case could not be evaluated.
    pub error: Option<String>,
    /// `improved`, `regressed`, `unchanged`, `new` or `removed`, where there is an earlier run.
    pub change: Option<&'static str>,
    /// The beginning of what was asked.
    pub input: String,
    /// Check by check: turn by turn and metric by metric.
    pub checks: Vec<CheckOutcome>,
}

/// A metric held against one turn, or against one output.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckOutcome {
    /// Which turn: its id; empty where the case has only one output.
    pub invocation: String,
    /// The metric.
    pub metric: String,
    /// What is compared: `tool trajectory`, `final response`, `format.length`, …
    pub criterion: String,
    /// How it ended.
    pub verdict: Verdict,
    /// 0 to 1.
    pub score: f64,
    /// The bar.
    pub threshold: f64,
    /// Why, or what the judge said; may be empty.
    pub reason: String,
    /// What was expected, whole; none where nothing was.
    pub expected: Option<String>,
    /// What was there, whole.
    pub actual: Option<String>,
    /// Whether a judge said it.
    pub judged: bool,
    /// What the judge said of each rubric, or what single checks came to: name, whether it holds, words.
    pub parts: Vec<PartOutcome>,
}

/// A part of a check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PartOutcome {
    /// The rubric's id, or the name of a check.
    pub name: String,
    /// Whether it holds.
    pub passed: bool,
    /// Words.
    pub reason: String,
    /// What was expected of it.
    pub expected: Option<String>,
    /// What was there.
    pub actual: Option<String>,
}

/// What asking came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JudgingOutcome {
    /// The models.
    pub models: Vec<String>,
    /// Questions put.
    pub questions: u64,
    /// Those that the ledger answered.
    pub known: u64,
    /// Calls sent.
    pub sent: u64,
    /// Dollars for what was sent; none where a price is not known.
    pub cost: Option<f64>,
}
