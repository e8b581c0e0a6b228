//! Flags without effect: they are refused, since whoever gives one means something by it.
//!
//! Only flags: settings of the file and the environment may be meant for other commands.

use std::path::Path;

use serde::Serialize;

use super::request::wrong;
use crate::job::{Settings, SettingsError, number_pairs, split_pairs};
use crate::metric::{CONVERSATION, Method, Rules, find};

/// Settings that `conversations` has no use for.
pub(super) const OF_CONVERSATIONS: &[&str] = &[
    "metrics",
    "map",
    "json_columns",
    "text_columns",
    "time_unit",
    "text_mode",
    "signals",
    "weights",
    "window",
    "on_no_evaluable",
    "model",
    "device",
    "precision",
    "cache",
    "cache_size",
    "no_cache",
    "memory_limit",
    "judge_policy",
    "judge_unshared",
    "judge_where",
    "judge_only",
    "judge_tags",
    "judge_max_trace",
    "judge_long_traces",
];

/// Settings that `aggregate` has no use for, beside those of judges.
pub(super) const OF_AGGREGATE: &[&str] = &[
    "model",
    "device",
    "precision",
    "cache",
    "cache_size",
    "text_mode",
    "json_columns",
    "text_columns",
    "window",
    "signals",
];

/// Settings of the encoder.
const OF_ENCODER: &[&str] = &["model", "device", "precision", "cache", "cache_size"];
/// Settings of judges that only matter where traces are judged.
const OF_JUDGED_TRACES: &[&str] = &["judge_unshared", "judge_max_trace", "judge_long_traces"];

/// The names of the flags that were given, as keys of a settings file.
fn given_names(settings: &impl Serialize) -> Vec<String> {
    let members = serde_json::to_value(settings).unwrap_or_default();
    let members = members.as_object().cloned().unwrap_or_default();
    let given = members
        .into_iter()
        .filter(|(_, value)| !value.is_null() && *value != false);
    given.map(|(name, _)| name).collect()
}

fn refuse(name: &str, why: &str) -> Result<(), SettingsError> {
    wrong(format!("--{}: {why}", name.replace('_', "-")))
}

/// Refuses what `conversations` has no use for.
///
/// # Errors
/// Naming the flag.
pub(super) fn of_conversations(given: &Settings) -> Result<(), SettingsError> {
    let names = given_names(given);
    match names
        .iter()
        .find(|name| OF_CONVERSATIONS.contains(&name.as_str()))
    {
        None => Ok(()),
        Some(name) => refuse(
            name,
            "conversations reads no traces and asks one question each, so this has no effect; leave it out",
        ),
    }
}

/// Refuses what `aggregate` has no use for.
///
/// # Errors
/// Naming the flag.
pub(super) fn of_aggregate(given: &Settings) -> Result<(), SettingsError> {
    let of_judges = given_names(&given.judge);
    if let Some(name) = of_judges.first() {
        return refuse(
            name,
            "aggregate asks no judge, so this has no effect; leave it out",
        );
    }
    let names = given_names(given);
    match names
        .iter()
        .find(|name| OF_AGGREGATE.contains(&name.as_str()))
    {
        None => Ok(()),
        Some(name) if name == "signals" => refuse(
            name,
            "aggregate takes its signals from the files it is given",
        ),
        Some(name) => refuse(name, "aggregate reads no texts, so this has no effect"),
    }
}

/// Refuses flags of judges where nobody asks one.
///
/// # Errors
/// Naming the flag, with `why`.
pub(super) fn of_no_judge(given: &impl Serialize, why: &str) -> Result<(), SettingsError> {
    match given_names(given).first() {
        None => Ok(()),
        Some(name) => refuse(name, why),
    }
}

