//! What came of batches, into the ledger.

use std::fs::File;
use std::io::{BufReader, Seek};

use serde::Serialize;

use super::client::BatchClient;
use super::submitter::BatchSubmitterError;
use super::{
    BatchObject, BatchOutcome, BatchReply, BatchResult, BatchStatus, BatchUsage, ResultJoin,
    read_results,
};
use crate::judge::call::{CallErrorKind, Reply, Usage};
use crate::judge::fault::{kind_of_status, shortened};
use crate::judge::ledger::{BatchEnd, BatchRows, Ledger, OpenBatch};
use crate::judge::price::{Price, PriceTable};

/// What was collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Collected {
    /// Batches that came to an end, whichever.
    pub ended: u64,
    /// Batches that are still under way, when it was last looked.
    pub open: u64,
    /// Calls with an answer.
    pub answered: u64,
    /// Calls that failed for good.
    pub failed: u64,
    /// Calls that were not run, or failed for a time: they go into the next batch.
    pub again: u64,
}

impl Collected {
    /// Adds what came of other batches.
    pub(super) fn add(&mut self, later: &Self) {
        self.ended += later.ended;
        self.open += later.open;
        self.answered += later.answered;
        self.failed += later.failed;
        self.again += later.again;
    }
}

/// Looks at every open batch of the client's endpoint and writes down what came of those that ended. A batch that can't be
/// looked at does not stop the others.
pub(super) async fn collect(
    client: &BatchClient,
    ledger: &Ledger,
    prices: &PriceTable,
) -> Result<Collected, BatchSubmitterError> {
    let mut collected = Collected::default();
    let mut first_error = None;
    let endpoint = client.shown_endpoint();
    for batch in ledger.open_batches()? {
        if batch.endpoint != endpoint {
            continue;
        }
        match collect_one(client, ledger, prices, &batch).await {
            Ok(one) => collected.add(&one),
            Err(error) => {
                tracing::warn!(batch = batch.name(), %error, "a batch could not be collected");
                first_error.get_or_insert((batch, error));
            }
        }
    }
    match first_error {
        None => Ok(collected),
        Some((batch, BatchSubmitterError::Endpoint(error))) => {
            Err(BatchSubmitterError::Uncollected {
                batch: batch.name().to_owned(),
                error,
            })
        }
        Some((_, error)) => Err(error),
    }
}

async fn collect_one(
    client: &BatchClient,
    ledger: &Ledger,
    prices: &PriceTable,
    batch: &OpenBatch,
) -> Result<Collected, BatchSubmitterError> {
    let found = match &batch.id {
        Some(id) => Some(client.look(id).await?),
        None => client.find(&batch.key).await?,
    };
    let Some(found) = found else {
        // The process ended before it created the batch.
        give_up(ledger, client.retries().attempts, batch)?;
        return Ok(Collected::default());
    };
    let id = batch.id.as_deref().unwrap_or(&found.id);
    ledger.batch_stands(&batch.key, id, found.status.as_str())?;
    if !found.status.is_final() {
        return Ok(Collected {
            open: 1,
            ..Collected::default()
        });
    }
    let ended = match &found.status {
        BatchStatus::Failed { errors } => {
            let errors = errors.iter().map(|e| match e.line {
                Some(line) => format!("{}: {} (line {line})", e.code, e.message),
                None => format!("{}: {}", e.code, e.message),
            });
            let message = client.scrub(&errors.collect::<Vec<_>>().join("; "));
            let message = format!("the provider refused the batch: {}", shortened(&message));
            tracing::warn!(batch = %found.id, "{message}");
            Collected {
                failed: fail_all(ledger, client.retries().attempts, batch, &message)?,
                ..Collected::default()
            }
        }
        _ => {
            let results = fetch(client, &found).await?;
            end_with_results(client, ledger, prices, batch, &found, results)?
        }
    };
    tracing::info!(batch = %found.id, answered = ended.answered, failed = ended.failed, again = ended.again, "batch collected");
    Ok(Collected { ended: 1, ..ended })
}

/// Ends a batch that has no results and will have none: its calls are free again. Returns how many.
pub(super) fn give_up(
    ledger: &Ledger,
    attempts: u32,
    batch: &OpenBatch,
) -> Result<u64, BatchSubmitterError> {
    let end = BatchEnd::NotRun {
        message: "the batch was given up",
    };
    end_all(ledger, attempts, batch, ("given up", None), &end)
}

