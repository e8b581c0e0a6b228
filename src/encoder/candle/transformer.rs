//! A transformer as a graph of tensors.
//!
//! Two graphs go through the same layers. Padded: texts of nearly one length side by side, each in as many rows as the longest;
//! queries, keys and values are products of their own, made where the next product reads them. Packed: texts end to end in
//! as many rows as there always are, queries, keys and values in one product, and attention of texts of one length together,
//! which is one operation on Metal.

mod attention;
mod packed;
mod padded;
mod rows;
#[cfg(test)]
mod tests;
mod text_head;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use candle_core::{DType, Result, Tensor};
use candle_nn::ops::{layer_norm, rms_norm, silu};

use self::attention::Added;
use self::rows::Rows;
use super::device::{CandleDevice, CandleLinear, is_out_of_memory};
use super::{failed, said};
use crate::block::Turns;
use crate::exact::{Exact, again_at_f32};
use crate::{
    Activation, EncodeError, Encoder, Mask, NormKind, NormPlace, Packed, TextHead,
    TransformerShape, TransformerWeights, Turn, check,
};

/// Fewest tokens that a batch is halved to when memory is short.
const LEAST_TOKENS: usize = 64;

/// Norms as tensors: gain, and bias where they have one.
type Norm = (Tensor, Option<Tensor>);

/// Queries of all heads, then keys, then values.
enum QueryKeyValue {
    /// A product a head, of the padded graph: (heads + 2 * key heads, hidden and ones, size of a head).
    Apart(Tensor),
    /// One product, of the packed graph.
    Together(CandleLinear),
}

/// A layer on the device.
struct DeviceLayer {
    query_key_value: QueryKeyValue,
    /// Gains of norms over queries and keys.
    head_norms: Option<(Tensor, Tensor)>,
    /// The number of its turns.
    turn: Option<usize>,
    mask: Mask,
    attention_output: CandleLinear,
    attention_norm: Option<Norm>,
    intermediate: CandleLinear,
    output: CandleLinear,
    output_norm: Norm,
}

/// A transformer sentence encoder as a candle graph.
pub struct CandleTransformer {
    device: CandleDevice,
    shape: TransformerShape,
    head: TextHead,
    words: Tensor,
    positions: Option<Tensor>,
    embedding_norm: Option<Norm>,
    /// Each once, with cosines and sines (positions, half of a head).
    turns: Vec<(Turn, Tensor, Tensor)>,
    /// (heads, 2 * positions - 1) on the host.
    offset_bias: Option<Vec<f32>>,
    /// What masks and offsets add to scores, as far as it is kept, see `added`.
    added: Mutex<Option<Added>>,
    layers: Vec<DeviceLayer>,
    last_norm: Option<Norm>,
    dense: Vec<(CandleLinear, Activation)>,
    dim: usize,
    /// Whether texts lie end to end.
    packed: bool,
    /// Most rows of a pass, and of the packed graph those of each. Of the padded one halved when memory runs out.
    tokens_per_batch: AtomicUsize,
    /// For what f16 can't hold; none where this one computes at f32.
    exact: Option<Exact>,
}

