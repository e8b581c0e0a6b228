//! What judging would cost: the choice of traces and their prompts, without a single call.

mod table;
pub(crate) mod turns;

use std::sync::Arc;

use serde::Serialize;

use crate::conversation::{Listener, from_traces};
use crate::engine::{Digests, ScorePlan};
use crate::judge::{Price, Usage, follow};
use crate::metric::JudgedMetric;
use crate::output::RunError;
use crate::run::bucket::RunBuckets;
use crate::run::engine::runtime;
use crate::run::inputs::inputs;
use crate::run::judging::request::JudgeRequest;
use crate::run::judging::trace_evidence::trace_evidence;
use crate::run::judging::traces;
use crate::run::plan::turns::{PlannedTables, plan_conversations};
use crate::run::signals_file::GivenSignals;
use crate::run::stages::{Known, Passes};
use crate::run::{ScoreRequest, load_service, stages};
use crate::trace::{TraceColumns, TraceSource};

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
    /// Calls that the ledger has an answer to already.
    pub known: u64,
    /// Tokens of the questions, estimated.
    pub prompt_tokens: u64,
    /// Tokens of the replies, estimated.
    pub reply_tokens: u64,
    /// Dollars for the calls that are not known; null where a model has no price.
    pub cost: Option<f64>,
    /// What those calls use.
    #[serde(skip)]
    pub to_pay: Usage,
}

