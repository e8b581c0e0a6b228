//! Replies of judges, as Regtrace reads them: one JSON document, maybe in a code fence, and numbers that may be
//! missing.

use super::json_tree::{JsonTree, JsonValue};
use super::space::{strip_fences, trim};

/// The document of a reply. None if it is no JSON.
pub(in crate::metric) fn read_reply(reply: &str) -> Option<JsonTree> {
    let mut tree = JsonTree::default();
    tree.read(strip_fences(trim(reply))).then_some(tree)
}

/// The number of this key, held between 0 and 1. None if there is none.
pub(in crate::metric) fn reply_share(
    tree: &JsonTree,
    object: &JsonValue,
    key: &str,
) -> Option<f64> {
    match tree.get(object, key)? {
        JsonValue::Number(number) => Some(number.clamp(0.0, 1.0)),
        _ => None,
    }
}
