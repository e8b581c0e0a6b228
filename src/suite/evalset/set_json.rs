//! Evaluation sets as JSON: cases, turns and messages read into values, and written again.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::json_file::{FileError, Loaded, file_text, value_of};
use super::legacy;
use super::model::{
    CaseRubric, EpochTime, EvalCase, EvalSet, Invocation, Message, Rubric, SessionInput, ToolUse,
};
use super::object::{Members, list_of, object_of, or_null};
use super::place::Place;
use super::shape::{CASE, INVOCATION, Kind, MESSAGE, SET, ShapeFault, arranged, checked};

const CASES: &str = "evalCases";

impl EvalSet {
    /// Reads the text of a file that errors call `file`. Older shapes are converted, with one warning.
    ///
    /// # Errors
    /// [`FileError`] for what is no JSON, and for values of wrong kinds.
    pub fn from_text(text: &str, file: &str) -> Result<Loaded<Self>, FileError> {
        let mut value = value_of(text, file)?;
        let converted = legacy::convert_set(&mut value);
        let value = checked(value, &Kind::Object(&SET), &Place::Document);
        let mut loaded = Loaded {
            value: read_set(Members::of(value.map_err(|e| FileError::shape(file, e))?)),
            warnings: Vec::new(),
        };
        if converted {
            loaded.warnings.push(Self::converted(file));
        }
        let cases = loaded.value.cases.iter();
        let cases = cases.map(|case| (case.id.as_str(), case.mode.as_str()));
        loaded.warnings.extend(Self::oddities(file, cases));
        Ok(loaded)
    }

    /// The warning of a file that is in an older shape.
    pub(super) fn converted(file: &str) -> String {
        format!(
            "{file}: turns in an older shape (`intermediateData`, `parts`) were converted; trpc-agent-go itself reads no \
             tool calls from it"
        )
    }

    /// Warnings of cases by id and mode: ids that repeat, modes that are none.
    pub(super) fn oddities<'c>(
        file: &str,
        cases: impl Iterator<Item = (&'c str, &'c str)>,
    ) -> Vec<String> {
        let (mut ids, mut repeated) = (HashSet::new(), HashSet::new());
        let mut warnings = Vec::new();
        for (id, mode) in cases {
            if !ids.insert(id) && repeated.insert(id) {
                warnings.push(format!(
                    "{file}: several cases are called `{id}`: what each did is held against what the first one expects, \
                     as trpc-agent-go does, and their figures are put together; give each an id of its own"
                ));
            }
            if !["", "trace"].contains(&mode) {
                warnings.push(format!(
                    "{file}: case `{id}` has the mode `{mode}`, which is no mode: it is taken for the default mode"
                ));
            }
        }
        warnings
    }

    /// The text of a file: members in order, empty ones left out, two spaces a level.
    pub fn to_text(&self) -> String {
        file_text(&arranged(write_set(self), &Kind::Object(&SET)))
    }
}

impl EvalCase {
    /// Reads the text of one of `evalCases[]`, and says whether it was in an older shape.
    ///
    /// # Errors
    /// [`FileError`], whose places are those inside the case.
    pub(super) fn from_text(text: &str, file: &str) -> Result<(Self, bool), FileError> {
        let mut value = value_of(text, file)?;
        let converted = legacy::convert_case(&mut value);
        let value = checked(value, &Kind::Object(&CASE), &Place::Document);
        let value = value.map_err(|e| FileError::shape(file, e))?;
        Ok((read_case(Members::of(value)), converted))
    }

    /// Reads `evalCases[]`.
    ///
    /// # Errors
    /// [`ShapeFault`] for a value of a wrong kind.
    pub fn from_json(mut value: Value) -> Result<Self, ShapeFault> {
        legacy::convert_case(&mut value);
        let value = checked(value, &Kind::Object(&CASE), &Place::Document)?;
        Ok(read_case(Members::of(value)))
    }

    /// The case as files hold it.
    pub fn to_json(&self) -> Value {
        arranged(write_case(self), &Kind::Object(&CASE))
    }
}

impl Invocation {
    /// Reads `conversation[]`.
    ///
    /// # Errors
    /// [`ShapeFault`] for a value of a wrong kind.
    pub fn from_json(mut value: Value) -> Result<Self, ShapeFault> {
        legacy::convert_turn(&mut value);
        let value = checked(value, &Kind::Object(&INVOCATION), &Place::Document)?;
        Ok(read_turn(Members::of(value)))
    }

