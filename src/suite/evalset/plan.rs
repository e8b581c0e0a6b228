//! `nightmill suite run --dry-run`: what judges would be asked about an evaluation set.

use super::evaluation::sides;
use super::hooks::HookRegistry;
use super::inference::{Inference, Phase, TRACE};
use super::judged::{JudgeRoute, look_up};
use super::load::load;
use super::model::{EvalCase, Invocation};
use super::participants::{Agent, Participants};
use super::pass::Evaluated;
use super::run::{EvalSetRequest, idle_prices, of_file, passes_of, recorded, route_rules};
use crate::judge::answers::Answers;
use crate::output::RunError;
use crate::suite::plan::{PlannedQuestions, SuitePlan};

/// Counts what judges would be asked, without asking them or an agent. Where an agent would be asked first, the expected
/// answers stand for its own.
///
/// # Errors
/// [`RunError`] if files can't be read, or no judge is to be asked.
pub fn plan(request: &EvalSetRequest, participants: &Participants) -> Result<SuitePlan, RunError> {
    let Some(judge) = &request.judge else {
        let problem = "--no-judge: nothing would be asked; leave it out, or --dry-run";
        return Err(RunError::Request(problem.to_owned()));
    };
    let (set, metrics, mut notes) = load(request, &participants.evaluators)?;
    let recorded = match &participants.agent {
        Agent::Recorded(path) => Some(recorded(path, request, &mut notes)?),
        _ => None,
    };
    let runs = recorded.as_ref().map_or(request.runs, passes_of);
    let cases = set.all();
    let passes: Vec<_> = match &recorded {
        Some(recorded) => (1..=runs)
            .map(|run| of_file(&request.cases, &cases, recorded, run))
            .collect(),
        None => {
            let hooks = HookRegistry::default();
            let evaluated = Evaluated {
                app: &request.app,
                set: &set.id,
                cases: &cases,
                metrics: &metrics,
                registry: &participants.evaluators,
                hooks: &hooks,
            };
            let phase = Phase {
                runner: None,
                at_once: 1,
                hooks: &hooks,
                progress: None,
            };
            let passes = (1..=runs).map(|run| evaluated.infer(&phase, run, &request.cases));
            passes.collect::<Result<_, _>>()?
        }
    };
    let mut inferences: Vec<Inference> = passes
        .into_iter()
        .flat_map(|pass| pass.inferences)
        .collect();
    let mut guessed = 0_u64;
    for inference in &mut inferences {
        let case = cases.get(inference.case);
        let expected = case.filter(|case| recorded.is_none() && case.mode != TRACE);
        if let Some(turns) = expected.and_then(expected_of) {
            inference.turns = Ok(turns);
            guessed += 1;
        }
    }
    if guessed > 0 {
        notes.push(format!(
            "{} of an agent that is not asked now: questions are counted, and their tokens are those of the expected \
             answers",
            crate::report::counted(guessed, "case is", "cases are")
        ));
    }
    let rules = route_rules(request, judge);
    let runtime = crate::run::runtime(request.threads)?;
    let mut planned = Vec::new();
    for (at, metric) in metrics.iter().enumerate() {
        let Some((of, evaluator)) = metric.judged() else {
            continue;
        };
        let route = match JudgeRoute::of(of, &rules) {
            Ok(route) => route,
            Err(problem) => {
                notes.push(format!("its cases would fail: {problem}"));
                continue;
            }
        };
        let answers = Answers::of(&judge.ledger, &route.provider);
        let answers = answers.map_err(|e| RunError::Request(e.to_string()))?;
        let mut questions = PlannedQuestions {
            metric: of.name.clone(),
            model: route.model.clone(),
            ..PlannedQuestions::default()
        };
        runtime.block_on(async {
            for inference in &inferences {
                let Some(case) = cases.get(inference.case) else {
                    continue;
                };
                let Ok(sides) = sides(case, inference, &metrics) else {
                    continue;
                };
                let turns = (sides.actual.as_slice(), sides.expected.as_slice());
                let rubrics = sides.rubrics.get(at).map(Vec::as_slice).unwrap_or_default();
                let asked = (evaluator, of, &route);
                look_up(
                    &answers,
                    asked,
                    turns,
                    rubrics,
                    inference.run,
                    &mut questions,
                )
                .await;
            }
        });
        planned.push(questions);
    }
    let models: Vec<String> = planned.iter().map(|of| of.model.clone()).collect();
    if !models.is_empty() {
        notes.extend(idle_prices(judge, &models));
    }
    let count = inferences.len() as u64;
    Ok(SuitePlan::of((1, count), Some(judge), planned, notes))
}

/// The turns that a case expects, if all are there.
fn expected_of(case: &EvalCase) -> Option<Vec<Invocation>> {
    case.conversation.iter().cloned().collect()
}
