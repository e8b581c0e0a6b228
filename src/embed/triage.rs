//! Triage: a quick model says of most pairs of texts on which side of a threshold they are; the model of the run is only
//! asked about the others.
//!
//! Cosines of two models are not on one scale. A linear function of the quick model's cosine and of the words that two texts
//! share, fitted to a sample of pairs that both models have seen, estimates the model's cosine. How far from a threshold an
//! estimate must be to decide is learnt from another third of the sample, and how often its decisions are those of the
//! model from the last third. Pairs of input and output are one sample; texts and those that are most like them are
//! another, for what asks whether two texts say the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nalgebra::{Matrix4, Vector4};

use super::{EmbeddingService, TextRecord};
use crate::metric::NonFinite;
use crate::text::WordSet;

/// Of decisions of the sample, how many may be wrong.
const MOST_WRONG: f64 = 0.01;
/// Pairs below which a sample says nothing: no pair is decided by the quick model then.
pub const LEAST_SAMPLE: usize = 100;

/// What is quickly known of two texts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuickLook {
    /// The cosine by the quick model.
    pub cosine: f64,
    /// The words in both, of the words in either.
    pub jaccard: f64,
    /// The words in both, of the words in the one with fewer.
    pub shared: f64,
}

impl QuickLook {
    /// Of two texts by the quick model.
    ///
    /// # Errors
    /// [`NonFinite`] if an embedding is not finite.
    pub fn of(a: &TextRecord, b: &TextRecord) -> Result<Self, NonFinite> {
        let gap = a.distance(b)?;
        let jaccard = WordSet::jaccard(&a.words, &b.words);
        let (both, fewer) = (
            jaccard / (1.0 + jaccard) * (a.words.len() + b.words.len()) as f64,
            a.words.len().min(b.words.len()),
        );
        Ok(Self {
            cosine: 1.0 - gap,
            jaccard,
            shared: both / fewer.max(1) as f64,
        })
    }

    fn terms(&self) -> Vector4<f64> {
        Vector4::new(1.0, self.cosine, self.jaccard, self.shared)
    }
}

/// What is known of one pair of texts of the sample: quickly, and the cosine by the model of the run.
pub type SeenPair = (QuickLook, f64);

/// What a sample of pairs says of how the quick model's cosines relate to those of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct TriageFit {
    weights: Vector4<f64>,
    /// For thresholds of 0, 0.01 … 1: how far from it an estimate decides.
    margins: Vec<f64>,
    /// Pairs of the sample.
    pub pairs: usize,
    held_out: Vec<SeenPair>,
}

/// Thresholds that margins are learnt for.
const THRESHOLDS: usize = 100;

impl TriageFit {
    /// Of three pairs, one is fitted, one tells how far off that is, and one is kept aside.
    pub fn of(pairs: &[SeenPair]) -> Self {
        let third = |at| pairs.iter().copied().skip(at).step_by(3);
        let fitted: Vec<SeenPair> = third(0).collect();
        let nothing = Self {
            weights: Vector4::new(0.0, 1.0, 0.0, 0.0),
            margins: vec![f64::INFINITY; THRESHOLDS + 1],
            pairs: pairs.len(),
            held_out: third(2).collect(),
        };
        if pairs.len() < LEAST_SAMPLE {
            return nothing;
        }
        let count = fitted.len() as f64;
        let terms = fitted.iter().map(|(quick, _)| quick.terms());
        let squares: Matrix4<f64> = terms.clone().map(|x| x * x.transpose()).sum();
        let products: Vector4<f64> = terms.zip(&fitted).map(|(x, (_, full))| x * *full).sum();
        // A little of the identity, so that words which say nothing weigh nothing.
        let squares = squares + Matrix4::identity() * (1e-6 * count);
        let Some(weights) = squares.cholesky().map(|squares| squares.solve(&products)) else {
            return nothing;
        };
        let mut fit = Self { weights, ..nothing };
        let estimates: Vec<(f64, f64)> = third(1)
            .map(|(quick, full)| (fit.estimate(&quick), full))
            .collect();
        let allowed = (MOST_WRONG * estimates.len() as f64) as usize;
        let margin = |threshold: f64| {
            let wrong = estimates
                .iter()
                .filter(|(estimate, full)| (*estimate >= threshold) != (*full >= threshold));
            let mut off: Vec<f64> = wrong.map(|(e, _)| (e - threshold).abs()).collect();
            off.sort_unstable_by(|a, b| b.total_cmp(a));
            // So many may be further off: the next one has to be within the margin.
            off.get(allowed).copied().unwrap_or(0.0)
        };
        fit.margins = (0..=THRESHOLDS)
            .map(|at| margin(at as f64 / THRESHOLDS as f64))
            .collect();
        fit
    }

    /// What the model's cosine is likely to be, in [0, 1].
    pub fn estimate(&self, quick: &QuickLook) -> f64 {
        crate::metric::clamp01(self.weights.dot(&quick.terms()))
    }

    /// Whether an estimate is far enough from a threshold to decide. Without a fit none is.
    pub fn decides(&self, estimate: f64, threshold: f64) -> bool {
        // No cosine is above 1, and all are at least 0: nothing is to be decided there.
        if threshold > 1.0 || threshold <= 0.0 {
            return self
                .margins
                .first()
                .is_some_and(|margin| margin.is_finite());
        }
        let place = threshold * THRESHOLDS as f64;
        let at = |place: f64| self.margins.get(place as usize).copied();
        let far_enough = |margin: f64| (estimate - threshold).abs() > margin;
        let both = at(place.floor()).zip(at(place.ceil()));
        both.is_some_and(|(a, b)| far_enough(a) && far_enough(b))
    }

