//! `nightmill judge`: the ledger's batches, and fetching their results.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::judge_request::{batch_rules, ledger, pairs, provider};
use super::{AnyError, Outcome, listing};
use crate::config::{JudgeSettings, Settings};
use crate::judge::batch::{BatchClient, BatchDesk, Collected};
use crate::judge::{Ledger, OpenBatch, PriceTable, Retries};
use crate::run::BatchRules;

/// Flags of `judge`.
#[derive(Args, Debug)]
pub(super) struct JudgeArgs {
    /// Fetch the results of batches that have ended; runs that are made again then take them from the ledger
    #[arg(long)]
    collect: bool,
    /// Give up a batch that will never have results: its questions are asked again by later runs
    #[arg(long, value_name = "BATCH", conflicts_with = "collect")]
    forget: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    judge: JudgeSettings,
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

pub(super) fn run(args: JudgeArgs, config: Option<&Path>) -> Result<Outcome, AnyError> {
    let settings = Settings {
        judge: args.judge,
        json: args.json,
        ..Settings::default()
    }
    .complete(config)?;
    let path = ledger(&settings)?;
    if !path.exists() {
        return Err(format!(
            "there is no ledger `{}`; name the one of your runs with --ledger",
            path.display()
        )
        .into());
    }
    let ledger = Arc::new(Ledger::open(&path)?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if let Some(batch) = &args.forget
        && runtime
            .block_on(BatchDesk::forget(&ledger, batch))?
            .is_none()
    {
        return Err(format!(
            "--forget {batch}: no such batch is open; `nightmill judge` lists them"
        )
        .into());
    }
    let collected = match args.collect {
        true => Some(runtime.block_on(collect(&settings, &ledger))?),
        false => None,
    };
    let batches = ledger.open_batches()?;
    let listing = Listing {
        ledger: path.display().to_string(),
        collected,
        batches: batches.into_iter().map(ListedBatch::from).collect(),
        waiting: ledger.waiting()?,
    };
    listing::print(args.json, &listing, || text(&listing))?;
    Ok(match collected.is_some() && !listing.batches.is_empty() {
        true => Outcome::Incomplete,
        false => Outcome::Done,
    })
}

async fn collect(settings: &Settings, ledger: &Arc<Ledger>) -> Result<Collected, AnyError> {
    if settings.offline {
        return Err("--offline: collecting asks the network".into());
    }
    let rules: BatchRules = batch_rules(&settings.judge)?;
    let prices = PriceTable::with(&pairs("price", settings.judge.price.as_deref())?)?;
    let client = BatchClient::new(provider(settings)?, &[], Retries::default())?;
    let desk = BatchDesk::new(client, Arc::clone(ledger), prices, rules.limits)?;
    let until = Instant::now() + rules.wait;
    let pause = rules.poll.max(Duration::from_millis(1));
    Ok(desk.wait(until, pause, None).await?)
}

fn text(listing: &Listing) -> String {
    let mut text = String::new();
    if let Some(c) = &listing.collected {
        text.push_str(&format!(
            "{} batches ended: {} calls answered, {} failed, {} to be asked again\n",
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
