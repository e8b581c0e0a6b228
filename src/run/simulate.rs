//! What a run would take on a cluster, from a sample that is scored here: time, rows on their way, memory, files.
//!
//! The sample goes the way of a cluster's rows, in one process with one thread: units are read, rows carried, buckets
//! scored, each measured by itself. What is said of a cluster is these figures, times rows, over executors; and what the
//! exchange takes, from speeds of disks and networks that are stated and not measured.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, RecordBatchIterator};
use arrow::ipc::writer::StreamWriter;
use serde::Serialize;

use super::Progress;
use super::ScoreRequest;
use super::score::score;
use super::worker::{Exchange, PartsOfRun, Worker, WorkerSettings};
use crate::output::RunError;
use crate::trace::Buckets;

/// Bytes that a network card moves in a second (10 Gbit/s), and a local disk.
const NETWORK: f64 = 1.25e9;
const DISK: f64 = 1e9;
/// Bytes of a unit: that of files of warehouses, at least.
const UNIT: f64 = (128u64 << 20) as f64;
/// Bytes that the scheduler keeps of each file that a reader leaves for a scorer.
const LOCATION: f64 = 150.0;
/// Buckets for each part at once, at least: with fewer, slow ones hold up the end.
const BUCKETS_OF_A_PART: u64 = 4;

/// A cluster that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterSize {
    /// Machines.
    pub executors: u32,
    /// Parts that each does at once.
    pub slots: u32,
    /// Rows of the warehouse.
    pub rows: u64,
}

impl std::str::FromStr for ClusterSize {
    type Err = String;

    /// `100x16,1000000000`: executors, slots of each (1 if left out), rows.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected EXECUTORSxSLOTS,ROWS, as in 100x16,1000000000".to_owned();
        let (machines, rows) = text.split_once(',').ok_or_else(wrong)?;
        let (executors, slots) = machines.split_once('x').unwrap_or((machines, "1"));
        let [executors, slots] = [executors, slots].map(|n| n.trim().parse::<u32>().ok());
        let rows = rows.trim().replace('_', "").parse::<u64>().ok();
        match (executors, slots, rows) {
            (Some(executors @ 1..=100_000), Some(slots @ 1..=1024), Some(rows @ 1..)) => Ok(Self {
                executors,
                slots,
                rows,
            }),
            _ => Err(wrong()),
        }
    }
}

/// What the sample took, for each of its rows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SampleFigures {
    /// Rows of the sample.
    pub rows: u64,
    /// Bytes of its files, a row.
    pub input_bytes: f64,
    /// Bytes that go from readers to scorers, a row.
    pub exchanged_bytes: f64,
    /// Tokens that are encoded, a row.
    pub tokens: f64,
    /// Seconds of one thread, a row: reading; encoding; everything else of scoring.
    pub read_seconds: f64,
    /// See `read_seconds`.
    pub encode_seconds: f64,
    /// See `read_seconds`.
    pub score_seconds: f64,
    /// Bytes of each table that is written, a row.
    pub table_bytes: Vec<(String, f64)>,
}

/// What a run would take.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// Seconds on the clock: reading; the exchange; encoding; everything else of scoring; and their sum.
    pub read_seconds: f64,
    /// See `read_seconds`.
    pub exchange_seconds: f64,
    /// See `read_seconds`.
    pub encode_seconds: f64,
    /// See `read_seconds`.
    pub score_seconds: f64,
    /// See `read_seconds`.
    pub seconds: f64,
    /// Units that are read, and buckets that are scored.
    pub units: u64,
    /// See `units`.
    pub buckets: u64,
    /// Bytes that go through the exchange in all, and on the disk of each executor.
    pub exchanged_bytes: f64,
    /// See `exchanged_bytes`.
    pub bytes_on_each_disk: f64,
    /// Bytes that the scheduler keeps of where rows are.
    pub scheduler_bytes: f64,
    /// Bytes that an executor aims to stay within, beside the model.
    pub executor_bytes: f64,
    /// Bytes of a bucket's file of each table, and of all of them.
    pub bucket_bytes: Vec<(String, f64)>,
    /// See `bucket_bytes`.
    pub table_bytes: f64,
}

/// A sample, and what follows from it.
#[derive(Clone, Debug, Serialize)]
pub struct Simulated {
    /// The cluster.
    pub cluster: ClusterSize,
    /// What was measured, a row.
    pub sample: SampleFigures,
    /// What is to be expected.
    pub predicted: Prediction,
}

