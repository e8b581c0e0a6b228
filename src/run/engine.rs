//! Model, threads and memory of a run.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use crate::embed::{CacheKey, EmbeddingCache, EmbeddingMemory, EmbeddingService};
use crate::encoder::Precision;
#[cfg(feature = "candle")]
use crate::encoder::candle::CandleDevice;
use crate::encoder::cpu::Level;
use crate::job::GpuGraph;
use crate::model::{Adjusted, Model, ModelFolder, load_fastest};
use crate::output::RunError;

/// Whether vectors are kept from run to run, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheChoice {
    /// Nowhere.
    Off,
    /// In the user's cache folder; if it can't be used the run goes on without.
    User,
    /// In this folder; if it can't be used the run fails.
    Folder(PathBuf),
}

/// What a user asked for.
#[derive(Clone, Debug)]
pub struct EngineRequest {
    /// A model folder; none is the shipped model.
    pub model: Option<PathBuf>,
    /// How it is used other than it comes.
    pub adjusted: Adjusted,
    /// `auto`, `cpu`, `cuda`, `cuda:1`, `cuda:all` or `metal`.
    pub device: String,
    /// How a GPU goes through a model.
    pub gpu_graph: GpuGraph,
    /// `auto`, `f32`, `bf16`, `int8`, or `f16` on a GPU.
    pub precision: String,
    /// Threads that encode, and partitions of the plan.
    pub threads: usize,
    /// Bytes that the run aims to stay within, beside the model.
    pub memory_limit: usize,
    /// Vectors of earlier runs.
    pub cache: CacheChoice,
    /// Bytes that the cache may take, over all models.
    pub cache_size: u64,
    /// The model, if somebody has loaded it already by such a request.
    pub loaded: Option<Arc<Model>>,
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

    /// Bytes of the embedding service.
    fn embedding_memory(&self) -> EmbeddingMemory {
        EmbeddingMemory {
            index: self.index_memory(),
            queue: self.memory_limit / 16,
            keep_texts: false,
        }
    }

    /// Bytes of text in one batch of rows.
    pub fn batch_bytes(&self) -> usize {
        (self.memory_limit / 64 / self.threads.max(1)).clamp(1 << 20, 16 << 20)
    }

    /// What to encode with.
    ///
    /// # Errors
    /// Refuses devices and precisions that this build does not have, with the reason.
    pub fn check(&self) -> Result<Target, RunError> {
        let refuse = |message: String| Err(RunError::Request(message));
        let precision = match self.precision.as_str() {
            "auto" => Asked::Auto,
            "f32" => Asked::Cpu(Precision::F32),
            "bf16" => Asked::Cpu(Precision::Bf16),
            "int8" => Asked::Cpu(Precision::Int8),
            "f16" => Asked::F16,
            other => {
                return refuse(format!(
                    "--precision {other}: choose auto, f32, bf16, int8, or f16 on a GPU"
                ));
            }
        };
        let gpu = match self.device.as_str() {
            "cpu" => None,
            // Whoever asks for a precision of the CPU wants the CPU.
            "auto" => match precision {
                Asked::Cpu(_) => None,
                Asked::Auto | Asked::F16 => Gpu::found(),
            },
            device if device.starts_with("cuda") && cfg!(feature = "cuda") => Some(Gpu::Cuda),
            "metal" if cfg!(feature = "metal") => Some(Gpu::Metal),
            device if device == "metal" || device.starts_with("cuda") => {
                let feature = if device == "metal" { "metal" } else { "cuda" };
                return refuse(format!(
                    "--device {device}: this build encodes on the CPU only; use --device cpu, or build it \
                     with `cargo build --release --features {feature}`"
                ));
            }
            other => return refuse(format!("--device {other}: choose auto, cpu, cuda or metal")),
        };
        if self.gpu_graph == GpuGraph::Packed {
            let exact = matches!(precision, Asked::Cpu(_));
            if exact {
                return refuse(format!(
                    "--gpu-graph packed: it computes at f16; leave it or --precision {} out",
                    self.precision
                ));
            }
            if gpu.is_none() {
                return refuse(format!(
                    "--gpu-graph packed: with --device {} this machine and build encode on the CPU, which has no such graph; \
                     leave it out, or name a GPU",
                    self.device
                ));
            }
        }
        match (gpu, precision) {
            (None, Asked::Auto) => Ok(Target::Cpu(None)),
            (None, Asked::Cpu(precision)) => Ok(Target::Cpu(Some(precision))),
            (None, Asked::F16) => refuse(
                "--precision f16: no CPU encoder computes in f16; choose auto, f32, bf16 or int8"
                    .into(),
            ),
            (Some(gpu), Asked::Auto) => Ok(Target::Gpu { gpu, exact: None }),
            (Some(gpu), Asked::F16) => Ok(Target::Gpu {
                gpu,
                exact: Some(false),
            }),
            (Some(gpu), Asked::Cpu(Precision::F32)) => Ok(Target::Gpu {
                gpu,
                exact: Some(true),
            }),
            (Some(_), Asked::Cpu(other)) => refuse(format!(
                "--precision {}: on a GPU choose auto, f16 or f32, or use --device cpu",
                other.name()
            )),
        }
    }
}

