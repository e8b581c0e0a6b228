//! From safetensors to packed layers.

use super::family::{Biases, LayerPlan, Names, Parts, Places, Plan, jina_bert, mpnet};
use super::spec::{TransformerSpec, in_folder};
use super::tensors::{Tensors, WEIGHTS, WeightFiles};
use super::{ModelError, ModelFolder, TextTokenizer};
use crate::encoder::cpu::{CpuTransformer, Level, Linear};
use crate::encoder::{Activation, Layer, Norm, NormKind, Precision, TextHead, TransformerWeights};

/// A linear layer as it is stored: weight of shape (outputs, inputs), bias of `outputs`.
pub(super) struct Raw {
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
}

/// Loads the encoder for the CPU; also says how its weights are stored.
pub(super) fn load_for_cpu(
    folder: &ModelFolder,
    spec: &TransformerSpec,
    tokenizer: &TextTokenizer,
    level: Level,
    precision: Precision,
) -> Result<(CpuTransformer, &'static str), ModelError> {
    let pack = |raw: Raw| Ok(Linear::new(level, precision, &raw.weight, raw.bias));
    // One row a text: not worth a loss of precision.
    let pack_dense = |raw: Raw| Ok(Linear::new(level, Precision::F32, &raw.weight, raw.bias));
    let (weights, stored) = load(folder, spec, &pack, &pack_dense)?;
    let head = head(spec, tokenizer);
    let encoder = CpuTransformer::new(level, precision, spec.plan.shape, weights, head);
    Ok((encoder, stored))
}

pub(super) fn head(spec: &TransformerSpec, tokenizer: &TextTokenizer) -> TextHead {
    TextHead {
        pooling: spec.pooling,
        pool_from: match spec.pool_prompt {
            true => 0,
            false => tokenizer.prompt_tokens(),
        },
        keep: spec.keep,
        normalise: spec.normalise,
    }
}

/// Loads all weights, linear layers one after the other through `linear` (and those after pooling through `dense`), so
/// that they are never all in memory twice.
pub(super) fn load<L>(
    folder: &ModelFolder,
    spec: &TransformerSpec,
    linear: &dyn Fn(Raw) -> Result<L, ModelError>,
    dense: &dyn Fn(Raw) -> Result<L, ModelError>,
) -> Result<(TransformerWeights<L>, &'static str), ModelError> {
    let plan = &spec.plan;
    let file = in_folder(&spec.path, WEIGHTS);
    let files = WeightFiles::read(folder, &file)?;
    let tensors = Tensors::new(folder, &files)?;
    let of_layer = |names: &Names| format!("{}0.{}.weight", names.layer, names.attention_output);
    let is_there = |names: &&Names| {
        let mut prefixes = names.prefixes.iter();
        prefixes.any(|prefix| tensors.has(&format!("{prefix}{}", of_layer(names))))
    };
    let names = plan.names.iter().find(is_there).or(plan.names.first());
    let Some(names) = names else {
        return Err(tensors.bad("no names of its tensors are known"));
    };
    let tensors = tensors.under(names.prefixes, &of_layer(names));
    let stored = tensors.stored_precision();
    let reader = Reader {
        tensors,
        plan,
        names,
    };
    let (words, positions) = reader.embeddings()?;
    let layers = plan.layers.iter().enumerate();
    let layers = layers.map(|(at, layer)| reader.layer(at, *layer, linear));
    let weights = TransformerWeights {
        words,
        positions,
        embedding_norm: names.embedding_norm.map(|n| reader.norm(n)).transpose()?,
        offset_bias: reader.offset_bias()?,
        layers: layers.collect::<Result<_, ModelError>>()?,
        last_norm: names.last_norm.map(|name| reader.norm(name)).transpose()?,
        dense: load_dense(folder, spec, dense)?,
    };
    Ok((weights, stored))
}

