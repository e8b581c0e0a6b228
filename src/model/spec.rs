//! What a model folder says about itself: architecture, modules, pooling, limits and prompts.
//!
//! sentence-transformers writes two dialects: before 6.0 pooling is a set of `pooling_mode_*` flags,
//! since then it is one `pooling_mode`; the module type names moved too. Both are read. A bare folder of transformers is
//! a transformer with the mean of its tokens (or the last one), and one of Model2Vec a static table.

use std::path::Path;

use serde_json::{Value, json};

use super::config::Config;
use super::family::{self, Places, Plan};
use super::{ModelError, ModelFolder};
use crate::encoder::Pooling;

/// What to build from a folder's files.
#[derive(Debug)]
pub(super) struct Spec {
    pub encoder: EncoderSpec,
    pub texts: TextSpec,
}

/// What makes vectors.
#[derive(Debug)]
pub(super) enum EncoderSpec {
    Transformer(Box<TransformerSpec>),
    Table(TableSpec),
}

/// A transformer with its head.
#[derive(Clone, Debug)]
pub(super) struct TransformerSpec {
    /// The folder of the module.
    pub path: String,
    pub plan: Plan,
    pub pooling: Pooling,
    /// Folders of Dense modules and whether they end in tanh, in order.
    pub dense: Vec<(String, bool)>,
    pub normalise: bool,
    pub pool_prompt: bool,
    /// Components of vectors that are kept, the first ones; all if none.
    pub keep: Option<usize>,
}

/// A static table.
#[derive(Debug)]
pub(super) struct TableSpec {
    /// The folder of the module.
    pub path: String,
    pub normalise: bool,
    /// As of a transformer.
    pub keep: Option<usize>,
}

/// How texts become token ids.
#[derive(Debug)]
pub(super) struct TextSpec {
    /// The file of the tokenizer.
    pub file: String,
    pub limit: Limit,
    pub lowercase: bool,
    /// Put before every text.
    pub prompt: String,
    /// Whether tokens that stand for no text are put around it.
    pub special_tokens: bool,
    /// Whether tokens that stand for unknown words are left out.
    pub drop_unknown: bool,
}

/// How long a text may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// So many tokens, special tokens included.
    Tokens(usize),
    /// The same, and before that as many characters as so many tokens of middling length have.
    TokensAndCharacters(usize),
    /// What the tokenizer's own file says, which may be nothing.
    OfTokenizer,
}

/// The files that say how texts become tokens, by the kind of model that wrote them; the first that is there counts.
pub(super) const LIMITS: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];
const MODULES: &str = "modules.json";
const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";

/// A module of sentence-transformers.
struct Module {
    /// The last part of its type name.
    kind: String,
    /// Its folder; empty for that of the model.
    path: String,
}

impl Module {
    fn file(&self, name: &str) -> String {
        in_folder(&self.path, name)
    }
}

/// A file of a module.
pub(super) fn in_folder(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    }
}

/// The module folders of a model, in order, without the model's own folder.
pub(super) fn module_paths(folder: &ModelFolder) -> Result<Vec<String>, ModelError> {
    let modules = modules(folder)?.unwrap_or_default().into_iter();
    Ok(modules
        .map(|module| module.path)
        .filter(|path| !path.is_empty())
        .collect())
}

/// The modules; none where the list is missing.
fn modules(folder: &ModelFolder) -> Result<Option<Vec<Module>>, ModelError> {
    if folder.find(MODULES)?.is_none() {
        return Ok(None);
    }
    let list = Config::required(folder, MODULES)?;
    let modules = list.value().as_array();
    let modules = modules.ok_or_else(|| list.bad("not a list of modules"))?;
    let read = modules.iter().map(|module| {
        let text = |key: &str| {
            let text = module.get(key).and_then(Value::as_str);
            text.ok_or_else(|| list.bad(format!("a module has no text under key `{key}`")))
        };
        let (kind, path) = (text("type")?, text("path")?);
        let kind = kind.rsplit('.').next().unwrap_or(kind).to_owned();
        if path.split('/').any(|part| part == "..") || Path::new(path).is_absolute() {
            return Err(list.bad(format!("module path `{path}` leaves the model folder")));
        }
        let parts: Vec<&str> = path
            .split('/')
            .filter(|p| !matches!(*p, "" | "."))
            .collect();
        Ok(Module {
            kind,
            path: parts.join("/"),
        })
    });
    read.collect::<Result<_, _>>().map(Some)
}

