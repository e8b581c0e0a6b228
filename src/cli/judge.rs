//! `nightmill judge`: the ledger's batches, and fetching their results.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use super::setting_flags::{Offer, SettingFlags};
use super::{AnyError, Outcome, listing};
use crate::job::{Job, Setting};
use crate::judge::batch::{BatchClient, BatchSubmitter, Collected};
use crate::judge::{Ledger, OpenBatch, Protocol, Provider, Retries, endpoint_of};
use crate::report::counted;
use crate::run::BatchRules;
use crate::run::open::{batch_rules, ledger, prices, provider};

/// Flags of `judge`.
#[derive(Args, Debug)]
pub(super) struct JudgeArgs {
    /// Fetch the results of batches that have ended; runs that are made again then take them from the ledger
    #[arg(long)]
    collect: bool,
    /// Give up a batch that will never have results: its questions are asked again by later runs
    #[arg(long, value_name = "BATCH", conflicts_with = "collect")]
    forget: Option<String>,
    /// List the providers of judges: how their models are named, the variable of their key, and what each lacks
    #[arg(long, conflicts_with_all = ["collect", "forget", "ledger", "judge_url", "judge_key_file", "judge_headers", "price"])]
    providers: bool,
    #[command(flatten)]
    settings: SettingFlags<OfBatches>,
}

#[derive(Debug)]
struct OfBatches;

impl Offer for OfBatches {
    fn offers(setting: &Setting) -> bool {
        [
            "json",
            "ledger",
            "judge_url",
            "judge_key_file",
            "judge_headers",
            "price",
            "batch_wait",
            "batch_poll",
        ]
        .contains(&setting.name)
    }

    fn help(setting: &Setting) -> Option<&'static str> {
        Some(match setting.name {
            "json" => "Print JSON",
            "judge_url" => {
                "The endpoint whose batches are fetched, up to and with /v1 [default: OpenAI's]"
            }
            "judge_key_file" => "A file with the key [default: OPENAI_API_KEY]",
            "price" => "Dollars for a million tokens in batches: openai/gpt-4o=1.25:5",
            _ => return None,
        })
    }
}

/// What the command prints.
#[derive(Serialize)]
struct Listing {
    ledger: String,
    /// What was fetched, with --collect.
    #[serde(skip_serializing_if = "Option::is_none")]
    collected: Option<Collected>,
    /// Batches that have not been collected.
    batches: Vec<ListedBatch>,
    /// Calls that wait in them.
    waiting: u64,
}

#[derive(Serialize)]
struct ListedBatch {
    /// The provider's, or ours while it is not known whether the provider has the batch.
    id: String,
    endpoint: String,
    model: String,
    status: String,
    requests: u64,
    submitted_at: String,
}

impl From<OpenBatch> for ListedBatch {
    fn from(batch: OpenBatch) -> Self {
        Self {
            id: batch.name().to_owned(),
            endpoint: batch.endpoint,
            model: batch.model,
            status: batch.status,
            requests: batch.requests,
            submitted_at: batch.submitted_at,
        }
    }
}

/// A provider in the list.
#[derive(Serialize)]
struct ListedProvider {
    /// As model names begin: `openai/`.
    prefix: &'static str,
    /// Starts of bare names that mean it.
    families: Vec<&'static str>,
    endpoint: Option<&'static str>,
    protocol: Option<&'static str>,
    key_variable: &'static str,
    /// Whether the variable is set.
    has_key: bool,
    lacks: Vec<&'static str>,
}

impl ListedProvider {
    fn of(provider: Provider) -> Self {
        let key_variable = provider.credential_variable();
        let has_key = std::env::var(key_variable).is_ok_and(|key| !key.trim().is_empty());
        let mut lacks = Vec::new();
        match provider.protocol() {
            None => lacks.push(
                "a protocol that is spoken here: use gemini/ with a Gemini key, or its OpenAI-compatible endpoint with --judge-url",
            ),
            Some(Protocol::OpenAi) => {}
            Some(_) => lacks.push("OpenAI's batch files (--batch)"),
        }
        if !has_key {
            lacks.push("a key: set the variable, or name a file with --judge-key-file");
        }
        Self {
            prefix: provider.prefix(),
            families: provider.families().collect(),
            endpoint: provider.base_url(),
            protocol: provider.protocol().map(Protocol::name),
            key_variable,
            has_key,
            lacks,
        }
    }
}

