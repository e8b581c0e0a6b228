//! `factuality`: does the output say what was expected? As in Regtrace: JSON is compared leaf by leaf, other texts by
//! the words that they share, and where a judge is asked, claim by claim.

mod claims;
mod overlap;
mod sets;
mod structural;

pub use claims::{Claims, judged};
pub use structural::{Mismatch, Structure, compare_json};

use overlap::Overlap;
use structural::compare_trees;

use crate::metric::checked::{Checked, Detail, MOST_FAILED_DETAILS, listed};
use crate::metric::comparison::{Compat, Workspace, strip_fences};

/// The metric's name.
pub const FACTUALITY: &str = "factuality";

/// How strict factuality is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FactualityMode {
    /// Claims must be supported, and texts that are not equal lose a tenth.
    #[default]
    Strict,
    /// Only contradicted claims count against the output.
    Lenient,
    /// Both texts must be JSON.
    JsonStructural,
}

/// What factuality looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactualityRules {
    /// How strict it is.
    pub mode: FactualityMode,
    /// Whether a judge takes the output apart into claims.
    pub deep: bool,
    /// Whether the output is held against the context documents only. Not together with strict mode.
    pub rag_faithfulness_only: bool,
    /// Whose rules hold.
    pub compat: Compat,
}

/// The way in which a score came about without a judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// There is no context to hold the output against.
    Skipped,
    /// Both texts are JSON.
    Json,
    /// One of them is not, and must be.
    JsonError,
    /// Words shared with the expected text.
    Ngram,
    /// Words shared with the context documents.
    Containment,
}

/// A score that came about without a judge.
#[derive(Clone, Debug, PartialEq)]
pub struct Shallow {
    /// The result.
    pub checked: Checked,
    /// How it came about.
    pub path: Path,
}

impl Shallow {
    /// The result where a judge was to be asked first, and gave nothing that can be used, for `cost` cents.
    pub fn instead_of_judge(self, cost: Option<f64>) -> Checked {
        Checked {
            confidence: 0.5,
            token_cost: cost,
            ..self.checked
        }
    }
}

/// Whether a judge is to be asked: only in deep mode, and not where JSON decides or there is nothing to compare with.
/// The tool asks about JSON too.
pub fn asks_judge(
    actual: &str,
    expected: &str,
    documents: &[&str],
    rules: &FactualityRules,
    workspace: &mut Workspace,
) -> bool {
    if !rules.deep || is_skipped(documents, rules) {
        return false;
    }
    let decided = rules.mode == FactualityMode::JsonStructural
        || are_json(actual, expected, workspace) == (true, true);
    rules.compat == Compat::Tool || !decided
}

/// The score of an output without a judge, whatever depth is asked for. `documents` are the texts of the case's
/// context.
pub fn shallow(
    actual: &str,
    expected: &str,
    documents: &[&str],
    threshold: f64,
    rules: &FactualityRules,
    workspace: &mut Workspace,
) -> Shallow {
    let computed = |score: f64, path: Path, explanation: String, details: Vec<Detail>| Shallow {
        checked: Checked {
            score,
            threshold,
            passed: score >= threshold,
            confidence: 1.0,
            explanation,
            judged: false,
            token_cost: Some(0.0),
            details,
        },
        path,
    };
    if is_skipped(documents, rules) {
        let explanation = "Skipped: the case has no context to hold the output against.";
        return computed(1.0, Path::Skipped, explanation.to_owned(), Vec::new());
    }
    let json = are_json(actual, expected, workspace);
    if json == (true, true) {
        let (actual, expected) = (&workspace.actual_json, &workspace.expected_json);
        let found = compare_trees(actual, expected, MOST_FAILED_DETAILS, rules.compat);
        let (score, explanation) = (found.score(), explain_structure(&found));
        return computed(score, Path::Json, explanation, structure_details(found));
    }
    if rules.mode == FactualityMode::JsonStructural && rules.compat == Compat::Document {
        let (explanation, details) = explain_no_json(json);
        let mut failed = computed(0.0, Path::JsonError, explanation, details);
        // Whatever the threshold: nothing was compared.
        failed.checked.passed = false;
        return failed;
    }
    if rules.rag_faithfulness_only {
        let found = overlap::in_documents(actual, documents, workspace);
        let score = found.map_or(0.0, Overlap::score);
        let explanation = match found {
            Some(found) => explain_overlap(score, found, "the context documents"),
            None => "The output has no words to look for in the context documents.".to_owned(),
        };
        return computed(score, Path::Containment, explanation, Vec::new());
    }
    let found = overlap::of_texts(actual, expected, workspace);
    let mut score = found.score();
    if rules.mode == FactualityMode::Strict && 0.3 < score && score < 1.0 {
        score = (score - 0.1).max(0.0);
    }
    let explanation = explain_overlap(score, found, "the expected text");
    computed(score, Path::Ngram, explanation, Vec::new())
}

fn is_skipped(documents: &[&str], rules: &FactualityRules) -> bool {
    rules.rag_faithfulness_only && documents.is_empty()
}

/// Whether output and expected text are JSON. Both are read; what is read stays in the workspace.
fn are_json(actual: &str, expected: &str, workspace: &mut Workspace) -> (bool, bool) {
    (
        workspace.actual_json.read(strip_fences(actual)),
        workspace.expected_json.read(strip_fences(expected)),
    )
}

fn structure_details(found: Structure) -> Vec<Detail> {
    let more = found.mismatch_count - found.mismatches.len();
    let details = found.mismatches.into_iter().map(Mismatch::detail);
    // Differences that were only counted take part in the count of the last entry.
    listed(
        FACTUALITY,
        details.chain((0..more).map(|_| Detail::default())),
    )
}

fn explain_structure(found: &Structure) -> String {
    let Some(first) = found.mismatches.first() else {
        return "The JSON documents agree.".to_owned();
    };
    let more = match found.mismatch_count - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "JSON: {} of {} expected leaves match, {} extra; {} at `{}`{more}.",
        found.matched, found.expected_leaves, found.extra, first.kind, first.path
    )
}

fn explain_no_json((actual, expected): (bool, bool)) -> (String, Vec<Detail>) {
    let sides = [
        ("expected", "expected text", expected),
        ("actual", "output", actual),
    ];
    let sides = sides.into_iter().filter(|(_, _, is_json)| !is_json);
    let failed = |(check, name, _): (&str, &str, bool)| Detail {
        check: format!("json_parse.{check}"),
        message: Some(format!("The {name} is not JSON.")),
        ..Detail::default()
    };
    let details: Vec<Detail> = sides.map(failed).collect();
    let messages: Vec<&str> = details
        .iter()
        .filter_map(|detail| detail.message.as_deref())
        .collect();
    (messages.join(" "), details)
}

fn explain_overlap(score: f64, found: Overlap, with: &str) -> String {
    let Overlap { words, neighbours } = found;
    let blind = match score < 0.5 {
        true => " Overlap sees neither contradiction nor negation.",
        false => "",
    };
    format!("Overlap with {with}: words {words:.2}, neighbours {neighbours:.2}.{blind}")
}

#[cfg(test)]
mod tests;
