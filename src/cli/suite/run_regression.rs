//! `nightmill suite run` for regression suites.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::ended;
use super::given_flags::{GivenFlags, flags_of};
use super::regression_flags::{OfRegression, RegressionFlags};
use super::run::OfSuites;
use crate::cli::progress::ProgressBar;
use crate::cli::setting_flags::{Offer, SettingFlags};
use crate::cli::{AnyError, Outcome, outcome};
use crate::job::{Given, Job, Setting};
use crate::report::{Paint, counted, plain};
use crate::run::{Progress, open};
use crate::suite::regression::{
    BaselineChoice, ColorChoice, JudgeOverrides, Judging, RegressionOutcome, RegressionRequest,
    ReportFiles, ReportFormat, RunStatus, SuiteChoice, SuitePath, json_reports, plan_questions,
    run as run_suites,
};
use crate::suite::terminal;

/// Flags of evaluation sets that regression suites have too.
const SHARED: [&str; 10] = [
    "path",
    "out",
    "set",
    "cases",
    "no_judge",
    "no_report",
    "dry_run",
    "config",
    "verbose",
    "log_json",
];

/// What the command line says of a run of regression suites.
pub(super) struct RegressionRun {
    pub path: SuitePath,
    /// The folder of records.
    pub out: Option<PathBuf>,
    pub sets: Vec<String>,
    pub cases: Vec<String>,
    pub no_judge: bool,
    pub page: bool,
    pub dry_run: bool,
    pub settings: Given,
    pub given: GivenFlags,
    pub flags: RegressionFlags,
}

/// Refuses flags of regression suites, which have no effect on evaluation sets.
///
/// # Errors
/// Naming the flag.
pub(super) fn refuse_for_eval_sets(given: &GivenFlags) -> Result<(), AnyError> {
    let own = flags_of::<RegressionFlags>();
    match given.first_but(|name| !own.iter().any(|of| of == name)) {
        None => Ok(()),
        Some(flag) => Err(format!(
            "{flag}: this has no effect on an evaluation set, whose files say it themselves; leave it out"
        )
        .into()),
    }
}

impl RegressionRun {
    /// Runs the suites, or counts what they would ask.
    pub fn run(self, config: Option<&Path>) -> Result<Outcome, AnyError> {
        self.check()?;
        let job = self.job(config)?;
        let request = self.request(&job)?;
        if self.dry_run {
            return super::run::print_plan(&plan_questions(&request)?, job.json);
        }
        let progress = Arc::new(Progress::default());
        let bar = ProgressBar::start(Arc::clone(&progress));
        let result = run_suites(&request, &progress);
        bar.stop();
        let outcome = result?;
        self.print(&outcome, job.json)?;
        Ok(self.ended(&outcome))
    }

    fn check(&self) -> Result<(), AnyError> {
        let own = flags_of::<RegressionFlags>();
        let settings = flags_of::<SettingFlags<OfSuites>>();
        let known = |name: &str| {
            let listed = own.iter().chain(&settings);
            SHARED.contains(&name) || listed.into_iter().any(|of| of == name)
        };
        if let Some(flag) = self.given.first_but(known) {
            return Err(format!(
                "{flag}: this is for evaluation sets and has no effect on a regression suite; leave it out"
            )
            .into());
        }
        let judges = flags_of::<SettingFlags<OfRegression>>();
        let of_judge = judges.iter().find(|name| self.given.has(name));
        if let (Some(name), true) = (of_judge, self.no_judge) {
            let flag = name.replace('_', "-");
            return Err(format!(
                "--{flag}: nobody is asked with --no-judge; leave one of them out"
            )
            .into());
        }
        Ok(())
    }

    /// The settings of this run. Those that name a judge are flags only: in a file or a variable they are there for
    /// scoring, and the configuration of the suites names its own.
    fn job(&self, config: Option<&Path>) -> Result<Job, AnyError> {
        let mut named = self.flags.judges.given.clone();
        if let Some(headers) = self.settings.get("judge_headers") {
            named = named.with("judge_headers", headers.clone());
        }
        let mut given = self.settings.clone().complete(config)?.only(|name| {
            let setting = Setting::named(name);
            setting.is_some_and(OfSuites::offers) && name != "judge_headers"
        });
        for name in named.names() {
            if let Some(value) = named.get(name) {
                given = given.with(name, value.clone());
            }
        }
        Ok(Job::of(given)?)
    }

    fn request(&self, job: &Job) -> Result<RegressionRequest, AnyError> {
        let flags = &self.flags;
        let off = match (self.no_judge, job.offline && !job.replay) {
            (true, _) => Some("--no-judge"),
            (false, true) => Some("--offline"),
            (false, false) => None,
        };
        Ok(RegressionRequest {
            path: self.path.clone(),
            choice: SuiteChoice {
                sets: self.sets.clone(),
                tags: flags.tags.clone(),
                cases: self.cases.clone(),
                outputs: flags.outputs.clone(),
            },
            records: self.out.clone(),
            compat: flags.compat.map(Into::into),
            branch: flags.branch.clone(),
            baseline: match flags.baseline.as_deref() {
                None => BaselineChoice::Configured,
                Some("none") => BaselineChoice::Nothing,
                Some(run) => BaselineChoice::Run(run.to_owned()),
            },
            ci: flags.ci.then_some(true),
            bail: flags.bail,
            judging: match off {
                Some(flag) => Judging::Off(flag),
                None => Judging::Asked(Box::new(open::suite(job)?)),
            },
            overrides: self.overrides(job)?,
            page: self.page,
            reports: ReportFiles {
                format: flags.format.map(Into::into),
                report_path: flags.report_path.clone(),
                markdown: flags.markdown.clone(),
                junit: flags.junit.clone(),
            },
            threads: job.threads.map_or_else(
                || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
                |n| n.get(),
            ),
        })
    }

