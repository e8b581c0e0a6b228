//! `nightmill models pull`.

use std::io::Write;
use std::path::Path;

use clap::Args;

use crate::cli::{AnyError, Outcome, outcome};
use crate::job::{Given, Job};
use crate::model::{Hub, Library, pull};
use crate::report::{counted, plain};

/// Flags of `models pull`.
#[derive(Args, Debug)]
pub(super) struct PullArgs {
    /// organisation/name, or organisation/name@revision
    #[arg(value_name = "ID")]
    id: String,
    /// The address of the hub or of a mirror [default: HF_ENDPOINT, or https://huggingface.co]. A token comes from HF_TOKEN
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Replace a model of the same id
    #[arg(long)]
    overwrite: bool,
    /// Refuse everything that would open a connection, and so this
    #[arg(long)]
    offline: bool,
}

pub(super) fn run(
    args: &PullArgs,
    library: &Library,
    config: Option<&Path>,
) -> Result<Outcome, AnyError> {
    let settings = Job::of(
        Given::default()
            .complete(config)?
            .only(|name| name == "offline"),
    )?;
    if args.offline || settings.offline {
        return Err("--offline refuses connections, and `models pull` opens one; carry the model here with `models export` and \
                    `models import`"
            .into());
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let hub = Hub {
        endpoint: args.endpoint.clone().or_else(|| variable("HF_ENDPOINT")),
        token: variable("HF_TOKEN"),
    };
    let head = pull(&hub, &args.id, library, args.overwrite, &mut |line| {
        // Nothing can be done about a closed standard error.
        let _ = writeln!(std::io::stderr(), "{}", plain(line));
    })?;
    outcome::print(&format!(
        "{}: {} at revision {}, licence {}\nuse it: nightmill score TRACES --model {} --out RUN\n",
        plain(&head.id),
        counted(head.files.len() as u64, "file", "files"),
        plain(head.revision.as_deref().unwrap_or("unknown")),
        plain(head.licence.as_deref().unwrap_or("not named in its files")),
        library.place(&head.id)?.display()
    ))?;
    Ok(Outcome::Done)
}
