//! `nightmill aggregate`: session scores from signals that exist already. No model is loaded.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, AsArray, RecordBatch};

use super::EngineRequest;
use super::aggregated_traces::AggregatedTraces;
use super::bucket::{BucketPlace, SessionCounts, SessionTables, Sink};
use super::engine::runtime;
use super::making::{Making, making, set_aside};
use super::session_rows::{SessionColumns, SessionRows};
use super::signals_file::GivenSignals;
use crate::engine::{
    EngineOptions, SessionPlan, Tap, engine_session, for_each_batch, given_signals, traces_table,
};
use crate::history::import_scores::IMPORT;
use crate::history::{HistoryError, check_if_of_run, read_run};
use crate::metric::{ALL, Method, Rules, SIGNALS, SPAN_SIGNALS};
use crate::output::directory::MANIFEST;
use crate::output::table_writer::Parts;
use crate::output::{RunDirectory, RunError, manifest};
use crate::run::imported_signals::imported_signals;
use crate::summary::Summary;
use crate::trace::{
    BatchLimits, ColumnMap, FactRoom, OnBadFile, Quarantine, ReadOptions, SourceFormat,
    TraceColumns, TraceSource, any_id_repeats, discover,
};

/// A validated request.
#[derive(Clone, Debug)]
pub struct AggregateRequest {
    /// Files, folders and globs with `trace_id`, `session_id`, `started_at` and signals; run directories, whose table
    /// `traces` is read; and directories of imported scores, whose signals go before those of the tables.
    pub paths: Vec<String>,
    /// Read only files of this format.
    pub format: Option<SourceFormat>,
    /// The run directory to make.
    pub out: PathBuf,
    /// Replace an existing run directory.
    pub overwrite: bool,
    /// Column names.
    pub map: ColumnMap,
    /// What to do about unreadable files.
    pub on_bad_file: OnBadFile,
    /// Metrics, weights and gates.
    pub rules: Rules,
    /// Threads and memory; the model is not used.
    pub engine: EngineRequest,
}

/// Carries out the request; returns its summary and directory.
///
/// # Errors
/// [`RunError`]; no directory is left then.
pub fn aggregate(request: &AggregateRequest) -> Result<(Summary, PathBuf), RunError> {
    making(|run| make(request, run))
}

