//! The JSON schema of a reply (as in Connexity).

use serde_json::{Map, Value, json};

use crate::conversation::question::catalogue::OUTCOMES_KEY;
use crate::conversation::question::metric::Scale;
use crate::conversation::question::weights::{ResolvedMetric, Selection};

/// The name of the reply's JSON schema.
pub const SCHEMA_NAME: &str = "judge_metric_scores";

/// The JSON schema of the reply. A metric that was selected twice is one property.
pub fn reply_schema(selection: &Selection, with_outcomes: bool) -> Value {
    let mut properties = Map::new();
    for ResolvedMetric { metric, .. } in selection.distinct() {
        let (key, answer) = match metric.score_type {
            Scale::Scored => (
                "score",
                json!({"type": "integer", "minimum": 0, "maximum": 5}),
            ),
            Scale::Binary => ("passed", json!({"type": "boolean"})),
        };
        let fields = json!({
            key: answer,
            "justification": {"type": "string"},
            "failure_code": {"type": ["string", "null"]},
            "turns": {"type": "array", "items": {"type": "integer"}},
        });
        let required = json!([key, "justification", "failure_code", "turns"]);
        properties.insert(metric.name.clone(), object(fields, required));
    }
    if with_outcomes {
        let fields = json!({
            "statement": {"type": "string"}, "passed": {"type": "boolean"}, "justification": {"type": "string"},
        });
        let outcome = object(fields, json!(["statement", "passed", "justification"]));
        properties.insert(
            OUTCOMES_KEY.to_owned(),
            json!({"type": "array", "items": outcome}),
        );
    }
    let mut required: Vec<String> = properties.keys().cloned().collect();
    required.sort_unstable();
    object(Value::Object(properties), json!(required))
}

fn object(properties: Value, required: Value) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": required,
        "properties": properties,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::question::catalogue::Catalogue;
    use crate::conversation::question::weights::JudgeConfig;

    #[test]
    fn the_schema_is_strict_and_sorted() {
        let config: JudgeConfig = serde_json::from_str(
            r#"{"metrics":[{"metric":"tool_routing"},{"metric":"task_completion","weight":1},{"metric":"tool_routing"}]}"#,
)
        .unwrap();
        let chosen = config.resolve(&Catalogue::built_in()).unwrap();
        let schema = reply_schema(&chosen, true);
        assert_eq!(
            schema["required"],
            json!(["expected_outcomes", "task_completion", "tool_routing"])
        );
        assert_eq!(schema["properties"].as_object().unwrap().len(), 3);
        let routing = json!({"type":"object","additionalProperties":false,
            "required":["score","justification","failure_code","turns"],
            "properties":{"score":{"type":"integer","minimum":0,"maximum":5},"justification":{"type":"string"},
              "failure_code":{"type":["string","null"]},"turns":{"type":"array","items":{"type":"integer"}}}});
        assert_eq!(schema["properties"]["tool_routing"], routing);
        let completion = &schema["properties"]["task_completion"];
        assert_eq!(completion["required"][0], "passed");
        assert_eq!(
            completion["properties"]["passed"],
            json!({"type": "boolean"})
        );
        let outcomes = json!({"type":"array","items":{"type":"object","additionalProperties":false,
            "required":["statement","passed","justification"],
            "properties":{"statement":{"type":"string"},"passed":{"type":"boolean"},"justification":{"type":"string"}}}});
        assert_eq!(schema["properties"]["expected_outcomes"], outcomes);
        assert_eq!(
            reply_schema(&chosen, false)["required"],
            json!(["task_completion", "tool_routing"])
        );
    }
}
