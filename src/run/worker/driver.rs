//! The driver of a run whose parts others do: it hands out the work, watches the markers, and believes nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;

use super::WorkerJob;
use super::attempt::{self, ATTEMPTS, UnitMarker};
use super::job::JobPlace;
use super::unit::{Unit, exchanged_schema, units};
use crate::embed::EmbeddingCounts;
use crate::output::RunError;
use crate::run::Progress;
use crate::run::bucket::{BucketCounts, FinishedBuckets, Marker};
use crate::trace::{Quarantine, TraceSource};

/// A run's parts, for whoever has them done.
#[derive(Clone, Debug)]
pub struct PartsOfRun {
    /// Where workers find everything else.
    pub job: JobPlace,
    /// What is to be read.
    pub units: Vec<Unit>,
    /// How many buckets there are: rows with one number must come to one scorer.
    pub buckets: u32,
    /// The columns of the rows that readers give and scorers take; the last is [`super::BUCKET`].
    pub schema: SchemaRef,
}

/// Has the parts of a run done by other processes: units are read with [`super::Worker::read`], their rows carried to where
/// all rows of their bucket are, and scored there with [`super::Worker::score`].
///
/// It may do parts twice, or lose them and do them again. It tells only whether it has come to its end.
pub trait Exchange: std::fmt::Debug + Send + Sync {
    /// What does it, in words.
    fn name(&self) -> String;

    /// How many parts it can do at once, as far as it knows.
    fn slots(&self) -> usize;

    /// Has all parts done. `stop` becomes true when the run was given up.
    ///
    /// # Errors
    /// Why parts could not be done, as far as it knows.
    fn run(&self, parts: &PartsOfRun, stop: &AtomicBool) -> Result<(), RunError>;
}

/// How long markers may take to be seen by another machine: file systems of networks remember what a folder held.
const SEEN_WITHIN: Duration = Duration::from_secs(100);
/// How often the driver looks.
const LOOKS: Duration = Duration::from_millis(200);

/// What came of a run's parts.
#[derive(Debug, Default)]
pub(in crate::run) struct Done {
    pub buckets: Vec<(u32, BucketCounts)>,
    pub embedding: EmbeddingCounts,
}

/// Where the driver puts and finds things.
#[derive(Debug)]
struct Places {
    run: PathBuf,
    work: PathBuf,
    units: PathBuf,
    markers: PathBuf,
}

/// Has a job done by an exchange; `source` and `quarantine` count what workers read and set aside.
///
/// # Errors
/// The exchange's; if what markers say does not add up.
pub(in crate::run) fn drive(
    exchange: &Arc<dyn Exchange>,
    job: &WorkerJob,
    markers: &Path,
    source: &TraceSource,
    quarantine: &Quarantine,
    progress: &Progress,
) -> Result<Done, RunError> {
    let work = job.work();
    // A part for every slot, and enough beside that one slow part holds up no other.
    let units = units(source, exchange.slots() * 4);
    let parts = PartsOfRun {
        job: job.write(&work.join("job.json"))?,
        buckets: job.buckets,
        schema: exchanged_schema(&job.rules),
        units,
    };
    let places = Places {
        run: job.run.clone(),
        units: work.join(attempt::units_of(&parts.job)),
        markers: markers.to_owned(),
        work,
    };
    for folder in [&places.units, &places.work.join(ATTEMPTS)] {
        fs::create_dir_all(folder).map_err(|e| RunError::write(folder, e))?;
    }
    attempt::make_current(&places.work, &parts.job)?;
    tracing::info!(
        exchange = exchange.name(),
        units = parts.units.len(),
        buckets = parts.buckets,
        "parts of the run are handed out"
    );
    let mut watched = Watched {
        done: job.done.clone(),
        ..Watched::default()
    };
    let stop = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        let running = scope.spawn(|| exchange.run(&parts, &stop));
        while !running.is_finished() {
            std::thread::sleep(LOOKS);
            watched.look(&places, source, progress);
            if attempt::check_equal(&places.work, &places.markers).is_err() {
                stop.store(true, Relaxed);
            }
        }
        running.join()
    });
    // This reason is the better one, whatever the exchange says.
    attempt::check_equal(&places.work, &places.markers)?;
    ended.unwrap_or_else(|_| Err(RunError::Plan(format!("{} panicked", exchange.name()))))?;
    let since = Instant::now();
    loop {
        watched.look(&places, source, progress);
        match watched.lacking(&places, parts.units.len())? {
            None => break,
            Some(what) if since.elapsed() > SEEN_WITHIN => {
                return Err(RunError::Plan(format!(
                    "{} has ended, and {what}; rows were lost on their way. What is finished stays: the same command with \
                     --resume goes on with it",
                    exchange.name()
                )));
            }
            Some(_) => std::thread::sleep(LOOKS),
        }
    }
    attempt::check_equal(&places.work, &places.markers)?;
    for unit in watched.units.into_values() {
        unit.quarantine
            .into_iter()
            .for_each(|entry| quarantine.add(entry));
    }
    let mut done = Done::default();
    let of_this_run = |bucket: &u32| job.done.binary_search(bucket).is_err();
    let buckets = watched.buckets.into_iter();
    for (_, marker) in buckets.filter(|(bucket, _)| of_this_run(bucket)) {
        marker.settle(&places.run)?;
        done.embedding = done.embedding.and(&marker.embedding);
        done.buckets.push((marker.bucket, marker.counts));
    }
    Ok(done)
}

