//! Writing a suite as YAML that Regtrace reads too.

use std::fmt::Write;

use super::{GoldenSet, Interaction, TestCase};
use crate::suite::regression::suite_metric::SuiteMetric;

impl GoldenSet {
    /// The suite as a YAML file. Texts are quoted, so that none is taken for a number or a date.
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        let interaction = match self.interaction {
            Interaction::SingleTurn => "single_turn",
            Interaction::Rag => "rag",
        };
        put(&mut out, 0, "name", &quoted(&self.name));
        put(&mut out, 0, "version", &quoted(&self.version));
        put(&mut out, 0, "description", &quoted(&self.description));
        put(&mut out, 0, "interaction_type", interaction);
        put(&mut out, 0, "tags", &list(&self.tags));
        put(&mut out, 0, "author", &quoted(&self.author));
        put(&mut out, 0, "created_at", &quoted(&self.created_at));
        put(&mut out, 0, "updated_at", &quoted(&self.updated_at));
        match self.cases.is_empty() {
            true => put(&mut out, 0, "test_cases", "[]"),
            false => out.push_str("test_cases:\n"),
        }
        for case in &self.cases {
            write_case(&mut out, case);
        }
        out
    }
}

fn write_case(out: &mut String, case: &TestCase) {
    let optional = |text: &Option<String>| match text {
        Some(text) => quoted(text),
        None => "null".to_owned(),
    };
    out.push_str("  - ");
    put(out, 0, "id", &quoted(&case.id));
    put(out, 4, "description", &quoted(&case.description));
    put(out, 4, "input", &quoted(&case.input));
    put(out, 4, "system_prompt", &optional(&case.system_prompt));
    if !case.documents.is_empty() {
        out.push_str("    context:\n      documents:\n");
        for document in &case.documents {
            out.push_str("        - ");
            put(out, 0, "source", &quoted(&document.source));
            put(out, 10, "content", &quoted(&document.content));
            if let Some(score) = document.retrieval_score {
                put(out, 10, "retrieval_score", &score.to_string());
            }
        }
    }
    put(out, 4, "expected_output", &quoted(&case.expected_output));
    put(out, 4, "actual_output", &optional(&case.actual_output));
    let metrics: Vec<&str> = match &case.metrics {
        Some(metrics) => metrics.iter().map(|of| of.name()).collect(),
        None => SuiteMetric::ALL.map(SuiteMetric::name).to_vec(),
    };
    put(out, 4, "metrics", &format!("[{}]", metrics.join(", ")));
    put(out, 4, "tags", &list(&case.tags));
    put(out, 4, "weight", &case.weight.to_string());
    if !case.thresholds.is_empty() {
        out.push_str("    thresholds:\n");
        for (metric, threshold) in case.thresholds.iter() {
            put(out, 6, metric, &threshold.to_string());
        }
    }
    if let Some(terms) = &case.required_terms {
        put(out, 4, "required_terms", &list(terms));
    }
    if !case.forbidden_terms.is_empty() {
        put(out, 4, "forbidden_terms", &list(&case.forbidden_terms));
    }
    if let Some(pattern) = &case.regex_pattern {
        put(out, 4, "regex_pattern", &quoted(pattern));
    }
}

fn put(out: &mut String, indent: usize, key: &str, value: &str) {
    // Writing to a text does not fail.
    let _ = writeln!(out, "{:indent$}{key}: {value}", "");
}

fn list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(", "))
}

/// A double-quoted scalar: a JSON string, with the characters escaped that YAML does not take as they are.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    for character in serde_json::Value::from(text).to_string().chars() {
        match character {
            '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out
}
