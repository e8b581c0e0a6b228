//! What a model folder says about itself: architecture, modules, pooling, limits and prompts.
//!
//! sentence-transformers writes two dialects: before 6.0 pooling is a set of `pooling_mode_*` flags,
//! since then it is one `pooling_mode`; the module type names moved too. Both are read.

use serde_json::Value;

use super::{ModelError, ModelFolder};
use crate::encoder::{Activation, BertShape, Pooling};

/// What to build from a folder's weights.
#[derive(Debug)]
pub(super) struct Spec {
    pub shape: BertShape,
    pub layers: usize,
    pub intermediate: usize,
    pub pooling: Pooling,
    /// Folders of Dense modules and whether they end in tanh, in order.
    pub dense: Vec<(String, bool)>,
    pub normalise: bool,
    /// Most tokens of a text, special tokens included.
    pub max_tokens: usize,
    pub lowercase: bool,
    /// Put before every text.
    pub prompt: String,
    pub pool_prompt: bool,
}

const COPY_WHOLE: &str = "copy the whole sentence-transformers folder";

fn json(folder: &ModelFolder, file: &str, bytes: &[u8]) -> Result<Value, ModelError> {
    serde_json::from_slice(bytes).map_err(|e| folder.bad(file, format!("not valid JSON: {e}")))
}

fn required(folder: &ModelFolder, file: &str) -> Result<Value, ModelError> {
    json(folder, file, &folder.read(file, COPY_WHOLE)?)
}

fn optional(folder: &ModelFolder, file: &str) -> Result<Value, ModelError> {
    match folder.find(file)? {
        Some(bytes) => json(folder, file, &bytes),
        None => Ok(Value::Null),
    }
}

fn count(folder: &ModelFolder, file: &str, object: &Value, key: &str) -> Result<usize, ModelError> {
    match object.get(key) {
        None => Err(folder.bad(file, format!("key `{key}` is missing"))),
        Some(value) => value
            .as_u64()
            .filter(|n| (1..=1 << 24).contains(n))
            .map(|n| n as usize)
            .ok_or_else(|| {
                folder.bad(
                    file,
                    format!("key `{key}` is {value}, not a positive count"),
                )
            }),
    }
}

/// The module folders of a model, in order, without the transformer itself.
pub(super) fn module_paths(folder: &ModelFolder) -> Result<Vec<String>, ModelError> {
    Ok(modules(folder)?
        .into_iter()
        .map(|(_, path)| path)
        .filter(|path| !path.is_empty())
        .collect())
}

/// (kind, path) of every module; the kind is the last part of its type name.
fn modules(folder: &ModelFolder) -> Result<Vec<(String, String)>, ModelError> {
    const FILE: &str = "modules.json";
    let list = required(folder, FILE)?;
    let list = list
        .as_array()
        .ok_or_else(|| folder.bad(FILE, "not a list of modules"))?;
    list.iter()
        .map(|module| {
            let text = |key: &str| {
                module.get(key).and_then(Value::as_str).ok_or_else(|| {
                    folder.bad(FILE, format!("a module has no text under key `{key}`"))
                })
            };
            let (kind, path) = (text("type")?, text("path")?);
            let kind = kind.rsplit('.').next().unwrap_or(kind).to_owned();
            if path.split('/').any(|part| part == "..") || path.starts_with('/') {
                return Err(folder.bad(
                    FILE,
                    format!("module path `{path}` leaves the model folder"),
                ));
            }
            Ok((kind, path.to_owned()))
        })
        .collect()
}

/// Reads the whole description.
pub(super) fn read(folder: &ModelFolder) -> Result<Spec, ModelError> {
    let modules = modules(folder)?;
    let mut kinds = modules.iter();
    if kinds.next().map(|(kind, _)| kind.as_str()) != Some("Transformer") {
        return Err(folder.unsupported(
            "its first module is not a Transformer; this version encodes BERT models \
             (Transformer, Pooling, then Dense or Normalize)",
        ));
    }
    let mut pooling = None;
    let (mut dense, mut normalise) = (Vec::new(), false);
    for (kind, path) in kinds {
        match kind.as_str() {
            "Pooling" if pooling.is_none() => pooling = Some(read_pooling(folder, path)?),
            "Dense" if pooling.is_some() && !normalise => {
                dense.push((path.clone(), read_dense(folder, path)?))
            }
            "Normalize" if pooling.is_some() => normalise = true,
            _ => {
                return Err(folder.unsupported(format!(
                    "module `{kind}` in `{path}` is not supported here; supported are Transformer, \
                     Pooling, Dense and Normalize in this order"
                )));
            }
        }
    }
    let Some((pooling, pool_prompt)) = pooling else {
        return Err(folder.bad(
            "modules.json",
            "no Pooling module: the model gives no text vectors",
        ));
    };

    let config = required(folder, "config.json")?;
    let (shape, layers, intermediate) = read_bert(folder, &config)?;
    let limits = optional(folder, "sentence_bert_config.json")?;
    let tokenizer = optional(folder, "tokenizer_config.json")?;
    let max_tokens = [
        limits.get("max_seq_length"),
        tokenizer.get("model_max_length"),
    ]
    .into_iter()
    .flatten()
    .find_map(Value::as_u64)
    // model_max_length is an absurdly large number where nobody set it.
    .map_or(shape.positions, |n| {
        shape
            .positions
            .min(usize::try_from(n).unwrap_or(usize::MAX))
    });
    if max_tokens < 3 {
        return Err(folder.bad(
            "sentence_bert_config.json",
            format!("`max_seq_length` {max_tokens} leaves no room for text"),
        ));
    }
    let prompts = optional(folder, "config_sentence_transformers.json")?;
    let prompt = prompts
        .get("default_prompt_name")
        .and_then(Value::as_str)
        .and_then(|name| prompts.get("prompts")?.get(name)?.as_str())
        .unwrap_or_default()
        .to_owned();
    let lowercase = limits
        .get("do_lower_case")
        .and_then(Value::as_bool)
        .unwrap_or(false);
    Ok(Spec {
        shape,
        layers,
        intermediate,
        pooling,
        dense,
        normalise,
        max_tokens,
        lowercase,
        prompt,
        pool_prompt,
    })
}

