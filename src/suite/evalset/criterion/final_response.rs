//! The final responses of two turns.

use serde_json::Value;

use super::fields::Fields;
use super::text::unknown_comparison;
use super::{
    Comparison, CriterionFault, InvocationFunction, JsonCriterion, Mismatch, MismatchKind,
    RougeCriterion, TextCriterion, XmlCriterion,
};
use crate::suite::evalset::model::{Invocation, Message};

/// How the contents of two final responses are compared: every part that is there must match.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FinalResponseCriterion {
    /// `text`: as texts.
    pub text: Option<TextCriterion>,
    /// `json`: as JSON.
    pub json: Option<JsonCriterion>,
    /// `xml`: the actual one as XML.
    pub xml: Option<XmlCriterion>,
    /// `rouge`: by the words that they share.
    pub rouge: Option<RougeCriterion>,
    /// `compareName`: a comparison that a program registered; empty where there is none.
    pub compare_name: String,
    /// Replaces everything.
    pub compare: Option<InvocationFunction>,
}

impl FinalResponseCriterion {
    /// Reads the `finalResponse` of a metrics file; `path` leads to it.
    ///
    /// # Errors
    /// [`CriterionFault`] for a known key with a value of the wrong type. Unknown keys are no errors.
    pub fn read(value: &Value, path: &str) -> Result<Self, CriterionFault> {
        let fields = Fields::of(value, path)?;
        Ok(Self {
            text: fields.part("text", TextCriterion::read)?,
            json: fields.part("json", JsonCriterion::read)?,
            xml: fields.part("xml", XmlCriterion::read)?,
            rouge: fields.part("rouge", RougeCriterion::read)?,
            compare_name: fields.text("compareName")?,
            compare: None,
        })
    }

    /// Compares the final responses of two turns as trpc-agent-go does. Without a part there is no match.
    ///
    /// An expected response that is missing is no match for one that is there. To a criterion with a part or an option
    /// that the first files did not have (`xml`, `rouge`, `skip`, `length`, `valid`, `schema`, `onlyTree`) it is an
    /// empty text, as in the versions of trpc-agent-go that have those.
    ///
    /// # Errors
    /// [`Mismatch`] if they do not match: of kind `nil` if a turn or a response is missing, and else `config` if a part
    /// can't be used. The reason joins those of all parts.
    pub fn compare(
        &self,
        actual: Option<&Invocation>,
        expected: Option<&Invocation>,
    ) -> Comparison {
        if let Some(function) = &self.compare {
            return function.compare(actual, expected);
        }
        if !self.compare_name.is_empty() {
            return Err(unknown_comparison(&self.compare_name));
        }
        let has_old_part = self.text.is_some() || self.json.is_some();
        if !has_old_part && self.xml.is_none() && self.rouge.is_none() {
            return Err(Mismatch::config(
                "the criterion compares nothing; give it `text`, `json`, `xml` or `rouge`",
            ));
        }
        let missing = |what: &str| Mismatch {
            kind: MismatchKind::Nil,
            reason: format!("the {what} is missing"),
        };
        let actual = actual.ok_or_else(|| missing("actual turn"))?;
        let expected = expected.ok_or_else(|| missing("expected turn"))?;
        let content = |response: &Option<Message>| response.as_ref().map(|r| r.content.clone());
        let contents = (
            content(&actual.final_response),
            content(&expected.final_response),
        );
        let (actual, expected) = match contents {
            (None, None) => return Ok(()),
            (None, Some(_)) => return Err(missing("actual final response")),
            (Some(actual), Some(expected)) => (actual, expected),
            (Some(actual), None) if self.is_later() => (actual, String::new()),
            (Some(_), None) => return Err(missing("expected final response")),
        };
        self.compare_contents(&actual, &expected)
    }

