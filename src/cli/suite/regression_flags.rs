//! Flags that only regression suites have.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::setting_flags::{Offer, SettingFlags};
use crate::job::Setting;
use crate::suite::regression::{Compat, ReportFormat};

const HEADING: &str = "Regression suites";

/// Flags of `suite run` for regression suites.
#[derive(Args, Debug)]
pub(in crate::cli) struct RegressionFlags {
    /// A Parquet table with suite, id and actual_output: what the models answered
    #[arg(long, value_name = "TABLE", help_heading = HEADING)]
    pub outputs: Option<PathBuf>,
    /// Only cases with one of these tags, or suites with one; a run that leaves cases out leaves no record
    #[arg(long, value_name = "TAG,...", value_delimiter = ',', help_heading = HEADING)]
    pub tags: Vec<String>,
    /// A build system runs this: the record says so, and nothing is painted [default: as CI, GITHUB_ACTIONS, GITLAB_CI
    /// or CIRCLECI say]
    #[arg(long, conflicts_with = "no_gate", help_heading = HEADING)]
    pub ci: bool,
    /// Exit with 0 where gates fail. Without it a gate that fails exits with 1, in a build system and elsewhere
    #[arg(long, help_heading = HEADING)]
    pub no_gate: bool,
    /// Stop after the first suite that does not pass
    #[arg(long, help_heading = HEADING)]
    pub bail: bool,
    /// Which rules numbers follow: Regtrace's Metrics Reference, or the tool that it ships [default: document]
    #[arg(long, value_enum, value_name = "RULES", help_heading = HEADING)]
    pub compat: Option<CompatName>,
    /// The branch of this run [default: NIGHTMILL_BRANCH, that of the build system, that of git]
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    pub branch: Option<String>,
    /// The run to compare with, or none [default: what is pinned, else what the configuration says]
    #[arg(long, value_name = "RUN|none", help_heading = HEADING)]
    pub baseline: Option<String>,
    /// Write JUnit XML
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub junit: Option<PathBuf>,
    /// Write Markdown
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub markdown: Option<PathBuf>,
    /// The report: text; Regtrace's JSON on standard output (a list where several suites are run), with the text on
    /// standard error; or Markdown in --report-path [default: terminal, or as the configuration says]
    #[arg(long, value_enum, conflicts_with = "json", help_heading = HEADING)]
    pub format: Option<FormatName>,
    /// A file, or a folder, that gets the report: JSON with --format json, else Markdown
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub report_path: Option<PathBuf>,
    #[command(flatten)]
    pub judges: SettingFlags<OfRegression>,
}

/// Whose rules.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(in crate::cli) enum CompatName {
    Document,
    Tool,
}

impl From<CompatName> for Compat {
    fn from(name: CompatName) -> Self {
        match name {
            CompatName::Document => Self::Document,
            CompatName::Tool => Self::Tool,
        }
    }
}

/// A format of reports.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(in crate::cli) enum FormatName {
    Terminal,
    Json,
    Markdown,
}

impl From<FormatName> for ReportFormat {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Terminal => Self::Terminal,
            FormatName::Json => Self::Json,
            FormatName::Markdown => Self::Markdown,
        }
    }
}

/// Settings of judges that evaluation sets name in their own files.
#[derive(Debug)]
pub(in crate::cli) struct OfRegression;

impl Offer for OfRegression {
    fn offers(setting: &Setting) -> bool {
        const OWN: [&str; 7] = [
            "judge",
            "judge_model",
            "judge_url",
            "judge_protocol",
            "judge_key_file",
            "judge_temperature",
            "judge_max_output",
        ];
        OWN.contains(&setting.name)
    }

    fn help(setting: &Setting) -> Option<&'static str> {
        Some(match setting.name {
            "judge" => {
                "Of regression suites: the judge model, in place of the configuration's first one"
            }
            "judge_model" => "Of regression suites: other models for factuality and tone",
            "judge_url" => {
                "Of regression suites: where the first judge is asked, up to and with /v1"
            }
            "judge_temperature" => {
                "Of regression suites: randomness of the judge [default: what the configuration says, else 0.1]"
            }
            "judge_max_output" => {
                "Of regression suites: most tokens of a reply [default: what the configuration says, else 4096]"
            }
            _ => return None,
        })
    }
}
