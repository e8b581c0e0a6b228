//! Which flags stand on the command line: `suite run` runs two kinds of suites, and refuses what has no effect on the
//! one at hand.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// The names of the flags and values that were given, as in `report_path`.
#[derive(Clone, Debug, Default)]
pub(super) struct GivenFlags(Vec<String>);

impl GivenFlags {
    /// The first flag that was given and is not one of these, as it is written.
    pub fn first_but(&self, allowed: impl Fn(&str) -> bool) -> Option<String> {
        let other = self.0.iter().find(|name| !allowed(name))?;
        Some(format!("--{}", other.replace('_', "-")))
    }

    /// Whether a flag was given.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|of| of == name)
    }
}

/// The names of the flags of `A`.
pub(super) fn flags_of<A: Args>() -> Vec<String> {
    let command = A::augment_args(Command::new("flags"));
    let flags = command.get_arguments();
    flags.map(|of| of.get_id().as_str().to_owned()).collect()
}

impl Args for GivenFlags {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for GivenFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = matches.ids().map(clap::Id::as_str).filter(|name| {
            // Groups of flags are called as their types are.
            let is_flag = name.starts_with(|of: char| of.is_ascii_lowercase());
            is_flag && matches.value_source(name) == Some(ValueSource::CommandLine)
        });
        Ok(Self(given.map(str::to_owned).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
