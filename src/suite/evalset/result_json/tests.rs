//! Results of all versions, read and written.

use super::*;

#[test]
fn the_first_results_were_text_in_a_string_with_numbers_for_statuses() {
    let inner = r#"{"evalSetId": "s", "evalCaseResults": [{"evalId": "a", "finalEvalStatus": 2,
        "overallEvalMetricResults": [{"metricName": "m", "evalStatus": 3}]}]}"#;
    let text = Value::from(inner).to_string();
    let result = EvalSetResult::from_text(&text, "f").unwrap().value;
    assert_eq!(result.cases[0].status, EvalStatus::Failed);
    assert_eq!(result.cases[0].metrics[0].status, EvalStatus::NotEvaluated);
    assert_eq!((result.cases[0].run_id, &result.summary), (0, &None));
    let again = result.to_json().to_string();
    assert_eq!(
        again,
        r#"{"evalSetId":"s","evalCaseResults":[{"evalId":"a","finalEvalStatus":"failed","#
            .to_owned()
            + r#""overallEvalMetricResults":[{"metricName":"m","evalStatus":"not_evaluated"}]}]}"#
    );
}

#[test]
fn a_result_never_holds_a_key() {
    let judge = json!({"judgeModel": {"APIKey": "k", "modelName": "j"}});
    let metric = json!({"metricName": "m", "criterion": {"llmJudge": judge}});
    let metric = MetricResult::from_json(metric).unwrap();
    assert_eq!(
        metric.to_json().to_string(),
        r#"{"metricName":"m","criterion":{"llmJudge":{"judgeModel":{"modelName":"j"}}}}"#
    );
}

#[test]
fn what_judges_said_is_read_and_written() {
    for value in [
        json!({"kind": "numeric", "numeric": 0}),
        json!({"kind": "boolean", "boolean": false}),
        json!({"kind": "categorical", "categorical": "partial"}),
        json!({"kind": "vector", "vector": [1, 2]}),
        json!({"kind": "boolean", "boolean": true, "more": 1}),
    ] {
        let metric = json!({"details": {"reason": "r", "value": value}});
        let metric = MetricResult::from_json(metric).unwrap();
        assert_eq!(metric.to_json()["details"]["value"], value);
    }
    let value = json!({"kind": "categorical", "categorical": "partial"});
    assert_eq!(
        read_value(value),
        DetailValue::Categorical("partial".into())
    );
}

#[test]
fn older_readers_get_no_later_members() {
    let text = r#"{"evalCaseResults": [{"evalId": "a", "score": 0.8, "overallEvalMetricResults": [
        {"metricName": "m", "details": {"value": {"kind": "boolean", "boolean": true}}}]}]}"#;
    let result = EvalSetResult::from_text(text, "f").unwrap().value;
    assert_eq!(result.cases[0].score, Some(0.8));
    let case = result.cases[0].clone();
    let older = case.without_later_members().to_json().to_string();
    assert!(
        !older.contains("0.8") && !older.contains("boolean"),
        "{older}"
    );
    assert!(older.contains(r#""details":{}"#), "{older}");
}
