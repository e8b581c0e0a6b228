//! `nightmill score`: the main job.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::engine::runtime;
use super::quarantine_rows;
use super::session_rows::{SessionCounts, SessionRows};
use super::signals_file::GivenSignals;
use super::trace_rows::{ModelLabel, TraceCounts, TraceRows};
use super::{
    EngineRequest, GateResult, Rules, RunDirectory, RunError, Summary, load_service, manifest,
    worst,
};
use crate::embed::{EmbeddingCounts, EmbeddingService};
use crate::engine::{
    EngineOptions, ScorePlan, SessionPlan, Tap, engine_session, for_each_batch, traces_table,
};
use crate::trace::{
    BatchLimits, Code, ColumnMap, OnBadFile, Quarantine, ReadOptions, SourceFile, SourceFormat,
    TraceColumns, TraceSource, discover, repeated_trace_ids,
};

/// A validated request.
#[derive(Clone, Debug)]
pub struct ScoreRequest {
    /// Files, folders and globs.
    pub paths: Vec<String>,
    /// The run directory to make.
    pub out: PathBuf,
    /// Replace an existing run directory.
    pub overwrite: bool,
    /// Read only files of this format.
    pub format: Option<SourceFormat>,
    /// Column names and JSON columns.
    pub map: ColumnMap,
    /// What to do about unreadable files.
    pub on_bad_file: OnBadFile,
    /// Precomputed signals.
    pub signals: Option<String>,
    /// Metrics, thresholds, weights and the like.
    pub rules: Rules,
    /// Model, threads and memory.
    pub engine: EngineRequest,
    /// Write report.html.
    pub report: bool,
}

/// What a run has done so far; read by whoever shows it, from any thread.
#[derive(Debug, Default)]
pub struct Progress {
    source: OnceLock<Arc<TraceSource>>,
    service: OnceLock<Arc<EmbeddingService>>,
    stage: Mutex<&'static str>,
}

impl Progress {
    /// Rows read and rows expected, once the files are open.
    pub fn rows(&self) -> Option<(u64, Option<u64>)> {
        self.source
            .get()
            .map(|source| (source.rows_read(), source.rows_expected()))
    }

    /// Texts and tokens embedded, once the model is loaded.
    pub fn embedding(&self) -> Option<EmbeddingCounts> {
        self.service.get().map(|service| service.counts())
    }

    /// What is being done now.
    pub fn stage(&self) -> &'static str {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn enter(&self, stage: &'static str) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
        tracing::info!(stage, "stage");
    }
}

/// Seconds by stage.
#[derive(Debug)]
pub(super) struct Stages {
    last: Instant,
    pub list: Vec<(String, f64)>,
}

impl Stages {
    pub fn new() -> Self {
        Self {
            last: Instant::now(),
            list: Vec::new(),
        }
    }

    /// Ends a stage that began where the last one ended.
    pub fn end(&mut self, name: &str) {
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        self.list.push((name.to_owned(), seconds));
    }

    /// Ends a stage within which something else took a known part of the time.
    pub fn end_as_two(&mut self, part: &str, seconds: f64, rest: &str) {
        self.end(rest);
        if let Some((_, whole)) = self.list.last_mut() {
            let seconds = seconds.min(*whole);
            *whole -= seconds;
            self.list
                .insert(self.list.len() - 1, (part.to_owned(), seconds));
        }
    }
}

fn reading(request: &ScoreRequest, columns: TraceColumns) -> ReadOptions {
    ReadOptions {
        columns,
        map: request.map.clone(),
        text_mode: request.rules.text_mode,
        on_bad_file: request.on_bad_file,
        limits: BatchLimits {
            bytes: request.engine.batch_bytes(),
            ..BatchLimits::default()
        },
    }
}