impl std::fmt::Debug for CandleTransformer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CandleTransformer")
            .field("device", &self.device)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl CandleTransformer {
    /// An encoder of weights that are on this device, as a packed or as a padded graph; `exact` makes an encoder at f32 when
    /// it is needed.
    ///
    /// # Errors
    /// [`EncodeError::Device`] if the device has no room for them.
    pub fn new(
        device: CandleDevice,
        shape: TransformerShape,
        weights: TransformerWeights<CandleLinear>,
        head: TextHead,
        packed: bool,
        exact: Option<Exact>,
    ) -> std::result::Result<Self, EncodeError> {
        let build = || {
            let norm = |(gain, bias): (Vec<f32>, Vec<f32>)| -> Result<Norm> {
                let bias = (!bias.is_empty()).then(|| device.tensor(bias, shape.hidden));
                Ok((device.tensor(gain, shape.hidden)?, bias.transpose()?))
            };
            let mut turns: Vec<(Turn, Tensor, Tensor)> = Vec::new();
            for turn in weights.layers.iter().filter_map(|layer| layer.turn) {
                if turns.iter().all(|(known, ..)| *known != turn) {
                    let of = Turns::of(turn, shape.head_size, shape.positions);
                    let size = (shape.positions, of.half);
                    let cosines = device.tensor(of.cosines, size)?;
                    turns.push((turn, cosines, device.tensor(of.sines, size)?));
                }
            }
            let mut layers = Vec::new();
            for layer in weights.layers {
                let gains = layer.head_norms.map(|(query, key)| -> Result<_> {
                    let gain = |gain: Vec<f32>| device.tensor(gain, shape.head_size);
                    Ok((gain(query)?, gain(key)?))
                });
                let heads = shape.heads + 2 * shape.key_heads;
                layers.push(DeviceLayer {
                    query_key_value: match packed {
                        true => QueryKeyValue::Together(layer.query_key_value),
                        false => QueryKeyValue::Apart(layer.query_key_value.in_parts(heads)?),
                    },
                    head_norms: gains.transpose()?,
                    turn: turns
                        .iter()
                        .position(|(turn, ..)| Some(*turn) == layer.turn),
                    mask: layer.mask,
                    attention_output: layer.attention_output,
                    attention_norm: layer.attention_norm.map(norm).transpose()?,
                    intermediate: layer.intermediate,
                    output: layer.output,
                    output_norm: norm(layer.output_norm)?,
                });
            }
            let words = device.tensor(weights.words, (shape.vocabulary, shape.hidden))?;
            let positions = weights.positions;
            let positions =
                positions.map(|rows| device.tensor(rows, (shape.positions, shape.hidden)));
            let mut this = Self {
                embedding_norm: weights.embedding_norm.map(norm).transpose()?,
                last_norm: weights.last_norm.map(norm).transpose()?,
                device,
                shape,
                head,
                words,
                positions: positions.transpose()?,
                turns,
                offset_bias: weights.offset_bias,
                added: Mutex::default(),
                layers,
                dense: weights.dense,
                dim: shape.hidden,
                packed,
                tokens_per_batch: AtomicUsize::new(0),
                exact,
            };
            // What is uploaded is there before anything computes with it.
            this.device.device.synchronize()?;
            // Kernels count the elements of a tensor in 32 bits.
            let most = i32::MAX as usize / (shape.heads * shape.positions).max(4 * shape.hidden);
            let budget = this.device.tokens_for(this.bytes_per_token()).min(most);
            this.tokens_per_batch.store(budget, Relaxed);
            this.dim = match packed {
                true => this.first_packed_pass(budget)?,
                false => this.forward(&Rows::padded(&[&[0]], 1))?.dim(1)?,
            };
            Ok(this)
        };
        build().map_err(failed)
    }

    /// Vectors of the texts of a pass on the host.
    fn values(&self, rows: &Rows<'_>) -> Result<Vec<Vec<f32>>> {
        let vectors = self.forward(rows)?;
        // Metal tells of what failed on the way to whoever waits for all of it, and to nobody else.
        self.device.device.synchronize()?;
        vectors.to_vec2::<f32>()
    }

    /// A pass says how wide vectors are, that the device works, and how many rows it has room for: all passes are as large.
    fn first_packed_pass(&mut self, most: usize) -> Result<usize> {
        let mut rows = most.max(self.shape.positions);
        // Longer ones are rare, and what is added to their scores is made when one comes.
        let longest = vec![0; self.shape.positions.min(512)];
        loop {
            let texts = vec![&longest[..]; rows / longest.len().max(1)];
            let made = self.values(&Rows::packed(&texts, rows));
            let half = rows / 2;
            match made.map(|vectors| vectors.first().map_or(0, Vec::len)) {
                Err(error) if is_out_of_memory(&said(&error)) && half >= self.shape.positions => {
                    tracing::warn!(
                        tokens = half,
                        "the device is out of memory; a smaller slot is tried"
                    );
                    rows = half;
                }
                Err(error) if is_out_of_memory(&said(&error)) => {
                    candle_core::bail!("{}; use --gpu-graph padded", said(&error))
                }
                dim => {
                    self.tokens_per_batch.store(rows, Relaxed);
                    return dim;
                }
            }
        }
    }

    /// Bytes of activations for each token of the longest texts: a layer's inputs and outputs, its scores and their
    /// softmax, each with a copy that an operation in between may need.
    fn bytes_per_token(&self) -> usize {
        let number = self.device.dtype.size_in_bytes();
        let wide = 20 * self.shape.hidden;
        let scores = 3 * self.shape.heads * self.shape.positions;
        number * (wide + scores)
    }

    /// Vectors (texts, dim) of the texts of a pass.
    fn forward(&self, rows: &Rows<'_>) -> Result<Tensor> {
        let device = &self.device.device;
        let (ids, places) = rows.tokens();
        let ids = Tensor::from_vec(ids, rows.count, device)?;
        let places = Tensor::from_vec(places, rows.count, device)?;
        let mut x = self.words.index_select(&ids, 0)?;
        if let Some(positions) = &self.positions {
            x = (x + positions.index_select(&places, 0)?)?;
        }
        let mut x = self.norm(&x, self.embedding_norm.as_ref())?;
        let pass = self.pass(rows, &places)?;
        for layer in &self.layers {
            let (attention_norm, output_norm) =
                (layer.attention_norm.as_ref(), Some(&layer.output_norm));
            x = match self.shape.norm_place {
                NormPlace::After => {
                    let attended = self.attend(layer, &x, &pass)?;
                    let x = self.norm(&(x + attended)?, attention_norm)?;
                    self.norm(&(&x + self.feed(layer, &x)?)?, output_norm)?
                }
                NormPlace::Before => {
                    let attended = self.attend(layer, &self.norm(&x, attention_norm)?, &pass)?;
                    let x = (x + attended)?;
                    (&x + self.feed(layer, &self.norm(&x, output_norm)?)?)?
                }
            };
        }
        let x = self.norm(&x, self.last_norm.as_ref())?;
        self.vectors(&x, rows)
    }

    fn norm(&self, x: &Tensor, norm: Option<&Norm>) -> Result<Tensor> {
        match (norm, self.shape.norm) {
            (None, _) => Ok(x.clone()),
            (Some((gain, Some(bias))), NormKind::Layer) => {
                layer_norm(x, gain, bias, self.shape.epsilon)
            }
            (Some((gain, _)), _) => rms_norm(x, gain, self.shape.epsilon),
        }
    }

    /// The feed-forward layers.
    fn feed(&self, layer: &DeviceLayer, x: &Tensor) -> Result<Tensor> {
        let wide = layer.intermediate.apply(x)?;
        let activation = self.shape.activation;
        if !self.shape.gated {
            return layer.output.apply(&activate(&wide, activation)?);
        }
        let half = wide.dim(1)? / 2;
        let activated = activate(&wide.narrow(1, 0, half)?.contiguous()?, activation)?;
        layer
            .output
            .apply(&(activated * wide.narrow(1, half, half)?)?)
    }

    /// Vectors of texts, longest first, in passes of at most as many rows as a batch has tokens; the padded graph halves them
    /// and goes on when the device is out of memory.
    fn encode_all(&self, texts: &[&[u32]]) -> std::result::Result<Vec<Vec<f32>>, EncodeError> {
        let mut done = Vec::with_capacity(texts.len());
        while done.len() < texts.len() {
            let budget = self.tokens_per_batch.load(Relaxed);
            let rest = &texts[done.len()..];
            let rows = match self.packed {
                true => Rows::packed(rest, budget),
                false => Rows::padded(rest, budget),
            };
            match self.values(&rows) {
                Ok(vectors) => done.extend(vectors),
                Err(error) => {
                    let message = said(&error);
                    if !is_out_of_memory(&message) || budget <= LEAST_TOKENS {
                        return Err(EncodeError::Device(message));
                    }
                    if self.packed {
                        // Slots of another size may round otherwise.
                        return Err(EncodeError::Device(format!(
                            "{message}; run it again when less is running there, or with --gpu-graph padded"
                        )));
                    }
                    // Another call may have halved it already.
                    let half = budget / 2;
                    let _ = self
                        .tokens_per_batch
                        .compare_exchange(budget, half, Relaxed, Relaxed);
                    tracing::warn!(
                        tokens = half,
                        "the device is out of memory; smaller batches are tried"
                    );
                }
            }
        }
        Ok(done)
    }
}

