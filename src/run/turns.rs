//! `nightmill conversations`: judges the transcripts of a table of turns (as in Connexity).

use std::path::PathBuf;
use std::sync::Arc;

use crate::conversation::from_tables::{Choice, Tables};
use crate::conversation::tables::turns_and_cases::{CASES, TURNS};
use crate::conversation::{ConversationRequest, ConversationSummary, Listener, judge_each};
use crate::job::{RequestRecord, TablesRecord};
use crate::metric::{ALL, CONVERSATION, Rules};
use crate::output::{Distributions, RunDirectory, RunError, manifest};
use crate::run::engine::runtime;
use crate::run::judging::request::JudgeRequest;
use crate::run::judging::summary;
use crate::run::making::{Making, making, set_aside};
use crate::run::{Progress, retry_conversations};
use crate::summary::Summary;
use crate::trace::{OnBadFile, Quarantine, SourceFile, SourceFormat, TableSource, discover};

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
    making(|run| make(request, progress, run))
}

fn make(
    request: &TurnsRequest,
    progress: &Progress,
    making: &mut Making,
) -> Result<(Summary, PathBuf), RunError> {
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
    making.announce(&request.out, "conversations", &request.rules.metrics);
    making.stages.end("open and check");

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
    making.stages.end("read turns");

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
    making.stages.end("judge");

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
    let rules = &request.rules;
    let mut distributions = Distributions::default();
    distributions.insert(CONVERSATION, judged.distribution);
    let metric = ALL.iter().filter(|metric| metric.name == CONVERSATION);
    let mut summary = Summary {
        files: opened().count() as u64,
        rows_read: counts.turn_rows + counts.case_rows,
        sessions: chosen as u64,
        merged_duplicates: counts.merged_turns,
        evidence_required: true,
        judge: Some(judge),
        metrics: distributions.summaries(metric, rules),
        gates: distributions.gates(rules),
        ..Summary::default()
    };
    set_aside(&run, &quarantine, &mut summary)?;
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
    drop(runtime);
    making.finish(run, "conversations", opened(), rules, origins, summary)
}