/// Carries out a scoring run and returns its summary and directory.
///
/// # Errors
/// [`RunError`]; no directory is left then.
pub fn score(request: &ScoreRequest, progress: &Progress) -> Result<(Summary, PathBuf), RunError> {
    let mut stages = Stages::new();
    progress.enter("opening files");
    request.engine.check()?;
    let files = discover(&request.paths, request.format)?;
    let rules = &request.rules;
    let columns = TraceColumns {
        input: rules.computes("coherence"),
        output: true,
        session_required: rules.wants("loop_detection") || rules.wants_sessions(),
        signals: Vec::new(),
    };
    let quarantine = Arc::new(Quarantine::default());
    let source = Arc::new(TraceSource::open(
        files.clone(),
        reading(request, columns),
        Arc::clone(&quarantine),
    )?);
    let _ = progress.source.set(Arc::clone(&source));
    if source.rows_expected() == Some(0) && quarantine.sorted().is_empty() {
        return Err(RunError::Request(format!(
            "no rows to score: {} files were opened and all are empty",
            source.files().count()
        )));
    }
    let mut inputs: Vec<PathBuf> = files.iter().map(|file| file.path.clone()).collect();
    inputs.extend(request.signals.as_ref().map(PathBuf::from));
    inputs.extend(request.engine.model.clone());
    let run = RunDirectory::create(&request.out, request.overwrite, &inputs)?;
    let merge_repeated = repeats(request, &files)?;
    stages.end("open and check");

    progress.enter("loading the model");
    let service = load_service(&request.engine, &run.work())?;
    let _ = progress.service.set(Arc::clone(&service));
    stages.end("load model");

    progress.enter("scoring");
    let runtime = runtime(request.engine.threads)?;
    let (traces, sessions, given) = runtime.block_on(execute(
        request,
        &run,
        Arc::clone(&source),
        Arc::clone(&service),
        merge_repeated,
    ))?;
    service.finish();
    let counts = service.counts();
    stages.end_as_two("embed", counts.embed_seconds, "read, score and write");

    progress.enter("writing the report");
    let mut summary = summarise(request, &source, &quarantine, traces, sessions, counts)?;
    if let Some(given) = given {
        summary.non_finite_signals = given.non_finite;
        summary.unmatched_signals = given.unmatched;
    }
    let entries = quarantine.sorted();
    quarantine_rows::write(&run, &entries)?;
    summary.quarantine = quarantine_rows::summarise(&entries);
    if request.report {
        let worst = worst::read(&run, &source, &summary.worst_sessions, rules)?;
        stages.end("read worst sessions");
        summary.stages = stages.list;
        write_report(request, &run, &source, &service, &summary, &worst)?;
    } else {
        summary.stages = stages.list;
    }
    manifest::write_json(&run.path().join("summary.json"), &summary)?;
    let model = manifest::model(Some(&service), Some(&request.engine));
    manifest::write(
        &run,
        "score",
        &source,
        rules,
        model,
        request.signals.as_deref(),
        &summary,
    )?;
    drop(runtime);
    Ok((summary, run.commit()?))
}

fn write_report(
    request: &ScoreRequest,
    run: &RunDirectory,
    source: &TraceSource,
    service: &EmbeddingService,
    summary: &Summary,
    worst: &[worst::ShownSession],
) -> Result<(), RunError> {
    let model = service.model();
    let facts = crate::report::Facts {
        title: request
            .out
            .file_name()
            .map_or_else(|| "run".into(), |n| n.to_string_lossy().into_owned()),
        model: Some((model.name.clone(), model.sha256.clone())),
        precision: model.encoder.precision().into(),
        device: model.encoder.device(),
        inputs: source
            .files()
            .map(|f| f.path.display().to_string())
            .collect(),
        signals: request.signals.clone(),
    };
    let html =
        crate::report::html(&facts, &request.rules, summary, worst).map_err(RunError::Plan)?;
    let path = run.path().join("report.html");
    std::fs::write(&path, html).map_err(|e| RunError::write(&path, e))
}

/// Whether trace ids repeat. Reads the id column alone.
fn repeats(request: &ScoreRequest, files: &[SourceFile]) -> Result<bool, RunError> {
    let columns = TraceColumns {
        input: false,
        output: false,
        session_required: false,
        signals: Vec::new(),
    };
    let most = request.engine.index_memory() / 32;
    let open = || {
        TraceSource::open(
            files.to_vec(),
            reading(request, columns.clone()),
            Arc::default(),
        )
    };
    Ok(repeated_trace_ids(open, most)?)
}

struct Given {
    non_finite: u64,
    unmatched: u64,
}