fn activate(x: &Tensor, activation: Activation) -> Result<Tensor> {
    match activation {
        Activation::None => Ok(x.clone()),
        Activation::Gelu => x.gelu_erf(),
        Activation::GeluTanh => x.gelu(),
        Activation::Relu => x.relu(),
        Activation::Silu => silu(x),
        Activation::Tanh => x.tanh(),
    }
}

impl Encoder for CandleTransformer {
    fn dim(&self) -> usize {
        self.dim
    }

    fn encode(
        &self,
        batch: &Packed,
        out: &mut Vec<f32>,
    ) -> std::result::Result<usize, EncodeError> {
        check(&self.shape, batch)?;
        let texts: Vec<&[u32]> = batch.spans().map(|span| &batch.ids()[span]).collect();
        let mut by_length: Vec<usize> = (0..texts.len()).collect();
        by_length.sort_by_key(|&at| std::cmp::Reverse(texts[at].len()));
        let sorted: Vec<&[u32]> = by_length.iter().map(|&at| texts[at]).collect();
        let mut vectors = self.encode_all(&sorted)?.concat();
        let again = match &self.exact {
            Some(exact) => again_at_f32(&sorted, self.dim, &mut vectors, exact)?,
            None => 0,
        };
        let start = out.len();
        out.resize(start + texts.len() * self.dim, 0.0);
        for (at, vector) in by_length.into_iter().zip(vectors.chunks_exact(self.dim)) {
            out[start + at * self.dim..][..self.dim].copy_from_slice(vector);
        }
        Ok(again)
    }

    fn tokens_per_batch(&self) -> usize {
        self.tokens_per_batch.load(Relaxed)
    }

    /// One: a device and its weights are one lane, see [`super::Lanes`].
    fn batches_at_once(&self) -> usize {
        1
    }

    fn precision(&self) -> &'static str {
        match self.device.dtype {
            DType::F16 => "f16",
            _ => "f32",
        }
    }

    fn device(&self) -> String {
        match self.packed {
            // Another size of its products may round otherwise.
            true => format!("{} packed {}", self.device.name(), self.tokens_per_batch()),
            false => self.device.name().to_owned(),
        }
    }

    fn revision(&self) -> u32 {
        super::REVISION
    }
}
