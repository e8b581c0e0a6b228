//! Vectors of texts, each text once.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::encoder::Packed;
use crate::model::Model;

/// Vectors by text.
pub(super) struct Vectors<'t> {
    by_text: HashMap<&'t str, Vec<f32>>,
    /// Tokens that were encoded.
    pub tokens: usize,
}

impl<'t> Vectors<'t> {
    /// Encodes each distinct text, on all threads of the current pool.
    ///
    /// # Errors
    /// What the tokenizer or the encoder says.
    pub fn of(model: &Model, texts: &[&'t str]) -> Result<Self, String> {
        let mut distinct: Vec<&str> = texts.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let tokenised = distinct.par_iter().map(|text| model.tokenizer.ids(text));
        let mut tokenised: Vec<(&str, Vec<u32>)> = distinct
            .iter()
            .copied()
            .zip(tokenised.collect::<Result<Vec<_>, _>>()?)
            .collect();
        let tokens = tokenised.iter().map(|(_, ids)| ids.len()).sum();
        // Texts of one length go together.
        tokenised.sort_by_key(|(_, ids)| ids.len());
        let mut batches: Vec<&[(&str, Vec<u32>)]> = Vec::new();
        let mut rest = &tokenised[..];
        while !rest.is_empty() {
            let mut held = 0;
            let fits = rest.iter().take_while(|(_, ids)| {
                held += ids.len();
                held <= model.encoder.tokens_per_batch()
            });
            let (batch, others) = rest.split_at(fits.count().max(1));
            batches.push(batch);
            rest = others;
        }
        let dim = model.encoder.dim();
        let encoded = batches.par_iter().map(|batch| {
            let mut packed = Packed::default();
            let held: Vec<bool> = batch.iter().map(|(_, ids)| packed.push(ids)).collect();
            let mut vectors = Vec::new();
            let encode = model.encoder.encode(&packed, &mut vectors);
            encode.map_err(|e| e.to_string())?;
            let mut vectors = vectors.chunks_exact(dim);
            // A text without tokens has no direction.
            let of_text = held.into_iter().map(|held| match held {
                true => vectors
                    .next()
                    .map_or_else(|| vec![0.0; dim], <[f32]>::to_vec),
                false => vec![0.0; dim],
            });
            Ok(of_text.collect::<Vec<_>>())
        });
        let encoded: Vec<Vec<Vec<f32>>> = encoded.collect::<Result<_, String>>()?;
        let by_text = tokenised
            .iter()
            .map(|(text, _)| *text)
            .zip(encoded.into_iter().flatten());
        Ok(Self {
            by_text: by_text.collect(),
            tokens,
        })
    }

    /// The cosine of two texts that were encoded; 0 where one has no direction.
    pub fn cosine(&self, a: &str, b: &str) -> f64 {
        let vectors = (self.by_text.get(a), self.by_text.get(b));
        let (Some(a), Some(b)) = vectors else {
            return 0.0;
        };
        crate::metric::cosine_similarity(a, b).unwrap_or(0.0)
    }
}
