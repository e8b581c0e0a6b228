//! What is to be forgotten, looked up where runs read it: which traces are a user's, where their rows are, the identities of
//! their texts, and the questions that judges were asked about them.
//!
//! Neither the cache nor the ledger knows traces: vectors are found by the texts, and answers by the questions, which are put
//! once more, to the ledger alone.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use serde::{Deserialize, Serialize};

use super::bucket::RunBuckets;
use super::engine::{runtime, user_cache};
use super::signals_file::GivenSignals;
use super::{ScoreRequest, engine_plans, open, stages};
use crate::history::stored_run::read_json;
use crate::history::{Erasing, HistoryError, StoredRun};
use crate::job::{Given, Job, RequestRecord, SettingsError};
use crate::judge::MOST_ROUNDS;
use crate::metric::Rules;
use crate::output::directory::MANIFEST;
use crate::output::{RunDirectory, RunError};
use crate::run::inputs::inputs;
use crate::run::judging::traces::judged_metrics;
use crate::run::stages::Passes;
use crate::selection::{Ids, SamplingRate, TraceFilters};
use crate::text::TextId;
use crate::trace::format::Found;
use crate::trace::{
    BatchLimits, Code, ColumnMap, DocumentSource, FactRoom, OnBadFile, Quarantine, ReadOptions,
    SessionKey, SourceFile, TraceColumns, TraceError, TraceSource, label,
};

/// Trace ids that are held in memory at once, about 32 bytes each.
const MOST_IDS: usize = 1 << 20;

/// A file that could not be looked at, or not as it was when its run read it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct UnreadFile {
    /// The file, or the run where it is about all of its files.
    pub file: String,
    /// Why not.
    pub problem: String,
}

/// What a run asked for once: its own request, or that of a run whose rows it carries.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestOfRun {
    /// The run.
    pub run: String,
    record: RequestRecord,
    /// Whether it made vectors of texts, and asked judges.
    embeds: bool,
    judges: bool,
}

#[derive(Deserialize)]
struct Told {
    request: Option<RequestRecord>,
    #[serde(default)]
    carried_requests: Vec<RequestRecord>,
    model: Option<serde_json::Value>,
    judge: Option<serde_json::Value>,
}

/// What a run was asked, with what was asked of runs whose rows it carries.
///
/// # Errors
/// [`HistoryError`] if its manifest can't be read.
pub fn requests_of(run: &StoredRun) -> Result<Vec<RequestOfRun>, HistoryError> {
    let told: Told = read_json(&run.path, MANIFEST)?;
    let (embeds, judges) = (told.model.is_some(), told.judge.is_some());
    let records = told.request.into_iter().chain(told.carried_requests);
    let requests = records.map(|record| RequestOfRun {
        run: run.name.clone(),
        record,
        embeds,
        judges,
    });
    Ok(requests.collect())
}

/// What was found in the files of one request.
#[derive(Clone, Debug, Default)]
pub struct LookedAt {
    /// Traces of the user and sessions that are forgotten.
    pub traces: BTreeSet<String>,
    /// Rows of the traces, by the whole path of their file.
    pub rows: BTreeMap<String, BTreeSet<u64>>,
    /// The texts that were embedded for them.
    pub texts: HashSet<TextId>,
    /// What could not be read.
    pub unread: BTreeSet<UnreadFile>,
}

/// The files of a request, as they are now.
struct Opened {
    files: Vec<SourceFile>,
    map: ColumnMap,
    rules: Rules,
    /// Holds files that had to be made.
    work: tempfile::TempDir,
}

impl RequestOfRun {
    /// The ledger that its judges' answers are in, if it asked any.
    pub fn ledger(&self) -> Option<PathBuf> {
        let ledger = self.record.settings.get("ledger")?.as_str()?;
        self.judges.then(|| PathBuf::from(ledger))
    }

    /// The folder of the cache that its vectors may be in.
    pub fn cache(&self) -> Option<PathBuf> {
        let setting = |name: &str| self.record.settings.get(name);
        let off = setting("no_cache").is_some_and(|off| *off != serde_json::json!(false));
        if !self.embeds || off {
            return None;
        }
        match setting("cache").and_then(|folder| folder.as_str()) {
            Some(folder) => Some(PathBuf::from(folder)),
            None => user_cache(),
        }
    }

    /// Whether two requests are about the same files, read in the same way.
    pub fn is_like(&self, other: &Self) -> bool {
        let asked = |request: &Self| (request.embeds, request.judges);
        self.record == other.record && asked(self) == asked(other)
    }

    /// Finds the traces of the user, and of the sessions, that are forgotten.
    pub fn find_traces(&self, what: &Erasing) -> LookedAt {
        let mut looked = LookedAt::default();
        let Some(opened) = self.opened(&mut looked.unread) else {
            return looked;
        };
        let traces = &mut looked.traces;
        let documents = opened.documents(&mut looked.unread);
        let read = documents.and_then(|documents| {
            documents.read_facts_of_rows(|_, members| {
                let user = label(members, "user_id");
                let session = SessionKey::of_document(members);
                let of_session = session.is_some_and(|key| what.sessions.contains(&key.session_id));
                if (of_session || (user.is_some() && user == what.user))
                    && let Some(trace_id) = label(members, "trace_id")
                {
                    traces.insert(trace_id);
                }
            })
        });
        if let Err(e) = read {
            looked.unread.insert(self.unread(e));
        }
        looked
    }

