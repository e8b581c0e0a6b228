//! Reading by table: names are put right, kinds are checked, null is left out.

use serde_json::{Map, Value};

use super::{Kind, Shape};
use crate::suite::evalset::model::EpochTime;
use crate::suite::evalset::place::Place;

/// A value that is not what stands at its place. Says kinds only, never the value: it may be a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}expected {expected}, found {found}", prefix(.path))]
pub struct ShapeFault {
    /// Its place, as in `evalCases[3].conversation[0].tools`; empty for the whole.
    pub path: String,
    /// What belongs there.
    pub expected: &'static str,
    /// What is there.
    pub found: String,
}

fn prefix(path: &str) -> String {
    match path {
        "" => String::new(),
        path => format!("{path}: "),
    }
}

/// `value` with the names of the table: known members in the table's order, the others behind them as stored. A name
/// that is no member's matches one without regard to letter case; of several for one member the last counts. Members
/// that are null are left out, items that are null stay.
///
/// # Errors
/// [`ShapeFault`] for the first value of a wrong kind.
pub(in super::super) fn checked(
    value: Value,
    kind: &Kind,
    place: &Place<'_>,
) -> Result<Value, ShapeFault> {
    match (kind, value) {
        (Kind::Free, value) => Ok(value),
        (Kind::Text, value @ Value::String(_))
        | (Kind::Flag, value @ Value::Bool(_))
        | (Kind::Number, value @ Value::Number(_))
        | (Kind::FreeMap, value @ Value::Object(_)) => Ok(value),
        (Kind::Integer, Value::Number(number)) if number.is_i64() => Ok(Value::Number(number)),
        (Kind::Moment, Value::Number(number)) => {
            match number.as_f64().and_then(EpochTime::of_seconds) {
                Some(_) => Ok(Value::Number(number)),
                None => Err(fault(place, kind, "a number out of that range")),
            }
        }
        (Kind::Status, value) => status(value, place),
        (Kind::Object(shape), Value::Object(members)) => object(members, shape, place),
        (Kind::List(of), Value::Array(items)) => {
            let items = items.into_iter().enumerate();
            let items = items.map(|(at, item)| or_null(item, of, &Place::Item(place, at)));
            items.collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
        (Kind::Map(of), Value::Object(members)) => {
            let mut checked = Map::with_capacity(members.len());
            for (name, value) in members {
                let value = or_null(value, of, &Place::Member(place, &name))?;
                checked.insert(name, value);
            }
            Ok(Value::Object(checked))
        }
        (kind, value) => Err(fault(place, kind, found(&value, kind))),
    }
}

fn or_null(value: Value, kind: &Kind, place: &Place<'_>) -> Result<Value, ShapeFault> {
    match value {
        Value::Null => Ok(Value::Null),
        value => checked(value, kind, place),
    }
}

fn object(
    members: Map<String, Value>,
    shape: &Shape,
    place: &Place<'_>,
) -> Result<Value, ShapeFault> {
    let mut known: Vec<Option<Value>> = shape.0.iter().map(|_| None).collect();
    let mut rest = Vec::new();
    for (name, value) in members {
        let exact = shape.0.iter().position(|member| member.name == name);
        let found = exact.or_else(|| {
            let mut members = shape.0.iter();
            members.position(|member| member.name.eq_ignore_ascii_case(&name))
        });
        let member = found.and_then(|at| Some((shape.0.get(at)?, known.get_mut(at)?)));
        match member {
            None => rest.push((name, value)),
            Some((_, slot)) if value.is_null() => *slot = None,
            Some((member, slot)) => {
                *slot = Some(checked(value, &member.kind, &Place::Member(place, &name))?);
            }
        }
    }
    let named = shape.0.iter().zip(known);
    let known = named.filter_map(|(member, value)| Some((member.name.to_owned(), value?)));
    Ok(Value::Object(known.chain(rest).collect()))
}

/// The name of a status: files of the first versions hold 0 to 3.
fn status(value: Value, place: &Place<'_>) -> Result<Value, ShapeFault> {
    let name = match &value {
        Value::String(name) => match name.as_str() {
            "" => "",
            "unknown" => "unknown",
            "passed" => "passed",
            "failed" => "failed",
            "not_evaluated" => "not_evaluated",
            _ => return Err(fault(place, &Kind::Status, "another text")),
        },
        Value::Number(number) => match number.as_i64() {
            Some(0) => "unknown",
            Some(1) => "passed",
            Some(2) => "failed",
            Some(3) => "not_evaluated",
            _ => return Err(fault(place, &Kind::Status, "another number")),
        },
        value => return Err(fault(place, &Kind::Status, found(value, &Kind::Status))),
    };
    Ok(name.into())
}

fn fault(place: &Place<'_>, kind: &Kind, found: &'static str) -> ShapeFault {
    let expected = match kind {
        Kind::Text => "a string",
        Kind::Flag => "true or false",
        Kind::Integer => "a whole number of at most 64 bits, without fraction and exponent",
        Kind::Number => "a number",
        Kind::Moment => "seconds from 1970 on, as a number between the years 1677 and 2262",
        Kind::Status => "one of passed, failed, not_evaluated and unknown",
        Kind::Free => "any value",
        Kind::FreeMap | Kind::Object(_) | Kind::Map(_) => "an object",
        Kind::List(_) => "a list",
    };
    ShapeFault {
        path: place.to_string(),
        expected,
        found: found.to_owned(),
    }
}

fn found(value: &Value, kind: &Kind) -> &'static str {
    match (value, kind) {
        (Value::Number(_), Kind::Integer) => "another number",
        (Value::Null, _) => "null",
        (Value::Bool(_), _) => "true or false",
        (Value::Number(_), _) => "a number",
        (Value::String(_), _) => "a string",
        (Value::Array(_), _) => "a list",
        (Value::Object(_), _) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{CASE_RESULT, Kind, METRIC, SET};
    use super::checked;
    use crate::suite::evalset::place::Place;

    fn read(kind: &Kind, value: Value) -> Result<String, String> {
        let value = checked(value, kind, &Place::Document).map_err(|e| e.to_string())?;
        Ok(value.to_string())
    }

    #[test]
    fn names_match_without_regard_to_case_and_the_last_counts() {
        let set = Kind::Object(&SET);
        let read = |value| read(&set, value).unwrap();
        assert_eq!(
            read(json!({"x": 1, "EVALSETID": "a", "name": "n"})),
            r#"{"evalSetId":"a","name":"n","x":1}"#
        );
        assert_eq!(
            read(json!({"evalSetId": "a", "evalsetid": "b"})),
            r#"{"evalSetId":"b"}"#
        );
        assert_eq!(read(json!({"name": null})), "{}");
    }

    #[test]
    fn a_fault_names_the_place_and_never_the_value() {
        let set = json!({"evalCases": [null, {"conversation": [{"tools": "secret"}]}]});
        assert_eq!(
            read(&Kind::Object(&SET), set).unwrap_err(),
            "evalCases[1].conversation[0].tools: expected a list, found a string"
        );
        let model = json!({"criterion": {"llmJudge": {"judgeModel": {"apiKey": 73}}}});
        assert_eq!(
            read(&Kind::Object(&METRIC), model).unwrap_err(),
            "criterion.llmJudge.judgeModel.apiKey: expected a string, found a number"
        );
        assert_eq!(
            read(&Kind::Object(&SET), json!([])).unwrap_err(),
            "expected an object, found a list"
        );
    }

    #[test]
    fn integers_have_neither_fraction_nor_exponent() {
        let run = |id: &str| {
            let id: Value = serde_json::from_str(id).unwrap();
            read(&Kind::Object(&CASE_RESULT), json!({"runId": id}))
        };
        assert_eq!(run("3").unwrap(), r#"{"runId":3}"#);
        for bad in ["3.0", "1e2", "9223372036854775808", "\"3\"", "true"] {
            assert!(run(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn statuses_of_the_first_versions_are_numbers() {
        let status = |status: Value| {
            read(
                &Kind::Object(&CASE_RESULT),
                json!({"finalEvalStatus": status}),
            )
        };
        assert_eq!(
            status(json!(3)).unwrap(),
            r#"{"finalEvalStatus":"not_evaluated"}"#
        );
        assert_eq!(status(json!(1)).unwrap(), r#"{"finalEvalStatus":"passed"}"#);
        assert_eq!(status(json!("")).unwrap(), r#"{"finalEvalStatus":""}"#);
        for bad in [
            json!(4),
            json!(1.0),
            json!("Passed"),
            json!(true),
            json!([]),
        ] {
            assert!(status(bad).is_err());
        }
    }
}
