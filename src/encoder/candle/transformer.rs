//! A transformer as a graph of tensors.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use candle_core::{DType, Result, Tensor};
use candle_nn::ops::{layer_norm, rms_norm, silu, softmax_last_dim};
use candle_nn::rotary_emb::rope;

use super::device::{CandleDevice, CandleLinear, ONES, is_out_of_memory, with_ones};
use super::{failed, said};
use crate::block::Turns;
use crate::{
    Activation, EncodeError, Encoder, Mask, NormKind, NormPlace, Packed, Pooling, TextHead,
    TransformerShape, TransformerWeights, Turn, check,
};

/// Texts of a bucket are at least this share as long as its longest one: little is padded.
const LEAST_FILLED: f64 = 0.9;

/// Added to the scores of padded places: softmax makes 0 of it, also in f16.
const PADDED: f32 = -30_000.0;

/// Fewest tokens that a batch is halved to when memory is short.
const LEAST_TOKENS: usize = 64;

/// Norms as tensors: gain, and bias where they have one.
type Norm = (Tensor, Option<Tensor>);

/// A layer on the device.
struct DeviceLayer {
    /// (heads + 2 * key heads, hidden and ones, size of a head): queries of all heads, then keys, then values.
    heads: Tensor,
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
    layers: Vec<DeviceLayer>,
    last_norm: Option<Norm>,
    dense: Vec<(CandleLinear, Activation)>,
    dim: usize,
    /// Halved when the device runs out of memory.
    tokens_per_batch: AtomicUsize,
}

/// What all layers of a batch share.
struct Batch {
    /// Tokens of the longest text.
    longest: usize,
    /// (heads and rows, ONES), added to the scores of keys.
    padding: Tensor,
    /// Added to scores, by mask: (heads or 1, 1, longest, longest). None where nothing is.
    added: Vec<(Mask, Option<Tensor>)>,
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
    /// An encoder of weights that are on this device.
    ///
    /// # Errors
    /// [`EncodeError::Device`] if the device has no room for them.
    pub fn new(
        device: CandleDevice,
        shape: TransformerShape,
        weights: TransformerWeights<CandleLinear>,
        head: TextHead,
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
                layers.push(DeviceLayer {
                    heads: layer
                        .query_key_value
                        .in_parts(shape.heads + 2 * shape.key_heads)?,
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
                layers,
                dense: weights.dense,
                dim: shape.hidden,
                tokens_per_batch: AtomicUsize::new(0),
            };
            // What is uploaded is there before anything computes with it.
            this.device.device.synchronize()?;
            // One forward pass says how wide vectors are, and that the device works.
            this.dim = this.forward(&[&[0][..]])?.dim(1)?;
            // Kernels count the elements of a tensor in 32 bits.
            let most = i32::MAX as usize / (shape.heads * shape.positions).max(4 * shape.hidden);
            let budget = this.device.tokens_for(this.bytes_per_token()).min(most);
            this.tokens_per_batch.store(budget, Relaxed);
            Ok(this)
        };
        build().map_err(failed)
    }

    /// Bytes of activations for each token of the longest texts: a layer's inputs and outputs, its scores and their
    /// softmax, each with a copy that an operation in between may need.
    fn bytes_per_token(&self) -> usize {
        let number = self.device.dtype.size_in_bytes();
        let wide = 20 * self.shape.hidden;
        let scores = 3 * self.shape.heads * self.shape.positions;
        number * (wide + scores)
    }

