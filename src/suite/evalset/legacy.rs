//! Shapes of trpc-agent-go's first files: read into those of today, which is what is written.
//!
//! Everything here works on values before they are checked: what is not as the old shapes have it stays as it is.

use serde_json::{Map, Value, json};

/// Converts the turns of an evaluation set. Says whether there was anything to convert.
pub(super) fn convert_set(set: &mut Value) -> bool {
    each(set.get_mut("evalCases"), convert_case)
}

/// Converts the turns of a case.
pub(super) fn convert_case(case: &mut Value) -> bool {
    let messages = each(case.get_mut("contextMessages"), convert_message);
    let expected = each(case.get_mut("conversation"), convert_turn);
    let actual = each(case.get_mut("actualConversation"), convert_turn);
    messages | expected | actual
}

/// Converts the turns and the criteria of a result.
pub(super) fn convert_result(result: &mut Value) -> bool {
    each(result.get_mut("evalCaseResults"), |case| {
        let overall = each(case.get_mut("overallEvalMetricResults"), convert_metric);
        let turns = each(case.get_mut("evalMetricResultPerInvocation"), |turn| {
            let actual = turn.get_mut("actualInvocation").is_some_and(convert_turn);
            let expected = turn.get_mut("expectedInvocation").is_some_and(convert_turn);
            actual | expected | each(turn.get_mut("evalMetricResults"), convert_metric)
        });
        overall | turns
    })
}

/// Whether `convert` found something in any item of a list.
fn each(list: Option<&mut Value>, convert: impl Fn(&mut Value) -> bool) -> bool {
    let Some(Value::Array(items)) = list else {
        return false;
    };
    let converted = items.iter_mut().map(convert);
    converted.fold(false, |any, one| any | one)
}

/// Converts a message `{"parts": [{"text": …}], "role": …}`: its content is the texts, with nothing between them.
pub(super) fn convert_message(message: &mut Value) -> bool {
    let Value::Object(message) = message else {
        return false;
    };
    let texts = match (message.get("content"), message.get("parts")) {
        (None | Some(Value::Null), Some(Value::Array(parts))) => parts,
        _ => return false,
    };
    let text_of = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
    let Some(content) = texts.iter().map(text_of).collect::<Option<String>>() else {
        return false;
    };
    message.shift_remove("parts");
    message.insert("content".to_owned(), content.into());
    true
}

/// Converts a turn: its messages, and `intermediateData` into tool calls and intermediate responses.
pub(super) fn convert_turn(turn: &mut Value) -> bool {
    let Value::Object(turn) = turn else {
        return false;
    };
    let data = convert_intermediate_data(turn);
    let mut converted = data;
    for name in ["userContent", "finalResponse"] {
        converted |= turn.get_mut(name).is_some_and(convert_message);
    }
    for name in ["contextMessages", "intermediateResponses"] {
        converted |= each(turn.get_mut(name), convert_message);
    }
    converted
}

fn convert_intermediate_data(turn: &mut Map<String, Value>) -> bool {
    let filled =
        |name: &str| matches!(turn.get(name), Some(Value::Array(items)) if !items.is_empty());
    let (has_tools, has_responses) = (filled("tools"), filled("intermediateResponses"));
    let Some(Value::Object(data)) = turn.get_mut("intermediateData") else {
        return false;
    };
    let mut converted = Vec::new();
    if !has_tools && let Some(tools) = tools_of(data) {
        converted.push(("tools", tools));
    }
    if !has_responses && let Some(responses) = data.shift_remove("intermediateResponses") {
        converted.push(("intermediateResponses", responses));
    }
    let any = !converted.is_empty();
    data.retain(|_, value| !matches!(value, Value::Array(items) if items.is_empty()));
    if data.is_empty() {
        turn.shift_remove("intermediateData");
    }
    for (name, value) in converted {
        turn.insert(name.to_owned(), value);
    }
    any
}