/// What a run would ask.
#[derive(Clone, Debug, Serialize)]
pub struct PlanSummary {
    /// Rows with a trace id; or rows of turns and cases.
    pub rows: u64,
    /// Traces that would be judged.
    pub chosen_traces: u64,
    /// Where conversations come from tables of turns: what these hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tables: Option<PlannedTables>,
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
pub(crate) const USUAL_REPLY_TOKENS: u64 = 200;

/// Counts what judges would be asked by a run. Of the request, where it writes to is not looked at.
///
/// # Errors
/// [`RunError`]. Nothing is sent, no key is needed, and no run directory is made.
pub fn plan(request: &ScoreRequest, judge: &JudgeRequest) -> Result<PlanSummary, RunError> {
    let metrics = traces::judged_metrics(&request.rules);
    let work = tempfile::tempdir().map_err(|e| RunError::write(&std::env::temp_dir(), e))?;
    let files = inputs(request, work.path())?.files;
    let runtime = runtime(request.engine.threads)?;
    let given = match &request.signals {
        Some(path) => runtime.block_on(GivenSignals::read(path, &[]))?,
        None => GivenSignals::none(),
    };
    let documents = Arc::new(stages::documents(request, files.clone(), work.path())?);
    let known = Known {
        repeats: documents.repeats(),
        documents: Some(Arc::clone(&documents)),
    };
    let targets = stages::targets(request, &known)?;
    let passing = match &judge.condition {
        None => targets,
        Some(condition) => {
            let passes = Passes {
                request,
                service: Some(load_service(&request.engine, work.path())?),
                // With a condition there is none.
                triage: None,
                repeats: known.repeats,
                targets,
                buckets: RunBuckets::one(),
            };
            // Of the run's own metrics, a condition sees the signals.
            let plan = ScorePlan {
                comparing: [None; 3],
                digests: Digests::default(),
                ..passes.plan(&given, Some(condition))
            };
            let columns = TraceColumns {
                labels: true,
                input: plan.coherence,
                output: plan.coherence || plan.loop_detection,
                ..TraceColumns::ids()
            };
            let reading = stages::reading(request, columns);
            let source = TraceSource::open(files, reading, Arc::default())?;
            let source = match &passes.targets {
                None => source,
                Some(targets) => source.keep_only(Arc::clone(targets)),
            };
            let source = Arc::new(source);
            let passing = passes.passing(condition, &plan, &source, &given, work.path());
            let (passing, _) = runtime.block_on(passing)?;
            Some(Arc::new(passing))
        }
    };
    let selection = traces::select(judge, &documents, passing.as_deref())?;
    let answers = judge.answers()?;
    let mut planned: Vec<PlannedMetric> = metrics
        .iter()
        .map(|metric| PlannedMetric {
            name: metric.name.into(),
            model: judge.asking.model_of(metric.name).into(),
            ..PlannedMetric::default()
        })
        .collect();
    let (sender, receiver) = tokio::sync::mpsc::channel(64);
    std::thread::scope(|scope| -> Result<(), RunError> {
        // Dropped on every way out of here: the reader must not wait for a listener that has gone.
        let mut receiver = receiver;
        let reading = scope.spawn(|| traces::read_chosen(&documents, &selection, sender));
        while let Some(document) = receiver.blocking_recv() {
            let trace_id = document.trace_id;
            let evidence = trace_evidence(document.members, judge.most_chars, judge.when_too_long);
            // A trace that is too long fails without a call.
            let Ok(evidence) = evidence else { continue };
            for (metric, planned) in metrics.iter().zip(&mut planned) {
                if given.has(&trace_id, metric.name) {
                    continue;
                }
                let followed = follow(&answers, &judge.asking, metric, &evidence);
                let followed = followed.map_err(|e| RunError::Plan(e.message))?;
                let Some(prompt) = followed.seen.first_prompt_tokens else {
                    continue;
                };
                // Shared stages are the first ones.
                let shared = shared(judge, &metrics, metric);
                let calls = metric.prompts.len() as u64 - shared;
                planned.traces += 1;
                planned.calls += calls;
                let known = followed.seen.answered.saturating_sub(shared).min(calls);
                planned.known += known;
                // A stage that shows the trace again costs as much as the first; one that does not, less.
                planned.prompt_tokens += prompt * calls;
                planned.reply_tokens += USUAL_REPLY_TOKENS * calls;
                if !followed.ended {
                    planned.to_pay.prompt += prompt * (calls - known);
                    planned.to_pay.completion += USUAL_REPLY_TOKENS * (calls - known);
                }
            }
        }
        reading
            .join()
            .map_err(|_| RunError::Plan("reading traces broke off".into()))?
    })?;
    if let Some(conversation) = &judge.conversation {
        let sessions = judge.choose_sessions(&documents, passing.as_deref())?;
        let read =
            |each: &mut Listener<'_>| from_traces::read_conversations(&documents, &sessions, each);
        let each = |_| Ok(());
        planned.push(plan_conversations(
            conversation,
            &answers,
            judge,
            read,
            each,
        )?);
    }
    let chosen = selection.count() as u64;
    Ok(summed(judge, planned, selection.rows_seen, chosen))
}

/// A plan of these metrics: with what they cost, and the sums of all.
pub(crate) fn summed(
    judge: &JudgeRequest,
    mut metrics: Vec<PlannedMetric>,
    rows: u64,
    chosen_traces: u64,
) -> PlanSummary {
    for metric in &mut metrics {
        metric.cost = price_of(judge, &metric.model).map(|price| price.of(metric.to_pay));
    }
    let sum = |count: fn(&PlannedMetric) -> u64| metrics.iter().map(count).sum();
    let total = PlannedMetric {
        name: "total".into(),
        model: String::new(),
        traces: chosen_traces,
        calls: sum(|m| m.calls),
        known: sum(|m| m.known),
        prompt_tokens: sum(|m| m.prompt_tokens),
        reply_tokens: sum(|m| m.reply_tokens),
        cost: metrics.iter().map(|m| m.cost).sum(),
        to_pay: Usage::default(),
    };
    PlanSummary {
        rows,
        chosen_traces,
        tables: None,
        metrics,
        total,
        usual_reply_tokens: USUAL_REPLY_TOKENS,
        prices_as_of: judge.prices.as_of.clone(),
    }
}

/// What a model costs, asked as the request says; none if it is not known.
pub(crate) fn price_of(judge: &JudgeRequest, model: &str) -> Option<Price> {
    match judge.batches {
        Some(_) => judge.prices.of_batch(model),
        None => judge.prices.of(model),
    }
}

/// Calls of a metric that a metric further up, asked of the same model, makes already.
fn shared(judge: &JudgeRequest, metrics: &[&'static JudgedMetric], metric: &JudgedMetric) -> u64 {
    if !judge.asking.share_stages {
        return 0;
    }
    let model = |of: &JudgedMetric| judge.asking.model_of(of.name).to_owned();
    let earlier = metrics.iter().take_while(|m| m.name != metric.name);
    let asked: Vec<&str> = earlier
        .filter(|m| model(m) == model(metric))
        .flat_map(|m| m.prompts.iter().copied())
        .collect();
    let shared = metric.prompts.iter();
    shared.filter(|prompt| asked.contains(prompt)).count() as u64
}
