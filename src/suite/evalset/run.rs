//! `nightmill suite run` for evaluation sets: inference, evaluation, and a result that trpc-agent-go can read.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tokio::runtime::Handle;

use super::aggregate::{hidden_errors, summarise};
use super::evaluation::{Judging, ScoredMetric, lacks_reference};
use super::evaluator::Registry;
use super::flakiness::flakiness;
use super::hooks::{HookContext, HookRegistry};
use super::inference::{Chosen, Inference, Inferred, Phase, TRACE};
use super::inference_file::{Recorded, read, recorded_inference};
use super::judged::{Judges, RouteRules};
use super::load::load;
use super::locator::Locator;
use super::model::EvalSet;
use super::pass::{Evaluated, Pass, judge_all};
use super::result::EvalSetResult;
use super::runner::{OpenAiRunner, OpenAiSettings, Runner};
use super::semantic::with_cosines;
use super::store::{EvalResults, LocalResults, StoreError};
use super::{rows, shown};
use crate::judge::{CallCounts, Chat};
use crate::output::RunError;
use crate::run::{EngineRequest, JudgeRequest, Progress};
use crate::suite::outcome::{JudgingOutcome, SuiteOutcome};

/// The evaluator that holds answers against the expected ones.
const OF_REFERENCE: &str = "llm_final_response";

/// An evaluation set to run.
#[derive(Clone, Debug)]
pub struct EvalSetRequest {
    /// Where sets, metrics and results are.
    pub sets: Locator,
    /// See [`EvalSetRequest::sets`].
    pub metrics: Locator,
    /// See [`EvalSetRequest::sets`].
    pub results: Locator,
    /// The application.
    pub app: String,
    /// The set.
    pub set: String,
    /// The cases to run; all if there are none.
    pub cases: Vec<String>,
    /// Passes over the cases, at least 1. Recorded inferences say themselves how many they are.
    pub runs: u32,
    /// Cases that the agent works on at the same time, at least 1.
    pub cases_at_once: usize,
    /// Refuse metrics that no evaluator is known for, instead of leaving them out.
    pub strict_metrics: bool,
    /// Write what later versions of trpc-agent-go write too.
    pub latest_format: bool,
    /// How judges are asked; none leaves judged metrics not evaluated.
    pub judge: Option<JudgeRequest>,
    /// Names of providers that speak OpenAI's protocol.
    pub providers: Vec<String>,
    /// Whether nothing may be sent.
    pub offline: bool,
    /// Threads.
    pub threads: usize,
    /// The k of pass^k and pass@k; the number of runs if there is none.
    pub pass_k: Option<u32>,
}

/// Who takes part in an evaluation beside its files.
#[derive(Default)]
pub struct Participants {
    /// What computes metrics.
    pub evaluators: Registry,
    /// Who looks on, and may steer.
    pub hooks: HookRegistry,
    /// Who is evaluated.
    pub agent: Agent,
    /// The embedding model, which only metrics that compare meanings open; where there is none, their cases fail.
    pub engine: Option<EngineRequest>,
    /// A flag about that model, where the user gave one: it is refused where no metric opens it.
    pub engine_flag: Option<String>,
}

/// Who is asked in cases of the default mode.
#[derive(Default)]
pub enum Agent {
    /// Nobody: such cases fail.
    #[default]
    None,
    /// A runner.
    Runner(Box<dyn Runner>),
    /// A model behind a chat endpoint.
    Chat(Box<Chat>, OpenAiSettings),
    /// Nobody in any case: a file of inferences says what was done.
    Recorded(PathBuf),
}

impl Agent {
    /// The runner, if somebody is asked. Its sessions must not be used on a thread of the runtime.
    pub(super) fn runner(self, runtime: &Handle) -> Option<Box<dyn Runner>> {
        match self {
            Self::None | Self::Recorded(_) => None,
            Self::Runner(runner) => Some(runner),
            Self::Chat(chat, settings) => Some(Box::new(OpenAiRunner::new(
                *chat,
                settings,
                runtime.clone(),
            ))),
        }
    }
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        Self::Request(error.to_string())
    }
}

