//! `nightmill suite list`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::records::{holds_records, records_of};
use super::{Patterns, list_regression};
use crate::cli::{AnyError, Outcome, outcome};
use crate::report::{counted, plain};
use crate::suite::evalset::located;
use crate::suite::evalset::store::{EvalSets, LocalSets};
use crate::suite::regression::{RunFilter, RunStatus};
use crate::suite::{SuiteKind, suite_kind};

/// Flags of `suite list`.
#[derive(Args, Debug)]
pub(in crate::cli) struct ListArgs {
    /// The folder of an application, or the folder above it; a configuration of regression suites, its folder, a golden
    /// set, or a folder of records
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// The application, where PATH holds several
    #[arg(long)]
    app: Option<String>,
    #[command(flatten)]
    patterns: Patterns,
    /// Records of runs instead of regression suites
    #[arg(long, help_heading = "Regression suites")]
    records: bool,
    /// Records of this suite
    #[arg(long, value_name = "NAME", help_heading = "Regression suites")]
    suite: Option<String>,
    /// Records that ended so
    #[arg(long, value_name = "STATUS", value_parser = ["passed", "failed", "errored"], help_heading = "Regression suites")]
    status: Option<String>,
    /// Records of this branch
    #[arg(long, value_name = "NAME", help_heading = "Regression suites")]
    branch: Option<String>,
    /// The newest so many records
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Regression suites")]
    limit: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl ListArgs {
    /// Which records; none if none were asked for.
    fn filter(&self) -> Option<RunFilter> {
        let is_filtered = self.suite.is_some()
            || self.status.is_some()
            || self.branch.is_some()
            || self.limit.is_some();
        let status = self.status.as_deref();
        (self.records || is_filtered || holds_records(&self.path)).then(|| RunFilter {
            suite: self.suite.clone(),
            status: RunStatus::ALL
                .into_iter()
                .find(|of| status == Some(of.name())),
            branch: self.branch.clone(),
            limit: self
                .limit
                .map_or(0, |limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        })
    }
}

pub(super) fn run(args: &ListArgs) -> Result<Outcome, AnyError> {
    if let Some(filter) = args.filter() {
        return list_regression::records(&records_of(&args.path)?, &filter, args.json);
    }
    if args.app.is_none()
        && let SuiteKind::Regression(path) = suite_kind(&args.path)?
    {
        return list_regression::suites(&path, args.json);
    }
    let (base, app) = match (&args.app, located(&args.path)) {
        (Some(app), _) => (args.path.clone(), app.clone()),
        (None, Some((base, app, _))) => (base, app),
        (None, None) => {
            return Err(format!(
                "`{}`: no evaluation set is to be seen there (APP/NAME.evalset.json), or several applications are; name \
                 one with --app",
                args.path.display()
            )
            .into());
        }
    };
    let sets = LocalSets::new(args.patterns.sets(&base)?);
    let mut lines = String::new();
    let mut listed = Vec::new();
    for id in sets.list(&app)? {
        let set = sets.get(&app, &id)?.value;
        let turns: usize = set.cases.iter().map(|case| case.conversation.len()).sum();
        lines.push_str(&format!(
            "{}  {}, {}{}\n",
            plain(&id),
            counted(set.cases.len() as u64, "case", "cases"),
            counted(turns as u64, "turn", "turns"),
            match set.description.is_empty() {
                true => String::new(),
                false => format!(": {}", plain(&set.description)),
            }
        ));
        listed.push(json!({
            "app": app, "set": id, "name": set.name, "description": set.description,
            "cases": set.cases.len(), "turns": turns,
        }));
    }
    match args.json {
        true => outcome::print(&format!("{}\n", serde_json::to_string_pretty(&listed)?))?,
        false => outcome::print(&lines)?,
    }
    Ok(Outcome::Done)
}