    /// Of pairs that were not fitted: how many there are, how many are decided at this threshold, and on how many the
    /// decision is the model's, which it is wherever the model is asked.
    pub fn held_out(&self, threshold: f64) -> [usize; 3] {
        let mut counts = [self.held_out.len(), 0, 0];
        for (quick, full) in &self.held_out {
            let estimate = self.estimate(quick);
            let decided = self.decides(estimate, threshold);
            let agrees = (estimate >= threshold) == (*full >= threshold);
            counts[1] += usize::from(decided);
            counts[2] += usize::from(!decided || agrees);
        }
        counts
    }
}

/// What is decided about traces by their scores: each score is asked whether it reaches each of its bars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TriageBars {
    /// Of coherence: its threshold, and where a step counts as risky.
    pub coherence: [f64; 2],
    /// The same of loop detection.
    pub loops: [f64; 2],
}

/// The quick model beside the model of a run.
#[derive(Debug)]
pub struct Triage {
    /// Embeds all texts, and keeps them.
    pub quick: Arc<EmbeddingService>,
    /// What its cosines say of inputs and outputs.
    pub fit: TriageFit,
    /// What they say of texts that are much alike.
    pub near: TriageFit,
    /// What is decided.
    pub bars: TriageBars,
    /// Texts that only the sample asked for.
    sampled: u64,
    /// Pairs that were looked at, and how many of them went to the model.
    pub(crate) compared: AtomicU64,
    pub(crate) undecided: AtomicU64,
}

impl Triage {
    /// Of a service that keeps texts.
    pub fn new(
        quick: Arc<EmbeddingService>,
        [fit, near]: [TriageFit; 2],
        bars: TriageBars,
    ) -> Self {
        Self {
            sampled: quick.counts().texts,
            quick,
            fit,
            near,
            bars,
            compared: AtomicU64::new(0),
            undecided: AtomicU64::new(0),
        }
    }

    /// Texts of traces that were asked for.
    pub fn texts(&self) -> u64 {
        self.quick.counts().texts.saturating_sub(self.sampled)
    }

    /// Pairs of texts that were looked at so far, and how many of them went to the model.
    pub fn counts(&self) -> (u64, u64) {
        (self.compared.load(Relaxed), self.undecided.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(cosine: f64) -> QuickLook {
        QuickLook {
            cosine,
            jaccard: 0.0,
            shared: 0.0,
        }
    }

    /// Pairs on a line, every tenth of them off by this much.
    fn pairs(count: usize, off: f64) -> Vec<SeenPair> {
        let pairs = (0..count).map(|n| {
            let cosine = (n * 37 % 100) as f64 / 100.0;
            let noise = if n % 10 < 2 { off } else { 0.0 };
            (look(cosine), 0.2 + 0.5 * cosine + noise)
        });
        pairs.collect()
    }

    #[test]
    fn a_line_without_noise_decides_nearly_everything_rightly() {
        let fit = TriageFit::of(&pairs(1000, 0.0));
        assert!((fit.estimate(&look(0.5)) - 0.45).abs() < 1e-3);
        assert!(fit.decides(0.47, 0.45) && fit.decides(0.47, 0.4537));
        let [held_out, decided, agreeing] = fit.held_out(0.453);
        assert!(held_out == 333 && decided >= 320 && agreeing == 333);
    }

    #[test]
    fn noise_widens_the_band_and_few_pairs_decide_nothing() {
        let fit = TriageFit::of(&pairs(1000, 0.2));
        assert!(!fit.decides(0.46, 0.45) && fit.decides(0.9, 0.45));
        let [held_out, decided, agreeing] = fit.held_out(0.45);
        assert!(
            agreeing * 100 >= held_out * 98 && decided < held_out,
            "{fit:?}"
        );
        // Whatever is near 1.1: no cosine is.
        assert!(fit.decides(1.0, 1.1) && !fit.decides(1.0, f64::NAN));
        let few = TriageFit::of(&pairs(99, 0.0));
        assert!(!few.decides(0.0, 1.0) && few.held_out(0.5) == [33, 0, 33]);
        assert!(!few.decides(0.0, 1.1) && !few.decides(0.5, 0.0) && fit.decides(0.5, 0.0));
    }

    #[test]
    fn words_that_two_texts_share_count_where_they_tell_something() {
        let pairs: Vec<SeenPair> = (0..400)
            .map(|n| {
                let jaccard = (n * 37 % 100) as f64 / 100.0;
                let look = QuickLook {
                    cosine: (n * 53 % 100) as f64 / 100.0,
                    jaccard,
                    shared: jaccard,
                };
                (look, 0.1 + 0.8 * jaccard)
            })
            .collect();
        let fit = TriageFit::of(&pairs);
        assert!((fit.estimate(&pairs[7].0) - pairs[7].1).abs() < 0.01);
        let record = |words: &[u64]| TextRecord {
            vector: vec![1.0, 0.0],
            norm_squared: 1.0,
            words: words.to_vec(),
            ..TextRecord::default()
        };
        let look = QuickLook::of(&record(&[1, 2, 3]), &record(&[2, 3, 4, 5])).unwrap();
        assert!((look.cosine - 1.0).abs() < 1e-9 && (look.jaccard - 0.4).abs() < 1e-9);
        assert!((look.shared - 2.0 / 3.0).abs() < 1e-9);
    }
}
