//! `nightmill conversations`: judges the transcripts of a table of turns (as in Connexity).

use std::path::PathBuf;
use std::sync::Arc;

use crate::conversation::from_tables::{Choice, Tables};
use crate::conversation::tables::turns_and_cases::{CASES, TURNS};
use crate::conversation::{
    ConversationRequest, ConversationSummary, Listener, TableCounts, judge_each,
};
use crate::job::{RequestRecord, TablesRecord};
use crate::metric::{CONVERSATION, Rules, find};
use crate::output::{
    Announced, Begun, Distribution, RunDirectory, RunError, manifest, quarantine_rows,
};
use crate::run::engine::runtime;
use crate::run::judging::request::JudgeRequest;
use crate::run::judging::summary;
use crate::run::score::{Stages, gate_results, tell};
use crate::run::{Progress, retry_conversations};
use crate::summary::{JudgeSummary, Summary};
use crate::trace::{Code, OnBadFile, Quarantine, SourceFile, SourceFormat, TableSource, discover};

/// A validated request.
#[derive(Clone, Debug)]
pub struct TurnsRequest {
    /// Files, folders and globs of turns.
    pub turns: Vec<String>,
    /// Files, folders and globs of cases; empty if nothing is known of the transcripts.
    pub cases: Vec<String>,
    /// Judge drafts and archived cases too.
    pub all_statuses: bool,
    /// Read only files of this format.
    pub format: Option<SourceFormat>,
    /// What to do about unreadable files.
    pub on_bad_file: OnBadFile,
    /// The run directory to make.
    pub out: PathBuf,
    /// Replace an existing run directory.
    pub overwrite: bool,
    /// The threshold of conversations, and gates.
    pub rules: Rules,
    /// The judge.
    pub judge: JudgeRequest,
    /// Threads of the run.
    pub threads: usize,
    /// What the manifest keeps, to make the same request again.
    pub record: RequestRecord,
}

impl TurnsRequest {
    /// How conversations are judged.
    pub(crate) fn conversation(&self) -> Result<&ConversationRequest, RunError> {
        let conversation = self.judge.conversation.as_ref();
        conversation.ok_or_else(|| RunError::Request("no judge of conversations is set".into()))
    }

    /// Which transcripts are judged.
    pub(crate) fn choice(&self) -> Choice {
        Choice {
            all_statuses: self.all_statuses,
            sample: self.judge.sample,
            seed: self.judge.seed,
        }
    }
}

/// The tables of a request, opened.
pub(crate) struct Opened {
    pub tables: Arc<Tables>,
    pub quarantine: Arc<Quarantine>,
    /// The files of turns.
    turns: Vec<SourceFile>,
    /// The files of cases.
    cases: Vec<SourceFile>,
}

impl Opened {
    /// # Errors
    /// If there are no files, or one of them can't be read or lacks a column.
    pub fn of(request: &TurnsRequest) -> Result<Self, RunError> {
        let turns = discover(&request.turns, request.format)?;
        let cases = match request.cases.is_empty() {
            true => Vec::new(),
            false => discover(&request.cases, request.format)?,
        };
        let quarantine = Arc::new(Quarantine::default());
        let open = |files: &[SourceFile], columns| {
            let quarantine = Arc::clone(&quarantine);
            TableSource::open(files.to_vec(), columns, request.on_bad_file, quarantine)
        };
        let cases_table = (!cases.is_empty()).then(|| open(&cases, CASES));
        Ok(Self {
            tables: Arc::new(Tables::new(open(&turns, TURNS)?, cases_table.transpose()?)),
            quarantine,
            turns,
            cases,
        })
    }

    /// All files that are read.
    pub fn paths(&self) -> Vec<PathBuf> {
        let files = self.turns.iter().chain(&self.cases);
        files.map(|file| file.path.clone()).collect()
    }
}

/// Carries out the request; returns its summary and directory. The directory holds the tables of judged conversations,
/// `scores` and `quarantine`.
///
/// # Errors
/// [`RunError`]; no directory is left then.
pub fn judge_turns(
    request: &TurnsRequest,
    progress: &Progress,
) -> Result<(Summary, PathBuf), RunError> {
    let mut begun = None;
    let result = make(request, progress, &mut begun);
    tell(begun, &result);
    result
}