/// Ends a batch whose calls all failed. Returns how many.
fn fail_all(
    ledger: &Ledger,
    attempts: u32,
    batch: &OpenBatch,
    message: &str,
) -> Result<u64, BatchSubmitterError> {
    let end = BatchEnd::Failed {
        kind: CallErrorKind::Refused,
        message,
        usage: None,
        cost: None,
    };
    end_all(ledger, attempts, batch, ("failed", Some(message)), &end)
}

fn end_all(
    ledger: &Ledger,
    attempts: u32,
    batch: &OpenBatch,
    status: (&str, Option<&str>),
    end: &BatchEnd<'_>,
) -> Result<u64, BatchSubmitterError> {
    let waiting = ledger.waiting_in(&batch.key)?;
    ledger.end_batch(batch, status, attempts, |rows| {
        for hash in &waiting {
            rows.put(hash, end).map_err(|e| ledger.broken(&e))?;
        }
        Ok::<u64, BatchSubmitterError>(waiting.len() as u64)
    })
}

/// The files of results, as far as there are any.
async fn fetch(
    client: &BatchClient,
    batch: &BatchObject,
) -> Result<Vec<File>, BatchSubmitterError> {
    let mut files = Vec::new();
    for id in [&batch.output_file_id, &batch.error_file_id]
        .into_iter()
        .flatten()
    {
        let file = tempfile::tempfile()?;
        client.fetch(id, &file).await?;
        files.push(file);
    }
    Ok(files)
}

fn end_with_results(
    client: &BatchClient,
    ledger: &Ledger,
    prices: &PriceTable,
    batch: &OpenBatch,
    found: &BatchObject,
    files: Vec<File>,
) -> Result<Collected, BatchSubmitterError> {
    let price = prices.of_batch(&batch.model);
    let mut join = ResultJoin::new(ledger.waiting_in(&batch.key)?);
    let mut ended = Collected::default();
    let mut bad = 0;
    let attempts = client.retries().attempts;
    let status = (found.status.as_str(), None);
    ledger.end_batch(batch, status, attempts, |rows| {
        let mut write = Writer {
            client,
            rows,
            price,
            ended: &mut ended,
            failed: None,
        };
        // Replies first: whoever has one did not fail, wherever else its id stands.
        for replies in [true, false] {
            for file in &files {
                let mut file = file;
                file.rewind()?;
                let read = read_results(BufReader::new(file), |result| {
                    let result = as_without_batches(result);
                    let is_reply = matches!(result.outcome, BatchOutcome::Reply(_));
                    if is_reply != replies {
                        return;
                    }
                    if let Some(result) = join.take(result) {
                        write.put(&result);
                    }
                })?;
                bad += u64::from(replies) * read.bad;
                if replies && read.bad > 0 {
                    let first = read.bad_lines.first();
                    tracing::warn!(batch = %found.id, lines = read.bad, ?first, "lines of results can't be read");
                }
            }
        }
        let failed = write.failed.take();
        if let Some(e) = failed {
            return Err(ledger.broken(&e).into());
        }
        let summary = join.finish();
        if summary.unknown > 0 {
            tracing::warn!(batch = %found.id, lines = summary.unknown, "results of calls that were not asked");
        }
        if summary.duplicates > 0 {
            tracing::warn!(batch = %found.id, lines = summary.duplicates, "calls with more than one result; the first reply stands");
        }
        let came = summary.replied + summary.failed;
        let promised = found.request_counts.completed + found.request_counts.failed;
        let whole = found.status == BatchStatus::Completed;
        if !summary.missing.is_empty() && ((came as u64) < promised || (whole && bad > 0)) {
            // Paid answers are in there somewhere: the batch stays open.
            return Err(BatchSubmitterError::Incomplete {
                batch: batch.name().to_owned(),
                came,
                asked: came + summary.missing.len(),
                bad,
            });
        }
        let message = format!("the batch is {} and has no result of it", found.status.as_str());
        for hash in &summary.missing {
            ended.again += 1;
            let end = BatchEnd::NotRun { message: &message };
            rows.put(hash, &end).map_err(|e| ledger.broken(&e))?;
        }
        Ok::<(), BatchSubmitterError>(())
    })?;
    Ok(ended)
}

