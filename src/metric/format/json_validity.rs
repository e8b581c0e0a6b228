//! `json_validity`: whether the output is JSON.

use crate::metric::comparison::{JsonTree, strip_fences};

/// Reads the output into `tree`; whether it is JSON. A code fence around it is no part of it, unless `strict`.
pub(super) fn read(actual: &str, strict: bool, tree: &mut JsonTree) -> bool {
    tree.read(match strict {
        true => actual,
        false => strip_fences(actual),
    })
}
