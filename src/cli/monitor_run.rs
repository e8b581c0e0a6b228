//! From a monitor to a run: its settings, its files, its run directory.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};

use super::notify::{NOBODY, Notifier};
use super::{AnyError, Outcome, idle_flags};
use crate::job::{Given, Job, Setting, SettingsError};
use crate::judge::{Written, masked_header, masked_url, masked_webhook};
use crate::metric::{Level, Method, SIGNALS, find};
use crate::monitor::{FileMark, Monitor, Order, RunMade, RunMonitor};
use crate::output::{Announced, Begun, RunError};
use crate::run::open;
use crate::run::{CacheChoice, PageWriter, Progress, ScoreRequest, any_match, score};
use crate::selection::{SamplingRate, SessionFilters, TargetChoice, TargetFilters, TraceFilters};
use crate::trace::SourceFormat;

/// Settings that the record of a monitor has places of its own for, and those that mean nothing to it.
const NOT_KEPT: [(&str, &str); 8] = [
    ("metrics", "give it with --metrics"),
    ("judge", "give it with --judge"),
    ("judge_sample", "give the share of targets with --sample"),
    ("weights", "give it with --weights"),
    ("judge_only", "give it with --filters"),
    ("judge_tags", "give it with --filters"),
    ("overwrite", "every run has a new directory"),
    ("json", "runs of monitors print nothing"),
];
/// Settings given as `KEY=VALUE`, checked and with whole paths.
pub(super) fn kept_settings(given: &[String]) -> Result<BTreeMap<String, String>, AnyError> {
    let mut kept = BTreeMap::new();
    for (key, value) in crate::job::split_pairs("set", given)? {
        let key = key.replace('-', "_");
        if let Some((_, instead)) = NOT_KEPT.iter().find(|(name, _)| *name == key) {
            return Err(SettingsError(format!("--set {key}: {instead}")).into());
        }
        let is_path = Setting::named(&key).is_some_and(Setting::is_path);
        if is_path {
            open::local_paths(std::slice::from_ref(&value))?;
        }
        let value = match is_path {
            true => std::path::absolute(&value)?.display().to_string(),
            false => value,
        };
        if masked(&key, &value) != value {
            let flag = key.replace('_', "-");
            let problem = format!(
                "--set {flag}: it holds a secret, and a monitor keeps none; write ${{NAME}} for a variable that holds it, or give {flag} in a settings file"
            );
            return Err(SettingsError(problem).into());
        }
        kept.insert(key, value);
    }
    Job::of(read_kept(&kept)?)?;
    Ok(kept)
}

/// A setting of a monitor as it may be shown: `${NAME}` stands for a secret, what is written out is masked.
pub(super) fn masked(key: &str, value: &str) -> String {
    match key {
        "judge_url" => masked_url(value, Written::AsGiven),
        "notify" if value != NOBODY => masked_webhook(value),
        "judge_headers" => {
            let headers = value.split(',').map(masked_header);
            headers.collect::<Vec<_>>().join(",")
        }
        _ => value.to_owned(),
    }
}

/// The settings that a monitor keeps.
fn read_kept(kept: &BTreeMap<String, String>) -> Result<Given, SettingsError> {
    Given::of_texts(kept.iter().map(|(key, text)| (key.as_str(), text.as_str())))
}

/// Everything that a monitor says about its runs, and for what it does not say, the environment and the settings file.
/// `config` is that file, if one was named.
fn job_of(monitor: &Monitor, config: Option<&Path>) -> Result<Job, SettingsError> {
    let mut given = read_kept(&monitor.settings)?;
    if let Some(model) = &monitor.model {
        given = given.with("judge", model.clone());
    }
    let mut sessions = false;
    if let TargetFilters::Session(filters) = &monitor.filters {
        sessions = true;
        if let Some(weights) = &filters.signal_weights {
            let pair = |(signal, weight): (&String, &f64)| format!("{signal}={weight}");
            let pairs: Vec<String> = weights.iter().map(pair).collect();
            given = given.with("weights", pairs);
        }
    }
    let given = given.complete(config)?;
    let mut metrics = monitor.metric_names.clone();
    // Wherever the judge is named: it gives the signals that sessions fold.
    if sessions && given.has("judge") {
        metrics.extend(judged_signals(&metrics).map(str::to_owned));
    }
    Job::of(given.with("metrics", metrics))
}

