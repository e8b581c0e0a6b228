//! Attention: what both graphs share, and what all layers of a pass do.

use std::sync::PoisonError;

use candle_core::{Result, Tensor};

use super::rows::Rows;
use super::{CandleTransformer, DeviceLayer};
use crate::Mask;
use crate::candle::device::ONES;

/// Added to the scores of places that get no attention: softmax makes 0 of it, also in f16.
const UNSEEN: f32 = -30_000.0;

/// What is added to scores of texts of at most so many tokens is made once: it is more than all other work of the host.
const MOST_KEPT: usize = 512;

/// What is added to scores, by mask: (heads or 1, 1, tokens, tokens). None where nothing is.
pub(super) type Added = Vec<(Mask, Option<Tensor>)>;

/// What all layers of a pass share.
pub(super) struct Pass<'r, 't> {
    pub rows: &'r Rows<'t>,
    /// Of as many tokens as the longest text has.
    added: Added,
    of: Of,
}

/// What only one graph has.
enum Of {
    /// (heads and rows, ONES), added to the scores of keys.
    Padded { padding: Tensor },
    Packed {
        /// Cosines and sines (rows, half of a head) of each of the model's turns.
        turns: Vec<(Tensor, Tensor)>,
        /// Zeros for rows that no text has.
        rest: Option<Tensor>,
    },
}

impl CandleTransformer {
    /// Makes what all layers of a pass over these rows share; `places` are those of tokens in their texts.
    pub(super) fn pass<'r, 't>(&self, rows: &'r Rows<'t>, places: &Tensor) -> Result<Pass<'r, 't>> {
        let of = match self.packed {
            true => {
                let turns = self.turns.iter().map(|(_, cosines, sines)| {
                    let row = |of: &Tensor| of.index_select(places, 0);
                    Ok((row(cosines)?, row(sines)?))
                });
                let left = rows.count - rows.taken();
                let (dtype, device) = (self.device.dtype, &self.device.device);
                let rest = Tensor::zeros((left, self.shape.of_heads()), dtype, device);
                Of::Packed {
                    turns: turns.collect::<Result<_>>()?,
                    rest: (left > 0).then_some(rest).transpose()?,
                }
            }
            false => {
                let mut padding = vec![0f32; rows.count * ONES];
                for group in &rows.groups {
                    for (at, text) in group.texts.iter().enumerate() {
                        let row = group.first_row + at * group.longest;
                        for padded in row + text.len()..row + group.longest {
                            padding[padded * ONES] = UNSEEN;
                        }
                    }
                }
                // The same for all heads.
                let padding = self.device.tensor(padding, (rows.count, ONES))?;
                Of::Padded {
                    padding: Tensor::cat(&vec![&padding; self.shape.heads], 0)?,
                }
            }
        };
        Ok(Pass {
            rows,
            added: self.added(rows.longest())?,
            of,
        })
    }

    /// What masks and offsets add to the scores of texts of `longest` tokens: a part of what is kept, or made for this pass.
    fn added(&self, longest: usize) -> Result<Added> {
        let most = self.shape.positions.min(MOST_KEPT);
        if longest > most {
            return self.make_added(longest);
        }
        let mut kept = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none() {
            *kept = Some(self.make_added(most)?);
        }
        let part = |(mask, whole): &(Mask, Option<Tensor>)| {
            let part = whole.as_ref().map(|whole| {
                let part = whole.narrow(2, 0, longest)?;
                part.narrow(3, 0, longest)
            });
            Ok((*mask, part.transpose()?))
        };
        kept.iter().flatten().map(part).collect()
    }

    fn make_added(&self, longest: usize) -> Result<Added> {
        let mut added = Added::new();
        for mask in self.layers.iter().map(|layer| layer.mask) {
            if added.iter().any(|(known, _)| *known == mask) {
                continue;
            }
            if self.offset_bias.is_none() && mask == Mask::All {
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
                        _ if !seen.contains(&key) => UNSEEN,
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

    /// Attention of rows (rows, hidden), as rows (rows, hidden).
    pub(super) fn attend(
        &self,
        layer: &DeviceLayer,
        x: &Tensor,
        pass: &Pass<'_, '_>,
    ) -> Result<Tensor> {
        let added = pass.added.iter().find(|(mask, _)| *mask == layer.mask);
        let added = added.and_then(|(_, added)| added.as_ref());
        match &pass.of {
            Of::Padded { padding } => {
                let longest = pass.rows.longest();
                self.attend_padded(layer, x, longest, padding, added)
            }
            Of::Packed { turns, rest } => {
                let context = self.context(layer, x, pass.rows, turns, added)?;
                let context = context.iter().chain(rest).collect::<Vec<_>>();
                layer.attention_output.apply(&Tensor::cat(&context, 0)?)
            }
        }
    }
}
