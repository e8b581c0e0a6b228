//! What is judged: a test case and the turns of its transcript (as in Connexity).

use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::conversation::question::token_usage::TokenUsage;
use crate::text::{Json, parse_strict};
use crate::trace::{ToolCall, json_text};

/// Who speaks in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person, or the simulator in their place.
    User,
    /// The agent under judgement.
    Assistant,
    /// An instruction inside of the conversation.
    System,
    /// The answer of a tool.
    Tool,
}

/// A name that is no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no role of a turn; use `user`, `assistant`, `system` or `tool`")]
pub struct UnknownRole(String);

impl Role {
    /// The name in tables, such as `assistant`.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::System => "system",
            Self::Tool => "tool",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, UnknownRole> {
        let all = [Self::User, Self::Assistant, Self::System, Self::Tool];
        let found = all.into_iter().find(|role| role.name() == name);
        found.ok_or_else(|| UnknownRole(name.to_owned()))
    }
}

/// One turn of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Zero-based; the number that the judge cites.
    pub turn_index: i32,
    /// Who speaks.
    pub role: Role,
    /// Null for an assistant turn that only calls tools.
    #[serde(default)]
    pub content: Option<String>,
    /// The calls, in order.
    #[serde(default, deserialize_with = "or_default")]
    pub tool_calls: Vec<ToolCall>,
    /// On `tool` turns: which call this answers.
    #[serde(default)]
    pub tool_call_id: Option<String>,
    /// How long the turn took, in milliseconds.
    #[serde(default)]
    pub latency_ms: Option<i64>,
    /// How many tokens it has.
    #[serde(default)]
    pub token_count: Option<i64>,
}

impl Turn {
    /// Whether this turn calls a tool or is the answer of one.
    pub fn involves_tools(&self) -> bool {
        self.role == Role::Tool || !self.tool_calls.is_empty()
    }
}

/// How hard a test case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difficulty {
    /// Everyday.
    Normal,
    /// Built to be hard.
    Hard,
}

impl Difficulty {
    /// The name in tables: `normal` or `hard`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Hard => "hard",
        }
    }
}

/// Whether a test case is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseStatus {
    /// Still being written.
    Draft,
    /// In use.
    #[default]
    Active,
    /// No longer in use.
    Archived,
}

/// A tool call that a test case expects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExpectedToolCall {
    /// The function's name.
    pub tool: String,
    /// JSON text of the expected arguments, as found.
    #[serde(default, deserialize_with = "json_text")]
    pub expected_params: Option<String>,
}

/// What is known about one transcript: a test case, or a production session without expectations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Case {
    /// The transcript's session.
    pub session_id: String,
    /// The test case; see [`Case::test_case`].
    pub test_case: Option<String>,
    /// Which repetition of the test case this is.
    #[serde(deserialize_with = "or_default")]
    pub repetition_index: i32,
    /// The name for people.
    pub name: Option<String>,
    /// How hard it is.
    pub difficulty: Option<Difficulty>,
    /// Free labels.
    #[serde(deserialize_with = "or_default")]
    pub tags: Vec<String>,
    /// Absent: active.
    #[serde(deserialize_with = "or_default")]
    pub status: CaseStatus,
    /// Statements that must hold. An object, the older form, becomes a list of `key: value`.
    #[serde(deserialize_with = "outcomes")]
    pub expected_outcomes: Option<Vec<String>>,
    /// Tool calls that should occur.
    pub expected_tool_calls: Option<Vec<ExpectedToolCall>>,
    /// Extra emphasis of the test's author for this case.
    pub evaluation_criteria_override: Option<String>,
    /// The agent's system prompt during the conversation.
    pub agent_system_prompt: Option<String>,
    /// JSON text: the agent's tools during the conversation.
    #[serde(deserialize_with = "json_text")]
    pub agent_tools: Option<String>,
    /// Tokens that the agent used.
    pub agent_token_usage: Option<TokenUsage>,
    /// Tokens that the test platform used.
    pub platform_token_usage: Option<TokenUsage>,
    /// Cost of the agent, in US dollars.
    pub agent_cost_usd: Option<f64>,
    /// Cost of the test platform, in US dollars.
    pub platform_cost_usd: Option<f64>,
    /// The conversation itself failed.
    pub error: Option<String>,
}

impl Case {
    /// The test case's id: by default the session's.
    pub fn test_case(&self) -> &str {
        self.test_case.as_deref().unwrap_or(&self.session_id)
    }

    /// The expected outcomes; empty if there are none.
    pub fn outcomes(&self) -> &[String] {
        self.expected_outcomes.as_deref().unwrap_or_default()
    }