/// Signals that a judge gives, if one of the metrics folds signals. A conversation is judged by itself.
fn judged_signals(metrics: &[String]) -> impl Iterator<Item = &'static str> + use<> {
    let folds = metrics.iter().any(|m| has_method(m, Method::Aggregate));
    let signals = SIGNALS.iter().map(|(name, _)| *name);
    signals.filter(move |name| folds && has_method(name, Method::Judge))
}

fn has_method(metric: &str, method: Method) -> bool {
    find(metric).is_some_and(|metric| metric.method == method)
}

/// Metrics that a monitor of a target type may have.
pub(super) fn metrics_of(level: Level) -> Vec<&'static str> {
    let metrics = crate::metric::ALL.iter();
    metrics
        .filter(|metric| metric.level == level)
        .map(|metric| metric.name)
        .collect()
}

/// Checks what can be checked before a run: settings, the judge that metrics ask, and that a run can evaluate what the
/// monitor chooses. `config` is the settings file, if one was named: its judge is the judge of monitors without one.
pub(super) fn check(monitor: &Monitor, config: Option<&Path>) -> Result<(), AnyError> {
    let traces = matches!(monitor.filters, TargetFilters::Trace(_));
    if traces && monitor.metric_names.iter().any(|m| m == "loop_detection") {
        return Err(SettingsError(
            "loop_detection is no metric of trace monitors: it compares each trace with the earlier ones of its session; \
             leave it out of --metrics, or monitor sessions (--target session --metrics agent_reliability), where it is \
             computed for each trace"
                .to_owned(),
        )
        .into());
    }
    let job = job_of(monitor, config)?;
    open::local_paths(&monitor.paths)?;
    open::local_paths(job.signals.as_slice())?;
    let rules = open::rules(&job)?;
    open::column_map(&job)?;
    open::engine(&job, CacheChoice::User)?;
    open::judge_model(&job, &rules)?;
    // The variable that holds an address may be there for the runs alone.
    Notifier::check(&job)?;
    // A judge may be named later, by a settings file: what is said of judges waits for it.
    let kept = read_kept(&monitor.settings)?;
    let kept = kept.only(|name| !Setting::named(name).is_some_and(Setting::of_judges));
    let sampled = monitor.sampling_rate != SamplingRate::ALL;
    if targets(monitor, 0).is_some() {
        idle_flags::of_no_night(
            &kept,
            "a monitor that chooses targets (--filters, --sample) continues no run, so that there are no nights to hold \
             it against; leave it out",
        )?;
    }
    Ok(idle_flags::of_scoring(&kept, &job, &rules, sampled)?)
}

/// What chooses the targets of a monitor's runs; none if they take all.
fn targets(monitor: &Monitor, seed: u64) -> Option<TargetChoice> {
    let filters = match &monitor.filters {
        TargetFilters::Trace(filters) => TargetFilters::Trace(filters.clone()),
        // Weights are in the settings of the run.
        TargetFilters::Session(filters) => TargetFilters::Session(SessionFilters {
            signal_weights: None,
            ..filters.clone()
        }),
    };
    let choice = TargetChoice {
        filters,
        sampling_rate: monitor.sampling_rate,
        seed,
    };
    (!choice.takes_all()).then_some(choice)
}

/// Runs monitors by scoring their files.
#[derive(Debug)]
pub(super) struct Runner<'a> {
    /// The settings file, if one was named.
    pub config: Option<&'a Path>,
    /// How the runs ended that were made.
    pub ended: Vec<Outcome>,
}

impl<'a> Runner<'a> {
    pub fn new(config: Option<&'a Path>) -> Self {
        Self {
            config,
            ended: Vec::new(),
        }
    }

    fn request(&self, monitor: &Monitor, out: PathBuf) -> Result<ScoreRequest, AnyError> {
        check(monitor, self.config)?;
        let job = job_of(monitor, self.config)?;
        Notifier::of(&job)?;
        let page = Some(crate::report::html as PageWriter);
        let mut request = open::score(&job, monitor.paths.clone(), out, page)?;
        request.targets = targets(monitor, open::sample_seed(&job));
        request.metric_names.clone_from(&monitor.metric_names);
        if let Some(judge) = &mut request.judge {
            // Judges are asked about all targets: what a settings file selects is meant for other runs.
            judge.sample = SamplingRate::ALL;
            judge.filters = TraceFilters::default();
        }
        Ok(request)
    }

