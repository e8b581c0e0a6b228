//! `nightmill suite infer`: the inference phase on its own.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use super::hooks::InferenceResult;
use super::inference::{Chosen, Phase};
use super::inference_file::{InferenceLog, Recorded, line_of};
use super::json_file::FileError;
use super::load::load;
use super::model::EvalCase;
use super::participants::{Agent, Participants};
use super::pass::Evaluated;
use super::result::EvalStatus;
use super::run::EvalSetRequest;
use super::store::write;
use crate::output::RunError;
use crate::run::Progress;

/// What `nightmill suite infer` came to.
#[derive(Clone, Debug, Default)]
pub struct InferOutcome {
    /// Cases, over all passes.
    pub cases: u64,
    /// Those that failed, with the reason of the first one.
    pub failed: u64,
    /// See [`InferOutcome::failed`].
    pub first_failure: Option<String>,
    /// Those that a run that was broken off had left.
    pub taken: u64,
    /// What a reader must know, one line each.
    pub notes: Vec<String>,
}

/// Asks the agent about the cases of a set, and writes what it does to a file, for `run` to score. Until all are done
/// they stand in `FILE.partial`; a run that finds such a file asks only about what is missing or has failed.
///
/// # Errors
/// [`RunError`] if files can't be read or written, or a hook stops the run. What goes wrong in a case is in its line.
pub fn infer(
    request: &EvalSetRequest,
    participants: Participants,
    out: &Path,
    progress: &Progress,
) -> Result<InferOutcome, RunError> {
    progress.enter("reading the evaluation set");
    let Participants {
        evaluators,
        mut hooks,
        agent,
    } = participants;
    if let Agent::Recorded(_) = agent {
        let problem = "there is nothing to infer from recorded inferences; name a runner";
        return Err(RunError::Request(problem.to_owned()));
    }
    let (set, _, notes) = load(request, &evaluators)?;
    if set.repeats {
        return Err(RunError::Request(format!(
            "the set `{}` has several cases of one id, and inferences are kept by id; give each case an id of its own",
            set.id
        )));
    }
    let all = set.all();
    let unwritten = |e: FileError| RunError::Request(e.to_string());
    let (log, earlier) = InferenceLog::open(out).map_err(unwritten)?;
    let cases: HashMap<&str, &EvalCase> = all.iter().map(|case| (case.id.as_str(), case)).collect();
    let known: Recorded = earlier
        .into_iter()
        .filter(|(_, of)| of.app_name == request.app && of.eval_set_id == set.id)
        .filter(|((_, id), of)| {
            let case = cases.get(id.as_str());
            case.is_some_and(|case| still_asks(case, of))
        })
        .collect();
    // Clones of this type, so that one of the trait can be made of it.
    let hook: Arc<InferenceLog> = Arc::clone(&log);
    hooks.register("the log of inferences", hook);
    let runtime = crate::run::runtime(request.threads)?;
    let runner = agent.runner(runtime.handle());
    let evaluated = Evaluated {
        app: &request.app,
        set: &set.id,
        cases: &all,
        metrics: &[],
        registry: &evaluators,
        hooks: &hooks,
    };
    let mut outcome = InferOutcome {
        notes,
        ..InferOutcome::default()
    };
    let mut text = String::new();
    let chosen = Chosen::of(&request.cases);
    for run in 1..=request.runs {
        let wanted = all.iter().enumerate();
        let wanted = wanted.filter(|(_, case)| chosen.has(&case.id));
        let mut results: BTreeMap<usize, InferenceResult> = BTreeMap::new();
        let mut ask = Vec::new();
        for (at, case) in wanted {
            match known.get(&(run, case.id.clone())) {
                Some(known) => {
                    outcome.taken += 1;
                    results.insert(at, known.clone());
                }
                None => ask.push(case.id.clone()),
            }
        }
        // No names are all cases, and not none.
        if !ask.is_empty() {
            progress.enter("asking the agent");
            progress.part(0, ask.len() as u64);
            let phase = Phase {
                runner: runner.as_deref(),
                at_once: request.cases_at_once,
                hooks: &hooks,
                progress: Some(progress),
            };
            for inference in evaluated.infer(&phase, run, &ask)?.inferences {
                if let Some(case) = all.get(inference.case) {
                    let result = inference.result((&request.app, &set.id), case);
                    results.insert(inference.case, result);
                }
            }
        }
        for result in results.values() {
            outcome.cases += 1;
            if result.status == EvalStatus::Failed {
                outcome.failed += 1;
                let why = || format!("{}: {}", result.eval_id, result.error_message);
                outcome.first_failure.get_or_insert_with(why);
            }
            text.push_str(&line_of(run, result));
        }
    }
    write(out, &text).map_err(unwritten)?;
    log.remove();
    Ok(outcome)
}

/// Whether what was done answers what the case asks today.
fn still_asks(case: &EvalCase, of: &InferenceResult) -> bool {
    let turns = match case.actual_conversation.is_empty() {
        true => &case.conversation,
        false => &case.actual_conversation,
    };
    let asked = turns
        .iter()
        .flatten()
        .map(|turn| turn.user_content.as_ref());
    let done = of.inferences.iter().map(|turn| turn.user_content.as_ref());
    case.mode == of.mode && asked.eq(done)
}
