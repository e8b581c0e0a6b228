//! Reading a case, from YAML or from a row.

use serde_json::Value;

use super::{ContextDocument, Interaction, TestCase};
use crate::suite::regression::config::{by_metric, metric_names};
use crate::suite::regression::members::{Findings, Members};

/// Where a case is from: files must say more than rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Yaml,
    Row,
}

/// Keys of a suite that rows repeat for each case.
pub(super) const SUITE_COLUMNS: [&str; 8] = [
    "suite",
    "suite_version",
    "suite_description",
    "interaction_type",
    "suite_tags",
    "author",
    "created_at",
    "updated_at",
];

pub(super) fn read_case(
    findings: &Findings,
    path: String,
    value: &Value,
    interaction: Interaction,
    source: Source,
) -> TestCase {
    let case = Members::of(findings, path, value);
    if !value.is_object() {
        return TestCase::default();
    }
    let described = |key: &'static str| match source {
        Source::Yaml => case.required_text(key),
        Source::Row => case.text(key).unwrap_or_default().to_owned(),
    };
    let metrics = match case.value("metrics") {
        None if source == Source::Row => None,
        None => {
            case.fault("metrics", "is missing; list at least one metric");
            None
        }
        Some(Value::Array(items)) if items.is_empty() => {
            case.fault("metrics", "is empty; list at least one metric");
            None
        }
        Some(_) => Some(metric_names(findings, case.list("metrics"))),
    };
    let thresholds = by_metric(findings, case.block("thresholds"));
    let read = TestCase {
        id: case.required_text("id"),
        description: described("description"),
        input: described("input"),
        system_prompt: case.text("system_prompt").map(str::to_owned),
        expected_output: case.required_text("expected_output"),
        actual_output: case.text("actual_output").map(str::to_owned),
        metrics,
        thresholds,
        tags: case.texts("tags"),
        weight: case.number("weight", 0.0..=1e9).unwrap_or(1.0),
        documents: documents(findings, &case, interaction),
        required_terms: case
            .value("required_terms")
            .map(|_| case.texts("required_terms")),
        forbidden_terms: case.texts("forbidden_terms"),
        regex_pattern: case.text("regex_pattern").map(str::to_owned),
    };
    if source == Source::Yaml {
        case.finish();
    }
    read
}

fn documents<'a>(
    findings: &Findings,
    case: &Members<'a>,
    interaction: Interaction,
) -> Vec<ContextDocument> {
    let needed = interaction == Interaction::Rag;
    let Some(context) = case.optional_block("context") else {
        if needed {
            let problem = "is missing; each case of a `rag` suite needs documents";
            case.fault("context", problem);
        }
        return Vec::new();
    };
    let mut documents = Vec::new();
    let items = context.list("documents");
    let is_list = context.value("documents").is_none_or(Value::is_array);
    if needed && is_list && items.is_empty() {
        let problem = "has none; each case of a `rag` suite needs at least one document";
        context.fault("documents", problem);
    }
    for (path, item) in items {
        let document = Members::of(findings, path, item);
        documents.push(ContextDocument {
            source: document.required_text("source"),
            content: document.required_text("content"),
            retrieval_score: document.number("retrieval_score", f64::MIN..=f64::MAX),
        });
        document.finish();
    }
    context.finish();
    documents
}

/// The faults of ids that are there more than once, each with all its places.
pub(super) fn check_ids<'a>(findings: &Findings, ids: impl Iterator<Item = (String, &'a str)>) {
    let mut places: Vec<(&str, Vec<String>)> = Vec::new();
    let mut at: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    for (place, id) in ids.filter(|(_, id)| !id.is_empty()) {
        let index = *at.entry(id).or_insert_with(|| {
            places.push((id, Vec::new()));
            places.len() - 1
        });
        if let Some((_, of)) = places.get_mut(index) {
            of.push(place);
        }
    }
    for (id, places) in places {
        if let [_, second, ..] = places.as_slice() {
            let count = places.len();
            let all = places.join(", ");
            findings.fault(
                format!("{second}.id"),
                format!(
                    "`{id}` is there {count} times: at {all}; each case needs an id of its own"
                ),
            );
        }
    }
}
