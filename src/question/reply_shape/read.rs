//! Reading replies by the rules of PandaProbe.

use serde_json::{Value, json};

use super::{Kind, Member, MemberKind, ReplyFault};
use crate::text::{Json, parse};

impl Kind {
    /// The value of a key as the metrics see it.
    pub(super) fn read(self, key: &str, value: Option<&Json>) -> Result<Value, ReplyFault> {
        if let (Self::OptionalText, None | Some(Json::Null)) = (self, value) {
            return Ok(Value::Null);
        }
        let value = value.ok_or_else(|| ReplyFault::Missing { at: key.to_owned() })?;
        match self {
            Self::Text | Self::OptionalText => read_text(key, value),
            Self::Share => read_share(key, value),
            Self::Texts => read_list(key, value, read_text),
            Self::Objects(members) => {
                read_list(key, value, |at, item| read_object(at, item, members))
            }
            Self::Verdicts => read_list(key, value, read_verdict),
        }
    }
}

/// The reply without white space and without a code fence around it.
pub(super) fn without_fence(text: &str) -> Result<&str, ReplyFault> {
    let text = trim(text);
    if !text.starts_with("```") {
        return Ok(text);
    }
    let (_, inside) = text.split_once('\n').ok_or(ReplyFault::Fence)?;
    Ok(trim(
        inside
            .rsplit_once("```")
            .map_or(inside, |(inside, _)| inside),
    ))
}

/// PandaProbe also counts the four separator controls as white space.
fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
}

fn read_text(at: &str, value: &Json) -> Result<Value, ReplyFault> {
    match value {
        Json::String(text) => Ok(text.as_str().into()),
        other => Err(wrong_type(format!("`{at}`"), other, "a text")),
    }
}

fn read_share(at: &str, value: &Json) -> Result<Value, ReplyFault> {
    let not_a_number = || wrong_type(format!("`{at}`"), value, "a number from 0 to 1");
    let number = match value {
        Json::Bool(flag) => f64::from(u8::from(*flag)),
        Json::Integer(digits) => digits.parse().map_err(|_| not_a_number())?,
        Json::Float(literal) => literal.parse().map_err(|_| not_a_number())?,
        Json::String(text) => text.trim().parse().map_err(|_| not_a_number())?,
        _ => return Err(not_a_number()),
    };
    if (0.0..=1.0).contains(&number) {
        Ok(number.into())
    } else {
        Err(ReplyFault::OutOfRange {
            at: at.to_owned(),
            found: number,
        })
    }
}

fn read_list(
    at: &str,
    value: &Json,
    read: impl Fn(&str, &Json) -> Result<Value, ReplyFault>,
) -> Result<Value, ReplyFault> {
    let Json::Array(items) = value else {
        return Err(wrong_type(format!("`{at}`"), value, "a list"));
    };
    let items = items
        .iter()
        .enumerate()
        .map(|(i, item)| read(&format!("{at}[{i}]"), item));
    items.collect::<Result<Vec<_>, _>>().map(Value::Array)
}

fn read_object(at: &str, value: &Json, members: &[Member]) -> Result<Value, ReplyFault> {
    let Json::Object(entries) = value else {
        return Err(wrong_type(format!("`{at}`"), value, "an object"));
    };
    let free = |key: &str| {
        members
            .iter()
            .any(|member| member.kind == MemberKind::FreeObject && member.key == key)
    };
    let entries = entries.iter().map(|(key, value)| {
        let value = match value {
            Json::String(text) if free(key) => match parse(text.as_bytes()) {
                Ok(object @ Json::Object(_)) => object.into(),
                _ => value.clone().into(),
            },
            _ => value.clone().into(),
        };
        (key.clone(), value)
    });
    Ok(Value::Object(entries.collect()))
}

fn read_verdict(at: &str, value: &Json) -> Result<Value, ReplyFault> {
    if !matches!(value, Json::Object(_)) {
        return Err(wrong_type(format!("`{at}`"), value, "an object"));
    }
    let place = format!("{at}.verdict");
    let verdict = Kind::Text.read(&place, value.get("verdict"))?;
    if !matches!(verdict.as_str(), Some("yes" | "no")) {
        return Err(ReplyFault::WrongWord { at: place });
    }
    let reason = Kind::OptionalText.read(&format!("{at}.reason"), value.get("reason"))?;
    Ok(json!({"verdict": verdict, "reason": reason}))
}

