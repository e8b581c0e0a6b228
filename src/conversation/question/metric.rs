//! One metric: its fields, and how a metrics file gives them (as in Connexity).

use serde::{Deserialize, Serialize};

/// What a metric looks at. The order is the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Were the right tools used, and used correctly?
    Execution,
    /// Was it grounded and within the rules?
    Knowledge,
    /// Was the conversation led well?
    Process,
    /// Was the wording natural and fit for speech?
    Delivery,
}

impl Tier {
    /// All tiers, in order.
    pub const ALL: [Self; 4] = [
        Self::Execution,
        Self::Knowledge,
        Self::Process,
        Self::Delivery,
    ];

    /// The name in configurations and tables, such as `execution`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Execution => "execution",
            Self::Knowledge => "knowledge",
            Self::Process => "process",
            Self::Delivery => "delivery",
        }
    }
}

/// How a metric is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// A whole number from 0 to 5.
    Scored,
    /// Pass or fail; counted as 5 or 0.
    Binary,
}

impl Scale {
    /// The name in configurations and tables: `scored` or `binary`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scored => "scored",
            Self::Binary => "binary",
        }
    }
}

/// One metric.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    /// The id: `^[a-z][a-z0-9_]*$`, at most 255 characters.
    pub name: String,
    /// The name for people.
    pub display_name: String,
    /// One line on what it measures.
    pub description: String,
    /// Its tier.
    pub tier: Tier,
    /// The weight where a selection gives none, at least 0.
    pub default_weight: f64,
    /// Its scale.
    pub score_type: Scale,
    /// What each level means, as the judge reads it.
    pub rubric: String,
    /// Whether its definition asks for a place in the default selection. Only built-in metrics get one.
    pub include_in_defaults: bool,
    /// Hidden from the listing, still found by name.
    #[serde(skip)]
    pub is_draft: bool,
    /// Hidden from the listing and its name free again; still found by name if nothing live has it.
    #[serde(skip)]
    pub deleted: bool,
    /// Whether the rubric is a text of ours.
    #[serde(skip)]
    pub(in crate::conversation) shipped_rubric: bool,
}

/// One entry of a metrics file: a new metric, or other values for a built-in one. Unknown fields are errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomMetric {
    /// The id. That of a built-in metric changes that metric.
    pub name: String,
    /// Absent: the id with spaces and capital first letters.
    #[serde(default)]
    pub display_name: Option<String>,
    /// Absent: what the rubric says after `Measures:`, or its first line.
    #[serde(default)]
    pub description: Option<String>,
    /// Absent: `process`.
    #[serde(default)]
    pub tier: Option<Tier>,
    /// At least 0. Absent: 1.
    #[serde(default)]
    pub default_weight: Option<f64>,
    /// Absent: `scored`.
    #[serde(default)]
    pub score_type: Option<Scale>,
    /// What each level means. Needed for a new metric.
    #[serde(default)]
    pub rubric: Option<String>,
    /// Listed, but without effect: custom metrics never join the default selection.
    #[serde(default)]
    pub include_in_defaults: Option<bool>,
    /// Hides the metric from the listing.
    #[serde(default)]
    pub is_draft: bool,
    /// Hides the metric from the listing and frees its name.
    #[serde(default)]
    pub deleted: bool,
}

/// `tool_routing` as `Tool Routing`.
pub(in crate::conversation) fn display_name_of(name: &str) -> String {
    let words = name.split('_').filter(|word| !word.is_empty());
    words.map(capitalised).collect::<Vec<_>>().join(" ")
}

/// What stands after the first `Measures:` at the start of a line, else the first line that is not blank.
pub(in crate::conversation) fn description_of(rubric: &str) -> String {
    let mut lines = rubric
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let first = lines.clone().next().unwrap_or_default();
    let measures = lines.find_map(|line| line.strip_prefix("Measures:"));
    match measures.map(str::trim).filter(|text| !text.is_empty()) {
        Some(text) => capitalised(text),
        None => first.to_owned(),
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(chars).collect()
}