fn make(request: &AggregateRequest, making: &mut Making) -> Result<(Summary, PathBuf), RunError> {
    let of_spans = request.rules.span_signals();
    let given = Given::of(&request.paths, &of_spans)?;
    let files = discover(&given.paths, request.format)?;
    for file in &files {
        check_if_of_run(&file.path).map_err(|e| RunError::Request(e.to_string()))?;
    }
    let reading = ReadOptions {
        columns: TraceColumns {
            session_required: true,
            signals: signal_names(&of_spans),
            ..TraceColumns::ids()
        },
        map: request.map.clone(),
        text_mode: request.rules.text_mode,
        on_bad_file: request.on_bad_file,
        limits: BatchLimits::default(),
    };
    let quarantine = Arc::new(Quarantine::default());
    let source = TraceSource::open(files.clone(), reading, Arc::clone(&quarantine))?;
    let source = Arc::new(source);
    super::score::check_rows(&source)?;
    if !source.has_any_signal() {
        return Err(RunError::Request(format!(
            "no file has a signal column; at least one of {} must be there",
            SIGNALS.map(|(name, _)| name).join(", ")
        )));
    }
    let lacking = |name: &&&str| {
        let imported = given.signals.names.iter().any(|n| n == **name);
        !imported && !source.has_signal(name)
    };
    if let Some(name) = of_spans.iter().find(lacking) {
        return Err(RunError::Request(format!(
            "--weights {name}: no file has a column `{name}`; make it with `nightmill score --metrics spans`, or leave out the weight"
        )));
    }
    let inputs: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    let run = RunDirectory::create(&request.out, request.overwrite, &inputs)?;
    making.announce(&request.out, "aggregate", &request.rules.metrics);
    let room = FactRoom {
        most_ids: request.engine.index_memory() / 32,
        folder: &run.work(),
    };
    let merge_repeated = any_id_repeats(files, &request.map, request.on_bad_file, room)?;
    making.stages.end("open and check");
    let runtime = runtime(request.engine.threads)?;
    let of_triage = source.files().any(|file| is_of_triage(&file.path));
    let (seen, sessions) = runtime.block_on(execute(
        request,
        (&run, of_triage),
        Arc::clone(&source),
        merge_repeated,
        &given.signals,
    ))?;
    making.stages.end("aggregate and write");

    let (rows_read, quarantined) = (source.rows_read(), quarantine.rows());
    let traces = seen.traces;
    let merged = rows_read
        .checked_sub(quarantined + traces)
        .filter(|merged| *merged == 0 || merge_repeated)
        .ok_or_else(|| {
            RunError::Plan(format!(
                "rows don't add up: {rows_read} read, {quarantined} quarantined, {traces} used"
            ))
        })?;
    let rules = &request.rules;
    let wanted = ALL.iter();
    let wanted = wanted.filter(|m| m.method == Method::Aggregate && rules.wants(m.name));
    let mut summary = Summary {
        files: source.files().count() as u64,
        rows_read,
        traces,
        sessions: sessions.sessions,
        traces_without_session: seen.without_session,
        empty_session_ids: source.empty_session_ids(),
        merged_duplicates: merged,
        non_finite_signals: source.non_finite_signals(),
        unmatched_signals: given.signals.ids().len() as u64 - seen.with_imported,
        worst_sessions: sessions.worst_sessions(),
        sessions_without_evidence: sessions.without_evidence,
        evidence_required: rules.null_without_evidence,
        metrics: sessions.distributions.summaries(wanted, rules),
        gates: sessions.distributions.gates(rules),
        ..Summary::default()
    };
    let idle = of_spans
        .iter()
        .filter(|name| !seen.of_spans.contains(*name));
    summary.input_notes.extend(idle.map(|name| {
        format!("no trace has a value of `{name}`, so that its weight changes nothing")
    }));
    if of_triage {
        summary.input_notes.push(
            "signals are estimates of a quick model in part (their run has --triage), and so are the scores made of them"
                .into(),
        );
    }
    set_aside(&run, &quarantine, &mut summary)?;
    let origins = manifest::Origins {
        signals: given.imports.as_deref(),
        ..manifest::Origins::default()
    };
    drop(runtime);
    making.finish(run, "aggregate", source.files(), rules, origins, summary)
}

/// The four signals, and those of spans that weigh anything.
fn signal_names(of_spans: &[&str]) -> Vec<String> {
    let names = SIGNALS.iter().map(|(name, _)| name).chain(of_spans);
    names.map(|name| (*name).to_owned()).collect()
}

/// What was given to aggregate.
struct Given {
    /// Tables with signals.
    paths: Vec<String>,
    /// Signals among imported scores.
    signals: GivenSignals,
    /// Where those are from; none if there are none.
    imports: Option<String>,
}

