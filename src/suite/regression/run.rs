//! Runs a regression suite: reads, evaluates, compares with the baseline, decides, and keeps what came of it.

mod baseline_of_run;
mod compute;
mod input;
mod judged;
mod listed;
mod planned;
mod report_files;
mod result_folder;
mod rules;
mod suite_run;

use std::path::PathBuf;

use chrono::Utc;

pub use input::{SuiteChoice, SuitePath};
pub use judged::JudgeOverrides;
pub use listed::{ListedSuite, suites_of};
pub use planned::plan_questions;
pub use report_files::{ReportFiles, json_reports};

use super::baseline::current_branch;
use super::cascade::overall_score;
use super::config::{ColorChoice, ReportFormat, SuiteConfig};
use super::record::{RunRecord, RunStatus, Trigger};
use super::record_store::RecordStore;
use crate::metric::comparison::Compat;
use crate::output::RunError;
use crate::run::{JudgeRequest, Progress};
use crate::suite::outcome::SuiteOutcome;
use baseline_of_run::Against;
use input::RunInput;
use judged::{Judges, Panel};
use rules::CaseRules;
use suite_run::SuiteRun;

/// A regression suite to run.
#[derive(Clone, Debug)]
pub struct RegressionRequest {
    /// Where the suites are.
    pub path: SuitePath,
    /// Which of them.
    pub choice: SuiteChoice,
    /// The folder of records; none for the one beside the configuration.
    pub records: Option<PathBuf>,
    /// Which rules numbers follow; none for what the configuration says.
    pub compat: Option<Compat>,
    /// The branch; none for what the environment or git says.
    pub branch: Option<String>,
    /// What the run is held against.
    pub baseline: BaselineChoice,
    /// Who started it; none for what the environment says, where the configuration lets it.
    pub ci: Option<bool>,
    /// Whether the first suite that does not pass ends the run.
    pub bail: bool,
    /// How judges are asked; none asks nobody, with the reason.
    pub judging: Judging,
    /// What the user says of judges beside the configuration.
    pub overrides: JudgeOverrides,
    /// Whether a page is written beside each record.
    pub page: bool,
    /// Reports to write beside that.
    pub reports: ReportFiles,
    /// Threads.
    pub threads: usize,
}

/// How judges are asked.
#[derive(Clone, Debug)]
pub enum Judging {
    /// Within these bounds; models and endpoints come from the configuration.
    Asked(Box<JudgeRequest>),
    /// Nobody is; the flag that says so.
    Off(&'static str),
}

/// What a run is held against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BaselineChoice {
    /// What is pinned, or what the configuration says.
    #[default]
    Configured,
    /// This run, whatever its status.
    Run(String),
    /// Nothing.
    Nothing,
}

/// What a run of regression suites came to.
#[derive(Clone, Debug)]
pub struct RegressionOutcome {
    /// Suite by suite, in order.
    pub suites: Vec<SuiteOutcome>,
    /// Their records, in the same order.
    pub records: Vec<RunRecord>,
    /// The weighted mean of the suites that were evaluated, 0 to 1; none if none was.
    pub overall_score: Option<f64>,
    /// Suites that were not run because one before them did not pass.
    pub not_run: Vec<String>,
    /// What a reader must know of the whole, one line each.
    pub notes: Vec<String>,
    /// Reports that were written.
    pub files: Vec<String>,
    /// Whether a build system runs it.
    pub ci: bool,
    /// The format of the report.
    pub format: ReportFormat,
    /// When text is painted.
    pub color: ColorChoice,
}

impl RegressionOutcome {
    /// Whether every suite that was evaluated holds to its gates.
    pub fn gates_passed(&self) -> bool {
        let failed = |of: &RunRecord| of.head.status == RunStatus::Failed;
        !self.records.iter().any(failed)
    }
}

