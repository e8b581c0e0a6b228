//! Sending scores: what the ledger does not know goes out in requests, several at once, and each that was taken is noted
//! before the next is waited for.

use std::path::PathBuf;

use futures::StreamExt as _;
use serde_json::Value;

use super::ledger::{Known, SentLedger};
use super::score::{Level, Score};
use super::stored_scores::{RunFacts, for_each_score};
use super::wire::Wire;
use super::{Chosen, ExportError, Exported, OtelForm, System};
use crate::history::StoredRun;
use crate::judge::{Check, PostError, Poster, RateLimits, Retries, Verb, url_fault};

/// The largest request, in bytes of its bodies. Langfuse takes 3.5 MB at most.
const LARGEST: usize = 2 << 20;
/// Requests that are made ready at once, for each that may be under way.
const AHEAD: usize = 4;
/// So many refusals, and not one score taken, are no matter of single scores.
const REFUSALS: u64 = 20;
/// So many targets that a system does not have are named.
const NAMED: usize = 5;

/// How scores are sent.
#[derive(Clone, Debug)]
pub struct Sending {
    /// The endpoint; without it, what the environment says.
    pub endpoint: Option<String>,
    /// The file that notes what was sent.
    pub ledger: PathBuf,
    /// Requests under way at once, at most.
    pub at_once: usize,
    /// Requests in a minute, at most.
    pub per_minute: Option<u64>,
    /// How requests that fail for a time are repeated.
    pub retries: Retries,
}

/// A score that is ready to be sent.
struct Ready {
    id: String,
    digest: String,
    level: Level,
    /// Whom it is about.
    target: String,
    body: Value,
    bytes: usize,
}

/// What came of a request, and of the pieces that it was taken apart into.
#[derive(Default)]
struct Delivered {
    /// Ids and digests of what was taken.
    taken: Vec<(String, String)>,
    /// Ids of what was refused, and why.
    refused: Vec<(String, String)>,
    /// Targets of scores that the system does not have.
    not_there: Vec<String>,
    /// Refusals that the system counts and does not name.
    unplaced: u64,
    message: Option<String>,
    /// What ended it.
    stopped: Option<PostError>,
}

/// Sends the chosen scores of a run that the ledger does not know as sent.
///
/// # Errors
/// [`ExportError`]: a key is missing, the run or the ledger can't be read, or the endpoint stopped the sending.
pub fn send(
    run: &StoredRun,
    chosen: &Chosen,
    system: System,
    form: OtelForm,
    sending: &Sending,
) -> Result<Exported, ExportError> {
    let Some(wire) = system.wire(form) else {
        return Err(ExportError::Request(format!(
            "--send: {} is a kind of file, and no system that takes scores in",
            system.name()
        )));
    };
    if let Some(fault) = sending.endpoint.as_deref().and_then(url_fault) {
        return Err(ExportError::Request(format!("--endpoint: {fault}")));
    }
    let variable = |name: &str| {
        let value = std::env::var(name).ok()?;
        Some(value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    let account = wire.account(sending.endpoint.as_deref(), &variable)?;
    if let Some(fault) = url_fault(&account.endpoint.url) {
        return Err(ExportError::Request(format!(
            "the endpoint of {} in the environment: {fault}",
            system.name()
        )));
    }
    let limits = RateLimits {
        requests: sending.per_minute,
        tokens: None,
    };
    let poster = Poster::new(account.endpoint, sending.retries, limits)
        .map_err(|e| ExportError::Request(e.to_string()))?;
    let target = poster.endpoint();
    let place = format!("{} {target} {}", system.name(), account.project);
    let ledger = SentLedger::open(&sending.ledger, &place)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| ExportError::Request(format!("no connections can be opened: {e}")))?;
    let facts = RunFacts::of(run)?;
    let mut sender = Sender {
        wire: wire.as_ref(),
        poster,
        ledger,
        sending,
        facts: &facts,
        waiting: Vec::new(),
        bytes: 0,
        exported: Exported {
            to: system.name().to_owned(),
            target,
            ..Exported::default()
        },
    };
    let without_score = for_each_score(run, &facts, chosen, |score| {
        sender.take(&score)?;
        match sender.is_full() {
            true => runtime.block_on(sender.flush()),
            false => Ok(()),
        }
    })?;
    runtime.block_on(sender.flush())?;
    Ok(Exported {
        without_score,
        ..sender.exported
    })
}

struct Sender<'s> {
    wire: &'s dyn Wire,
    poster: Poster,
    ledger: SentLedger,
    sending: &'s Sending,
    facts: &'s RunFacts,
    waiting: Vec<Ready>,
    /// Of all bodies that wait.
    bytes: usize,
    exported: Exported,
}

