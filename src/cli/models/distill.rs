//! `nightmill models distill`.

use std::path::PathBuf;

use clap::Args;

use super::named;
use crate::cli::{AnyError, Outcome, listing, local_out};
use crate::model::{Library, distill};

/// Flags of `models distill`.
#[derive(Args, Debug)]
pub(super) struct DistillArgs {
    /// The transformer: a model folder, an id of the folder of models, or shipped
    #[arg(value_name = "MODEL")]
    model: String,
    /// Components of a vector
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    dim: u16,
    /// The folder to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace an existing folder
    #[arg(long)]
    overwrite: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DistillArgs, library: &Library) -> Result<Outcome, AnyError> {
    local_out(&args.out, "a model is written here; copy it afterwards")?;
    let teacher = named(&args.model, library)?;
    let made = distill(&teacher, usize::from(args.dim), &args.out, args.overwrite)?;
    listing::print(args.json, &made, || {
        format!(
            "{} tokens, {} components ({:.1} % of the variance), in {:.1} s\n\
             similarities of pairs of sample texts correlate with those of {}: {:.3}\n\
             speed, tokenising included: {:.0} times that of {}\n\
             model: {}\n",
            made.tokens,
            made.dim,
            100.0 * made.explained,
            made.seconds,
            teacher.name(),
            made.agreement,
            made.times_faster,
            teacher.name(),
            args.out.display()
        )
    })?;
    Ok(Outcome::Done)
}
