//! Which traces or sessions `score` and `plan` are about, where not all.

use clap::Args;
use serde_json::{Map, Value};

use super::named_values::{TARGETS, named};
use crate::history::figures::Target;
use crate::job::{SettingsError, problem};
use crate::selection::{SamplingRate, TargetChoice, TargetFilters};

/// Flags that choose targets.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which traces")]
pub(super) struct TargetFlags {
    /// What is chosen: traces, or sessions, each with all of its traces [default: session with --session-ids, else trace]
    #[arg(long, value_name = "TARGET", value_parser = named(TARGETS))]
    target: Option<Target>,
    /// Only these, as JSON. Traces: '{"environment": "production", "status": "ERROR"}'; sessions: '{"user_id": "u1",
    /// "has_error": true, "min_trace_count": 2}'
    #[arg(long, value_name = "JSON")]
    filters: Option<String>,
    /// Only traces with one of these tags, or sessions with such a trace
    #[arg(long, value_name = "TAG,...", value_delimiter = ',')]
    tags: Option<Vec<String>>,
    /// Only these traces; @FILE reads ids from a file, one a line
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    trace_ids: Option<Vec<String>>,
    /// Only these sessions; @FILE reads ids from a file, one a line
    #[arg(
        long,
        value_name = "ID,...",
        value_delimiter = ',',
        conflicts_with = "trace_ids"
    )]
    session_ids: Option<Vec<String>>,
    /// This share of them, 0 to 1, by id: the same ones every time
    #[arg(long, value_name = "SHARE")]
    sample: Option<f64>,
}

impl TargetFlags {
    /// Whether a sample is taken.
    pub fn sampled(&self) -> bool {
        self.sample.is_some()
    }

    /// What the flags choose; none if that is everything.
    ///
    /// # Errors
    /// Naming the flag, and the filters that there are.
    pub fn choice(&self, seed: u64) -> Result<Option<TargetChoice>, SettingsError> {
        let mut filters = match &self.filters {
            None => Map::new(),
            Some(json) => match serde_json::from_str::<Map<String, Value>>(json) {
                Ok(filters) => filters,
                Err(e) => return problem(format!("--filters: expected a JSON object: {e}")),
            },
        };
        for (flag, key, list) in [
            ("tags", "tags", self.tags.clone()),
            (
                "trace-ids",
                "trace_ids",
                ids("trace-ids", self.trace_ids.as_deref())?,
            ),
            (
                "session-ids",
                "session_ids",
                ids("session-ids", self.session_ids.as_deref())?,
            ),
        ] {
            let Some(list) = list else { continue };
            if filters.insert(key.to_owned(), list.into()).is_some() {
                return problem(format!(
                    "--{flag}: --filters has `{key}` too; give one of them"
                ));
            }
        }
        let sessions = match self.target {
            None => self.session_ids.is_some(),
            Some(target) => target == Target::Session,
        };
        let filters = match sessions {
            true => TargetFilters::Session(read(filters, "sessions")?),
            false => TargetFilters::Trace(read(filters, "traces")?),
        };
        let sampling_rate = SamplingRate::new(self.sample.unwrap_or(1.0))
            .map_err(|e| SettingsError(format!("--sample: {e}")))?;
        let choice = TargetChoice {
            filters,
            sampling_rate,
            seed,
        };
        if !choice.takes_all() {
            return Ok(Some(choice));
        }
        match self.target.map(Target::name) {
            Some(target) => problem(format!(
                "--target {target}: nothing is chosen; add --filters, --tags, --{target}-ids or --sample, or leave it out"
            )),
            None => Ok(None),
        }
    }
}

/// Filters of a kind of target.
fn read<T: serde::de::DeserializeOwned>(
    filters: Map<String, Value>,
    targets: &str,
) -> Result<T, SettingsError> {
    serde_json::from_value(Value::Object(filters))
        .map_err(|e| SettingsError(format!("--filters of {targets}: {e}")))
}

/// Ids as given, those of a file read.
fn ids(flag: &str, given: Option<&[String]>) -> Result<Option<Vec<String>>, SettingsError> {
    let Some(given) = given else { return Ok(None) };
    let mut all = Vec::new();
    for id in given {
        match id.strip_prefix('@') {
            None => all.push(id.clone()),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|e| SettingsError(format!("--{flag} @{path}: {e}")))?;
                all.extend(text.lines().map(|line| line.trim().to_owned()));
            }
        }
    }
    all.retain(|id| !id.is_empty());
    match all.is_empty() {
        true => problem(format!("--{flag}: no id is given")),
        false => Ok(Some(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(given: &[(&str, &str)]) -> TargetFlags {
        let mut flags = TargetFlags::default();
        for (name, value) in given {
            let text = Some((*value).to_owned());
            let list = Some(value.split(',').map(str::to_owned).collect());
            match *name {
                "target" => {
                    let named = TARGETS.iter().find(|(name, _)| name == value);
                    flags.target = named.map(|(_, target)| *target);
                }
                "filters" => flags.filters = text,
                "tags" => flags.tags = list,
                "trace-ids" => flags.trace_ids = list,
                "session-ids" => flags.session_ids = list,
                _ => flags.sample = value.parse().ok(),
            }
        }
        flags
    }

    #[test]
    fn flags_choose_as_filters_do() {
        assert!(flags(&[]).choice(0).unwrap().is_none());
        let chosen = |given: &[(&str, &str)]| flags(given).choice(7).unwrap().unwrap();
        let choice = chosen(&[("tags", "a,b"), ("filters", r#"{"status": "ERROR"}"#)]);
        let TargetFilters::Trace(filters) = &choice.filters else {
            panic!("{choice:?}")
        };
        assert_eq!((filters.tags.len(), choice.seed), (2, 7));
        assert!(filters.status.is_some());
        let choice = chosen(&[("session-ids", "s1,s2"), ("sample", "0.5")]);
        assert!(matches!(&choice.filters, TargetFilters::Session(f) if f.session_ids.is_some()));
        assert_eq!(choice.sampling_rate.get(), 0.5);
        let choice = chosen(&[("target", "session"), ("filters", r#"{"has_error": true}"#)]);
        assert!(matches!(choice.filters, TargetFilters::Session(_)));
    }

    #[test]
    fn what_can_not_be_meant_is_refused() {
        for (given, words) in [
            (&[("target", "session")][..], "nothing is chosen"),
            (&[("filters", "[]")], "JSON object"),
            (&[("filters", r#"{"has_error": true}"#)], "has_error"),
            (&[("sample", "1.5")], "[0, 1]"),
            (&[("tags", "a"), ("filters", r#"{"tags": ["b"]}"#)], "too"),
            (&[("trace-ids", "@/nowhere/ids")], "/nowhere/ids"),
            (&[("trace-ids", "")], "no id"),
            (&[("target", "trace"), ("session-ids", "s")], "session_ids"),
        ] {
            let refused = flags(given).choice(0).unwrap_err().to_string();
            assert!(refused.contains(words), "{given:?}: {refused}");
        }
    }
}
