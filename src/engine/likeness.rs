//! How alike two texts of a walk are: by the model, or by a quick one where that is enough.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use datafusion::common::internal_err;
use datafusion::error::Result;

use super::external;
use crate::embed::{
    EmbedError, EmbeddingService, QuickLook, RecentRecords, TextRecord, TextRef, Triage,
};
use crate::metric::NonFinite;

/// Reads records and compares them.
pub(super) struct Likeness {
    /// Of the places that rows carry.
    records: RecentRecords,
    triage: Option<Second>,
}

/// The model's places of texts of pairs that a quick one can't decide, by the places of that one; the empty text until the
/// model was asked.
pub(super) type AskedPlaces = HashMap<TextRef, TextRef>;

/// What two texts are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    /// An input and its output.
    InputAndOutput,
    /// Two texts of one kind, of which is asked whether they say the same.
    Alike,
}

/// The model behind a quick one.
struct Second {
    triage: Arc<Triage>,
    service: Arc<EmbeddingService>,
    records: RecentRecords,
    /// Whether pairs are only looked at, to see which can't be decided.
    collecting: bool,
    places: AskedPlaces,
    /// Whether an estimate was returned since somebody asked.
    estimated: bool,
}

impl Likeness {
    /// Remembers records of about `memory` bytes.
    pub fn new(service: Arc<EmbeddingService>, triage: Option<Arc<Triage>>, memory: usize) -> Self {
        let Some(triage) = triage else {
            return Self {
                records: RecentRecords::new(service, memory),
                triage: None,
            };
        };
        Self {
            records: RecentRecords::new(Arc::clone(&triage.quick), memory / 2),
            triage: Some(Second {
                records: RecentRecords::new(Arc::clone(&service), memory / 2),
                triage,
                service,
                collecting: true,
                places: AskedPlaces::new(),
                estimated: false,
            }),
        }
    }

    /// A text's record; none of the empty text.
    pub fn read(&mut self, text: TextRef) -> Result<Option<Arc<TextRecord>>, EmbedError> {
        self.records.read(text)
    }

    /// The cosine distance of two texts in [0, 1]. What is asked is whether their cosine reaches each of `bars`: an estimate
    /// will do that is far enough from all of them. Of a text and itself there is no estimate: they are either the same, or
    /// no text at all; and none where the quick model's embedding is not finite.
    pub fn distance(
        &mut self,
        a: &TextRecord,
        b: &TextRecord,
        (between, bars): (Between, &[f64]),
    ) -> Result<Result<f64, NonFinite>> {
        let Some(second) = &mut self.triage else {
            return Ok(a.distance(b));
        };
        if second.collecting {
            second.triage.compared.fetch_add(1, Relaxed);
        }
        let fit = match between {
            Between::InputAndOutput => &second.triage.fit,
            Between::Alike => &second.triage.near,
        };
        if let (true, Ok(quick)) = (a.place != b.place, QuickLook::of(a, b)) {
            let estimate = fit.estimate(&quick);
            if bars.iter().all(|bar| fit.decides(estimate, *bar)) {
                second.estimated = true;
                return Ok(Ok(1.0 - estimate));
            }
        }
        let (Some(a), Some(b)) = (a.place, b.place) else {
            return internal_err!("a text to compare has no place");
        };
        if second.collecting {
            second.triage.undecided.fetch_add(1, Relaxed);
            second.places.entry(a).or_insert(TextRef::EMPTY);
            second.places.entry(b).or_insert(TextRef::EMPTY);
            // Nobody sees it: the pair is compared again when the model was asked.
            return Ok(Ok(1.0));
        }
        let mut read = |quick: TextRef| {
            let place = second.places.get(&quick).copied().unwrap_or(TextRef::EMPTY);
            second.records.read(place).map_err(external)
        };
        match (read(a)?, read(b)?) {
            (Some(a), Some(b)) => Ok(a.distance(&b)),
            _ => internal_err!("the model was not asked about a text to compare"),
        }
    }

    /// Whether pairs are to be looked at twice.
    pub fn collects(&self) -> bool {
        self.triage.is_some()
    }

    /// From now on, pairs are only looked at, to see which can't be decided.
    pub fn collect(&mut self) {
        if let Some(second) = &mut self.triage {
            second.collecting = true;
        }
    }

    /// Has the texts of pairs that were not decided embedded by the model, without waiting for it.
    pub fn ask(&mut self) -> Result<AskedPlaces, EmbedError> {
        let Some(second) = &mut self.triage else {
            return Ok(AskedPlaces::new());
        };
        let mut asked = std::mem::take(&mut second.places);
        let quick: Vec<TextRef> = asked.keys().copied().collect();
        let texts = quick.iter().map(|place| second.triage.quick.text(*place));
        let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let places = second.service.embed(&texts)?;
        asked.extend(quick.into_iter().zip(places));
        Ok(asked)
    }

    /// From now on, pairs that the quick model can't decide are compared by the model, which was asked for their texts.
    pub fn compare(&mut self, asked: AskedPlaces) {
        if let Some(second) = &mut self.triage {
            second.collecting = false;
            second.estimated = false;
            second.places = asked;
        }
    }

    /// Ends a batch of pairs.
    pub fn end(&mut self) {
        if let Some(second) = &mut self.triage {
            second.places.clear();
        }
    }

    /// Whether an estimate was returned since this was last asked.
    pub fn estimated(&mut self) -> bool {
        let second = self.triage.as_mut();
        second.is_some_and(|second| std::mem::take(&mut second.estimated))
    }
}
