//! Families of transformers: each turns its `config.json` into one plain description of sizes, kinds and names of tensors.

mod bert;
mod distilbert;
mod gte;
pub(super) mod jina_bert;
mod modernbert;
pub(super) mod mpnet;
mod nomic_bert;
mod qwen3;
mod roberta;

use serde_json::{Value, json};

use super::config::Config;
use super::{ModelError, ModelFolder};
use crate::encoder::{Mask, NormKind, NormPlace, TransformerShape, Turn};

/// A transformer as its configuration describes it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub shape: TransformerShape,
    /// Components between the feed-forward layers.
    pub intermediate: usize,
    pub layers: Vec<LayerPlan>,
    /// What tells tokens their places beside `LayerPlan::turn`.
    pub places: Places,
    pub biases: Biases,
    /// What tensors may be called: those are meant that the file has.
    pub names: Vec<Names>,
}

/// What differs from layer to layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerPlan {
    pub mask: Mask,
    /// How queries and keys are turned.
    pub turn: Option<Turn>,
    /// Whether attention has a norm.
    pub attention_norm: bool,
}

/// What tells tokens their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    /// Nothing but turns.
    None,
    /// A table whose row of the first token has this number.
    Learned(usize),
    /// The same, and a bias for each head by buckets of distances, so many.
    Buckets(usize, usize),
    /// A bias that falls with the distance, in each head by another slope.
    Slopes,
}

/// Which linear layers and norms have a bias. One that should have one, and has none, is an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Biases {
    pub query_key_value: bool,
    pub attention_output: bool,
    pub intermediate: bool,
    pub output: bool,
    pub norms: bool,
}

impl Biases {
    pub const ALL: Self = Self {
        query_key_value: true,
        attention_output: true,
        intermediate: true,
        output: true,
        norms: true,
    };
    pub const NONE: Self = Self {
        query_key_value: false,
        attention_output: false,
        intermediate: false,
        output: false,
        norms: false,
    };
}

/// Tensors that are one linear layer here.
#[derive(Clone, Copy, Debug)]
pub(super) enum Parts {
    /// One tensor.
    One(&'static str),
    /// One tensor of two halves in the other order: the second is activated.
    Turned(&'static str),
    /// Several, one after the other.
    Apart(&'static [&'static str]),
}

/// What tensors are called, without `.weight` and `.bias`. Names of layers stand behind `layer`, the number and a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    /// What may stand before all names.
    pub prefixes: &'static [&'static str],
    pub words: &'static str,
    pub positions: &'static str,
    /// The embeddings of types of tokens, of which the first one is added to all.
    pub types: Option<&'static str>,
    pub embedding_norm: Option<&'static str>,
    pub layer: &'static str,
    pub query_key_value: Parts,
    /// Norms of queries and keys.
    pub head_norms: Option<[&'static str; 2]>,
    pub attention_output: &'static str,
    pub attention_norm: &'static str,
    pub intermediate: Parts,
    pub output: &'static str,
    pub output_norm: &'static str,
    pub last_norm: Option<&'static str>,
    /// The bias by buckets of distances.
    pub buckets: &'static str,
}

impl Names {
    /// Those of BERT.
    const BERT: Self = Self {
        prefixes: &["", "bert."],
        words: "embeddings.word_embeddings",
        positions: "embeddings.position_embeddings",
        types: Some("embeddings.token_type_embeddings"),
        embedding_norm: Some("embeddings.LayerNorm"),
        layer: "encoder.layer.",
        query_key_value: Parts::Apart(&[
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
        ]),
        head_norms: None,
        attention_output: "attention.output.dense",
        attention_norm: "attention.output.LayerNorm",
        intermediate: Parts::One("intermediate.dense"),
        output: "output.dense",
        output_norm: "output.LayerNorm",
        last_norm: None,
        buckets: "",
    };
}

