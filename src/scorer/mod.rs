//! Scoring out of another program: a model that is loaded once, tables in, tables out.
//!
//! What stands behind it is a run like any other: rows go to a file of their own, the run's tables are read back. So there is
//! one way to scores, whoever asks.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, FixedSizeListBuilder, Float32Builder, RecordBatch, RecordBatchReader,
};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::embed::{TextRecord, TextRef};
use crate::job::{Given, Job, SettingsError};
use crate::metric::{ALL, Rules};
use crate::model::Model;
use crate::output::{Distributions, RunError, WorstSession};
use crate::run::worker::Exchange;
use crate::run::{CacheChoice, EngineRequest, PageWriter, Progress, ScoreRequest, load_model};
use crate::run::{open, score, service_of};
use crate::summary::Summary;
use crate::trace::{Buckets, canonical_trace_id};

/// Why something can't be scored.
#[derive(Debug, thiserror::Error)]
pub enum ScorerError {
    /// Settings that don't fit.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Rows that came in, or tables that go out.
    #[error("{0}")]
    Rows(String),
}

impl ScorerError {
    fn rows(what: &str, error: impl std::fmt::Display) -> Self {
        Self::Rows(format!("{what}: {error}"))
    }
}

/// What a whole run is asked beside its settings.
#[derive(Debug, Default)]
pub struct FilesRequest {
    /// Files, folders and globs.
    pub paths: Vec<String>,
    /// The run directory to make.
    pub out: PathBuf,
    /// A run, or a folder of runs, that it continues.
    pub continues: Option<PathBuf>,
    /// Whether it has a page.
    pub report: bool,
    /// Who does its parts; none is this process.
    pub exchange: Option<Arc<dyn Exchange>>,
}

/// Settings of which a scorer has no use: what is about the directory of a run, judges and alerts.
const IDLE: [&str; 8] = [
    "overwrite",
    "resume",
    "json",
    "buckets",
    "fail_on_drift",
    "offline",
    "signals",
    "calibration",
];

/// Scores tables with settings that stay and a model that is loaded once. Any number of threads may use it.
#[derive(Debug)]
pub struct Scorer {
    job: Job,
    rules: Rules,
    engine: EngineRequest,
    folder: TempDir,
}

impl Scorer {
    /// A scorer with the settings of `nightmill score`, by name; neither the environment nor a settings file adds any.
    ///
    /// # Errors
    /// [`ScorerError`] for a setting that does not fit, or a model that can't be used.
    pub fn new(given: Given) -> Result<Self, ScorerError> {
        let idle = given.names().find(|name| {
            let setting = crate::job::Setting::named(name);
            IDLE.contains(name)
                || setting.is_some_and(|setting| setting.of_judges() || setting.of_alerts())
        });
        if let Some(name) = idle {
            return Err(ScorerError::Rows(format!(
                "{name}: a scorer of tables has no use for it; score files for that"
            )));
        }
        let job = Job::of(given)?;
        let rules = open::rules(&job)?;
        let mut engine = open::engine(&job, CacheChoice::Off)?;
        if !rules.needs_no_model() {
            engine.loaded = Some(Arc::new(load_model(&engine)?));
        }
        let folder = tempfile::Builder::new()
            .prefix("nightmill-scorer-")
            .tempdir();
        let folder = folder.map_err(|e| ScorerError::rows("a temporary folder", e))?;
        Ok(Self {
            job,
            rules,
            engine,
            folder,
        })
    }

    /// The model, if its metrics need one.
    fn model(&self) -> Option<&Arc<Model>> {
        self.engine.loaded.as_ref()
    }

    /// What must be equal for scores to be equal, wherever they are made: version, model, precision, device, rules.
    pub fn key(&self) -> Value {
        let model = self.model().map(|model| {
            json!({
                "name": model.name,
                "sha256": model.sha256,
                "precision": model.encoder.precision(),
                "device": model.encoder.device(),
                "revision": model.encoder.revision(),
                "prompt": self.engine.adjusted.prompt,
                "dim": model.encoder.dim(),
            })
        });
        json!({
            "nightmill": env!("CARGO_PKG_VERSION"),
            "model": model,
            "rules": crate::output::manifest::rules_of(&self.rules),
        })
    }

