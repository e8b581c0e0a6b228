//! What an observation of Langfuse counts: tokens, money, and calls in columns of their own.

use serde_json::Value;

use super::Call;
use super::cell::Cell;
use super::langfuse_row::Row;
use super::values::{at, count, number, text, texts, unwrapped};

/// A map of numbers, also as JSON text or as a list of entries.
fn details(value: Option<&Value>) -> Vec<(String, f64)> {
    match value.cloned().map(unwrapped) {
        Some(Value::Object(members)) => members
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), number(Some(value))?)))
            .collect(),
        Some(Value::Array(entries)) => entries
            .iter()
            .filter_map(|entry| Some((text(entry.get("key"))?, number(entry.get("value"))?)))
            .collect(),
        _ => Vec::new(),
    }
}

/// Tokens in and out.
pub(super) fn tokens(row: &Row<'_>) -> (Option<u64>, Option<u64>) {
    let details = details(row.get("usage_details"));
    let exactly = |name: &str| {
        details
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, count)| *count)
    };
    let (input, output) = (exactly("input"), exactly("output"));
    let of = |side: &str| {
        let mut counts = details
            .iter()
            .filter(|(name, _)| name.starts_with(side))
            .peekable();
        counts.peek()?;
        Some(counts.map(|(_, count)| count).sum::<f64>())
    };
    let (prompt, completion) = match exactly("total") {
        Some(total) if total == input.unwrap_or(0.0) + output.unwrap_or(0.0) => (input, output),
        _ => (of("input"), of("output")),
    };
    let whole = |count: f64| (0.0..9e15).contains(&count).then_some(count as u64);
    (prompt.and_then(whole), completion.and_then(whole))
}

/// US dollars.
pub(super) fn cost(row: &Row<'_>) -> Option<f64> {
    let total = number(row.get("total_cost"));
    let details = details(row.get("cost_details"));
    let of_details = || {
        details
            .iter()
            .find(|(name, _)| name == "total")
            .map(|(_, cost)| *cost)
    };
    // 0 without details only says that nothing was priced.
    total.filter(|cost| *cost > 0.0).or_else(of_details)
}

/// Calls of the column `tool_calls`, whose names are in `tool_call_names`.
pub(super) fn named_calls(row: &Row<'_>) -> Vec<Call> {
    let names = texts(row.get("tool_call_names"));
    let Some(Value::Array(calls)) = row.get("tool_calls").cloned().map(unwrapped) else {
        return Vec::new();
    };
    let mut found: Vec<(u64, Call)> = Vec::with_capacity(calls.len());
    for (at_index, call) in calls.into_iter().map(unwrapped).enumerate() {
        let name = text(call.get("name")).or_else(|| names.get(at_index).cloned());
        let Some(name) = name else { continue };
        let arguments = at(&call, "arguments").or_else(|| at(&call, "function.arguments"));
        let place = count(call.get("index")).unwrap_or(0);
        found.push((
            place,
            Call {
                id: text(call.get("id")),
                name,
                arguments: Cell::new(arguments).map(|cell| cell.document()),
                ..Call::default()
            },
        ));
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, call)| call).collect()
}
