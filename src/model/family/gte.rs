//! GTE (Zhang et al. 2024, arXiv:2407.19669): BERT with turned heads and gates. Its folders come in two dialects: that of its
//! own code (`new`), and that of transformers since 5 (`gte`).

use serde_json::{Value, json};

use super::nomic_bert::GATED;
use super::{Biases, Names, Parts, Places, Plan, check_halves, equal_layers, plain, shape, turn};
use crate::encoder::Turn;
use crate::model::ModelError;
use crate::model::config::Config;

pub(super) fn read(config: &Config<'_>) -> Result<Plan, ModelError> {
    config.only("position_embedding_type", &json!("rope"))?;
    config.only("pack_qkv", &json!(true))?;
    config.only("layer_norm_type", &json!("layer_norm"))?;
    config.only("logn_attention_scale", &json!(false))?;
    let mut shape = shape(config)?;
    shape.activation = config.activation("hidden_act", "gelu")?;
    shape.gated = true;
    check_halves(config, &shape)?;
    let own = config.text_or("model_type", "gte")? == "new";
    let turn = match own {
        true => own_turn(config)?,
        false => turn(config, "rope_theta", 160_000.0)?,
    };
    let types = config.get("type_vocab_size").and_then(Value::as_u64);
    let types = Names::BERT.types.filter(|_| types != Some(0));
    // Those of the family's own code, which transformers writes too, and those of its class there.
    let of_own_code = Names {
        prefixes: &["", "new.", "gte."],
        layer: "encoder.layer.",
        query_key_value: Parts::One("attention.qkv_proj"),
        attention_output: "attention.o_proj",
        attention_norm: "attn_ln",
        intermediate: Parts::Turned("mlp.up_gate_proj"),
        output_norm: "mlp_ln",
        types,
        ..GATED
    };
    let of_class = Names {
        prefixes: &["", "gte."],
        types,
        ..GATED
    };
    Ok(Plan {
        shape,
        intermediate: config.count("intermediate_size")?,
        layers: equal_layers(config.count("num_hidden_layers")?, Some(turn)),
        places: Places::None,
        biases: Biases {
            intermediate: false,
            ..Biases::ALL
        },
        names: vec![of_own_code, of_class],
    })
}

/// Turns of the family's own code: they may be scaled for longer texts than those of the first training, and are then
/// scaled for all texts.
fn own_turn(config: &Config<'_>) -> Result<Turn, ModelError> {
    let Some(scaling) = config.get("rope_scaling") else {
        return Ok(plain(config.number_or("rope_theta", 10_000.0)?));
    };
    let factor = scaling.get("factor").and_then(Value::as_f64);
    let mixed = scaling.get("mixed_b").filter(|mixed| !mixed.is_null());
    match (scaling.get("type").and_then(Value::as_str), factor, mixed) {
        (Some("ntk"), Some(factor), None) if factor >= 1.0 && factor.is_finite() => {
            let base = config.number_or("rope_theta", 10_000.0)?;
            if factor == 1.0 {
                return Ok(plain(base));
            }
            let head = config.count("hidden_size")? / config.count("num_attention_heads")?;
            Ok(Turn {
                base: base * factor,
                pace: factor.powf(-2.0 / head as f64),
            })
        }
        _ => Err(config.bad(format!(
            "key `rope_scaling` is {scaling}: of scaled turns only those of type `ntk` with a `factor` are supported"
        ))),
    }
}