/// Components that are kept: what was asked for, else what the model says.
fn dim(folder: &ModelFolder) -> Result<Option<usize>, ModelError> {
    let asked = folder.adjustment().dim;
    let own = Config::optional(folder, "config_sentence_transformers.json")?;
    Ok(asked.or(own.count_if_there("truncate_dim")?))
}

/// Reads the whole description.
pub(super) fn read(folder: &ModelFolder) -> Result<Spec, ModelError> {
    match modules(folder)? {
        None => read_bare(folder),
        Some(modules) => match modules.split_first() {
            Some((first, others)) if first.kind == "Transformer" => {
                read_transformer(folder, first, others)
            }
            Some((first, others)) if first.kind == "StaticEmbedding" => {
                read_table(folder, first, others)
            }
            _ => Err(folder.unsupported(
                "its first module is neither a Transformer nor a StaticEmbedding; this version encodes those \
                 (Transformer, Pooling, then Dense or Normalize; or StaticEmbedding, then Normalize)",
            )),
        },
    }
}

/// A folder without a list of modules.
fn read_bare(folder: &ModelFolder) -> Result<Spec, ModelError> {
    let own = Module {
        kind: String::new(),
        path: String::new(),
    };
    let config = Config::required(folder, CONFIG)?;
    let kind = config.text_or("model_type", "")?;
    let is_table = match kind {
        "model2vec" => true,
        "" => config.get("embedding_dtype").is_some() || config.get("normalize").is_some(),
        _ => false,
    };
    if is_table {
        return read_table(folder, &own, &[]);
    }
    // Only a model of transformers alone is one without modules: of others the list was lost.
    for file in LIMITS.into_iter().chain(["1_Pooling/config.json"]) {
        if folder.find(file)?.is_some() {
            return Err(folder.missing(
                MODULES,
                "it has other files of sentence-transformers: copy the whole folder",
            ));
        }
    }
    tracing::warn!(
        "model `{}` has no {MODULES}: it is taken as a bare transformer, with the mean of a text's tokens as its vector (of a causal \
         language model the last token), which may not be what it was trained for",
        folder.name()
    );
    // As sentence-transformers has it: of a model that was made to go on with a text, the last token stands for it.
    let made_as = config
        .get("architectures")
        .and_then(|names| names.get(0)?.as_str());
    let causal = made_as.is_some_and(|name| name.ends_with("ForCausalLM"));
    let head = Head {
        pooling: if causal {
            Pooling::LastToken
        } else {
            Pooling::Mean
        },
        pool_prompt: true,
        dense: Vec::new(),
        normalise: false,
    };
    with_head(folder, &own, head)
}

/// What follows a transformer.
struct Head {
    pooling: Pooling,
    pool_prompt: bool,
    dense: Vec<(String, bool)>,
    normalise: bool,
}

fn read_transformer(
    folder: &ModelFolder,
    first: &Module,
    others: &[Module],
) -> Result<Spec, ModelError> {
    let mut pooling = None;
    let (mut dense, mut normalise) = (Vec::new(), false);
    for module in others {
        let path = &module.path;
        match module.kind.as_str() {
            "Pooling" if pooling.is_none() => pooling = Some(read_pooling(folder, module)?),
            "Dense" if pooling.is_some() && !normalise => {
                dense.push((path.clone(), read_dense(folder, module)?));
            }
            "Normalize" if pooling.is_some() => {
                let config = Config::optional(folder, &module.file(CONFIG))?;
                for key in ["module_input_name", "module_output_name"] {
                    config.only(key, &json!("sentence_embedding"))?;
                }
                normalise = true;
            }
            kind => {
                return Err(folder.unsupported(format!(
                    "module `{kind}` in `{path}` is not supported here; supported are Transformer, \
                     Pooling, Dense and Normalize in this order"
                )));
            }
        }
    }
    let Some((pooling, pool_prompt)) = pooling else {
        return Err(folder.bad(
            MODULES,
            "no Pooling module: the model gives no text vectors",
        ));
    };
    let head = Head {
        pooling,
        pool_prompt,
        dense,
        normalise,
    };
    with_head(folder, first, head)
}

