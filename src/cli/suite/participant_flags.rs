//! Flags that say who takes part in an evaluation: hooks, a log of events, evaluators that are commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::runner_flags::seconds;
use crate::cli::AnyError;
use crate::output::directory::is_same_file;
use crate::suite::evalset::evaluator::{ExternalEvaluator, Registry};
use crate::suite::evalset::hooks::HookRegistry;
use crate::suite::evalset::{events_to, events_to_file, hooks_of_command};

/// The file name that stands for standard output.
const STDOUT: &str = "-";

/// Flags of those who take part.
#[derive(Args, Debug)]
#[command(next_help_heading = "Who takes part")]
pub(super) struct ParticipantFlags {
    /// A log with a line of JSON for each stage of the run and of each case; - is standard output
    #[arg(long, value_name = "FILE")]
    events: Option<String>,
    /// A command that gets the same lines, answers each, and may stop, fail or change what comes next
    #[arg(long, value_name = "NAME=COMMAND")]
    hook: Vec<String>,
    /// How long a hook may take for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds, requires = "hook")]
    hook_timeout: f64,
}

/// Flags of evaluators.
#[derive(Args, Debug)]
#[command(next_help_heading = "Who takes part")]
pub(super) struct EvaluatorFlags {
    /// A command that scores the turns of a case, for metrics of this name: JSON in, JSON out
    #[arg(long, value_name = "NAME=COMMAND")]
    evaluator: Vec<String>,
    /// How long an evaluator may take for a case
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0, value_parser = seconds, requires = "evaluator")]
    evaluator_timeout: f64,
}

/// A name and a command.
fn named<'f>(flag: &str, pair: &'f str) -> Result<(&'f str, &'f str), AnyError> {
    match pair
        .split_once('=')
        .map(|(name, command)| (name.trim(), command.trim()))
    {
        Some((name, command)) if !name.is_empty() && !command.is_empty() => Ok((name, command)),
        _ => Err(format!("--{flag} {pair}: expected NAME=COMMAND").into()),
    }
}

impl ParticipantFlags {
    /// Whether standard output is taken by events.
    pub fn take_stdout(&self) -> bool {
        self.events.as_deref() == Some(STDOUT)
    }

    /// Refuses a log of events that is a file of something else.
    ///
    /// # Errors
    /// Naming the file.
    pub fn refuse_inputs(&self, others: &[PathBuf]) -> Result<(), AnyError> {
        let Some(events) = self.events.as_deref().filter(|file| *file != STDOUT) else {
            return Ok(());
        };
        let events = Path::new(events);
        // One that is yet to be made has a name alone.
        let is_same = |other: &PathBuf| events == other || is_same_file(events, other);
        match others.iter().any(is_same) {
            true => Err(format!(
                "--events: `{}` is a file of something else; name one of its own",
                events.display()
            )
            .into()),
            false => Ok(()),
        }
    }

    /// The hooks, their processes started.
    ///
    /// # Errors
    /// If a flag is no pair, a command can't be started or the log can't be made.
    pub fn hooks(&self) -> Result<HookRegistry, AnyError> {
        let mut hooks = HookRegistry::default();
        let timeout = Duration::from_secs_f64(self.hook_timeout);
        for pair in &self.hook {
            let (name, command) = named("hook", pair)?;
            hooks.register(name, hooks_of_command(command, timeout)?);
        }
        // Behind the hooks: what they refuse did not happen.
        match self.events.as_deref() {
            None => {}
            Some(STDOUT) => {
                let out = events_to("standard output".to_owned(), Box::new(std::io::stdout()));
                hooks.register("--events", out);
            }
            Some(file) => hooks.register("--events", events_to_file(Path::new(file))?),
        }
        Ok(hooks)
    }
}

impl EvaluatorFlags {
    /// The names of the flags.
    ///
    /// # Errors
    /// If a flag is no pair, or two are of one name.
    pub fn names(&self) -> Result<Vec<String>, AnyError> {
        let mut names: Vec<String> = Vec::new();
        for pair in &self.evaluator {
            let (name, _) = named("evaluator", pair)?;
            if names.iter().any(|known| known == name) {
                return Err(
                    format!("--evaluator: there are two for `{name}`; leave one out").into(),
                );
            }
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// What computes metrics: the built-in evaluators and those of the flags, which replace those of the same name.
    ///
    /// # Errors
    /// If a flag is no pair.
    pub fn registry(&self) -> Result<Registry, AnyError> {
        let mut registry = Registry::default();
        let timeout = Duration::from_secs_f64(self.evaluator_timeout);
        for pair in &self.evaluator {
            let (name, command) = named("evaluator", pair)?;
            registry.register(Arc::new(ExternalEvaluator::new(name, command, timeout)));
        }
        Ok(registry)
    }
}