fn read_bert(
    folder: &ModelFolder,
    config: &Value,
) -> Result<(BertShape, usize, usize), ModelError> {
    const FILE: &str = "config.json";
    let kind = config
        .get("model_type")
        .and_then(Value::as_str)
        .unwrap_or("unknown");
    if kind != "bert" {
        return Err(folder.unsupported(format!(
            "config.json says model_type `{kind}`; this version encodes `bert`"
        )));
    }
    let positions = config
        .get("position_embedding_type")
        .and_then(Value::as_str)
        .unwrap_or("absolute");
    if positions != "absolute" {
        return Err(folder.unsupported(format!(
            "position_embedding_type `{positions}`; supported is `absolute`"
        )));
    }
    let activation = match config
        .get("hidden_act")
        .and_then(Value::as_str)
        .unwrap_or("gelu")
    {
        "gelu" => Activation::Gelu,
        "gelu_new" | "gelu_pytorch_tanh" => Activation::GeluTanh,
        "relu" => Activation::Relu,
        other => {
            return Err(folder.unsupported(format!(
                "hidden_act `{other}`; supported are gelu, gelu_new, gelu_pytorch_tanh and relu"
            )));
        }
    };
    let get = |key| count(folder, FILE, config, key);
    let (hidden, heads) = (get("hidden_size")?, get("num_attention_heads")?);
    if hidden % heads != 0 {
        return Err(folder.bad(
            FILE,
            format!("`hidden_size` {hidden} is no multiple of `num_attention_heads` {heads}"),
        ));
    }
    let shape = BertShape {
        hidden,
        heads,
        vocabulary: get("vocab_size")?,
        positions: get("max_position_embeddings")?,
        epsilon: config
            .get("layer_norm_eps")
            .and_then(Value::as_f64)
            .unwrap_or(1e-12) as f32,
        activation,
    };
    Ok((shape, get("num_hidden_layers")?, get("intermediate_size")?))
}

fn read_pooling(folder: &ModelFolder, path: &str) -> Result<(Pooling, bool), ModelError> {
    const NAMES: [(&str, &str, Pooling); 6] = [
        ("pooling_mode_cls_token", "cls", Pooling::Cls),
        ("pooling_mode_mean_tokens", "mean", Pooling::Mean),
        ("pooling_mode_max_tokens", "max", Pooling::Max),
        (
            "pooling_mode_mean_sqrt_len_tokens",
            "mean_sqrt_len_tokens",
            Pooling::MeanSqrtLen,
        ),
        (
            "pooling_mode_weightedmean_tokens",
            "weightedmean",
            Pooling::WeightedMean,
        ),
        ("pooling_mode_lasttoken", "lasttoken", Pooling::LastToken),
    ];
    let file = format!("{path}/config.json");
    let config = required(folder, &file)?;
    let chosen: Vec<Pooling> = match config.get("pooling_mode").and_then(Value::as_str) {
        Some(mode) => NAMES
            .iter()
            .filter(|(_, name, _)| *name == mode)
            .map(|n| n.2)
            .collect(),
        None => NAMES
            .iter()
            .filter(|(flag, _, _)| config.get(*flag).and_then(Value::as_bool) == Some(true))
            .map(|n| n.2)
            .collect(),
    };
    let [pooling] = chosen.as_slice() else {
        return Err(folder.bad(&file, "exactly one known pooling mode must be on (cls, mean, max, mean_sqrt_len, weightedmean, lasttoken)"));
    };
    Ok((
        *pooling,
        config
            .get("include_prompt")
            .and_then(Value::as_bool)
            .unwrap_or(true),
    ))
}

fn read_dense(folder: &ModelFolder, path: &str) -> Result<bool, ModelError> {
    let file = format!("{path}/config.json");
    let config = required(folder, &file)?;
    match config
        .get("activation_function")
        .and_then(Value::as_str)
        .unwrap_or("")
    {
        f if f.ends_with(".Tanh") => Ok(true),
        f if f.ends_with(".Identity") => Ok(false),
        other => Err(folder.bad(
            &file,
            format!(
                "activation_function `{other}` is not supported; supported are Tanh and Identity"
            ),
        )),
    }
}