fn providers(json: bool) -> Result<Outcome, AnyError> {
    let all = Provider::ALL.map(ListedProvider::of);
    listing::print(json, &all, || {
        let mut text = String::new();
        for provider in &all {
            let endpoint = provider.endpoint.unwrap_or("not asked");
            text.push_str(&format!("{}…\n  {endpoint}", provider.prefix));
            if let Some(protocol) = provider.protocol {
                text.push_str(&format!(", protocol {protocol}"));
            }
            text.push_str(&format!(", key in {}\n", provider.key_variable));
            for lacking in &provider.lacks {
                text.push_str(&format!("  lacks {lacking}\n"));
            }
        }
        text.push_str(
            "Any other endpoint is named with --judge-url; it speaks OpenAI's protocol, or the one that --judge-protocol names.\n",
        );
        text
    })?;
    Ok(Outcome::Done)
}

pub(super) fn run(args: JudgeArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let given = args.settings.given;
    if args.providers {
        return providers(given.has("json"));
    }
    for wait in ["batch_wait", "batch_poll"] {
        if given.has(wait) && !args.collect {
            let flag = wait.replace('_', "-");
            return Err(format!("--{flag}: says how --collect waits; add it").into());
        }
    }
    let job = Job::of(given.complete(config)?)?;
    let path = ledger(&job)?;
    if !path.exists() {
        return Err(format!(
            "there is no ledger `{}`; name the one of your runs with --ledger",
            path.display()
        )
        .into());
    }
    let ledger = match args.forget.is_some() || args.collect {
        true => Ledger::open(&path),
        false => Ledger::open_to_read(&path),
    };
    let ledger = Arc::new(ledger?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if let Some(batch) = &args.forget
        && runtime
            .block_on(BatchSubmitter::forget(&ledger, batch))?
            .is_none()
    {
        return Err(format!(
            "--forget {batch}: no such batch is open; `nightmill judge` lists them"
        )
        .into());
    }
    let collected = match args.collect {
        true => Some(runtime.block_on(collect(&job, &ledger))?),
        false => None,
    };
    let batches = ledger.open_batches()?;
    let listing = Listing {
        ledger: path.display().to_string(),
        collected,
        batches: batches.into_iter().map(ListedBatch::from).collect(),
        waiting: ledger.waiting()?,
    };
    listing::print(job.json, &listing, || text(&listing))?;
    Ok(match collected.is_some() && !listing.batches.is_empty() {
        true => Outcome::Incomplete,
        false => Outcome::Done,
    })
}

async fn collect(job: &Job, ledger: &Arc<Ledger>) -> Result<Collected, AnyError> {
    if job.offline {
        return Err("--offline: collecting asks the network".into());
    }
    let rules: BatchRules = batch_rules(job);
    let prices = prices(job)?;
    let provider = provider(job)?;
    let endpoint = endpoint_of("openai/any", &provider);
    let open = ledger.open_batches()?;
    if let Some(batch) = open.first()
        && job.judge_url.is_none()
        && open.iter().all(|batch| batch.endpoint != endpoint)
    {
        return Err(format!(
            "none of {} is at OpenAI, and {} at {}; collect there with --judge-url {}",
            counted(open.len() as u64, "open batch", "open batches"),
            counted(
                open.iter().filter(|b| b.endpoint == batch.endpoint).count() as u64,
                "is",
                "are"
            ),
            batch.endpoint,
            batch.endpoint.trim_end_matches('/')
        )
        .into());
    }
    let client = BatchClient::new(provider, &[], Retries::default())?;
    let elsewhere = open
        .iter()
        .filter(|batch| batch.endpoint != client.shown_endpoint())
        .count();
    if elsewhere > 0 {
        tracing::warn!(
            "{} at another endpoint; name one with --judge-url to collect there",
            counted(elsewhere as u64, "open batch is", "open batches are")
        );
    }
    let submitter = BatchSubmitter::new(client, Arc::clone(ledger), prices, rules.limits)?;
    let until = Instant::now() + rules.wait;
    Ok(submitter.wait(until, rules.poll, None).await?)
}

fn text(listing: &Listing) -> String {
    let mut text = String::new();
    if let Some(c) = &listing.collected {
        text.push_str(&format!(
            "batches ended: {}; calls answered: {}, failed: {}, to be asked again: {}\n",
            c.ended, c.answered, c.failed, c.again
        ));
    }
    if listing.batches.is_empty() {
        text.push_str("no batch is open\n");
        return text;
    }
    let rows = listing.batches.iter().map(|b| {
        [
            b.id.clone(),
            b.status.clone(),
            b.requests.to_string(),
            b.model.clone(),
            b.endpoint.clone(),
            b.submitted_at.clone(),
        ]
    });
    let header = ["batch", "status", "calls", "model", "endpoint", "submitted"];
    text.push_str(&listing::table(header, rows.collect()));
    text
}