    /// Finds the rows and the texts of the traces that are forgotten.
    pub fn find_texts(&self, what: &Erasing) -> LookedAt {
        let mut looked = LookedAt::default();
        if what.traces.is_empty() {
            return looked;
        }
        let Some(opened) = self.opened(&mut looked.unread) else {
            return looked;
        };
        let rows = &mut looked.rows;
        let documents = opened.documents(&mut looked.unread);
        let read = documents.and_then(|documents| {
            documents.read_facts_of_rows(|at, members| {
                let (_, row) = at.parts();
                if label(members, "trace_id").is_some_and(|id| what.traces.contains(&id))
                    && let Some(file) = documents.file_of(at)
                {
                    let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
                    let path = crate::text::origin_of(&path);
                    rows.entry(path).or_default().insert(row);
                }
            })
        });
        let read = read.map_err(|e| e.to_string());
        let read = read.and_then(|()| match self.embeds && !looked.rows.is_empty() {
            true => opened.texts(what, &mut looked),
            false => Ok(()),
        });
        if let Err(e) = read {
            looked.unread.insert(self.unread(e));
        }
        looked
    }

    fn unread(&self, problem: impl ToString) -> UnreadFile {
        UnreadFile {
            file: self.run.clone(),
            problem: problem.to_string(),
        }
    }

    /// The files that are still there. All others are named, and those that have changed.
    fn paths(&self, unread: &mut BTreeSet<UnreadFile>) -> Vec<String> {
        let mut paths = Vec::new();
        for (file, is_there, is_same) in self.record.files_now() {
            let problem = match (is_there, is_same) {
                (true, true) => None,
                (true, false) => Some(
                    "it has changed since the run read it, so that what it held then is not known",
                ),
                (false, _) => {
                    Some("it is not there any more, so that its texts and users are not known")
                }
            };
            if let Some(problem) = problem {
                unread.insert(UnreadFile {
                    file: file.path.clone(),
                    problem: problem.to_owned(),
                });
            }
            if is_there {
                paths.push(file.path.clone());
            }
        }
        paths
    }

    fn opened(&self, unread: &mut BTreeSet<UnreadFile>) -> Option<Opened> {
        if self.record.tables.is_some() {
            // Tables of turns: nothing of them is embedded, and they name no users.
            return None;
        }
        let paths = self.paths(unread);
        if paths.is_empty() {
            return None;
        }
        match self.open(paths, unread) {
            Ok(opened) => Some(opened),
            Err(e) => {
                unread.insert(self.unread(e));
                None
            }
        }
    }

    fn open(
        &self,
        paths: Vec<String>,
        unread: &mut BTreeSet<UnreadFile>,
    ) -> Result<Opened, String> {
        let failed = |e: SettingsError| e.to_string();
        let given = Given::of_record(&self.record.settings).map_err(failed)?;
        // Not asked for anything: neither judges nor files beside the traces are looked at.
        let job = Job::of(given).map_err(failed)?;
        let found = open::found(&job, &paths).map_err(failed)?;
        let mut rules = open::rules(&job).map_err(failed)?;
        rules.text_mode = super::inputs::text_mode(job.text_mode, &found)?;
        let work = tempfile::tempdir().map_err(|e| e.to_string())?;
        let quarantine = Quarantine::default();
        let files = files(&found, &rules, work.path(), &quarantine)?;
        name_unreadable(&quarantine, unread);
        Ok(Opened {
            files,
            map: open::column_map(&job).map_err(failed)?,
            rules,
            work,
        })
    }

    /// The hashes of the questions about these traces, and about conversations that they are part of, that the ledger may
    /// hold answers to.
    ///
    /// # Errors
    /// Why they can't be known.
    pub fn questions(&self, traces: &BTreeSet<String>) -> Result<BTreeSet<String>, String> {
        let is_there = self.ledger().is_some_and(|ledger| ledger.is_file());
        if !is_there || self.record.tables.is_some() || traces.is_empty() {
            // Verdicts on tables of turns name the hashes of their questions.
            return Ok(BTreeSet::new());
        }
        let paths = self.paths(&mut BTreeSet::new());
        if paths.is_empty() {
            return Ok(BTreeSet::new());
        }
        let failed = |e: SettingsError| e.to_string();
        let given = Given::of_record(&self.record.settings).map_err(failed)?;
        if let Some(secret) = given.missing_secrets().first() {
            return Err(format!(
                "the manifest keeps no secrets, and {secret} decides how the ledger knows its questions"
            ));
        }
        let given = given
            .without(&[
                "judge_sample",
                "sample_seed",
                "judge_only",
                "judge_tags",
                "judge_where",
                "batch",
                "batch_wait",
                "batch_poll",
                "batch_size",
                "batch_bytes",
                "max_cost",
                "max_calls",
                "max_tokens",
                "requests_per_minute",
                "tokens_per_minute",
                "judge_deadline",
                "fail_under",
                "signals",
                "offline",
                "overwrite",
                "json",
            ])
            .with("replay", true)
            .with("judge_rounds", MOST_ROUNDS.to_string())
            .with("on_bad_file", "skip");
        let job = Job::of(given).map_err(failed)?;
        let work = tempfile::tempdir().map_err(|e| e.to_string())?;
        let out = work.path().join("questions");
        let mut request = open::score(&job, paths, out, None).map_err(failed)?;
        if let Some(judge) = &mut request.judge {
            judge.filters = TraceFilters {
                trace_ids: Some(Ids::of_traces(traces)),
                ..TraceFilters::default()
            };
            judge.sample = SamplingRate::ALL;
        }
        put_again(&request).map_err(|e| e.to_string())
    }
}

