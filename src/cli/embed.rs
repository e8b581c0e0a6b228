//! `nightmill embed`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::piped::Piped;
use super::setting_flags::{Offer, SettingFlags};
use super::{AnyError, Outcome, outcome};
use crate::job::{Job, Setting, Theme};
use crate::report::counted;
use crate::run::open;
use crate::run::{CacheChoice, EmbedRequest, embed, own_columns};
use crate::text::TextMode;
use crate::trace::OnBadFile;

/// Flags of `embed`.
#[derive(Args, Debug)]
pub(super) struct EmbedArgs {
    /// Parquet or JSON Lines files, folders and globs with equal columns. Exports of other systems become traces first, as
    /// `score` reads them; --format parquet and jsonl take a file as it is
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
    #[command(flatten)]
    settings: SettingFlags<OfEmbed>,
}

#[derive(Debug)]
struct OfEmbed;

impl Offer for OfEmbed {
    fn offers(setting: &Setting) -> bool {
        let others = [
            "model",
            "memory_limit",
            "threads",
            "overwrite",
            "offline",
            "json",
            "format",
            "mapping",
            "text_mode",
        ];
        setting.theme == Theme::Encoder || others.contains(&setting.name)
    }

    fn help(setting: &Setting) -> Option<&'static str> {
        match setting.name {
            "cache" => Some("A folder that keeps vectors from run to run [default: none]"),
            "no_cache" => Some("Keep no vectors from run to run, whatever the settings say"),
            "overwrite" => Some("Replace an existing file"),
            "text_mode" => Some(
                "What input and output of other formats hold: what was said (content), or the exported documents (compat) \
                 [default: content]",
            ),
            "offline" => Some("Refuse everything that would open a connection: remote paths"),
            _ => None,
        }
    }
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
    let given = &args.settings.given;
    if given.has("cache_size") && !given.has("cache") {
        return Err(
            "--cache-size: embed keeps no vectors unless a folder is named; add --cache".into(),
        );
    }
    let names_mode = given.has("text_mode");
    let job = Job::of(args.settings.given.complete(config)?)?;
    let inputs = crate::store::fetched(args.paths, job.offline)?;
    let engine = open::engine(&job, CacheChoice::Off)?;
    let found = open::found(&job, &inputs.paths)?;
    if names_mode && found.foreign.is_empty() {
        return Err(
            "--text-mode: cells of these files are embedded as they are, so this has no effect; leave it out".into(),
        );
    }
    let read = own_columns(
        inputs.paths.clone(),
        &found,
        job.text_mode.unwrap_or(TextMode::Content),
        OnBadFile::Fail,
        engine.memory_limit / 4,
    )?;
    let request = EmbedRequest {
        paths: read.paths.clone(),
        columns: args.columns,
        out: args.out,
        overwrite: job.overwrite,
        engine,
    };
    let summary = embed(&request)?;
    let counts = summary.counts;
    let speed = counts.tokens as f64 / counts.embed_seconds.max(1e-9);
    let text = if job.json {
        let mut json = serde_json::json!({
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
        if counts.made_again > 0 {
            json["texts_made_again"] = serde_json::json!(counts.made_again);
        }
        if !read.notes.is_empty() {
            json["input_notes"] = serde_json::json!(read.notes);
            json["set_aside"] = serde_json::json!(read.set_aside);
        }
        format!("{}\n", serde_json::to_string_pretty(&json)?)
    } else {
        format!(
            "{}{}, {} ({} distinct, {} of them cached), {}, {speed:.0} tokens/s, {} components a vector\nvectors: {}\n",
            read.told(),
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
    Ok(match read.set_aside.is_empty() {
        true => Outcome::Done,
        false => Outcome::Incomplete,
    })
}
