//! `nightmill suite scaffold`.

use std::io::Write;
use std::path::PathBuf;

use chrono::Utc;
use clap::Args;

use crate::cli::{AnyError, Outcome, outcome};
use crate::output::PartialFile;
use crate::report::{counted, plain};
use crate::suite::regression::{RunRecord, scaffold_of_file, scaffold_of_record};
use crate::suite::{ResultKind, result_kind};

/// Flags of `suite scaffold`.
#[derive(Args, Debug)]
pub(in crate::cli) struct ScaffoldArgs {
    /// The record of a run, or JSON or JSON Lines of {input, output, system_prompt?, description?}
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// The golden set to write, in YAML
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Its name [default: made of FROM]
    #[arg(long)]
    name: Option<String>,
    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
}

pub(super) fn run(args: &ScaffoldArgs) -> Result<Outcome, AnyError> {
    let now = Utc::now();
    let mut made = match result_kind(&args.from)? {
        ResultKind::Regression => scaffold_of_record(&RunRecord::read(&args.from)?, now),
        ResultKind::EvalSet => scaffold_of_file(&args.from, now)?,
    };
    if made.set.cases.is_empty() {
        return Err(format!(
            "`{}` has no case with an input and an output: there is nothing to make a suite of",
            args.from.display()
        )
        .into());
    }
    if let Some(name) = &args.name {
        made.set.name.clone_from(name);
    }
    let (partial, mut file) = PartialFile::create(&args.out, args.overwrite)?;
    file.write_all(made.set.to_yaml().as_bytes())?;
    partial.commit()?;
    let mut text = format!(
        "{} in `{}`, which expects what was answered: read it through before it is held against anything\n",
        counted(made.set.cases.len() as u64, "case", "cases"),
        args.out.display()
    );
    for line in &made.left_out {
        text.push_str(&format!("left out: {}\n", plain(line)));
    }
    outcome::print(&text)?;
    Ok(match made.left_out.is_empty() {
        true => Outcome::Done,
        false => Outcome::Incomplete,
    })
}
