//! `nightmill score`: the main job.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::attention::{self, AttentionModel};
use super::bucket::{self, Asked, BucketCounts, RunBuckets};
use super::engine::runtime;
use super::making::{Making, making, set_aside};
use super::signals_file::GivenSignals;
use super::summarise::summarise;
use super::worker::Exchange;
use super::{EngineRequest, PageWriter, Progress, Retry, elsewhere, engine_plans, page};
use crate::job::{CalibratedModel, Calibration, RequestRecord, whole_path};
use crate::metric::session_signal::ATTENTION;
use crate::metric::{CONVERSATION, Rules};
use crate::output::{RunDirectory, RunError, manifest};
use crate::run::inputs::inputs;
use crate::run::judging::request::JudgeRequest;
use crate::run::judging::traces;
use crate::run::night::{self, Night};
use crate::run::stages::{Known, Passes};
use crate::run::{carried, retry_conversations, stages, triage};
use crate::selection::TargetChoice;
use crate::summary::{BucketSummary, PageSessions, Summary, TriageSummary, first_texts};
use crate::trace::format::Found;
use crate::trace::{Buckets, ColumnMap, OnBadFile, Quarantine, SourceFile, TraceSource};

/// A validated request.
#[derive(Clone, Debug)]
pub struct ScoreRequest {
    /// The files of the traces.
    pub found: Found,
    /// The run directory to make.
    pub out: PathBuf,
    /// Replace an existing run directory.
    pub overwrite: bool,
    /// Column names and JSON columns.
    pub map: ColumnMap,
    /// What to do about unreadable files.
    pub on_bad_file: OnBadFile,
    /// Precomputed signals.
    pub signals: Option<String>,
    /// The file of a calibration, and what it holds.
    pub calibration: Option<(PathBuf, Calibration)>,
    /// Metrics, thresholds, weights and the like.
    pub rules: Rules,
    /// Model, threads and memory.
    pub engine: EngineRequest,
    /// The folder of a quick model that decides what it can.
    pub triage: Option<PathBuf>,
    /// Judges, if any metric asks one.
    pub judge: Option<JudgeRequest>,
    /// A run, or a folder of runs, whose latest one this run continues.
    pub continues: Option<PathBuf>,
    /// In how many buckets; none are as many as suit the rows, or as the run has that this one continues.
    pub buckets: Option<Buckets>,
    /// Whether to go on with what a run to the same directory has finished, which was broken off.
    pub resume: bool,
    /// Whether a run that continues another one fails if it is worse than the nights before it.
    pub fail_on_drift: bool,
    /// Whether nothing may be fetched from other machines.
    pub offline: bool,
    /// Who has the parts of the run done by other processes; none is this process itself.
    pub exchange: Option<Arc<dyn Exchange>>,
    /// Which traces or sessions are evaluated; none takes all.
    pub targets: Option<TargetChoice>,
    /// Makes report.html, if one is wanted.
    pub report: Option<PageWriter>,
    /// A name beside that of the directory.
    pub name: Option<String>,
    /// The monitor that the run is of.
    pub monitor_id: Option<String>,
    /// Metrics that were asked for; the rules may hold signals beside them, for session metrics.
    pub metric_names: Vec<String>,
    /// The request as it was given, for the manifest.
    pub record: RequestRecord,
}

impl ScoreRequest {
    /// The run whose failures this one asks again, if it does.
    fn retry(&self) -> Option<&Retry> {
        self.judge.as_ref()?.retry.as_deref()
    }

    /// Whether it asks the failures of a run again.
    pub(super) fn is_retry(&self) -> bool {
        self.retry().is_some()
    }
}

/// Carries out a scoring run and returns its summary and directory.
///
/// # Errors
/// [`RunError`]; no directory is left then.
pub fn score(request: &ScoreRequest, progress: &Progress) -> Result<(Summary, PathBuf), RunError> {
    making(|run| make(request, progress, run))
}