/// Reads what a plan names.
struct Reader<'a> {
    tensors: Tensors<'a>,
    plan: &'a Plan,
    names: &'a Names,
}

impl Reader<'_> {
    /// Words, and positions where there are any; the embedding of the first type of tokens is in one of them.
    fn embeddings(&self) -> Result<(Vec<f32>, Option<Vec<f32>>), ModelError> {
        let shape = &self.plan.shape;
        let (size, tensors) = (shape.hidden, &self.tensors);
        let words = format!("{}.weight", self.names.words);
        let mut words = tensors.get(&words, &[shape.vocabulary, size])?;
        let mut positions = match self.plan.places {
            Places::None | Places::Slopes => None,
            Places::Learned(first) | Places::Buckets(first, _) => {
                let name = format!("{}.weight", self.names.positions);
                let rows = tensors.get(&name, &[first + shape.positions, size])?;
                Some(rows[first * size..].to_vec())
            }
        };
        if let Some(types) = self.names.types {
            let name = format!("{types}.weight");
            let rows = tensors
                .shape(&name)
                .and_then(|shape| shape.first().copied());
            let types = tensors.get(&name, &[rows.unwrap_or(1), size])?;
            let to = positions.as_mut().unwrap_or(&mut words);
            for row in to.chunks_exact_mut(size) {
                row.iter_mut().zip(&types).for_each(|(x, t)| *x += t);
            }
        }
        Ok((words, positions))
    }

    fn norm(&self, name: &str) -> Result<Norm, ModelError> {
        let size = self.plan.shape.hidden;
        let gain = self.tensors.get(&format!("{name}.weight"), &[size])?;
        let bias = match (self.plan.shape.norm, self.plan.biases.norms) {
            (NormKind::RootMeanSquare, _) => Vec::new(),
            (NormKind::Layer, false) => vec![0.0; size],
            (NormKind::Layer, true) => self.tensors.get(&format!("{name}.bias"), &[size])?,
        };
        Ok((gain, bias))
    }

    fn linear(
        &self,
        name: &str,
        inputs: usize,
        outputs: usize,
        has_bias: bool,
    ) -> Result<Raw, ModelError> {
        let weight = format!("{name}.weight");
        Ok(Raw {
            weight: self.tensors.get(&weight, &[outputs, inputs])?,
            bias: match has_bias {
                true => self.tensors.get(&format!("{name}.bias"), &[outputs])?,
                false => vec![0.0; outputs],
            },
        })
    }

    /// Layers of these outputs as one.
    fn parts(
        &self,
        at: &dyn Fn(&str) -> String,
        parts: Parts,
        outputs: &[usize],
        has_bias: bool,
    ) -> Result<Raw, ModelError> {
        let inputs = self.plan.shape.hidden;
        match parts {
            Parts::One(name) => self.linear(&at(name), inputs, outputs.iter().sum(), has_bias),
            Parts::Turned(name) => {
                let all: usize = outputs.iter().sum();
                let mut raw = self.linear(&at(name), inputs, all, has_bias)?;
                raw.weight.rotate_left(all / 2 * inputs);
                raw.bias.rotate_left(all / 2);
                Ok(raw)
            }
            Parts::Apart(names) => {
                let mut whole = Raw {
                    weight: Vec::new(),
                    bias: Vec::new(),
                };
                for (name, outputs) in names.iter().zip(outputs) {
                    let part = self.linear(&at(name), inputs, *outputs, has_bias)?;
                    whole.weight.extend(part.weight);
                    whole.bias.extend(part.bias);
                }
                Ok(whole)
            }
        }
    }

    fn layer<L>(
        &self,
        number: usize,
        layer: LayerPlan,
        linear: &dyn Fn(Raw) -> Result<L, ModelError>,
    ) -> Result<Layer<L>, ModelError> {
        let at = |name: &str| format!("{}{number}.{name}", self.names.layer);
        let (shape, names, wide) = (&self.plan.shape, self.names, self.plan.intermediate);
        let (size, of_keys) = (shape.hidden, shape.key_heads * shape.head_size);
        let Biases {
            query_key_value,
            attention_output,
            intermediate,
            output,
            ..
        } = self.plan.biases;
        let halves = [wide, wide];
        let wide_outputs = if shape.gated {
            &halves[..]
        } else {
            &halves[..1]
        };
        let head_norms = names.head_norms.map(|norms| {
            let gain = |name| {
                let name = format!("{}.weight", at(name));
                self.tensors.get(&name, &[shape.head_size])
            };
            Ok::<_, ModelError>((gain(norms[0])?, gain(norms[1])?))
        });
        Ok(Layer {
            query_key_value: linear(self.parts(
                &at,
                names.query_key_value,
                &[shape.of_heads(), of_keys, of_keys],
                query_key_value,
            )?)?,
            head_norms: head_norms.transpose()?,
            turn: layer.turn,
            mask: layer.mask,
            attention_output: linear(self.linear(
                &at(names.attention_output),
                shape.of_heads(),
                size,
                attention_output,
            )?)?,
            attention_norm: layer
                .attention_norm
                .then(|| self.norm(&at(names.attention_norm)))
                .transpose()?,
            intermediate: linear(self.parts(
                &at,
                names.intermediate,
                wide_outputs,
                intermediate,
            )?)?,
            output: linear(self.linear(&at(names.output), wide, size, output)?)?,
            output_norm: self.norm(&at(names.output_norm))?,
        })
    }

    /// What is added to scores of attention, by head and by the place of the key less that of the query.
    fn offset_bias(&self) -> Result<Option<Vec<f32>>, ModelError> {
        let (heads, most) = (self.plan.shape.heads, self.plan.shape.positions as i64);
        let offsets = 1 - most..most;
        match self.plan.places {
            Places::None | Places::Learned(_) => Ok(None),
            Places::Buckets(_, buckets) => {
                let name = format!("{}.weight", self.names.buckets);
                let table = self.tensors.get(&name, &[buckets, heads])?;
                let of_head = |head: usize| {
                    let table = &table;
                    let offsets = offsets.clone();
                    offsets.map(move |offset| table[mpnet::bucket(offset, buckets) * heads + head])
                };
                Ok(Some((0..heads).flat_map(of_head).collect()))
            }
            Places::Slopes => {
                let of_head = |slope: f64| {
                    let offsets = offsets.clone();
                    offsets.map(move |offset| (-slope * offset.abs() as f64) as f32)
                };
                let slopes = jina_bert::slopes(heads).into_iter();
                Ok(Some(slopes.flat_map(of_head).collect()))
            }
        }
    }
}

/// Loads the layers after pooling.
fn load_dense<L>(
    folder: &ModelFolder,
    spec: &TransformerSpec,
    dense: &dyn Fn(Raw) -> Result<L, ModelError>,
) -> Result<Vec<(L, Activation)>, ModelError> {
    let mut layers = Vec::new();
    let mut width = spec.plan.shape.hidden;
    for (path, tanh) in &spec.dense {
        let file = in_folder(path, WEIGHTS);
        let files = WeightFiles::read(folder, &file)?;
        let tensors = Tensors::new(folder, &files)?;
        let outputs = tensors.shape("linear.weight");
        let outputs = outputs.and_then(|s| s.first().copied()).unwrap_or(0);
        let has_bias = tensors.has("linear.bias");
        let raw = Raw {
            weight: tensors.get("linear.weight", &[outputs, width])?,
            bias: match has_bias {
                true => tensors.get("linear.bias", &[outputs])?,
                false => vec![0.0; outputs],
            },
        };
        width = outputs;
        let activation = match tanh {
            true => Activation::Tanh,
            false => Activation::None,
        };
        layers.push((dense(raw)?, activation));
    }
    Ok(layers)
}
