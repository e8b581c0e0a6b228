//! `nightmill suite infer`: the inference phase on its own.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::hooks::InferenceResult;
use super::inference::{Chosen, Phase};
use super::inference_file::{InferenceLog, asked_text, line_of};
use super::json_file::FileError;
use super::load::load;
use super::participants::{Agent, Participants};
use super::pass::Evaluated;
use super::result::EvalStatus;
use super::run::EvalSetRequest;
use super::store::{StoreError, write};
use crate::output::RunError;
use crate::output::directory::is_same_file;
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
        ..
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
    refuse_as_output(out, request)?;
    let asked = all.iter();
    let asked: HashMap<String, String> = asked
        .map(|case| (case.id.clone(), asked_text(case, &request.agent)))
        .collect();
    let (log, known) = InferenceLog::open(out, asked.clone()).map_err(unwritten)?;
    let known: HashMap<(u32, String), InferenceResult> = known
        .into_iter()
        .filter(|(_, of)| of.result.app_name == request.app && of.result.eval_set_id == set.id)
        .map(|(key, of)| (key, of.result))
        .collect();
    hooks.register("the log of inferences", log.clone());
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
            let asked = asked.get(&result.eval_id).map_or("", String::as_str);
            text.push_str(&line_of(run, result, asked));
        }
    }
    write(out, &text).map_err(unwritten)?;
    log.remove();
    Ok(outcome)
}

/// Refuses a file that is something else: a part of the set, or no file at all.
fn refuse_as_output(out: &Path, request: &EvalSetRequest) -> Result<(), RunError> {
    let shown = out.display();
    if out.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return Err(RunError::Request(format!(
            "--out: `{shown}` is no plain file; name one"
        )));
    }
    for locator in [&request.sets, &request.metrics] {
        let input = locator
            .path(&request.app, &request.set)
            .map_err(StoreError::Locator)?;
        if is_same_file(out, &input) {
            return Err(RunError::Request(format!(
                "--out: `{shown}` is a file of the set itself; name another one"
            )));
        }
    }
    Ok(())
}