/// A precision as it was asked for.
#[derive(Clone, Copy)]
enum Asked {
    Auto,
    Cpu(Precision),
    F16,
}

/// A kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpu {
    /// NVIDIA's.
    Cuda,
    /// Apple's.
    Metal,
}

impl Gpu {
    /// The GPU of this machine, if this build can use one.
    fn found() -> Option<Self> {
        // Opening a device takes a while: once is enough.
        static FOUND: OnceLock<Option<Gpu>> = OnceLock::new();
        *FOUND.get_or_init(|| {
            #[cfg(feature = "cuda")]
            if CandleDevice::cuda(0, false).is_ok() {
                return Some(Self::Cuda);
            }
            #[cfg(feature = "metal")]
            if CandleDevice::metal(0, false).is_ok() {
                return Some(Self::Metal);
            }
            None
        })
    }
}

/// What to encode with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The CPU at this precision; none is the fastest that is true enough.
    Cpu(Option<Precision>),
    /// A GPU.
    Gpu {
        /// Which kind.
        gpu: Gpu,
        /// At f32 rather than f16; none is f16 if that is true enough.
        exact: Option<bool>,
    },
}

/// Loads the model, opens the cache and starts the embedding service; the run's vectors are kept in `folder`.
///
/// # Errors
/// If the request can't be met, or the model can't be used.
pub fn load_service(
    request: &EngineRequest,
    folder: &Path,
) -> Result<Arc<EmbeddingService>, RunError> {
    match &request.loaded {
        Some(model) => service_of(Arc::clone(model), request, folder),
        None => service_of(load_model(request)?, request, folder),
    }
}

/// The same of a model that is loaded.
///
/// # Errors
/// As those of [`load_service`].
pub(crate) fn service_of(
    model: impl Into<Arc<Model>>,
    request: &EngineRequest,
    folder: &Path,
) -> Result<Arc<EmbeddingService>, RunError> {
    let model = model.into();
    let cache = open_cache(request, &model)?;
    let memory = request.embedding_memory();
    let service = EmbeddingService::new(model, cache, request.threads, folder, memory)?;
    Ok(Arc::new(service))
}

/// The same with a quick model before it, from the folder `quick`; its service is the second one, and keeps texts. The
/// model's name and sum are those of both: scores of one that was only asked now and then are not those of one that was
/// always asked.
///
/// # Errors
/// As those of [`load_service`], for either; if both are the same model.
pub(super) fn load_services(
    request: &EngineRequest,
    quick: &Path,
    folder: &Path,
) -> Result<[Arc<EmbeddingService>; 2], RunError> {
    let mut model = load_model(request)?;
    let cache = open_cache(request, &model)?;
    let request_of_quick = EngineRequest {
        model: Some(quick.to_owned()),
        adjusted: Adjusted::default(),
        device: "cpu".into(),
        gpu_graph: GpuGraph::Padded,
        precision: "auto".into(),
        ..request.clone()
    };
    let quick = load_model(&request_of_quick)?;
    if quick.sha256 == model.sha256 {
        return Err(RunError::Request(
            "--triage: this is the model of the run itself; name a quicker one, as `nightmill models distill` makes it"
                .into(),
        ));
    }
    model.name = format!("{} after {}", model.name, quick.name);
    model.sha256 = Sha256::digest(format!("{} after {}", model.sha256, quick.sha256))
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let cache_of_quick = match quick.is_table {
        // To look a vector up takes as long as to make it.
        true => None,
        false => open_cache(&request_of_quick, &quick)?,
    };
    let memory = request.embedding_memory();
    let keeping = EmbeddingMemory {
        keep_texts: true,
        ..memory
    };
    let threads = request.threads;
    let service = EmbeddingService::new(model, cache, threads, folder, memory)?;
    let mut quick = EmbeddingService::new(quick, cache_of_quick, threads, folder, keeping)?;
    quick.count_as(&service);
    Ok([Arc::new(service), Arc::new(quick)])
}

