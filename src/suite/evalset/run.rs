//! `nightmill suite run` for evaluation sets: inference, evaluation, and a result that trpc-agent-go can read.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Instant;

use uuid::Uuid;

use super::aggregate::{hidden_errors, summarise};
use super::environment::Environment;
use super::evaluation::{
    Inference, Judging, ScoredMetric, TRACE, evaluate, lacks_reference, recorded_turns,
};
use super::evaluator::Registry;
use super::flakiness::flakiness;
use super::judged::{Judges, RouteRules};
use super::locator::Locator;
use super::model::{EvalCase, EvalSet, Invocation};
use super::result::EvalSetResult;
use super::semantic::with_cosines;
use super::shown;
use super::store::{
    EvalMetrics, EvalResults, EvalSets, LocalMetrics, LocalResults, LocalSets, StoreError,
};
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
    /// Passes over the cases, at least 1.
    pub runs: u32,
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
/// [`RunError`] if files can't be read or written, a judge can't be asked at all, or the ledger can't be used. What goes
/// wrong in a case is in its result.
pub fn run(
    request: &EvalSetRequest,
    registry: &Registry,
    progress: &Progress,
) -> Result<SuiteOutcome, RunError> {
    let started = Instant::now();
    progress.enter("reading the evaluation set");
    let (set, metrics, mut notes) = load(request, registry)?;
    refuse_idle(request, &metrics)?;
    let judged: Vec<_> = metrics.iter().filter_map(ScoredMetric::judged).collect();
    let rules = RouteRules {
        provider: request
            .judge
            .as_ref()
            .map(|j| j.provider.clone())
            .unwrap_or_default(),
        providers: request.providers.clone(),
        capped: request
            .judge
            .as_ref()
            .is_some_and(|judge| judge.caps.tokens.is_some() || judge.caps.cost.is_some()),
    };
    let judges = match &request.judge {
        Some(judge) if !judged.is_empty() => {
            if let (true, false, Some((metric, _))) =
                (request.offline, judge.replay, judged.first())
            {
                return Err(RunError::Request(format!(
                    "--offline: the metric {} asks a judge over the network; leave it not evaluated with --no-judge, or take \
                     its answers from the ledger with --replay",
                    metric.name
                )));
            }
            let shared = judge.shared()?;
            Some((
                judge,
                Judges::of(&judged, &rules, &shared, judge.asking.rounds)?,
            ))
        }
        _ => None,
    };
    let runtime = crate::run::runtime(request.threads)?;
    let inferences = inferences(request, &set);
    let case_count = inferences.len() as u64;
    if judged
        .iter()
        .any(|(_, evaluator)| evaluator.name == OF_REFERENCE)
    {
        let first = inferences.iter().filter(|inference| inference.run == 1);
        let lacking = first.filter(|inference| {
            let case = set.cases.get(inference.case);
            case.is_some_and(|case| lacks_reference(case, inference))
        });
        let lacking = lacking.count();
        if lacking > 0 {
            notes.push(format!(
                "{lacking} of the cases have turns without an expected final response: {OF_REFERENCE} holds their answers \
                 against an empty text"
            ));
        }
    }
    let cases = (set.cases.as_slice(), inferences.as_slice());
    if metrics.iter().any(ScoredMetric::reads_cosines) {
        progress.enter("embedding final responses");
    }
    let (scored, said) = with_cosines(&metrics, cases, &request.engine)?;
    notes.extend(said);
    progress.enter("evaluating");
    let once = async || {
        progress.part(0, case_count);
        let judging = match &judges {
            Some((judge, judges)) => Judging::Asked(judges, judge.concurrency),
            None => Judging::Off,
        };
        let cases = (set.id.as_str(), set.cases.as_slice());
        evaluate(cases, &inferences, &scored, judging, &|| progress.advance()).await
    };
    let results = runtime.block_on(async {
        match &judges {
            Some((judge, judges)) => judges.in_rounds(judge, once).await,
            None => once().await,
        }
    })?;
    progress.enter("writing the result");
    let summary = summarise(i64::from(request.runs), &results)
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
    if request.runs > 1 && steady && judges.is_none() && inferences.iter().all(trace) {
        stability = None;
        notes.push(format!(
            "the {} runs are copies of one: cases of the mode `trace` only differ from run to run where a judge is asked; \
             there is no pass^k and no pass@k",
            request.runs
        ));
    }
    if request.latest_format {
        result = shown::with_flakiness(result, stability.as_ref());
    }
    let store = LocalResults::new(request.results.clone());
    result.id = store.save(&request.app, &result)?;
    let file = store.path(&request.app, &result.id)?;
    let mut outcome = shown::outcome(&request.app, &result, &metrics);
    outcome.notes = notes;
    outcome.flakiness = stability;
    outcome.judging = judges
        .as_ref()
        .map(|(_, judges)| judging_outcome(judges))
        .transpose()?;
    outcome.files = vec![file.display().to_string()];
    outcome.seconds = started.elapsed().as_secs_f64();
    Ok(outcome)
}

/// Refuses what would change nothing, or can't be.
fn refuse_idle(request: &EvalSetRequest, metrics: &[ScoredMetric]) -> Result<(), RunError> {
    if let (Some(flag), false) = (
        &request.engine_flag,
        metrics.iter().any(ScoredMetric::reads_cosines),
    ) {
        return Err(RunError::Request(format!(
            "--{flag}: no metric of this set embeds texts, so this has no effect; leave it out"
        )));
    }
    match request.pass_k {
        Some(k) if !(1..=request.runs).contains(&k) => Err(RunError::Request(format!(
            "--pass-k {k}: a case has {} runs, and k can't be more; raise --runs or lower it",
            request.runs
        ))),
        _ => Ok(()),
    }
}

