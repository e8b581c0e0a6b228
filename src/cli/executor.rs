//! `nightmill executor`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::{AnyError, Outcome, outcome};
use crate::cluster::{ExecutorRequest, run_executor};
use crate::job::bytes_of;

/// Flags of `executor`.
#[derive(Args, Debug)]
pub(super) struct ExecutorArgs {
    /// The scheduler
    #[arg(long, value_name = "HOST:PORT")]
    scheduler: String,
    /// A local folder for rows on their way and what does not fit into memory; quick and large
    #[arg(long, value_name = "DIR")]
    work_dir: PathBuf,
    /// Where it listens for other executors; anywhere but on this machine alone only with --keys
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    bind: SocketAddr,
    /// The name by which other machines reach it [default: the address of --bind]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Parts that it does at once, each with a thread that encodes [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    slots: Option<u16>,
    /// Memory to stay within, beside the model: 4G, 48G [default: 2G, or 256M a slot where that is more]
    #[arg(long, value_name = "SIZE", value_parser = bytes_of)]
    memory_limit: Option<usize>,
    /// A local folder for vectors that are kept from run to run [default: kept as long as it runs, in --work-dir]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Disk that vectors may take
    #[arg(long, value_name = "SIZE", default_value = "10G", value_parser = bytes_of)]
    cache_size: usize,
    /// A model folder [default: the model inside the program]
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// The folder of the cluster's keys, as `nightmill keys` makes it
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
}

pub(super) fn run(args: ExecutorArgs) -> Result<Outcome, AnyError> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let request = ExecutorRequest {
        scheduler: args.scheduler,
        bind: args.bind,
        host: args.host,
        work_dir: args.work_dir,
        slots: args.slots.map_or_else(cores, usize::from),
        memory_limit: args.memory_limit,
        cache: args.cache,
        cache_size: args.cache_size as u64,
        model: args.model,
        keys: args.keys,
    };
    run_executor(&request, |address| {
        let told = outcome::print(&format!("listening on {address}\n"));
        if let Err(e) = told {
            tracing::warn!("where it listens could not be printed: {e}");
        }
    })?;
    Ok(Outcome::Done)
}
