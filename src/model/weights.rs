//! From safetensors to packed layers.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

use super::spec::Spec;
use super::{ModelError, ModelFolder, TextTokenizer};
use crate::encoder::Precision;
use crate::encoder::cpu::{Activation, BertWeights, CpuBert, Layer, Level, Linear};

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

    fn linear(
        &self,
        level: Level,
        precision: Precision,
        name: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<Linear, ModelError> {
        let weight = self.get(&format!("{name}.weight"), &[outputs, inputs])?;
        Ok(Linear::new(
            level,
            precision,
            &weight,
            self.get(&format!("{name}.bias"), &[outputs])?,
        ))
    }

    fn query_key_value(
        &self,
        level: Level,
        precision: Precision,
        name: &str,
        size: usize,
    ) -> Result<Linear, ModelError> {
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        for part in ["query", "key", "value"] {
            weight.extend(self.get(&format!("{name}.{part}.weight"), &[size, size])?);
            bias.extend(self.get(&format!("{name}.{part}.bias"), &[size])?);
        }
        Ok(Linear::new(level, precision, &weight, bias))
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

/// Loads the encoder; also says how its weights are stored.
pub(super) fn load_encoder(
    folder: &ModelFolder,
    spec: &Spec,
    tokenizer: &TextTokenizer,
    level: Level,
    precision: Precision,
) -> Result<(CpuBert, &'static str), ModelError> {
    let pickled = folder.find("pytorch_model.bin")?.is_some();
    let bytes = folder.read(WEIGHTS, if pickled { PICKLE } else { NO_WEIGHTS })?;
    let tensors = Tensors::new(folder, WEIGHTS, &bytes)?;
    let shape = spec.shape;
    let size = shape.hidden;

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
                query_key_value: tensors.query_key_value(
                    level,
                    precision,
                    &at("attention.self"),
                    size,
                )?,
                attention_output: tensors.linear(
                    level,
                    precision,
                    &at("attention.output.dense"),
                    size,
                    size,
                )?,
                attention_norm: tensors.norm(&at("attention.output.LayerNorm"), size)?,
                intermediate: tensors.linear(
                    level,
                    precision,
                    &at("intermediate.dense"),
                    size,
                    spec.intermediate,
                )?,
                output: tensors.linear(
                    level,
                    precision,
                    &at("output.dense"),
                    spec.intermediate,
                    size,
                )?,
                output_norm: tensors.norm(&at("output.LayerNorm"), size)?,
            })
        })
        .collect::<Result<Vec<_>, ModelError>>()?;
    let mut dense = Vec::new();
    let mut width = size;
    for (path, tanh) in &spec.dense {
        let file = format!("{path}/model.safetensors");
        let bytes = folder.read(&file, NO_WEIGHTS)?;
        let tensors = Tensors::new(folder, &file, &bytes)?;
        let outputs = tensors
            .tensors
            .tensor("linear.weight")
            .ok()
            .and_then(|t| t.shape().first().copied());
        // One row a text: not worth a loss of precision.
        let linear =
            tensors.linear(level, Precision::F32, "linear", width, outputs.unwrap_or(0))?;
        width = linear.outputs();
        dense.push((
            linear,
            match tanh {
                true => Activation::Tanh,
                false => Activation::None,
            },
        ));
    }
    let weights = BertWeights {
        words: tensors.get(
            "embeddings.word_embeddings.weight",
            &[shape.vocabulary, size],
        )?,
        positions,
        embedding_norm: tensors.norm("embeddings.LayerNorm", size)?,
        layers,
        dense,
    };
    let pool_from = if spec.pool_prompt {
        0
    } else {
        tokenizer.prompt_tokens()
    };
    let encoder = CpuBert::new(
        level,
        precision,
        shape,
        weights,
        spec.pooling,
        pool_from,
        spec.normalise,
    );
    Ok((encoder, tensors.stored_precision()))
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
