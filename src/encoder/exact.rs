//! Texts whose vectors f16 can't hold.

use std::sync::Arc;

use crate::{EncodeError, Encoder, Packed};

/// An encoder at f32, made when it is first asked for.
pub type Exact = Arc<dyn Fn() -> Result<Arc<dyn Encoder>, EncodeError> + Send + Sync>;

/// Makes vectors that are no numbers again, at f32, and says so; `vectors` are those of `texts`, of `dim` components. Returns
/// how many.
///
/// # Errors
/// Those of the encoder at f32. What it makes is taken as it is: a model may be broken.
pub(crate) fn again_at_f32(
    texts: &[&[u32]],
    dim: usize,
    vectors: &mut [f32],
    exact: &Exact,
) -> Result<usize, EncodeError> {
    let lost: Vec<usize> = vectors
        .chunks_exact(dim)
        .enumerate()
        .filter(|(_, vector)| vector.iter().any(|x| !x.is_finite()))
        .map(|(text, _)| text)
        .collect();
    if lost.is_empty() {
        return Ok(0);
    }
    tracing::warn!(
        texts = lost.len(),
        "beyond what f16 can hold; these texts are encoded at f32"
    );
    let (exact, count) = (exact()?, lost.len());
    for text in lost {
        // One by one: what stands beside a text may change its bits there.
        let (mut packed, mut again) = (Packed::default(), Vec::new());
        packed.push(texts[text]);
        exact.encode(&packed, &mut again)?;
        vectors[text * dim..][..dim].copy_from_slice(&again);
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives each text its number of tokens.
    struct Lengths;

    impl Encoder for Lengths {
        fn dim(&self) -> usize {
            2
        }

        fn encode(&self, batch: &Packed, out: &mut Vec<f32>) -> Result<usize, EncodeError> {
            batch
                .spans()
                .for_each(|span| out.extend([span.len() as f32; 2]));
            Ok(0)
        }

        fn tokens_per_batch(&self) -> usize {
            100
        }

        fn batches_at_once(&self) -> usize {
            1
        }

        fn precision(&self) -> &'static str {
            "f32"
        }

        fn device(&self) -> String {
            "test".into()
        }
    }

    #[test]
    fn only_vectors_that_are_no_numbers_are_made_again() {
        let texts: [&[u32]; 4] = [&[1], &[1, 2], &[1, 2, 3], &[1, 2, 3, 4]];
        let mut vectors = [0.5, 0.5, f32::NAN, 0.0, 0.25, 0.25, 0.0, f32::INFINITY];
        let exact: Exact = Arc::new(|| Ok(Arc::new(Lengths) as Arc<dyn Encoder>));
        assert_eq!(again_at_f32(&texts, 2, &mut vectors, &exact).unwrap(), 2);
        assert_eq!(vectors, [0.5, 0.5, 2.0, 2.0, 0.25, 0.25, 4.0, 4.0]);
        // Nobody is asked where nothing is lost.
        let never: Exact = Arc::new(|| Err(EncodeError::Device("asked".into())));
        again_at_f32(&texts, 2, &mut vectors, &never).unwrap();
        vectors[0] = f32::NEG_INFINITY;
        assert!(again_at_f32(&texts, 2, &mut vectors, &never).is_err());
    }
}