/// Scores the files of a request as a sample, in a folder that is gone afterwards, and says what a cluster would take for as
/// many rows.
///
/// # Errors
/// As those of [`score`].
pub fn simulate(
    request: &ScoreRequest,
    cluster: ClusterSize,
    progress: &Progress,
) -> Result<Simulated, RunError> {
    let folder = tempfile::tempdir().map_err(|e| RunError::write(&std::env::temp_dir(), e))?;
    let exchange = Arc::new(Measuring {
        settings: WorkerSettings {
            name: "of the simulation".into(),
            model: request.engine.model.clone(),
            slots: 1,
            memory_limit: request.engine.memory_limit,
            folder: folder.path().to_owned(),
            cache: None,
            cache_size: request.engine.cache_size,
        },
        measured: Mutex::default(),
    });
    let (out, buckets) = (folder.path().join("run"), request.buckets);
    let request = ScoreRequest {
        out: out.clone(),
        buckets: request.buckets.or_else(|| Buckets::new(SAMPLE_BUCKETS)),
        exchange: Some(Arc::clone(&exchange) as Arc<dyn Exchange>),
        report: None,
        ..request.clone()
    };
    let (summary, _) = score(&request, progress)?;
    let measured = *exchange
        .measured
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let counts = progress.embedding().unwrap_or_default();
    let rows = summary.rows_read.max(1) as f64;
    let inputs = request.found.originals();
    let input_bytes: u64 = inputs.flat_map(std::fs::metadata).map(|of| of.len()).sum();
    let encode = counts.embed_seconds.min(measured.score.as_secs_f64());
    let tables = ["traces", "scores", "sessions", "attention", "carried"];
    let table_bytes = tables.into_iter().map(|table| {
        let files = std::fs::read_dir(out.join(table))
            .into_iter()
            .flatten()
            .flatten();
        let bytes: u64 = files
            .flat_map(|file| file.metadata())
            .map(|of| of.len())
            .sum();
        (table.to_owned(), bytes as f64 / rows)
    });
    let sample = SampleFigures {
        rows: summary.rows_read,
        input_bytes: input_bytes as f64 / rows,
        exchanged_bytes: measured.bytes as f64 / rows,
        tokens: counts.tokens as f64 / rows,
        read_seconds: measured.read.as_secs_f64() / rows,
        encode_seconds: encode / rows,
        score_seconds: (measured.score.as_secs_f64() - encode) / rows,
        table_bytes: table_bytes.filter(|(_, bytes)| *bytes > 0.0).collect(),
    };
    let memory = request.engine.memory_limit as f64;
    let predicted = predict(&sample, cluster, buckets, memory);
    Ok(Simulated {
        cluster,
        sample,
        predicted,
    })
}

/// Buckets of a sample: few, so that small files weigh little.
const SAMPLE_BUCKETS: usize = 2;

/// What a cluster takes for rows like those of a sample.
fn predict(
    sample: &SampleFigures,
    cluster: ClusterSize,
    buckets: Option<Buckets>,
    memory: f64,
) -> Prediction {
    let rows = cluster.rows as f64;
    let (executors, parts) = (
        f64::from(cluster.executors),
        f64::from(cluster.executors) * f64::from(cluster.slots),
    );
    let fitting = u64::from(Buckets::for_rows(cluster.rows).count());
    let least = (parts as u64).saturating_mul(BUCKETS_OF_A_PART);
    let buckets = match buckets {
        Some(buckets) => u64::from(buckets.count()),
        None => fitting.max(least).min(Buckets::MOST as u64),
    };
    let units = ((rows * sample.input_bytes / UNIT).ceil() as u64).max(1);
    // The last round of parts is not full.
    let rounds = |count: u64| (count as f64 / parts).ceil() * parts / count as f64;
    let (reading, scoring) = (rounds(units), rounds(buckets));
    let exchanged = rows * sample.exchanged_bytes;
    let elsewhere = (executors - 1.0) / executors;
    let of_each = exchanged / executors;
    let read_seconds = rows * sample.read_seconds / parts * reading;
    let exchange_seconds = of_each * elsewhere / NETWORK + 2.0 * of_each / DISK;
    let encode_seconds = rows * sample.encode_seconds / parts * scoring;
    let score_seconds = rows * sample.score_seconds / parts * scoring;
    let bucket_bytes = sample
        .table_bytes
        .iter()
        .map(|(table, bytes)| (table.clone(), bytes * rows / buckets as f64));
    let table_bytes: f64 = sample
        .table_bytes
        .iter()
        .map(|(_, bytes)| bytes * rows)
        .sum();
    Prediction {
        read_seconds,
        exchange_seconds,
        encode_seconds,
        score_seconds,
        seconds: read_seconds + exchange_seconds + encode_seconds + score_seconds,
        units,
        buckets,
        exchanged_bytes: exchanged,
        bytes_on_each_disk: of_each,
        scheduler_bytes: units as f64 * buckets as f64 * LOCATION,
        executor_bytes: memory,
        bucket_bytes: bucket_bytes.collect(),
        table_bytes,
    }
}

