//! Attention of texts that lie end to end: queries, keys and values are one product, and texts of one length attend together,
//! on Metal in one operation.

use candle_core::{Device, Result, Tensor};
use candle_nn::ops::{rms_norm, sdpa, softmax_last_dim};
use candle_nn::rotary_emb::rope_thd;

use super::rows::{Group, Rows};
use super::{CandleTransformer, DeviceLayer, QueryKeyValue};
use crate::TransformerShape;

/// Sizes of heads that the fused attention of Metal has kernels for.
const FUSED: [usize; 7] = [32, 64, 72, 80, 96, 128, 256];

/// Some of the heads in rows (rows, heads, size) without gaps.
struct Heads {
    all: Tensor,
    first: usize,
    count: usize,
}

impl Heads {
    /// Those of a group: (texts, heads, tokens, size), not copied.
    fn of(&self, group: &Group<'_>) -> Result<Tensor> {
        let (_, heads, size) = self.all.dims3()?;
        self.all
            .narrow(0, group.first_row, group.count())?
            .reshape((group.texts.len(), group.longest, heads, size))?
            .narrow(2, self.first, self.count)?
            .transpose(1, 2)
    }
}

impl CandleTransformer {
    /// Whether attention is one operation of the device.
    pub(super) fn is_fused(&self) -> bool {
        matches!(self.device.device, Device::Metal(_)) && FUSED.contains(&self.shape.head_size)
    }

    /// What the heads of each group's tokens gather: (tokens, heads and size).
    pub(super) fn context(
        &self,
        layer: &DeviceLayer,
        x: &Tensor,
        rows: &Rows<'_>,
        turns: &[(Tensor, Tensor)],
        added: Option<&Tensor>,
    ) -> Result<Vec<Tensor>> {
        let TransformerShape {
            heads,
            key_heads,
            head_size: size,
            ..
        } = self.shape;
        let QueryKeyValue::Together(linear) = &layer.query_key_value else {
            candle_core::bail!("a packed pass of a padded graph");
        };
        let all = linear
            .apply(x)?
            .reshape((rows.count, heads + 2 * key_heads, size))?;
        let turn = layer.turn.and_then(|turn| turns.get(turn));
        let placed = |first: usize, count: usize, gain: Option<&Tensor>| -> Result<Heads> {
            if gain.is_none() && turn.is_none() {
                let all = all.clone();
                return Ok(Heads { all, first, count });
            }
            let mut x = all.narrow(1, first, count)?.contiguous()?;
            if let Some(gain) = gain {
                x = rms_norm(&x, gain, self.shape.epsilon)?;
            }
            if let Some((cosines, sines)) = turn {
                x = rope_thd(&x.unsqueeze(0)?, cosines, sines)?.squeeze(0)?;
            }
            Ok(Heads {
                all: x,
                first: 0,
                count,
            })
        };
        let gains = layer.head_norms.as_ref();
        let query = placed(0, heads, gains.map(|(query, _)| query))?;
        let key = placed(heads, key_heads, gains.map(|(_, key)| key))?;
        let value = Heads {
            first: heads + key_heads,
            count: key_heads,
            all,
        };
        let of_group = |group: &Group<'_>| -> Result<Tensor> {
            let (query, key, value) = (query.of(group)?, key.of(group)?, value.of(group)?);
            let scores = (group.texts.len(), heads, group.longest, group.longest);
            let mask = added.map(|added| of_length(added, group)?.broadcast_as(scores));
            let mask = mask.transpose()?;
            // The fused kernel for one query is another one.
            let gathered = match self.is_fused() && group.longest > 1 {
                true => fused(&query, &key, &value, mask.as_ref())?,
                false => composed(&query, &key, &value, mask.as_ref())?,
            };
            gathered
                .transpose(1, 2)?
                .reshape((group.count(), heads * size))
        };
        rows.groups.iter().map(of_group).collect()
    }
}

/// What is added to the scores of texts of a group's length: (1, heads or 1, tokens, tokens). It begins where the whole does,
/// and its last stride is 1: the fused attention reads no other offset and no other stride of a mask.
fn of_length(added: &Tensor, group: &Group<'_>) -> Result<Tensor> {
    added
        .transpose(0, 1)?
        .narrow(2, 0, group.longest)?
        .narrow(3, 0, group.longest)
}

/// What scores are multiplied by.
fn scale(query: &Tensor) -> Result<f64> {
    Ok(1.0 / (query.dim(3)? as f64).sqrt())
}

/// Attention as one operation. Masks are always given: told by name that they are causal, the kernel for heads of 128 and more
/// reads keys and values behind the text, where a number that is none would become part of the sum.
fn fused(query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    mask.map_or(Ok(()), is_as_fused_reads_it)?;
    sdpa(query, key, value, mask, false, scale(query)? as f32, 1.0)
}

/// The kernel knows no offset of a mask, and takes its last stride for 1.
fn is_as_fused_reads_it(mask: &Tensor) -> Result<()> {
    let layout = mask.layout();
    match layout.start_offset() == 0 && layout.stride().last() == Some(&1) {
        true => Ok(()),
        false => candle_core::bail!("a mask that the fused attention can't read: {layout:?}"),
    }
}

/// softmax(query key^T scale + mask) value of tensors (texts, heads, tokens, size), of which keys and values may have fewer
/// heads: what [`fused`] computes, for devices and sizes of heads that it has no kernel for.
fn composed(query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    mask.map_or(Ok(()), is_as_fused_reads_it)?;
    let (texts, heads, tokens, size) = query.dims4()?;
    let key_heads = key.dim(1)?;
    let for_all = |x: &Tensor| {
        x.unsqueeze(2)?
            .broadcast_as((texts, key_heads, heads / key_heads, tokens, size))?
            .reshape((texts, heads, tokens, size))?
            .contiguous()
    };
    // Scaled before the product, so that scores stay within the range of f16.
    let query = (query.contiguous()? * scale(query)?)?;
    let mut scores = query.matmul(&for_all(key)?.t()?)?;
    if let Some(mask) = mask {
        scores = (scores + mask)?;
    }
    softmax_last_dim(&scores)?.matmul(&for_all(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_narrowed_as_the_fused_attention_reads_them() {
        let whole = Tensor::arange(0f32, 2.0 * 25.0, &Device::Cpu).unwrap();
        let whole = whole.reshape((2, 1, 5, 5)).unwrap();
        let texts = [&[1u32, 2, 3][..]; 4];
        let group = Group {
            texts: &texts,
            first_row: 7,
            longest: 3,
        };
        let mask = of_length(&whole, &group).unwrap();
        let mask = mask.broadcast_as((4, 2, 3, 3)).unwrap();
        assert_eq!(mask.stride(), [0, 25, 5, 1]);
        is_as_fused_reads_it(&mask).unwrap();
        is_as_fused_reads_it(&mask.narrow(1, 1, 1).unwrap()).unwrap_err();
        is_as_fused_reads_it(&mask.t().unwrap()).unwrap_err();
        let of_second = mask.get(3).unwrap().get(1).unwrap();
        let expected = [[25., 26., 27.], [30., 31., 32.], [35., 36., 37.]];
        assert_eq!(of_second.to_vec2::<f32>().unwrap(), expected);
    }
}
