//! The inference phase: what is done in each case, as the case itself records it or as an agent does it when it is
//! asked (as in trpc-agent-go).

use std::collections::{HashMap, HashSet};
use std::time::{Instant, SystemTime};

use rayon::prelude::*;
use uuid::Uuid;

use super::hooks::{Ended, HookContext, HookRegistry, InferenceRequest, InferenceResult};
use super::model::{EvalCase, Invocation, Message};
use super::result::EvalStatus;
use super::runner::{Runner, SessionStart, record};
use crate::output::RunError;
use crate::run::Progress;

/// The mode of cases that say themselves what was done.
pub(crate) const TRACE: &str = "trace";
/// Members of cases that need more than an agent: a second one that plays the user, or that says what is expected.
const BEYOND_A_RUNNER: [&str; 2] = ["conversationScenario", "expectedRunnerEnabled"];

/// What was done in a case in one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Inference {
    /// Which pass over the set, from 1.
    pub run: u32,
    /// Where the case stands in its set.
    pub case: usize,
    /// Made anew for each case and run.
    pub session_id: String,
    /// Who asked.
    pub user_id: String,
    /// What was done, turn by turn, or why that is not known.
    pub turns: Result<Vec<Invocation>, String>,
    /// What hooks left for the case's later stages.
    pub context: HookContext,
}

impl Inference {
    /// The same, as hooks and files have it.
    pub(crate) fn result(&self, (app, set): (&str, &str), case: &EvalCase) -> InferenceResult {
        let (inferences, status, error_message) = match &self.turns {
            Ok(turns) => (turns.clone(), EvalStatus::Passed, String::new()),
            Err(why) => (Vec::new(), EvalStatus::Failed, why.clone()),
        };
        InferenceResult {
            app_name: app.to_owned(),
            eval_set_id: set.to_owned(),
            eval_id: case.id.clone(),
            mode: case.mode.clone(),
            inferences,
            session_id: self.session_id.clone(),
            user_id: self.user_id.clone(),
            status,
            error_message,
        }
    }
}

/// Who is asked, by how many cases at the same time, and who looks on.
#[derive(Clone, Copy)]
pub(crate) struct Phase<'p> {
    /// None where cases must record themselves what was done.
    pub runner: Option<&'p dyn Runner>,
    /// Cases at the same time, at least 1. The turns of a case come one after the other.
    pub at_once: usize,
    pub hooks: &'p HookRegistry,
    /// Hears of each case that is done.
    pub progress: &'p Progress,
}

/// What was done in one pass over a set, and what hooks left for its later stages.
pub(crate) struct Inferred {
    /// In the order of the set, whatever finished first.
    pub inferences: Vec<Inference>,
    pub context: HookContext,
}

impl Inferred {
    /// The same for what comes after inference, where cases are looked up by id: of several of one id, the first is
    /// found.
    pub fn looked_up(mut self, cases: &[EvalCase]) -> Self {
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(cases.len());
        for (at, case) in cases.iter().enumerate() {
            places.entry(&case.id).or_insert(at);
        }
        for inference in &mut self.inferences {
            let id = cases.get(inference.case).map(|case| case.id.as_str());
            let first = id.and_then(|id| places.get(id));
            inference.case = first.copied().unwrap_or(inference.case);
        }
        self
    }
}