async fn execute(
    request: &ScoreRequest,
    run: &RunDirectory,
    source: Arc<TraceSource>,
    service: Arc<EmbeddingService>,
    merge_repeated: bool,
) -> Result<(TraceCounts, SessionCounts, Option<Given>), RunError> {
    let rules = &request.rules;
    let labels = ModelLabel {
        model: service.model().name.clone(),
        precision: service.model().encoder.precision().into(),
    };
    let context = engine_session(&EngineOptions {
        threads: request.engine.threads,
        memory: request.engine.plan_memory(),
        spill_folder: run.work(),
        embedding: Some(service),
        window: rules.window,
        weights: rules.weights.clone(),
        text_mode: rules.text_mode,
    })?;
    context.register_table(
        "traces",
        Arc::new(traces_table(source, request.engine.threads)?),
    )?;
    let given = match &request.signals {
        Some(path) => Some(GivenSignals::read(path).await?),
        None => None,
    };
    if let Some(given) = &given {
        context.register_table("signals", given.table()?)?;
    }
    let plan = ScorePlan {
        merge_repeated,
        given_signals: given.as_ref().map(|g| g.names.clone()).unwrap_or_default(),
        coherence: rules.computes("coherence"),
        loop_detection: rules.computes("loop_detection"),
    };
    let scored = plan.scored(&context).await?.create_physical_plan().await?;
    tracing::debug!(plan = %datafusion::physical_plan::displayable(scored.as_ref()).indent(false), "plan of traces");

    let trace_rows = TraceRows::create(
        run,
        rules,
        Some(labels.clone()),
        given.as_ref().map(|g| g.ids.clone()),
    )?;
    let (sender, writer) = trace_rows.on_own_thread()?;
    let tap = Tap::new(scored, move |batch| {
        // The writer only stops listening when it has failed; its own error is the one to report.
        sender.send(batch.clone()).map_err(|_| {
            crate::engine::external(RunError::Plan("trace rows can't be written".into()))
        })
    });
    let sessions = SessionPlan {
        reliability: rules.wants("agent_reliability"),
        consistency: rules.wants("agent_consistency"),
    };
    let frame = sessions.sessions(&context, Arc::new(tap)).await?;
    let mut session_rows = SessionRows::create(run, rules, Some(labels))?;
    let ran = for_each_batch(frame, |batch| {
        session_rows.write(&batch).map_err(crate::engine::external)
    })
    .await;
    // The plan and with it the channel's sending end are gone; the writer comes to its end.
    drop(context);
    let written = writer
        .join()
        .map_err(|_| RunError::Plan("the writer of trace rows panicked".into()))?;
    let (last_part, mut trace_counts) = written?;
    trace_counts.merged = merge_repeated;
    ran?;
    let session_counts = session_rows.finish(last_part + 1)?;
    let given = given.map(|given| Given {
        non_finite: given.non_finite,
        unmatched: given.ids.len() as u64 - trace_counts.with_given_signals,
    });
    Ok((trace_counts, session_counts, given))
}

pub(super) fn gate_results(rules: &Rules, mean: impl Fn(&str) -> Option<f64>) -> Vec<GateResult> {
    rules
        .gates
        .iter()
        .map(|gate| {
            let value = mean(&gate.metric);
            GateResult {
                metric: gate.metric.clone(),
                minimum: gate.minimum,
                value: value.map(crate::metric::round4),
                passed: value.is_some_and(|v| v >= gate.minimum),
            }
        })
        .collect()
}

fn summarise(
    request: &ScoreRequest,
    source: &TraceSource,
    quarantine: &Quarantine,
    traces: TraceCounts,
    sessions: SessionCounts,
    embedding: EmbeddingCounts,
) -> Result<Summary, RunError> {
    let rules = &request.rules;
    let (rows_read, quarantined) = (source.rows_read(), quarantine.rows());
    let kept = rows_read.checked_sub(quarantined);
    let merged = kept.and_then(|kept| kept.checked_sub(traces.traces))
        .filter(|merged| *merged == 0 || traces.merged).ok_or_else(|| {
        RunError::Plan(format!(
            "rows don't add up: {rows_read} read, {quarantined} quarantined, {} scored; nothing was written",
            traces.traces
        ))
    })?;
    let distribution = |name: &str| match name {
        "coherence" => &traces.coherence,
        "loop_detection" => &traces.loop_detection,
        "agent_reliability" => &sessions.reliability,
        _ => &sessions.consistency,
    };
    let metrics = crate::metric::ALL
        .iter()
        .filter(|m| {
            rules.wants(m.name)
                || (m.level == crate::metric::Level::Trace && rules.computes(m.name))
        })
        .map(|m| distribution(m.name).summarise(m, rules.threshold(m.name)))
        .collect();
    let unreadable = quarantine
        .sorted()
        .iter()
        .filter(|e| e.code == Code::UnreadableFile)
        .count() as u64;
    let share = |part: u64, whole: u64| {
        (whole > 0).then(|| crate::metric::round4(part as f64 / whole as f64))
    };
    Ok(Summary {
        files: source.files().count() as u64,
        rows_read,
        traces: traces.traces,
        sessions: sessions.sessions,
        traces_without_session: traces.without_session,
        empty_session_ids: source.empty_session_ids(),
        merged_duplicates: merged,
        quarantined,
        unreadable_files: unreadable,
        failed_signals: traces.failed_signals,
        non_finite_signals: 0,
        unmatched_signals: 0,
        sessions_without_evidence: sessions.without_evidence.clone(),
        texts: embedding.texts,
        distinct_texts: embedding.distinct_texts,
        cached_texts: embedding.cache.found,
        dedup_share: share(
            embedding.texts.saturating_sub(embedding.distinct_texts),
            embedding.texts,
        ),
        tokens: embedding.tokens,
        tokens_per_second: (embedding.tokens > 0)
            .then(|| (embedding.tokens as f64 / embedding.embed_seconds).round()),
        metrics,
        gates: gate_results(rules, |metric| distribution(metric).mean()),
        worst_sessions: sessions.worst,
        quarantine: Vec::new(),
        stages: Vec::new(),
    })
}