/// Turns a configuration into a description.
type Read = fn(&Config<'_>) -> Result<Plan, ModelError>;

/// The families, by the `model_type` of their configuration.
const FAMILIES: [(&str, Read); 11] = [
    ("bert", bert::read),
    ("roberta", roberta::read),
    ("xlm-roberta", roberta::read),
    ("camembert", roberta::read),
    ("distilbert", distilbert::read),
    ("mpnet", mpnet::read),
    ("modernbert", modernbert::read),
    ("nomic_bert", nomic_bert::read),
    ("gte", gte::read),
    ("new", gte::read),
    ("qwen3", qwen3::read),
];

/// The description of the transformer whose `config.json` is in a folder.
///
/// # Errors
/// [`ModelError`] naming the key; of an unknown family, those that are known.
pub(super) fn read(folder: &ModelFolder, file: &str) -> Result<Plan, ModelError> {
    let config = Config::required(folder, file)?;
    let kind = config.text_or("model_type", "unknown")?;
    match FAMILIES.iter().find(|(name, _)| *name == kind) {
        Some((_, read)) => read(&config),
        None => {
            let names = FAMILIES.map(|(name, _)| name).join(", ");
            Err(folder.unsupported(format!(
                "{file} says model_type `{kind}`; this version encodes {names}, and static tables (Model2Vec)"
            )))
        }
    }
}

/// Sizes under the names that most families give them.
fn shape(config: &Config<'_>) -> Result<TransformerShape, ModelError> {
    shape_of(config, ["hidden_size", "num_attention_heads"])
}

/// The same under other names of the width and of the number of heads.
fn shape_of(
    config: &Config<'_>,
    [hidden, heads]: [&str; 2],
) -> Result<TransformerShape, ModelError> {
    let (width, count) = (config.count(hidden)?, config.count(heads)?);
    if width % count != 0 {
        return Err(config.bad(format!(
            "`{hidden}` {width} is no multiple of `{heads}` {count}"
        )));
    }
    let mut shape = TransformerShape::of_bert(
        width,
        count,
        config.count("vocab_size")?,
        config.count("max_position_embeddings")?,
    );
    shape.epsilon = config.number_or("layer_norm_eps", 1e-12)? as f32;
    Ok(shape)
}

/// So many layers that attend to all, with norms.
fn equal_layers(count: usize, turn: Option<Turn>) -> Vec<LayerPlan> {
    let layer = LayerPlan {
        mask: Mask::All,
        turn,
        attention_norm: true,
    };
    vec![layer; count]
}

/// Turns whose base stands under `rope_parameters` since transformers 5, before under `key`.
///
/// # Errors
/// For scaled turns: they are not the plain ones of the paper.
fn turn(config: &Config<'_>, key: &str, default: f64) -> Result<Turn, ModelError> {
    if let Some(value) = config.get("rope_scaling") {
        let kind = value.get("rope_type").or_else(|| value.get("type"));
        if kind != Some(&json!("default")) {
            return Err(config.bad(format!(
                "key `rope_scaling` is {value}: turns that are scaled in this way are not supported"
            )));
        }
    }
    let default = config.number_or(key, default)?;
    match config.get("rope_parameters") {
        None => Ok(plain(default)),
        Some(parameters) => turn_of(config, parameters, default),
    }
}

/// Turns that are not scaled.
fn plain(base: f64) -> Turn {
    Turn { base, pace: 1.0 }
}

/// The turns of one set of parameters.
fn turn_of(config: &Config<'_>, parameters: &Value, default: f64) -> Result<Turn, ModelError> {
    let kind = parameters.get("rope_type").and_then(Value::as_str);
    if kind.is_some_and(|kind| kind != "default") {
        return Err(config.bad(format!(
            "key `rope_parameters` is {parameters}: of rotary positions only `default` ones are supported"
        )));
    }
    let base = parameters.get("rope_theta").filter(|base| !base.is_null());
    let number = base.map_or(Some(default), Value::as_f64);
    number
        .filter(|base| base.is_finite() && *base > 1.0)
        .map(plain)
        .ok_or_else(|| config.bad(format!("key `rope_parameters` has no base: {parameters}")))
}

/// Norms before attention and before the feed-forward layers.
fn with_norms_before(shape: TransformerShape, norm: NormKind) -> TransformerShape {
    TransformerShape {
        norm,
        norm_place: NormPlace::Before,
        ..shape
    }
}

/// Turned heads have two halves.
fn check_halves(config: &Config<'_>, shape: &TransformerShape) -> Result<(), ModelError> {
    match shape.head_size % 2 {
        0 => Ok(()),
        _ => Err(config.bad(format!(
            "heads of {} components can't be turned: they have no halves",
            shape.head_size
        ))),
    }
}
