//! DistilBERT (Sanh et al. 2019, arXiv:1910.01108): BERT under other names, without types of tokens.

use serde_json::json;

use super::{Biases, Names, Parts, Places, Plan, equal_layers, shape_of};
use crate::model::ModelError;
use crate::model::config::Config;

pub(super) fn read(config: &Config<'_>) -> Result<Plan, ModelError> {
    config.only("sinusoidal_pos_embds", &json!(false))?;
    let mut shape = shape_of(config, ["dim", "n_heads"])?;
    shape.activation = config.activation("activation", "gelu")?;
    // It has no key of it.
    shape.epsilon = 1e-12;
    Ok(Plan {
        shape,
        intermediate: config.count("hidden_dim")?,
        layers: equal_layers(config.count("n_layers")?, None),
        places: Places::Learned(0),
        biases: Biases::ALL,
        names: vec![Names {
            prefixes: &["", "distilbert."],
            types: None,
            layer: "transformer.layer.",
            query_key_value: Parts::Apart(&[
                "attention.q_lin",
                "attention.k_lin",
                "attention.v_lin",
            ]),
            attention_output: "attention.out_lin",
            attention_norm: "sa_layer_norm",
            intermediate: Parts::One("ffn.lin1"),
            output: "ffn.lin2",
            output_norm: "output_layer_norm",
            ..Names::BERT
        }],
    })
}