    /// Scores the traces of a table: all rows of each of their sessions, in any order.
    ///
    /// # Errors
    /// [`ScorerError`]: a table without the columns that are needed, rows that can't be read as a table. Rows that are no
    /// traces are set aside, see [`Scored::table`].
    pub fn score(&self, rows: impl RecordBatchReader) -> Result<Scored, ScorerError> {
        let folder = tempfile::tempdir_in(self.folder.path());
        let folder = folder.map_err(|e| ScorerError::rows("a temporary folder", e))?;
        let file = folder.path().join("rows.parquet");
        write_rows(&file, rows)?;
        let path = file.display().to_string();
        let request = ScoreRequest {
            engine: self.engine.clone(),
            ..open::score(&self.job, vec![path], folder.path().join("run"), None)?
        };
        let (summary, run) = score(&request, &Progress::default()).map_err(|e| {
            // Nobody knows the file, which is ours.
            let (file, folder) = (
                file.display().to_string(),
                folder.path().display().to_string(),
            );
            let told = e
                .to_string()
                .replace(&format!("file `{file}`"), "the table");
            ScorerError::Rows(told.replace(&folder, "the table"))
        })?;
        Ok(Scored {
            run,
            summary,
            _folder: folder,
        })
    }

    /// The vectors of texts, a row each, null for null and for the empty text: a list of as many `float32` as the model has
    /// components.
    ///
    /// # Errors
    /// [`ScorerError`] if its metrics need no model, or if embedding fails.
    pub fn embed<'t>(
        &self,
        texts: impl IntoIterator<Item = Option<&'t str>>,
    ) -> Result<ArrayRef, ScorerError> {
        let Some(model) = self.model() else {
            return Err(ScorerError::Rows(
                "the metrics of this scorer need no model; name one that does, as coherence".into(),
            ));
        };
        let service = service_of(Arc::clone(model), &self.engine, self.folder.path())?;
        let texts: Vec<&str> = texts.into_iter().map(Option::unwrap_or_default).collect();
        let places = service.embed(&texts).map_err(RunError::from)?;
        let dim = service.dim();
        let width = i32::try_from(dim).map_err(|e| ScorerError::rows("vectors", e))?;
        let values = Float32Builder::with_capacity(places.len() * dim);
        let mut vectors = FixedSizeListBuilder::new(values, width);
        let mut record = TextRecord::default();
        for place in places {
            match place == TextRef::EMPTY {
                true => vectors.values().append_nulls(dim),
                false => {
                    service.read(place, &mut record).map_err(RunError::from)?;
                    vectors.values().append_slice(&record.vector);
                }
            }
            vectors.append(place != TextRef::EMPTY);
        }
        Ok(Arc::new(vectors.finish()))
    }

    /// What several tables come to together, of the counts of each: `traces`, `sessions`, `metrics`, `gates` and
    /// `worst_sessions`, as in the summary of a run over all of them. The order of `counts` changes nothing.
    pub fn merge(&self, counts: &[Counts]) -> Value {
        let mut sum = Counts::default();
        for counts in counts {
            sum.traces += counts.traces;
            sum.sessions += counts.sessions;
            sum.distributions.merge(&counts.distributions);
            sum.worst.extend(counts.worst.iter().cloned());
        }
        sum.worst.sort_by(WorstSession::order);
        sum.worst.truncate(WorstSession::SHOWN);
        let computed = ALL
            .iter()
            .filter(|m| m.has_scores() && self.rules.computes(m.name));
        json!({
            "traces": sum.traces,
            "sessions": sum.sessions,
            "metrics": sum.distributions.summaries(computed, &self.rules),
            "gates": sum.distributions.gates(&self.rules),
            "worst_sessions": sum.worst,
        })
    }
}

/// Scores files into a run directory, as `nightmill score` does, with these settings alone.
///
/// # Errors
/// As those of [`score`], and of settings that don't fit.
pub fn score_files(given: Given, request: FilesRequest) -> Result<Summary, ScorerError> {
    let job = Job::of(given)?;
    let page = request.report.then_some(crate::report::html as PageWriter);
    let request = ScoreRequest {
        overwrite: job.overwrite,
        continues: request.continues,
        exchange: request.exchange,
        ..open::score(&job, request.paths, request.out, page)?
    };
    let (summary, _) = score(&request, &Progress::default())?;
    Ok(summary)
}