    /// The turn as files hold it.
    pub fn to_json(&self) -> Value {
        arranged(write_turn(self), &Kind::Object(&INVOCATION))
    }
}

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// [`ShapeFault`] for a value of a wrong kind.
    pub fn from_json(mut value: Value) -> Result<Self, ShapeFault> {
        legacy::convert_message(&mut value);
        let value = checked(value, &Kind::Object(&MESSAGE), &Place::Document)?;
        Ok(read_message(Members::of(value)))
    }

    /// The message as files hold it.
    pub fn to_json(&self) -> Value {
        arranged(write_message(self), &Kind::Object(&MESSAGE))
    }
}

fn read_set(mut set: Members) -> EvalSet {
    EvalSet {
        id: set.text("evalSetId"),
        name: set.text("name"),
        description: set.text("description"),
        cases: set.present(CASES, read_case),
        created: set.moment("creationTimestamp"),
        rest: set.rest(),
    }
}

fn read_case(mut case: Members) -> EvalCase {
    EvalCase {
        id: case.text("evalId"),
        mode: case.text("evalMode"),
        context_messages: case.list("contextMessages", read_message),
        conversation: case.list("conversation", read_turn),
        actual_conversation: case.list("actualConversation", read_turn),
        session_input: case.object("sessionInput", |mut input| SessionInput {
            app_name: input.text("appName"),
            user_id: input.text("userId"),
            state: input.map("state"),
            rest: input.rest(),
        }),
        rubrics: case.present("rubrics", |mut rubric| CaseRubric {
            metric_name: rubric.text("metricName"),
            rubric: read_rubric(rubric),
        }),
        created: case.moment("creationTimestamp"),
        rest: case.rest(),
    }
}

pub(super) fn read_turn(mut turn: Members) -> Invocation {
    Invocation {
        id: turn.text("invocationId"),
        context_messages: turn.list("contextMessages", read_message),
        user_content: turn.object("userContent", read_message),
        final_response: turn.object("finalResponse", read_message),
        tools: turn.list("tools", |mut tool| ToolUse {
            id: tool.text("id"),
            name: tool.text("name"),
            arguments: tool.free("arguments"),
            result: tool.free("result"),
            rest: tool.rest(),
        }),
        intermediate_responses: turn.list("intermediateResponses", read_message),
        created: turn.moment("creationTimestamp"),
        rest: turn.rest(),
    }
}

fn read_message(mut message: Members) -> Message {
    Message {
        role: message.text("role"),
        content: message.text("content"),
        rest: message.rest(),
    }
}

/// A rubric of a metric or of a case. In cases, `content` may be the text itself.
pub(super) fn read_rubric(mut rubric: Members) -> Rubric {
    Rubric {
        id: rubric.text("id"),
        text: match rubric.free("content") {
            Value::String(text) => Some(text),
            content @ Value::Object(_) => Some(Members::of(content).text("text")),
            _ => None,
        },
        description: rubric.text("description"),
        kind: rubric.text("type"),
        rest: rubric.rest(),
    }
}

fn write_set(set: &EvalSet) -> Value {
    let cases = set.cases.iter().map(write_case);
    let known = [
        ("evalSetId", set.id.as_str().into()),
        ("name", set.name.as_str().into()),
        ("description", set.description.as_str().into()),
        (CASES, cases.collect()),
        ("creationTimestamp", write_moment(set.created)),
    ];
    object_of(known, &set.rest)
}

fn write_case(case: &EvalCase) -> Value {
    let known = [
        ("evalId", case.id.as_str().into()),
        ("evalMode", case.mode.as_str().into()),
        (
            "contextMessages",
            list_of(&case.context_messages, write_message),
        ),
        ("conversation", list_of(&case.conversation, write_turn)),
        (
            "actualConversation",
            list_of(&case.actual_conversation, write_turn),
        ),
        (
            "sessionInput",
            or_null(case.session_input.as_ref(), write_session_input),
        ),
        (
            "rubrics",
            case.rubrics.iter().map(write_case_rubric).collect(),
        ),
        ("creationTimestamp", write_moment(case.created)),
    ];
    object_of(known, &case.rest)
}

fn write_session_input(input: &SessionInput) -> Value {
    let known = [
        ("appName", input.app_name.as_str().into()),
        ("userId", input.user_id.as_str().into()),
        ("state", input.state.clone().into()),
    ];
    object_of(known, &input.rest)
}

