//! Tone as a judge sees it.

use super::{Dimension, Tone, ToneRules, nothing_counts, result};
use crate::metric::comparison::{Compat, JsonTree, JsonValue, read_reply, reply_share};

/// Reads a judge's reply, which cost `cost` cents; it may be in a code fence. If it has no number for a dimension that
/// counts, the score is its number for the whole. None if that is missing too, or the reply is no JSON: then
/// [`heuristic`](super::heuristic) says the score.
///
/// The tool takes the number for the whole whatever the dimensions are.
pub fn judged(reply: &str, threshold: f64, rules: &ToneRules, cost: Option<f64>) -> Option<Tone> {
    if !rules.asks_judge() {
        return Some(nothing_counts(threshold));
    }
    let tree = read_reply(reply)?;
    let root = tree.root();
    let overall = reply_share(&tree, root, "overall");
    let dimensions = tree.get(root, "dimensions").unwrap_or(&JsonValue::Null);
    let mut values = [None; 5];
    let mut is_whole = rules.compat == Compat::Tool;
    let parts = Dimension::ALL.into_iter().zip(rules.dimensions);
    for (value, (dimension, part)) in values.iter_mut().zip(parts) {
        if part.counted(rules.compat).is_some() {
            let said = reply_share(&tree, dimensions, dimension.name());
            is_whole |= said.is_none();
            *value = said.or(overall);
        }
    }
    let mut tone = result(values, threshold, rules);
    if is_whole {
        tone.checked.score = overall?;
        tone.checked.passed = tone.checked.score >= threshold;
    }
    tone.checked.confidence = reply_share(&tree, root, "confidence").unwrap_or(0.5);
    tone.checked.judged = true;
    tone.checked.token_cost = cost;
    if let Some(said) = explanation(&tree) {
        tone.checked.explanation.push(' ');
        tone.checked.explanation.push_str(said);
    }
    Some(tone)
}

fn explanation(tree: &JsonTree) -> Option<&str> {
    match tree.get(tree.root(), "explanation")? {
        JsonValue::Text(text) => Some(tree.text(text).trim()).filter(|said| !said.is_empty()),
        _ => None,
    }
}
