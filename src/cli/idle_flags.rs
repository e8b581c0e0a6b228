//! Flags without effect: they are refused, since whoever gives one means something by it.
//!
//! Only flags: settings of the file and the environment may be meant for other commands.

use std::path::Path;

use crate::job::{Given, Job, Setting, SettingsError, split_numbers, split_pairs};
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
    "calibration",
    "window",
    "on_no_evaluable",
    "model",
    "prompt",
    "dim",
    "triage",
    "device",
    "gpu_graph",
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
    "fail_on_drift",
    "buckets",
    "resume",
];

/// Settings that `aggregate` has no use for, beside those of judges.
pub(super) const OF_AGGREGATE: &[&str] = &[
    "model",
    "prompt",
    "dim",
    "triage",
    "device",
    "gpu_graph",
    "precision",
    "cache",
    "cache_size",
    "text_mode",
    "json_columns",
    "text_columns",
    "window",
    "signals",
    "calibration",
    "fail_on_drift",
    "buckets",
    "resume",
];

/// Settings of the encoder.
const OF_ENCODER: &[&str] = &[
    "model",
    "prompt",
    "dim",
    "triage",
    "device",
    "gpu_graph",
    "precision",
    "cache",
    "cache_size",
];
/// Settings of judges that only matter where traces are judged.
const OF_JUDGED_TRACES: &[&str] = &["judge_unshared", "judge_max_trace", "judge_long_traces"];

/// The column of expected texts.
const EXPECTED: &str = "expected";

fn refuse(name: &str, why: &str) -> Result<(), SettingsError> {
    let flag = name.replace('_', "-");
    Err(SettingsError(format!("--{flag}: {why}")))
}

