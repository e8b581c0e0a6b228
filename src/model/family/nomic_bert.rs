//! Nomic BERT (Nussbaum et al. 2024, arXiv:2402.01613): BERT with turned heads and gates, without most biases. Its folders
//! come in two dialects: that of its own code, and that of transformers since 5.

use serde_json::json;

use super::{Biases, Names, Parts, Places, Plan, check_halves, equal_layers, plain, shape, turn};
use crate::encoder::{Activation, TransformerShape};
use crate::model::ModelError;
use crate::model::config::Config;

/// Only what models of this family leave out; norms have their biases.
const BIASES: Biases = Biases {
    norms: true,
    ..Biases::NONE
};

pub(super) fn read(config: &Config<'_>) -> Result<Plan, ModelError> {
    match config.get("n_embd") {
        Some(_) => read_own(config),
        None => read_of_transformers(config),
    }
}

fn read_of_transformers(config: &Config<'_>) -> Result<Plan, ModelError> {
    let mut shape = shape(config)?;
    shape.head_size = config
        .count_if_there("head_dim")?
        .unwrap_or(shape.head_size);
    shape.activation = config.activation("hidden_act", "silu")?;
    shape.gated = true;
    check_halves(config, &shape)?;
    let turn = turn(config, "rope_theta", 1000.0)?;
    Ok(Plan {
        shape,
        intermediate: config.count("intermediate_size")?,
        layers: equal_layers(config.count("num_hidden_layers")?, Some(turn)),
        places: Places::None,
        biases: BIASES,
        names: names(),
    })
}

/// Those of the family's own code, which transformers writes too, and those of its class there.
fn names() -> Vec<Names> {
    let own = Names {
        prefixes: &["", "bert.", "nomic_bert."],
        embedding_norm: Some("emb_ln"),
        layer: "encoder.layers.",
        query_key_value: Parts::One("attn.Wqkv"),
        attention_output: "attn.out_proj",
        attention_norm: "norm1",
        intermediate: Parts::Apart(&["mlp.fc12", "mlp.fc11"]),
        output: "mlp.fc2",
        output_norm: "norm2",
        ..GATED
    };
    let class = Names {
        prefixes: &["", "nomic_bert."],
        ..GATED
    };
    vec![own, class]
}

/// Names that transformers gives gated BERTs with turned heads.
pub(super) const GATED: Names = Names {
    positions: "",
    layer: "layers.",
    query_key_value: Parts::Apart(&["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
    attention_output: "self_attn.o_proj",
    attention_norm: "post_attention_layernorm",
    intermediate: Parts::Apart(&["mlp.gate_proj", "mlp.up_proj"]),
    output: "mlp.down_proj",
    output_norm: "post_mlp_layernorm",
    ..Names::BERT
};

fn read_own(config: &Config<'_>) -> Result<Plan, ModelError> {
    for (key, wanted) in [
        ("prenorm", json!(false)),
        ("use_rms_norm", json!(false)),
        ("parallel_block", json!(false)),
        ("causal", json!(false)),
        ("rotary_emb_interleaved", json!(false)),
        ("rotary_emb_fraction", json!(1.0)),
        ("activation_function", json!("swiglu")),
        ("qkv_proj_bias", json!(false)),
        ("mlp_fc1_bias", json!(false)),
        ("mlp_fc2_bias", json!(false)),
    ] {
        // 1 and 1.0 are the same number, and not the same JSON.
        let number = config.get(key).and_then(serde_json::Value::as_f64);
        if number.is_none() || number != wanted.as_f64() {
            config.only(key, &wanted)?;
        }
    }
    let (hidden, heads) = (config.count("n_embd")?, config.count("n_head")?);
    if hidden % heads != 0 {
        return Err(config.bad(format!(
            "`n_embd` {hidden} is no multiple of `n_head` {heads}"
        )));
    }
    let positions = config.count("n_positions")?;
    let mut shape =
        TransformerShape::of_bert(hidden, heads, config.count("vocab_size")?, positions);
    shape.epsilon = config.number_or("layer_norm_epsilon", 1e-12)? as f32;
    shape.activation = Activation::Silu;
    shape.gated = true;
    check_halves(config, &shape)?;
    let turn = plain(config.number_or("rotary_emb_base", 1000.0)?);
    // Turns are scaled for texts that are longer than those of training, and only for these.
    if config.get("rotary_scaling_factor").is_some() {
        let trained = config.count_if_there("max_trained_positions")?;
        shape.positions = positions.min(trained.unwrap_or(2048));
        tracing::warn!(
            "texts are cut at {} tokens, those of the model's training: longer ones need scaled turns, which are not supported",
            shape.positions
        );
    }
    Ok(Plan {
        shape,
        intermediate: config.count("n_inner")?,
        layers: equal_layers(config.count("n_layer")?, Some(turn)),
        places: Places::None,
        biases: BIASES,
        names: names(),
    })
}