/// Loads the model of a request.
///
/// # Errors
/// As those of [`load_service`].
pub(crate) fn load_model(request: &EngineRequest) -> Result<Model, RunError> {
    let target = request.check()?;
    let files = match &request.model {
        Some(path) => ModelFolder::open(path)?,
        None => ModelFolder::shipped().ok_or_else(|| {
            RunError::Request("this build carries no model; name a folder with --model DIR".into())
        })?,
    };
    let files = files.adjusted(request.adjusted.clone());
    let precision = match target {
        Target::Cpu(precision) => precision,
        Target::Gpu { gpu, exact } => match load_on_gpu(&files, request, gpu, exact) {
            // Nobody asked for the GPU.
            Err(error)
                if request.device == "auto"
                    && exact.is_none()
                    && request.gpu_graph == GpuGraph::Padded =>
            {
                tracing::warn!("{error}; this run encodes on the CPU");
                None
            }
            loaded => return loaded,
        },
    };
    let level = Level::choose().map_err(RunError::Request)?;
    let Some(precision) = precision else {
        return Ok(load_fastest(&files, level)?);
    };
    if !level.has_dot(precision) {
        tracing::warn!(
            "--precision {}: this machine has no instruction for it at level {}; it works, but f32 is as fast",
            precision.name(),
            level.name()
        );
    }
    Ok(Model::load(&files, level, precision)?)
}

#[cfg(feature = "candle")]
fn load_on_gpu(
    files: &ModelFolder,
    request: &EngineRequest,
    gpu: Gpu,
    exact: Option<bool>,
) -> Result<Model, RunError> {
    let packed = request.gpu_graph == GpuGraph::Packed;
    let failed = |e: crate::encoder::EncodeError| {
        let without = if packed { " without --gpu-graph" } else { "" };
        RunError::Request(format!(
            "no GPU can be used: {e}; use --device cpu{without}"
        ))
    };
    let numbers: Vec<usize> = match request.device.split_once(':') {
        Some((_, "all")) => (0..CandleDevice::cuda_count().map_err(failed)?.max(1)).collect(),
        Some((_, number)) => vec![number.parse().unwrap_or(0)],
        None => vec![0],
    };
    let open = |exact: bool| -> Result<Vec<CandleDevice>, RunError> {
        let open = |number: &usize| match gpu {
            Gpu::Cuda => CandleDevice::cuda(*number, exact),
            Gpu::Metal => CandleDevice::metal(*number, exact),
        };
        let devices = numbers.iter().map(open).collect::<Result<Vec<_>, _>>();
        let devices = devices.map_err(failed)?;
        // Another card may round otherwise, and which one encodes a text is chance.
        if devices
            .iter()
            .any(|device| device.kind() != devices[0].kind())
        {
            let kinds: Vec<&str> = devices.iter().map(CandleDevice::kind).collect();
            return Err(RunError::Request(format!(
                "--device {}: these cards are not alike ({}), so that vectors would depend on chance; name one of them",
                request.device,
                kinds.join(", ")
            )));
        }
        Ok(devices)
    };
    let model = match exact {
        Some(exact) => Model::load_on_devices(files, &open(exact)?, packed)?,
        None => {
            let (fast, exact) = (open(false)?, open(true)?);
            crate::model::load_fastest_on_devices(files, &fast, &exact, packed)?
        }
    };
    let idle = match (packed, exact) {
        (true, _) => Some("--gpu-graph packed"),
        (false, Some(false)) => Some("--precision f16"),
        _ => None,
    };
    match idle.filter(|_| model.is_table) {
        Some(flag) => Err(RunError::Request(format!(
            "{flag}: a static table is added up at f32 on the CPU; leave it out"
        ))),
        None => Ok(model),
    }
}

#[cfg(not(feature = "candle"))]
fn load_on_gpu(
    _: &ModelFolder,
    _: &EngineRequest,
    gpu: Gpu,
    _: Option<bool>,
) -> Result<Model, RunError> {
    Err(RunError::Request(format!(
        "{gpu:?}: this build encodes on the CPU only; use --device cpu"
    )))
}

/// Where vectors are kept unless somebody says otherwise.
pub(super) fn user_cache() -> Option<PathBuf> {
    dirs::cache_dir().map(|folder| folder.join("nightmill").join("embeddings"))
}

fn open_cache(request: &EngineRequest, model: &Model) -> Result<Option<EmbeddingCache>, RunError> {
    let (root, wanted) = match &request.cache {
        CacheChoice::Off => return Ok(None),
        CacheChoice::Folder(folder) => (folder.clone(), true),
        CacheChoice::User => match user_cache() {
            Some(folder) => (folder, false),
            None => return Ok(None),
        },
    };
    let key = CacheKey {
        model_sha256: model.sha256.clone(),
        precision: model.encoder.precision().into(),
        device: model.encoder.device(),
        revision: model.encoder.revision(),
    };
    let (dim, memory) = (model.encoder.dim(), request.memory_limit / 16);
    match EmbeddingCache::open(&root, &key, dim, request.cache_size, memory) {
        Ok(cache) => Ok(Some(cache)),
        Err(error) if wanted => Err(RunError::Request(format!(
            "{error}; name another folder with --cache, or none with --no-cache"
        ))),
        Err(error) => {
            tracing::warn!("{error}; this run keeps no vectors for later ones");
            Ok(None)
        }
    }
}

/// A runtime for plans.
pub(crate) fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, RunError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .thread_name("plan")
        .enable_all()
        .build()
        .map_err(|e| RunError::Plan(format!("worker threads could not be started: {e}")))
}
