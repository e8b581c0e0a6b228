//! From safetensors to packed layers.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

use super::spec::Spec;
use super::{ModelError, ModelFolder, TextTokenizer};
use crate::encoder::cpu::{CpuBert, Level, Linear};
use crate::encoder::{Activation, BertWeights, Layer, Precision, TextHead};

fn halves(data: &[u8]) -> Vec<u16> {
    let (pairs, _) = data.as_chunks::<2>();
    pairs.iter().map(|b| u16::from_le_bytes(*b)).collect()
}

const WEIGHTS: &str = "model.safetensors";
const PICKLE: &str = "only safetensors are read: pickle files (pytorch_model.bin) can run code when they are \
                      opened; save the model again with safe_serialization=True";
const NO_WEIGHTS: &str = "copy the folder with its weights";

struct Tensors<'a> {
    folder: &'a ModelFolder,
    file: String,
    tensors: SafeTensors<'a>,
    prefix: &'static str,
}

impl<'a> Tensors<'a> {
    fn new(folder: &'a ModelFolder, file: &str, bytes: &'a [u8]) -> Result<Self, ModelError> {
        let tensors = SafeTensors::deserialize(bytes)
            .map_err(|e| folder.bad(file, format!("not a safetensors file: {e}")))?;
        let prefix = if tensors.names().iter().any(|name| name.starts_with("bert.")) {
            "bert."
        } else {
            ""
        };
        Ok(Self {
            folder,
            file: file.into(),
            tensors,
            prefix,
        })
    }

    fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let name = format!("{}{name}", self.prefix);
        let tensor = self.tensors.tensor(&name).map_err(|_| {
            self.folder
                .bad(&self.file, format!("tensor `{name}` is missing"))
        })?;
        if tensor.shape() != shape {
            return Err(self.folder.bad(
                &self.file,
                format!(
                    "tensor `{name}` has shape {:?}, config.json asks for {shape:?}",
                    tensor.shape()
                ),
            ));
        }
        let data = tensor.data();
        let values: Vec<f32> = match tensor.dtype() {
            Dtype::F32 => data
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            // Slices are converted many at a time; single numbers are not.
            Dtype::F16 => halves(data).reinterpret_cast::<f16>().to_f32_vec(),
            Dtype::BF16 => halves(data).reinterpret_cast::<bf16>().to_f32_vec(),
            other => {
                return Err(self.folder.bad(
                    &self.file,
                    format!(
                        "tensor `{name}` is stored as {other:?}; supported are F32, F16 and BF16"
                    ),
                ));
            }
        };
        match values.iter().all(|x| x.is_finite()) {
            true => Ok(values),
            false => Err(self.folder.bad(
                &self.file,
                format!("tensor `{name}` holds NaN or infinite values"),
            )),
        }
    }

    fn norm(&self, name: &str, size: usize) -> Result<(Vec<f32>, Vec<f32>), ModelError> {
        Ok((
            self.get(&format!("{name}.weight"), &[size])?,
            self.get(&format!("{name}.bias"), &[size])?,
        ))
    }

    fn linear(&self, name: &str, inputs: usize, outputs: usize) -> Result<Raw, ModelError> {
        Ok(Raw {
            weight: self.get(&format!("{name}.weight"), &[outputs, inputs])?,
            bias: self.get(&format!("{name}.bias"), &[outputs])?,
        })
    }

    fn query_key_value(&self, name: &str, size: usize) -> Result<Raw, ModelError> {
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        for part in ["query", "key", "value"] {
            weight.extend(self.get(&format!("{name}.{part}.weight"), &[size, size])?);
            bias.extend(self.get(&format!("{name}.{part}.bias"), &[size])?);
        }
        Ok(Raw { weight, bias })
    }

    fn stored_precision(&self) -> &'static str {
        match self
            .tensors
            .iter()
            .map(|(_, tensor)| tensor.dtype())
            .find(|d| matches!(d, Dtype::F16 | Dtype::BF16))
        {
            Some(Dtype::F16) => "f16",
            Some(_) => "bf16",
            None => "f32",
        }
    }
}

/// A linear layer as it is stored: weight of shape (outputs, inputs), bias of `outputs`.
pub(super) struct Raw {
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
}

/// Loads the encoder for the CPU; also says how its weights are stored.
pub(super) fn load_for_cpu(
    folder: &ModelFolder,
    spec: &Spec,
    tokenizer: &TextTokenizer,
    level: Level,
    precision: Precision,
) -> Result<(CpuBert, &'static str), ModelError> {
    let pack = |raw: Raw| Ok(Linear::new(level, precision, &raw.weight, raw.bias));
    // One row a text: not worth a loss of precision.
    let pack_dense = |raw: Raw| Ok(Linear::new(level, Precision::F32, &raw.weight, raw.bias));
    let (weights, stored) = load(folder, spec, &pack, &pack_dense)?;
    let encoder = CpuBert::new(level, precision, spec.shape, weights, head(spec, tokenizer));
    Ok((encoder, stored))
}

