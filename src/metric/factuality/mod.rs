//! `factuality`: does the output say what was expected? As in Regtrace: JSON is compared leaf by leaf, other texts by
//! the words that they share, and where a judge is asked, claim by claim. As a column of traces it asks no judge.

mod claims;
mod overlap;
mod sets;
mod structural;

pub use claims::{Claims, judged};
pub use structural::{Mismatch, Structure, compare_json};

use overlap::Overlap;
use structural::compare_trees;

use crate::metric::MetricInfo;
use crate::metric::checked::{Checked, Detail, MOST_FAILED_DETAILS, listed};
use crate::metric::comparison::{Compat, Workspace, strip_fences};

/// The metric's name.
pub const FACTUALITY: &str = "factuality";

/// What lists say of it.
pub(super) static INFO: MetricInfo = MetricInfo::comparing(
    FACTUALITY,
    "How much of the expected text the output says: leaves of JSON, else shared words (1 = all and nothing else).",
);

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

impl FactualityMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Strict, Self::Lenient, Self::JsonStructural];

    /// The name in configuration and queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Lenient => "lenient",
            Self::JsonStructural => "json_structural",
        }
    }
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

impl Path {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Skipped,
        Self::Json,
        Self::JsonError,
        Self::Ngram,
        Self::Containment,
    ];

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Json => "json",
            Self::JsonError => "json_error",
            Self::Ngram => "ngram",
            Self::Containment => "containment",
        }
    }
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
    let most = MOST_FAILED_DETAILS;
    let found = found(actual, expected, documents, most, rules, workspace);
    let (score, path) = (found.score(rules), found.path());
    match found {
        Found::Skipped => {
            let explanation = "Skipped: the case has no context to hold the output against.";
            computed(score, path, explanation.to_owned(), Vec::new())
        }
        Found::Structure(found) => {
            let explanation = explain_structure(&found);
            computed(score, path, explanation, structure_details(found))
        }
        Found::NoJson(is_json) => {
            let (explanation, details) = explain_no_json(is_json);
            let mut failed = computed(score, path, explanation, details);
            // Whatever the threshold: nothing was compared.
            failed.checked.passed = false;
            failed
        }
        Found::Contained(None) => {
            let explanation = "The output has no words to look for in the context documents.";
            computed(score, path, explanation.to_owned(), Vec::new())
        }
        Found::Contained(Some(found)) => {
            let explanation = explain_overlap(score, found, "the context documents");
            computed(score, path, explanation, Vec::new())
        }
        Found::Shared(found) => {
            let explanation = explain_overlap(score, found, "the expected text");
            computed(score, path, explanation, Vec::new())
        }
    }
}

/// The score of [`shallow`] for a case without context, and how it came about; nothing is explained.
pub fn score(
    actual: &str,
    expected: &str,
    rules: &FactualityRules,
    workspace: &mut Workspace,
) -> (f64, Path) {
    let found = found(actual, expected, &[], 0, rules, workspace);
    (found.score(rules), found.path())
}

/// What a score without a judge is made of.
enum Found {
    /// Nothing: there is no context.
    Skipped,
    Structure(Structure),
    /// Whether output and expected text are JSON, where both must be and one is not.
    NoJson((bool, bool)),
    /// None for an output without words.
    Contained(Option<Overlap>),
    Shared(Overlap),
}

impl Found {
    fn path(&self) -> Path {
        match self {
            Self::Skipped => Path::Skipped,
            Self::Structure(_) => Path::Json,
            Self::NoJson(_) => Path::JsonError,
            Self::Contained(_) => Path::Containment,
            Self::Shared(_) => Path::Ngram,
        }
    }

    fn score(&self, rules: &FactualityRules) -> f64 {
        match self {
            Self::Skipped => 1.0,
            Self::Structure(found) => found.score(),
            Self::NoJson(_) => 0.0,
            Self::Contained(found) => found.map_or(0.0, Overlap::score),
            Self::Shared(found) => match found.score() {
                score if rules.mode == FactualityMode::Strict && 0.3 < score && score < 1.0 => {
                    (score - 0.1).max(0.0)
                }
                score => score,
            },
        }
    }
}

/// Compares without a judge. Of differences between JSON documents, the first `most` are listed.
fn found(
    actual: &str,
    expected: &str,
    documents: &[&str],
    most: usize,
    rules: &FactualityRules,
    workspace: &mut Workspace,
) -> Found {
    if is_skipped(documents, rules) {
        return Found::Skipped;
    }
    let is_json = are_json(actual, expected, workspace);
    if is_json == (true, true) {
        let (actual, expected) = (&workspace.actual_json, &workspace.expected_json);
        return Found::Structure(compare_trees(actual, expected, most, rules.compat));
    }
    if rules.mode == FactualityMode::JsonStructural && rules.compat == Compat::Document {
        return Found::NoJson(is_json);
    }
    match rules.rag_faithfulness_only {
        true => Found::Contained(overlap::in_documents(actual, documents, workspace)),
        false => Found::Shared(overlap::of_texts(actual, expected, workspace)),
    }
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
