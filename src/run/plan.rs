//! What judging would cost: the choice of traces and their prompts, without a single call.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::conversation_sessions::{self, ChosenSession};
use super::conversations::ConversationRequest;
use super::engine::runtime;
use super::judging::{self, JudgeRequest};
use super::score::Work;
use super::signals_file::GivenSignals;
use super::{EngineRequest, Rules, RunError, ScoreRequest, load_service};
use crate::judge::conversation::SchemaPlace;
use crate::judge::{Evidence, JudgeService, JudgedMetric, usual_tokens};
use crate::metric::CONVERSATION;
use crate::trace::{ColumnMap, DocumentSource, Members, OnBadFile, SourceFormat, discover};

/// A validated request for a plan.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// Files, folders and globs.
    pub paths: Vec<String>,
    /// Read only files of this format.
    pub format: Option<SourceFormat>,
    /// Column names and JSON columns.
    pub map: ColumnMap,
    /// What to do about unreadable files.
    pub on_bad_file: OnBadFile,
    /// Precomputed signals.
    pub signals: Option<String>,
    /// Metrics and thresholds.
    pub rules: Rules,
    /// Model, threads and memory, for a condition on signals.
    pub engine: EngineRequest,
    /// Judges.
    pub judge: JudgeRequest,
}

/// What a metric would ask.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlannedMetric {
    /// The metric, or `total`.
    pub name: String,
    /// The model; empty for the total of several.
    pub model: String,
    /// Traces.
    pub traces: u64,
    /// Calls, at their most: stages shared with a metric further up are not counted again.
    pub calls: u64,
    /// First calls that the ledger has an answer to already.
    pub known: u64,
    /// Tokens of the questions, estimated.
    pub prompt_tokens: u64,
    /// Tokens of the replies, estimated.
    pub reply_tokens: u64,
    /// Dollars; null where a model has no price.
    pub cost: Option<f64>,
}

/// What a run would ask.
#[derive(Clone, Debug, Serialize)]
pub struct PlanSummary {
    /// Traces that have an id and a start.
    pub traces: u64,
    /// Traces that would be judged.
    pub chosen_traces: u64,
    /// By metric.
    pub metrics: Vec<PlannedMetric>,
    /// All together.
    pub total: PlannedMetric,
    /// Tokens assumed for a reply.
    pub usual_reply_tokens: u64,
    /// The day of the shipped prices.
    pub prices_as_of: String,
}

/// Tokens of a reply as they usually are: some sentences of JSON.
const USUAL_REPLY_TOKENS: u64 = 200;
/// The same for a conversation: some sentences for each of eight metrics.
const USUAL_CONVERSATION_REPLY_TOKENS: u64 = 800;

