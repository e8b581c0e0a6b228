//! Attention of texts that are padded to one length, heads and texts side by side.

use candle_core::{Result, Tensor};
use candle_nn::ops::{rms_norm, softmax_last_dim};
use candle_nn::rotary_emb::rope;

use super::{CandleTransformer, DeviceLayer, QueryKeyValue};
use crate::TransformerShape;
use crate::candle::device::with_ones;

impl CandleTransformer {
    /// Of texts that are all padded to `longest` tokens. Every tensor in here is made in the order
    /// of memory that its next product wants, and products add what is to be added: copies in another order, and sums of
    /// unlike shapes, take a GPU longer than the products.
    pub(super) fn attend_padded(
        &self,
        layer: &DeviceLayer,
        x: &Tensor,
        longest: usize,
        padding: &Tensor,
        added: Option<&Tensor>,
    ) -> Result<Tensor> {
        let TransformerShape {
            heads,
            key_heads,
            head_size: size,
            ..
        } = self.shape;
        let QueryKeyValue::Apart(weight) = &layer.query_key_value else {
            candle_core::bail!("a padded pass of a packed graph");
        };
        let (rows, _) = x.dims2()?;
        let texts = rows / longest;
        let x = with_ones(&[x])?;
        let all = x
            .broadcast_as((heads + 2 * key_heads, rows, x.dim(1)?))?
            .matmul(weight)?;
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
        let key = by_text(Tensor::cat(&[&for_all(key)?, padding], 1)?)?;
        let mut scores = query.matmul(&key.t()?)?;
        if let Some(added) = added {
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
}