    /// Vectors (texts, dim) of texts that are padded to the longest of them.
    fn forward(&self, texts: &[&[u32]]) -> Result<Tensor> {
        let count = texts.len();
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let rows = count * longest;
        let (device, hidden) = (&self.device.device, self.shape.hidden);
        let mut ids = vec![0u32; rows];
        let mut padding = vec![0f32; rows * ONES];
        for (at, text) in texts.iter().enumerate() {
            let row = at * longest;
            ids[row..row + text.len()].copy_from_slice(text);
            for padded in row + text.len()..row + longest {
                padding[padded * ONES] = PADDED;
            }
        }
        let words = self
            .words
            .index_select(&Tensor::from_vec(ids, rows, device)?, 0)?;
        let mut x = words;
        if let Some(positions) = &self.positions {
            let texts = x.reshape((count, longest, hidden))?;
            let placed = texts.broadcast_add(&positions.narrow(0, 0, longest)?)?;
            x = placed.reshape((rows, hidden))?;
        }
        let mut x = self.norm(&x, self.embedding_norm.as_ref())?;
        // The same for all heads.
        let padding = self.device.tensor(padding, (rows, ONES))?;
        let batch = Batch {
            longest,
            padding: Tensor::cat(&vec![&padding; self.shape.heads], 0)?,
            added: self.added(longest)?,
        };
        for layer in &self.layers {
            let (attention_norm, output_norm) =
                (layer.attention_norm.as_ref(), Some(&layer.output_norm));
            x = match self.shape.norm_place {
                NormPlace::After => {
                    let attended = self.attend(layer, &x, &batch)?;
                    let x = self.norm(&(x + attended)?, attention_norm)?;
                    self.norm(&(&x + self.feed(layer, &x)?)?, output_norm)?
                }
                NormPlace::Before => {
                    let attended = self.attend(layer, &self.norm(&x, attention_norm)?, &batch)?;
                    let x = (x + attended)?;
                    (&x + self.feed(layer, &self.norm(&x, output_norm)?)?)?
                }
            };
        }
        let x = self.norm(&x, self.last_norm.as_ref())?;
        self.pool(&x, texts, longest)
    }