/// Takes calls and their responses out of `intermediateData`. Responses that no call is left for stay in it.
fn tools_of(data: &mut Map<String, Value>) -> Option<Value> {
    let calls = take_list(data, "toolUses").or_else(|| take_list(data, "toolCalls"))?;
    let mut responses: Vec<_> = take_list(data, "toolResponses")
        .unwrap_or_default()
        .into_iter()
        .map(Some)
        .collect();
    let mut tools: Vec<(Value, Option<Value>)> = calls
        .iter()
        .map(|call| {
            let id = text(call, "id");
            let of_call = |response: &&mut Option<Value>| {
                let response = response.as_ref();
                response.is_some_and(|response| !id.is_empty() && response_id(response) == id)
            };
            let response = responses.iter_mut().find(of_call).and_then(Option::take);
            (tool_of(call), response)
        })
        .collect();
    let mut unpaired = responses.into_iter().flatten();
    for (_, response) in &mut tools {
        if response.is_none() {
            *response = unpaired.next();
        }
    }
    let unpaired: Vec<Value> = unpaired.collect();
    if !unpaired.is_empty() {
        data.insert("toolResponses".to_owned(), unpaired.into());
    }
    let tools = tools.into_iter().map(|(mut tool, response)| {
        let result = response.as_ref().map(result_of);
        if let (Some(result), Value::Object(tool)) = (result, &mut tool) {
            tool.insert("result".to_owned(), result);
        }
        tool
    });
    Some(tools.collect())
}

