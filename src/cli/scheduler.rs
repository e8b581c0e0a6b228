//! `nightmill scheduler`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{AnyError, Outcome, outcome};
use crate::cluster::{SchedulerRequest, run_scheduler};

/// Flags of `scheduler`.
#[derive(Args, Debug)]
pub(super) struct SchedulerArgs {
    /// Where it listens; anywhere but on this machine alone only with --keys
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:50050")]
    bind: SocketAddr,
    /// The folder of the cluster's keys, as `nightmill keys` makes it
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Seconds that an executor may be silent before its parts go to others; a busy one speaks every five
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(6..=3600))]
    silent_for: u64,
}

pub(super) fn run(args: &SchedulerArgs) -> Result<Outcome, AnyError> {
    let request = SchedulerRequest {
        bind: args.bind,
        keys: args.keys.clone(),
        silent_for: Duration::from_secs(args.silent_for),
    };
    run_scheduler(&request, |address| {
        let told = outcome::print(&format!("listening on {address}\n"));
        if let Err(e) = told {
            tracing::warn!("where it listens could not be printed: {e}");
        }
    })?;
    Ok(Outcome::Done)
}