    /// What masks and offsets add to the scores of texts of `longest` tokens.
    fn added(&self, longest: usize) -> Result<Vec<(Mask, Option<Tensor>)>> {
        let mut added: Vec<(Mask, Option<Tensor>)> = Vec::new();
        for mask in self.layers.iter().map(|layer| layer.mask) {
            if added.iter().any(|(known, _)| *known == mask) {
                continue;
            }
            if mask == Mask::All && self.offset_bias.is_none() {
                added.push((mask, None));
                continue;
            }
            let heads = self.offset_bias.as_ref().map_or(1, |_| self.shape.heads);
            let width = 2 * self.shape.positions - 1;
            let mut scores = Vec::with_capacity(heads * longest * longest);
            for head in 0..heads {
                for query in 0..longest {
                    let seen = mask.seen(query, longest);
                    let first = head * width + self.shape.positions - 1 - query;
                    scores.extend((0..longest).map(|key| match &self.offset_bias {
                        _ if !seen.contains(&key) => PADDED,
                        Some(bias) => bias[first + key],
                        None => 0.0,
                    }));
                }
            }
            let tensor = self.device.tensor(scores, (heads, 1, longest, longest))?;
            added.push((mask, Some(tensor)));
        }
        Ok(added)
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

    /// Attention of rows (rows, hidden) of texts of as many tokens as the longest. Every tensor in here is made in the order
    /// of memory that its next product wants, and products add what is to be added: copies in another order, and sums of
    /// unlike shapes, take a GPU longer than the products.
    fn attend(&self, layer: &DeviceLayer, x: &Tensor, batch: &Batch) -> Result<Tensor> {
        let TransformerShape {
            heads,
            key_heads,
            head_size: size,
            ..
        } = self.shape;
        let longest = batch.longest;
        let (rows, _) = x.dims2()?;
        let texts = rows / longest;
        let x = with_ones(&[x])?;
        let all = x
            .broadcast_as((heads + 2 * key_heads, rows, x.dim(1)?))?
            .matmul(&layer.heads)?;
        let part =
            |first: usize, count: usize| all.narrow(0, first, count)?.reshape((count * rows, size));
        // (heads and texts, tokens, numbers)
        let by_text = |x: Tensor| {
            let width = x.dim(1)?;
            x.reshape((heads * texts, longest, width))
        };
        let placed = |x: Tensor, gain: Option<&Tensor>| -> Result<Tensor> {
            let mut x = x;
            if let Some(gain) = gain {
                x = rms_norm(&x, gain, self.shape.epsilon)?;
            }
            if let Some((_, cosines, sines)) = layer.turn.and_then(|turn| self.turns.get(turn)) {
                let count = x.dim(0)? / rows;
                let (cosines, sines) =
                    (cosines.narrow(0, 0, longest)?, sines.narrow(0, 0, longest)?);
                let turned = rope(&x.reshape((count, texts, longest, size))?, &cosines, &sines)?;
                x = turned.reshape((count * rows, size))?;
            }
            Ok(x)
        };
        // Heads of keys and values, once for each attention head.
        let for_all = |x: Tensor| -> Result<Tensor> {
            match heads / key_heads {
                1 => Ok(x),
                shared => x
                    .reshape((key_heads, 1, rows, size))?
                    .broadcast_as((key_heads, shared, rows, size))?
                    .contiguous()?
                    .reshape((heads * rows, size)),
            }
        };
        let gains = layer.head_norms.as_ref();
        let query = placed(part(0, heads)?, gains.map(|(query, _)| query))?;
        let key = placed(part(heads, key_heads)?, gains.map(|(_, key)| key))?;
        let value = by_text(for_all(part(heads + key_heads, key_heads)?)?)?;
        // Scaled before the product, so that scores stay within the range of f16.
        let query = (query * (1.0 / (size as f64).sqrt()))?;
        let query = by_text(with_ones(&[&query])?)?;
        let key = by_text(Tensor::cat(&[&for_all(key)?, &batch.padding], 1)?)?;
        let mut scores = query.matmul(&key.t()?)?;
        let mut added = batch.added.iter();
        if let Some((_, Some(added))) = added.find(|(mask, _)| *mask == layer.mask) {
            let by_head = scores.reshape((heads, texts, longest, longest))?;
            scores = by_head
                .broadcast_add(added)?
                .reshape((heads * texts, longest, longest))?;
        }
        let weights = softmax_last_dim(&scores)?;
        let context = weights.matmul(&value)?.reshape((heads, rows, size))?;
        let columns = (0..heads).map(|head| context.get(head));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let context = with_ones(&columns.iter().collect::<Vec<_>>())?;
        layer.attention_output.apply_to_rows_with_ones(&context)
    }

    /// Pools rows (texts and tokens, hidden) on the device, at f32.
    fn pool(&self, x: &Tensor, texts: &[&[u32]], longest: usize) -> Result<Tensor> {
        let count = texts.len();
        let device = &self.device.device;
        let x = x
            .to_dtype(DType::F32)?
            .reshape((count, longest, self.shape.hidden))?;
        let first = |text: &[u32]| self.head.first_pooled(text.len());
        let mut vectors = if self.head.pooling == Pooling::Max {
            let mut outside = vec![f32::MIN; count * longest];
            for (at, text) in texts.iter().enumerate() {
                outside[at * longest..][first(text)..text.len()].fill(0.0);
            }
            let outside = Tensor::from_vec(outside, (count, longest, 1), device)?;
            x.broadcast_add(&outside)?.max(1)?
        } else {
            // All others are sums with weights.
            let mut weights = vec![0f32; count * longest];
            for (at, text) in texts.iter().enumerate() {
                let before = first(text);
                let row = &mut weights[at * longest..][before..text.len()];
                let tokens = row.len();
                match self.head.pooling {
                    Pooling::Cls => row[0] = 1.0,
                    Pooling::LastToken => row[tokens - 1] = 1.0,
                    Pooling::MeanSqrtLen => row.fill(1.0 / (tokens as f32).sqrt()),
                    Pooling::WeightedMean => {
                        let total = (tokens * before + tokens * (tokens + 1) / 2) as f32;
                        let places = row.iter_mut().enumerate();
                        places.for_each(|(place, w)| *w = (before + place + 1) as f32 / total);
                    }
                    Pooling::Mean | Pooling::Max => row.fill(1.0 / tokens as f32),
                }
            }
            let weights = Tensor::from_vec(weights, (count, 1, longest), device)?;
            weights.matmul(&x)?.squeeze(1)?
        };
        for (linear, activation) in &self.dense {
            let narrow = vectors.to_dtype(self.device.dtype)?;
            vectors = activate(&linear.apply(&narrow)?, *activation)?.to_dtype(DType::F32)?;
        }
        if let Some(keep) = self.head.keep {
            vectors = vectors
                .narrow(1, 0, keep.min(vectors.dim(1)?))?
                .contiguous()?;
        }
        if self.head.normalise {
            let length = vectors.sqr()?.sum_keepdim(1)?.sqrt()?.maximum(1e-12)?;
            vectors = vectors.broadcast_div(&length)?;
        }
        Ok(vectors)
    }

    /// Vectors of texts in chunks of at most `budget` tokens, padding counted; halves the budget and goes on when the
    /// device is out of memory.
    fn encode_all(&self, texts: &[&[u32]]) -> std::result::Result<Vec<Vec<f32>>, EncodeError> {
        let mut done = Vec::with_capacity(texts.len());
        while done.len() < texts.len() {
            let budget = self.tokens_per_batch.load(Relaxed);
            let bucket = bucket(&texts[done.len()..], budget);
            let vectors = self.forward(bucket).and_then(|v| v.to_vec2::<f32>());
            match vectors {
                Ok(vectors) => done.extend(vectors),
                Err(error) => {
                    let message = said(&error);
                    if !is_out_of_memory(&message) || budget <= LEAST_TOKENS {
                        return Err(EncodeError::Device(message));
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

/// The first of texts, longest first, that go together: at most `budget` tokens when padded, and all nearly as long as
/// the first one. At least one.
fn bucket<'a, 't>(texts: &'a [&'t [u32]], budget: usize) -> &'a [&'t [u32]] {
    let longest = texts.first().map_or(0, |text| text.len());
    let most = (budget / longest.max(1)).max(1);
    let alike = texts
        .iter()
        .take(most)
        .take_while(|text| text.len() as f64 >= longest as f64 * LEAST_FILLED);
    &texts[..alike.count()]
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

    fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> std::result::Result<(), EncodeError> {
        check(&self.shape, batch)?;
        let texts: Vec<&[u32]> = batch.spans().map(|span| &batch.ids()[span]).collect();
        let mut by_length: Vec<usize> = (0..texts.len()).collect();
        by_length.sort_by_key(|&at| std::cmp::Reverse(texts[at].len()));
        let sorted: Vec<&[u32]> = by_length.iter().map(|&at| texts[at]).collect();
        let vectors = self.encode_all(&sorted)?;
        let start = out.len();
        out.resize(start + texts.len() * self.dim, 0.0);
        for (at, vector) in by_length.into_iter().zip(vectors) {
            out[start + at * self.dim..][..self.dim].copy_from_slice(&vector);
        }
        Ok(())
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
        self.device.name().to_owned()
    }

    fn revision(&self) -> u32 {
        super::REVISION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_alike_texts_within_the_budget() {
        let text = [0u32; 100];
        let texts: Vec<&[u32]> = [100, 95, 90, 89, 85, 1].map(|n| &text[..n]).to_vec();
        assert_eq!(bucket(&texts, 1000).len(), 3);
        assert_eq!(bucket(&texts, 200).len(), 2);
        assert_eq!(
            bucket(&texts, 10).len(),
            1,
            "a text longer than the budget goes alone"
        );
        assert_eq!(bucket(&texts[3..], 1000).len(), 2);
        assert_eq!(bucket(&texts[5..], 1000).len(), 1);
        assert!(bucket(&[], 1000).is_empty());
    }

    #[test]
    fn words_for_too_little_memory_are_known() {
        for message in [
            "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")",
            "CUBLAS_STATUS_ALLOC_FAILED",
            "Failed to allocate buffer",
        ] {
            assert!(is_out_of_memory(message), "{message}");
        }
        assert!(!is_out_of_memory(
            "an illegal memory access was encountered"
        ));
    }
}