/// The fault of a value of another type.
pub(super) fn wrong_type(at: String, found: &Json, needed: &'static str) -> ReplyFault {
    let found = match found {
        Json::Null => "null",
        Json::Bool(_) => "true or false",
        Json::Integer(_) | Json::Float(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    };
    ReplyFault::WrongType { at, found, needed }
}

#[cfg(test)]
mod tests {
    use super::super::ReplyShape;
    use super::super::tests::{CALLS, SHAPE, VERDICTS};
    use super::*;
    use proptest::prelude::*;

    fn score(text: &str) -> Option<f64> {
        SHAPE.read(text).ok().map(|reply| reply.share("score"))
    }

    #[test]
    fn fences_and_white_space_go_and_nothing_else() {
        for good in [
            "{\"score\":0.5}",
            " \n\u{a0}\u{1f}{\"score\":0.5}\t",
            "```json\n{\"score\":0.5}\n```",
            "```\n{\"score\":0.5}",
            "```\n{\"score\":0.5,\"reason\":\"``` inside\"}\n```",
            "``` anything ```\n{\"score\":0.5}\n``` after the fence",
            "```\r\n{\"score\":0.5}\r\n```\r\n",
            "{\"score\":7,\"score\":0.5,\"SCORE\":3,\"other\":[NaN]}",
        ] {
            assert_eq!(score(good), Some(0.5), "{good:?}");
        }
        for bad in [
            "",
            "```",
            "```\n",
            "```{\"score\":0.5}```",
            "\u{feff}{\"score\":0.5}",
            "Sure: {\"score\":0.5}",
            "{\"score\":0.5} Done.",
            "{\"score\":0.5}{\"score\":0.5}",
            "[{\"score\":0.5}]",
            "{\"Score\":0.5}",
            "{\"score\":0.5,}",
            "{'score':0.5}",
            "{\"score\":0.5,\"reason\":1}",
            "``\n{\"score\":0.5}\n``",
        ] {
            assert_eq!(score(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_score_may_be_a_boolean_or_a_numeric_string_and_must_be_in_range() {
        for (text, expected) in [
            ("1", 1.0),
            ("0", 0.0),
            ("-0", 0.0),
            ("true", 1.0),
            ("false", 0.0),
            ("\" 0.25 \"", 0.25),
            ("\"+.5\"", 0.5),
            ("\"25e-2\"", 0.25),
            ("1.0e0", 1.0),
        ] {
            assert_eq!(
                score(&format!("{{\"score\":{text}}}")),
                Some(expected),
                "{text}"
            );
        }
        for bad in [
            "1.0000001",
            "-0.1",
            "NaN",
            "Infinity",
            "-Infinity",
            "1e999",
            "2",
            "null",
            "[]",
            "{}",
            "\"\"",
            "\"1_0\"",
            "\"0.1_1\"",
            "\"50%\"",
            "\"٠\"",
            "\"nan\"",
            "\"inf\"",
            "\"yes\"",
            "\"0 .5\"",
        ] {
            assert_eq!(score(&format!("{{\"score\":{bad}}}")), None, "{bad}");
        }
        let huge = "9".repeat(400);
        assert_eq!(score(&format!("{{\"score\":{huge}}}")), None);
    }

    #[test]
    fn faults_say_where_and_quote_nothing() {
        let fault = |shape: &ReplyShape, text: &str| shape.read(text).unwrap_err().to_string();
        let text = "{\"verdicts\":[{\"verdict\":\"yes\"},{\"verdict\":\"</reply> 1.0\"}]}";
        assert!(fault(&VERDICTS, text).starts_with("`verdicts[1].verdict` is another word"));
        assert!(
            fault(&VERDICTS, "{\"verdicts\":[{}]}").contains("`verdicts[0].verdict` is missing")
        );
        assert!(fault(&VERDICTS, "{\"verdicts\":[\"no\"]}").starts_with("`verdicts[0]` is a text"));
        assert!(fault(&SHAPE, "{\"score\":1.5}").starts_with("`score` is 1.5"));
        assert!(
            fault(&SHAPE, "I think </reply> 1").starts_with("the reply is not a JSON document")
        );
        assert!(!fault(&SHAPE, "I think </reply> 1").contains("</reply>"));
        assert!(fault(&SHAPE, "{\"</reply>\": <").len() < 200);
        assert!(
            fault(&CALLS, "{\"calls\":null}").starts_with("`calls` is null; answer with a list")
        );
        assert!(fault(&CALLS, "{\"calls\":[1]}").starts_with("`calls[0]` is a number"));
    }

    #[test]
    fn objects_are_kept_as_they_are_and_free_objects_open_again() {
        let direct = r#"{"calls":[{"name":"a","parameters":{"z":1,"a":[1.5,null]},"extra":true}]}"#;
        let as_text =
            r#"{"calls":[{"name":"a","parameters":"{\"z\":1,\"a\":[1.5,null]}","extra":true}]}"#;
        let read = |text: &str| CALLS.read(text).unwrap().value("calls").to_string();
        assert_eq!(
            read(direct),
            r#"[{"name":"a","parameters":{"z":1,"a":[1.5,null]},"extra":true}]"#
        );
        assert_eq!(read(as_text), read(direct));
        // Only what was asked for as an object opens, and only if it is one.
        let others = r#"{"calls":[{"name":"{}","parameters":"[1]"},{"n":NaN,"m":-3,"h":18446744073709551616}]}"#;
        assert_eq!(
            read(others),
            r#"[{"name":"{}","parameters":"[1]"},{"n":"NaN","m":-3,"h":"18446744073709551616"}]"#
        );
    }

    #[test]
    fn optional_values_are_null_when_left_out() {
        let reply = VERDICTS
            .read("{\"verdicts\":[{\"verdict\":\"no\",\"x\":1}]}")
            .unwrap();
        assert_eq!(
            reply.list("verdicts"),
            [json!({"verdict": "no", "reason": null})]
        );
        let reply = SHAPE.read("{\"score\":1,\"reason\":null}").unwrap();
        assert_eq!(
            (reply.optional_text("reason"), reply.value("reason")),
            (None, &Value::Null)
        );
        assert!(reply.share("verdict").is_nan());
    }

    proptest! {
        #[test]
        fn any_score_in_range_is_read_exactly(x in 0.0..=1.0f64) {
            prop_assert_eq!(score(&format!("{{\"score\":{x:?}}}")), Some(x));
            prop_assert_eq!(score(&format!("{{\"score\":\"{x:?}\"}}")), Some(x));
        }

        #[test]
        fn any_text_gives_a_fault_or_a_score(text in ".*") {
            if let Ok(reply) = SHAPE.read(&text) {
                prop_assert!((0.0..=1.0).contains(&reply.share("score")));
            }
        }
    }
}
