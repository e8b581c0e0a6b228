//! How close final responses are to the expected ones in meaning: all texts of a run are embedded at once, before
//! anything is scored.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::evaluation::{ScoredMetric, told_turns};
use super::evaluator::{Registry, SemanticResponse};
use super::inference::Inference;
use super::model::{EvalCase, Invocation};
use crate::embed::{EmbeddingService, TextRecord, TextRef};
use crate::metric::cosine_similarity;
use crate::output::RunError;
use crate::run::{EngineRequest, load_service};
use crate::text::TextId;

/// Texts that are handed to the encoder at once.
const TEXTS_AT_ONCE: usize = 8192;

/// Cosines of pairs of texts, an actual and an expected one.
#[derive(Clone, Debug, Default)]
pub struct Cosines(HashMap<(TextId, TextId), f64>);

impl<'t> FromIterator<(&'t str, &'t str, f64)> for Cosines {
    /// Of an actual text, an expected one and their cosine each.
    fn from_iter<I: IntoIterator<Item = (&'t str, &'t str, f64)>>(pairs: I) -> Self {
        let pairs = pairs.into_iter();
        let by_id = pairs.map(|(actual, expected, cosine)| (pair_of(actual, expected), cosine));
        Self(by_id.collect())
    }
}

fn pair_of(actual: &str, expected: &str) -> (TextId, TextId) {
    (TextId::of(actual), TextId::of(expected))
}

impl Cosines {
    /// The cosine of two texts, -1 to 1; 1 exactly for equal ones. None if it was not found beforehand.
    pub fn between(&self, actual: &str, expected: &str) -> Option<f64> {
        match actual == expected {
            true => Some(1.0),
            false => self.0.get(&pair_of(actual, expected)).copied(),
        }
    }

    /// The cosines of these pairs.
    fn embedded(service: &EmbeddingService, pairs: &Pairs) -> Result<Self, RunError> {
        let mut texts: Vec<&str> = Vec::with_capacity(pairs.0.len() * 2);
        for (actual, expected) in &pairs.0 {
            texts.extend([actual.as_str(), expected.as_str()]);
        }
        let mut places: Vec<TextRef> = Vec::with_capacity(texts.len());
        for texts in texts.chunks(TEXTS_AT_ONCE) {
            places.extend(service.embed(texts)?);
        }
        let (mut a, mut b) = (TextRecord::default(), TextRecord::default());
        let mut cosines = HashMap::with_capacity(pairs.0.len());
        let (places, _) = places.as_chunks::<2>();
        for ((actual, expected), [of_actual, of_expected]) in pairs.0.iter().zip(places) {
            service.read(*of_actual, &mut a)?;
            service.read(*of_expected, &mut b)?;
            // A vector without length has no direction: the pair stays unknown, and its case breaks down.
            if let Some(cosine) = cosine_similarity(&a.vector, &b.vector) {
                cosines.insert(pair_of(actual, expected), cosine);
            }
        }
        Ok(Self(cosines))
    }
}

/// Pairs of responses that need vectors, each once, in the order in which they occur.
#[derive(Default)]
struct Pairs(Vec<(String, String)>);

impl Pairs {
    /// The final responses of all turns with an expected one. Equal and blank ones need no vectors.
    fn of<'i>(cases: &[EvalCase], inferences: impl Iterator<Item = &'i Inference>) -> Self {
        let mut known = HashSet::new();
        let mut pairs = Vec::new();
        for inference in inferences {
            let expected = cases.get(inference.case).and_then(told_turns);
            let (Ok(actual), Some(expected)) = (&inference.turns, expected) else {
                continue;
            };
            for (actual, expected) in actual.iter().zip(expected) {
                let (Some(actual), Some(expected)) =
                    (response(actual), expected.as_ref().and_then(response))
                else {
                    continue;
                };
                if actual != expected && known.insert(pair_of(actual, expected)) {
                    pairs.push((actual.to_owned(), expected.to_owned()));
                }
            }
        }
        Self(pairs)
    }
}

/// What a turn ends with, where that says something.
fn response(turn: &Invocation) -> Option<&str> {
    let said = turn.final_response.as_ref()?.content.as_str();
    (!said.trim().is_empty()).then_some(said)
}

/// Finds the cosines that metrics of a run read, and puts them into the registry's evaluator. Returns a line on the
/// model that made the vectors; where no pair needs any, no model is opened.
///
/// # Errors
/// [`RunError`] if the model can't be opened, or fails.
pub(crate) fn with_cosines<'i>(
    registry: &mut Registry,
    metrics: &[ScoredMetric],
    (cases, inferences): (&[EvalCase], impl Iterator<Item = &'i Inference>),
    engine: &EngineRequest,
) -> Result<Option<String>, RunError> {
    let pairs = Pairs::of(cases, inferences);
    if pairs.0.is_empty() {
        return Ok(None);
    }
    let folder = tempfile::tempdir().map_err(|e| RunError::write(&std::env::temp_dir(), e))?;
    let service = load_service(engine, folder.path())?;
    let cosines = Cosines::embedded(&service, &pairs)?;
    service.finish();
    registry.register(Arc::new(SemanticResponse::by(Arc::new(cosines))));
    let readers = metrics.iter().filter(|metric| metric.reads_cosines());
    let names: Vec<&str> = readers.map(|reader| reader.metric.name.as_str()).collect();
    let model = service.model();
    Ok(Some(format!(
        "{}: responses are held against each other by the vectors of {}, computed at {}",
        names.join(", "),
        model.name,
        model.encoder.precision()
    )))
}
