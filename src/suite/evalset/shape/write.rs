//! Writing by table: known members in order, empty ones left out, maps sorted, the rest as it is.

use serde_json::{Map, Value};

use super::{Kind, Member, Shape, Written};

/// Beyond it, not every whole number is a double.
const LAST_WHOLE: f64 = 9_007_199_254_740_992.0;

/// `value` as it is written. Values of a kind that the table does not expect stay as they are.
pub(in super::super) fn arranged(value: Value, kind: &Kind) -> Value {
    match (kind, value) {
        (Kind::Object(shape), Value::Object(members)) => object(members, shape),
        (Kind::List(of), Value::Array(items)) => {
            items.into_iter().map(|item| arranged(item, of)).collect()
        }
        (Kind::Map(of), Value::Object(members)) => {
            let members = members.into_iter();
            let mut members: Map<_, _> = members
                .map(|(name, value)| (name, arranged(value, of)))
                .collect();
            members.sort_keys();
            Value::Object(members)
        }
        (Kind::Free | Kind::FreeMap, mut value) => {
            value.sort_all_objects();
            value
        }
        (Kind::Number | Kind::Moment, Value::Number(number)) => match number.as_f64() {
            Some(double) if number.is_f64() => number_of(double),
            _ => Value::Number(number),
        },
        (_, value) => value,
    }
}

fn object(mut members: Map<String, Value>, shape: &Shape) -> Value {
    let mut written = Map::with_capacity(members.len());
    for member in shape.0 {
        // Out of the middle, the last member would move to its place without the shift.
        let value = members.shift_remove(member.name).unwrap_or_default();
        let value = arranged(value, &member.kind);
        let leave_out = match member.written {
            Written::UnlessEmpty => is_empty(&value),
            Written::UnlessNull | Written::Always => value.is_null(),
        };
        match (leave_out, member.written) {
            (false, _) => written.insert(member.name.to_owned(), value),
            (true, Written::Always) => written.insert(member.name.to_owned(), empty_of(member)),
            (true, _) => continue,
        };
    }
    written.extend(members);
    Value::Object(written)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

fn empty_of(member: &Member) -> Value {
    match member.kind {
        Kind::Text | Kind::Status => "".into(),
        Kind::Flag => false.into(),
        Kind::Integer | Kind::Number | Kind::Moment => 0.into(),
        Kind::Free => Value::Null,
        Kind::FreeMap | Kind::Object(_) | Kind::Map(_) => Value::Object(Map::new()),
        Kind::List(_) => Value::Array(Vec::new()),
    }
}

/// A number as files hold it: whole ones without fraction, as trpc-agent-go writes them. Null where it is not finite,
/// which JSON has no number for.
pub(in super::super) fn number_of(number: f64) -> Value {
    match number.fract() == 0.0 && number.abs() <= LAST_WHOLE {
        // Whole and within the range of i64, so nothing is cut.
        true => (number as i64).into(),
        false => number.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{CRITERION, Kind, METRIC_RESULT, SET};
    use super::arranged;

    #[test]
    fn empty_members_are_left_out_and_nullable_objects_stay() {
        let set = json!({"extra": "", "evalCases": [{"sessionInput": {"state": {}}, "conversation": [
            {"userContent": {}, "tools": [{"arguments": {"b": 1, "a": {}}, "result": ""}]}]}], "name": ""});
        assert_eq!(
            arranged(set, &Kind::Object(&SET)).to_string(),
            r#"{"evalCases":[{"conversation":[{"userContent":{"role":""},"tools":[{"arguments":{"a":{},"b":1},"#
                .to_owned()
                + r#""result":""}]}],"sessionInput":{}}],"extra":""}"#
        );
    }

    #[test]
    fn nullable_numbers_keep_zero_and_stream_is_always_written() {
        let criterion = json!({"llmJudge": {"judgeModel": {"numSamples": 0, "apiKey": "",
            "generationConfig": {"temperature": 1.0, "top_p": 0}}},
            "toolTrajectory": {"toolStrategy": {"b": null,
            "a": {"arguments": {"numberTolerance": 0, "ignore": false}}}}});
        assert_eq!(
            arranged(criterion, &Kind::Object(&CRITERION)).to_string(),
            r#"{"toolTrajectory":{"toolStrategy":{"a":{"arguments":{"numberTolerance":0}},"b":null}},"#
                .to_owned()
                + r#""llmJudge":{"judgeModel":{"numSamples":0,"generationConfig":{"temperature":1,"top_p":0,"#
                + r#""stream":false}}}}"#
        );
    }

    #[test]
    fn zero_scores_are_left_out() {
        let result =
            json!({"metricName": "m", "score": 0.0, "threshold": 0.5, "details": {"reason": ""}});
        assert_eq!(
            arranged(result, &Kind::Object(&METRIC_RESULT)).to_string(),
            r#"{"metricName":"m","threshold":0.5,"details":{}}"#
        );
    }
}