    /// Who is told of a run; none also where that is not known, which is refused before the run.
    fn notifier(&self, monitor: &Monitor) -> Option<Notifier> {
        let job = job_of(monitor, self.config).ok()?;
        Notifier::of(&job).ok().flatten()
    }

    fn list(&self, monitor: &Monitor) -> Result<Vec<FileMark>, AnyError> {
        let job = job_of(monitor, self.config)?;
        let found = open::found(&job, &monitor.paths)?;
        let mut marks = Vec::with_capacity(found.native.len() + found.foreign.len());
        for file in found.foreign {
            marks.push(FileMark::of(file.path)?);
        }
        for file in found.native {
            let rows = match file.format {
                SourceFormat::Parquet => rows_of(&file.path),
                SourceFormat::JsonLines => None,
            };
            let mark = FileMark::of(file.path)?;
            marks.push(FileMark { rows, ..mark });
        }
        Ok(marks)
    }

    fn score(
        &mut self,
        monitor: &Monitor,
        order: &Order,
        name: String,
        out: PathBuf,
        notifier: Option<&Notifier>,
    ) -> Result<Option<RunMade>, AnyError> {
        let request = ScoreRequest {
            name: Some(monitor.run_name()),
            monitor_id: Some(monitor.id.clone()),
            ..self.request(monitor, out)?
        };
        if order.only_if_new && !any_match(&monitor.filters, &request, &order.changed)? {
            return Ok(None);
        }
        let made = match going_on(monitor, order, &request) {
            None => score(&request, &Progress::default()),
            Some(night) => match score(&night, &Progress::default()) {
                // Whatever stands against going on, say another model, stands in no way of scoring everything anew.
                Err(RunError::Request(why)) => {
                    tracing::warn!(monitor = %monitor.id, "all files are scored anew: {why}");
                    score(&request, &Progress::default())
                }
                made => made,
            },
        };
        let (summary, folder) = made?;
        for drift in summary.drift_gate().iter().flat_map(|gate| &gate.found) {
            tracing::warn!(monitor = %monitor.id, "drift: {drift}");
        }
        let outcome = Outcome::of(&summary);
        self.ended.push(outcome);
        if let Some(notifier) = notifier {
            let report = request.report.is_some();
            notifier.ended(request.name.as_deref(), &folder, report, &summary, outcome);
        }
        Ok(Some(RunMade {
            id: name,
            pending: summary.pending() || summary.judge_was_silent(),
        }))
    }
}

impl RunMonitor for Runner<'_> {
    fn files(&mut self, monitor: &Monitor) -> Result<Vec<FileMark>, String> {
        let listed = guarded(|| self.list(monitor));
        if let (Some(notifier), Err(why)) = (self.notifier(monitor), &listed) {
            notifier.failed(Some(&monitor.run_name()), &monitor.out, why);
        }
        listed
    }

    fn run(&mut self, monitor: &Monitor, order: &Order) -> Result<Option<RunMade>, String> {
        let (name, out) = new_directory(monitor, order.now);
        let begun = Begun::announce(
            &out,
            Announced {
                command: "score",
                metric_names: &monitor.metric_names,
                monitor_id: Some(&monitor.id),
            },
        );
        let notifier = self.notifier(monitor);
        let folder = out.clone();
        let result = guarded(|| self.score(monitor, order, name, out, notifier.as_ref()));
        if let (Some(notifier), Err(why)) = (&notifier, &result) {
            notifier.failed(Some(&monitor.run_name()), &folder, why);
        }
        match (begun, &result) {
            (None, _) => {}
            (Some(begun), Ok(_)) => begun.done(),
            (Some(begun), Err(why)) => begun.failed(why),
        }
        result
    }
}

/// The request for what is new alone, as a night that continues the monitor's last run; none where everything has to be
/// scored: for chosen targets, after a change of the monitor, and where a file is another one than it was.
fn going_on(monitor: &Monitor, order: &Order, request: &ScoreRequest) -> Option<ScoreRequest> {
    let last = monitor.out.join(monitor.last_run_id.as_ref()?);
    if request.targets.is_some() || monitor.seen.is_empty() || order.changed.is_empty() {
        return None;
    }
    let mut night = request.clone();
    night
        .found
        .native
        .retain(|file| order.changed.contains(&file.path));
    night
        .found
        .foreign
        .retain(|file| order.changed.contains(&file.path));
    let seen = |path: &Path| monitor.seen.iter().find(|mark| mark.path == path);
    let own = night
        .found
        .native
        .iter()
        .all(|file| match seen(&file.path) {
            None => true,
            // Lines that were added; whether the first ones are as they were is seen where they are read again.
            Some(mark) => {
                let size = std::fs::metadata(&file.path).map_or(0, |now| now.len());
                file.format == SourceFormat::JsonLines && size > mark.size
            }
        });
    let others = night
        .found
        .foreign
        .iter()
        .all(|file| seen(&file.path).is_none());
    let any = night.found.native.len() + night.found.foreign.len() > 0;
    night.continues = Some(last);
    (own && others && any).then_some(night)
}