fn write_case_rubric(rubric: &CaseRubric) -> Value {
    let CaseRubric {
        metric_name,
        rubric,
    } = rubric;
    let content = or_null(rubric.text.as_ref(), |text| match text.as_str() {
        "" => Value::Object(Map::new()),
        text => serde_json::json!({"text": text}),
    });
    let known = [
        ("metricName", metric_name.as_str().into()),
        ("id", rubric.id.as_str().into()),
        ("content", content),
        ("description", rubric.description.as_str().into()),
        ("type", rubric.kind.as_str().into()),
    ];
    object_of(known, &rubric.rest)
}

pub(super) fn write_turn(turn: &Invocation) -> Value {
    let message = |message: &Option<Message>| or_null(message.as_ref(), write_message);
    let known = [
        ("invocationId", turn.id.as_str().into()),
        (
            "contextMessages",
            list_of(&turn.context_messages, write_message),
        ),
        ("userContent", message(&turn.user_content)),
        ("finalResponse", message(&turn.final_response)),
        ("tools", list_of(&turn.tools, write_tool)),
        (
            "intermediateResponses",
            list_of(&turn.intermediate_responses, write_message),
        ),
        ("creationTimestamp", write_moment(turn.created)),
    ];
    object_of(known, &turn.rest)
}

fn write_message(message: &Message) -> Value {
    let known = [
        ("role", message.role.as_str().into()),
        ("content", message.content.as_str().into()),
    ];
    object_of(known, &message.rest)
}

fn write_tool(tool: &ToolUse) -> Value {
    let known = [
        ("id", tool.id.as_str().into()),
        ("name", tool.name.as_str().into()),
        ("arguments", tool.arguments.clone()),
        ("result", tool.result.clone()),
    ];
    object_of(known, &tool.rest)
}

pub(super) fn write_moment(moment: Option<EpochTime>) -> Value {
    moment.map_or(Value::Null, EpochTime::to_json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_knows_is_written_behind_what_is_known() {
        let text = r#"{"future": {"z": 1, "a": 2}, "evalSetId": "s", "evalCases": [null, {"weird": 1, "evalId": "a",
            "conversation": [null, {"executionTrace": [1], "tools": [null, {"new": true, "name": "t"}],
            "userContent": {"mood": "good", "content": "q", "role": "user", "content_parts": [
            {"text": "", "type": "text"}]}}],
            "rubrics": [{"x": 1, "content": "be kind", "metricName": "m"}], "sessionInput": {"y": 1}}]}"#;
        let set = EvalSet::from_text(text, "f").unwrap().value;
        assert_eq!(set.cases.len(), 1);
        assert_eq!(
            set.cases[0].rubrics[0].rubric.text.as_deref(),
            Some("be kind")
        );
        let again: Value = serde_json::from_str(&set.to_text()).unwrap();
        assert_eq!(
            again.to_string(),
            r#"{"evalSetId":"s","evalCases":[{"evalId":"a","conversation":[null,{"userContent":{"role":"user","#
                .to_owned()
                + r#""content":"q","content_parts":[{"type":"text","text":""}],"mood":"good"},"tools":[null,"#
                + r#"{"name":"t","new":true}],"executionTrace":[1]}],"sessionInput":{"y":1},"rubrics":[{"#
                + r#""metricName":"m","content":{"text":"be kind"},"x":1}],"weird":1}],"future":{"z":1,"a":2}}"#
        );
    }

    #[test]
    fn a_mode_that_is_none_and_an_id_that_is_there_twice_are_told() {
        let text = r#"{"evalCases": [{"evalId": "a", "evalMode": "Trace"}, {"evalMode": "trace"},
            {"evalId": "a"}]}"#;
        let loaded = EvalSet::from_text(text, "f").unwrap();
        assert_eq!(loaded.warnings.len(), 2);
        assert!(loaded.warnings[0].contains("`Trace`"));
        assert!(loaded.warnings[1].contains("several cases are called `a`"));
    }

    #[test]
    fn the_text_has_two_spaces_a_level_and_ends_with_a_line() {
        let set = EvalSet {
            id: "s".into(),
            created: Some(EpochTime(0)),
            ..EvalSet::default()
        };
        assert_eq!(
            set.to_text(),
            "{\n  \"evalSetId\": \"s\",\n  \"creationTimestamp\": 0\n}\n"
        );
    }
}
