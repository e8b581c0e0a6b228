//! `llm_rubric_knowledge_recall`: which rubrics does the retrieved knowledge support? The final response is not shown.

use serde_json::{Map, Value, json};

use super::{AskedTurn, JudgedEvaluator, Wording, reply};
use crate::question::prompt;

/// The tools whose results are retrieved knowledge.
const SEARCHES: [&str; 2] = ["knowledge_search", "knowledge_search_with_agentic_filter"];

pub(super) static EVALUATOR: JudgedEvaluator = JudgedEvaluator {
    name: "llm_rubric_knowledge_recall",
    description: "share of rubrics that a judge finds supported by the retrieved knowledge",
    wording: Wording::Own {
        prompt: prompt!("evalset_knowledge_recall"),
        fill: |turn| {
            Ok(json!({
                "user": turn.user(),
                "knowledge": retrieved(turn)?,
                "rubrics": turn.rubric_lines(),
            }))
        },
    },
    read: |reply, reading| reply::rubrics(reply, reading.rubrics),
    of_rubrics: true,
};

/// What each search of the turn found, in order, with the members that are known of it.
fn retrieved(turn: &AskedTurn<'_>) -> Result<Vec<Value>, String> {
    let calls = turn.actual.tools.iter().flatten();
    let searches = calls.filter(|call| SEARCHES.contains(&call.name.as_str()));
    searches
        .map(|call| {
            found(&call.result).ok_or_else(|| {
                format!(
                    "the result of `{}` is not {{\"documents\": [{{\"text\", \"score\"}}]}}; record what the tool gave back",
                    call.name
                )
            })
        })
        .collect()
}

/// A search result with its known members; none if it has another shape.
fn found(result: &Value) -> Option<Value> {
    let members = match result {
        Value::Null => return Some(json!({"documents": null})),
        Value::Object(members) => members,
        _ => return None,
    };
    let documents = match members.get("documents") {
        None | Some(Value::Null) => Value::Null,
        Some(Value::Array(documents)) => documents.iter().map(document).collect::<Option<_>>()?,
        Some(_) => return None,
    };
    let mut found = Map::from_iter([("documents".to_owned(), documents)]);
    match members.get("message") {
        None | Some(Value::Null) => {}
        Some(Value::String(message)) if message.is_empty() => {}
        Some(Value::String(message)) => {
            found.insert("message".to_owned(), message.clone().into());
        }
        Some(_) => return None,
    }
    Some(Value::Object(found))
}

fn document(document: &Value) -> Option<Value> {
    let members = match document {
        Value::Null => return Some(Value::Null),
        Value::Object(members) => members,
        _ => return None,
    };
    let text = match members.get("text") {
        None | Some(Value::Null) => "",
        Some(text) => text.as_str()?,
    };
    let score = match members.get("score") {
        None | Some(Value::Null) => 0.0,
        Some(score) => score.as_f64()?,
    };
    let mut shown = Map::from_iter([("text".to_owned(), Value::from(text))]);
    match members.get("metadata") {
        None | Some(Value::Null) => {}
        Some(Value::Object(metadata)) if metadata.is_empty() => {}
        Some(Value::Object(metadata)) => {
            shown.insert("metadata".to_owned(), Value::Object(metadata.clone()));
        }
        Some(_) => return None,
    }
    shown.insert("score".to_owned(), score.into());
    Some(Value::Object(shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_shown_with_known_members_alone() {
        let shown = found(
            &json!({"documents": [{"score": 1, "text": "a", "id": 7, "metadata": {}}], "x": 1}),
        );
        assert_eq!(
            shown,
            Some(json!({"documents": [{"text": "a", "score": 1.0}]}))
        );
        assert_eq!(found(&json!({})), Some(json!({"documents": null})));
        for other in [
            json!("text"),
            json!([]),
            json!({"documents": 1}),
            json!({"documents": ["a"]}),
        ] {
            assert_eq!(found(&other), None, "{other}");
        }
    }
}
