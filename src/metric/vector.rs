//! Similarity of embeddings (as in PandaProbe). Everything is summed in f64.

/// An embedding, cosine or score was NaN or infinite; the metric fails with code `non_finite`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("non_finite: an embedding has a component that is NaN or infinite")]
pub struct NonFinite;

const LANES: usize = 8;

/// The dot product, summed in eight lanes in a fixed order: the same bits on every machine.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let tail: f64 = a_chunks
        .remainder()
        .iter()
        .zip(b_chunks.remainder())
        .map(|(x, y)| f64::from(*x) * f64::from(*y))
        .sum();
    for (x, y) in a_chunks.zip(b_chunks) {
        for lane in 0..LANES {
            lanes[lane] += f64::from(x[lane]) * f64::from(y[lane]);
        }
    }
    lanes.iter().sum::<f64>() + tail
}

/// The squared length of a vector.
pub fn norm_squared(v: &[f32]) -> f64 {
    dot(v, v)
}

/// Cosine distance of two vectors of one model, in [0, 1]: `clamp01(1 - cos)`; 1 if either vector
/// has no length. `norms` are their squared lengths (see [`norm_squared`]).
///
/// # Errors
/// [`NonFinite`] if a component is NaN or infinite.
pub fn distance(a: &[f32], b: &[f32], norms: (f64, f64)) -> Result<f64, NonFinite> {
    debug_assert_eq!(a.len(), b.len(), "vectors of one model have one length");
    if !norms.0.is_finite() || !norms.1.is_finite() {
        return Err(NonFinite);
    }
    if norms.0 == 0.0 || norms.1 == 0.0 {
        return Ok(1.0);
    }
    let gap = 1.0 - dot(a, b) / (norms.0.sqrt() * norms.1.sqrt());
    if gap.is_finite() {
        Ok(super::clamp01(gap))
    } else {
        Err(NonFinite)
    }
}

/// Cosine similarity as SQL users expect it: in [-1, 1], not clamped at 0. `None` if a vector has no
/// length or a component is not finite.
pub fn cosine_similarity(a: &[f32], b: &[f32]) -> Option<f64> {
    let lengths = norm_squared(a).sqrt() * norm_squared(b).sqrt();
    let cosine = dot(a, b) / lengths;
    (cosine.is_finite() && lengths > 0.0).then(|| cosine.clamp(-1.0, 1.0))
}
