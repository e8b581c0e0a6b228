//! `nightmill completions`: what a shell needs to complete commands, flags and their values.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{AnyError, Cli, Outcome, outcome};

/// Flags of `completions`.
#[derive(Args, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell; in bash: source <(nightmill completions bash)
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs) -> Result<Outcome, AnyError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "nightmill", &mut script);
    outcome::print(&String::from_utf8(script)?)?;
    Ok(Outcome::Done)
}
