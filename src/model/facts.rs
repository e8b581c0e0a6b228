//! What a model folder says about itself, for people who choose one.

use serde::Serialize;
use serde_json::Value;

use super::config::Config;
use super::spec::{EncoderSpec, Limit, Spec, in_folder, read};
use super::tensors::{Tensors, WEIGHTS, WeightFiles};
use super::text_tokenizer::TextTokenizer;
use super::{ModelError, ModelFolder};
use crate::encoder::Pooling;

/// The facts of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelFacts {
    /// The folder's name.
    pub name: String,
    /// Where it is: a path, or `shipped`.
    pub origin: String,
    /// The `model_type` of a transformer, or `static table`.
    pub family: String,
    /// Layers; null of a static table.
    pub layers: Option<usize>,
    /// Components of a token vector, or of a row of the table.
    pub width: usize,
    /// Components of a text's vector.
    pub dim: usize,
    /// Entries of the vocabulary, or rows of the table.
    pub vocabulary: usize,
    /// Most tokens of a text, special tokens included; null if there is no limit of the model.
    pub max_tokens: Option<usize>,
    /// How token vectors become one.
    pub pooling: &'static str,
    /// Whether vectors are of length 1.
    pub normalised: bool,
    /// What stands before every text, unless `--prompt` says otherwise.
    pub default_prompt: String,
    /// The names of its prompts.
    pub prompts: Vec<String>,
    /// How weights are stored.
    pub stored_precision: String,
    /// Bytes of all of its files.
    pub bytes: u64,
    /// Its licence, as its files name it; null if they don't.
    pub licence: Option<String>,
    /// SHA-256 over the files that decide a vector.
    pub sha256: String,
}

impl ModelFacts {
    /// Of a folder. Weights are read, and nothing is encoded.
    ///
    /// # Errors
    /// [`ModelError`] naming the missing or unusable file or key.
    pub fn of(folder: &ModelFolder) -> Result<Self, ModelError> {
        let Spec { encoder, texts } = read(folder)?;
        let prompts = Config::optional(folder, "config_sentence_transformers.json")?;
        let prompts = prompts.get("prompts").and_then(Value::as_object);
        let prompts = prompts.into_iter().flat_map(|prompts| prompts.keys());
        let max_tokens = match texts.limit {
            Limit::Tokens(most) | Limit::TokensAndCharacters(most) => Some(most),
            Limit::OfTokenizer => TextTokenizer::read(folder, &texts)?.max_tokens(),
        };
        let default_prompt = texts.prompt;
        let mut bytes_of_all = 0;
        for file in folder.files()? {
            bytes_of_all += folder.size(&file)?;
        }
        let mut facts = Self {
            name: folder.name().to_owned(),
            origin: folder.origin(),
            family: "static table".to_owned(),
            layers: None,
            width: 0,
            dim: 0,
            vocabulary: 0,
            max_tokens,
            pooling: "mean",
            normalised: false,
            default_prompt,
            prompts: prompts.cloned().collect(),
            stored_precision: String::new(),
            bytes: bytes_of_all,
            licence: licence(folder)?,
            sha256: folder.sha256()?,
        };
        match &encoder {
            EncoderSpec::Table(spec) => {
                let (table, stored) = super::table::load(folder, spec)?;
                facts.width = table.stored;
                facts.dim = crate::encoder::Encoder::dim(&table);
                facts.vocabulary = table.rows.numbers() / table.stored.max(1);
                facts.normalised = table.normalise;
                stored.clone_into(&mut facts.stored_precision);
            }
            EncoderSpec::Transformer(spec) => {
                let file = in_folder(&spec.path, WEIGHTS);
                let weights = WeightFiles::read(folder, &file)?;
                let config = Config::required(folder, &in_folder(&spec.path, "config.json"))?;
                facts.family = config.text_or("model_type", "unknown")?.to_owned();
                facts.layers = Some(spec.plan.layers.len());
                facts.width = spec.plan.shape.hidden;
                facts.vocabulary = spec.plan.shape.vocabulary;
                facts.pooling = name_of(spec.pooling);
                facts.normalised = spec.normalise;
                let tensors = Tensors::new(folder, &weights)?;
                tensors
                    .stored_precision()
                    .clone_into(&mut facts.stored_precision);
                facts.dim = match spec.dense.last() {
                    None => facts.width,
                    Some((path, _)) => {
                        let file = in_folder(path, WEIGHTS);
                        let weights = WeightFiles::read(folder, &file)?;
                        let shape = Tensors::new(folder, &weights)?.shape("linear.weight");
                        shape.and_then(|shape| shape.first().copied()).unwrap_or(0)
                    }
                };
                facts.dim = spec.keep.map_or(facts.dim, |keep| keep.min(facts.dim));
            }
        }
        Ok(facts)
    }
}

fn name_of(pooling: Pooling) -> &'static str {
    match pooling {
        Pooling::Mean => "mean",
        Pooling::Cls => "cls",
        Pooling::Max => "max",
        Pooling::MeanSqrtLen => "mean_sqrt_len",
        Pooling::WeightedMean => "weightedmean",
        Pooling::LastToken => "lasttoken",
    }
}

/// The licence that the head of README.md names, or the first line of a file LICENSE.
pub(super) fn licence(folder: &ModelFolder) -> Result<Option<String>, ModelError> {
    if folder.is_shipped() {
        return Ok(Some("Apache-2.0".to_owned()));
    }
    if let Some(bytes) = folder.find("README.md")? {
        let text = String::from_utf8_lossy(&bytes);
        let head = text
            .strip_prefix("---")
            .and_then(|rest| rest.split_once("\n---"));
        let lines = head.map(|(head, _)| head.lines()).into_iter().flatten();
        let mut named = lines.filter_map(|line| line.strip_prefix("license:"));
        if let Some(name) = named.next() {
            return Ok(Some(name.trim().trim_matches(['"', '\'']).to_owned()));
        }
    }
    for file in ["LICENSE", "LICENSE.txt", "LICENSE.md"] {
        if let Some(bytes) = folder.find(file)? {
            let text = String::from_utf8_lossy(&bytes);
            let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            return Ok(lines.next().map(str::to_owned));
        }
    }
    Ok(None)
}
