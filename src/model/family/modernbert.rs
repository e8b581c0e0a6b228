//! ModernBERT (Warner et al. 2024, arXiv:2412.13663): norms before attention, turned heads, gates, and layers that see
//! only what is near.

use serde_json::Value;

use super::{
    Biases, LayerPlan, Names, Parts, Places, Plan, check_halves, plain, shape, turn, turn_of,
    with_norms_before,
};
use crate::encoder::{Mask, NormKind, Turn};
use crate::model::ModelError;
use crate::model::config::Config;

pub(super) fn read(config: &Config<'_>) -> Result<Plan, ModelError> {
    let mut shape = with_norms_before(shape(config)?, NormKind::Layer);
    shape.epsilon = config.number_or("norm_eps", 1e-5)? as f32;
    shape.activation = config.activation("hidden_activation", "gelu")?;
    shape.gated = true;
    check_halves(config, &shape)?;
    let count = config.count("num_hidden_layers")?;
    let near = Mask::Near(config.count_if_there("local_attention")?.unwrap_or(128) / 2);
    let kinds = kinds_of_layers(config, count)?;
    let [global, local] = turns(config)?;
    let layers = kinds
        .into_iter()
        .enumerate()
        .map(|(at, global_layer)| LayerPlan {
            mask: if global_layer { Mask::All } else { near },
            turn: Some(if global_layer { global } else { local }),
            // The first layer comes right behind the norm of the embeddings.
            attention_norm: at > 0,
        });
    let attention = config.flag_or("attention_bias", false)?;
    let mlp = config.flag_or("mlp_bias", false)?;
    Ok(Plan {
        shape,
        intermediate: config.count("intermediate_size")?,
        layers: layers.collect(),
        places: Places::None,
        biases: Biases {
            query_key_value: attention,
            attention_output: attention,
            intermediate: mlp,
            output: mlp,
            norms: config.flag_or("norm_bias", false)?,
        },
        names: vec![Names {
            prefixes: &["", "model."],
            words: "embeddings.tok_embeddings",
            positions: "",
            types: None,
            embedding_norm: Some("embeddings.norm"),
            layer: "layers.",
            query_key_value: Parts::One("attn.Wqkv"),
            head_norms: None,
            attention_output: "attn.Wo",
            attention_norm: "attn_norm",
            intermediate: Parts::One("mlp.Wi"),
            output: "mlp.Wo",
            output_norm: "mlp_norm",
            last_norm: Some("final_norm"),
            buckets: "",
        }],
    })
}

/// Of each layer whether it sees all.
fn kinds_of_layers(config: &Config<'_>, count: usize) -> Result<Vec<bool>, ModelError> {
    let Some(kinds) = config.get("layer_types") else {
        let every = config.count_if_there("global_attn_every_n_layers")?;
        let every = every.unwrap_or(3);
        return Ok((0..count).map(|at| at.is_multiple_of(every)).collect());
    };
    let kinds = kinds.as_array().into_iter().flatten().map(Value::as_str);
    let kinds: Option<Vec<bool>> = kinds
        .map(|kind| match kind {
            Some("full_attention") => Some(true),
            Some("sliding_attention") => Some(false),
            _ => None,
        })
        .collect();
    kinds.filter(|kinds| kinds.len() == count).ok_or_else(|| {
        config.bad(format!(
            "key `layer_types` does not say full_attention or sliding_attention of {count} layers"
        ))
    })
}

/// The turns of layers that see all, and of the others.
fn turns(config: &Config<'_>) -> Result<[Turn; 2], ModelError> {
    const GLOBAL: f64 = 160_000.0;
    const LOCAL: f64 = 10_000.0;
    let Some(parameters) = config.get("rope_parameters") else {
        let global = turn(config, "global_rope_theta", GLOBAL)?;
        let local = config.number_or("local_rope_theta", LOCAL)?;
        return Ok([global, plain(local)]);
    };
    let of = |kind: &str, key: &str, default| {
        let default = config.number_or(key, default)?;
        match parameters.get(kind) {
            Some(parameters) => turn_of(config, parameters, default),
            None => Ok(plain(default)),
        }
    };
    Ok([
        of("full_attention", "global_rope_theta", GLOBAL)?,
        of("sliding_attention", "local_rope_theta", LOCAL)?,
    ])
}