impl Sender<'_> {
    fn unwritable(&self, error: &rusqlite::Error) -> ExportError {
        ExportError::file(&self.sending.ledger, format!("export ledger: {error}"))
    }

    /// Makes a score ready, unless it was sent.
    fn take(&mut self, score: &Score) -> Result<(), ExportError> {
        let body = match self.wire.body(score, self.facts) {
            Ok(body) => body,
            Err(reason) => {
                *self.exported.no_place.entry(reason).or_default() += 1;
                return Ok(());
            }
        };
        let known = self.ledger.known(&score.id, &score.digest);
        let known = known.map_err(|e| self.unwritable(&e))?;
        if known == Known::Sent {
            self.exported.already += 1;
            return Ok(());
        }
        let bytes = body.to_string().len();
        self.bytes += bytes;
        self.waiting.push(Ready {
            id: score.id.clone(),
            digest: score.digest.clone(),
            level: score.level,
            target: score.target_id.clone(),
            bytes,
            body,
        });
        Ok(())
    }

    fn is_full(&self) -> bool {
        let at_once = self.sending.at_once;
        self.waiting.len() >= self.wire.most() * at_once * AHEAD || self.bytes >= LARGEST * at_once
    }

    /// Sends what waits.
    async fn flush(&mut self) -> Result<(), ExportError> {
        self.bytes = 0;
        let requests = requests(self.wire, std::mem::take(&mut self.waiting));
        let (wire, poster) = (self.wire, &self.poster);
        let deliveries = requests
            .into_iter()
            .map(|request| deliver(wire, poster, request));
        let mut deliveries =
            futures::stream::iter(deliveries).buffer_unordered(self.sending.at_once);
        while let Some(delivered) = deliveries.next().await {
            let taken = delivered.taken.iter();
            let taken = taken.map(|(id, digest)| (id.as_str(), digest.as_str()));
            if let Err(error) = self.ledger.note(taken) {
                let problem = format!("export ledger: {error}");
                return Err(ExportError::file(&self.sending.ledger, problem));
            }
            let stopped = count(&mut self.exported, delivered);
            if let Some(error) = stopped {
                // Nobody hears of what is under way; it is sent again, as the same score.
                return Err(ExportError::Stopped {
                    error,
                    sent: self.exported.scores,
                    ledger: self.sending.ledger.clone(),
                });
            }
        }
        Ok(())
    }
}

/// Counts what came of a request, and says whether the sending ends with it.
fn count(exported: &mut Exported, delivered: Delivered) -> Option<PostError> {
    let (taken, refused) = (delivered.taken.len() as u64, delivered.refused.len() as u64);
    exported.scores += taken.saturating_sub(delivered.unplaced);
    exported.refused += refused + delivered.unplaced;
    exported.not_there += delivered.not_there.len() as u64;
    for target in delivered.not_there {
        if exported.first_not_there.len() < NAMED && !exported.first_not_there.contains(&target) {
            exported.first_not_there.push(target);
        }
    }
    if exported.first_refusal.is_none() && exported.refused > 0 {
        let first = delivered.refused.into_iter().next().map(|(_, why)| why);
        exported.first_refusal = first.or(delivered.message);
    }
    let none_taken = exported.scores == 0 && exported.already == 0;
    let in_vain = none_taken && exported.refused >= REFUSALS;
    let refusal = in_vain.then(|| PostError::Refused {
        endpoint: exported.target.clone(),
        status: 0,
        message: format!(
            "all of the first {} scores, so that no more were sent; the first because {}",
            exported.refused,
            exported
                .first_refusal
                .as_deref()
                .unwrap_or("it gives no reason")
        ),
    });
    delivered.stopped.or(refusal)
}