impl Given {
    /// Tells run directories from other paths.
    fn of(paths: &[String], of_spans: &[&'static str]) -> Result<Self, RunError> {
        let failed = |e: HistoryError| RunError::Request(e.to_string());
        let (mut tables, mut imports) = (Vec::new(), Vec::new());
        for given in paths {
            let folder = Path::new(given);
            if !folder.join(MANIFEST).is_file() {
                tables.push(given.clone());
                continue;
            }
            let run = read_run(folder).map_err(failed)?;
            match folder.join("traces").is_dir() {
                true => tables.push(folder.join("traces").display().to_string()),
                false if run.command == IMPORT => imports.push(run),
                false => {
                    return Err(RunError::Request(format!(
                        "the run `{given}` has no table `traces`, whose signals could be aggregated; name a run of `score`"
                    )));
                }
            }
        }
        if tables.is_empty() {
            return Err(RunError::Request(
                "imported scores alone say nothing of sessions; name the run that they are of too"
                    .into(),
            ));
        }
        let names: Vec<String> = imports
            .iter()
            .map(|run| run.path.display().to_string())
            .collect();
        Ok(Self {
            paths: tables,
            signals: imported_signals(&imports, of_spans).map_err(failed)?,
            imports: (!names.is_empty()).then(|| names.join(", ")),
        })
    }
}

/// Whether a file is of a run whose scores are a quick model's estimates in part.
fn is_of_triage(file: &Path) -> bool {
    let run = file.parent().and_then(Path::parent);
    let text = run.and_then(|run| std::fs::read(run.join("manifest.json")).ok());
    let manifest: Option<serde_json::Value> =
        text.and_then(|text| serde_json::from_slice(&text).ok());
    manifest.is_some_and(|manifest| !manifest["model"]["triage"].is_null())
}

/// What passed through the plan.
#[derive(Default)]
struct Seen {
    traces: u64,
    without_session: u64,
    /// Traces with an imported signal.
    with_imported: u64,
    /// Signals of spans that any trace has.
    of_spans: HashSet<&'static str>,
}

/// Watches the rows of the plan: counts and writes them.
struct Watch {
    seen: Seen,
    imported: HashSet<String>,
    rows: AggregatedTraces,
}

impl Watch {
    fn see(&mut self, batch: &RecordBatch) -> Result<(), RunError> {
        let nulls = batch
            .column_by_name("session_id")
            .map_or(0, |c| c.null_count());
        self.seen.traces += batch.num_rows() as u64;
        self.seen.without_session += nulls as u64;
        for name in SPAN_SIGNALS {
            let values = batch.column_by_name(name);
            if values.is_some_and(|values| values.null_count() < values.len()) {
                self.seen.of_spans.insert(name);
            }
        }
        if !self.imported.is_empty()
            && let Some(ids) = batch.column_by_name("trace_id")
        {
            let ids = ids.as_string::<i32>().iter().flatten();
            self.seen.with_imported += ids.filter(|id| self.imported.contains(*id)).count() as u64;
        }
        self.rows.write(batch)
    }
}

async fn execute(
    request: &AggregateRequest,
    (run, of_triage): (&RunDirectory, bool),
    source: Arc<TraceSource>,
    merge_repeated: bool,
    imported: &GivenSignals,
) -> Result<(Seen, SessionCounts), RunError> {
    let rules: &Rules = &request.rules;
    let context = engine_session(&EngineOptions {
        threads: request.engine.threads,
        memory: request.engine.plan_memory(),
        spill_folder: run.work(),
        embedding: None,
        triage: None,
        window: rules.window,
        weights: rules.weights.clone(),
        text_mode: rules.text_mode,
    })?;
    context.register_table(
        "traces",
        Arc::new(traces_table(source, request.engine.threads)?),
    )?;
    if !imported.names.is_empty() {
        context.register_table("signals", imported.table()?)?;
    }
    let of_spans = rules.span_signals();
    let sorted = given_signals(&context, merge_repeated, &of_spans, &imported.names).await?;
    let sorted = sorted.create_physical_plan().await?;
    let watch = Arc::new(Mutex::new(Some(Watch {
        seen: Seen::default(),
        imported: imported.ids(),
        rows: AggregatedTraces::create(run, &rules.weights)?,
    })));
    let tap = {
        let watch = Arc::clone(&watch);
        Tap::new(sorted, move |batch| {
            let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
            match watch.as_mut() {
                Some(watch) => watch.see(batch).map_err(crate::engine::external),
                None => Ok(()),
            }
        })
    };
    let plan = SessionPlan {
        reliability: rules.wants("agent_reliability"),
        consistency: rules.wants("agent_consistency"),
        expected: signal_names(&of_spans),
        span_signals: of_spans,
        labels: false,
        session_signals: false,
    };
    let frame = plan.sessions(&context, Arc::new(tap)).await?;
    let mut rows = SessionRows::of(rules, None, None).of_triage(of_triage);
    let mut tables = SessionTables::create(
        &BucketPlace::of(run, Parts::OfAll),
        SessionColumns::default(),
    )?;
    for_each_batch(frame, |batch| {
        let written = rows.make(&batch).and_then(|rows| tables.write(rows));
        written.map_err(crate::engine::external)
    })
    .await?;
    tables.finish(0)?;
    let watch = watch.lock().unwrap_or_else(PoisonError::into_inner).take();
    let watch = watch.ok_or_else(|| RunError::Plan("the rows were counted twice".into()))?;
    watch.rows.finish()?;
    Ok((watch.seen, rows.counts))
}