    fn overrides(&self, job: &Job) -> Result<JudgeOverrides, AnyError> {
        let of_endpoint = [
            "judge",
            "judge_model",
            "judge_url",
            "judge_protocol",
            "judge_key_file",
            "judge_headers",
        ];
        let names_endpoint = of_endpoint.iter().any(|name| self.given.has(name));
        let full_name = |setting: &str, model: &str| open::named(job, setting, model);
        let models = job.judge_model.iter().flatten();
        let models = models.map(|(metric, model)| {
            let model = full_name("judge-model", model)?;
            Ok((metric.clone(), model))
        });
        Ok(JudgeOverrides {
            model: match &job.judge {
                Some(model) => Some(full_name("judge", model)?),
                None => None,
            },
            models: models.collect::<Result<_, AnyError>>()?,
            provider: names_endpoint.then(|| open::provider(job)).transpose()?,
            temperature: job.judge_temperature,
            max_output_tokens: job.judge_max_output.map(|n| n.get() as u32),
            timeout: job
                .judge_timeout
                .map(|seconds| Duration::from_secs_f64(seconds.get().max(0.001))),
            tries: job.judge_tries.map(|n| n.get() as u32),
            concurrency: job.judge_concurrency.map(|n| n.get()),
        })
    }

    fn print(&self, outcome: &RegressionOutcome, json: bool) -> Result<(), AnyError> {
        if json {
            let document = json!({
                "kind": "regression",
                "gates_passed": outcome.gates_passed(),
                "overall_score": outcome.overall_score,
                "ci": outcome.ci,
                "suites": outcome.suites,
                "not_run": outcome.not_run,
                "notes": outcome.notes,
                "files": outcome.files,
            });
            outcome::print(&format!("{}\n", serde_json::to_string_pretty(&document)?))?;
            return Ok(());
        }
        let to_stderr = outcome.format == ReportFormat::Json;
        let paint = match outcome.color {
            ColorChoice::Never => Paint::default(),
            ColorChoice::Always => Paint::everywhere(),
            ColorChoice::Auto if to_stderr || outcome.ci => Paint::default(),
            ColorChoice::Auto => Paint::of_stdout(),
        };
        let text = self.text(outcome, paint);
        match to_stderr {
            true => {
                outcome::print(&json_reports(&outcome.records)?)?;
                outcome::say(&text, true)?;
            }
            false => outcome::print(&text)?,
        }
        Ok(())
    }

    fn text(&self, outcome: &RegressionOutcome, paint: Paint) -> String {
        let width = terminal_size::terminal_size().map_or(100, |(width, _)| width.0.into());
        let suites = outcome.suites.iter();
        let suites: Vec<String> = suites.map(|of| terminal::text(of, paint, width)).collect();
        let mut text = suites.join("\n");
        let mut lines: Vec<String> = Vec::new();
        if outcome.suites.len() + outcome.not_run.len() > 1 {
            let count = |status| {
                let records = outcome.records.iter();
                records.filter(|of| of.head.status == status).count()
            };
            let mut line = format!(
                "{}: {} passed, {} failed, {} not evaluated",
                counted(outcome.records.len() as u64, "suite", "suites"),
                count(RunStatus::Passed),
                count(RunStatus::Failed),
                count(RunStatus::Errored)
            );
            if let Some(score) = outcome.overall_score {
                line.push_str(&format!("; score over all {score:.4}"));
            }
            lines.push(line);
        }
        if !outcome.not_run.is_empty() {
            lines.push(format!("not run (--bail): {}", outcome.not_run.join(", ")));
        }
        lines.extend(outcome.notes.iter().map(|note| format!("note: {note}")));
        lines.extend(outcome.files.iter().map(|file| format!("wrote {file}")));
        if !outcome.gates_passed() {
            lines.push(match self.flags.no_gate {
                true => "gates FAILED, and the exit code is 0 all the same: --no-gate".to_owned(),
                false => "gates failed: the exit code is 1 (0 with --no-gate)".to_owned(),
            });
        }
        if !lines.is_empty() {
            text.push('\n');
        }
        for line in lines {
            text.push_str(&plain(&line));
            text.push('\n');
        }
        text
    }

    /// A gate that failed ends with 1 wherever the suite is run: outside of build systems Regtrace exits with 0, which
    /// a script that looks at the code alone would take for a success. Whoever wants that says so.
    fn ended(&self, outcome: &RegressionOutcome) -> Outcome {
        let ends = outcome.suites.iter().map(ended);
        let mut worst = Outcome::Done;
        for end in ends {
            worst = match (worst, end) {
                (Outcome::GateFailed, _) | (_, Outcome::GateFailed) => Outcome::GateFailed,
                (Outcome::Incomplete, _) | (_, Outcome::Incomplete) => Outcome::Incomplete,
                _ => Outcome::Done,
            };
        }
        match worst {
            Outcome::GateFailed if self.flags.no_gate => {
                let unsaid = outcome.records.iter();
                match unsaid
                    .filter(|of| of.head.status == RunStatus::Errored)
                    .count()
                {
                    0 => Outcome::Done,
                    _ => Outcome::Incomplete,
                }
            }
            worst => worst,
        }
    }
}