fn make(
    request: &ScoreRequest,
    progress: &Progress,
    making: &mut Making,
) -> Result<(Summary, PathBuf), RunError> {
    progress.enter("opening files");
    request.engine.check()?;
    if request.exchange.is_some() {
        elsewhere::check(request)?;
    }
    // No run may replace what it was given.
    let mut given_files: Vec<PathBuf> = request.found.originals().map(Path::to_owned).collect();
    given_files.extend(request.signals.as_ref().map(PathBuf::from));
    given_files.extend(request.engine.model.clone());
    given_files.extend(request.triage.clone());
    given_files.extend(request.judge.as_ref().map(|judge| judge.ledger.clone()));
    let begin = match request.resume {
        true => RunDirectory::resume,
        false => RunDirectory::create,
    };
    let directory = || begin(&request.out, request.overwrite, &given_files);
    // Files that have to be made are made in the run's own directory: that there is room for it is known before.
    let needed = !request.found.foreign.is_empty() || request.continues.is_some();
    let early = needed.then(directory).transpose()?;
    if !request.found.foreign.is_empty() {
        progress.enter("reading other formats");
    }
    let work = early.as_ref().map(RunDirectory::work).unwrap_or_default();
    let mut opened = inputs(request, &work)?;
    let files = opened.files.clone();
    let mut record = request.record.clone();
    record.report = request.report.is_some();
    record.targets.clone_from(&request.targets);
    record.note_files(&files);
    let night = match &request.continues {
        None => None,
        Some(path) => {
            progress.enter("looking at earlier nights");
            let night = Night::prepare(request, path, &files, &work)?;
            record.continues.clone_from(&night.continues.path);
            Some(night)
        }
    };
    let files = match &night {
        None => files,
        Some(night) => night.with(files),
    };
    let rules = &request.rules;
    let asking = request.judge.as_ref();
    let condition = asking.and_then(|judge| judge.condition.as_deref());
    let columns = engine_plans::columns(rules, condition);
    let quarantine = Arc::new(Quarantine::default());
    let source = TraceSource::open(
        files.clone(),
        stages::reading(request, columns),
        Arc::clone(&quarantine),
    )?;
    check_rows(&source)?;
    if request.retry().is_none() {
        // A retry reads texts as its run did.
        source.check_texts()?;
    }
    // Files that were set aside have no part in anything that follows.
    let files: Vec<SourceFile> = source.files().cloned().collect();
    // Providers, keys and the ledger are checked before anything takes time.
    let judges = traces::judged_metrics(rules);
    let judge = match &request.judge {
        Some(judge) if !judges.is_empty() || judge.conversation.is_some() => {
            Some((judge, judge.service(&judges)?))
        }
        _ => None,
    };
    let run = early.map_or_else(directory, Ok)?;
    let chosen = judge.is_some() || request.targets.is_some();
    let known = Known::of(request, files.clone(), chosen, &run.work())?;
    let targets = stages::targets(request, &known)?;
    let nothing = targets.as_ref().is_some_and(|targets| targets.is_empty());
    if nothing && request.monitor_id.is_none() && request.retry().is_none() {
        return Err(RunError::Request(
            "no trace is chosen: none passes --filters, --tags and ids, or --sample takes none"
                .into(),
        ));
    }
    let source = Arc::new(match &targets {
        None => source,
        Some(targets) => source.keep_only(Arc::clone(targets)),
    });
    let _ = progress.source.set(Arc::clone(&source));
    if let Some(documents) = &known.documents {
        retry_conversations::prepare(request, documents)?;
    }
    making.stages.end("open and check");

    let mut service = None;
    let mut quick_model = None;
    if !rules.needs_no_model() {
        progress.enter("loading the model");
        let (loaded, quick) = triage::load(request, &files, targets.as_ref(), &run.work())?;
        quick_model = quick;
        let _ = progress.service.set(Arc::clone(&loaded));
        if let Some(retry) = request.retry() {
            retry.check_model(&loaded)?;
        }
        if let Some(night) = &night {
            let now = manifest::model(&loaded, request.engine.model.as_deref());
            opened.notes.extend(night.check_model(&now)?);
        }
        if let Some((_, calibration)) = &request.calibration {
            let model = loaded.model();
            let model = CalibratedModel {
                name: model.name.clone(),
                sha256: model.sha256.clone(),
                precision: model.encoder.precision().into(),
            };
            let checked = calibration.check(Some(&model), rules.text_mode.name());
            checked.map_err(RunError::Request)?;
        }
        making.stages.end("load model");
        service = Some(loaded);
    }
    let counts = || {
        service.as_ref()?;
        let counts = progress.embedding()?;
        Some(match &quick_model {
            None => counts,
            Some(triage) => triage::counts(counts, triage),
        })
    };

    let runtime = runtime(request.engine.threads)?;
    let mut given = match &request.signals {
        Some(path) => runtime.block_on(GivenSignals::read(path, &rules.span_signals()))?,
        None => GivenSignals::none(),
    };
    for (trace_id, signal, value) in night.iter().flat_map(|night| &night.signals) {
        if !given.has(trace_id, signal) {
            given.add(trace_id, signal, *value);
        }
    }
    if request.monitor_id.is_none() {
        // Everything that was asked for is there. Whoever runs a monitor has announced it before.
        making.announce(&request.out, "score", &request.metric_names);
    }
    let mut given_ids = given.ids();
    if let Some(targets) = &targets {
        given_ids.retain(|trace_id| targets.contains(trace_id));
    }
    let asked = Asked {
        record: &record,
        files: &files,
        work: &run.work(),
        rules,
        model: service.as_deref(),
        continues: night.as_ref().map(|night| json!(night.continues)),
    };
    let count = bucket::buckets(request, &source, night.as_ref());
    let buckets = RunBuckets::open(
        &run,
        count,
        &asked.json(count),
        judge.is_some(),
        request.exchange.is_some(),
    )?;
    let resumed = buckets.done_before.len() as u64;
    let passes = Passes {
        request,
        service: service.clone(),
        triage: quick_model.clone(),
        repeats: known.repeats,
        targets,
        buckets,
    };
    let judged = match (&judge, &known.documents) {
        (Some((judge, judges)), Some(documents)) => {
            progress.enter("judging");
            let judged = passes.judge(judge, judges, documents, &source, &given, &run);
            let judged = runtime.block_on(judged)?;
            making.stages.end("judge");
            Some(judged)
        }
        _ => None,
    };
    let (store, judge_summary, conversations, computed) = match judged {
        None => (None, None, None, None),
        Some(judged) => (
            judged.traces,
            Some(judged.summary),
            judged.conversations,
            judged.computed,
        ),
    };

    progress.enter("scoring");
    let scored = match &request.exchange {
        None => runtime.block_on(passes.score(
            &run,
            Arc::clone(&source),
            &given,
            given_ids.clone(),
            (store, computed),
            night.as_ref(),
        ))?,
        Some(exchange) => elsewhere::score(
            &passes,
            exchange,
            &runtime,
            elsewhere::Given {
                run: &run,
                source: &source,
                signals: &given,
                judgements: store,
                night: night.as_ref(),
                quarantine: &quarantine,
                progress,
            },
        )?,
    };
    let BucketCounts {
        mut traces,
        mut sessions,
    } = scored;
    if let Some(night) = &night {
        night::write_replaced(&run, night)?;
    }
    if let Some(conversations) = &conversations {
        conversations.scores.append(&run)?;
    }
    let attention = match rules.wants(ATTENTION) {
        true => Some(attention::order(&run, &order_model(request))?),
        false => None,
    };
    if let Some(service) = &service {
        service.finish();
    }
    let counts = counts().unwrap_or_default();
    match &service {
        None => making.stages.end("read, score and write"),
        Some(_) => {
            let seconds = counts.embed_seconds;
            making
                .stages
                .end_as_two("embed", seconds, "read, score and write");
        }
    }

    progress.enter("writing the report");
    let unmatched = given_ids.len() as u64 - traces.with_given_signals;
    let conversations = conversations.map(|c| c.distribution).unwrap_or_default();
    let mut distributions = std::mem::take(&mut traces.distributions);
    distributions.join(std::mem::take(&mut sessions.distributions));
    distributions.insert(CONVERSATION, conversations);
    let mut summary = Summary {
        non_finite_signals: given.non_finite,
        unmatched_signals: unmatched,
        judge: judge_summary,
        ..summarise(
            request,
            &source,
            (quarantine.rows(), known.repeats),
            traces,
            &sessions,
            &distributions,
            counts,
        )?
    };
    summary.input_notes.clone_from(&opened.notes);
    summary.distributions = distributions;
    summary.attention = attention;
    let calibration = request.calibration.as_ref();
    if let Some(slice) = calibration.and_then(|(_, of)| of.origin.slice.as_ref()) {
        summary.input_notes.push(format!(
            "--calibration: it is of sessions with {slice}, and all sessions of this run go by it"
        ));
    }
    if let Some(exchange) = &request.exchange {
        summary.input_notes.push(format!(
            "done by {}; texts that are in several parts count as distinct in each",
            exchange.name()
        ));
    }
    if let count @ 1.. = source.unreadable_spans() {
        summary.input_notes.push(format!(
            "spans of {count} traces can't be read: signals of sessions go without them; --metrics spans says why"
        ));
    }
    summary.triage = match (&service, &quick_model) {
        (Some(service), Some(triage)) => Some(triage::summary(service, triage, rules)),
        _ => None,
    };
    let of_triage = summary.triage.as_ref().map(TriageSummary::line);
    if of_triage.is_some() && night.is_some() {
        summary.input_notes.push(
            "--triage: what this night estimates is learnt from its own pairs; one run over all files would estimate it otherwise"
                .into(),
        );
    }
    summary.input_notes.extend(of_triage);
    summary.buckets = (count != Buckets::ONE).then(|| BucketSummary {
        count: count.count(),
        resumed,
        texts_left_out: resumed > 0 && (!known.repeats || request.exchange.is_some()),
    });
    summary.continued = night.as_ref().map(|night| night.summary.clone());
    opened
        .set_aside
        .sorted()
        .into_iter()
        .for_each(|entry| quarantine.add(entry));
    opened.name_given(&quarantine);
    set_aside(&run, &quarantine, &mut summary)?;
    let mut listed = PageSessions::default();
    if request.report.is_some() {
        listed = page::sessions(&run, &source, &summary)?;
        summary.first_texts = first_texts(&listed);
        making.stages.end("read worst sessions");
    }
    let signals = request.signals.as_ref();
    let signals = signals.map(|path| crate::text::origin_of(Path::new(path)));
    carried::keep(&run, &source, night.as_ref(), &record.files)?;
    tracing::info!(
        rows = summary.rows_read,
        scored = source.rows_decoded(),
        looked_up = known.documents.as_ref().map_or(0, |d| d.rows_decoded()),
        "rows decoded, each as often as it was"
    );
    let origins = manifest::Origins {
        model: service.as_ref().map_or(serde_json::Value::Null, |service| {
            let mut model = manifest::model(service, request.engine.model.as_deref());
            if let Some(triage) = &summary.triage {
                model["triage"] = json!(triage);
            }
            model
        }),
        judge: judge.as_ref().map(|(judge, _)| judge.described()).into(),
        signals: signals.as_deref(),
        request: serde_json::json!(record),
        name: request
            .retry()
            .map(|retry| retry.name.as_str())
            .or(request.name.as_deref()),
        monitor_id: request.monitor_id.as_deref(),
        metric_names: Some(&request.metric_names),
        retry: request.retry().map(|retry| retry.retried()),
        continues: night.as_ref().map(|night| json!(night.continues)),
        calibration: request.calibration.as_ref().map(|(path, of)| {
            json!({
                "file": whole_path(path),
                "origin": of.origin,
                "thresholds": of.thresholds,
                "attention": of.attention,
            })
        }),
        buckets: count.count(),
    };
    drop(runtime);
    making.describe(&run, "score", source.files(), rules, origins, &mut summary)?;
    // The page comes last: it says what changed since last night, which the run's own files tell.
    let mut changes = None;
    if night.is_some() && (request.report.is_some() || request.fail_on_drift) {
        changes = page::what_changed(request, &run, &mut summary);
        making.stages.end("compare with earlier nights");
        summary.stages.clone_from(&making.stages.list);
    }
    let mut added = Vec::new();
    if let Some(write) = request.report {
        let facts = page::facts(request, &source, service.as_deref());
        let page = write(&facts, rules, &summary, &listed, changes.as_ref());
        page::write(&run, &page.map_err(RunError::Plan)?)?;
        added.push(page::REPORT);
    }
    let _alone = night
        .as_ref()
        .map(|night| night.still_alone(request))
        .transpose()?;
    making.finish_described(run, summary, &added)
}

/// What signals count for: as a calibration has learnt, or else as it is without labels.
fn order_model(request: &ScoreRequest) -> AttentionModel {
    let calibration = request.calibration.as_ref();
    let learnt = calibration.and_then(|(path, of)| Some((path, of.attention.as_ref()?)));
    learnt.map_or_else(AttentionModel::default, |(path, learnt)| AttentionModel {
        learnt: Some(path.display().to_string()),
        weights: learnt.weights.clone().into_iter().collect(),
    })
}

/// Whether there is a row to score.
///
/// # Errors
/// If no file could be opened, or all are empty.
pub(super) fn check_rows(source: &TraceSource) -> Result<(), RunError> {
    if !source.is_empty() {
        return Ok(());
    }
    Err(RunError::Request(match source.files().count() {
        0 => {
            "no rows to score: no file could be used; run it without --on-bad-file skip to see why"
                .into()
        }
        count => format!("no rows to score: all files are empty ({count} opened)"),
    }))
}
