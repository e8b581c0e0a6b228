//! What a comparison of an output with an expected one comes to, as in Regtrace: a score with the checks behind it.

/// Most failed checks of a metric that are listed one by one.
pub const MOST_FAILED_DETAILS: usize = 10;
/// Most UTF-16 code units of a text that a detail shows.
pub const MOST_SHOWN_UNITS: usize = 80;

/// The result of a metric for one case.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// 0 to 1.
    pub score: f64,
    /// The bar that it was held against.
    pub threshold: f64,
    /// Whether the metric is content.
    pub passed: bool,
    /// 0 to 1; 1 for what is computed and not guessed.
    pub confidence: f64,
    /// For a reader; names what failed.
    pub explanation: String,
    /// Whether a judge said it.
    pub judged: bool,
    /// Cents (US) that asking cost; none where the model's price is not known.
    pub token_cost: Option<f64>,
    /// The checks, in their order; see [`listed`].
    pub details: Vec<Detail>,
}

/// One check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Its name with dots between levels, as in `format.length` or `json_path.$.amount`.
    pub check: String,
    /// Whether it holds.
    pub passed: bool,
    /// For structural comparisons: `missing`, `extra`, `wrong` or `type_mismatch`.
    pub kind: Option<&'static str>,
    /// What was expected, cut.
    pub expected: Option<String>,
    /// What was there, cut.
    pub actual: Option<String>,
    /// More for a reader.
    pub message: Option<String>,
}

/// The details of `metric` as they are kept: at most ten failed ones, and then how many more there are.
pub fn listed(metric: &str, details: impl IntoIterator<Item = Detail>) -> Vec<Detail> {
    let mut failed = 0;
    let mut kept: Vec<Detail> = details
        .into_iter()
        .filter(|detail| {
            failed += usize::from(!detail.passed);
            detail.passed || failed <= MOST_FAILED_DETAILS
        })
        .collect();
    if failed > MOST_FAILED_DETAILS {
        kept.push(Detail {
            check: format!("{metric}.more"),
            message: Some(format!("+ {} more", failed - MOST_FAILED_DETAILS)),
            ..Detail::default()
        });
    }
    kept
}

/// A text as details show it: the longest prefix of whole characters of at most 80 UTF-16 code units, and `…` if that is
/// not all. None for the empty text.
pub fn cut(text: &str) -> Option<String> {
    let mut units = 0;
    for (at, character) in text.char_indices() {
        units += character.len_utf16();
        if units > MOST_SHOWN_UNITS {
            return Some(format!("{}…", &text[..at]));
        }
    }
    (!text.is_empty()).then(|| text.to_owned())
}