fn make(
    request: &TurnsRequest,
    progress: &Progress,
    begun: &mut Option<Begun>,
) -> Result<(Summary, PathBuf), RunError> {
    let mut stages = Stages::new();
    progress.enter("opening files");
    let conversation = request.conversation()?;
    let opened = Opened::of(request)?;
    let mut record = request.record.clone();
    record.note_files(&opened.turns);
    record.tables = Some(TablesRecord::new(&opened.cases, request.all_statuses));
    let mut inputs = opened.paths();
    let Opened {
        tables, quarantine, ..
    } = opened;
    inputs.push(request.judge.ledger.clone());
    // Providers, keys and the ledger are checked before anything takes time.
    let service = request.judge.service(&[])?;
    let run = RunDirectory::create(&request.out, request.overwrite, &inputs)?;
    let announced = Announced {
        command: "conversations",
        metric_names: &request.rules.metrics,
        monitor_id: None,
    };
    *begun = Begun::announce(&request.out, announced);
    stages.end("open and check");

    progress.enter("reading turns");
    let (sessions, mut counts) = tables.choose(request.choice())?;
    if counts.turn_rows + counts.case_rows == 0 && quarantine.sorted().is_empty() {
        return Err(RunError::Request(format!(
            "no turns to judge: all files are empty ({} opened)",
            inputs.len() - 1
        )));
    }
    if let Some(retry) = &request.judge.retry {
        let read = |each: &mut Listener<'_>| tables.read_conversations(&sessions, each);
        retry_conversations::check(&request.judge, retry, conversation, read)?;
    }
    stages.end("read turns");

    progress.enter("judging");
    let chosen = sessions.len();
    tracing::info!(conversations = chosen, "judging conversations");
    let runtime = runtime(request.threads)?;
    let sessions = Arc::new(sessions);
    let once = async || {
        let (tables, sessions) = (Arc::clone(&tables), Arc::clone(&sessions));
        let read = move |each: &mut Listener<'_>| tables.read_conversations(&sessions, each);
        let (rules, calls) = (&request.rules, request.judge.concurrency);
        judge_each(conversation, calls, rules, &service, read, &run).await
    };
    let judged = runtime.block_on(request.judge.in_rounds(&service, once))?;
    counts.merged_turns = tables.merged_turns();
    judged.scores.append(&run)?;
    stages.end("judge");

    let of_conversations = ConversationSummary {
        tables: Some(counts.clone()),
        ..judged.summary
    };
    let judge = summary::summarise(
        &request.judge,
        &request.rules,
        &service,
        0,
        None,
        Some(of_conversations),
    )?;
    let opened = || {
        let cases = tables.cases.iter().flat_map(TableSource::files);
        tables.turns.files().chain(cases)
    };
    let entries = quarantine.sorted();
    quarantine_rows::write(&run, &entries)?;
    let unreadable = entries
        .iter()
        .filter(|e| e.code == Code::UnreadableFile)
        .count();
    let summary = Summary {
        files: opened().count() as u64,
        quarantined: quarantine.rows(),
        unreadable_files: unreadable as u64,
        quarantine: quarantine_rows::summarise(&entries),
        stages: stages.list,
        ..summary_of(&request.rules, &judged.distribution, judge, &counts, chosen)
    };
    manifest::write_json(&run.path().join("summary.json"), &summary)?;
    let mut described = request.judge.described();
    if let Some(members) = described.as_object_mut() {
        members.insert("all_statuses".into(), request.all_statuses.into());
    }
    let origins = manifest::Origins {
        judge: described,
        request: serde_json::json!(record),
        name: request
            .judge
            .retry
            .as_ref()
            .map(|retry| retry.name.as_str()),
        retry: request.judge.retry.as_ref().map(|retry| retry.retried()),
        ..manifest::Origins::default()
    };
    let rules = &request.rules;
    manifest::write_over(
        &run,
        "conversations",
        opened(),
        rules,
        origins,
        summary.counts(),
    )?;
    drop(runtime);
    Ok((summary, run.commit()?))
}

/// The part of the summary that rests on what was judged.
fn summary_of(
    rules: &Rules,
    distribution: &Distribution,
    judge: JudgeSummary,
    counts: &TableCounts,
    sessions: usize,
) -> Summary {
    let metric = find(CONVERSATION);
    let metrics = metric.map(|m| distribution.summarise(m, rules.threshold(m.name)));
    Summary {
        files: 0,
        rows_read: counts.turn_rows + counts.case_rows,
        traces: 0,
        sessions: sessions as u64,
        traces_without_session: 0,
        empty_session_ids: 0,
        merged_duplicates: counts.merged_turns,
        quarantined: 0,
        rows_left_out: 0,
        unreadable_files: 0,
        failed_signals: 0,
        non_finite_signals: 0,
        unmatched_signals: 0,
        sessions_without_evidence: Default::default(),
        evidence_required: true,
        texts: 0,
        distinct_texts: 0,
        cached_texts: 0,
        dedup_share: None,
        tokens: 0,
        tokens_per_second: None,
        pending_signals: 0,
        judge: Some(judge),
        metrics: metrics.into_iter().collect(),
        failures: Vec::new(),
        worst_sessions: Vec::new(),
        quarantine: Vec::new(),
        gates: gate_results(rules, |_| distribution.mean()),
        stages: Vec::new(),
    }
}