/// Counts what judges would be asked.
///
/// # Errors
/// [`RunError`]. Nothing is sent, and no run directory is made.
pub fn plan(request: &PlanRequest) -> Result<PlanSummary, RunError> {
    let judge = &request.judge;
    let metrics = judging::judged_metrics(&request.rules);
    let files = discover(&request.paths, request.format)?;
    let work = tempfile::tempdir().map_err(|e| RunError::write(&std::env::temp_dir(), e))?;
    let runtime = runtime(request.engine.threads)?;
    let given = match &request.signals {
        Some(path) => runtime.block_on(GivenSignals::read(path))?,
        None => GivenSignals::none(),
    };
    let scoring = ScoreRequest {
        paths: request.paths.clone(),
        out: work.path().to_owned(),
        overwrite: false,
        format: request.format,
        map: request.map.clone(),
        on_bad_file: request.on_bad_file,
        signals: request.signals.clone(),
        rules: request.rules.clone(),
        engine: request.engine.clone(),
        judge: None,
        report: false,
    };
    let repeated = super::score::repeats(&scoring, &files)?;
    let passing = match &judge.condition {
        None => None,
        Some(condition) => {
            let service = load_service(&request.engine, work.path())?;
            let pass = Work {
                request: &scoring,
                service,
                merge_repeated: repeated,
            };
            let passing = pass.passing(condition, &files, &given, work.path());
            Some(runtime.block_on(passing)?)
        }
    };
    let documents = Arc::new(DocumentSource::new(files, request.map.clone()));
    let mut traces = 0;
    let mut seen = std::collections::HashSet::new();
    documents.read(Members::Facts, None, |document| {
        traces += u64::from(!repeated || seen.insert(document.trace_id));
        ControlFlow::Continue(())
    })?;
    let selection = judging::select(judge, &documents, passing.as_ref(), repeated)?;
    let chosen_traces = selection.count() as u64;
    let ledger = judge
        .ledger
        .exists()
        .then(|| judge.service(&[]))
        .transpose()?;
    let mut planned: Vec<PlannedMetric> = metrics
        .iter()
        .map(|metric| PlannedMetric {
            name: metric.name().into(),
            model: judge.asking.model_of(metric.name()).into(),
            ..PlannedMetric::default()
        })
        .collect();
    let (sender, receiver) = tokio::sync::mpsc::channel(64);
    std::thread::scope(|scope| -> Result<(), RunError> {
        // Dropped on every way out of here: the reader must not wait for a listener that has gone.
        let mut receiver = receiver;
        let reading = scope.spawn(|| judging::read_chosen(&documents, &selection, sender));
        while let Some(document) = receiver.blocking_recv() {
            let trace_id = document.trace_id;
            let evidence = Evidence::new(
                &Value::Object(document.members),
                judge.most_chars,
                judge.when_too_long,
            );
            // A trace that is too long fails without a call.
            let Ok(evidence) = evidence else { continue };
            for (metric, planned) in metrics.iter().zip(&mut planned) {
                if given.has(&trace_id, metric.name()) {
                    continue;
                }
                let first = judge
                    .asking
                    .first_call(*metric, &evidence)
                    .map_err(|e| RunError::Plan(e.to_string()))?;
                let Some(first) = first else { continue };
                let calls = metric.most_calls() as u64 - shared(judge, &metrics, *metric);
                let known = match &ledger {
                    Some(service) => service
                        .knows(&first)
                        .map_err(|e| RunError::Plan(e.to_string()))?,
                    None => false,
                };
                // A stage that shows the trace again costs as much as the first; one that does not, less. At most:
                let prompt = usual_tokens(first.user.len() + first.system.len()) * calls;
                planned.traces += 1;
                planned.calls += calls;
                planned.known += u64::from(known);
                planned.prompt_tokens += prompt;
                planned.reply_tokens += USUAL_REPLY_TOKENS * calls;
            }
        }
        reading
            .join()
            .map_err(|_| RunError::Plan("reading traces broke off".into()))?
    })?;
    if let Some(conversation) = &judge.conversation {
        let sessions = conversation_sessions::choose(&documents, &selection, repeated)?;
        planned.push(conversations(
            conversation,
            &documents,
            &sessions,
            ledger.as_ref(),
        )?);
    }
    for metric in &mut planned {
        let usage = crate::judge::Usage {
            prompt: metric.prompt_tokens,
            completion: metric.reply_tokens,
            cached: 0,
        };
        metric.cost = judge.prices.of(&metric.model).map(|price| price.of(usage));
    }
    let sum = |count: fn(&PlannedMetric) -> u64| planned.iter().map(count).sum();
    let total = PlannedMetric {
        name: "total".into(),
        model: String::new(),
        traces: chosen_traces,
        calls: sum(|m| m.calls),
        known: sum(|m| m.known),
        prompt_tokens: sum(|m| m.prompt_tokens),
        reply_tokens: sum(|m| m.reply_tokens),
        cost: planned.iter().map(|m| m.cost).sum(),
    };
    Ok(PlanSummary {
        traces,
        chosen_traces,
        metrics: planned,
        total,
        usual_reply_tokens: USUAL_REPLY_TOKENS,
        prices_as_of: judge.prices.as_of.clone(),
    })
}

/// What judging conversations would ask: one call a session.
fn conversations(
    request: &ConversationRequest,
    documents: &DocumentSource,
    sessions: &[ChosenSession],
    ledger: Option<&JudgeService>,
) -> Result<PlannedMetric, RunError> {
    let mut planned = PlannedMetric {
        name: CONVERSATION.into(),
        model: request.model.clone(),
        ..PlannedMetric::default()
    };
    let mut failed = None;
    conversation_sessions::read_conversations(documents, sessions, |conversation| {
        let asked = request.judge.request(
            &conversation.case,
            &conversation.turns,
            SchemaPlace::ResponseFormat,
        );
        // A conversation that is too long fails without a call.
        let Ok(asked) = asked else {
            return ControlFlow::Continue(());
        };
        planned.traces += conversation.traces as u64;
        planned.calls += 1;
        planned.prompt_tokens += asked.estimated_tokens;
        planned.reply_tokens += USUAL_CONVERSATION_REPLY_TOKENS;
        let call = request.call(asked, SchemaPlace::ResponseFormat);
        match ledger.map(|service| service.knows(&call)) {
            Some(Ok(true)) => planned.known += 1,
            Some(Err(e)) => {
                failed = Some(RunError::Plan(e.to_string()));
                return ControlFlow::Break(());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    match failed {
        Some(e) => Err(e),
        None => Ok(planned),
    }
}

/// Calls of a metric that another metric of the run, asked of the same model, makes already.
fn shared(
    judge: &JudgeRequest,
    metrics: &[&'static dyn JudgedMetric],
    metric: &dyn JudgedMetric,
) -> u64 {
    let same_model = |other: &str| {
        metrics.iter().any(|m| m.name() == other)
            && judge.asking.model_of(other) == judge.asking.model_of(metric.name())
    };
    if !judge.asking.share_stages {
        return 0;
    }
    // The plan of plan_adherence is shared whole; without it, the task of step_efficiency.
    match metric.name() {
        "plan_quality" if same_model("plan_adherence") => 2,
        "plan_quality" | "plan_adherence" if same_model("step_efficiency") => 1,
        _ => 0,
    }
}
