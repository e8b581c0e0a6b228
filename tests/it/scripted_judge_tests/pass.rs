//! The passing judge: replies made from schemas.

use serde_json::{Value, json};

use super::{CHAT, Client, chat, said};
use crate::scripted_judge::{PassRules, ScriptedJudge, pass_judge, pass_judge_with};

fn with_schema(schema: Value) -> Value {
    let mut body = chat("judge this");
    body["response_format"] = json!({"type": "json_schema", "json_schema": {"name": "s", "strict": true, "schema": schema}});
    body
}

fn object(properties: Value) -> Value {
    let names: Vec<&String> = properties.as_object().unwrap().keys().collect();
    json!({"type": "object", "additionalProperties": false, "required": names, "properties": properties})
}

#[test]
fn the_passing_judge_fills_schemas() {
    let judge = ScriptedJudge::start(pass_judge());
    let schema = object(json!({
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "score": {"type": "integer", "minimum": 0, "maximum": 5},
        "passed": {"type": "boolean"},
        "failure_code": {"type": ["string", "null"]},
        "reason": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "verdicts": {"type": "array", "items": {"$ref": "#/$defs/verdict"}},
    }));
    let mut schema = schema;
    schema["properties"]["extra"] = json!({"type": "string"});
    schema["$defs"] = json!({"verdict": object(json!({"verdict": {"enum": ["yes", "no"]}, "n": {"type": "NUMBER"}}))});
    let mut client = Client::new(&judge);
    let (_, reply) = client.post(CHAT, &with_schema(schema));
    let filled: Value = serde_json::from_str(said(&reply)).unwrap();
    assert_eq!(
        filled,
        json!({"confidence": 0.9, "score": 4, "passed": true, "failure_code": null, "reason": "pass reason",
            "verdicts": [{"verdict": "yes", "n": 0.9}]})
    );
    assert!(judge.asked()[0].has_response_format);
    assert_eq!(client.post(CHAT, &chat("no schema")).0, 400);
}

#[test]
fn hashed_replies_differ_by_request_and_words_serve_requests_without_schema() {
    let judge = ScriptedJudge::start(pass_judge_with(PassRules {
        hashed: true,
        words: vec![("efficient".to_owned(), "{\"score\":0.5}".to_owned())],
    }));
    let mut client = Client::new(&judge);
    let schema = object(json!({"a": {"type": "number"}, "b": {"type": "number"},
        "c": {"type": "integer", "minimum": 0, "maximum": 5}}));
    let mut drawn = Vec::new();
    for i in 0..200 {
        let mut body = with_schema(schema.clone());
        body["messages"][1]["content"] = json!(format!("trace {}", i % 100));
        let (_, reply) = client.post(CHAT, &body);
        let filled: Value = serde_json::from_str(said(&reply)).unwrap();
        drawn.push((
            filled["a"].as_f64().unwrap(),
            filled["b"].as_f64().unwrap(),
            filled["c"].as_i64().unwrap(),
        ));
    }
    assert_eq!(drawn[..100], drawn[100..]);
    assert!(
        drawn
            .iter()
            .all(|(a, b, c)| (0.0..=1.0).contains(a) && a != b && (0..=5).contains(c))
    );
    let mean: f64 = drawn.iter().map(|(a, _, _)| a).sum::<f64>() / 200.0;
    assert!((0.4..0.6).contains(&mean), "{mean}");
    for score in 0..=5 {
        assert!(
            drawn.iter().any(|(_, _, c)| *c == score),
            "{score} is never drawn"
        );
    }
    let (_, reply) = client.post(CHAT, &chat("is it efficient?"));
    assert_eq!(said(&reply), "{\"score\":0.5}");
}
