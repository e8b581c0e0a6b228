//! `nightmill suite list`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::Patterns;
use crate::cli::{AnyError, Outcome, outcome};
use crate::report::{counted, plain};
use crate::suite::evalset::located;
use crate::suite::evalset::store::{EvalSets, LocalSets};

/// Flags of `suite list`.
#[derive(Args, Debug)]
pub(in crate::cli) struct ListArgs {
    /// The folder of an application, or the folder above it
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// The application, where PATH holds several
    #[arg(long)]
    app: Option<String>,
    #[command(flatten)]
    patterns: Patterns,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ListArgs) -> Result<Outcome, AnyError> {
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
