//! Qwen3 (Yang et al. 2025, arXiv:2505.09388), as Qwen3-Embedding uses it: tokens see those before them, and the last one
//! stands for the text.

use serde_json::json;

use super::{
    Biases, Names, Parts, Places, Plan, check_halves, equal_layers, turn, with_norms_before,
};
use crate::encoder::{Mask, NormKind, TransformerShape};
use crate::model::ModelError;
use crate::model::config::Config;

pub(super) fn read(config: &Config<'_>) -> Result<Plan, ModelError> {
    config.only("use_sliding_window", &json!(false))?;
    config.only("is_causal", &json!(true))?;
    let heads = config.count("num_attention_heads")?;
    // The size of a head is a key of its own: the width need not be a multiple of the number of heads.
    let shape = TransformerShape::of_bert(
        config.count("hidden_size")?,
        heads,
        config.count("vocab_size")?,
        config.count("max_position_embeddings")?,
    );
    let mut shape = with_norms_before(shape, NormKind::RootMeanSquare);
    shape.key_heads = config
        .count_if_there("num_key_value_heads")?
        .unwrap_or(heads);
    if heads % shape.key_heads != 0 {
        return Err(config.bad(format!(
            "`num_attention_heads` {heads} is no multiple of `num_key_value_heads` {}",
            shape.key_heads
        )));
    }
    shape.head_size = config.count_if_there("head_dim")?.unwrap_or(128);
    check_halves(config, &shape)?;
    shape.epsilon = config.number_or("rms_norm_eps", 1e-6)? as f32;
    shape.activation = config.activation("hidden_act", "silu")?;
    shape.gated = true;
    let turn = turn(config, "rope_theta", 10_000.0)?;
    let mut layers = equal_layers(config.count("num_hidden_layers")?, Some(turn));
    layers
        .iter_mut()
        .for_each(|layer| layer.mask = Mask::Causal);
    let attention = config.flag_or("attention_bias", false)?;
    Ok(Plan {
        shape,
        intermediate: config.count("intermediate_size")?,
        layers,
        places: Places::None,
        biases: Biases {
            query_key_value: attention,
            attention_output: attention,
            ..Biases::NONE
        },
        names: vec![Names {
            prefixes: &["", "model."],
            words: "embed_tokens",
            positions: "",
            types: None,
            embedding_norm: None,
            layer: "layers.",
            query_key_value: Parts::Apart(&[
                "self_attn.q_proj",
                "self_attn.k_proj",
                "self_attn.v_proj",
            ]),
            head_norms: Some(["self_attn.q_norm", "self_attn.k_norm"]),
            attention_output: "self_attn.o_proj",
            attention_norm: "input_layernorm",
            intermediate: Parts::Apart(&["mlp.gate_proj", "mlp.up_proj"]),
            output: "mlp.down_proj",
            output_norm: "post_attention_layernorm",
            last_norm: Some("norm"),
            buckets: "",
        }],
    })
}
