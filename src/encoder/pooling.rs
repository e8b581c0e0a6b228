//! From token vectors to one text vector, as sentence-transformers' Pooling module does it.

/// How the token vectors of a text become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over all tokens.
    Mean,
    /// The first token.
    Cls,
    /// The largest value of each component.
    Max,
    /// The sum divided by the square root of the number of tokens.
    MeanSqrtLen,
    /// The mean, each token weighted by its position from 1.
    WeightedMean,
    /// The last token.
    LastToken,
}

/// Pools `tokens` (rows of `dim` components) into `out` (`dim` components). There is at least one
/// row, and so many tokens of the text come before the first.
pub fn pool(pooling: Pooling, tokens: &[f32], before: usize, dim: usize, out: &mut [f32]) {
    let count = tokens.len() / dim;
    let rows = tokens.chunks_exact(dim);
    match pooling {
        Pooling::Cls => out.copy_from_slice(&tokens[..dim]),
        Pooling::LastToken => out.copy_from_slice(&tokens[tokens.len() - dim..]),
        Pooling::Max => {
            out.fill(f32::NEG_INFINITY);
            for row in rows {
                out.iter_mut().zip(row).for_each(|(o, x)| *o = o.max(*x));
            }
        }
        Pooling::Mean | Pooling::MeanSqrtLen => {
            out.fill(0.0);
            for row in rows {
                out.iter_mut().zip(row).for_each(|(o, x)| *o += x);
            }
            let divisor = match pooling {
                Pooling::Mean => count as f32,
                _ => (count as f32).sqrt(),
            };
            out.iter_mut().for_each(|o| *o /= divisor);
        }
        Pooling::WeightedMean => {
            out.fill(0.0);
            for (at, row) in rows.enumerate() {
                let weight = (before + at + 1) as f32;
                out.iter_mut().zip(row).for_each(|(o, x)| *o += weight * x);
            }
            let total = (count * before + count * (count + 1) / 2) as f32;
            out.iter_mut().for_each(|o| *o /= total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_behind_a_prompt_keep_the_weights_of_their_places() {
        let mut out = [0.0];
        // The second and third token of a text: (2 * 10 + 3 * 40) / 5.
        pool(Pooling::WeightedMean, &[10.0, 40.0], 1, 1, &mut out);
        assert_eq!(out, [28.0]);
        pool(Pooling::WeightedMean, &[10.0, 40.0], 0, 1, &mut out);
        assert_eq!(out, [30.0]);
        pool(Pooling::Mean, &[10.0, 40.0], 7, 1, &mut out);
        assert_eq!(out, [25.0]);
    }
}