    fn compare_contents(&self, actual: &str, expected: &str) -> Comparison {
        let complaint = |part: &str, comparison: Option<Comparison>| {
            let mismatch = comparison.and_then(Result::err);
            mismatch.map(|mismatch| mismatch.in_part(part))
        };
        let json = self.json.as_ref();
        let text = self.text.as_ref();
        let rouge = self.rouge.as_ref();
        let xml = self.xml.as_ref();
        let complaints: Vec<Mismatch> = [
            complaint("json", json.map(|c| c.compare_texts(actual, expected))),
            complaint("text", text.map(|c| c.compare(actual, expected))),
            complaint("rouge", rouge.map(|c| c.compare(actual, expected))),
            complaint("xml", xml.map(|c| c.check(actual))),
        ]
        .into_iter()
        .flatten()
        .collect();
        if complaints.is_empty() {
            return Ok(());
        }
        let is_config = |c: &Mismatch| c.kind == MismatchKind::Config;
        let kind = match complaints.iter().any(is_config) {
            true => MismatchKind::Config,
            false => MismatchKind::Differs,
        };
        let reasons: Vec<String> = complaints.into_iter().map(|c| c.reason).collect();
        Err(Mismatch {
            kind,
            reason: reasons.join("; "),
        })
    }

    /// Whether it needs features that the first files did not have.
    fn is_later(&self) -> bool {
        self.xml.is_some()
            || self.rouge.is_some()
            || self.text.as_ref().is_some_and(TextCriterion::is_later)
            || self.json.as_ref().is_some_and(JsonCriterion::is_later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn turn(content: Option<&str>) -> Invocation {
        Invocation {
            final_response: content.map(|content| Message {
                content: content.to_owned(),
                ..Message::default()
            }),
            ..Invocation::default()
        }
    }

    fn compare(criterion: Value, actual: Option<&str>, expected: Option<&str>) -> Comparison {
        let criterion = FinalResponseCriterion::read(&criterion, "finalResponse").unwrap();
        criterion.compare(Some(&turn(actual)), Some(&turn(expected)))
    }

    #[test]
    fn a_missing_expected_response_is_empty_only_to_later_criteria() {
        let old = json!({"text": {}});
        assert_eq!(
            compare(old.clone(), Some(""), None).unwrap_err().kind,
            MismatchKind::Nil
        );
        let ignored = json!({"text": {"ignore": true}, "json": {"ignore": true}});
        assert!(compare(ignored.clone(), Some("a"), None).is_err());
        assert!(compare(ignored, None, Some("a")).is_err());
        let later = json!({"text": {}, "xml": {"ignore": true}});
        assert!(compare(later.clone(), Some(""), None).is_ok());
        assert!(compare(later.clone(), Some("a"), None).is_err());
        assert!(compare(later.clone(), None, Some("")).is_err());
        assert!(compare(later, None, None).is_ok());
        assert!(compare(old, None, None).is_ok());
    }

    #[test]
    fn complaints_are_joined_with_json_first() {
        let reason = compare(json!({"text": {}, "json": {}}), Some("1"), Some("2"));
        let reason = reason.unwrap_err().reason;
        assert_eq!(reason, r#"json: 1 is not 2; text: "1" is not "2""#);
        let config = json!({"text": {"matchStrategy": "x"}, "json": {}});
        let kind = compare(config, Some("1"), Some("2")).unwrap_err().kind;
        assert_eq!(kind, MismatchKind::Config);
    }

    #[test]
    fn a_function_is_asked_before_anything_else() {
        let criterion = FinalResponseCriterion {
            compare: Some(InvocationFunction::of_turns(|a, e| {
                Ok(a.is_some() && e.is_none())
            })),
            ..FinalResponseCriterion::default()
        };
        assert!(criterion.compare(Some(&turn(None)), None).is_ok());
        assert!(criterion.compare(None, Some(&turn(None))).is_err());
    }

    #[test]
    fn fences_are_no_json_and_text_after_a_value_does_no_harm() {
        let json = json!({"json": {}});
        assert!(compare(json.clone(), Some("```json\n1\n```"), Some("1")).is_err());
        assert!(compare(json, Some("{\"a\":1} done"), Some("{\"a\":1.0}x")).is_ok());
    }
}
