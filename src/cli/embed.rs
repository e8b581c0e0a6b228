//! `nightmill embed`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::piped::Piped;
use super::{AnyError, Outcome, outcome, request};
use crate::job::Settings;
use crate::report::counted;
use crate::run::{CacheChoice, EmbedRequest, embed};

/// Flags of `embed`.
#[derive(Args, Debug)]
pub(super) struct EmbedArgs {
    /// Parquet or JSON Lines files, folders and globs with equal columns
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
    /// Text columns to embed; the vectors of `text` go to `text_embedding`
    #[arg(
        long,
        required = true,
        value_name = "COLUMN,...",
        value_delimiter = ','
    )]
    columns: Vec<String>,
    /// The Parquet file to make
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// A model folder in sentence-transformers layout [default: the model inside the program]
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Where to encode: auto, cpu, cuda or metal [default: auto]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// What to compute in: auto (the fastest that is true enough), f32, bf16, int8, or f16 on a GPU [default: auto]
    #[arg(long, value_name = "PRECISION")]
    precision: Option<String>,
    /// Memory to stay within, beside the model [default: 2G]
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
    /// Threads [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<String>,
    /// A folder that keeps vectors from run to run [default: none]
    #[arg(long, value_name = "DIR", conflicts_with = "no_cache")]
    cache: Option<PathBuf>,
    /// Most that the cache may take on disk, over all models [default: 10G]
    #[arg(long, value_name = "SIZE")]
    cache_size: Option<String>,
    /// Keep no vectors from run to run, whatever the settings say
    #[arg(long)]
    no_cache: bool,
    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
    /// Refuse everything that would open a connection (this version opens none)
    #[arg(long)]
    offline: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(mut args: EmbedArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let _piped = Piped::take(&mut args.paths)?;
    let ending = args.out.extension().map(|e| e.to_ascii_lowercase());
    if ending.is_some_and(|ending| ending != "parquet") {
        let out = args.out.display();
        return Err(format!(
            "--out {out}: vectors are written as Parquet; name a file that ends in .parquet"
        )
        .into());
    }
    if args.cache_size.is_some() && args.cache.is_none() {
        return Err(
            "--cache-size: embed keeps no vectors unless a folder is named; add --cache".into(),
        );
    }
    let settings = Settings {
        model: args.model,
        device: args.device,
        precision: args.precision,
        memory_limit: args.memory_limit,
        threads: args.threads,
        cache: args.cache,
        cache_size: args.cache_size,
        no_cache: args.no_cache,
        overwrite: args.overwrite,
        offline: args.offline,
        json: args.json,
        ..Settings::default()
    }
    .complete(config)?;
    request::local_paths(&args.paths)?;
    let request = EmbedRequest {
        paths: args.paths,
        columns: args.columns,
        out: args.out,
        overwrite: settings.overwrite,
        engine: request::engine(&settings, CacheChoice::Off)?,
    };
    let summary = embed(&request)?;
    let counts = summary.counts;
    let speed = counts.tokens as f64 / counts.embed_seconds.max(1e-9);
    let text = if settings.json {
        let json = serde_json::json!({
            "rows": summary.rows,
            "texts": counts.texts,
            "distinct_texts": counts.distinct_texts,
            "cached_texts": counts.cache.found,
            "tokens": counts.tokens,
            "tokens_per_second": speed.round(),
            "encoding_seconds": counts.encoding_seconds,
            "dim": summary.dim,
            "out": summary.out.display().to_string(),
        });
        format!("{}\n", serde_json::to_string_pretty(&json)?)
    } else {
        format!(
            "{}, {} ({} distinct, {} of them cached), {}, {speed:.0} tokens/s, {} components a vector\nvectors: {}\n",
            counted(summary.rows, "row", "rows"),
            counted(counts.texts, "text", "texts"),
            counts.distinct_texts,
            counts.cache.found,
            counted(counts.tokens, "token", "tokens"),
            summary.dim,
            summary.out.display()
        )
    };
    outcome::print_of(&summary.out, &text)?;
    Ok(Outcome::Done)
}