/// Refuses what `conversations` has no use for.
///
/// # Errors
/// Naming the flag.
pub(super) fn of_conversations(given: &Given) -> Result<(), SettingsError> {
    match given.names().find(|name| OF_CONVERSATIONS.contains(name)) {
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
pub(super) fn of_aggregate(given: &Given) -> Result<(), SettingsError> {
    of_no_judge(
        given,
        "aggregate asks no judge, so this has no effect; leave it out",
    )?;
    of_no_alert(
        given,
        "aggregate tells nobody of its runs, so this has no effect; leave it out",
    )?;
    match given.names().find(|name| OF_AGGREGATE.contains(name)) {
        None => Ok(()),
        Some("signals") => refuse(
            "signals",
            "aggregate takes its signals from the files it is given",
        ),
        Some("fail_on_drift") => refuse(
            "fail_on_drift",
            "aggregate continues no run, so that there are no nights to hold it against; see score --continue",
        ),
        Some("calibration") => refuse(
            "calibration",
            "its thresholds are for scores of the model that they were found for, which aggregate does not know; give them with \
             --threshold",
        ),
        Some(name @ ("buckets" | "resume")) => refuse(
            name,
            "aggregate makes a run in one piece, so this has no effect; leave it out",
        ),
        Some(name) => refuse(name, "aggregate reads no texts, so this has no effect"),
    }
}

/// Refuses flags that say who is told of a run, where nobody is; `why` says so.
///
/// # Errors
/// Naming the flag.
pub(super) fn of_no_alert(given: &Given, why: &str) -> Result<(), SettingsError> {
    let of_alerts = |name: &&str| Setting::named(name).is_some_and(Setting::of_alerts);
    match given.names().find(of_alerts) {
        None => Ok(()),
        Some(name) => refuse(name, why),
    }
}

/// Refuses flags that say how somebody is told of a run, where nobody is.
///
/// # Errors
/// Naming the flag.
pub(super) fn of_alerts(given: &Given, all: &Job) -> Result<(), SettingsError> {
    match super::notify::told(all) {
        Some(_) => Ok(()),
        // `--notify none` itself says so.
        None => of_no_alert(
            &given.clone().only(|name| name != "notify"),
            "nobody is told of this run; name an address with --notify",
        ),
    }
}

/// Refuses a gate on drift where nothing is continued; `why` says so.
///
/// # Errors
/// Naming the flag.
pub(super) fn of_no_night(given: &Given, why: &str) -> Result<(), SettingsError> {
    match given.has("fail_on_drift") {
        true => refuse("fail_on_drift", why),
        false => Ok(()),
    }
}

/// Refuses what is about the directory of a run where none is made.
///
/// # Errors
/// Naming the flag.
pub(super) fn of_no_run(given: &Given) -> Result<(), SettingsError> {
    of_no_alert(
        given,
        "a plan makes no run, so that there is nothing to tell of; leave it out",
    )?;
    match ["buckets", "resume"].iter().find(|name| given.has(name)) {
        None => Ok(()),
        Some(name) => refuse(
            name,
            "a plan makes no run, so this has no effect; leave it out",
        ),
    }
}

/// Refuses flags of judges where nobody asks one.
///
/// # Errors
/// Naming the flag, with `why`.
pub(super) fn of_no_judge(given: &Given, why: &str) -> Result<(), SettingsError> {
    let of_judges = |name: &&str| Setting::named(name).is_some_and(Setting::of_judges);
    match given.names().find(of_judges) {
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
    given: &Given,
    all: &Job,
    rules: &Rules,
    sampled: bool,
) -> Result<(), SettingsError> {
    let has = |method| {
        let mut metrics = rules.metrics.iter().filter_map(|name| find(name));
        metrics.any(|metric| metric.method == method)
    };
    let is_given = |name: &&&str| given.has(name);
    if !has(Method::Judge) {
        // The seed is also that of a sample of targets.
        let of_judges = given
            .clone()
            .only(|name| !(sampled && name == "sample_seed"));
        of_no_judge(
            &of_judges,
            "no metric of this run asks a judge, so this has no effect; name one with --metrics, as in --metrics confidence",
        )?;
    } else {
        of_judges(given, all, rules, sampled)?;
    }
    let conditions = all.judge_where.as_deref().unwrap_or_default();
    let embeds = ["coherence", "loop_detection"]
        .into_iter()
        .any(|name| rules.computes(name) || conditions.contains(name));
    if let Some(name) = OF_ENCODER.iter().find(is_given).filter(|_| !embeds) {
        return refuse(
            name,
            "no metric of this run embeds texts, so this has no effect; leave it out",
        );
    }
    if given.has("text_mode") && rules.needs_no_model() && !rules.reads_output() {
        return refuse(
            "text_mode",
            "no metric of this run embeds texts, and documents are compared as they are, so this has no effect; leave it out",
        );
    }
    let maps_expected = all.map.iter().flatten().any(|(of, _)| of == EXPECTED);
    if given.has("map") && maps_expected && !rules.compares() {
        return refuse(
            &format!("map {EXPECTED}"),
            "no metric of this run compares outputs with expected texts; add factuality, format or tone to --metrics",
        );
    }
    if given.has("cache_size") && all.no_cache {
        return refuse(
            "cache_size",
            "nothing is kept with --no-cache; leave one of them out",
        );
    }
    if given.has("window") && !rules.computes("loop_detection") {
        return refuse(
            "window",
            "this run does not compute loop_detection; add it to --metrics",
        );
    }
    if given.has("on_no_evaluable") && !has(Method::Aggregate) {
        return refuse(
            "on_no_evaluable",
            "this run has no session metric; add one to --metrics",
        );
    }
    for (name, _) in split_numbers("threshold", &items(given, "threshold"))? {
        if !rules.computes(&name) {
            return refuse(
                &format!("threshold {name}"),
                "this metric is not computed; add it to --metrics",
            );
        }
    }
    for name in rules.weights.of_spans() {
        if given.has("weights") && !rules.computes(name) {
            return refuse(
                &format!("weights {name}"),
                "this metric is not computed; add it, or a session metric, to --metrics",
            );
        }
    }
    let spans_alone = !rules.span_signals().is_empty();
    let any_signal = crate::metric::SIGNALS
        .iter()
        .any(|(name, _)| rules.computes(name));
    if given.has("weights") && !any_signal && !spans_alone && all.signals.is_none() {
        return refuse(
            "weights",
            "this run has no signals to weigh; add a session metric to --metrics",
        );
    }
    Ok(())
}

/// The items that were given for a list.
fn items(given: &Given, name: &str) -> Vec<String> {
    let items = given.get(name).and_then(serde_json::Value::as_array);
    let items = items.into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

fn of_judges(given: &Given, all: &Job, rules: &Rules, sampled: bool) -> Result<(), SettingsError> {
    let conversations = rules.wants(CONVERSATION);
    if given.has("judge_config") && !conversations {
        return refuse(
            "judge_config",
            "this run judges no conversations; add conversation to --metrics",
        );
    }
    let judged = rules.metrics.iter().filter_map(|name| find(name));
    let of_traces = judged
        .filter(|metric| metric.method == Method::Judge)
        .any(|metric| metric.name != CONVERSATION);
    let idle = OF_JUDGED_TRACES.iter().find(|name| given.has(name));
    if let Some(name) = idle.filter(|_| !of_traces) {
        return refuse(
            name,
            "this run judges no traces by themselves, so this has no effect; leave it out",
        );
    }
    if given.has("sample_seed") && all.judge_sample.is_none() && !sampled {
        return refuse(
            "sample_seed",
            "every trace is in the sample; name a share with --sample or --judge-sample",
        );
    }
    for (name, _) in split_pairs("judge-model", &items(given, "judge_model"))? {
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
    given: &Given,
    out: Option<&Path>,
) -> Result<(), SettingsError> {
    let query = query.to_lowercase();
    let uses = |words: &[&str]| words.iter().any(|word| query.contains(word));
    for (name, given, words) in [
        (
            "model",
            given.has("model"),
            &["embed", "coherence", "loop_detection"][..],
        ),
        ("window", given.has("window"), &["loop_detection"]),
        (
            "weights",
            given.has("weights"),
            &["agent_reliability", "agent_consistency"],
        ),
        ("text_mode", given.has("text_mode"), &["text_of"]),
    ] {
        if given && !uses(words) {
            let calls = words.join(", ");
            return refuse(
                name,
                &format!("matters to {calls}, and the query has no such call"),
            );
        }
    }
    if given.has("overwrite") && out.is_none() {
        return refuse("overwrite", "nothing is written without --out");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_idle_flag_is_a_setting() {
        for name in [OF_CONVERSATIONS, OF_AGGREGATE, OF_ENCODER, OF_JUDGED_TRACES].concat() {
            assert!(Setting::named(name).is_some(), "{name}");
        }
    }
}
