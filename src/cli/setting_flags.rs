//! The settings of a job as flags: those that a command offers, themed, with the values that they can have.

use std::marker::PhantomData;

use clap::builder::PossibleValuesParser;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::Value;

use crate::job::{Given, Kind, SETTINGS, Setting, Theme};

/// Which settings a command has flags for.
pub(super) trait Offer {
    /// Whether there is a flag.
    fn offers(setting: &Setting) -> bool;

    /// Whether the flag is there only to be refused with a reason: help does not name it.
    fn hides(_: &Setting) -> bool {
        false
    }

    /// What the setting means to this command, where that is not what it means to a run.
    fn help(_: &Setting) -> Option<&'static str> {
        None
    }
}

/// All settings.
#[derive(Debug)]
pub(super) struct OfRuns;

impl Offer for OfRuns {
    fn offers(_: &Setting) -> bool {
        true
    }
}

/// Settings of judges alone.
#[derive(Debug)]
pub(super) struct OfJudges;

impl Offer for OfJudges {
    fn offers(setting: &Setting) -> bool {
        setting.of_judges()
    }
}

/// What was given on the command line, as far as a command offers it.
#[derive(Debug)]
pub(super) struct SettingFlags<O> {
    /// The settings, unchecked.
    pub given: Given,
    offer: PhantomData<O>,
}

/// What help calls a theme; none for the flags that stand first.
fn heading(theme: Theme) -> Option<&'static str> {
    Some(match theme {
        Theme::Main => return None,
        Theme::Input => "Input",
        Theme::Scores => "Scores",
        Theme::Encoder => "Encoder and cache",
        Theme::Judges => "Judges",
        Theme::Judged => "What is judged",
        Theme::Questions => "How judges are asked",
        Theme::Limits => "Limits of judging",
        Theme::Batches => "Judging in batches",
        Theme::Alerts => "Who is told",
    })
}

fn flag_of(setting: &'static Setting) -> Arg {
    let flag = Arg::new(setting.name)
        .long(setting.name.replace('_', "-"))
        .help(setting.help.trim())
        .help_heading(heading(setting.theme));
    let flag = match setting.kind {
        Kind::Switch => return flag.action(ArgAction::SetTrue),
        Kind::One | Kind::Path => flag.action(ArgAction::Set),
        Kind::Many | Kind::Pairs => flag.action(ArgAction::Append).value_delimiter(','),
    };
    let flag = match setting.choices {
        [] => flag,
        choices => flag.value_parser(PossibleValuesParser::new(choices)),
    };
    let flag = flag.value_name(setting.value);
    match setting.name {
        "cache" => flag.conflicts_with("no_cache"),
        _ => flag,
    }
}

impl<O: Offer> Args for SettingFlags<O> {
    fn augment_args(command: Command) -> Command {
        let offered = SETTINGS.iter().filter(|setting| O::offers(setting));
        let flags = offered.map(|setting| {
            let flag = flag_of(setting).hide(O::hides(setting));
            match O::help(setting) {
                None => flag,
                Some(help) => flag.help(help),
            }
        });
        command.args(flags).next_help_heading(None::<&str>)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<O: Offer> FromArgMatches for SettingFlags<O> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Given::default();
        for setting in SETTINGS.iter().filter(|setting| O::offers(setting)) {
            if matches.value_source(setting.name) != Some(ValueSource::CommandLine) {
                continue;
            }
            let value: Value = match setting.kind {
                Kind::Switch => matches.get_flag(setting.name).into(),
                Kind::One | Kind::Path => matches.get_one::<String>(setting.name).cloned().into(),
                Kind::Many | Kind::Pairs => {
                    let items = matches.get_many::<String>(setting.name);
                    items.unwrap_or_default().cloned().collect()
                }
            };
            given
                .set(setting, value)
                .map_err(|e| clap::Error::raw(clap::error::ErrorKind::InvalidValue, e))?;
        }
        Ok(Self {
            given,
            offer: PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(flags: &[&str]) -> Result<Given, clap::Error> {
        let command = SettingFlags::<OfRuns>::augment_args(Command::new("x").no_binary_name(true));
        let matches = command.try_get_matches_from(flags)?;
        Ok(SettingFlags::<OfRuns>::from_arg_matches(&matches)?.given)
    }

    #[test]
    fn every_setting_has_a_flag_that_sets_it() {
        for setting in SETTINGS {
            let flag = format!("--{}", setting.name.replace('_', "-"));
            let value = setting.choices.first().unwrap_or(&"x=1").to_string();
            let flags = match setting.kind {
                Kind::Switch => vec![flag],
                _ => vec![flag, value],
            };
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let given = given(&flags).unwrap();
            assert_eq!(given.names().collect::<Vec<_>>(), [setting.name]);
        }
        assert!(given(&[]).unwrap().names().next().is_none());
    }

    #[test]
    fn a_value_that_can_not_be_is_refused_with_those_that_can() {
        let refused = given(&["--device", "cpus"]).unwrap_err().to_string();
        assert!(
            refused.contains("cpu") && refused.contains("cuda"),
            "{refused}"
        );
    }

    #[test]
    fn lists_are_taken_apart_at_commas() {
        let given = given(&["--metrics", "a,b", "--metrics", "c"]).unwrap();
        assert_eq!(
            given.get("metrics"),
            Some(&serde_json::json!(["a", "b", "c"]))
        );
    }
}