/// Puts the questions of a request to the ledger alone, and says which they were.
fn put_again(request: &ScoreRequest) -> Result<BTreeSet<String>, RunError> {
    let Some(judge) = &request.judge else {
        return Ok(BTreeSet::new());
    };
    let service = judge.service(&judged_metrics(&request.rules))?;
    service.ledger().note_calls();
    let run = RunDirectory::create(&request.out, false, &[])?;
    let files = inputs(request, &run.work())?.files;
    let documents = Arc::new(stages::documents(request, files.clone(), &run.work())?);
    let passes = Passes {
        request,
        service: None,
        triage: None,
        repeats: documents.repeats(),
        targets: None,
        buckets: RunBuckets::one(),
    };
    let reading = stages::reading(request, engine_plans::columns(&request.rules, None));
    let source = Arc::new(TraceSource::open(files, reading, Arc::default())?);
    let given = GivenSignals::none();
    let judging = passes.judge(judge, &service, &documents, &source, &given, &run);
    runtime(request.engine.threads)?.block_on(judging)?;
    Ok(service.ledger().noted_calls())
}

/// Files of nightmill's own columns, made in `work` where they are of another format.
fn files(
    found: &Found,
    rules: &Rules,
    work: &Path,
    quarantine: &Quarantine,
) -> Result<Vec<SourceFile>, String> {
    let mut files = found.native.clone();
    if !found.foreign.is_empty() {
        let converted = crate::trace::format::convert(
            &found.foreign,
            &work.join("traces.parquet"),
            work,
            rules.text_mode,
            256 << 20,
            OnBadFile::Skip,
            quarantine,
        );
        files.extend(converted.map_err(|e| e.to_string())?.file);
    }
    Ok(files)
}

impl Opened {
    /// Files that can't be read are named: who is in them is not known.
    fn documents(&self, unread: &mut BTreeSet<UnreadFile>) -> Result<DocumentSource, TraceError> {
        let (files, map) = (self.files.clone(), self.map.clone());
        let room = FactRoom {
            most_ids: MOST_IDS,
            folder: self.work.path(),
        };
        let quarantine = Quarantine::default();
        let documents = DocumentSource::open(files, map, OnBadFile::Skip, room, &quarantine);
        name_unreadable(&quarantine, unread);
        documents
    }

    /// The texts of the traces, as they were embedded.
    fn texts(&self, what: &Erasing, looked: &mut LookedAt) -> Result<(), String> {
        let columns = TraceColumns {
            input: self.rules.computes("coherence"),
            output: self.rules.reads_output(),
            ..TraceColumns::ids()
        };
        let options = ReadOptions {
            columns,
            map: self.map.clone(),
            text_mode: self.rules.text_mode,
            on_bad_file: OnBadFile::Skip,
            limits: BatchLimits::default(),
        };
        let quarantine = Arc::new(Quarantine::default());
        let files = self.files.clone();
        let source = TraceSource::open(files, options, Arc::clone(&quarantine));
        let wanted: HashSet<String> = what.traces.iter().cloned().collect();
        let source = source
            .map_err(|e| e.to_string())?
            .keep_only(Arc::new(wanted));
        let read = source.read_shared(|batch| {
            texts_of(&batch, &mut looked.texts);
            true
        });
        read.map_err(|e| e.to_string())?;
        name_unreadable(&quarantine, &mut looked.unread);
        Ok(())
    }
}

/// Names the files that could not be read. Rows that are set aside were embedded in no run.
fn name_unreadable(quarantine: &Quarantine, unread: &mut BTreeSet<UnreadFile>) {
    let broken = quarantine.sorted().into_iter();
    for rows in broken.filter(|rows| rows.code == Code::UnreadableFile) {
        unread.insert(UnreadFile {
            file: crate::text::origin_of(&rows.file),
            problem: rows.reason,
        });
    }
}

fn texts_of(batch: &RecordBatch, texts: &mut HashSet<TextId>) {
    for name in ["input", "output"] {
        let Some(column) = batch.column_by_name(name) else {
            continue;
        };
        if let Some(cells) = column.as_string_view_opt() {
            let cells = (0..cells.len())
                .filter(|row| cells.is_valid(*row))
                .map(|row| cells.value(row));
            texts.extend(cells.filter(|text| !text.is_empty()).map(TextId::of));
        }
    }
}
