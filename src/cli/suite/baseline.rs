//! `nightmill suite baseline`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use chrono::Utc;
use clap::Args;
use serde_json::json;

use super::records::{holds_records, records_of};
use crate::cli::{AnyError, Outcome, outcome};
use crate::report::plain;
use crate::suite::regression::{
    Compat, RecordStore, RegressionConfig, RunFilter, SuiteConfig, SuitePath, current_branch,
    head_line, suites_of,
};
use crate::suite::{SuiteKind, suite_kind};

/// Flags of `suite baseline`.
#[derive(Args, Debug)]
pub(in crate::cli) struct BaselineArgs {
    /// A configuration, a golden set, or a folder of records
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,
    /// Only of this suite
    #[arg(long, value_name = "NAME")]
    suite: Option<String>,
    /// The folder of records, where it is not beside PATH
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The branch to choose for [default: NIGHTMILL_BRANCH, that of the build system, that of git]
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &BaselineArgs) -> Result<Outcome, AnyError> {
    let (records, rules, compat, mut suites) = of_path(args)?;
    if let Some(wanted) = &args.suite {
        if !suites.contains(wanted) {
            return Err(format!(
                "--suite {wanted}: there is no such suite{}",
                crate::text::nearest(wanted, suites.iter().map(String::as_str))
            )
            .into());
        }
        suites = vec![wanted.clone()];
    }
    let variable = |name: &str| std::env::var(name).ok();
    let branch = current_branch(args.branch.as_deref(), variable, &args.path);
    let pins = records.pins()?;
    let mut text = String::new();
    let mut listed = Vec::new();
    for suite in &suites {
        let found = records.baseline(suite, Some(&branch), &rules, compat, Utc::now())?;
        let head = found.record.as_ref().map(|of| &of.head);
        let is_pinned = pins.contains_key(suite);
        let line = match head {
            Some(head) => format!("{suite}: {}", head_line(head)),
            None => format!("{suite}: none"),
        };
        text.push_str(&plain(&line));
        text.push_str(if is_pinned { "  pinned\n" } else { "\n" });
        for notice in &found.notices {
            text.push_str(&format!("  {}\n", plain(notice)));
        }
        listed.push(json!({
            "suite": suite,
            "branch": branch,
            "run_id": head.map(|of| &of.run_id),
            "suite_score": head.map(|of| of.suite_score),
            "pinned": is_pinned,
            "notices": found.notices,
        }));
    }
    match args.json {
        true => outcome::print(&format!("{}\n", serde_json::to_string_pretty(&listed)?))?,
        false => outcome::print(&text)?,
    }
    Ok(Outcome::Done)
}

type Rules = (RecordStore, RegressionConfig, Compat, Vec<String>);

/// The records, the rules by which a baseline is chosen, and the suites.
fn of_path(args: &BaselineArgs) -> Result<Rules, AnyError> {
    let given = args.out.as_ref().map(RecordStore::at);
    if holds_records(&args.path) {
        let records = records_of(&args.path)?;
        let runs = records.list(&RunFilter::default())?.runs;
        let names: BTreeSet<String> = runs.into_iter().map(|of| of.golden_set_name).collect();
        let rules = RegressionConfig::default();
        let names = names.into_iter().collect();
        return Ok((records, rules, Compat::default(), names));
    }
    let SuiteKind::Regression(path) = suite_kind(&args.path)? else {
        return Err(format!(
            "`{}` is an evaluation set; baselines are of regression suites",
            args.path.display()
        )
        .into());
    };
    let records = given.unwrap_or_else(|| RecordStore::beside(path.anchor()));
    let config = match &path {
        SuitePath::Config(file) => SuiteConfig::read(file)?.config,
        SuitePath::Suite { file, .. } => SuiteConfig::of_suite(file.clone()),
    };
    let names = suites_of(&path)?.into_iter().map(|of| of.name).collect();
    Ok((records, config.metrics.regression, config.compat, names))
}
