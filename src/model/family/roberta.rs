//! RoBERTa and XLM-RoBERTa (Liu et al. 2019, arXiv:1907.11692; Conneau et al. 2019, arXiv:1911.02116): BERT, whose
//! positions begin behind that of the padding token.

use super::{Names, Plan, bert};
use crate::model::ModelError;
use crate::model::config::Config;

pub(super) fn read(config: &Config<'_>) -> Result<Plan, ModelError> {
    let names = Names {
        prefixes: &["", "roberta."],
        ..Names::BERT
    };
    bert::of(config, first_position(config)?, names)
}

/// The row of the first token's position: 0 belongs to no token, and the next one to padding.
fn first_position(config: &Config<'_>) -> Result<usize, ModelError> {
    let padding = match config.get("pad_token_id") {
        Some(value) if value.as_u64() == Some(0) => 0,
        _ => config.count_if_there("pad_token_id")?.unwrap_or(1),
    };
    Ok(padding + 1)
}
