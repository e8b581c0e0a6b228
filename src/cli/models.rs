//! `nightmill models`: the models of this machine, and how they come here and go elsewhere.

mod distill;
mod export;
mod import;
mod info;
mod list;
mod pull;
mod verify;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::{AnyError, Outcome};
use crate::model::{Library, ModelFolder};

/// Flags of `models`.
#[derive(Args, Debug)]
pub(super) struct ModelsArgs {
    /// The folder of the models [default: nightmill/models in the user's data folder]
    #[arg(long, global = true, value_name = "DIR")]
    models: Option<PathBuf>,
    #[command(subcommand)]
    command: ModelsCommand,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// The model inside the program, and those in the folder of models
    List(list::ListArgs),
    /// Bring a model from a hub, at one revision and with its sums; a pull that broke off goes on
    Pull(pull::PullArgs),
    /// What a model says about itself: family, width, pooling, prompts, licence, size
    Info(info::InfoArgs),
    /// Whether the files of models are what was pulled or imported
    Verify(verify::VerifyArgs),
    /// Make a static table of a transformer: less true, and many times as fast
    Distill(distill::DistillArgs),
    /// Write a model into one file, with its checksums, licence and origin
    Export(export::ExportArgs),
    /// Read such a file into the folder of models
    Import(import::ImportArgs),
}

pub(super) fn run(args: ModelsArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let library = Library::of(args.models.as_deref())
        .ok_or("this system has no folder for the user's data; name one with --models")?;
    match args.command {
        ModelsCommand::List(args) => list::run(&args, &library),
        ModelsCommand::Pull(args) => pull::run(&args, &library, config),
        ModelsCommand::Info(args) => info::run(&args, &library),
        ModelsCommand::Verify(args) => verify::run(&args, &library),
        ModelsCommand::Distill(args) => distill::run(&args, &library),
        ModelsCommand::Export(args) => export::run(&args, &library),
        ModelsCommand::Import(args) => import::run(&args, &library),
    }
}

/// The model that a name means: a folder, an id of the folder of models, or `shipped`.
pub(super) fn named(name: &str, library: &Library) -> Result<ModelFolder, AnyError> {
    let path = Path::new(name);
    if path.is_dir() {
        return Ok(ModelFolder::open(path)?);
    }
    if name == "shipped" {
        return ModelFolder::shipped().ok_or_else(|| "this build carries no model".into());
    }
    let problem = match library.find(name) {
        Ok(Some(folder)) => return Ok(folder),
        Ok(None) => format!("`{}` has none of this id", library.root().display()),
        Err(problem) => problem.to_string(),
    };
    Err(
        format!("`{name}` is no folder of a model, and {problem}; see `nightmill models list`")
            .into(),
    )
}

/// A size for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..=999_999 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..=999_999_999 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}