/// Scores as requests: of one level each, and no larger than the system takes.
fn requests(wire: &dyn Wire, mut waiting: Vec<Ready>) -> Vec<Vec<Ready>> {
    let mut requests: Vec<Vec<Ready>> = Vec::new();
    waiting.sort_by_key(|ready| ready.level);
    let mut bytes = 0;
    for ready in waiting {
        let fits = requests.last().is_some_and(|last| {
            last.len() < wire.most()
                && bytes + ready.bytes <= LARGEST
                && last.first().is_some_and(|first| first.level == ready.level)
        });
        bytes = ready.bytes + if fits { bytes } else { 0 };
        match requests.last_mut().filter(|_| fits) {
            Some(last) => last.push(ready),
            None => requests.push(vec![ready]),
        }
    }
    requests
}

/// Sends a request. One that is refused is taken apart, until it is known which of its scores are at fault.
async fn deliver(wire: &dyn Wire, poster: &Poster, request: Vec<Ready>) -> Delivered {
    let mut delivered = Delivered::default();
    let mut parts = vec![(request, 1)];
    while let Some((mut part, attempt)) = parts.pop() {
        match deliver_part(wire, poster, &part).await {
            Ok(answer) => {
                let bodies: Vec<&Value> = part.iter().map(|ready| &ready.body).collect();
                let faults = wire.faults(&answer, &bodies);
                delivered.unplaced += faults.unplaced;
                delivered.message = delivered.message.or(faults.message);
                let goes_on = !faults.again.is_empty() && poster.rest(attempt).await;
                let why_of = |faults: &[(usize, String)], at: usize| {
                    let mut faults = faults.iter();
                    let found = faults.find(|(place, _)| *place == at);
                    found.map(|(_, why)| why.clone())
                };
                let mut rest = Vec::new();
                for (at, ready) in part.into_iter().enumerate() {
                    match (why_of(&faults.at, at), why_of(&faults.again, at)) {
                        (None, None) => delivered.taken.push((ready.id, ready.digest)),
                        (None, Some(_)) if goes_on => rest.push(ready),
                        (Some(why), _) | (None, Some(why)) => {
                            delivered.refused.push((ready.id, why));
                        }
                    }
                }
                if !rest.is_empty() {
                    parts.push((rest, attempt + 1));
                }
            }
            Err(PostError::Refused {
                status, message, ..
            }) if is_of_scores(wire, status) => match part.len() {
                0 | 1 if status == 404 => {
                    delivered.message = delivered.message.or(Some(message));
                    let targets = part.into_iter().map(|ready| ready.target);
                    delivered.not_there.extend(targets);
                }
                0 | 1 => {
                    let refused = part.into_iter().map(|ready| (ready.id, message.clone()));
                    delivered.refused.extend(refused);
                }
                length => {
                    let rest = part.split_off(length / 2);
                    parts.extend([(rest, attempt), (part, attempt)]);
                }
            },
            Err(error) => {
                delivered.stopped = Some(error);
                break;
            }
        }
    }
    delivered
}

/// Whether a refusal of this status is about scores, and not about where or how they are sent.
fn is_of_scores(wire: &dyn Wire, status: u16) -> bool {
    match status {
        400 | 409 | 413 | 422 => true,
        404 => wire.looks_up_targets(),
        _ => false,
    }
}

async fn deliver_part(
    wire: &dyn Wire,
    poster: &Poster,
    part: &[Ready],
) -> Result<Value, PostError> {
    let Some(first) = part.first() else {
        return Ok(Value::Null);
    };
    let bodies: Vec<&Value> = part.iter().map(|ready| &ready.body).collect();
    let seen = |there: &Value| wire.seen(&first.body, there);
    let check = wire
        .where_seen(&first.body)
        .map(|path| Check { path, seen: &seen });
    let request = wire.request(&bodies);
    let path = wire.path(first.level);
    let sent = poster.send(Verb::Post, &path, Some(&request), check.as_ref());
    match (sent.await, wire.replacing(&first.body)) {
        (Err(PostError::Refused { status: 409, .. }), Some((verb, path, body))) => {
            poster.send(verb, &path, Some(&body), None).await
        }
        (sent, _) => sent,
    }
}