fn take_list(data: &mut Map<String, Value>, name: &str) -> Option<Vec<Value>> {
    match data.get_mut(name) {
        Some(Value::Array(items)) => {
            let items = std::mem::take(items);
            data.shift_remove(name);
            Some(items)
        }
        _ => None,
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// `{id, name, args}`, or `{id, type, function: {name, arguments}}`. Arguments that are JSON in a string are that JSON.
fn tool_of(call: &Value) -> Value {
    let function = call.get("function").unwrap_or(call);
    let arguments = ["args", "arguments"]
        .into_iter()
        .find_map(|name| function.get(name));
    let arguments = match arguments {
        Some(Value::String(text)) if text.trim().is_empty() => json!({}),
        Some(Value::String(text)) => {
            serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into())
        }
        arguments => arguments.cloned().unwrap_or_default(),
    };
    json!({"id": text(call, "id"), "name": text(function, "name"), "arguments": arguments})
}

fn response_id(response: &Value) -> &str {
    let ids = ["id", "toolId"].map(|name| text(response, name));
    ids.into_iter()
        .find(|id| !id.is_empty())
        .unwrap_or_default()
}

fn result_of(response: &Value) -> Value {
    let results = ["response", "content"];
    let result = results.into_iter().find_map(|name| response.get(name));
    result.cloned().unwrap_or_default()
}

/// Converts the criterion of a metric: `response` of a strategy is `result`, and `orderInsensitive` the contrary of
/// `orderSensitive`.
pub(super) fn convert_metric(metric: &mut Value) -> bool {
    let trajectory = metric.pointer_mut("/criterion/toolTrajectory");
    let Some(Value::Object(trajectory)) = trajectory else {
        return false;
    };
    let mut converted = false;
    if let Some(strategy) = trajectory.get_mut("defaultStrategy") {
        converted |= convert_strategy(strategy);
    }
    if let Some(Value::Object(strategies)) = trajectory.get_mut("toolStrategy") {
        for strategy in strategies.values_mut() {
            converted |= convert_strategy(strategy);
        }
    }
    let sensitive = trajectory
        .get("orderSensitive")
        .is_some_and(|v| !v.is_null());
    if let (false, Some(Value::Bool(insensitive))) = (sensitive, trajectory.get("orderInsensitive"))
    {
        let sensitive = !insensitive;
        trajectory.shift_remove("orderInsensitive");
        trajectory.insert("orderSensitive".to_owned(), sensitive.into());
        converted = true;
    }
    converted
}

fn convert_strategy(strategy: &mut Value) -> bool {
    let Value::Object(strategy) = strategy else {
        return false;
    };
    if strategy
        .get("result")
        .is_some_and(|result| !result.is_null())
    {
        return false;
    }
    let response = strategy.shift_remove("response");
    let converted = response.is_some();
    if let Some(response) = response {
        strategy.insert("result".to_owned(), response);
    }
    converted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::evalset::model::EvalSet;

    fn turn(mut turn: Value) -> String {
        convert_turn(&mut turn);
        turn.to_string()
    }

    #[test]
    fn tool_uses_become_calls_with_the_response_of_their_id() {
        let old = json!({"intermediateData": {
            "toolUses": [{"id": "1", "name": "t", "args": {"a": 1}}, {"id": "2", "name": "u"}],
            "toolResponses": [{"id": "2", "name": "u", "response": {"b": 2}}, {"id": "1", "response": [3]}]}});
        assert_eq!(
            turn(old),
            r#"{"tools":[{"id":"1","name":"t","arguments":{"a":1},"result":[3]},"#.to_owned()
                + r#"{"id":"2","name":"u","arguments":null,"result":{"b":2}}]}"#
        );
    }

    #[test]
    fn tool_calls_become_calls_and_responses_without_their_id_go_by_position() {
        let old = json!({"intermediateData": {
            "toolCalls": [
                {"id": "1", "type": "function", "function": {"name": "t", "arguments": {"a": 1}}},
                {"id": "2", "type": "function", "function": {"name": "u", "arguments": "{\"b\":2}"}},
                {"id": "3", "type": "function", "function": {"name": "v", "arguments": " "}}],
            "toolResponses": [
                {"role": "tool", "toolId": "x", "toolName": "t", "content": {"of": 1}},
                {"role": "tool", "toolId": "2", "toolName": "u", "content": {"of": 2}}],
            "intermediateResponses": [{"parts": [{"text": "so"}, {"text": " far"}], "role": "model"}]}});
        assert_eq!(
            turn(old),
            r#"{"tools":[{"id":"1","name":"t","arguments":{"a":1},"result":{"of":1}},"#.to_owned()
                + r#"{"id":"2","name":"u","arguments":{"b":2},"result":{"of":2}},"#
                + r#"{"id":"3","name":"v","arguments":{}}],"#
                + r#""intermediateResponses":[{"role":"model","content":"so far"}]}"#
        );
    }

    #[test]
    fn tools_win_and_what_has_no_place_stays() {
        let both = json!({"tools": [{"name": "new"}], "intermediateData": {"toolUses": [{"name": "old"}]}});
        assert_eq!(turn(both.clone()), both.to_string());
        let extra = json!({"intermediateData": {"toolUses": [{"name": "t"}], "more": 1,
            "toolResponses": [{"response": 1}, {"response": 2}]}});
        assert_eq!(
            turn(extra),
            r#"{"intermediateData":{"more":1,"toolResponses":[{"response":2}]},"#.to_owned()
                + r#""tools":[{"id":"","name":"t","arguments":null,"result":1}]}"#
        );
        for odd in [
            json!({"intermediateData": []}),
            json!({"intermediateData": {"toolUses": 3}}),
            json!({"userContent": {"parts": [{"blob": 1}]}}),
            json!({"userContent": {"parts": [], "content": "c"}}),
            json!([]),
        ] {
            assert_eq!(turn(odd.clone()), odd.to_string());
        }
    }

    #[test]
    fn a_file_in_an_older_shape_is_told_once() {
        let text = r#"{"evalCases": [{"conversation": [
            {"userContent": {"parts": [{"text": "a"}, {"text": "b"}], "role": "user"}},
            {"intermediateData": {"toolUses": [{"name": "t", "args": {}}]}}]}]}"#;
        let loaded = EvalSet::from_text(text, "f").unwrap();
        assert_eq!(loaded.warnings.len(), 1);
        let turns = &loaded.value.cases[0].conversation;
        let said = turns[0].as_ref().unwrap().user_content.as_ref().unwrap();
        assert_eq!((said.content.as_str(), said.role.as_str()), ("ab", "user"));
        let tool = turns[1].as_ref().unwrap().tools[0].as_ref().unwrap();
        assert_eq!((tool.name.as_str(), &tool.arguments), ("t", &json!({})));
        assert!(!loaded.value.to_text().contains("intermediateData"));
    }
}
