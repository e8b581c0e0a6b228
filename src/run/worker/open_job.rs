//! A job that a worker has read, checked and made ready; and the models that a process keeps.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::job::{EncoderOfJob, JobPlace, WorkerJob};
use crate::job::GpuGraph;
use crate::model::Model;
use crate::output::RunError;
use crate::run::engine::{CacheChoice, EngineRequest, load_model};
use crate::trace::BatchLimits;

/// What a worker is and has.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// How errors name it.
    pub name: String,
    /// A model folder; none is the shipped model.
    pub model: Option<PathBuf>,
    /// Parts that it does at once; each has a thread that encodes.
    pub slots: usize,
    /// Bytes that it aims to stay within, beside the model.
    pub memory_limit: usize,
    /// A local folder for vectors and spilled rows.
    pub folder: PathBuf,
    /// A folder for vectors that are kept from part to part, and from run to run; none is one inside `folder`.
    pub cache: Option<PathBuf>,
    /// Bytes that these may take.
    pub cache_size: u64,
}

impl WorkerSettings {
    /// What one part may use.
    pub(super) fn engine(&self, encoder: Option<&EncoderOfJob>) -> EngineRequest {
        let precision = encoder.map_or("auto", |encoder| &encoder.precision);
        let device = encoder.map_or("cpu", |encoder| {
            let kinds = ["cuda", "metal"].into_iter();
            let mut kinds = kinds.filter(|kind| encoder.device.to_lowercase().starts_with(kind));
            kinds.next().unwrap_or("cpu")
        });
        EngineRequest {
            model: self.model.clone(),
            adjusted: encoder
                .map(|encoder| encoder.adjusted.clone())
                .unwrap_or_default(),
            device: device.into(),
            gpu_graph: match encoder.is_some_and(|encoder| encoder.device.contains("packed")) {
                true => GpuGraph::Packed,
                false => GpuGraph::Padded,
            },
            precision: precision.into(),
            threads: 1,
            memory_limit: self.memory_limit / self.slots.max(1),
            // A text of several parts is encoded in the first of them.
            cache: CacheChoice::Folder(
                self.cache
                    .clone()
                    .unwrap_or_else(|| self.folder.join("embeddings")),
            ),
            cache_size: self.cache_size,
            loaded: None,
        }
    }
}

/// A job, ready to be worked at.
pub(super) struct OpenJob {
    pub place: JobPlace,
    pub job: WorkerJob,
    pub only: Option<Arc<HashSet<String>>>,
    pub model: Option<Arc<Model>>,
    pub limits: BatchLimits,
}

impl std::fmt::Debug for OpenJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenJob")
            .field("run", &self.job.run)
            .finish_non_exhaustive()
    }
}

/// Most jobs that are kept open: several drivers may use one cluster.
const MOST_OPEN: usize = 8;

/// The jobs and models that a process has open.
#[derive(Debug, Default)]
pub(super) struct OpenJobs {
    jobs: Mutex<Vec<(JobPlace, Arc<OpenJob>)>>,
    models: Mutex<HashMap<String, Arc<Model>>>,
}

impl OpenJobs {
    /// A job, opened once. Whoever asks for it meanwhile waits.
    ///
    /// # Errors
    /// As those of [`WorkerJob::read`]; if texts would be embedded other than where the run was begun.
    pub fn open(
        &self,
        place: &JobPlace,
        settings: &WorkerSettings,
    ) -> Result<Arc<OpenJob>, RunError> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, job)) = jobs.iter().find(|(known, _)| known == place) {
            return Ok(Arc::clone(job));
        }
        let of_worker = |e: RunError| {
            let told = format!("worker {}: {e}", settings.name);
            match e {
                RunError::Scratch(_) => RunError::Scratch(told),
                _ => RunError::Request(told),
            }
        };
        let job = WorkerJob::read(place).map_err(of_worker)?;
        let engine = settings.engine(job.encoder.as_ref());
        let model = match &job.encoder {
            None => None,
            Some(encoder) => Some(self.model(encoder, settings).map_err(of_worker)?),
        };
        let only = job
            .only
            .as_ref()
            .map(|only| Arc::new(only.iter().cloned().collect()));
        let opened = Arc::new(OpenJob {
            limits: BatchLimits {
                bytes: engine.batch_bytes(),
                ..BatchLimits::default()
            },
            only,
            model,
            job,
            place: place.clone(),
        });
        if jobs.len() >= MOST_OPEN {
            jobs.remove(0);
        }
        jobs.push((place.clone(), Arc::clone(&opened)));
        Ok(opened)
    }

    /// The model of a job, loaded once a process.
    fn model(
        &self,
        wanted: &EncoderOfJob,
        settings: &WorkerSettings,
    ) -> Result<Arc<Model>, RunError> {
        let key = format!(
            "{}, {}, {:?}",
            wanted.device, wanted.precision, wanted.adjusted
        );
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        let model = match models.get(&key) {
            Some(model) => Arc::clone(model),
            None => Arc::new(load_model(&settings.engine(Some(wanted)))?),
        };
        let here = EncoderOfJob::of(&model, &wanted.adjusted);
        if let Some(difference) = wanted.difference(&here) {
            return Err(RunError::Request(format!(
                "scores would differ: {difference}; give all machines one model (--model) and one instruction level \
                 (NIGHTMILL_CPU_LEVEL), or leave this one out"
            )));
        }
        models.insert(key, Arc::clone(&model));
        Ok(model)
    }
}
