//! The configuration of regression suites, as typed values with their defaults (as in Regtrace).

mod find;
mod metrics;
mod read;

use std::path::{Path, PathBuf};

pub use find::{CONFIG_NAMES, find_config};
pub use metrics::{
    ClaimDepth, FactualityConfig, FactualityMode, FormatConfig, MetricsConfig, Part, ToneConfig,
};
pub use read::ReadConfig;
pub(super) use read::{by_metric, metric_names};

use super::named::Named;
use crate::metric::comparison::Compat;
use crate::text::nearest;

/// Cases that are evaluated at the same time where the configuration does not say.
const USUAL_CONCURRENCY: usize = 4;

/// A configuration that can be used: everything in it was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteConfig {
    /// `project.name`
    pub project_name: Option<String>,
    /// `project.version`
    pub project_version: String,
    /// The suites, in order; at least one is enabled.
    pub golden_sets: Vec<GoldenSetEntry>,
    /// What is evaluated and how.
    pub metrics: MetricsConfig,
    /// Who is asked first; none where no judge is configured.
    pub primary_judge: Option<JudgeEntry>,
    /// Who is asked when the first one fails.
    pub fallback_judge: Option<JudgeEntry>,
    /// Cases that are evaluated at the same time, 1 to 20.
    pub concurrency: usize,
    /// What a suite must hold to.
    pub quality_gates: QualityGates,
    /// Bars on time, cost and coverage; none where the block is missing.
    pub nfr_gates: Option<NfrGates>,
    /// Records and reports.
    pub output: OutputConfig,
    /// Which rules numbers follow.
    pub compat: Compat,
}

/// A suite of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct GoldenSetEntry {
    /// As it was written; see [`GoldenSetEntry::file`].
    pub path: PathBuf,
    /// Another name to choose it by.
    pub alias: Option<String>,
    /// Whether it is run.
    pub enabled: bool,
    /// Its weight in the score over all suites, from 0.
    pub weight: f64,
}

impl GoldenSetEntry {
    /// The file, relative to the folder that the configuration is in.
    pub fn file(&self, config_file: &Path) -> PathBuf {
        match config_file.parent() {
            Some(folder) => folder.join(&self.path),
            None => self.path.clone(),
        }
    }
}

/// How a run is compared with its baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct RegressionConfig {
    /// Whether it is compared at all.
    pub enabled: bool,
    /// How the baseline is chosen.
    pub strategy: BaselineStrategy,
    /// Relative loss that counts as none, 0 to 1.
    pub tolerance: f64,
    /// Relative loss that is critical when passed, 0 to 1.
    pub critical_threshold: f64,
    /// Tolerances of single metrics, 0 to 1. Any entry makes the worst metric decide instead of the suite's score.
    pub metric_tolerances: Named<f64>,
    /// Whether only cases that both runs have are compared.
    pub exclude_new_test_cases: bool,
    /// Whether runs of the same branch are preferred as baseline.
    pub branch_aware: bool,
    /// The branch whose runs stand in when the current one has none.
    pub fallback_baseline: String,
}

impl Default for RegressionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            strategy: BaselineStrategy::LastPassing,
            tolerance: 0.05,
            critical_threshold: 0.15,
            metric_tolerances: Named::default(),
            exclude_new_test_cases: true,
            branch_aware: true,
            fallback_baseline: "main".to_owned(),
        }
    }
}

/// Which run is the baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaselineStrategy {
    /// The newest run of the suite that passed.
    LastPassing,
    /// The run with this id, whatever became of it.
    Pinned(String),
}

/// A judge of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgeEntry {
    /// As in `anthropic`, `openai`, `gemini`, `groq`, `ollama`.
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
    /// 0 to 2.
    pub temperature: f64,
    /// Most tokens of a reply.
    pub max_tokens: u64,
    /// Milliseconds that a call may take.
    pub timeout_ms: u64,
    /// Tries after the first one, 0 to 100.
    pub retry_attempts: u64,
    /// Where a local model listens.
    pub local_endpoint: Option<String>,
}

/// What a suite must hold to.
#[derive(Clone, Debug, PartialEq)]
pub struct QualityGates {
    /// The lowest score of the suite, 0 to 1.
    pub suite_score_minimum: f64,
    /// The lowest mean score by metric, 0 to 1; none where no such gate is configured.
    pub metric_score_minimums: Option<Named<f64>>,
    /// Most cases that may fail outright.
    pub max_failed_test_cases: u64,
    /// The largest share of cases with a doubtful result, 0 to 1.
    pub max_low_confidence_ratio: f64,
    /// What the comparison with the baseline may say.
    pub regression_gate: RegressionGate,
}