/// Runs an evaluation set, and saves its result.
///
/// # Errors
/// [`RunError`] if files can't be read or written, a judge can't be asked at all, the ledger can't be used, or a hook
/// stops the run. What goes wrong in a case is in its result.
pub fn run(
    request: &EvalSetRequest,
    participants: Participants,
    progress: &Progress,
) -> Result<SuiteOutcome, RunError> {
    let started = Instant::now();
    progress.enter("reading the evaluation set");
    let Participants {
        mut evaluators,
        hooks,
        agent,
        engine,
        engine_flag,
    } = participants;
    let (set, mut metrics, mut notes) = load(request, &evaluators)?;
    let recorded = match &agent {
        Agent::Recorded(path) => Some(recorded(path, request, &mut notes)?),
        _ => None,
    };
    let runs = recorded.as_ref().map_or(request.runs, passes_of);
    refuse_idle(request, engine_flag.as_deref(), &metrics, runs)?;
    let judges = judges(request, &metrics)?;
    let runtime = crate::run::runtime(request.threads)?;
    let runner = agent.runner(runtime.handle());
    let inferred = match &recorded {
        Some(recorded) => of_file(request, &set, recorded, runs),
        None => {
            let evaluated = evaluated(request, (&set, &metrics), &evaluators, &hooks);
            infer_all(request, evaluated, runner.as_deref(), runs, progress)?
        }
    };
    // Processes of the agent end before judges are waited for.
    drop(runner);
    notes.extend(without_reference(&set, &metrics, &inferred));
    if let (Some(engine), true) = (&engine, metrics.iter().any(ScoredMetric::reads_cosines)) {
        progress.enter("embedding final responses");
        let done = inferred.iter().flat_map(|pass| &pass.inferences);
        notes.extend(with_cosines(
            &mut evaluators,
            &metrics,
            (&set.cases, done),
            engine,
        )?);
        let named = metrics.into_iter().map(|scored| scored.metric);
        (metrics, _) = ScoredMetric::of(named.collect(), &evaluators);
    }
    progress.enter("evaluating");
    let evaluated = evaluated(request, (&set, &metrics), &evaluators, &hooks);
    let passes = (1..).zip(&inferred);
    let passes: Vec<Pass<'_>> = passes
        .map(|(run, inferred)| Pass::begin(evaluated, run, inferred))
        .collect::<Result<_, _>>()?;
    let case_count: usize = inferred.iter().map(|pass| pass.inferences.len()).sum();
    let once = async || {
        progress.part(0, case_count as u64);
        let judging = match &judges {
            Some((judge, judges)) => Judging::Asked(judges, judge.concurrency),
            None => Judging::Off,
        };
        judge_all(&passes, &judging, &|| progress.advance()).await
    };
    let judged = runtime.block_on(async {
        match &judges {
            Some((judge, judges)) => judges.in_rounds(judge, once).await,
            None => once().await,
        }
    });
    let mut results = Vec::with_capacity(case_count);
    match judged {
        Ok(judged) => {
            for (pass, judged) in passes.into_iter().zip(judged) {
                results.extend(pass.end(judged)?);
            }
        }
        Err(error) => {
            let told = passes
                .into_iter()
                .fold(error, |error, pass| pass.break_off(error));
            return Err(told);
        }
    }
    progress.enter("writing the result");
    let summary = summarise(i64::from(runs), &results)
        .map_err(|e| RunError::Plan(format!("the result can't be summed up: {e}")))?;
    notes.extend(hidden_errors(&summary).into_iter().map(|hidden| {
        format!(
            "case {} passes although run {} of it broke down: {}",
            hidden.case, hidden.run, hidden.message
        )
    }));
    let mut result = EvalSetResult {
        set_id: set.id.clone(),
        cases: results,
        summary: Some(summary),
        ..EvalSetResult::default()
    };
    if !request.latest_format {
        result = result.without_later_members();
    }
    let mut stability = flakiness(&result, request.pass_k);
    let trace = |inference: &Inference| {
        let case = set.cases.get(inference.case);
        case.is_some_and(|case| case.mode == TRACE)
    };
    // Equal runs of what can't differ are one run, counted several times.
    let steady = stability.as_ref().is_some_and(|found| found.flaky == 0);
    let mut done = inferred.iter().flat_map(|pass| &pass.inferences);
    if runs > 1 && steady && judges.is_none() && done.all(trace) {
        stability = None;
        notes.push(format!(
            "the {runs} runs are copies of one: cases of the mode `trace` only differ from run to run where a judge is \
             asked; there is no pass^k and no pass@k"
        ));
    }
    if request.latest_format {
        result = shown::with_flakiness(result, stability.as_ref());
    }
    let store = LocalResults::new(request.results.clone());
    result.id = store.save(&request.app, &result)?;
    let file = store.path(&request.app, &result.id)?;
    let table = rows::beside(&file);
    rows::write(&table, &request.app, &result)?;
    let mut outcome = shown::outcome(&request.app, &result, &metrics);
    outcome.notes = notes;
    outcome.flakiness = stability;
    outcome.judging = judges
        .as_ref()
        .map(|(_, judges)| judging_outcome(judges))
        .transpose()?;
    outcome.files = vec![file.display().to_string(), table.display().to_string()];
    outcome.seconds = started.elapsed().as_secs_f64();
    Ok(outcome)
}