fn with_head(folder: &ModelFolder, module: &Module, head: Head) -> Result<Spec, ModelError> {
    let mut plan = family::read(folder, &module.file(CONFIG))?;
    let limits = limits(folder, module)?;
    let tokenizer = Config::optional(folder, &module.file("tokenizer_config.json"))?;
    check_tokenizer(folder, module, &tokenizer)?;
    let given = [
        limits.get("max_seq_length"),
        tokenizer.get("model_max_length"),
    ];
    // model_max_length is an absurdly large number where nobody set it.
    let given = given.into_iter().flatten().find_map(Value::as_u64);
    let given = given.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let max_tokens = plan.shape.positions.min(given);
    if max_tokens < 3 {
        return Err(limits.bad(format!(
            "`max_seq_length` {max_tokens} leaves no room for text"
        )));
    }
    // What no table limits needs no room beyond the longest text.
    if matches!(plan.places, Places::None | Places::Slopes) {
        plan.shape.positions = max_tokens;
    }
    Ok(Spec {
        encoder: EncoderSpec::Transformer(Box::new(TransformerSpec {
            path: module.path.clone(),
            plan,
            pooling: head.pooling,
            dense: head.dense,
            normalise: head.normalise,
            pool_prompt: head.pool_prompt,
            keep: dim(folder)?,
        })),
        texts: TextSpec {
            file: module.file(TOKENIZER),
            limit: Limit::Tokens(max_tokens),
            lowercase: limits.flag_or("do_lower_case", false)?,
            prompt: prompt(folder)?,
            special_tokens: true,
            drop_unknown: false,
        },
    })
}

/// What a module says of texts. What would change vectors and is not read is refused.
fn limits<'f>(folder: &'f ModelFolder, module: &Module) -> Result<Config<'f>, ModelError> {
    for name in LIMITS {
        let file = module.file(name);
        if folder.find(&file)?.is_none() {
            continue;
        }
        let limits = Config::required(folder, &file)?;
        for key in ["config_kwargs", "processor_kwargs"] {
            let given = limits.get(key).and_then(Value::as_object);
            if given.is_some_and(|given| !given.is_empty()) {
                return Err(limits.bad(format!(
                    "key `{key}` changes how the model is loaded, and is not read"
                )));
            }
        }
        let output = limits
            .value()
            .pointer("/modality_config/text/method_output_name");
        if output.is_some_and(|output| *output != json!("last_hidden_state")) {
            return Err(limits.bad(
                "the vectors are another output of the transformer than its last hidden state (method_output_name), which is not read",
            ));
        }
        limits.only("module_output_name", &json!("token_embeddings"))?;
        return Ok(limits);
    }
    Config::optional(folder, &module.file("sentence_bert_config.json"))
}

/// Refuses a tokenizer whose two files contradict each other: which of them counts depends on the program that reads them.
fn check_tokenizer(
    folder: &ModelFolder,
    module: &Module,
    config: &Config<'_>,
) -> Result<(), ModelError> {
    config.only("truncation_side", &json!("right"))?;
    let said = |key: &str| config.get(key).and_then(Value::as_bool);
    let keys = [
        (
            "do_lower_case",
            "/normalizer",
            "BertNormalizer",
            "lowercase",
        ),
        (
            "add_prefix_space",
            "/pre_tokenizer",
            "ByteLevel",
            "add_prefix_space",
        ),
    ];
    if keys.iter().all(|(key, ..)| said(key).is_none()) {
        // Most say nothing of it, and the other file may be large.
        return Ok(());
    }
    let file = module.file(TOKENIZER);
    let tokenizer = Config::optional(folder, &file)?;
    for (key, part, kind, member) in keys {
        let part = tokenizer
            .value()
            .pointer(part)
            .filter(|part| part["type"] == kind);
        let own = part.and_then(|part| part[member].as_bool());
        if let (Some(own), Some(said)) = (own, said(key))
            && own != said
        {
            return Err(config.bad(format!(
                "key `{key}` is {said}, and {file} has {own}: which of them counts is not clear; save the tokenizer again"
            )));
        }
    }
    Ok(())
}