    /// Whether the agent had tools, as far as is known: its tools are neither absent, blank, null nor an empty list.
    pub fn has_agent_tools(&self) -> bool {
        let text = self.agent_tools.as_deref().unwrap_or_default().trim();
        let nothing = [Json::Null, Json::Array(Vec::new())];
        !text.is_empty() && parse_strict(text).map_or(true, |json| !nothing.contains(&json))
    }
}

/// Why a case is not judged. Its verdict is null and `case_passed` is false.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotJudged {
    /// The conversation itself failed.
    Failed,
    /// There is no turn.
    NoTurns,
}

/// Whether a case takes part in an evaluation: only active ones do, unless asked otherwise.
pub fn takes_part(case: &Case, all_statuses: bool) -> bool {
    all_statuses || case.status == CaseStatus::Active
}

/// Why this case is not judged; `None` if it is. A blank `error` counts as none.
pub fn not_judged(case: &Case, turns: &[Turn]) -> Option<NotJudged> {
    if is_error(case.error.as_deref()) {
        return Some(NotJudged::Failed);
    }
    turns.is_empty().then_some(NotJudged::NoTurns)
}

/// Whether an `error` cell says that something failed.
pub(in crate::conversation) fn is_error(cell: Option<&str>) -> bool {
    cell.is_some_and(|text| !text.trim().is_empty())
}

/// Null as the default value.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    source: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(source)?.unwrap_or_default())
}

/// A list of statements, or the older object form in its stored order.
fn outcomes<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Vec<String>>, D::Error> {
    struct Statements;
    impl<'de> Visitor<'de> for Statements {
        type Value = Option<Vec<String>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of statements, an object, or null")
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            let mut statements = Vec::new();
            while let Some(statement) = items.next_element()? {
                statements.push(statement);
            }
            Ok(Some(statements))
        }

        fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
            let mut statements = Vec::new();
            while let Some((key, value)) = members.next_entry::<String, Value>()? {
                statements.push(match value {
                    Value::String(text) => format!("{key}: {text}"),
                    other => format!("{key}: {other}"),
                });
            }
            Ok(Some(statements))
        }
    }
    source.deserialize_any(Statements)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(json: &str) -> Case {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_older_form_of_outcomes_becomes_statements_in_stored_order() {
        let older = case(
            r#"{"session_id":"s","expected_outcomes":{"refund":true,"amount":12,"by":"card"}}"#,
        );
        assert_eq!(older.outcomes(), ["refund: true", "amount: 12", "by: card"]);
        assert!(case(r#"{"expected_outcomes":null}"#).outcomes().is_empty());
        assert!(serde_json::from_str::<Case>(r#"{"expected_outcomes":"x"}"#).is_err());
    }

    #[test]
    fn absent_and_null_columns_have_their_defaults() {
        let null = case(
            r#"{"session_id":"s","test_case":null,"status":null,"tags":null,"repetition_index":null}"#,
        );
        assert_eq!(null, case(r#"{"session_id":"s"}"#));
        assert_eq!((null.test_case(), null.status), ("s", CaseStatus::Active));
        assert!(takes_part(&null, false));
        let draft = case(r#"{"status":"draft"}"#);
        assert!(!takes_part(&draft, false) && takes_part(&draft, true));
    }

    #[test]
    fn failed_and_empty_cases_are_not_judged() {
        let turn: Turn =
            serde_json::from_str(r#"{"turn_index":0,"role":"user","content":"hi"}"#).unwrap();
        let turns = [turn];
        assert_eq!(
            not_judged(&case(r#"{"error":"boom"}"#), &turns),
            Some(NotJudged::Failed)
        );
        assert_eq!(
            not_judged(&case(r#"{"error":"boom"}"#), &[]),
            Some(NotJudged::Failed)
        );
        assert_eq!(not_judged(&case(r#"{"error":" "}"#), &turns), None);
        assert_eq!(not_judged(&case("{}"), &[]), Some(NotJudged::NoTurns));
    }

    #[test]
    fn arguments_may_come_as_text_or_as_json() {
        let call = |json: &str| serde_json::from_str::<ToolCall>(json).unwrap().arguments;
        assert_eq!(
            call(r#"{"name":"f","arguments":"{\"a\": 1}"}"#).as_deref(),
            Some(r#"{"a": 1}"#)
        );
        assert_eq!(
            call(r#"{"name":"f","arguments":{"a": 1}}"#).as_deref(),
            Some(r#"{"a":1}"#)
        );
        assert_eq!(call(r#"{"name":"f"}"#), None);
        assert!("agent".parse::<Role>().is_err());
        assert_eq!("tool".parse::<Role>(), Ok(Role::Tool));
    }
}
