//! The scheduler: hands out the parts of runs. It reads no trace and keeps nothing on disk.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpcServer;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::create_scheduler;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::codec::StageCodec;
use super::keys::in_full;
use super::{ClusterError, ClusterKeys, MOST_MESSAGE, check_bind, runtime};

/// What a scheduler is asked.
#[derive(Clone, Debug)]
pub struct SchedulerRequest {
    /// Where it listens.
    pub bind: SocketAddr,
    /// The folder of the keys; none only where no other machine reaches it.
    pub keys: Option<PathBuf>,
    /// How long an executor may be silent before its parts go to others; a busy one speaks every five seconds.
    pub silent_for: Duration,
}

/// Runs a scheduler until the process ends. `listening` is told where, as soon as it does.
///
/// # Errors
/// [`ClusterError`] if it can't listen there, or may not.
pub fn run_scheduler(
    request: &SchedulerRequest,
    listening: impl FnOnce(SocketAddr),
) -> Result<(), ClusterError> {
    let keys = request.keys.as_deref().map(ClusterKeys::read).transpose()?;
    check_bind(request.bind, keys.as_ref())?;
    let failed = |e: &dyn std::error::Error| ClusterError::Engine(in_full(e));
    runtime(2)?.block_on(async {
        let listener = TcpListener::bind(request.bind).await;
        let listener = listener.map_err(|e| ClusterError::Address {
            address: request.bind.to_string(),
            problem: e.to_string(),
        })?;
        let address = listener.local_addr().map_err(|e| failed(&e))?;
        let silent = request.silent_for.as_secs();
        let config = SchedulerConfig {
            bind_host: address.ip().to_string(),
            bind_port: address.port(),
            // Executors that are told what to do leave jobs hanging when one of them dies.
            scheduling_policy: TaskSchedulingPolicy::PullStaged,
            executor_timeout_seconds: silent,
            expire_dead_executor_interval_seconds: (silent / 4).max(1),
            no_executors_grace_period_seconds: silent,
            executor_termination_grace_period: 5,
            grpc_server_max_decoding_message_size: MOST_MESSAGE,
            grpc_server_max_encoding_message_size: MOST_MESSAGE,
            override_physical_codec: Some(Arc::new(StageCodec::default())),
            override_create_grpc_client_endpoint: keys.as_ref().map(ClusterKeys::endpoints),
            use_tls: keys.is_some(),
            ..SchedulerConfig::default()
        };
        let cluster = BallistaCluster::new_from_config(&config).await;
        let cluster = cluster.map_err(|e| failed(&e))?;
        let scheduler =
            create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, Arc::new(config)).await;
        let service = SchedulerGrpcServer::new(scheduler.map_err(|e| failed(&e))?)
            .max_decoding_message_size(MOST_MESSAGE as usize)
            .max_encoding_message_size(MOST_MESSAGE as usize);
        let mut server = Server::builder();
        if let Some(keys) = &keys {
            server = keys.server(server)?;
        }
        listening(address);
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let served = server.add_service(service).serve_with_incoming(incoming);
        served.await.map_err(|e| failed(&e))
    })
}