impl Phase<'_> {
    /// One pass over the cases that the request names.
    ///
    /// # Errors
    /// [`RunError::Request`] if a hook of the set fails. What fails in a case is in its inference.
    pub fn infer(
        &self,
        mut request: InferenceRequest,
        cases: &[EvalCase],
    ) -> Result<Inferred, RunError> {
        let started = Clock::start();
        let stopped = |e: super::hooks::HookError| RunError::Request(e.to_string());
        let context = HookContext::default();
        let context = self.hooks.before_inference_set(context, &mut request);
        let context = context.map_err(stopped)?;
        let named = Chosen::of(&request.case_ids);
        let chosen: Vec<usize> = (0..cases.len())
            .filter(|at| cases.get(*at).is_some_and(|case| named.has(&case.id)))
            .collect();
        let of = |at: usize| {
            let inference = cases
                .get(at)
                .map(|case| self.of_case(&request, at, case, &context));
            self.progress.advance();
            inference
        };
        let inferences: Vec<Option<Inference>> = match self.at_once {
            0 | 1 => chosen.into_iter().map(of).collect(),
            // Of their own, since they wait for agents: those of the computations must not.
            threads => rayon::ThreadPoolBuilder::new()
                .num_threads(threads.min(chosen.len().max(1)))
                .build()
                .map_err(|e| RunError::Plan(format!("no threads to ask the agent from: {e}")))?
                .install(|| chosen.into_par_iter().with_max_len(1).map(of).collect()),
        };
        let inferences: Vec<Inference> = inferences.into_iter().flatten().collect();
        if self.hooks.is_empty() {
            return Ok(Inferred {
                inferences,
                context,
            });
        }
        let names = (request.app_name.as_str(), request.eval_set_id.as_str());
        let results: Vec<InferenceResult> = inferences
            .iter()
            .filter_map(|inference| Some(inference.result(names, cases.get(inference.case)?)))
            .collect();
        let ended = started.ended(Some(results.as_slice()), None);
        let context = self.hooks.after_inference_set(context, &request, &ended);
        Ok(Inferred {
            inferences,
            context: context.map_err(stopped)?,
        })
    }

    fn of_case(
        &self,
        request: &InferenceRequest,
        at: usize,
        case: &EvalCase,
        context: &HookContext,
    ) -> Inference {
        let started = Clock::start();
        let user = case.session_input.as_ref().map(|input| &input.user_id);
        let mut inference = Inference {
            run: request.run,
            case: at,
            session_id: Uuid::new_v4().to_string(),
            user_id: user.cloned().unwrap_or_default(),
            turns: Ok(Vec::new()),
            context: context.clone(),
        };
        let before = self.hooks.before_inference_case(
            context.clone(),
            request,
            &case.id,
            &inference.session_id,
        );
        inference.turns = match before {
            Ok(context) => {
                inference.context = context;
                self.turns(request, case, &inference.session_id)
            }
            Err(error) => Err(error.to_string()),
        };
        if self.hooks.is_empty() {
            return inference;
        }
        let names = (request.app_name.as_str(), request.eval_set_id.as_str());
        let result = inference.result(names, case);
        let ended = started.ended(Some(&result), None);
        let context = inference.context.clone();
        match self.hooks.after_inference_case(context, request, &ended) {
            Ok(context) => inference.context = context,
            // What broke down first is what a reader must know.
            Err(error) if inference.turns.is_ok() => inference.turns = Err(error.to_string()),
            Err(_) => {}
        }
        inference
    }

    fn turns(
        &self,
        request: &InferenceRequest,
        case: &EvalCase,
        session_id: &str,
    ) -> Result<Vec<Invocation>, String> {
        let Some(input) = &case.session_input else {
            return Err(
                "the case has no `sessionInput`; it says who asks, and is needed".to_owned(),
            );
        };
        if case.mode == TRACE {
            return recorded_turns(case);
        }
        if !case.actual_conversation.is_empty() {
            return Err("the case has an `actualConversation`, which only the mode `trace` has; set `evalMode`".to_owned());
        }
        let beyond = BEYOND_A_RUNNER.iter().find(|name| {
            let value = case.rest.get(**name);
            value.is_some_and(|value| !value.is_null() && value != &serde_json::json!(false))
        });
        if let Some(name) = beyond {
            return Err(format!(
                "the case has `{name}`, which needs a second agent that nightmill does not run; write out its `conversation`"
            ));
        }
        if case.conversation.is_empty() {
            return Err("the case has no `conversation`; it says what the user asks".to_owned());
        }
        let Some(runner) = self.runner else {
            return Err(
                "the case is of the default mode, in which the agent is asked: say how with --runner, or record what \
                 it does and set `evalMode` to `trace`"
                    .to_owned(),
            );
        };
        let context = case.context_messages.iter().enumerate();
        let context = context.map(|(at, message)| {
            let null = || format!("message {} of `contextMessages` is null", at + 1);
            message.clone().ok_or_else(null)
        });
        let start = SessionStart {
            app_name: request.app_name.clone(),
            eval_set_id: request.eval_set_id.clone(),
            eval_id: case.id.clone(),
            user_id: input.user_id.clone(),
            session_id: session_id.to_owned(),
            state: input.state.clone(),
            context_messages: context.collect::<Result<_, _>>()?,
        };
        let messages = case.conversation.iter().enumerate();
        let messages: Vec<&Message> = messages
            .map(|(at, turn)| user_of(turn.as_ref(), at, "conversation"))
            .collect::<Result<_, _>>()?;
        let mut session = runner.open(&start).map_err(|e| e.to_string())?;
        let mut turns = Vec::with_capacity(messages.len());
        for (at, message) in messages.into_iter().enumerate() {
            let done = session.invoke(at, message);
            let turn = done.and_then(|events| record(&start, at, message, events));
            turns.push(turn.map_err(|e| e.to_string())?);
        }
        Ok(turns)
    }
}

/// The cases that a list of ids names; an empty one names all.
pub(super) struct Chosen<'i>(HashSet<&'i str>);

impl<'i> Chosen<'i> {
    pub fn of(ids: &'i [String]) -> Self {
        Self(ids.iter().map(String::as_str).collect())
    }

    pub fn has(&self, id: &str) -> bool {
        self.0.is_empty() || self.0.contains(id)
    }
}

/// What the user says in a turn.
fn user_of<'t>(
    turn: Option<&'t Invocation>,
    at: usize,
    member: &str,
) -> Result<&'t Message, String> {
    turn.and_then(|turn| turn.user_content.as_ref())
        .ok_or_else(|| {
            format!(
                "turn {} of `{member}` has no `userContent`; every turn needs what the user said",
                at + 1
            )
        })
}

/// What was done in a case of trace mode, by the case itself.
fn recorded_turns(case: &EvalCase) -> Result<Vec<Invocation>, String> {
    let (member, turns) = match case.actual_conversation.is_empty() {
        true => ("conversation", &case.conversation),
        false => ("actualConversation", &case.actual_conversation),
    };
    if turns.is_empty() {
        return Err("the case has no `conversation`; it must say what was done".to_owned());
    }
    let turns = turns.iter().enumerate();
    turns
        .map(|(at, turn)| {
            user_of(turn.as_ref(), at, member)?;
            Ok(turn.clone().unwrap_or_default())
        })
        .collect()
}

/// When a stage began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    at: SystemTime,
    since: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self {
            at: SystemTime::now(),
            since: Instant::now(),
        }
    }

    /// How the stage ended, for hooks.
    pub fn ended<'a, T: ?Sized>(
        &self,
        result: Option<&'a T>,
        error: Option<&'a str>,
    ) -> Ended<'a, T> {
        Ended {
            result,
            error,
            started: self.at,
            took: self.since.elapsed(),
        }
    }
}
