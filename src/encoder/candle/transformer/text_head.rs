//! From rows to vectors of texts: pooling, dense layers, length.

use candle_core::{DType, Result, Tensor};

use super::rows::Rows;
use super::{CandleTransformer, activate};
use crate::Pooling;

impl CandleTransformer {
    /// Vectors (texts, dim) of the texts of a pass, from its last rows (rows, hidden), at f32.
    pub(super) fn vectors(&self, x: &Tensor, rows: &Rows<'_>) -> Result<Tensor> {
        let mut pooled = Vec::new();
        for group in &rows.groups {
            let x = x.narrow(0, group.first_row, group.count())?;
            pooled.push(self.pool(&x, group.texts, group.longest)?);
        }
        let texts = rows.texts();
        if texts < rows.vectors {
            let size = (rows.vectors - texts, self.shape.hidden);
            pooled.push(Tensor::zeros(size, DType::F32, &self.device.device)?);
        }
        let mut vectors = Tensor::cat(&pooled, 0)?;
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
        vectors.narrow(0, 0, texts)
    }

    /// One vector for each text of rows (texts and tokens, hidden), all of `longest` tokens with what is padded, at f32.
    fn pool(&self, x: &Tensor, texts: &[&[u32]], longest: usize) -> Result<Tensor> {
        let count = texts.len();
        let device = &self.device.device;
        let x = x
            .to_dtype(DType::F32)?
            .reshape((count, longest, self.shape.hidden))?;
        let first = |text: &[u32]| self.head.first_pooled(text.len());
        let vectors = if self.head.pooling == Pooling::Max {
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
        Ok(vectors)
    }
}
