//! BERT (Devlin et al. 2018, arXiv:1810.04805).

use serde_json::json;

use super::{Biases, Names, Places, Plan, equal_layers, jina_bert, shape};
use crate::model::ModelError;
use crate::model::config::Config;

pub(super) fn read(config: &Config<'_>) -> Result<Plan, ModelError> {
    match config.text_or("position_embedding_type", "absolute")? {
        "alibi" => jina_bert::read(config),
        _ => of(config, 0, Names::BERT),
    }
}

/// A BERT whose first token has this row of the table of positions.
pub(super) fn of(
    config: &Config<'_>,
    first_position: usize,
    names: Names,
) -> Result<Plan, ModelError> {
    config.only("position_embedding_type", &json!("absolute"))?;
    config.only("is_decoder", &json!(false))?;
    let mut shape = shape(config)?;
    shape.activation = config.activation("hidden_act", "gelu")?;
    let rows = shape.positions;
    shape.positions = rows
        .checked_sub(first_position)
        .filter(|n| *n > 0)
        .ok_or_else(|| {
            config.bad(format!(
                "`max_position_embeddings` {rows} leaves no position behind that of `pad_token_id`"
            ))
        })?;
    Ok(Plan {
        shape,
        intermediate: config.count("intermediate_size")?,
        layers: equal_layers(config.count("num_hidden_layers")?, None),
        places: Places::Learned(first_position),
        biases: Biases::ALL,
        names: vec![names],
    })
}
