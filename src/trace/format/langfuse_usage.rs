//! What an observation of Langfuse counts: tokens, money, and calls in columns of their own.

use serde_json::Value;

use super::Call;
use super::cell::Cell;
use super::langfuse_row::Row;
use super::values::{amount, at, count, text, texts, unwrapped};

/// A map of numbers, also as JSON text or as a list of entries.
fn details(value: Option<&Value>) -> Vec<(String, f64)> {
    match value.cloned().map(unwrapped) {
        Some(Value::Object(members)) => members
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), amount(Some(value))?)))
            .collect(),
        Some(Value::Array(entries)) => entries
            .iter()
            .filter_map(|entry| Some((text(entry.get("key"))?, amount(entry.get("value"))?)))
            .collect(),
        _ => Vec::new(),
    }
}

/// Tokens in and out, and how many of these counts are no whole numbers.
pub(super) fn tokens(row: &Row<'_>) -> (Option<u64>, Option<u64>, u32) {
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
    // As providers call them, where nobody translated that.
    let prompt = prompt.or_else(|| exactly("prompt_tokens").or_else(|| exactly("promptTokens")));
    let completion =
        completion.or_else(|| exactly("completion_tokens").or_else(|| exactly("completionTokens")));
    let mut odd = 0;
    let mut whole = |count: Option<f64>| {
        let count = count?;
        let is_whole = (0.0..9e15).contains(&count) && count.fract() == 0.0;
        odd += u32::from(!is_whole);
        is_whole.then_some(count as u64)
    };
    let (prompt, completion) = (whole(prompt), whole(completion));
    (prompt, completion, odd)
}

/// US dollars.
pub(super) fn cost(row: &Row<'_>) -> Option<f64> {
    let total = amount(row.get("total_cost"));
    let details = details(row.get("cost_details"));
    let of_details = || {
        let total = details.iter().find(|(name, _)| name == "total");
        let parts = details.iter().map(|(_, cost)| cost);
        match total {
            Some((_, cost)) => Some(*cost),
            None => (!details.is_empty()).then(|| parts.sum()),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_and_costs_are_found_under_all_names() {
        for (usage, expected) in [
            (
                json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}),
                (Some(10), Some(5), 0),
            ),
            (
                json!("{\"input\":10,\"input_cached\":2,\"output\":5}"),
                (Some(12), Some(5), 0),
            ),
            (json!({"input": 1.5, "output": 5}), (None, Some(5), 1)),
        ] {
            let row =
                json!({"usage_details": usage, "cost_details": "{\"input\":0.25,\"output\":0.5}"});
            let row = row.as_object().unwrap();
            assert_eq!(tokens(&Row::new(row)), expected, "{usage}");
            assert_eq!(cost(&Row::new(row)), Some(0.75));
        }
    }
}
