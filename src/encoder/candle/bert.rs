//! BERT as a graph of tensors.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use candle_core::{DType, Result, Tensor};
use candle_nn::ops::{layer_norm, softmax_last_dim};

use super::device::{CandleDevice, CandleLinear, ONES, is_out_of_memory, with_ones};
use super::{failed, said};
use crate::{
    Activation, BertShape, BertWeights, EncodeError, Encoder, Packed, Pooling, TextHead, check,
};

/// Texts of a bucket are at least this share as long as its longest one: little is padded.
const LEAST_FILLED: f64 = 0.9;

/// Added to the scores of padded places: softmax makes 0 of it, also in f16.
const PADDED: f32 = -30_000.0;

/// Fewest tokens that a batch is halved to when memory is short.
const LEAST_TOKENS: usize = 64;

/// Norms as tensors: gain and bias.
type Norm = (Tensor, Tensor);

/// A layer on the device.
struct DeviceLayer {
    /// (3 * heads, hidden and ones, size of a head): queries of all heads, then keys, then values.
    heads: Tensor,
    attention_output: CandleLinear,
    attention_norm: Norm,
    intermediate: CandleLinear,
    output: CandleLinear,
    output_norm: Norm,
}

/// A BERT sentence encoder as a candle graph.
pub struct CandleBert {
    device: CandleDevice,
    shape: BertShape,
    head: TextHead,
    words: Tensor,
    positions: Tensor,
    embedding_norm: Norm,
    layers: Vec<DeviceLayer>,
    dense: Vec<(CandleLinear, Activation)>,
    dim: usize,
    /// Halved when the device runs out of memory.
    tokens_per_batch: AtomicUsize,
}

impl std::fmt::Debug for CandleBert {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CandleBert")
            .field("device", &self.device)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl CandleBert {
    /// An encoder of weights that are on this device.
    ///
    /// # Errors
    /// [`EncodeError::Device`] if the device has no room for them.
    pub fn new(
        device: CandleDevice,
        shape: BertShape,
        weights: BertWeights<CandleLinear>,
        head: TextHead,
    ) -> std::result::Result<Self, EncodeError> {
        let build = || {
            let norm = |(gain, bias): (Vec<f32>, Vec<f32>)| -> Result<Norm> {
                Ok((
                    device.tensor(gain, shape.hidden)?,
                    device.tensor(bias, shape.hidden)?,
                ))
            };
            let mut layers = Vec::new();
            for layer in weights.layers {
                layers.push(DeviceLayer {
                    heads: layer.query_key_value.in_parts(3 * shape.heads)?,
                    attention_output: layer.attention_output,
                    attention_norm: norm(layer.attention_norm)?,
                    intermediate: layer.intermediate,
                    output: layer.output,
                    output_norm: norm(layer.output_norm)?,
                });
            }
            let words = device.tensor(weights.words, (shape.vocabulary, shape.hidden))?;
            let positions = device.tensor(weights.positions, (shape.positions, shape.hidden))?;
            let mut this = Self {
                embedding_norm: norm(weights.embedding_norm)?,
                device,
                shape,
                head,
                words,
                positions,
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
        let positions = self.positions.narrow(0, 0, longest)?;
        let x = words
            .reshape((count, longest, hidden))?
            .broadcast_add(&positions)?;
        let mut x = self.norm(&x.reshape((rows, hidden))?, &self.embedding_norm)?;
        // The same for all heads.
        let padding = self.device.tensor(padding, (rows, ONES))?;
        let padding = Tensor::cat(&vec![&padding; self.shape.heads], 0)?;
        for layer in &self.layers {
            let attended = self.attend(layer, &x, &padding, longest)?;
            x = self.norm(&(x + attended)?, &layer.attention_norm)?;
            let wide = activate(&layer.intermediate.apply(&x)?, self.shape.activation)?;
            x = self.norm(&(&x + layer.output.apply(&wide)?)?, &layer.output_norm)?;
        }
        self.pool(&x, texts, longest)
    }

    fn norm(&self, x: &Tensor, (gain, bias): &Norm) -> Result<Tensor> {
        layer_norm(x, gain, bias, self.shape.epsilon)
    }

    /// Attention of rows (rows, hidden) of texts of `longest` tokens each; `padding` (heads and rows, ONES) is added to
    /// the scores of keys. Every tensor in here is made in the order of memory that its next product wants, and products
    /// add what is to be added: copies in another order, and sums of unlike shapes, take a GPU longer than the products.
    fn attend(
        &self,
        layer: &DeviceLayer,
        x: &Tensor,
        padding: &Tensor,
        longest: usize,
    ) -> Result<Tensor> {
        let heads = self.shape.heads;
        let size = self.shape.hidden / heads;
        let (rows, _) = x.dims2()?;
        let x = with_ones(&[x])?;
        let all = x
            .broadcast_as((3 * heads, rows, x.dim(1)?))?
            .matmul(&layer.heads)?;
        let part = |at: usize| {
            all.narrow(0, at * heads, heads)?
                .reshape((heads * rows, size))
        };
        // (heads and texts, tokens, numbers)
        let by_text = |x: Tensor| {
            let width = x.dim(1)?;
            x.reshape((heads * rows / longest, longest, width))
        };
        // Scaled before the product, so that scores stay within the range of f16.
        let query = (part(0)? * (1.0 / (size as f64).sqrt()))?;
        let query = by_text(with_ones(&[&query])?)?;
        let key = by_text(Tensor::cat(&[&part(1)?, padding], 1)?)?;
        let value = by_text(part(2)?)?;
        let weights = softmax_last_dim(&query.matmul(&key.t()?)?)?;
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
                let row = &mut weights[at * longest..][first(text)..text.len()];
                let tokens = row.len();
                match self.head.pooling {
                    Pooling::Cls => row[0] = 1.0,
                    Pooling::LastToken => row[tokens - 1] = 1.0,
                    Pooling::MeanSqrtLen => row.fill(1.0 / (tokens as f32).sqrt()),
                    Pooling::WeightedMean => {
                        let total = (tokens * (tokens + 1) / 2) as f32;
                        let places = row.iter_mut().enumerate();
                        places.for_each(|(place, w)| *w = (place + 1) as f32 / total);
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
        Activation::Tanh => x.tanh(),
    }
}

impl Encoder for CandleBert {
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
