//! An executor: does parts of runs, and gives other executors the rows that it has read for them.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::error::BallistaError;
use ballista_core::extension::SessionConfigExt;
use ballista_core::ids::new_instance_id;
use ballista_executor::ArrowFlightServerProvider;
use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};
use ballista_executor::flight_service::BallistaFlightService;
use datafusion::prelude::SessionConfig;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::codec::StageCodec;
use super::exchange::reach;
use super::keys::in_full;
use super::{ClusterError, ClusterKeys, MOST_MESSAGE, check_bind, host_and_port, runtime};
use crate::run::open::LEAST_MEMORY;
use crate::run::worker::{Worker, WorkerSettings};
use crate::store::{LOCK, locked};

/// What an executor is asked.
#[derive(Clone, Debug)]
pub struct ExecutorRequest {
    /// The scheduler, as `HOST:PORT`.
    pub scheduler: String,
    /// Where it listens, for other executors that fetch rows; port 0 takes a free one.
    pub bind: SocketAddr,
    /// The name or address by which other machines reach it; none is the one that it listens at.
    pub host: Option<String>,
    /// A local folder for rows on their way, vectors and what does not fit into memory.
    pub work_dir: PathBuf,
    /// Parts that it does at once, each with a thread that encodes.
    pub slots: usize,
    /// Bytes that it aims to stay within, beside the model; none are 2 GiB, or 256 MiB a slot where that is more.
    pub memory_limit: Option<usize>,
    /// A folder for vectors that are kept from run to run; none keeps them as long as it runs.
    pub cache: Option<PathBuf>,
    /// Bytes that vectors may take.
    pub cache_size: u64,
    /// A model folder; none is the shipped model.
    pub model: Option<PathBuf>,
    /// The folder of the keys; none only where no other machine reaches it.
    pub keys: Option<PathBuf>,
}

impl ExecutorRequest {
    /// The name by which others reach it, and errors name it.
    fn host(&self) -> Result<String, ClusterError> {
        match (&self.host, self.bind.ip()) {
            (Some(host), _) => Ok(host.clone()),
            (None, ip) if ip.is_unspecified() => Err(ClusterError::Address {
                address: self.bind.to_string(),
                problem: "says not by which name other machines reach this one; give --host NAME"
                    .into(),
            }),
            (None, IpAddr::V4(ip)) => Ok(ip.to_string()),
            (None, IpAddr::V6(ip)) => Ok(format!("[{ip}]")),
        }
    }
}

impl ExecutorRequest {
    /// Bytes that it aims to stay within.
    fn memory(&self) -> Result<usize, ClusterError> {
        let usual = USUAL.max(self.slots * USUAL_OF_A_SLOT);
        let memory = self.memory_limit.unwrap_or(usual);
        let least = self.slots * LEAST_OF_A_SLOT;
        match memory < least {
            true => Err(ClusterError::Memory {
                slots: self.slots,
                least: least.div_ceil(1 << 20),
            }),
            false => Ok(memory),
        }
    }
}

/// Of the memory of an executor, the part for rows on their way: a fourth. Scoring has the rest.
const FOR_EXCHANGE: usize = 4;

/// Bytes of a slot, at least, and where nobody says how many.
const LEAST_OF_A_SLOT: usize = LEAST_MEMORY / (FOR_EXCHANGE - 1) * FOR_EXCHANGE;
const USUAL_OF_A_SLOT: usize = 256 << 20;
const USUAL: usize = 2 << 30;

/// How long the scheduler may take to begin.
const STARTED_WITHIN: Duration = Duration::from_secs(20);