/// Runs regression suites, and keeps records, tables, pages and reports.
///
/// # Errors
/// [`RunError::Request`] for faults of configuration or data, before anything is evaluated; [`RunError::Write`] if what
/// came of it can't be kept. A suite that breaks down is recorded as `errored`.
pub fn run(
    request: &RegressionRequest,
    progress: &Progress,
) -> Result<RegressionOutcome, RunError> {
    progress.enter("reading the suites");
    let mut input = RunInput::read(&request.path, &request.choice)?;
    input.follow(request.compat);
    let config = input.config.clone();
    let rules = CaseRules::of(&config);
    let records = store(request);
    // What is pinned must be known before anything is paid.
    records.pins()?;
    let variable = |name: &str| std::env::var(name).ok();
    let ci = super::gates::is_ci(request.ci, config.output.ci_mode_auto_detect, variable);
    let folder = crate::output::directory::parent_of(request.path.anchor());
    let branch = current_branch(request.branch.as_deref(), variable, &folder);
    let against = Against::of(request, &records, &input.sets)?;
    let anchor = request.path.anchor();
    let sets = config.golden_sets.iter().map(|entry| entry.file(anchor));
    let read: Vec<PathBuf> = inputs(request).into_iter().chain(sets).collect();
    request
        .reports
        .check(&config, &folder, &read, records.folder())?;
    let mut notes = std::mem::take(&mut input.notes);
    let panel = panel(request, &input, &rules, &mut notes)?;
    let judge = judge_request(request, &config);
    let judges = match (&panel, &judge) {
        (Some(panel), Some(judge)) => Some(Judges::new(judge, panel)?),
        _ => None,
    };
    if let (Some(panel), Some(judge)) = (&panel, &judge)
        && panel.has_fallback()
        && judge.batches.is_some()
    {
        notes.push(
            "--batch: the fallback judge is not asked, as a question waits in one batch at a time"
                .to_owned(),
        );
    }
    let runtime = crate::run::runtime(request.threads)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(request.threads);
    let pool = pool
        .build()
        .map_err(|e| RunError::Plan(format!("threads can't be started: {e}")))?;
    let suite_run = SuiteRun {
        config: &config,
        config_hash: &input.config_hash,
        rules: &rules,
        records: &records,
        branch: &branch,
        trigger: if ci { Trigger::Ci } else { Trigger::Cli },
        against: &against,
        judges: judges.as_ref(),
        runtime: &runtime,
        pool: &pool,
        page: request.page,
        inputs: inputs(request),
        progress,
    };
    let mut outcome = RegressionOutcome {
        suites: Vec::new(),
        records: Vec::new(),
        overall_score: None,
        not_run: Vec::new(),
        notes,
        files: Vec::new(),
        ci,
        format: request.reports.format(&config),
        color: config.output.color,
    };
    let mut weighted = Vec::new();
    for chosen in &input.sets {
        let stop = request.bail
            && outcome
                .records
                .iter()
                .any(|of| of.head.status != RunStatus::Passed);
        if stop {
            outcome.not_run.push(chosen.set.name.clone());
            continue;
        }
        let (suite, record) = suite_run.run(chosen, Utc::now())?;
        if record.head.status != RunStatus::Errored {
            weighted.push((chosen.weight, record.head.suite_score));
        }
        outcome.suites.push(suite);
        outcome.records.push(record);
    }
    if !weighted.is_empty() {
        outcome.overall_score = Some(overall_score(weighted.into_iter()));
    }
    progress.enter("writing the reports");
    outcome.files = request.reports.write(&config, &folder, &outcome.records)?;
    Ok(outcome)
}

/// Where the records of a run are kept.
fn store(request: &RegressionRequest) -> RecordStore {
    match &request.records {
        Some(folder) => RecordStore::at(folder),
        None => RecordStore::beside(request.path.anchor()),
    }
}

/// Who is asked, if anybody is: a line says why nobody is where somebody could be.
fn panel(
    request: &RegressionRequest,
    input: &RunInput,
    rules: &CaseRules<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<Panel>, RunError> {
    let asking = rules.asking(input.sets.iter().map(|of| &of.set));
    let panel = Panel::of(&asking, &input.config, &request.overrides)?;
    if asking.is_empty() {
        return match request.overrides.names_judge() {
            false => Ok(None),
            true => Err(RunError::Request(
                "a judge is named, and no metric of these suites asks one (factuality does with `claim_extraction_depth: \
                 deep`, and tone); leave it out"
                    .to_owned(),
            )),
        };
    }
    let why = match (&request.judging, panel) {
        (Judging::Asked(_), Some(panel)) => return Ok(Some(panel)),
        (Judging::Off(flag), _) => format!("no judge is asked ({flag})"),
        (Judging::Asked(_), None) => "no judge is configured".to_owned(),
    };
    use super::suite_metric::SuiteMetric;
    let instead = asking.iter().map(|metric| match metric {
        SuiteMetric::Tone => "tone is computed from word lists and lengths (confidence 0.7)",
        _ => "factuality is computed from shared words instead of claims (confidence 0.5)",
    });
    notes.push(format!("{why}: {}", instead.collect::<Vec<_>>().join("; ")));
    Ok(None)
}

/// The bounds of asking, with what the configuration says where the user says nothing.
fn judge_request(request: &RegressionRequest, config: &SuiteConfig) -> Option<JudgeRequest> {
    let Judging::Asked(judge) = &request.judging else {
        return None;
    };
    let mut judge = (**judge).clone();
    judge.concurrency = request.overrides.concurrency.unwrap_or(config.concurrency);
    Some(judge)
}

/// The files that a run reads.
fn inputs(request: &RegressionRequest) -> Vec<PathBuf> {
    let mut inputs = match &request.path {
        SuitePath::Config(file) => vec![file.clone()],
        SuitePath::Suite { file, rules } => {
            let mut inputs = vec![file.clone()];
            inputs.extend(rules.clone());
            inputs
        }
    };
    inputs.extend(request.choice.outputs.clone());
    inputs
}
