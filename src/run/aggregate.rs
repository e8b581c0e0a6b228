//! `nightmill aggregate`: session scores from signals that exist already. No model is loaded.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::engine::runtime;
use super::quarantine_rows;
use super::score::{Stages, gate_results};
use super::session_rows::{SessionCounts, SessionRows};
use super::{EngineRequest, Rules, RunDirectory, RunError, Summary, manifest};
use crate::engine::{
    EngineOptions, SessionPlan, Tap, engine_session, for_each_batch, given_signals, traces_table,
};
use crate::metric::{ALL, Method, SIGNALS};
use crate::trace::{
    BatchLimits, Code, ColumnMap, OnBadFile, Quarantine, ReadOptions, SourceFormat, TraceColumns,
    TraceSource, discover, repeated_trace_ids,
};

/// A validated request.
#[derive(Clone, Debug)]
pub struct AggregateRequest {
    /// Files, folders and globs with `trace_id`, `session_id`, `started_at` and signals.
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
    let mut stages = Stages::new();
    let files = discover(&request.paths, request.format)?;
    let reading = |signals: Vec<String>| ReadOptions {
        columns: TraceColumns {
            input: false,
            output: false,
            session_required: true,
            signals,
        },
        map: request.map.clone(),
        text_mode: request.rules.text_mode,
        on_bad_file: request.on_bad_file,
        limits: BatchLimits::default(),
    };
    let names: Vec<String> = SIGNALS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let quarantine = Arc::new(Quarantine::default());
    let source = Arc::new(TraceSource::open(
        files.clone(),
        reading(names),
        Arc::clone(&quarantine),
    )?);
    super::score::check_rows(&source)?;
    if !source.has_any_signal() {
        return Err(RunError::Request(format!(
            "no file has a signal column; at least one of {} must be there",
            SIGNALS.map(|(name, _)| name).join(", ")
        )));
    }
    let inputs: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    let run = RunDirectory::create(&request.out, request.overwrite, &inputs)?;
    let ids = || TraceSource::open(files.clone(), reading(Vec::new()), Arc::default());
    let repeated = repeated_trace_ids(ids, request.engine.index_memory() / 32)?;
    let merge_repeated = !repeated.is_empty();
    stages.end("open and check");
    let runtime = runtime(request.engine.threads)?;
    let (traces, without_session, sessions) =
        runtime.block_on(execute(request, &run, Arc::clone(&source), merge_repeated))?;
    stages.end("aggregate and write");

    let (rows_read, quarantined) = (source.rows_read(), quarantine.rows());
    let merged = rows_read
        .checked_sub(quarantined + traces)
        .filter(|merged| *merged == 0 || merge_repeated)
        .ok_or_else(|| {
            RunError::Plan(format!(
                "rows don't add up: {rows_read} read, {quarantined} quarantined, {traces} used"
            ))
        })?;
    let entries = quarantine.sorted();
    quarantine_rows::write(&run, &entries)?;
    let distribution = |name: &str| match name {
        "agent_reliability" => &sessions.reliability,
        _ => &sessions.consistency,
    };
    let rules = &request.rules;
    let summary = Summary {
        files: source.files().count() as u64,
        rows_read,
        traces,
        sessions: sessions.sessions,
        traces_without_session: without_session,
        empty_session_ids: source.empty_session_ids(),
        merged_duplicates: merged,
        quarantined,
        rows_left_out: 0,
        unreadable_files: entries
            .iter()
            .filter(|e| e.code == Code::UnreadableFile)
            .count() as u64,
        failed_signals: 0,
        pending_signals: 0,
        judge: None,
        non_finite_signals: source.non_finite_signals(),
        unmatched_signals: 0,
        sessions_without_evidence: sessions.without_evidence.clone(),
        evidence_required: rules.null_without_evidence,
        texts: 0,
        distinct_texts: 0,
        cached_texts: 0,
        dedup_share: None,
        tokens: 0,
        tokens_per_second: None,
        metrics: ALL
            .iter()
            .filter(|m| m.method == Method::Aggregate && rules.wants(m.name))
            .map(|m| distribution(m.name).summarise(m, rules.threshold(m.name)))
            .collect(),
        worst_sessions: sessions.worst.clone(),
        quarantine: quarantine_rows::summarise(&entries),
        gates: gate_results(rules, |metric| distribution(metric).mean()),
        stages: stages.list,
    };
    manifest::write_json(&run.path().join("summary.json"), &summary)?;
    manifest::write(
        &run,
        "aggregate",
        &source,
        rules,
        manifest::Origins::default(),
        &summary,
    )?;
    drop(runtime);
    Ok((summary, run.commit()?))
}

async fn execute(
    request: &AggregateRequest,
    run: &RunDirectory,
    source: Arc<TraceSource>,
    merge_repeated: bool,
) -> Result<(u64, u64, SessionCounts), RunError> {
    let rules: &Rules = &request.rules;
    let context = engine_session(&EngineOptions {
        threads: request.engine.threads,
        memory: request.engine.plan_memory(),
        spill_folder: run.work(),
        embedding: None,
        window: rules.window,
        weights: rules.weights.clone(),
        text_mode: rules.text_mode,
    })?;
    context.register_table(
        "traces",
        Arc::new(traces_table(source, request.engine.threads)?),
    )?;
    let sorted = given_signals(&context, merge_repeated).await?;
    let sorted = sorted.create_physical_plan().await?;
    let counts = Arc::new(Mutex::new((0u64, 0u64)));
    let tap = {
        let counts = Arc::clone(&counts);
        Tap::new(sorted, move |batch| {
            use arrow::array::Array;
            let nulls = batch
                .column_by_name("session_id")
                .map_or(0, |c| c.null_count());
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            counts.0 += batch.num_rows() as u64;
            counts.1 += nulls as u64;
            Ok(())
        })
    };
    let plan = SessionPlan {
        reliability: rules.wants("agent_reliability"),
        consistency: rules.wants("agent_consistency"),
        expected: SIGNALS.map(|(name, _)| name.to_owned()).to_vec(),
    };
    let frame = plan.sessions(&context, Arc::new(tap)).await?;
    let mut rows = SessionRows::create(run, rules, None)?;
    for_each_batch(frame, |batch| {
        rows.write(&batch).map_err(crate::engine::external)
    })
    .await?;
    let (traces, without_session) = *counts.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((traces, without_session, rows.finish(0)?))
}
