//! Model, threads and memory of a run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::RunError;
use crate::embed::EmbeddingService;
use crate::encoder::Precision;
use crate::encoder::cpu::Level;
use crate::model::{Model, ModelFolder};

/// What a user asked for.
#[derive(Clone, Debug)]
pub struct EngineRequest {
    /// A model folder; none is the shipped model.
    pub model: Option<PathBuf>,
    /// `auto`, `cpu`, `cuda` or `metal`.
    pub device: String,
    /// `auto`, `f32`, `bf16` or `int8`.
    pub precision: String,
    /// Threads that encode, and partitions of the plan.
    pub threads: usize,
    /// Bytes that the run aims to stay within, beside the model.
    pub memory_limit: usize,
}

impl EngineRequest {
    /// Bytes for sorting and aggregating before they spill.
    pub fn plan_memory(&self) -> usize {
        self.memory_limit / 8
    }

    /// Bytes for remembering which texts were seen.
    pub fn index_memory(&self) -> usize {
        self.memory_limit / 8
    }

    /// Bytes of text in one batch of rows.
    pub fn batch_bytes(&self) -> usize {
        (self.memory_limit / 64 / self.threads.max(1)).clamp(1 << 20, 16 << 20)
    }

    /// The precision that this build computes in.
    ///
    /// # Errors
    /// Refuses devices and precisions that this build does not have, with the reason.
    pub fn check(&self) -> Result<Precision, RunError> {
        let refuse = |message: String| Err(RunError::Request(message));
        match self.device.as_str() {
            "auto" | "cpu" => {}
            device @ ("cuda" | "metal") => {
                return refuse(format!(
                    "--device {device}: this build encodes on the CPU only; use --device cpu"
                ));
            }
            other => return refuse(format!("--device {other}: choose auto, cpu, cuda or metal")),
        }
        match self.precision.as_str() {
            // Compatible scores come first: with bf16 a session's score can be off by more than 0.0005.
            "auto" | "f32" => Ok(Precision::F32),
            "bf16" => Ok(Precision::Bf16),
            "int8" => Ok(Precision::Int8),
            "f16" => refuse(
                "--precision f16: no CPU encoder computes in f16; choose auto, f32, bf16 or int8"
                    .into(),
            ),
            other => refuse(format!(
                "--precision {other}: choose auto, f32, bf16 or int8"
            )),
        }
    }
}

/// Loads the model and starts the embedding service; vectors are kept in `folder`.
///
/// # Errors
/// If the request can't be met, or the model can't be used.
pub fn load_service(
    request: &EngineRequest,
    folder: &Path,
) -> Result<Arc<EmbeddingService>, RunError> {
    let precision = request.check()?;
    let level = Level::choose().map_err(RunError::Request)?;
    if !level.has_dot(precision) {
        tracing::warn!(
            "--precision {}: this machine has no instruction for it at level {}; it works, but f32 is as fast",
            precision.name(),
            level.name()
        );
    }
    let files = match &request.model {
        Some(path) => ModelFolder::open(path)?,
        None => ModelFolder::shipped().ok_or_else(|| {
            RunError::Request("this build carries no model; name a folder with --model DIR".into())
        })?,
    };
    let model = Model::load(&files, level, precision)?;
    let service = EmbeddingService::new(model, request.threads, folder, request.index_memory())?;
    Ok(Arc::new(service))
}

/// A runtime for plans.
pub(super) fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, RunError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .thread_name("plan")
        .build()
        .map_err(|e| RunError::Plan(format!("worker threads could not be started: {e}")))
}