/// The set, its metrics, and what a reader should know of both.
fn load(
    request: &EvalSetRequest,
    registry: &Registry,
) -> Result<(EvalSet, Vec<ScoredMetric>, Vec<String>), RunError> {
    let sets = LocalSets::new(request.sets.clone());
    let loaded = sets.get(&request.app, &request.set)?;
    let (mut set, mut notes) = (loaded.value, loaded.warnings);
    if set.id != request.set {
        notes.push(format!(
            "the set calls itself `{}`, its file `{}`; results go by the file's name",
            set.id, request.set
        ));
        set.id.clone_from(&request.set);
    }
    let ids: Vec<&str> = set.cases.iter().map(|case| case.id.as_str()).collect();
    let (mut seen, mut repeated) = (BTreeSet::new(), BTreeSet::new());
    for id in &ids {
        if id.is_empty() {
            return Err(RunError::Request(format!(
                "the set `{}` has a case without `evalId`; give each case one",
                set.id
            )));
        }
        if !seen.insert(id) && repeated.insert(id) {
            notes.push(format!(
                "the set has several cases `{id}`: what each did is held against what the first one expects, as \
                 trpc-agent-go does, and their figures are put together; give each an id of its own"
            ));
        }
    }
    for id in &request.cases {
        if !ids.contains(&id.as_str()) {
            let near = crate::text::nearest(id, ids.iter().copied());
            notes.push(format!("there is no case `{id}`{near}; it is passed over"));
        }
    }
    let metrics = LocalMetrics::new(request.metrics.clone(), Environment::of_process());
    let metrics = match metrics.all(&request.app, &request.set) {
        Ok(loaded) => {
            notes.extend(loaded.warnings);
            loaded.value
        }
        Err(missing) if missing.is_not_found() => Vec::new(),
        Err(other) => return Err(other.into()),
    };
    if metrics.is_empty() {
        notes.push("there are no metrics: nothing is evaluated".to_owned());
    }
    let (metrics, unknown) = ScoredMetric::of(metrics, registry);
    if let (true, Some(name)) = (request.strict_metrics, unknown.first()) {
        return Err(RunError::Request(format!(
            "--strict-metrics: no evaluator is known for the metric `{name}`; mend its name, or leave the flag out"
        )));
    }
    notes.extend(
        unknown
            .iter()
            .map(|name| format!("no evaluator is known for the metric `{name}`: it is left out")),
    );
    Ok((set, metrics, notes))
}

/// What was done in each chosen case, run by run and in the order of the set.
fn inferences(request: &EvalSetRequest, set: &EvalSet) -> Vec<Inference> {
    let chosen = |case: &EvalCase| request.cases.is_empty() || request.cases.contains(&case.id);
    // Cases are looked up by id: of several of one id the first is found.
    let mut places = HashMap::new();
    for (place, case) in set.cases.iter().enumerate() {
        places.entry(case.id.as_str()).or_insert(place);
    }
    let places = &places;
    let runs = (1..=request.runs).flat_map(|run| {
        let cases = set.cases.iter().enumerate();
        cases
            .filter(|(_, case)| chosen(case))
            .map(move |(place, case)| Inference {
                run,
                case: places.get(case.id.as_str()).copied().unwrap_or(place),
                session_id: Uuid::new_v4().to_string(),
                user_id: case
                    .session_input
                    .as_ref()
                    .map(|s| s.user_id.clone())
                    .unwrap_or_default(),
                turns: turns_of(case),
            })
    });
    runs.collect()
}

fn turns_of(case: &EvalCase) -> Result<Vec<Invocation>, String> {
    if case.session_input.is_none() {
        return Err("the case has no `sessionInput`; it says who asks, and is needed".to_owned());
    }
    if case.mode == TRACE {
        return recorded_turns(case);
    }
    if !case.actual_conversation.is_empty() {
        return Err(
            "the case has an `actualConversation`, which only the mode `trace` has; set `evalMode`"
                .to_owned(),
        );
    }
    Err(
        "the case is of the default mode, which needs a runner of the agent, and there is none; record what the \
         agent does and set `evalMode` to `trace`"
            .to_owned(),
    )
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

/// The folder of an application's files, the application, and the ids of the sets that a path names: a set's file, the
/// folder of an application, or the folder above it with one application.
pub fn located(path: &std::path::Path) -> Option<(PathBuf, String, Vec<String>)> {
    const SUFFIX: &str = ".evalset.json";
    let name = |path: &std::path::Path| Some(path.file_name()?.to_str()?.to_owned());
    let above = |path: &std::path::Path| match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => PathBuf::from("."),
    };
    if path.is_file() {
        let id = name(path)?.strip_suffix(SUFFIX)?.to_owned();
        let folder = path.canonicalize().ok()?.parent()?.to_owned();
        return Some((above(&folder), name(&folder)?, vec![id]));
    }
    let sets_in = |folder: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut ids: Vec<String> = names
            .filter_map(|name| Some(name.strip_suffix(SUFFIX)?.to_owned()))
            .collect();
        ids.sort();
        ids
    };
    let own = sets_in(path);
    if !own.is_empty() {
        let folder = path.canonicalize().ok()?;
        return Some((above(&folder), name(&folder)?, own));
    }
    let entries = std::fs::read_dir(path).ok()?.flatten();
    let mut apps: Vec<(String, Vec<String>)> = entries
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| {
            Some((
                entry.file_name().into_string().ok()?,
                sets_in(&entry.path()),
            ))
        })
        .filter(|(_, sets)| !sets.is_empty())
        .collect();
    apps.sort();
    match apps.len() {
        1 => apps.pop().map(|(app, sets)| (path.to_owned(), app, sets)),
        _ => None,
    }
}
