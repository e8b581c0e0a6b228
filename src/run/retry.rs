//! What failed in a finished run, to be asked again by a new one (as in PandaProbe).
//!
//! The new run takes what judges said of traces from the table `scores` of the old one, to the last digit, and asks only for
//! the pairs of trace and metric that failed there. Scores without a judge are computed again from the same files, which
//! gives the same numbers.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::embed::EmbeddingService;
use crate::history::StoredRun;
use crate::history::lineage::retried_with;
use crate::history::stored_run::{HistoryError, read_json};
use crate::history::stored_table::{cell, for_each_batch, number, numbers, text, trace_id};
use crate::job::RequestRecord;
use crate::metric::{CONVERSATION, Rules, judged_metric};
use crate::output::directory::MANIFEST;
use crate::output::score_rows::ANNOTATION;
use crate::output::{RunError, Status};
use crate::run::judging::judgements::{Judgement, Judgements};
use crate::run::{JudgeRequest, ScoreRequest, TurnsRequest};
use crate::selection::{Ids, SamplingRate, TraceFilters};
use crate::trace::SessionKey;

/// A session by project and id.
pub(crate) type Session = (Option<String>, String);

/// Why the failures of a run can't be asked again.
#[derive(Debug, thiserror::Error)]
pub enum RetryError {
    /// The old run can't be read.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The manifest has no request.
    #[error(
        "the manifest of `{0}` does not hold its request; make the run again with the flags of then and one more of --judge-rounds: what is in the ledger is not paid twice"
    )]
    NotRecorded(PathBuf),
    /// A file is not what it was.
    #[error(
        "`{file}` is not the file that the run `{run}` read; put it back, or make the run again: what is in the ledger is not paid twice"
    )]
    Changed {
        /// Id of the old run.
        run: String,
        /// The file.
        file: String,
    },
    /// A file is not on this machine.
    #[error(
        "`{file}` is not on this machine, and retries read local files alone; make the run `{run}` again by its command, with one \
         more of --judge-rounds: what is in the ledger is not paid twice"
    )]
    Remote {
        /// Id of the old run.
        run: String,
        /// The address of the file.
        file: String,
    },
}

#[derive(Deserialize)]
struct OldManifest {
    name: Option<String>,
    request: Option<RequestRecord>,
    model: Option<OldModel>,
}

#[derive(Debug, Deserialize)]
struct OldModel {
    sha256: String,
    precision: String,
}

#[derive(Deserialize)]
struct OldSummary {
    judge: Option<OldJudge>,
}

#[derive(Deserialize)]
struct OldJudge {
    traces: u64,
}

/// The failures of a run.
#[derive(Debug)]
pub struct Retry {
    old: StoredRun,
    /// The name of the new run: `Retry: <name or id>`.
    pub name: String,
    /// What the old run was asked.
    pub request: RequestRecord,
    model: Option<OldModel>,
    /// Traces that the old run chose.
    traces: u64,
    /// Judged metrics that failed, by trace.
    failed: HashMap<String, Vec<String>>,
    /// How the conversations ended.
    conversations: BTreeMap<Session, Status>,
    /// Those for which the judge failed.
    failed_conversations: usize,
    /// A trace of each conversation of the old run.
    of_conversations: Vec<String>,
    /// Scores that failed without a judge.
    unjudged: u64,
    /// Judged scores and conversations that were never asked for.
    pending: u64,
    /// Scores without a judge that a person edited.
    edited: u64,
}

