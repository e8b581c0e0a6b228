//! `nightmill suite run` for evaluation sets: inference, evaluation, and a result that trpc-agent-go can read.

use std::path::Path;
use std::time::Instant;

use super::aggregate::{hidden_errors, summarise};
use super::collected::Collected;
use super::evaluation::{Judging, ScoredMetric, lacks_reference};
use super::flakiness::flakiness;
use super::hooks::HookContext;
use super::inference::{Chosen, Inferred, Phase, TRACE};
use super::inference_file::{Recorded, read, recorded_inference};
use super::judged::{Judges, RouteRules};
use super::load::load;
use super::locator::Locator;
use super::model::EvalCase;
use super::participants::{Agent, Participants};
use super::pass::{Evaluated, Pass, judge_pass};
use super::result::{CaseResult, EvalSetResult};
use super::semantic::Meanings;
use super::set_cases::SetCases;
use super::shown;
use super::store::StoreError;
use super::written::Written;
use crate::judge::CallCounts;
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
    /// What the agent is, in words that tell one from another; no secrets.
    pub agent: String,
    /// How judges are asked; none leaves judged metrics not evaluated.
    pub judge: Option<JudgeRequest>,
    /// Names of providers that speak OpenAI's protocol.
    pub providers: Vec<String>,
    /// Whether nothing may be sent.
    pub offline: bool,
    /// Threads.
    pub threads: usize,
    /// The embedding model, which only metrics that compare meanings open.
    pub engine: EngineRequest,
    /// A flag about that model, where the user gave one: it is refused where no metric opens it.
    pub engine_flag: Option<String>,
    /// The k of pass^k and pass@k; the number of runs if there is none.
    pub pass_k: Option<u32>,
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
        evaluators,
        own_evaluators,
        hooks,
        agent,
    } = participants;
    let (set, metrics, mut notes) = load(request, &evaluators)?;
    let has_metric = |name: &&String| metrics.iter().any(|of| of.metric.evaluator() == *name);
    if let Some(name) = own_evaluators.iter().find(|name| !has_metric(name)) {
        return Err(RunError::Request(format!(
            "--evaluator {name}=…: no metric of the set names this evaluator, so this has no effect; leave it out"
        )));
    }
    let recorded = match &agent {
        Agent::Recorded(path) => Some(recorded(path, request, &mut notes)?),
        _ => None,
    };
    let runs = recorded.as_ref().map_or(request.runs, passes_of);
    refuse_idle(request, &metrics, runs)?;
    if let Some(recorded) = &recorded {
        refuse_or_name_strangers(&set, recorded, &mut notes)?;
    }
    let judges = judges(request, &metrics)?;
    if let Some((judge, judges)) = &judges {
        notes.extend(idle_prices(judge, &judges.models()));
    }
    let runtime = crate::run::runtime(request.threads)?;
    let runner = agent.runner(runtime.handle());
    // Hooks see a set as a whole, and batches gather all questions before any is answered.
    let in_batches = judges
        .as_ref()
        .is_some_and(|(judge, _)| judge.batches.is_some());
    let in_one = !hooks.is_empty() || in_batches || set.repeats;
    let chosen = Chosen::of(&request.cases);
    // Hooks may choose other cases.
    let chunks = set.chunks(|id| !hooks.is_empty() || chosen.has(id), in_one);
    let case_count: usize = chunks.iter().map(Vec::len).sum();
    progress.enter("evaluating");
    progress.part(0, case_count as u64 * u64::from(runs));
    let mut meanings = Meanings::of(&request.engine);
    let mut written = Written::begin(request, &set.id)?;
    let mut collected = Collected::default();
    let (mut lacking, mut only_traces) = (0, true);
    for (run, chunk) in (1..=runs).flat_map(|run| chunks.iter().map(move |chunk| (run, chunk))) {
        let cases = set.read(chunk);
        let evaluated = Evaluated {
            app: &request.app,
            set: &set.id,
            cases: &cases,
            metrics: &metrics,
            registry: &evaluators,
            hooks: &hooks,
        };
        let inferred = match &recorded {
            Some(recorded) => of_file(&request.cases, &cases, recorded, run),
            None => {
                let phase = Phase {
                    runner: runner.as_deref(),
                    at_once: request.cases_at_once,
                    hooks: &hooks,
                    progress: None,
                };
                evaluated.infer(&phase, run, &request.cases)?
            }
        };
        if run == 1 {
            lacking += without_reference(&cases, &metrics, &inferred);
        }
        only_traces &= cases.iter().all(|case| case.mode == TRACE);
        // In the registry, so that metrics which hooks choose find it too.
        let mut registry = evaluators.clone();
        let found = meanings.evaluator(&metrics, (&cases, &inferred.inferences))?;
        let scored = match found {
            None => metrics.clone(),
            Some(evaluator) => {
                registry.register(evaluator);
                let metrics = metrics.iter().map(|scored| scored.metric.clone());
                ScoredMetric::of(metrics.collect(), &registry).0
            }
        };
        let evaluated = Evaluated {
            metrics: &scored,
            registry: &registry,
            ..evaluated
        };
        let pass = Pass::begin(evaluated, run, &inferred)?;
        let once = async || {
            let judging = match &judges {
                Some((judge, judges)) => Judging::Asked(judges, judge.concurrency),
                None => Judging::Off,
            };
            judge_pass(&pass, &judging, &|| progress.advance()).await
        };
        let judged = runtime.block_on(async {
            match &judges {
                Some((judge, judges)) => judges.in_rounds(judge, once).await,
                None => once().await,
            }
        });
        let results = match judged {
            Ok(judged) => pass.end(judged)?,
            Err(error) => return Err(pass.break_off(error)),
        };
        let results = results.into_iter().map(|case| match request.latest_format {
            true => case,
            false => case.without_later_members(),
        });
        let results: Vec<CaseResult> = results.collect();
        written.write(&request.app, &set.id, &results)?;
        collected.add(&results, &metrics);
    }
    progress.enter("writing the result");
    if lacking > 0 {
        notes.push(format!(
            "{lacking} of the cases have turns without an expected final response: {OF_REFERENCE} holds their answers \
             against an empty text"
        ));
    }
    notes.extend(meanings.end(&metrics));
    let summary = summarise(i64::from(runs), &collected.cases)
        .map_err(|e| RunError::Plan(format!("the result can't be summed up: {e}")))?;
    notes.extend(hidden_errors(&summary).into_iter().map(|hidden| {
        format!(
            "case {} passes although run {} of it broke down: {}",
            hidden.case, hidden.run, hidden.message
        )
    }));
    let result = EvalSetResult {
        cases: collected.cases,
        summary: Some(summary),
        ..written.head.clone()
    };
    let mut stability = flakiness(&result, request.pass_k);
    // Equal runs of what can't differ are one run, counted several times.
    let steady = stability.as_ref().is_some_and(|found| found.flaky == 0);
    let repeats = judges.is_none() && recorded.is_none() && own_evaluators.is_empty();
    if runs > 1 && steady && repeats && only_traces {
        stability = None;
        notes.push(format!(
            "the {runs} runs are copies of one: cases of the mode `trace` only differ from run to run where a judge is \
             asked; there is no pass^k and no pass@k"
        ));
    }
    let result = match request.latest_format {
        true => shown::with_flakiness(result, stability.as_ref()),
        false => result,
    };
    let mut outcome = shown::outcome(&request.app, &result, &metrics);
    outcome.cases = collected.shown;
    outcome.files = written.end(result.summary)?;
    outcome.notes = notes;
    outcome.flakiness = stability;
    outcome.judging = judges
        .as_ref()
        .map(|(_, judges)| judging_outcome(judges))
        .transpose()?;
    outcome.seconds = started.elapsed().as_secs_f64();
    Ok(outcome)
}