/// What a result is without batches: an answer without text is an answer, and no verdict; one that a filter or the model itself
/// stopped is none, whatever it says.
fn as_without_batches(mut result: BatchResult) -> BatchResult {
    result.outcome = match result.outcome {
        BatchOutcome::Failed { code, usage, .. } if code.as_deref() == Some("no_text") => {
            BatchOutcome::Reply(BatchReply {
                text: String::new(),
                model: None,
                usage,
                finish_reason: None,
            })
        }
        BatchOutcome::Reply(reply) if reply.finish_reason.as_deref() == Some("content_filter") => {
            BatchOutcome::Failed {
                status: None,
                code: Some("content_filter".into()),
                message: "a filter of the provider stopped the reply".into(),
                usage: reply.usage,
            }
        }
        other => other,
    };
    result
}

struct Writer<'w, 'l> {
    client: &'w BatchClient,
    rows: &'w BatchRows<'l>,
    price: Option<Price>,
    ended: &'w mut Collected,
    failed: Option<rusqlite::Error>,
}

impl Writer<'_, '_> {
    fn put(&mut self, result: &BatchResult) {
        let usage = |usage: Option<BatchUsage>| {
            usage.map(|u| Usage {
                prompt: u.prompt,
                completion: u.completion,
                cached: u.cached,
            })
        };
        let cost =
            |usage: Option<Usage>| self.price.zip(usage).map(|(price, usage)| price.of(usage));
        let written = match &result.outcome {
            BatchOutcome::Reply(reply) => {
                self.ended.answered += 1;
                let usage = usage(reply.usage);
                let reply = Reply {
                    text: self.client.scrub_reply(&reply.text),
                    model: self
                        .client
                        .scrub(reply.model.as_deref().unwrap_or_default()),
                    usage,
                    cut_off: reply.finish_reason.as_deref() == Some("length"),
                };
                let end = BatchEnd::Answered {
                    reply: &reply,
                    cost: cost(usage),
                };
                self.rows.put(&result.custom_id, &end)
            }
            BatchOutcome::Expired => {
                self.ended.again += 1;
                let message = "the batch expired before this call";
                self.rows
                    .put(&result.custom_id, &BatchEnd::NotRun { message })
            }
            BatchOutcome::Failed {
                status,
                code,
                message,
                usage: paid,
            } => {
                let said = format!("{} {message}", code.as_deref().unwrap_or_default());
                let kind = kind_of_failure(*status, code.as_deref(), &said);
                match kind.passes() {
                    true => self.ended.again += 1,
                    false => self.ended.failed += 1,
                }
                let usage = usage(*paid);
                let message = shortened(&self.client.scrub(said.trim()));
                let end = BatchEnd::Failed {
                    kind,
                    message: &message,
                    usage,
                    cost: cost(usage),
                };
                self.rows.put(&result.custom_id, &end)
            }
        };
        if let Err(e) = written {
            self.failed.get_or_insert(e);
        }
    }
}

/// What a failed line of a batch means. Without a status it was not run, or the server broke.
fn kind_of_failure(status: Option<u16>, code: Option<&str>, said: &str) -> CallErrorKind {
    match (code, status) {
        (Some("refusal" | "content_filter"), _) => CallErrorKind::Blocked,
        // Whether the line asked for a format is not known here; one that did not is asked for again in vain, once.
        (_, Some(status)) if !(200..300).contains(&status) => kind_of_status(status, said, true),
        _ => CallErrorKind::ServerError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_without_status_pass() {
        assert_eq!(kind_of_failure(None, None, "x"), CallErrorKind::ServerError);
        assert_eq!(
            kind_of_failure(Some(200), None, "x"),
            CallErrorKind::ServerError
        );
        assert_eq!(
            kind_of_failure(Some(400), None, "bad"),
            CallErrorKind::Refused
        );
        let refused = kind_of_failure(Some(200), Some("refusal"), "no");
        assert_eq!(refused, CallErrorKind::Blocked);
        assert_eq!(
            kind_of_failure(Some(429), None, ""),
            CallErrorKind::RateLimited
        );
        let said = "invalid response_format";
        assert_eq!(
            kind_of_failure(Some(400), None, said),
            CallErrorKind::FormatRejected
        );
    }
}