impl Retry {
    /// Reads a finished run.
    ///
    /// # Errors
    /// [`RetryError`].
    pub fn of(old: StoredRun) -> Result<Self, RetryError> {
        let manifest: OldManifest = read_json(&old.path, MANIFEST)?;
        let summary: OldSummary = read_json(&old.path, crate::history::stored_run::SUMMARY)?;
        let given_name = manifest.name.as_deref().unwrap_or(&old.name);
        let mut retry = Self {
            name: format!("Retry: {given_name}"),
            request: manifest.request.unwrap_or_default(),
            model: manifest.model,
            traces: summary.judge.map_or(0, |judge| judge.traces),
            failed: HashMap::new(),
            conversations: BTreeMap::new(),
            failed_conversations: 0,
            of_conversations: Vec::new(),
            unjudged: 0,
            pending: 0,
            edited: 0,
            old,
        };
        retry.read_failures()?;
        if retry.old.path.join("judge_verdicts").is_dir() {
            retry.read_conversations()?;
        }
        Ok(retry)
    }

    fn read_failures(&mut self) -> Result<(), HistoryError> {
        let columns = ["target_type", "target_id", "metric", "status", "source"];
        let path = self.old.path.clone();
        for_each_batch(&path, "scores", &columns, |batch| {
            let [types, ids, metrics, statuses, sources] = columns.map(|name| text(batch, name));
            let (types, ids, metrics) = (types?, ids?, metrics?);
            let (statuses, sources) = (statuses?, sources?);
            for row in 0..batch.num_rows() {
                let metric = cell(&metrics, row).unwrap_or_default();
                if metric == CONVERSATION {
                    // They are counted with their verdicts.
                    continue;
                }
                let judged = cell(&types, row) == Some("trace") && judged_metric(metric).is_some();
                match (cell(&statuses, row), trace_id(&ids, row)) {
                    (Some("FAILED"), Some(id)) if judged => {
                        let of_trace = self.failed.entry(id).or_default();
                        of_trace.push(metric.to_owned());
                    }
                    (Some("FAILED"), _) => self.unjudged += 1,
                    (Some("PENDING"), _) => self.pending += 1,
                    _ if !judged && cell(&sources, row) == Some(ANNOTATION) => self.edited += 1,
                    _ => {}
                }
            }
            Ok(())
        })
    }

    fn read_conversations(&mut self) -> Result<(), HistoryError> {
        let conversations = &mut self.conversations;
        let (by_judge, by_themselves) = (&mut self.failed_conversations, &mut self.unjudged);
        let pending = &mut self.pending;
        let columns = ["project_id", "session_id", "status", "judge_error"];
        for_each_batch(&self.old.path, "judge_verdicts", &columns, |batch| {
            let [projects, sessions, statuses, errors] = columns.map(|name| text(batch, name));
            let (projects, sessions) = (projects?, sessions?);
            let (statuses, errors) = (statuses?, errors?);
            for row in 0..batch.num_rows() {
                let project = cell(&projects, row).map(str::to_owned);
                let session = cell(&sessions, row).unwrap_or_default().to_owned();
                let status = status_of(cell(&statuses, row))?;
                match (status, cell(&errors, row)) {
                    (Status::Failed, Some(_)) => *by_judge += 1,
                    // Without turns, with a bad row, or failed by itself: there is nothing to ask.
                    (Status::Failed, None) => *by_themselves += 1,
                    (Status::Pending, _) => *pending += 1,
                    (Status::Success, _) => {}
                }
                conversations.insert((project, session), status);
            }
            Ok(())
        })?;
        if !self.old.path.join("traces").is_dir() {
            // Conversations of a table of turns.
            return Ok(());
        }
        let (conversations, found) = (&self.conversations, &mut self.of_conversations);
        let mut last: Option<Session> = None;
        let columns = ["project_id", "session_id", "trace_id"];
        for_each_batch(&self.old.path, "traces", &columns, |batch| {
            let [projects, sessions, traces] = columns.map(|name| text(batch, name));
            let (projects, sessions, traces) = (projects?, sessions?, traces?);
            for row in 0..batch.num_rows() {
                let (Some(session), Some(trace)) = (cell(&sessions, row), cell(&traces, row))
                else {
                    continue;
                };
                let project = cell(&projects, row).map(str::to_owned);
                let session = (project, session.to_owned());
                // Traces of a session stand together: one of them names it.
                if last.as_ref() != Some(&session) && conversations.contains_key(&session) {
                    found.push(trace.to_owned());
                }
                last = Some(session);
            }
            Ok(())
        })
    }