/// Loads the encoder for a device, once for each of its lanes; also says how its weights are stored.
#[cfg(feature = "candle")]
pub(super) fn load_for_device(
    folder: &ModelFolder,
    spec: &Spec,
    tokenizer: &TextTokenizer,
    device: crate::encoder::candle::CandleDevice,
) -> Result<(crate::encoder::candle::Lanes, &'static str), ModelError> {
    use crate::encoder::candle::{CandleBert, CandleDevice, Lanes};
    let failed = |e: crate::encoder::EncodeError| folder.unsupported(e.to_string());
    let lane = |device: CandleDevice| {
        let place = |raw: Raw| device.linear(raw.weight, raw.bias).map_err(failed);
        let (weights, stored) = load(folder, spec, &place, &place)?;
        let head = head(spec, tokenizer);
        let encoder = CandleBert::new(device.clone(), spec.shape, weights, head);
        Ok((encoder.map_err(failed)?, stored))
    };
    let more = (1..device.batches_at_once()).map(|_| device.another_lane().map_err(failed));
    let more = more.collect::<Result<Vec<CandleDevice>, ModelError>>()?;
    let (first, stored) = lane(device)?;
    let others = more
        .into_iter()
        .map(|device| lane(device).map(|(lane, _)| lane));
    let others = others.collect::<Result<Vec<CandleBert>, ModelError>>()?;
    Ok((Lanes::new(first, others), stored))
}

fn head(spec: &Spec, tokenizer: &TextTokenizer) -> TextHead {
    TextHead {
        pooling: spec.pooling,
        pool_from: match spec.pool_prompt {
            true => 0,
            false => tokenizer.prompt_tokens(),
        },
        normalise: spec.normalise,
    }
}

/// Loads all weights, linear layers one after the other through `linear` (and those after pooling through `dense`), so
/// that they are never all in memory twice.
fn load<L>(
    folder: &ModelFolder,
    spec: &Spec,
    linear: &dyn Fn(Raw) -> Result<L, ModelError>,
    dense: &dyn Fn(Raw) -> Result<L, ModelError>,
) -> Result<(BertWeights<L>, &'static str), ModelError> {
    let pickled = folder.find("pytorch_model.bin")?.is_some();
    let bytes = folder.read(WEIGHTS, if pickled { PICKLE } else { NO_WEIGHTS })?;
    let tensors = Tensors::new(folder, WEIGHTS, &bytes)?;
    let (shape, size, wide) = (spec.shape, spec.shape.hidden, spec.intermediate);
    let types = tensors.get_rows("embeddings.token_type_embeddings.weight", size)?;
    let mut positions = tensors.get(
        "embeddings.position_embeddings.weight",
        &[shape.positions, size],
    )?;
    for row in positions.chunks_exact_mut(size) {
        row.iter_mut().zip(&types).for_each(|(p, t)| *p += t);
    }
    let layers = (0..spec.layers)
        .map(|i| {
            let at = |name: &str| format!("encoder.layer.{i}.{name}");
            Ok(Layer {
                query_key_value: linear(tensors.query_key_value(&at("attention.self"), size)?)?,
                attention_output: linear(tensors.linear(
                    &at("attention.output.dense"),
                    size,
                    size,
                )?)?,
                attention_norm: tensors.norm(&at("attention.output.LayerNorm"), size)?,
                intermediate: linear(tensors.linear(&at("intermediate.dense"), size, wide)?)?,
                output: linear(tensors.linear(&at("output.dense"), wide, size)?)?,
                output_norm: tensors.norm(&at("output.LayerNorm"), size)?,
            })
        })
        .collect::<Result<Vec<_>, ModelError>>()?;
    let mut after_pooling = Vec::new();
    let mut width = size;
    for (path, tanh) in &spec.dense {
        let file = format!("{path}/model.safetensors");
        let bytes = folder.read(&file, NO_WEIGHTS)?;
        let tensors = Tensors::new(folder, &file, &bytes)?;
        let stored = tensors.tensors.tensor("linear.weight").ok();
        let outputs = stored.and_then(|t| t.shape().first().copied()).unwrap_or(0);
        let raw = tensors.linear("linear", width, outputs)?;
        width = outputs;
        let activation = match tanh {
            true => Activation::Tanh,
            false => Activation::None,
        };
        after_pooling.push((dense(raw)?, activation));
    }
    let weights = BertWeights {
        words: tensors.get(
            "embeddings.word_embeddings.weight",
            &[shape.vocabulary, size],
        )?,
        positions,
        embedding_norm: tensors.norm("embeddings.LayerNorm", size)?,
        layers,
        dense: after_pooling,
    };
    Ok((weights, tensors.stored_precision()))
}

impl Tensors<'_> {
    /// The first row of a table whose number of rows is not in the configuration.
    fn get_rows(&self, name: &str, columns: usize) -> Result<Vec<f32>, ModelError> {
        let whole = format!("{}{name}", self.prefix);
        let rows = self
            .tensors
            .tensor(&whole)
            .ok()
            .and_then(|t| t.shape().first().copied())
            .unwrap_or(1);
        let mut values = self.get(name, &[rows, columns])?;
        values.truncate(columns);
        Ok(values)
    }
}