/// Does all parts in this process, one after the other, and measures them.
#[derive(Debug)]
struct Measuring {
    settings: WorkerSettings,
    measured: Mutex<Measured>,
}

/// Time and bytes of all parts.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    read: Duration,
    score: Duration,
    bytes: u64,
}

impl Exchange for Measuring {
    fn name(&self) -> String {
        "the simulation".into()
    }

    fn slots(&self) -> usize {
        1
    }

    fn run(&self, parts: &PartsOfRun, _: &AtomicBool) -> Result<(), RunError> {
        let worker = Worker::new(self.settings.clone());
        // Loading the model is no row's time.
        worker.schema(&parts.job)?;
        let mut rows: Vec<RecordBatch> = Vec::new();
        let began = Instant::now();
        for unit in &parts.units {
            worker.read(&parts.job, unit, |batch| {
                rows.push(batch);
                true
            })?;
        }
        let read = began.elapsed();
        let bytes = carried(parts, &rows)?;
        let began = Instant::now();
        let rows = rows.into_iter().map(Ok);
        worker.score_here(
            &parts.job,
            RecordBatchIterator::new(rows, Arc::clone(&parts.schema)),
        )?;
        *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = Measured {
            read,
            score: began.elapsed(),
            bytes,
        };
        Ok(())
    }
}

/// Bytes of rows as they are carried.
fn carried(parts: &PartsOfRun, rows: &[RecordBatch]) -> Result<u64, RunError> {
    let failed = |e: arrow::error::ArrowError| RunError::Plan(e.to_string());
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &parts.schema).map_err(failed)?;
    for batch in rows {
        writer.write(batch).map_err(failed)?;
    }
    writer.finish().map_err(failed)?;
    drop(writer);
    Ok(bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_read() {
        let size = |text: &str| text.parse::<ClusterSize>();
        let hundred = ClusterSize {
            executors: 100,
            slots: 16,
            rows: 1_000_000_000,
        };
        assert_eq!(size("100x16,1_000_000_000"), Ok(hundred));
        assert_eq!(
            size("2,10").map(|size| (size.slots, size.rows)),
            Ok((1, 10))
        );
        for wrong in ["", "2", "x,1", "0,1", "2,0", "2x0,5", "2x2,x"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn twice_the_executors_take_half_the_time_and_as_many_bytes() {
        let sample = SampleFigures {
            rows: 1000,
            input_bytes: 400.0,
            exchanged_bytes: 500.0,
            tokens: 60.0,
            read_seconds: 1e-5,
            encode_seconds: 4e-3,
            score_seconds: 2e-5,
            table_bytes: vec![("traces".into(), 40.0)],
        };
        let of = |executors| {
            let cluster = ClusterSize {
                executors,
                slots: 16,
                rows: 1_000_000_000,
            };
            predict(&sample, cluster, Buckets::new(6400), 2e9)
        };
        let (one, two) = (of(50), of(100));
        assert!((one.encode_seconds / two.encode_seconds - 2.0).abs() < 1e-9);
        assert!((two.encode_seconds - 4e6 / 1600.0).abs() < 1e-6);
        assert!((one.exchanged_bytes - 5e11).abs() < 1.0);
        assert!((two.exchanged_bytes - one.exchanged_bytes).abs() < 1.0);
        assert_eq!((one.buckets, one.units), (6400, 2981));
        assert!((one.table_bytes - 4e10).abs() < 1.0);
        // All parts are the sum of their bytes.
        assert!((one.bucket_bytes[0].1 * 6400.0 - one.table_bytes).abs() < 1.0);
    }
}