impl Default for QualityGates {
    fn default() -> Self {
        Self {
            suite_score_minimum: 0.7,
            metric_score_minimums: None,
            max_failed_test_cases: 0,
            max_low_confidence_ratio: 0.1,
            regression_gate: RegressionGate::On,
        }
    }
}

/// What the comparison with the baseline may say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegressionGate {
    /// `true`: only `clean` or `new`.
    #[default]
    On,
    /// `critical`: anything but `critical`.
    OnlyCritical,
    /// `false`: there is no such gate.
    Off,
}

/// Bars on time, cost and coverage; each may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NfrGates {
    /// Most milliseconds of a run.
    pub max_latency_ms: Option<u64>,
    /// Most US dollars that judges may cost.
    pub max_cost_usd: Option<f64>,
    /// The lowest share of passed cases, 0 to 1.
    pub min_coverage: Option<f64>,
}

/// Records and reports.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputConfig {
    /// Records that are kept of each suite, from 1.
    pub run_history_limit: usize,
    /// The format of reports.
    pub default_format: ReportFormat,
    /// When reports are coloured.
    pub color: ColorChoice,
    /// Where reports go.
    pub report_path: Option<PathBuf>,
    /// Whether the environment decides about CI mode.
    pub ci_mode_auto_detect: bool,
}

impl Default for OutputConfig {
    fn default() -> Self {
        Self {
            run_history_limit: 50,
            default_format: ReportFormat::Terminal,
            color: ColorChoice::Auto,
            report_path: None,
            ci_mode_auto_detect: true,
        }
    }
}

/// The format of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportFormat {
    /// Text for a terminal.
    Terminal,
    /// One JSON document.
    Json,
    /// Markdown.
    Markdown,
}

/// When reports are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorChoice {
    /// Where a terminal shows them.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// A suite that was asked for and can't be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownSet {
    /// No suite has this path or alias.
    #[error("the configuration has no golden set `{name}`{near}; it has {known}")]
    NotThere {
        /// What was asked for.
        name: String,
        /// The nearest one, in words.
        near: String,
        /// All of them.
        known: String,
    },
    /// It is there and switched off.
    #[error("the golden set `{0}` is there with `enabled: false`; switch it on to run it")]
    Disabled(String),
}

impl SuiteConfig {
    /// The configuration of a suite that has none: its file alone, and the default of everything.
    pub fn of_suite(file: PathBuf) -> Self {
        Self {
            project_name: None,
            project_version: "1.0".to_owned(),
            golden_sets: vec![GoldenSetEntry {
                path: file,
                alias: None,
                enabled: true,
                weight: 1.0,
            }],
            metrics: MetricsConfig::default(),
            primary_judge: None,
            fallback_judge: None,
            concurrency: USUAL_CONCURRENCY,
            quality_gates: QualityGates::default(),
            nfr_gates: None,
            output: OutputConfig::default(),
            compat: Compat::default(),
        }
    }

    /// The suites to run, in the order of the configuration: the enabled ones, or of those only the ones that `wanted`
    /// names by path or alias.
    ///
    /// # Errors
    /// [`UnknownSet`] if a name is that of no enabled suite.
    pub fn chosen_sets(&self, wanted: &[String]) -> Result<Vec<&GoldenSetEntry>, UnknownSet> {
        // `./suites/qa.yaml` is `suites/qa.yaml`.
        let plain = |path: &Path| -> PathBuf {
            let here = std::path::Component::CurDir;
            path.components().filter(|part| *part != here).collect()
        };
        let is = |entry: &GoldenSetEntry, name: &str| {
            entry.alias.as_deref() == Some(name) || plain(&entry.path) == plain(Path::new(name))
        };
        for name in wanted {
            let mut named = self.golden_sets.iter().filter(|entry| is(entry, name));
            let Some(first) = named.next() else {
                let paths = self.golden_sets.iter().map(|of| of.path.to_string_lossy());
                let aliases = self.golden_sets.iter().filter_map(|of| of.alias.as_deref());
                let known: Vec<String> = paths
                    .map(|path| path.into_owned())
                    .chain(aliases.map(str::to_owned))
                    .collect();
                return Err(UnknownSet::NotThere {
                    name: name.clone(),
                    near: nearest(name, known.iter().map(String::as_str)),
                    known: known.join(", "),
                });
            };
            if !first.enabled && named.all(|entry| !entry.enabled) {
                return Err(UnknownSet::Disabled(name.clone()));
            }
        }
        let enabled = self.golden_sets.iter().filter(|entry| entry.enabled);
        let chosen =
            enabled.filter(|entry| wanted.is_empty() || wanted.iter().any(|name| is(entry, name)));
        Ok(chosen.collect())
    }
}

#[cfg(test)]
mod tests;