/// Numbers that tables come to, to be added to those of others.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    traces: u64,
    sessions: u64,
    distributions: Distributions,
    worst: Vec<WorstSession>,
}

/// What came of a table: a run's tables, on disk as long as this is there.
#[derive(Debug)]
pub struct Scored {
    run: PathBuf,
    summary: Summary,
    _folder: TempDir,
}

impl Scored {
    /// What the run says of itself.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Numbers to be added to those of other tables.
    pub fn counts(&self) -> Counts {
        Counts {
            traces: self.summary.traces,
            sessions: self.summary.sessions,
            distributions: self.summary.distributions.clone(),
            worst: self.summary.worst_sessions.clone(),
        }
    }

    /// A table of the run: `traces`, `scores`, `sessions`, `attention` or `quarantine`. It is read as it is asked for.
    ///
    /// # Errors
    /// [`ScorerError`] if the run has no such table.
    pub fn table(&self, name: &str) -> Result<StoredBatches, ScorerError> {
        StoredBatches::open(&self.run.join(name))
    }
}

/// The rows of a table of a run, in their order.
pub struct StoredBatches {
    schema: SchemaRef,
    batches: Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>,
}

impl std::fmt::Debug for StoredBatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredBatches")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl StoredBatches {
    fn open(folder: &Path) -> Result<Self, ScorerError> {
        let failed =
            |e: &dyn std::fmt::Display| ScorerError::rows(&folder.display().to_string(), e);
        let entries = std::fs::read_dir(folder).map_err(|e| failed(&e))?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|e| e == "parquet"));
        files.sort();
        let mut readers = Vec::new();
        let mut schema = None;
        for file in files {
            let opened = File::open(&file).map_err(|e| failed(&e))?;
            let builder =
                ParquetRecordBatchReaderBuilder::try_new(opened).map_err(|e| failed(&e))?;
            schema.get_or_insert_with(|| Arc::clone(builder.schema()));
            readers.push(builder.build().map_err(|e| failed(&e))?);
        }
        Ok(Self {
            schema: schema.unwrap_or_else(|| Arc::new(Schema::empty())),
            batches: Box::new(readers.into_iter().flatten()),
        })
    }
}

impl Iterator for StoredBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.next()
    }
}

impl RecordBatchReader for StoredBatches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

fn write_rows(file: &Path, rows: impl RecordBatchReader) -> Result<(), ScorerError> {
    let failed = |e: &dyn std::fmt::Display| ScorerError::rows("rows", e);
    let opened = File::create(file).map_err(|e| failed(&e))?;
    let buffered = BufWriter::with_capacity(1 << 20, opened);
    let mut writer = ArrowWriter::try_new(buffered, rows.schema(), None).map_err(|e| failed(&e))?;
    for batch in rows {
        let batch = batch.map_err(|e| failed(&e))?;
        writer.write(&batch).map_err(|e| failed(&e))?;
    }
    writer.close().map_err(|e| failed(&e))?;
    Ok(())
}

/// The bucket of each trace, as a run in so many buckets has it: of its session and project, or of its own id where it stands
/// alone. Null where the id of the trace is null or empty: no run takes such a row.
///
/// # Errors
/// [`ScorerError`] for a number of buckets that can't be.
pub fn buckets_of<'t>(
    traces: impl IntoIterator<Item = (Option<&'t str>, Option<&'t str>, Option<&'t str>)>,
    buckets: usize,
) -> Result<Vec<Option<u32>>, ScorerError> {
    let Some(buckets) = Buckets::new(buckets) else {
        return Err(ScorerError::Rows(format!(
            "{buckets} buckets: expected a number from 1 to {}",
            Buckets::MOST
        )));
    };
    let of =
        |(trace_id, session_id, project_id): (Option<&str>, Option<&'t str>, Option<&'t str>)| {
            let trace_id = canonical_trace_id(trace_id?)?;
            let [session_id, project_id] =
                [session_id, project_id].map(|id| id.filter(|id| !id.is_empty()));
            Some(buckets.of(project_id, session_id, &trace_id))
        };
    Ok(traces.into_iter().map(of).collect())
}