/// The set as it is evaluated.
fn evaluated<'e>(
    request: &'e EvalSetRequest,
    (set, metrics): (&'e EvalSet, &'e [ScoredMetric]),
    registry: &'e Registry,
    hooks: &'e HookRegistry,
) -> Evaluated<'e> {
    Evaluated {
        app: &request.app,
        set: &set.id,
        cases: &set.cases,
        metrics,
        registry,
        hooks,
    }
}

/// Refuses what would change nothing, or can't be.
pub(super) fn refuse_idle(
    request: &EvalSetRequest,
    engine_flag: Option<&str>,
    metrics: &[ScoredMetric],
    runs: u32,
) -> Result<(), RunError> {
    let embeds = metrics.iter().any(ScoredMetric::reads_cosines);
    if let (Some(flag), false) = (engine_flag, embeds) {
        return Err(RunError::Request(format!(
            "--{flag}: no metric of this set embeds texts, so this has no effect; leave it out"
        )));
    }
    match request.pass_k {
        Some(k) if !(1..=runs).contains(&k) => Err(RunError::Request(format!(
            "--pass-k {k}: a case has {runs} runs, and k can't be more; raise --runs or lower it"
        ))),
        _ => Ok(()),
    }
}

/// How the agent is asked.
pub(super) fn phase<'p>(
    request: &EvalSetRequest,
    runner: Option<&'p dyn Runner>,
    hooks: &'p HookRegistry,
    progress: &'p Progress,
    cases: usize,
) -> Phase<'p> {
    progress.enter("asking the agent");
    progress.part(0, cases as u64);
    Phase {
        runner,
        at_once: request.cases_at_once,
        hooks,
        progress,
    }
}

/// What is done in each pass.
fn infer_all(
    request: &EvalSetRequest,
    evaluated: Evaluated<'_>,
    runner: Option<&dyn Runner>,
    runs: u32,
    progress: &Progress,
) -> Result<Vec<Inferred>, RunError> {
    let phase = phase(
        request,
        runner,
        evaluated.hooks,
        progress,
        evaluated.cases.len() * runs as usize,
    );
    let passes = 1..=runs;
    let passes = passes.map(|run| {
        let inferred = evaluated.infer(&phase, run, &request.cases)?;
        Ok(inferred.looked_up(evaluated.cases))
    });
    passes.collect()
}

