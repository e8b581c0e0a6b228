//! A quick model before the model of a run: loaded, and held against it on a sample of the run's own pairs.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use rayon::prelude::*;

use super::engine::{load_service, load_services};
use crate::embed::{
    EmbeddingCounts, EmbeddingService, LEAST_SAMPLE, QuickLook, SeenPair, TextRecord, TextRef,
    Triage, TriageBars, TriageFit,
};
use crate::metric::Rules;
use crate::metric::agent_reliability::FLAG_ABOVE;
use crate::output::RunError;
use crate::run::{ScoreRequest, stages};
use crate::summary::TriageSummary;
use crate::text::TextId;
use crate::trace::{Quarantine, SourceFile, TraceColumns, TraceError, TraceSource};

/// Pairs of input and output that both models see before anything is decided: a tenth of all, but not fewer than the first
/// number and not more than the second.
const SAMPLE: [usize; 2] = [200, 1000];

/// The pairs of traces with the smallest hashes: whatever order the files are read in, they are the same.
#[derive(Default)]
struct Sample {
    chosen: BTreeMap<[u8; 32], (String, String)>,
    /// Pairs that were seen.
    seen: usize,
}

impl Sample {
    fn push(&mut self, input: &str, output: &str) {
        self.seen += 1;
        let ids = [TextId::of(input).bytes(), TextId::of(output).bytes()];
        let hash = *blake3::hash(ids.as_flattened()).as_bytes();
        let most = self.chosen.last_key_value().map(|(hash, _)| *hash);
        if self.chosen.len() >= SAMPLE[1] && most.is_some_and(|most| hash >= most) {
            return;
        }
        self.chosen
            .entry(hash)
            .or_insert_with(|| (input.to_owned(), output.to_owned()));
        if self.chosen.len() > SAMPLE[1] {
            self.chosen.pop_last();
        }
    }

    /// Takes in what another thread saw.
    fn join(&mut self, other: Self) {
        self.seen += other.seen;
        self.chosen.extend(other.chosen);
        while self.chosen.len() > SAMPLE[1] {
            self.chosen.pop_last();
        }
    }

    fn pairs(self) -> Vec<(String, String)> {
        let count = (self.seen / 10).clamp(SAMPLE[0], SAMPLE[1]);
        self.chosen.into_values().take(count).collect()
    }
}

/// Loads the model of a run; where a quick one goes before it, that one too, and learns what it may decide.
///
/// # Errors
/// If a model can't be used, or traces can't be read.
pub(super) fn load(
    request: &ScoreRequest,
    files: &[SourceFile],
    targets: Option<&Arc<HashSet<String>>>,
    folder: &Path,
) -> Result<(Arc<EmbeddingService>, Option<Arc<Triage>>), RunError> {
    let Some(quick) = &request.triage else {
        return Ok((load_service(&request.engine, folder)?, None));
    };
    let [service, quick] = load_services(&request.engine, quick, folder)?;
    let pairs = sample(request, files.to_vec(), targets)?;
    let texts: Vec<&str> = pairs
        .iter()
        .flat_map(|(input, output)| [input.as_str(), output.as_str()])
        .collect();
    let vectors = [records(&quick, &texts)?, records(&service, &texts)?];
    let seen = |pairs: &[(usize, usize)]| -> Vec<SeenPair> {
        let of = |(a, b): &(usize, usize)| {
            let quick = QuickLook::of(&vectors[0][*a], &vectors[0][*b]).ok()?;
            let gap = vectors[1][*a].distance(&vectors[1][*b]).ok()?;
            Some((quick, 1.0 - gap))
        };
        pairs.iter().filter_map(of).collect()
    };
    let true_pairs: Vec<_> = (0..pairs.len()).map(|n| (2 * n, 2 * n + 1)).collect();
    let near = match pairs.len() < LEAST_SAMPLE {
        true => Vec::new(),
        false => near_pairs(&texts, &vectors[0]),
    };
    let fits = [true_pairs, near].map(|pairs| TriageFit::of(&seen(&pairs)));
    let triage = Triage::new(quick, fits, bars(&request.rules));
    Ok((service, Some(Arc::new(triage))))
}

/// What is decided of traces by these rules.
fn bars(rules: &Rules) -> TriageBars {
    let of = |metric: &str| {
        let weight = rules
            .weights
            .iter()
            .find(|(name, _)| *name == metric)
            .map_or(1.0, |(_, weight)| weight);
        [rules.threshold(metric), 1.0 - FLAG_ABOVE / weight]
    };
    TriageBars {
        coherence: of("coherence"),
        loops: of("loop_detection"),
    }
}

