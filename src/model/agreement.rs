//! How well two models agree on which texts are alike.

use std::time::Instant;

use super::Model;
use super::fidelity::CALIBRATION;
use crate::encoder::Packed;

/// What two models have in common on the calibration texts.
pub(super) struct Agreement {
    /// The correlation of the similarities of all pairs of texts.
    pub correlation: f64,
    /// How many times as fast the second one is, with tokenising.
    pub times_faster: f64,
}

/// Compares two models by the similarities of all pairs of the calibration texts and of their halves: most pairs have little
/// to do with each other, and some much.
///
/// # Errors
/// What a tokenizer or an encoder says.
pub(super) fn pair_agreement(first: &Model, second: &Model) -> Result<Agreement, String> {
    let texts: Vec<&str> = CALIBRATION
        .lines()
        .filter(|line| !line.is_empty())
        .flat_map(with_halves)
        .collect();
    let of = |model: &Model| -> Result<(Vec<f64>, f64), String> {
        // The first pass makes room.
        vectors(model, &texts)?;
        let started = Instant::now();
        let (vectors, _) = vectors(model, &texts)?;
        let seconds = started.elapsed().as_secs_f64();
        let mut similar = Vec::new();
        for (at, a) in vectors.iter().enumerate() {
            similar.extend(vectors[..at].iter().map(|b| cosine(a, b)));
        }
        Ok((similar, seconds))
    };
    let ((one, slow), (other, fast)) = (of(first)?, of(second)?);
    Ok(Agreement {
        correlation: correlation(&one, &other),
        times_faster: slow / fast.max(1e-9),
    })
}

/// A text, and what stands before and behind the space nearest to its middle.
fn with_halves(text: &str) -> Vec<&str> {
    let spaces = text.match_indices(' ').map(|(at, _)| at);
    match spaces.min_by_key(|at| at.abs_diff(text.len() / 2)) {
        Some(at) => vec![text, &text[..at], &text[at + 1..]],
        None => vec![text],
    }
}

/// Vectors of texts, one by one; zeros for a text without tokens. Also how many of them the encoder made again at f32.
///
/// # Errors
/// What the tokenizer or the encoder says.
pub(super) fn vectors(model: &Model, texts: &[&str]) -> Result<(Vec<Vec<f32>>, usize), String> {
    let mut found = Vec::with_capacity(texts.len());
    let mut made_again = 0;
    for text in texts {
        let mut batch = Packed::default();
        let mut vector = Vec::new();
        if batch.push(&model.tokenizer.ids(text)?) {
            let encoded = model.encoder.encode(&batch, &mut vector);
            made_again += encoded.map_err(|e| e.to_string())?;
        } else {
            vector.resize(model.encoder.dim(), 0.0);
        }
        found.push(vector);
    }
    Ok((found, made_again))
}

/// The cosine of two vectors; 0 where one has no direction, and NaN where one holds it.
pub(super) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b));
        products.sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(f64::MIN_POSITIVE)
}

/// Pearson's correlation; 0 where one side is all equal.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let sum = |x: &[f64], of_x: f64, y: &[f64], of_y: f64| -> f64 {
        x.iter().zip(y).map(|(x, y)| (x - of_x) * (y - of_y)).sum()
    };
    let spread = (sum(a, mean_a, a, mean_a) * sum(b, mean_b, b, mean_b)).sqrt();
    match spread > 0.0 {
        true => sum(a, mean_a, b, mean_b) / spread,
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlations_are_those_of_the_textbook() {
        assert!((correlation(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]) - 1.0).abs() < 1e-12);
        assert!((correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert!((correlation(&[1.0, 2.0, 4.0], &[1.0, 3.0, 2.0]) - 0.327_326_8).abs() < 1e-6);
        assert_eq!(correlation(&[1.0, 2.0], &[1.0, 1.0]), 0.0);
        assert_eq!(with_halves("ab cd ef"), ["ab cd ef", "ab cd", "ef"]);
        assert_eq!(with_halves("ab"), ["ab"]);
    }
}