/// What stands before every text: what was asked for, else the model's default prompt.
fn prompt(folder: &ModelFolder) -> Result<String, ModelError> {
    let prompts = Config::optional(folder, "config_sentence_transformers.json")?;
    let known = prompts.get("prompts").and_then(Value::as_object);
    match folder.adjustment().prompt.as_deref() {
        None => {}
        Some("none") => return Ok(String::new()),
        Some(asked) => {
            if let Some(text) = asked.strip_prefix("text:") {
                return Ok(text.to_owned());
            }
            let text = known.and_then(|known| known.get(asked)?.as_str());
            return text.map(str::to_owned).ok_or_else(|| {
                let names = known.into_iter().flat_map(|known| known.keys());
                let names: Vec<&str> = names.map(String::as_str).collect();
                let names = match names.is_empty() {
                    true => "it has none".to_owned(),
                    false => format!("it has {}", names.join(", ")),
                };
                folder.unsupported(format!(
                    "--prompt {asked}: the model has no prompt of this name ({names}); `none` puts nothing before texts, \
                     `text:…` a text of your own"
                ))
            });
        }
    }
    let Some(name) = prompts.get("default_prompt_name") else {
        return Ok(String::new());
    };
    let prompt = name
        .as_str()
        .and_then(|name| prompts.get("prompts")?.get(name)?.as_str());
    let prompt = prompt.map(str::to_owned);
    prompt.ok_or_else(|| {
        prompts.bad(format!(
            "`default_prompt_name` is {name}, and no prompt has that name"
        ))
    })
}

fn read_table(folder: &ModelFolder, first: &Module, others: &[Module]) -> Result<Spec, ModelError> {
    if let Some(other) = others.iter().find(|module| module.kind != "Normalize") {
        return Err(folder.unsupported(format!(
            "module `{}` in `{}` is not supported behind a StaticEmbedding; Normalize is",
            other.kind, other.path
        )));
    }
    // What Model2Vec saved has a configuration of its own beside its table.
    let config = Config::optional(folder, CONFIG)?;
    let by_model2vec = first.path.is_empty() && config.value().is_object();
    let mut texts = TextSpec {
        file: first.file(TOKENIZER),
        limit: Limit::OfTokenizer,
        lowercase: false,
        prompt: prompt(folder)?,
        special_tokens: false,
        drop_unknown: false,
    };
    let mut normalise = !others.is_empty();
    if by_model2vec {
        const USUAL: usize = 512;
        normalise |= config.flag_or("normalize", false)?;
        let unlimited = config.value().get("max_length").is_some_and(Value::is_null);
        texts.limit = match config.count_if_there("max_length")? {
            None if unlimited => Limit::OfTokenizer,
            given => Limit::TokensAndCharacters(given.unwrap_or(USUAL)),
        };
        texts.drop_unknown = true;
    }
    Ok(Spec {
        encoder: EncoderSpec::Table(TableSpec {
            path: first.path.clone(),
            normalise,
            keep: dim(folder)?,
        }),
        texts,
    })
}

fn read_pooling(folder: &ModelFolder, module: &Module) -> Result<(Pooling, bool), ModelError> {
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
    let config = Config::required(folder, &module.file(CONFIG))?;
    let is_on = |(flag, name, _): &&(&str, &str, Pooling)| match config.get("pooling_mode") {
        Some(mode) => mode.as_str() == Some(name),
        None => config.get(flag).and_then(Value::as_bool) == Some(true),
    };
    let chosen: Vec<Pooling> = NAMES.iter().filter(is_on).map(|(_, _, p)| *p).collect();
    let [pooling] = chosen.as_slice() else {
        return Err(config.bad("exactly one known pooling mode must be on (cls, mean, max, mean_sqrt_len, weightedmean, lasttoken)"));
    };
    Ok((*pooling, config.flag_or("include_prompt", true)?))
}

fn read_dense(folder: &ModelFolder, module: &Module) -> Result<bool, ModelError> {
    let config = Config::required(folder, &module.file(CONFIG))?;
    for key in ["module_input_name", "module_output_name"] {
        config.only(key, &json!("sentence_embedding"))?;
    }
    match config.text_or("activation_function", "")? {
        f if f.ends_with(".Tanh") => Ok(true),
        f if f.ends_with(".Identity") => Ok(false),
        other => Err(config.bad(format!(
            "activation_function `{other}` is not supported; supported are Tanh and Identity"
        ))),
    }
}