/// Refuses what would change nothing, or can't be.
fn refuse_idle(
    request: &EvalSetRequest,
    metrics: &[ScoredMetric],
    runs: u32,
) -> Result<(), RunError> {
    if let (Some(flag), false) = (
        &request.engine_flag,
        metrics.iter().any(ScoredMetric::reads_cosines),
    ) {
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

/// The inferences of a file, which must be of this set.
pub(super) fn recorded(
    path: &Path,
    request: &EvalSetRequest,
    notes: &mut Vec<String>,
) -> Result<Recorded, RunError> {
    let recorded = read(path).map_err(|e| RunError::Request(e.to_string()))?;
    let mut results = recorded.values().map(|of| &of.result);
    let stranger = results.find(|of| of.app_name != request.app || of.eval_set_id != request.set);
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
    let passes = passes_of(&recorded);
    let missing = (1..=passes).find(|run| !recorded.keys().any(|(of, _)| of == run));
    if let Some(run) = missing {
        return Err(RunError::Request(format!(
            "{}: it holds inferences of pass {passes} and none of pass {run}; make it anew with `nightmill suite infer`",
            path.display()
        )));
    }
    notes.push(format!(
        "what was done comes from {}; no agent is asked",
        path.display()
    ));
    Ok(recorded)
}

/// Looks at how a file of inferences fits a set.
fn refuse_or_name_strangers(
    set: &SetCases,
    recorded: &Recorded,
    notes: &mut Vec<String>,
) -> Result<(), RunError> {
    if set.repeats {
        return Err(RunError::Request(format!(
            "the set `{}` has several cases of one id, and inferences are kept by id; give each case an id of its own",
            set.id
        )));
    }
    let ids: std::collections::HashSet<&str> = set.ids.iter().map(String::as_str).collect();
    let mut strange = recorded.keys().filter(|(_, id)| !ids.contains(id.as_str()));
    if let Some((_, id)) = strange.next() {
        notes.push(format!(
            "{} lines of inferences are of no case of the set, as `{id}`",
            strange.count() + 1
        ));
    }
    Ok(())
}

/// How many passes a file of inferences is of.
pub(super) fn passes_of(recorded: &Recorded) -> u32 {
    recorded.keys().map(|(run, _)| *run).max().unwrap_or(1)
}

/// What a file says of these cases in a pass.
pub(super) fn of_file(
    named: &[String],
    cases: &[EvalCase],
    recorded: &Recorded,
    run: u32,
) -> Inferred {
    let chosen = Chosen::of(named);
    let cases = cases.iter().enumerate();
    let cases = cases.filter(|(_, case)| chosen.has(&case.id));
    Inferred {
        inferences: cases
            .map(|case| recorded_inference(recorded, run, case))
            .collect(),
        context: HookContext::default(),
    }
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

/// A line on each price that was given for a model that nobody asks.
pub(super) fn idle_prices(judge: &JudgeRequest, models: &[String]) -> Vec<String> {
    let given = judge.prices.given();
    let idle = given.filter(|name| !models.iter().any(|model| model == name));
    let asked = models.join(", ");
    idle.map(|name| format!("--price {name}: this suite asks {asked}, and no model of that name"))
        .collect()
}

/// What decides where judges are asked beside the metrics file.
pub(super) fn route_rules(request: &EvalSetRequest, judge: &JudgeRequest) -> RouteRules {
    RouteRules {
        provider: judge.provider.clone(),
        providers: request.providers.clone(),
        capped: judge.caps.tokens.is_some() || judge.caps.cost.is_some(),
    }
}

/// How many cases have answers that are held against nothing, if a metric does that.
fn without_reference(cases: &[EvalCase], metrics: &[ScoredMetric], inferred: &Inferred) -> usize {
    let mut judged = metrics.iter().filter_map(ScoredMetric::judged);
    if !judged.any(|(_, evaluator)| evaluator.name == OF_REFERENCE) {
        return 0;
    }
    let lacking = inferred.inferences.iter().filter(|inference| {
        let case = cases.get(inference.case);
        case.is_some_and(|case| lacks_reference(case, inference))
    });
    lacking.count()
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