/// Removes what executors that were killed have left here: rows on their way, which nobody asks for any more.
fn remove_left_behind(work_dir: &Path) {
    for entry in std::fs::read_dir(work_dir).into_iter().flatten().flatten() {
        let is_own = entry.file_name().to_string_lossy().starts_with("executor-");
        let lock = File::open(entry.path().join(LOCK));
        if is_own && lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// Runs an executor until it is told to stop (SIGTERM, Ctrl+C): then it ends the parts that it is at. `listening` is told
/// where, before it asks for work.
///
/// # Errors
/// [`ClusterError`] if it can't listen there, or may not, or if there is no scheduler.
pub fn run_executor(
    request: &ExecutorRequest,
    listening: impl FnOnce(SocketAddr),
) -> Result<(), ClusterError> {
    let keys = request.keys.as_deref().map(ClusterKeys::read).transpose()?;
    check_bind(request.bind, keys.as_ref())?;
    let memory_limit = request.memory()?;
    let (scheduler_host, scheduler_port) = host_and_port(&request.scheduler)?;
    let host = request.host()?;
    let failed = |e: &dyn std::error::Error| ClusterError::Engine(in_full(e));
    let made = std::fs::create_dir_all(&request.work_dir);
    made.map_err(|e| ClusterError::Engine(format!("{}: {e}", request.work_dir.display())))?;
    remove_left_behind(&request.work_dir);
    let own = tempfile::Builder::new()
        .prefix("executor-")
        .tempdir_in(&request.work_dir);
    let own =
        own.map_err(|e| ClusterError::Engine(format!("{}: {e}", request.work_dir.display())))?;
    let _lock = locked(own.path())
        .map_err(|e| ClusterError::Engine(format!("{}: {e}", own.path().display())))?;
    let for_exchange = memory_limit / FOR_EXCHANGE;
    runtime(2)?.block_on(async {
        let listener = TcpListener::bind(request.bind).await;
        let listener = listener.map_err(|e| ClusterError::Address {
            address: request.bind.to_string(),
            problem: e.to_string(),
        })?;
        let address = listener.local_addr().map_err(|e| failed(&e))?;
        let worker = Worker::new(WorkerSettings {
            name: format!("{host}:{}", address.port()),
            model: request.model.clone(),
            slots: request.slots,
            memory_limit: memory_limit - for_exchange,
            folder: own.path().to_owned(),
            cache: request.cache.clone(),
            cache_size: request.cache_size,
        });
        let endpoints = keys.as_ref().map(ClusterKeys::endpoints);
        let of_sessions = endpoints.clone();
        let config = ExecutorProcessConfig {
            executor_id: new_instance_id(),
            bind_host: match address.ip() {
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            },
            external_host: Some(host),
            port: address.port(),
            scheduler_host,
            scheduler_port,
            scheduler_connect_timeout_seconds: 0,
            vcores: request.slots,
            task_scheduling_policy: TaskSchedulingPolicy::PullStaged,
            work_dir: Some(own.path().display().to_string()),
            grpc_max_decoding_message_size: MOST_MESSAGE,
            grpc_max_encoding_message_size: MOST_MESSAGE,
            executor_heartbeat_interval_seconds: 5,
            memory_pool_size: Some(for_exchange as u64),
            override_physical_codec: Some(Arc::new(StageCodec::of(Arc::new(worker)))),
            override_config_producer: Some(Arc::new(move || session(of_sessions.clone()))),
            override_arrow_flight_service: Some(flight(listener, keys.clone())),
            override_create_grpc_client_endpoint: endpoints,
            ..ExecutorProcessConfig::default()
        };
        // Ballista would ask for ever.
        let reached = reach(&request.scheduler, keys.as_ref(), STARTED_WITHIN).await;
        reached.map_err(|problem| ClusterError::Address {
            address: format!("--scheduler {}", request.scheduler),
            problem: format!(
                "{problem}; is `nightmill scheduler` running there, with the same keys, or without keys like this one?"
            ),
        })?;
        listening(address);
        start_executor_process(Arc::new(config))
            .await
            .map_err(|e| failed(&e))
    })
}

/// The configuration of a member's sessions.
pub(super) fn session(
    endpoints: Option<ballista_core::extension::EndpointOverrideFn>,
) -> SessionConfig {
    let config = SessionConfig::new_with_ballista()
        .with_ballista_adaptive_query_planner(false)
        .with_ballista_grpc_client_max_message_size(MOST_MESSAGE as usize);
    match endpoints {
        None => config,
        Some(endpoints) => config
            .with_ballista_use_tls(true)
            .with_ballista_override_create_grpc_client_endpoint(endpoints),
    }
}

/// The service that other executors fetch rows from.
fn flight(listener: TcpListener, keys: Option<ClusterKeys>) -> Arc<ArrowFlightServerProvider> {
    let listener = Mutex::new(Some(listener));
    Arc::new(move |work_dir, _, mut shutdown, _| {
        let listener = listener
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let keys = keys.clone();
        tokio::spawn(async move {
            let Some(listener) = listener else {
                return Err(BallistaError::Internal(
                    "the service is there already".into(),
                ));
            };
            let mut server = Server::builder();
            if let Some(keys) = &keys {
                let secured = keys.server(server);
                server = secured.map_err(|e| BallistaError::Internal(e.to_string()))?;
            }
            let service = FlightServiceServer::new(BallistaFlightService::new(work_dir))
                .max_decoding_message_size(MOST_MESSAGE as usize)
                .max_encoding_message_size(MOST_MESSAGE as usize);
            server
                .add_service(service)
                .serve_with_incoming_shutdown(TcpIncoming::from(listener), shutdown.recv())
                .await
                .map_err(BallistaError::TonicError)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_executor_left_goes_and_what_a_live_one_has_stays() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["executor-dead", "executor-alive", "executor-begun", "other"];
        let [dead, alive, begun, other] = paths.map(|name| folder.path().join(name));
        for path in [&dead, &alive, &begun, &other] {
            std::fs::create_dir(path).unwrap();
        }
        drop(locked(&dead).unwrap());
        drop(locked(&other).unwrap());
        let _lock = locked(&alive).unwrap();
        remove_left_behind(folder.path());
        assert!(!dead.exists() && alive.exists() && begun.exists() && other.exists());
    }
}