    /// The id of the old run.
    pub fn id(&self) -> &str {
        &self.old.name
    }

    /// The runs whose scores the new one will hold, the old run first.
    pub(crate) fn retried(&self) -> serde_json::Value {
        serde_json::json!(retried_with(&self.old))
    }

    /// The directory of the old run.
    pub fn path(&self) -> &Path {
        &self.old.path
    }

    /// Pairs of trace and metric for which a judge failed.
    pub fn pairs(&self) -> usize {
        self.failed.values().map(Vec::len).sum()
    }

    /// Conversations for which it failed.
    pub fn conversations(&self) -> usize {
        self.failed_conversations
    }

    /// Scores that failed without a judge, and would fail again.
    pub fn unjudged(&self) -> u64 {
        self.unjudged
    }

    /// Judged scores and conversations that were never asked for.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Scores without a judge that a person edited: the new run computes them again.
    pub fn edited(&self) -> u64 {
        self.edited
    }

    /// Whether the old run judged tables of turns.
    pub fn of_turns(&self) -> bool {
        self.old.command == "conversations"
    }

    /// What the old run computed in, whatever it was asked for.
    pub fn precision(&self) -> Option<&str> {
        self.model.as_ref().map(|model| model.precision.as_str())
    }

    /// Whether the old run's request is known and its files are what they were.
    ///
    /// # Errors
    /// [`RetryError`].
    pub fn check(&self) -> Result<(), RetryError> {
        let incomplete = self.of_turns() && self.request.tables.is_none();
        if incomplete || self.request.settings.is_empty() || self.request.files.is_empty() {
            return Err(RetryError::NotRecorded(self.old.path.clone()));
        }
        if let Some(file) = self.request.remote() {
            return Err(RetryError::Remote {
                run: self.old.name.clone(),
                file: file.path.clone(),
            });
        }
        match self.request.changed() {
            None => Ok(()),
            Some(file) => Err(RetryError::Changed {
                run: self.old.name.clone(),
                file: file.path.clone(),
            }),
        }
    }

    /// Makes a request for the old run's files ask for its failures alone.
    pub fn narrow(self, request: &mut ScoreRequest) {
        request.report = request.report.filter(|_| self.request.report);
        request.targets.clone_from(&self.request.targets);
        request.continues = self.request.continues.as_ref().map(PathBuf::from);
        if let Some(names) = &self.old.record.metric_names {
            request.metric_names.clone_from(names);
        }
        let Some(judge) = &mut request.judge else {
            return;
        };
        let asked = self.failed.keys().chain(&self.of_conversations);
        judge.filters = TraceFilters {
            trace_ids: Some(Ids::of_traces(asked)),
            ..TraceFilters::default()
        };
        ask_anew(judge);
        judge.condition = None;
        judge.sample = SamplingRate::ALL;
        judge.retry = Some(Arc::new(self));
    }

    /// Makes a request for the old run's tables ask for its failures alone: the ledger must answer all others.
    pub fn narrow_turns(self, request: &mut TurnsRequest) {
        ask_anew(&mut request.judge);
        request.judge.retry = Some(Arc::new(self));
    }

    /// Whether a metric of a trace is to be asked again.
    pub(crate) fn asks(&self, trace_id: &str, metric: &str) -> bool {
        let failed = self.failed.get(trace_id);
        failed.is_some_and(|metrics| metrics.iter().any(|m| m == metric))
    }

    /// How a conversation ended in the old run.
    pub(crate) fn status(&self, session: &Session) -> Option<Status> {
        self.conversations.get(session).copied()
    }

