//! Runs on many machines: the parts of a run, done by executors of Ballista.
//!
//! Ballista decides who does what and carries the rows. Nothing else is left to it: executors do the same as a run on one
//! machine ([`crate::run::worker`]), write into the folder of the run, and the driver believes markers, not the engine.
//!
//! Of Ballista's ways, those are taken that lose no work and hang on no lost executor: executors ask for work, plans are not
//! changed while they run, and a task is one partition.

mod codec;
mod exchange;
mod executor;
mod keys;
mod plan;
mod read_units;
mod scheduler;
mod score_buckets;

use std::net::SocketAddr;

pub use exchange::BallistaExchange;
pub use executor::{ExecutorRequest, run_executor};
pub use keys::{ClusterKeys, make_keys};
pub use scheduler::{SchedulerRequest, run_scheduler};

/// Why a member of a cluster can't begin, or must stop.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// An address that others reach, without keys.
    #[error(
        "{0} can be reached from other machines, and whoever reaches it could have files read and written: give --keys DIR (made \
         with `nightmill keys DIR`, the same folder on all machines), or take 127.0.0.1"
    )]
    Open(SocketAddr),
    /// An address that can't be used.
    #[error("{address}: {problem}")]
    Address {
        /// As it was given.
        address: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Keys that can't be read or written.
    #[error("keys in `{folder}`: {problem}")]
    Keys {
        /// Their folder.
        folder: std::path::PathBuf,
        /// What is wrong with them.
        problem: String,
    },
    /// Too little memory for as many parts at once.
    #[error(
        "--memory-limit: {slots} parts at once need at least {least}M beside the model; give more, or fewer --slots"
    )]
    Memory {
        /// Parts at once.
        slots: usize,
        /// Mebibytes.
        least: usize,
    },
    /// What Ballista says.
    #[error("{0}")]
    Engine(String),
}

/// Refuses to listen where other machines reach it, if there are no keys.
fn check_bind(address: SocketAddr, keys: Option<&ClusterKeys>) -> Result<(), ClusterError> {
    match address.ip().is_loopback() || keys.is_some() {
        true => Ok(()),
        false => Err(ClusterError::Open(address)),
    }
}

/// How long a member may be silent before it counts as gone.
const SILENT_FOR: std::time::Duration = std::time::Duration::from_secs(20);
/// Largest message between members: a plan names all units of a run.
const MOST_MESSAGE: u32 = 256 << 20;

/// A runtime whose threads have nothing else to do: members that are late to say that they are there count as gone.
fn runtime(threads: usize) -> Result<tokio::runtime::Runtime, ClusterError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("cluster")
        .enable_all()
        .build()
        .map_err(|e| ClusterError::Engine(format!("threads could not be started: {e}")))
}

/// Splits `HOST:PORT`.
fn host_and_port(address: &str) -> Result<(String, u16), ClusterError> {
    let wrong = || ClusterError::Address {
        address: address.to_owned(),
        problem: "expected HOST:PORT, as in 10.0.0.5:50050".into(),
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    match host.is_empty() {
        true => Err(wrong()),
        false => Ok((host.to_owned(), port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_listens_for_others_without_keys() {
        let refused = |address: &str| check_bind(address.parse().unwrap(), None).is_err();
        assert!(refused("0.0.0.0:1") && refused("10.0.0.5:1") && refused("[::]:1"));
        assert!(!refused("127.0.0.1:1") && !refused("[::1]:1"));
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("keys");
        make_keys(&folder).unwrap();
        let keys = ClusterKeys::read(&folder).unwrap();
        assert!(check_bind("0.0.0.0:1".parse().unwrap(), Some(&keys)).is_ok());
    }

    #[test]
    fn addresses() {
        assert_eq!(host_and_port("h:1").unwrap(), ("h".into(), 1));
        assert_eq!(
            host_and_port("[::1]:50050").unwrap(),
            ("[::1]".into(), 50050)
        );
        assert!(host_and_port("h").is_err() && host_and_port(":1").is_err());
        assert!(host_and_port("h:x").is_err());
    }
}