/// Decoders have assertions that corrupt files can reach; such a file must not stop other monitors.
fn guarded<T>(work: impl FnOnce() -> Result<T, AnyError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(panic) => Err(super::panics::told(panic.as_ref())),
    }
}

/// The name and the place of a new run: the monitor's id and the time for which it runs.
fn new_directory(monitor: &Monitor, now: DateTime<Utc>) -> (String, PathBuf) {
    let first = format!("{}_{}", monitor.id, now.format("%Y-%m-%dT%H-%M-%SZ"));
    let mut name = first.clone();
    let mut count = 1;
    while monitor.out.join(&name).exists() {
        count += 1;
        name = format!("{first}-{count}");
    }
    let out = monitor.out.join(&name);
    (name, out)
}

/// Rows of a Parquet file by its footer. None if it can't be read: the run says why.
fn rows_of(path: &Path) -> Option<u64> {
    let file = std::fs::File::open(path).ok()?;
    let metadata = parquet::file::metadata::ParquetMetaDataReader::new()
        .parse_and_finish(&file)
        .ok()?;
    u64::try_from(metadata.file_metadata().num_rows()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(pairs: &[&str]) -> Result<BTreeMap<String, String>, AnyError> {
        let pairs: Vec<String> = pairs.iter().map(|p| (*p).to_owned()).collect();
        kept_settings(&pairs)
    }

    #[test]
    fn kept_settings_are_the_flags_of_score() {
        let map = kept(&[
            "memory-limit=4G",
            "threshold=coherence=0.6",
            "no_cache=true",
        ])
        .unwrap();
        let job = Job::of(read_kept(&map).unwrap()).unwrap();
        assert_eq!(job.memory_limit.map(|bytes| bytes.get()), Some(4 << 30));
        assert_eq!(job.threshold, Some(vec![("coherence".to_owned(), 0.6)]));
        assert!(job.no_cache);
        let map = kept(&["no_cache=false", "signals=given.parquet"]).unwrap();
        let job = Job::of(read_kept(&map).unwrap()).unwrap();
        assert!(!job.no_cache);
        assert!(Path::new(&job.signals.unwrap()).is_absolute());
    }

    #[test]
    fn other_settings_are_refused_with_what_to_do() {
        for (pair, expected) in [
            ("memory_limt=4G", "`memory_limit`"),
            ("metrics=coherence", "--metrics"),
            ("judge_only=name=x", "--filters"),
            ("no_cache=yes", "true or false"),
            ("window", "NAME=VALUE"),
            ("judge_url=http://u:pw@h/v1", "${NAME}"),
            ("judge-url=http://h/v1?k=ab", "settings file"),
            ("judge_headers=x-title=a,x-key=ab", "${NAME}"),
            ("judge-headers=Authorization: Bearer sk-1", "${NAME}"),
            ("notify=https://hooks.slack.com/services/T/B/X", "${NAME}"),
            ("notify=https://hooks.slack.com/services/${KEY}", "${NAME}"),
        ] {
            let error = kept(&[pair]).unwrap_err().to_string();
            assert!(error.contains(expected), "{pair}: {error}");
        }
        for good in [
            "judge_url=http://${U}:${P}@h/v1?k=${K}&api-version=1",
            "judge_headers=x-title=Night run,authorization=Bearer ${KEY}",
        ] {
            kept(&[good]).unwrap();
        }
    }

    #[test]
    fn judges_give_signals_only_to_metrics_that_fold_them() {
        let judged = |metric: &str| judged_signals(&[metric.to_owned()]).collect::<Vec<_>>();
        assert_eq!(judged("conversation"), [""; 0]);
        assert_eq!(
            judged("agent_consistency"),
            ["confidence", "tool_correctness"]
        );
    }
}
