//! How close final responses are to the expected ones in meaning: all texts of a run are embedded at once, before
//! anything is scored.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::evaluation::{ScoredMetric, told_turns};
use super::evaluator::SemanticResponse;
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
    fn of(cases: &[EvalCase], inferences: &[Inference]) -> Self {
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

/// The embedding model of a run, opened when the first texts come.
pub(crate) struct Meanings<'r> {
    engine: &'r EngineRequest,
    opened: Option<(Arc<EmbeddingService>, tempfile::TempDir)>,
}

impl<'r> Meanings<'r> {
    /// A model that nobody has needed yet.
    pub fn of(engine: &'r EngineRequest) -> Self {
        Self {
            engine,
            opened: None,
        }
    }

    /// What scores the metrics that read cosines, for these cases; none where no metric reads any, or no pair of texts
    /// needs them. The model is opened with the first pair.
    ///
    /// # Errors
    /// [`RunError`] if the model can't be opened, or fails.
    pub fn evaluator(
        &mut self,
        metrics: &[ScoredMetric],
        (cases, inferences): (&[EvalCase], &[Inference]),
    ) -> Result<Option<Arc<SemanticResponse>>, RunError> {
        if !metrics.iter().any(ScoredMetric::reads_cosines) {
            return Ok(None);
        }
        let pairs = Pairs::of(cases, inferences);
        if pairs.0.is_empty() {
            return Ok(None);
        }
        let (service, _) = match &mut self.opened {
            Some(opened) => opened,
            none => {
                let folder =
                    tempfile::tempdir().map_err(|e| RunError::write(&std::env::temp_dir(), e))?;
                let service = load_service(self.engine, folder.path())?;
                none.insert((service, folder))
            }
        };
        let cosines = Cosines::embedded(service, &pairs)?;
        Ok(Some(Arc::new(SemanticResponse::by(Arc::new(cosines)))))
    }

    /// Ends the work of the model, and says which one these metrics were computed with; none where it was not needed.
    pub fn end(self, metrics: &[ScoredMetric]) -> Option<String> {
        let (service, _folder) = self.opened?;
        service.finish();
        let names = metrics.iter().filter(|metric| metric.reads_cosines());
        let names: Vec<&str> = names.map(|metric| metric.metric.name.as_str()).collect();
        let model = service.model();
        Some(format!(
            "{}: responses are held against each other by the vectors of {}, computed at {}",
            names.join(", "),
            model.name,
            model.encoder.precision()
        ))
    }
}