/// Refuses flags of a scoring run, as `given` on the command line, that change nothing in a run by these rules. `all` are
/// the settings of the run, completed by file and environment; `sampled` says that the run takes a sample of its targets.
///
/// # Errors
/// Naming the flag, and what would give it an effect.
pub(super) fn of_scoring(
    given: &Settings,
    all: &Settings,
    rules: &Rules,
    sampled: bool,
) -> Result<(), SettingsError> {
    let has = |method| {
        let mut metrics = rules.metrics.iter().filter_map(|name| find(name));
        metrics.any(|metric| metric.method == method)
    };
    let names = given_names(given);
    let is_given = |name: &&&str| names.iter().any(|given| given == **name);
    if !has(Method::Judge) {
        let mut of_judges = given.judge.clone();
        of_judges.sample_seed = of_judges.sample_seed.filter(|_| !sampled);
        of_no_judge(
            &of_judges,
            "no metric of this run asks a judge, so this has no effect; name one with --metrics, as in --metrics confidence",
        )?;
    } else {
        of_judges(given, all, rules, sampled)?;
    }
    let embeds = rules.computes("coherence") || rules.computes("loop_detection");
    if let Some(name) = OF_ENCODER.iter().find(is_given).filter(|_| !embeds) {
        return refuse(
            name,
            "no metric of this run embeds texts, so this has no effect; leave it out",
        );
    }
    if given.cache_size.is_some() && all.no_cache {
        return refuse(
            "cache_size",
            "nothing is kept with --no-cache; leave one of them out",
        );
    }
    if given.window.is_some() && !rules.computes("loop_detection") {
        return refuse(
            "window",
            "this run does not compute loop_detection; add it to --metrics",
        );
    }
    if given.on_no_evaluable.is_some() && !has(Method::Aggregate) {
        return refuse(
            "on_no_evaluable",
            "this run has no session metric; add one to --metrics",
        );
    }
    for (name, _) in number_pairs("threshold", given.threshold.as_deref().unwrap_or_default())? {
        if !rules.computes(&name) {
            return refuse(
                &format!("threshold {name}"),
                "this metric is not computed; add it to --metrics",
            );
        }
    }
    let any_signal = crate::metric::SIGNALS
        .iter()
        .any(|(name, _)| rules.computes(name));
    if given.weights.is_some() && !any_signal && all.signals.is_none() {
        return refuse(
            "weights",
            "this run has no signals to weigh; add a session metric to --metrics",
        );
    }
    Ok(())
}

fn of_judges(
    given: &Settings,
    all: &Settings,
    rules: &Rules,
    sampled: bool,
) -> Result<(), SettingsError> {
    let judge = &given.judge;
    let conversations = rules.wants(CONVERSATION);
    if judge.judge_config.is_some() && !conversations {
        return refuse(
            "judge_config",
            "this run judges no conversations; add conversation to --metrics",
        );
    }
    let judged = rules.metrics.iter().filter_map(|name| find(name));
    let of_traces = judged
        .filter(|metric| metric.method == Method::Judge)
        .any(|metric| metric.name != CONVERSATION);
    let names = given_names(judge);
    let idle = OF_JUDGED_TRACES
        .iter()
        .find(|name| names.iter().any(|given| given == **name));
    if let Some(name) = idle.filter(|_| !of_traces) {
        return refuse(
            name,
            "this run judges no traces by themselves, so this has no effect; leave it out",
        );
    }
    if judge.sample_seed.is_some() && all.judge.judge_sample.is_none() && !sampled {
        return refuse(
            "sample_seed",
            "every trace is in the sample; name a share with --sample or --judge-sample",
        );
    }
    for (name, _) in split_pairs(
        "judge-model",
        judge.judge_model.as_deref().unwrap_or_default(),
    )? {
        if !rules.wants(&name) {
            let why = "no judged metric of this run; add it to --metrics";
            return refuse(&format!("judge_model {name}"), why);
        }
    }
    Ok(())
}

/// Refuses flags of `sql` that a query has no use for.
///
/// # Errors
/// Naming the flag.
pub(super) fn of_query(
    query: &str,
    given: &Settings,
    out: Option<&Path>,
) -> Result<(), SettingsError> {
    let query = query.to_lowercase();
    let uses = |words: &[&str]| words.iter().any(|word| query.contains(word));
    for (name, given, words) in [
        (
            "model",
            given.model.is_some(),
            &["embed", "coherence", "loop_detection"][..],
        ),
        ("window", given.window.is_some(), &["loop_detection"]),
        (
            "weights",
            given.weights.is_some(),
            &["agent_reliability", "agent_consistency"],
        ),
        ("text_mode", given.text_mode.is_some(), &["text_of"]),
    ] {
        if given && !uses(words) {
            let calls = words.join(", ");
            return refuse(
                name,
                &format!("matters to {calls}, and the query has no such call"),
            );
        }
    }
    if given.overwrite && out.is_none() {
        return refuse("overwrite", "nothing is written without --out");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_idle_flag_is_a_setting() {
        let command = <Settings as clap::Args>::augment_args(clap::Command::new(""));
        let known: Vec<&str> = command
            .get_arguments()
            .map(|arg| arg.get_id().as_str())
            .collect();
        for name in [OF_CONVERSATIONS, OF_AGGREGATE, OF_ENCODER, OF_JUDGED_TRACES].concat() {
            assert!(known.contains(&name), "{name}");
        }
    }

    #[test]
    fn given_flags_are_told_from_defaults() {
        assert!(given_names(&Settings::default()).is_empty());
        let given = Settings {
            overwrite: true,
            window: Some("3".into()),
            ..Settings::default()
        };
        assert_eq!(given_names(&given), ["window", "overwrite"]);
    }
}