    /// Whether the old run judged a session as a conversation, or meant to.
    pub(crate) fn judged(&self, session: &SessionKey) -> bool {
        let session = (session.project_id.clone(), session.session_id.clone());
        self.conversations.contains_key(&session)
    }

    /// Traces that the old run chose.
    pub(crate) fn chosen(&self) -> usize {
        usize::try_from(self.traces).unwrap_or(usize::MAX)
    }

    /// Checks that the model is the old run's: with another, scores that did not fail would change too.
    pub(crate) fn check_model(&self, service: &EmbeddingService) -> Result<(), RunError> {
        match &self.model {
            Some(old) if old.sha256 != service.model().sha256 => Err(RunError::Request(format!(
                "the embedding model is not the one of the run `{}` (SHA-256 {}), so that other scores would change; put that model \
                 back, or score the traces again",
                self.old.name, old.sha256
            ))),
            _ => Ok(()),
        }
    }

    /// Puts what judges said in the old run, and did not fail, into the store of the new one.
    pub(crate) fn carry(&self, rules: &Rules, store: &mut Judgements) -> Result<(), RunError> {
        let mut stopped = None;
        let read = self.for_each_judgement(|trace_id, judgement| {
            if self.asks(trace_id, &judgement.metric) || !rules.wants(&judgement.metric) {
                return Ok(());
            }
            let put = store.put(trace_id, std::slice::from_ref(&judgement));
            put.map_err(|e| {
                let message = e.to_string();
                stopped = Some(e);
                message
            })
        });
        match stopped {
            Some(error) => Err(error),
            None => read.map_err(|e| RunError::Request(e.to_string())),
        }
    }

    fn for_each_judgement(
        &self,
        mut each: impl FnMut(&str, Judgement) -> Result<(), String>,
    ) -> Result<(), HistoryError> {
        let names = [
            "target_type",
            "target_id",
            "metric",
            "status",
            "reason",
            "metadata",
            "model",
            "source",
        ];
        let columns = [&names[..], &["score_raw"]].concat();
        for_each_batch(&self.old.path, "scores", &columns, |batch| {
            let [
                types,
                ids,
                metrics,
                statuses,
                reasons,
                metadata,
                models,
                sources,
            ] = names.map(|name| text(batch, name));
            let (types, ids, metrics, statuses) = (types?, ids?, metrics?, statuses?);
            let (reasons, metadata, models) = (reasons?, metadata?, models?);
            let sources = sources?;
            let scores = numbers(batch, "score_raw")?;
            for row in 0..batch.num_rows() {
                let metric = cell(&metrics, row).unwrap_or_default();
                if cell(&types, row) != Some("trace") || judged_metric(metric).is_none() {
                    continue;
                }
                let owned = |texts, row| cell(texts, row).unwrap_or_default().to_owned();
                let judgement = Judgement {
                    metric: metric.to_owned(),
                    status: status_of(cell(&statuses, row))?,
                    score: number(&scores, row),
                    reason: owned(&reasons, row),
                    metadata: owned(&metadata, row),
                    model: owned(&models, row),
                    by_person: cell(&sources, row) == Some(ANNOTATION),
                };
                each(&trace_id(&ids, row).unwrap_or_default(), judgement)?;
            }
            Ok(())
        })
    }
}

fn status_of(name: Option<&str>) -> Result<Status, String> {
    let all = [Status::Success, Status::Failed, Status::Pending];
    let found = all.into_iter().find(|status| name == Some(status.name()));
    found.ok_or_else(|| format!("`{}` is no status", name.unwrap_or("null")))
}

/// An earlier retry may have used up the rounds: one is put in any case. Replies of a batch come back in another run than the one
/// that asked, so that they can't be told from old ones; there the rounds alone count.
fn ask_anew(judge: &mut JudgeRequest) {
    let anew = judge.batches.is_none();
    judge.asking.anew = anew;
    if let Some(conversation) = &mut judge.conversation {
        conversation.anew = anew;
    }
}