/// What the driver has seen so far.
#[derive(Debug, Default)]
struct Watched {
    /// Buckets that were finished before, ascending.
    done: Vec<u32>,
    units: BTreeMap<u32, UnitMarker>,
    buckets: BTreeMap<u32, Marker>,
    embedding: EmbeddingCounts,
}

/// The markers in a folder that are not known yet, by number.
fn new_markers<'k, T: serde::de::DeserializeOwned>(
    folder: &Path,
    is_known: impl Fn(u32) -> bool + 'k,
) -> Vec<(u32, T)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let name = entry.file_name();
        let number = name.to_str()?.strip_suffix(".json")?.parse().ok()?;
        if is_known(number) {
            return None;
        }
        Some((number, attempt::read(&entry.path())?))
    });
    found.collect()
}

impl Watched {
    /// Looks for new markers.
    fn look(&mut self, places: &Places, source: &TraceSource, progress: &Progress) {
        let known = |unit| self.units.contains_key(&unit);
        let units = new_markers::<UnitMarker>(&places.units, known);
        for (number, unit) in units {
            source.add_counts(&unit.counts);
            self.units.insert(number, unit);
        }
        let known = |bucket| self.buckets.contains_key(&bucket);
        let buckets = new_markers::<Marker>(&places.markers, known);
        for (number, marker) in buckets {
            if !self.is_done(number) {
                self.embedding = self.embedding.and(&marker.embedding);
            }
            self.buckets.insert(number, marker);
        }
        progress.embedded_elsewhere(self.embedding);
    }

    /// Whether a bucket was finished before.
    fn is_done(&self, bucket: u32) -> bool {
        self.done.binary_search(&bucket).is_ok()
    }

    /// What is not there yet of what must be; none if all of it is.
    ///
    /// # Errors
    /// If a bucket was made of other rows than were read for it: it is not finished then.
    fn lacking(&self, places: &Places, units: usize) -> Result<Option<String>, RunError> {
        if self.units.len() < units {
            return Ok(Some(format!(
                "only {} of {units} units are marked as read in `{}`",
                self.units.len(),
                places.work.display()
            )));
        }
        let mut rows: BTreeMap<u32, u64> = BTreeMap::new();
        for (bucket, more) in self.units.values().flat_map(|unit| &unit.rows) {
            *rows.entry(*bucket).or_default() += more;
        }
        for bucket in rows.keys() {
            if !self.buckets.contains_key(bucket) {
                return Ok(Some(format!("bucket {bucket} is not marked as scored")));
            }
        }
        // Of those that a run on one machine has finished, nobody has counted the rows.
        let counted = self.buckets.iter().filter(|(_, of)| of.attempt.is_some());
        let wrong: Vec<(u32, u64, u64)> = counted
            .map(|(bucket, of)| (*bucket, of.rows, rows.get(bucket).copied().unwrap_or(0)))
            .filter(|(_, scored, read)| scored != read)
            .collect();
        // Nobody may go on with them.
        for (bucket, ..) in &wrong {
            let path = places.markers.join(FinishedBuckets::name(*bucket));
            fs::remove_file(&path).map_err(|e| RunError::write(&path, e))?;
        }
        if let Some((bucket, scored, read)) = wrong.first() {
            return Err(RunError::Plan(format!(
                "bucket {bucket} was scored from {scored} rows, and {read} were read for it: rows were lost or counted twice on their \
                 way; nothing of it is used"
            )));
        }
        Ok(None)
    }
}
