//! Replies of judges of evaluation sets, against the golden records of trpc-agent-go.

use nightmill::suite::evalset::judged::reply::{self, Category, Read, Said, Unreadable};
use serde_json::{Value, json};

use crate::support::{assert_json_close, golden};

fn read(record: &Value) -> Result<Read, Unreadable> {
    let content = record["content"].as_str().unwrap();
    let texts = |list: &Value| -> Vec<String> {
        let items = list.as_array().into_iter().flatten();
        items
            .map(|item| item.as_str().unwrap().to_owned())
            .collect()
    };
    let rubrics = texts(&record["rubrics"]);
    match record["format"].as_str().unwrap() {
        "valid_label" => reply::valid_label(content),
        "rubric_blocks" | "rubric_scores" => reply::rubrics(content, &rubrics),
        "single_score" => reply::single_score(content),
        "boolean" => reply::boolean(content),
        "categorical" => {
            let categories = record["categories"].as_array().unwrap().iter();
            let categories: Vec<Category> = categories
                .map(|category| Category {
                    label: category["label"].as_str().unwrap().to_owned(),
                    score: category["score"].as_f64().unwrap(),
                })
                .collect();
            reply::categorical(content, &categories)
        }
        "hallucination" => reply::hallucinations(content),
        other => panic!("{other}"),
    }
}

#[test]
fn golden_evalset_replies_of_judges_are_read_as_recorded() {
    for record in golden("evalset/judge_response_parse.jsonl", 64) {
        let what = record["id"].as_str().unwrap();
        assert!(
            ["core", "edge", "quirk", "either"].contains(&record["tier"].as_str().unwrap()),
            "{what}"
        );
        let read = read(&record);
        if record["error"].as_bool().unwrap() {
            assert!(read.is_err(), "{what}: {read:?}");
            continue;
        }
        let read = read.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(
            (read.score - record["score"].as_f64().unwrap()).abs() < 1e-9,
            "{what}"
        );
        assert_eq!(read.reason, record["reason"].as_str().unwrap(), "{what}");
        let scores: Vec<Value> = read
            .rubric_scores
            .iter()
            .map(|s| json!({"id": s.id, "reason": s.reason, "score": s.score}))
            .collect();
        if let Some(expected) = record.get("rubric_scores").filter(|list| !list.is_null()) {
            assert_json_close(&json!(scores), expected, 1e-9, &[], what);
        }
        let value = read.value.map(|said| match said {
            Said::Boolean(said) => json!({"kind": "boolean", "boolean": said}),
            Said::Category(label) => json!({"kind": "categorical", "categorical": label}),
        });
        assert_eq!(value.as_ref(), record.get("value"), "{what}");
    }
}