fn sample(
    request: &ScoreRequest,
    files: Vec<SourceFile>,
    targets: Option<&Arc<HashSet<String>>>,
) -> Result<Vec<(String, String)>, RunError> {
    let columns = TraceColumns {
        input: true,
        output: true,
        ..TraceColumns::ids()
    };
    // The pass that scores reports what is wrong with rows.
    let ignored = Arc::new(Quarantine::default());
    let source = TraceSource::open(files, stages::reading(request, columns), ignored)?;
    let source = match targets {
        None => source,
        Some(targets) => source.keep_only(Arc::clone(targets)),
    };
    let all = Mutex::new(Sample::default());
    let read = || -> Result<(), TraceError> {
        let mut sample = Sample::default();
        source.read_shared(|batch| {
            for_each_pair(&batch, |input, output| sample.push(input, output));
            true
        })?;
        all.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join(sample);
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = 0..request.engine.threads;
        let reading: Vec<_> = threads.map(|_| scope.spawn(read)).collect();
        reading
            .into_iter()
            .try_for_each(|thread| match thread.join() {
                Ok(read) => read,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })?;
    let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(all.pairs())
}

/// The inputs and outputs of rows that have both.
fn for_each_pair(batch: &RecordBatch, mut each: impl FnMut(&str, &str)) {
    let text = |name: &str| cast(batch.column_by_name(name)?, &DataType::Utf8).ok();
    let (Some(inputs), Some(outputs)) = (text("input"), text("output")) else {
        return;
    };
    let rows = inputs.as_string::<i32>().iter();
    for (input, output) in rows.zip(outputs.as_string::<i32>()) {
        if let (Some(input), Some(output)) = (input, output)
            && !input.is_empty()
            && !output.is_empty()
        {
            each(input, output);
        }
    }
}

/// The records of these texts.
fn records(service: &EmbeddingService, texts: &[&str]) -> Result<Vec<TextRecord>, RunError> {
    let places = service.embed(texts)?;
    let read = |place: TextRef| {
        let mut record = TextRecord::default();
        service.read(place, &mut record)?;
        Ok(record)
    };
    places.into_iter().map(read).collect()
}

/// Each text with those that are most like it, the same text left out: where texts may say the same. Each pair once.
fn near_pairs(texts: &[&str], records: &[TextRecord]) -> Vec<(usize, usize)> {
    /// Of each text, so many.
    const NEAREST: usize = 2;
    // A text that comes again is one text.
    let mut seen = HashSet::new();
    let firsts = (0..texts.len()).filter(|at| seen.insert(texts[*at]));
    let firsts: Vec<usize> = firsts.collect();
    let nearest = firsts.par_iter().flat_map_iter(|a| {
        let others = firsts.iter().filter(|b| *b != a);
        let gap = |b: &usize| records[*a].distance(&records[*b]).unwrap_or(1.0);
        let mut others: Vec<(f64, usize)> = others.map(|b| (gap(b), *b)).collect();
        others.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let pair = move |(_, b): (f64, usize)| ((*a).min(b), (*a).max(b));
        others.into_iter().take(NEAREST).map(pair)
    });
    let pairs: BTreeSet<(usize, usize)> = nearest.collect();
    pairs.into_iter().collect()
}

/// What counts of a run: the texts are those of the quick model, the work that of the model behind it.
pub(super) fn counts(of_model: EmbeddingCounts, triage: &Triage) -> EmbeddingCounts {
    let quick = triage.quick.counts();
    EmbeddingCounts {
        texts: triage.texts(),
        distinct_texts: quick.distinct_texts,
        ..of_model
    }
}

/// What came of it.
pub(super) fn summary(service: &EmbeddingService, triage: &Triage, rules: &Rules) -> TriageSummary {
    let (compared, undecided) = triage.counts();
    let (quick, full) = (triage.quick.counts(), service.counts());
    let [held_out, decided, agreeing] = match rules.computes("coherence") {
        true => triage.fit.held_out(triage.bars.coherence[0]),
        false => [0; 3],
    };
    // Had the model embedded all texts, it would have taken that many times as long.
    let times = quick.likely_tokens as f64 / full.likely_tokens.max(1) as f64;
    let whole = full.embed_seconds * times;
    let saved = 1.0 - (full.embed_seconds + quick.embed_seconds) / whole;
    TriageSummary {
        model: triage.quick.model().name.clone(),
        sha256: triage.quick.model().sha256.clone(),
        pairs_compared: compared,
        pairs_decided: compared - undecided,
        texts: quick.distinct_texts,
        texts_of_the_model: full.distinct_texts,
        time_saved: (whole > 0.0 && full.cache.found == 0).then(|| saved.max(0.0)),
        sample_pairs: triage.fit.pairs as u64,
        held_out_pairs: held_out as u64,
        held_out_decided: decided as u64,
        held_out_agreeing: agreeing as u64,
    }
}
