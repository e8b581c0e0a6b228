//! The evidence of a case in the form that the user message prints it (as in Connexity).

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::conversation::question::transcript::{Case, ExpectedToolCall, Role, Turn};
use crate::conversation::question::weights::{JudgeConfig, Selection};
use crate::text::parse_strict;

const NO_TEXT: &str = "(no text)";
const UNKNOWN_FUNCTION: &str = "(unknown function)";

/// The values of the user message.
#[derive(Serialize)]
pub(in crate::conversation) struct Evidence<'a> {
    outcomes: &'a [String],
    system_prompt: Option<&'a str>,
    tools: Vec<Tool>,
    expected_tool_calls: Vec<ExpectedCall<'a>>,
    emphasis: Option<&'a str>,
    turns: Vec<Entry<'a>>,
    metric_ids: Vec<&'a str>,
    schema: Option<&'a Value>,
}

impl<'a> Evidence<'a> {
    /// The evidence of one case; `turns` may come in any order. A schema is given where the message has to carry it.
    pub(in crate::conversation) fn new(
        selection: &'a Selection,
        config: &JudgeConfig,
        case: &'a Case,
        turns: &'a [Turn],
        schema: Option<&'a Value>,
    ) -> Self {
        Self {
            outcomes: case.outcomes(),
            system_prompt: present(case.agent_system_prompt.as_deref()),
            tools: tools(case.agent_tools.as_deref()),
            expected_tool_calls: expected_tool_calls(case, config),
            emphasis: present(case.evaluation_criteria_override.as_deref()).map(str::trim),
            turns: entries(turns),
            metric_ids: selection
                .distinct()
                .map(|m| m.metric.name.as_str())
                .collect(),
            schema,
        }
    }
}

#[derive(Serialize)]
struct Tool {
    name: String,
    description: Value,
    parameters: Value,
}

#[derive(Serialize)]
struct ExpectedCall<'a> {
    tool: &'a str,
    expected_params: Option<String>,
}

#[derive(Serialize)]
struct Entry<'a> {
    index: i32,
    role: &'static str,
    function: Option<&'a str>,
    text: String,
    calls: Vec<Call<'a>>,
}

#[derive(Serialize)]
struct Call<'a> {
    name: &'a str,
    arguments: Option<String>,
}

fn present(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.trim().is_empty())
}

/// The usable entries of an agent's tools.
fn tools(text: Option<&str>) -> Vec<Tool> {
    let entries = text.and_then(|text| serde_json::from_str(text).ok());
    let Some(Value::Array(entries)) = entries else {
        return Vec::new();
    };
    let tool = |entry: &Value| {
        let function = entry.get("function")?;
        let field = |name: &str| function.get(name).filter(|value| !value.is_null()).cloned();
        Some(Tool {
            name: present(function.get("name")?.as_str())?.to_owned(),
            description: field("description").unwrap_or_else(|| json!("")),
            parameters: field("parameters").unwrap_or_else(|| json!({})),
        })
    };
    entries.iter().filter_map(tool).collect()
}

fn expected_tool_calls<'a>(case: &'a Case, config: &JudgeConfig) -> Vec<ExpectedCall<'a>> {
    let calls = case.expected_tool_calls.as_deref().unwrap_or_default();
    let shown = if config.include_expected_tool_calls {
        calls
    } else {
        &[]
    };
    let call = |call: &'a ExpectedToolCall| ExpectedCall {
        tool: &call.tool,
        expected_params: call.expected_params.as_deref().map(compact),
    };
    shown.iter().map(call).collect()
}

fn entries(turns: &[Turn]) -> Vec<Entry<'_>> {
    let mut turns: Vec<&Turn> = turns.iter().collect();
    turns.sort_by_key(|turn| turn.turn_index);
    let mut functions: HashMap<&str, &str> = HashMap::new();
    let mut entries = Vec::with_capacity(turns.len());
    for turn in turns {
        let calls = turn.tool_calls.iter().map(|call| Call {
            name: &call.name,
            arguments: call.arguments.as_deref().map(compact),
        });
        for call in &turn.tool_calls {
            if let Some(id) = &call.id {
                functions.insert(id, &call.name);
            }
        }
        let is_tool = turn.role == Role::Tool;
        let text = present(turn.content.as_deref()).unwrap_or(NO_TEXT);
        let called = || {
            turn.tool_call_id
                .as_deref()
                .and_then(|id| functions.get(id).copied())
        };
        entries.push(Entry {
            index: turn.turn_index,
            role: turn.role.name(),
            function: is_tool.then(|| present(called()).unwrap_or(UNKNOWN_FUNCTION)),
            text: if is_tool {
                compact(text)
            } else {
                text.to_owned()
            },
            calls: calls.collect(),
        });
    }
    entries
}

/// JSON text without spaces and needless escapes; other text as it is.
fn compact(text: &str) -> String {
    parse_strict(text).map_or_else(|_| text.to_owned(), |json| json.compact())
}