/// The inferences of a file, which must be of this set.
pub(super) fn recorded(
    path: &Path,
    request: &EvalSetRequest,
    notes: &mut Vec<String>,
) -> Result<Recorded, RunError> {
    let recorded = read(path).map_err(|e| RunError::Request(e.to_string()))?;
    let stranger = recorded
        .values()
        .find(|of| of.app_name != request.app || of.eval_set_id != request.set);
    if let Some(of) = stranger {
        return Err(RunError::Request(format!(
            "{}: it holds inferences of the set `{}` of `{}`, and the set `{}` of `{}` is to be scored; name its own file",
            path.display(),
            of.eval_set_id,
            of.app_name,
            request.set,
            request.app
        )));
    }
    if recorded.is_empty() {
        return Err(RunError::Request(format!(
            "{}: it holds no inferences; make them with `nightmill suite infer`",
            path.display()
        )));
    }
    notes.push(format!(
        "what was done comes from {}; no agent is asked",
        path.display()
    ));
    Ok(recorded)
}

/// How many passes a file of inferences is of.
pub(super) fn passes_of(recorded: &Recorded) -> u32 {
    recorded.keys().map(|(run, _)| *run).max().unwrap_or(1)
}

pub(super) fn of_file(
    request: &EvalSetRequest,
    set: &EvalSet,
    recorded: &Recorded,
    runs: u32,
) -> Vec<Inferred> {
    let chosen = Chosen::of(&request.cases);
    let passes = (1..=runs).map(|run| {
        let cases = set.cases.iter().enumerate();
        let cases = cases.filter(|(_, case)| chosen.has(&case.id));
        let inferred = Inferred {
            inferences: cases
                .map(|case| recorded_inference(recorded, run, case))
                .collect(),
            context: HookContext::default(),
        };
        inferred.looked_up(&set.cases)
    });
    passes.collect()
}

/// The judges that the metrics ask, with the rules for asking them; none where nobody is asked.
fn judges<'r>(
    request: &'r EvalSetRequest,
    metrics: &[ScoredMetric],
) -> Result<Option<(&'r JudgeRequest, Judges)>, RunError> {
    let judged: Vec<_> = metrics.iter().filter_map(ScoredMetric::judged).collect();
    let (Some(judge), Some((first, _))) = (&request.judge, judged.first()) else {
        return Ok(None);
    };
    if request.offline && !judge.replay {
        return Err(RunError::Request(format!(
            "--offline: the metric {} asks a judge over the network; leave it not evaluated with --no-judge, or take \
             its answers from the ledger with --replay",
            first.name
        )));
    }
    let rules = route_rules(request, judge);
    let shared = judge.shared()?;
    let judges = Judges::of(&judged, &rules, &shared, judge.asking.rounds)?;
    Ok(Some((judge, judges)))
}

/// What decides where judges are asked beside the metrics file.
pub(super) fn route_rules(request: &EvalSetRequest, judge: &JudgeRequest) -> RouteRules {
    RouteRules {
        provider: judge.provider.clone(),
        providers: request.providers.clone(),
        capped: judge.caps.tokens.is_some() || judge.caps.cost.is_some(),
    }
}

/// A line on cases whose answers are held against nothing, if a metric does that.
fn without_reference(
    set: &EvalSet,
    metrics: &[ScoredMetric],
    inferred: &[Inferred],
) -> Option<String> {
    let mut judged = metrics.iter().filter_map(ScoredMetric::judged);
    judged.find(|(_, evaluator)| evaluator.name == OF_REFERENCE)?;
    let first = inferred.first()?.inferences.iter();
    let lacking = first.filter(|inference| {
        let case = set.cases.get(inference.case);
        case.is_some_and(|case| lacks_reference(case, inference))
    });
    let lacking = lacking.count();
    (lacking > 0).then(|| {
        format!(
            "{lacking} of the cases have turns without an expected final response: {OF_REFERENCE} holds their answers \
             against an empty text"
        )
    })
}

fn judging_outcome(judges: &Judges) -> Result<JudgingOutcome, RunError> {
    let counts: CallCounts = judges.counts();
    let mut cost = Some(0.0);
    // One ledger serves all endpoints.
    if let Some(service) = judges.services().next() {
        for spend in service.ledger().spend()? {
            cost = match spend.unpriced {
                0 => cost.map(|sum| sum + spend.cost),
                _ => None,
            };
        }
    }
    Ok(JudgingOutcome {
        models: judges.models(),
        questions: counts.asked,
        known: counts.from_ledger,
        sent: counts.sent,
        cost,
    })
}
