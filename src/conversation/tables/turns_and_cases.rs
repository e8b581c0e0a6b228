//! From rows of the tables `turns` and `cases` to turns and cases (as in Connexity).

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::conversation::{Case, Turn};
use crate::trace::{BadRow, TableColumns, label};

/// The table of turns: one row a turn. Its `timestamp` is of no use to a judge.
pub(crate) const TURNS: TableColumns<'static> = TableColumns {
    table: "turns",
    names: &[
        "session_id",
        "turn_index",
        "role",
        "content",
        "tool_calls",
        "tool_call_id",
        "latency_ms",
        "token_count",
    ],
    required: &["session_id", "turn_index", "role", "content"],
    structured: &["tool_calls"],
};

/// The table of cases: one row a transcript. `expected_outcomes` of older files may be an object, also as JSON text.
pub(crate) const CASES: TableColumns<'static> = TableColumns {
    table: "cases",
    names: &[
        "session_id",
        "test_case",
        "repetition_index",
        "name",
        "difficulty",
        "tags",
        "status",
        "expected_outcomes",
        "expected_tool_calls",
        "evaluation_criteria_override",
        "agent_system_prompt",
        "agent_tools",
        "agent_token_usage",
        "platform_token_usage",
        "agent_cost_usd",
        "platform_cost_usd",
        "error",
    ],
    required: &["session_id"],
    structured: &["tags", "expected_outcomes", "expected_tool_calls"],
};

/// The session of a row: a text that is not empty, or a whole number.
pub(crate) fn session_of(cells: &Map<String, Value>) -> Result<String, BadRow> {
    label(cells, "session_id")
        .ok_or_else(|| BadRow::value("session_id", "neither a text nor a whole number"))
}

/// The turn of a row.
pub(crate) fn turn_of(cells: Map<String, Value>) -> Result<Turn, BadRow> {
    for column in ["turn_index", "role"] {
        if !cells.contains_key(column) {
            return Err(BadRow::value(column, "null"));
        }
    }
    let turn: Turn = read(cells, json!({"turn_index": 0, "role": "user"}))?;
    match turn.turn_index {
        0.. => Ok(turn),
        below => Err(BadRow::value(
            "turn_index",
            format!("{below}; turns are numbered from 0"),
        )),
    }
}

/// The case of a row.
pub(crate) fn case_of(mut cells: Map<String, Value>) -> Result<Case, BadRow> {
    for name in ["session_id", "test_case"] {
        if let Some(Value::Number(number)) = cells.get(name) {
            let text = number.to_string();
            cells.insert(name.to_owned(), text.into());
        }
    }
    let case: Case = read(cells, json!({}))?;
    match case.repetition_index {
        0.. => Ok(case),
        below => Err(BadRow::value(
            "repetition_index",
            format!("{below}; repetitions are numbered from 0"),
        )),
    }
}

/// Reads a row's cells; `base` is the least that makes a whole, so that a fault can be laid at one column.
fn read<T: DeserializeOwned>(cells: Map<String, Value>, base: Value) -> Result<T, BadRow> {
    let row = Value::Object(cells);
    let problem = match T::deserialize(&row) {
        Ok(whole) => return Ok(whole),
        Err(problem) => problem,
    };
    for (column, cell) in row.as_object().into_iter().flatten() {
        let mut alone = base.clone();
        if let Value::Object(members) = &mut alone {
            members.insert(column.clone(), cell.clone());
        }
        if let Err(problem) = T::deserialize(alone) {
            return Err(BadRow::value(column, problem.to_string()));
        }
    }
    Err(BadRow::value("", problem.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::{CaseStatus, Role};

    fn cells(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_turn_needs_its_index_and_a_role_that_exists() {
        let turn = turn_of(cells(
            json!({"session_id": "s", "turn_index": 3, "role": "tool",
            "content": "ok", "tool_call_id": "c", "latency_ms": 12}),
        ));
        let turn = turn.unwrap();
        assert_eq!((turn.turn_index, turn.role), (3, Role::Tool));
        assert_eq!(turn.latency_ms, Some(12));
        for (row, column) in [
            (json!({"role": "user"}), "turn_index"),
            (json!({"turn_index": 0}), "role"),
            (json!({"turn_index": 0, "role": "agent"}), "role"),
            (json!({"turn_index": -1, "role": "user"}), "turn_index"),
            (json!({"turn_index": 0.5, "role": "user"}), "turn_index"),
            (
                json!({"turn_index": 5_000_000_000_i64, "role": "user"}),
                "turn_index",
            ),
            (
                json!({"turn_index": 0, "role": "user", "content": ["x"]}),
                "content",
            ),
            (
                json!({"turn_index": 0, "role": "assistant", "tool_calls": "look_up"}),
                "tool_calls",
            ),
        ] {
            let bad = turn_of(cells(row.clone())).unwrap_err();
            assert_eq!(bad.column, column, "{row}: {}", bad.reason);
        }
    }

    #[test]
    fn cases_have_their_defaults_and_older_outcomes_become_statements() {
        let case = case_of(cells(json!({"session_id": 7}))).unwrap();
        assert_eq!((case.test_case(), case.status), ("7", CaseStatus::Active));
        let older = json!({"session_id": "s", "expected_outcomes": {"refund": true, "by": "card"}});
        let older = case_of(cells(older)).unwrap();
        assert_eq!(older.outcomes(), ["refund: true", "by: card"]);
        for (column, value) in [
            ("status", json!("live")),
            ("difficulty", json!("easy")),
            ("expected_outcomes", json!("refund")),
            ("expected_tool_calls", json!([{"name": "f"}])),
            ("repetition_index", json!(-1)),
            ("agent_cost_usd", json!("much")),
        ] {
            let mut row = cells(json!({"session_id": "s"}));
            row.insert(column.to_owned(), value);
            assert_eq!(case_of(row).unwrap_err().column, column);
        }
    }

    #[test]
    fn a_session_is_a_text_or_a_whole_number() {
        let session = |value: Value| session_of(&cells(json!({"session_id": value})));
        assert_eq!(session(json!("a")).unwrap(), "a");
        assert_eq!(session(json!(12)).unwrap(), "12");
        for bad in [json!(""), json!(1.5), json!(["a"])] {
            assert!(session(bad).is_err());
        }
        assert!(session_of(&Map::new()).is_err());
    }
}
